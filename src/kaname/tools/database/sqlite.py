"""SQLite: opened read-only, with an authorizer that knows nothing but reading, and functions that cannot hang."""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

from ...core.errors import ConfigError
from ...core.language import say
from ..results import to_json
from .engine import Column, Limits, QueryFailed, Rows, Table, out_of_time, row_too_long, unique

_LONGEST_VALUE = 1_000_000
_LOOKING = 3.0  # seconds for tables, columns and samples
_LONGEST_PATTERN = 1_000
_CHECKED_EVERY = 2_000  # steps of SQLite's machine
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_NEVER = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "zipfile", "fsdir", "eval", "sqlite_dbpage"}


class SqliteEngine:
    dialect = "sqlite"

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser()
        if not self._path.is_file():
            raise ConfigError(say(f"there is no database {self._path}", f"データベース {self._path} がありません"))

    def _open(self) -> sqlite3.Connection:
        address = f"{self._path.resolve().as_uri()}?mode=ro"
        try:
            connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=2.0)
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
        except sqlite3.Error as problem:
            raise QueryFailed(str(problem)) from problem
        return connection

    def tables(self) -> list[Table]:
        connection = self._open()
        try:
            named = connection.execute(
                "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'"
            )
            end = monotonic() + _LOOKING
            connection.set_progress_handler(lambda: int(monotonic() > end), _CHECKED_EVERY)
            return [Table(name, tuple(self._columns(connection, name, kind))) for name, kind in named.fetchall()]
        except sqlite3.Error as problem:
            raise QueryFailed(str(problem)) from problem
        finally:
            connection.close()

    def _columns(self, connection: sqlite3.Connection, table: str, of: str) -> list[Column]:
        """A view that is broken or slow has columns nobody can tell, and does not stand in the way of the others."""
        found: list[Column] = []
        with suppress(sqlite3.Error):
            for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall():
                samples: tuple[str, ...] = ()
                if of == "table" and (not kind or "CHAR" in kind.upper() or "TEXT" in kind.upper()):
                    some = f"SELECT {_quoted(name)} FROM {_quoted(table)} LIMIT 500"
                    rows = connection.execute(f"SELECT DISTINCT {_quoted(name)} FROM ({some}) LIMIT 7")
                    samples = tuple([str(value) for (value,) in rows.fetchall() if value is not None])
                found.append(Column(name, kind, "", samples))
        return found

    def run(self, sql: str, limits: Limits) -> Rows:
        connection = self._open()
        try:
            _fence(connection, limits)
            cursor = connection.execute(sql)
            names = unique([column[0] for column in cursor.description or ()])
            made: list[dict[str, Any]] = []
            size = 0
            for row in cursor:
                made.append(dict(zip(names, [to_json(value) for value in row], strict=True)))
                length = len(str(made[-1]))
                size += length
                if length > limits.characters:
                    raise row_too_long(limits)
                if len(made) > limits.rows or size > limits.characters:
                    break
        except sqlite3.Warning as problem:
            raise QueryFailed(str(problem)) from problem
        except (sqlite3.Error, OverflowError, MemoryError) as problem:
            if "interrupted" in str(problem):
                raise out_of_time(limits) from None
            raise QueryFailed(_told(problem)) from problem
        finally:
            connection.close()
        return Rows(made[: limits.rows], len(made) > limits.rows or size > limits.characters)


def _told(problem: Exception) -> str:
    text = str(problem)
    if "prohibited" in text or "not authorized" in text:
        return say(f"the database allows reading only: {text}", f"読み取りだけが許可されています: {text}")
    return text


def _fence(connection: sqlite3.Connection, limits: Limits) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000)
    for name, function, takes in _FUNCTIONS:
        connection.create_function(name, takes, function, deterministic=True)
    for table in ("json_each", "json_tree"):  # made now, because making one looks like writing to the authorizer
        connection.execute(f"SELECT 1 FROM {table}('[]')")
    end = monotonic() + limits.seconds
    connection.set_progress_handler(lambda: int(monotonic() > end), _CHECKED_EVERY)
    connection.set_authorizer(_may)


