"""Choose the engine for a file or an address."""

from __future__ import annotations

from pathlib import Path

from ....core.errors import ConfigError, nearest
from ....core.notices import notice
from .base import BuiltInEngine


def engine_for(source: str | Path, *, allow_superuser: bool = False) -> BuiltInEngine:
    text = str(source)
    if text.startswith(("postgres://", "postgresql://")):
        from .postgres import PostgresEngine

        return PostgresEngine(text, allow_superuser=allow_superuser)
    kind, found, rest = text.partition("://")
    path = Path(rest.removeprefix("/") if found else text)
    if found and kind not in ("sqlite", "duckdb", "file"):
        known = ["sqlite", "duckdb", "postgresql"]
        raise ConfigError(
            notice("database.no_engine", "unsupported database engine {kind!r}", kind=kind) + nearest(kind, known)
        )
    if kind == "duckdb" or (not found and _is_duck(Path(text).expanduser())):
        from .duckdb import DuckEngine

        return DuckEngine(path)
    from .sqlite import SqliteEngine

    return SqliteEngine(path)


def _is_duck(path: Path) -> bool:
    if not path.is_file():
        return path.suffix in (".duckdb", ".ddb")
    with path.open("rb") as file:
        return file.read(12)[8:12] == b"DUCK"
