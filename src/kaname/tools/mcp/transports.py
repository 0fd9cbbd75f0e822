"""Transports: a server as a child process that kaname owns, or over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import httpx2
import mcp_types
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from fastmcp.client.transports.http import StreamableHttpTransport
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from ...core.notices import notice
from .config import Entry

_GRACE, _LAST_GRACE = 1.0, 0.5  # seconds to end politely: after its input is closed, and after SIGTERM
_LAST_WORDS = 20
_PIECE = 1 << 16


class OwnedProcess(ClientTransport):
    """A server as a child process.

    The child gets HOME, PATH and similar variables, and the entry's `env`, but no other variables of ours, and so no keys."""

    def __init__(self, entry: Entry, ended: Callable[[], None]) -> None:
        self._entry, self._ended = entry, ended
        self._process: asyncio.subprocess.Process | None = None
        self._guard: ProcessGuard | None = None
        self._closing = False
        self.over = False  # it can no longer be talked to
        self._probed = False  # it was asked for its protocol version, and has not confirmed the newest
        self._words: deque[str] = deque(maxlen=_LAST_WORDS)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def last_words(self) -> str:
        """The last lines that the process wrote to stderr."""
        return " | ".join([word for word in self._words if word.strip()][-3:])[-300:]

    @property
    def died_of_the_probe(self) -> bool:
        """True if it ended after it was asked for its protocol version: an old server may exit on an unknown request."""
        return self._probed and self.over

    @property
    def epitaph(self) -> str:
        """The exit code or signal, and the last lines of stderr. No code is given if kaname ended the process itself."""
        code = None if self._process is None or (self._closing and not self.over) else self._process.returncode
        how = "" if code is None else f"exit code {code}" if code >= 0 else _signal_name(-code)
        if self.over and code is None:
            how = notice("mcp.not_listening", "the process is still running, but no longer responds")
        return "; ".join([part for part in (how, self.last_words) if part])

    def kill(self) -> None:
        """Kill the process group at once and without waiting, for an event loop that has ended."""
        self._closing = True
        if self._process is not None and self._process.returncode is None:
            kill_group(self._process.pid)
        if self._guard is not None:
            self._guard.end()

    @asynccontextmanager
    async def connect_session(self, *, transport_options: Any = None, **session: Any) -> AsyncIterator[Any]:
        options = transport_options or TransportOptions()
        self._closing = self.over = self._probed = False
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
        self._guard = ProcessGuard(process.pid)
        to_session, from_server = anyio.create_memory_object_stream[Any](0)
        from_session, to_server = anyio.create_memory_object_stream[Any](0)
        work = (self._read(process, to_session), self._write(process, to_server, to_session), self._read_errors(process))
        tasks = [asyncio.create_task(one) for one in work]
        try:
            async with options.session_class(from_server, from_session, **session) as made:
                made.send_discover = partial(self._probe, made.send_discover)  # type: ignore[method-assign]
                yield made
        finally:
            self._closing = True
            try:
                with anyio.CancelScope(shield=True):
                    await _end(process)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                self._guard.end()
                for stream in (to_session, from_server, from_session, to_server):
                    stream.close()

    async def _probe(self, ask: Callable[[str], Awaitable[Any]], version: str) -> Any:
        self._probed = True
        answer = await ask_within(min(PROBE, self._entry.start_timeout / 2), ask, version)
        self._probed = False
        return answer

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
            await _wait_for_end(process, 1.0)  # the exit code comes a moment after the end of the output
            await self._set_over(to_session)

    async def _set_over(self, to_session: Any) -> None:
        """Mark the process as over and close the stream, so that waiting calls fail now."""
        if not self._closing and not self.over:
            self.over = True
            self._ended()
        await to_session.aclose()

    async def _write(self, process: asyncio.subprocess.Process, to_server: Any, to_session: Any) -> None:
        """Write messages to the process. A process that no longer reads counts as over, even if it is running."""
        assert process.stdin is not None
        try:
            async for message in to_server:
                try:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                except ValueError as problem:  # such as a lone surrogate: refuse only this message
                    await to_session.send(_refusal(message.message, problem))
                    continue
                process.stdin.write(line + b"\n")
                await process.stdin.drain()
        except OSError:
            await _wait_for_end(process, 1.0)
            await self._set_over(to_session)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the session ended first

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        rest = b""
        while piece := await process.stderr.read(_PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-_PIECE:]
            self._words.extend([line.decode("utf-8", "replace") for line in lines])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one has no name
        return f"signal {number}"


