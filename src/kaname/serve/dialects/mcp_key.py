"""The key that seals MCP's `requestState`. It belongs to the journal: every worker and the next server can read it."""

from __future__ import annotations

import os
import secrets
from logging import getLogger
from pathlib import Path

from ...core.errors import ConfigError
from ...kernel.ports import Journal

ENVIRONMENT = "KANAME_SERVER_KEY"
_FILE = "server.key"
_LEAST = 32  # bytes
log = getLogger("kaname.serve")


def server_key(journal: Journal) -> bytes:
    """Return the key of the servers on that journal: `KANAME_SERVER_KEY`, or `server.key` next to the file of the journal.

    The file is made on first use, readable by its owner only. A journal without a file ends with the process, and so does its
    key. If the file cannot be used, a warning is logged and the process uses its own key.
    """
    if given := os.environ.get(ENVIRONMENT, ""):
        return _long_enough(given.encode("utf-8", "surrogateescape"), ENVIRONMENT)
    place = journal.stores.place
    if not place:
        return secrets.token_bytes(_LEAST)
    path = Path(place).expanduser().resolve().with_name(_FILE)
    try:
        return _long_enough(_read_or_make(path), str(path))
    except OSError as problem:
        log.warning("%s cannot be used (%s): MCP clients cannot answer questions after a restart, or of another worker",
                    path, problem.strerror)  # fmt: skip
        return secrets.token_bytes(_LEAST)


def _read_or_make(path: Path) -> bytes:
    """Read the key, or make it. If several workers make one at the same time, the first wins and all read that one."""
    if not path.exists():
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_hex(_LEAST).encode())
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_bytes().strip()


def _long_enough(key: bytes, place: str) -> bytes:
    if len(key) < _LEAST:
        raise ConfigError.of(
            "serve.short_key",
            "the key in {place} has fewer than {least} bytes; set a longer one",
            place=place,
            least=_LEAST,
        )
    return key
