"""Keep llama.cpp's state after the instructions and tools, so that the next process does not read them again.

The file holds the state after the instructions only: nothing of a question or an answer is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...core.codec import dump
from ...core.errors import ModelError
from ...core.messages import ModelRequest
from ..http.client import Http
from ..http.errors import Who
from . import weights

_WORTH = 800  # characters of instructions from which on it pays
_MOST = 8  # files, of some 10 MB each
_ANSWER = 600.0  # seconds for the server's answer

_ready: set[str] = set()  # servers that have been given their first prefix


def folder() -> Path:
    return weights.folder().parent / "prefixes"


def writable_folder() -> str:
    """Return the folder in which the server can keep its state, or "" if nothing can be written."""
    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return ""
    return f"{folder()}{os.sep}"


def is_wanted(server: str, request: ModelRequest) -> bool:
    """Return True for the first request to a server with long instructions. Later the server has them in memory."""
    first = request.messages[0] if request.messages else None
    return server not in _ready and first is not None and first.role == "system" and len(first.text) >= _WORTH


def leave_alone(server: str) -> None:
    """Restore nothing in a server that has served another process: it would lose what it has in memory."""
    _ready.add(server)


def forget(server: str) -> None:
    _ready.discard(server)


class Prefix:
    """The state of one server after the instructions. `address` and `headers` reach it; `model` names its weights."""

    def __init__(self, http: Http, address: str, headers: Mapping[str, str], who: Who, model: str) -> None:
        self._http, self._address, self._headers, self._who = http, address, dict(headers), who
        self._model = model

    async def prepare(self, instructions: str, body: bytes) -> None:
        """Restore the state for these instructions, or compute it and save it.

        `body` is the request that reads the instructions alone. A failure only costs time.
        """
        _ready.add(self._address)
        path = folder() / self._name(instructions)
        part = path.with_name(f"{path.stem}-{os.getpid()}.part")
        try:
            if path.is_file() and await self._ask(_slot("restore"), {"filename": path.name}):
                path.touch()
                return
            if await self._send("/v1/chat/completions", body) and await self._ask(_slot("save"), {"filename": part.name}):
                part.replace(path)
                _tidy(path.parent)
        except (ModelError, OSError):
            part.unlink(missing_ok=True)

    def _name(self, instructions: str) -> str:
        """Return a name that changes with everything the state depends on."""
        return sha256(f"{self._model}\n{version('xllamacpp')}\n{instructions}".encode()).hexdigest()[:32] + ".state"

    async def _ask(self, path: str, what: Mapping[str, Any]) -> bool:
        return await self._send(path, dump(what).encode())

    async def _send(self, path: str, body: bytes) -> bool:
        async with self._http.post(self._address + path, self._headers, body, self._who) as response:
            await response.read_body(_ANSWER)
            return response.status == 200


def _slot(action: str) -> str:
    return f"/slots/0?action={action}"


def _tidy(place: Path) -> None:
    """Remove all but the newest files."""
    kept = sorted(place.glob("*.state"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[_MOST:]:
        path.unlink(missing_ok=True)