def _message(line: bytes) -> Any:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as problem:  # something that the server printed; the session passes it to the message handler
        return problem


def _refusal(message: Any, problem: Exception) -> SessionMessage:
    error = mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=f"it was not sent: {problem}")
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=getattr(message, "id", None), error=error))


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process: close its input, then SIGTERM, then SIGKILL to the whole group, since it may have started helpers.

    If the current task is cancelled (a second Ctrl-C, an abort during the start), SIGKILL is sent at once."""
    task = asyncio.current_task()
    try:
        if process.stdin is not None:
            process.stdin.close()
        if (task is None or not task.cancelling()) and not await _wait_for_end(process, _GRACE):
            kill_group(process.pid, signal.SIGTERM)
            await _wait_for_end(process, _LAST_GRACE)
    finally:
        kill_group(process.pid)
    await _wait_for_end(process, 1.0)
    process._transport.close()  # type: ignore[attr-defined] # our ends of the pipes, even if a survivor holds the others


async def _wait_for_end(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait for the process, at most so many seconds. Returns True if it has ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()
    return process.returncode is not None


_LARGEST = 64 << 20  # bytes of one answer: pictures are some megabytes


class LargeHttp(StreamableHttpTransport):
    """A streamable HTTP transport with a higher limit for the size of answers.

    `patience`: seconds to wait for the server's protocol version; `None` if a person may have to sign in first."""

    def __init__(self, url: str, patience: float | None, **options: Any) -> None:
        super().__init__(url, **options)
        self._patience = patience

    @asynccontextmanager
    async def connect_session(self, *, transport_options: Any = None, **session: Any) -> AsyncIterator[Any]:
        options = transport_options or TransportOptions()
        assert self.httpx_client_factory is not None
        made = self.httpx_client_factory(headers=dict(self.headers), auth=self.auth)
        async with (
            made as client,
            streamable_http_client(str(self.url), http_client=client, max_sse_event_size=_LARGEST) as (read, write),
            options.session_class(read, write, **session) as opened,
        ):
            if self._patience is not None:
                opened.send_discover = partial(ask_within, min(PROBE, self._patience / 2), opened.send_discover)  # type: ignore[method-assign]
            yield opened


class UnsentRecorder(httpx2.AsyncBaseTransport):
    """An HTTP transport that reports tool calls for which no connection could be made: the server has not seen them."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, unsent: Callable[[str], None]) -> None:
        self._inner, self._unsent = inner, unsent

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self._unsent(call_key_of(request))
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


def call_key(tool: str, args: Any) -> str:
    return json.dumps([tool, args], sort_keys=True, default=str)


def call_key_of(request: httpx2.Request) -> str:
    try:
        params = json.loads(request.content).get("params") or {}
    except (ValueError, AttributeError, httpx2.RequestNotRead):
        return ""
    return call_key(params.get("name", ""), params.get("arguments") or {})


PROBE = 10.0  # seconds: a busy server of the newest kind must not be taken for an old one


async def ask_within(seconds: float, ask: Callable[[str], Awaitable[Any]], version: str) -> Any:
    """Ask with a timeout. A late answer counts as a refusal, so that the client falls back to the older handshake."""
    try:
        async with asyncio.timeout(seconds):
            return await ask(version)
    except TimeoutError:
        raise MCPError(mcp_types.REQUEST_TIMEOUT, f"no answer to {version} within {seconds:g} s") from None


_SCRIPT = 'read -r _ || kill -9 "-$1"'


class ProcessGuard:
    """A shell that kills the server's process group when this process dies, even by SIGKILL.

    After SIGKILL kaname cannot end its servers, and a server that ignores the end of its input would run forever. The shell
    reads from a pipe that kaname holds open: when kaname is gone, reading ends. A helper that has left the process group is
    not killed. Call `end` after the group has ended normally.
    """

    def __init__(self, group: int) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # no shell, no guard
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "kaname-guard", str(group)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in our terminal is not meant for it
                cwd="/",
                env={"PATH": os.defpath},
            )

    def end(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            shell.kill()
            shell.wait()
            shell.stdin.close()


def kill_group(group: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