def _may(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action not in _READING:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _NEVER:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and (first or "").lower() in ("sqlite_dbpage", "dbstat", "sqlite_stmt"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# One step of SQLite's machine cannot be interrupted, and some of its functions take quadratic time or worse in one step

_text = str


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else _text(value)


def _like(pattern: Any, value: Any, escape: Any = None) -> int | None:
    wanted, text = _as_text(pattern), _as_text(value)
    if wanted is None or text is None:
        return None
    return int(_fits(_pieces(_ascii_lower(wanted), "%", "_", _as_text(escape) or ""), _ascii_lower(text)))


def _ascii_lower(text: str) -> str:
    return "".join([char.lower() if char.isascii() else char for char in text]) if not text.isascii() else text.lower()


def _glob(pattern: Any, value: Any) -> int | None:
    wanted, text = _as_text(pattern), _as_text(value)
    if wanted is None or text is None:
        return None
    if "[" in wanted:
        if len(wanted) > 50 or len(text) > 10_000:
            raise ValueError("a GLOB with [ ] on a long text is not possible here")
        return int(re.fullmatch(_glob_pattern(wanted), text, re.DOTALL) is not None)
    return int(_fits(_pieces(wanted, "*", "?", ""), text))


def _glob_pattern(wanted: str) -> str:
    if wanted.count("*") > 4:
        raise ValueError("a GLOB with [ ] and so many * is not possible here")
    import fnmatch

    return fnmatch.translate(wanted.replace("[^", "[!"))


@lru_cache(maxsize=256)
def _pieces(pattern: str, many: str, one: str, escape: str) -> list[str | re.Pattern[str]]:
    """What stands between the wildcards for many characters: a text, or a pattern of one length."""
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError("LIKE or GLOB pattern too complex")
    made: list[str | re.Pattern[str]] = []
    part: list[tuple[str, bool]] = []
    place = 0

    def end() -> None:
        wild = any(is_wild for _, is_wild in part)
        text = "".join(["." if is_wild else re.escape(char) if wild else char for char, is_wild in part])
        made.append(re.compile(text, re.DOTALL) if wild else text)
        part.clear()

    while place < len(pattern):
        char = pattern[place]
        if escape and char == escape and place + 1 < len(pattern):
            place += 1
            part.append((pattern[place], False))
        elif char == many:
            end()
        else:
            part.append((char, char == one))
        place += 1
    end()
    return made


def _fits(pieces: list[str | re.Pattern[str]], text: str) -> bool:
    """The first piece begins the text, the last ends it, the others follow each other: the earliest place is the best."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return text == first if isinstance(first, str) else first.fullmatch(text) is not None
    place = _at(first, text, 0, anchored=True)
    for piece in pieces[1:-1]:
        if place < 0:
            return False
        place = _at(piece, text, place)
    size = len(last) if isinstance(last, str) else len(re.sub(r"\\(.)", r"\1", last.pattern))
    start = len(text) - size
    return 0 <= place <= start and _at(last, text, start, anchored=True) == len(text)


def _at(piece: str | re.Pattern[str], text: str, start: int, *, anchored: bool = False) -> int:
    """Where the piece ends that begins at `start`, or after it; -1 if there is none."""
    if isinstance(piece, str):
        found = (start if text.startswith(piece, start) else -1) if anchored else text.find(piece, start)
        return found + len(piece) if found >= 0 else -1
    match = piece.match(text, start) if anchored else piece.search(text, start)
    return match.end() if match else -1


def _instr(text: Any, wanted: Any) -> int | None:
    if text is None or wanted is None:
        return None
    if isinstance(text, bytes) and isinstance(wanted, bytes):
        return text.find(wanted) + 1
    return (_as_text(text) or "").find(_as_text(wanted) or "") + 1


def _trimmed(side: str) -> Any:
    def trim(text: Any, chars: Any = " ") -> str | None:
        whole, wanted = _as_text(text), _as_text(chars)
        if whole is None or wanted is None:
            return None
        return str(getattr(whole, side)(wanted)) if wanted else whole

    return trim


def _replace(text: Any, old: Any, new: Any) -> str | None:
    if text is None or old is None or new is None:
        return None
    whole, wanted, other = _as_text(text) or "", _as_text(old) or "", _as_text(new) or ""
    if not wanted:
        return whole
    if len(whole) + whole.count(wanted) * len(other) > _LONGEST_VALUE:
        raise ValueError("string or blob too big")
    return whole.replace(wanted, other)


_SIDES = (("trim", "strip"), ("ltrim", "lstrip"), ("rtrim", "rstrip"))
_FUNCTIONS: list[tuple[str, Any, int]] = [
    ("like", _like, 2),
    ("like", _like, 3),
    ("glob", _glob, 2),
    ("instr", _instr, 2),
    ("replace", _replace, 3),
    *[(name, _trimmed(side), takes) for name, side in _SIDES for takes in (1, 2)],
]
