"""Connection to one MCP server: a FastMCP client over a process, HTTP or memory, and the meaning of its errors."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from logging import NullHandler, getLogger
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.install import install_command
from ...core.messages import ToolResult
from ...core.notices import notice
from ...core.record import replace
from ...kernel.boundary import Border
from .config import Entry, without_password

_QUIET = {
    "FASTMCP_ENV_FILE": os.devnull,
    "FASTMCP_LOG_ENABLED": "false",
}  # it reads a `.env` file and takes the log over otherwise
_NO_LOG = NullHandler()
_LOST_SESSION = ("session terminated", "session not found", "session expired", "no valid session", "invalid session")
_BROKEN_OFF = ("connection closed", "sse stream ended")  # what the client itself says, with code -32000
_OTHER_PROTOCOL, _NEWEST = -32022, "2026-07-28"
_UNREADABLE = "sse stream failed"  # one answer, too large or garbled; the others are not concerned
_DISCONNECTED = ("not connected", "failed to connect", "session task completed", "session was closed unexpectedly")

_SAYS_NOTHING = re.compile(r"(?i)server returned an error response|^not found$|session terminated|^client error|^server error")


class McpConnection:
    """One connection, from start to end. After `is_over` returns True it can no longer be used."""

    def __init__(self, entry: Entry, ended: Callable[[], None], **handlers: Any) -> None:
        """Prepare the connection. Blocking: the first call imports FastMCP.

        `handlers`: callbacks for the server's requests and messages, by their names in FastMCP's client. A feature without a
        handler is not offered to the server. Raises `ConfigError` if FastMCP is not installed."""
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        getLogger("mcp").addHandler(_NO_LOG)  # it would print tracebacks of errors that are reported here
        try:
            fastmcp = import_module("fastmcp.client")
        except ModuleNotFoundError as problem:
            raise ConfigError.of(
                "mcp.fastmcp_missing", "tool servers need FastMCP: {how}", how=install_command("mcp")
            ) from problem
        self.entry, self.process, self.status = entry, None, 0  # type: tuple[Entry, Any, int]
        self._unsent: set[str] = set()  # calls for which no connection could be made
        self._unknown: set[str] = set()  # calls that were refused because the server does not know our session
        where, auth = entry.server, handlers.pop("auth")
        if isinstance(where, fastmcp.Client):
            where = where.transport
        if entry.command:
            where = self.process = import_module("kaname.tools.mcp.transports").OwnedProcess(entry, ended)
        elif entry.url:
            signer = None if entry.auth is None else import_module("kaname.tools.mcp.oauth").oauth(entry, *auth)
            given = {"headers": dict(entry.headers), "httpx_client_factory": self._http, "auth": signer}
            self._over_http = import_module("kaname.tools.mcp.transports")
            if entry.sse:
                where = import_module("fastmcp.client.transports").SSETransport(entry.url, **given)
            else:
                where = self._over_http.LargeHttp(entry.url, entry.start_timeout if signer is None else None, **given)
        roots = [Path(one).expanduser().resolve().as_uri() for one in entry.roots] or None
        self.client: Any = fastmcp.Client(where, mode=entry.protocol, init_timeout=0, roots=roots, **handlers)

    def _http(self, *, follow_redirects: bool = True, **given: Any) -> Any:
        """Make the HTTP client as the transport does, and also record the last status and unknown sessions."""
        client = import_module("mcp.shared._httpx_utils").create_mcp_http_client(**given)
        client._transport = self._over_http.UnsentRecorder(client._transport, self._unsent.add)

        async def note_status(response: Any) -> None:
            self.status = response.status_code
            ours = "mcp-session-id" in response.request.headers
            if ours and response.status_code in (400, 404, 410) and not await _is_answer(response):
                self._unknown.add(self._over_http.call_key_of(response.request))

        client.event_hooks.setdefault("response", []).append(note_status)
        return client

    async def open(self) -> tuple[Any, list[Any]]:
        """Connect, and return the server's capabilities and its tools."""
        await self.client.__aenter__()
        self.client.session.validate_tool_result = _accept_any  # a mismatch is reported with the result, not lost
        able = self.client.server_capabilities
        return able, await self.list_tools() if getattr(able, "tools", None) is not None else []

    async def list_tools(self) -> list[Any]:
        """List the tools that the entry includes."""
        return [tool for tool in await self.client.list_tools() if self.entry.admits(tool.name)]

    async def close(self) -> None:
        """Close the client and then the transport: `client.close` raises earlier errors and would leave the transport open."""
        for end in (self.client.close, self.client.transport.close):
            with suppress(asyncio.CancelledError), Border():
                await end()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def why(self, problem: BaseException) -> str:
        """Describe why the connection is gone or was never made: how the process ended, or what the HTTP status means."""
        return (self.process.epitaph if self.process is not None else "") or self.error(problem)

    def error(self, problem: BaseException) -> str:
        """Describe the error of a call: its innermost cause, or what the HTTP status means and what to do."""
        told = reason(problem)
        error = getattr(problem, "error", None)
        if getattr(error, "code", None) == _OTHER_PROTOCOL:
            theirs = (getattr(error, "data", None) or {}).get("supported") or "?"
            told = notice(
                "mcp.other_protocol",
                "it supports only the protocol versions {theirs}; kaname supports versions up to {newest}",
                theirs=", ".join(theirs) if isinstance(theirs, list) else theirs,
                newest=_NEWEST,
            )
        if self.entry.url and (_SAYS_NOTHING.search(told) or type(problem).__name__ == "HTTPStatusError"):
            told = _status_advice(self.status) or told
        if told.lower().startswith(_UNREADABLE):
            told = told.rstrip(".") + "; whether the call took effect is not known. Ask for less at once, if the tool can"
        if "Unexpected content type" in told:
            told += notice("mcp.not_mcp", "; the server at this address is not an MCP server")
        return without_password(told.replace(self.entry.url, self.entry.label) if self.entry.url else told)

    def with_advice(self, result: ToolResult) -> ToolResult:
        """Add advice to the error of a server that sends requests which the newest protocol no longer has."""
        if result.error is None or "server-initiated requests" not in result.error:
            return result
        return replace(
            result, error=f"{result.error} Its user has to put `protocol: legacy` into the entry of {self.entry.name!r}"
        )

    def call_key(self, tool: str, args: Mapping[str, Any]) -> str:
        """Return the key that identifies a call in HTTP requests, and clear what was recorded under it."""
        if not self.entry.url:
            return ""
        key: str = self._over_http.call_key(tool, dict(args))
        self._unsent.discard(key)
        self._unknown.discard(key)
        return key

    def is_session_unknown(self, problem: BaseException, key: str | None = None) -> bool:
        """Return True if the server refused the request because it does not know the session, for example after a restart.

        `key`: the key of a call, so that an effect is not repeated because of another request. Omit it for requests that
        only read data."""
        text = str(problem).lower()
        unknown = bool(self._unknown) if key is None else key in self._unknown
        return bool(self.entry.url) and (unknown or any(words in text for words in _LOST_SESSION))

    def was_never_sent(self, problem: BaseException, key: str) -> bool:
        """Return True if no connection could be made, so that the server has not seen the call."""
        connecting = any(type(one).__name__ in ("ConnectError", "ConnectTimeout") for one in causes(problem))
        return connecting or key in self._unsent

    def is_over(self, problem: BaseException, key: str | None = None) -> bool:
        """Return True if the connection is gone. An error with a code from a running server is the tool's own error."""
        if self.process is not None and self.process.over:
            return True
        text, code = str(problem).lower(), getattr(getattr(problem, "error", None), "code", None)
        if code is not None:
            return bool(self.entry.url) and (
                self.is_session_unknown(problem, key) or (code == -32000 and text.startswith(_BROKEN_OFF))
            )
        broken = any(type(one).__module__.partition(".")[0] in ("httpx2", "httpcore2", "anyio") for one in causes(problem))
        return broken or not self.client.is_connected() or any(words in text for words in _DISCONNECTED)


