"""A transport that owns its child process: it knows how the child ended, keeps its last words, and ends the whole group."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from .entry import Entry

_GRACE = 2.0  # seconds to end politely: after its input is closed, and again after SIGTERM
_LAST_WORDS = 20
_PIECE = 1 << 16


class OwnedProcess(ClientTransport):
    """The child gets HOME, PATH and the like, and what the entry's `env` says: none of our other variables, and so no keys."""

    def __init__(self, entry: Entry, ended: Callable[[], None]) -> None:
        self._entry, self._ended = entry, ended
        self._process: asyncio.subprocess.Process | None = None
        self._closing = False
        self._words: deque[str] = deque(maxlen=_LAST_WORDS)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def epitaph(self) -> str:
        """How it ended, and the last that it said."""
        code = None if self._process is None else self._process.returncode
        how = "" if code is None else f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        words = " | ".join([word for word in self._words if word.strip()][-3:])
        return "; ".join([part for part in (how, words[-300:]) if part])

    @asynccontextmanager
    async def connect_session(self, *, transport_options: Any = None, **session: Any) -> AsyncIterator[Any]:
        options = transport_options or TransportOptions()
        self._closing = False
        self._words.clear()
        pipe = asyncio.subprocess.PIPE
        process = self._process = await asyncio.create_subprocess_exec(
            self._entry.command,
            *self._entry.args,
            env={**get_default_environment(), **self._entry.env},
            cwd=self._entry.cwd,
            start_new_session=True,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )
        to_session, from_server = anyio.create_memory_object_stream[Any](0)
        from_session, to_server = anyio.create_memory_object_stream[Any](0)
        work = (self._read(process, to_session), self._write(process, to_server), self._listen(process))
        tasks = [asyncio.create_task(one) for one in work]
        try:
            async with options.session_class(from_server, from_session, **session) as made:
                yield made
        finally:
            self._closing = True
            with anyio.CancelScope(shield=True):
                await _end(process)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for stream in (to_session, from_server, from_session, to_server):
                    stream.close()

    async def _read(self, process: asyncio.subprocess.Process, to_session: Any) -> None:
        assert process.stdout is not None
        pieces: list[bytes] = []
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while piece := await process.stdout.read(_PIECE):
                if b"\n" not in piece:
                    pieces.append(piece)
                    continue
                *lines, rest = b"".join([*pieces, piece]).split(b"\n")
                pieces = [rest]
                for line in filter(bytes.strip, lines):
                    await to_session.send(_message(line))
            await _gone(process, 1.0)  # the exit code comes a moment after the end of the output
            if not self._closing:
                self._ended()
            await to_session.aclose()  # whoever waits for an answer is told now

    @staticmethod
    async def _write(process: asyncio.subprocess.Process, to_server: Any) -> None:
        assert process.stdin is not None
        with suppress(OSError, anyio.ClosedResourceError):  # it ended; the reader tells
            async for message in to_server:
                process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        rest = b""
        while piece := await process.stderr.read(_PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-_PIECE:]
            self._words.extend([line.decode("utf-8", "replace") for line in lines])


def _message(line: bytes) -> Any:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as problem:  # something that the server printed; the session passes it to the message handler
        return problem


async def _end(process: asyncio.subprocess.Process) -> None:
    """Politely, then firmly; at last the whole group, for a server may have started helpers of its own."""
    if process.stdin is not None:
        process.stdin.close()
    if not await _gone(process, _GRACE):
        _signal(process, signal.SIGTERM)
        await _gone(process, _GRACE)
    _signal(process, signal.SIGKILL)
    await _gone(process, 1.0)
    process._transport.close()  # type: ignore[attr-defined] # our ends of the pipes, even if a survivor holds the others


async def _gone(process: asyncio.subprocess.Process, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