async def _is_answer(response: Any) -> bool:
    """Return True if an error response answers this very request, rather than refusing to process it."""
    try:
        held, asked = json.loads(await response.aread()), json.loads(response.request.content)
    except ValueError:
        return False
    known = isinstance(held, dict) and isinstance(held.get("error"), dict)
    return known and isinstance(asked, dict) and asked.get("id") is not None and held.get("id") == asked["id"]


async def _accept_any(name: str, result: Any) -> None:
    """Accept every result. Replaces the client's check, which discards results that do not match their schema."""


def causes(problem: BaseException) -> list[BaseException]:
    found: list[BaseException] = [problem]
    for one in found:
        inner = [*one.exceptions] if isinstance(one, BaseExceptionGroup) else [one.__cause__ or one.__context__]
        found += [more for more in inner if more is not None and more not in found]
    return found


def reason(problem: BaseException) -> str:
    """Return the message of the innermost cause, which is the most specific."""
    cause: BaseException = problem
    while cause.__cause__ is not None or (isinstance(cause, BaseExceptionGroup) and cause.exceptions):
        cause = cause.__cause__ or cause.exceptions[0]  # type: ignore[attr-defined]
    return f"{cause or type(cause).__name__}"


def _status_advice(status: int) -> str:
    match status:
        case 401 | 403:
            return notice(
                "mcp.status_denied",
                "it responded with HTTP {status}: the key is missing or not accepted. Set it in `headers` "
                "(Authorization: Bearer …)",
                status=status,
            )
        case 404 | 405 | 406:
            return notice(
                "mcp.status_not_found",
                "it responded with HTTP {status}: there is no MCP server at this address. Check the path of `url`, often /mcp.",
                status=status,
            )
        case _ if status >= 500:
            return notice(
                "mcp.status_server_failed",
                "it responded with HTTP {status}: the server failed. Check its log, or try again later.",
                status=status,
            )
        case _ if status >= 400:
            return notice("mcp.status", "it responded with HTTP {status}", status=status)
    return ""
