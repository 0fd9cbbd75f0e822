"""One server: started, called, started again when it dies, and gone when we are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from logging import getLogger
from time import monotonic
from typing import Any

from ...core.errors import AgentConnectionError, ConfigError
from ...core.language import say
from ...core.messages import ToolResult
from ...kernel.boundary import Border, Failure, attempt
from .entry import Entry
from .results import to_result

_LONGEST_WAIT = 30.0
_STEADY = 30.0  # seconds after which a server that was started again counts as well
_QUIET = {
    "FASTMCP_ENV_FILE": os.devnull,
    "FASTMCP_LOG_ENABLED": "false",
}  # it reads a `.env` file and takes the log over otherwise

Elicit = Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""`await elicit(server, question, schema)`: the answer as an object, or `None` to decline."""


class McpServer:
    """`changed` is called when its list of tools is another one. A server that died is started again by the next call."""

    def __init__(self, entry: Entry, changed: Callable[[], None], elicit: Elicit | None) -> None:
        self.entry, self.tools, self.capabilities = entry, [], None  # type: tuple[Entry, list[Any], Any]
        self._changed, self._elicit = changed, elicit
        self._client: Any = None
        self._process: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Lock = asyncio.Lock()
        self._failures, self._started_at, self._not_before = 0, 0.0, 0.0
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Connect and look at the tools. Raises `AgentConnectionError` with the reason."""
        async with self._starting:
            if self._client is not None and self._loop is asyncio.get_running_loop():
                return
            await self._shut()
            client = await asyncio.to_thread(self._made)
            outcome = await attempt(self._connect, client, passing=())
            if isinstance(outcome, Failure):
                why = (self._process.epitaph if self._process is not None else "") or reason(outcome.error)
                with Border():
                    await _close(client)
                self._failed()
                raise AgentConnectionError(
                    say(
                        f"the tool server {self.name!r} ({self.entry.told}) did not start: {why}",
                        f"ツールサーバー {self.name!r} ({self.entry.told}) を起動できません: {why}",
                    )
                )
            self._client, self._loop, self._started_at = client, asyncio.get_running_loop(), monotonic()

    def _made(self) -> Any:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            fastmcp = import_module("fastmcp.client")
        except ModuleNotFoundError as problem:
            raise ConfigError(
                say(
                    "tool servers need FastMCP: pip install 'kaname[mcp]'",
                    "ツールサーバーには FastMCP が必要です: pip install 'kaname[mcp]'",
                )
            ) from problem
        entry, where = self.entry, self.entry.server
        if entry.command:
            where = self._process = import_module("kaname.tools.mcp.stdio").OwnedProcess(entry, self._ended)
        elif entry.url:
            where = import_module("fastmcp.client.transports").StreamableHttpTransport(entry.url, headers=dict(entry.headers))
        more = {"elicitation_handler": self._asked} if self._elicit is not None else {}
        return fastmcp.Client(where, mode="legacy", init_timeout=entry.start_timeout, message_handler=self._heard, **more)

    async def _connect(self, client: Any) -> None:
        await client.__aenter__()
        self.capabilities = client.server_capabilities
        self.tools = await client.list_tools() if getattr(self.capabilities, "tools", None) is not None else []

    async def client(self) -> Any:
        """Connected; after a death, as soon as the pause before the next try is over."""
        if self._client is None or self._loop is not asyncio.get_running_loop():
            await asyncio.sleep(max(0.0, self._not_before - monotonic()))
            await self.start()
            self._changed()
        return self._client

    async def call(self, tool: str, args: Mapping[str, Any], progress: Callable[[str], Awaitable[None]]) -> ToolResult:
        try:
            client = await self.client()
        except AgentConnectionError as problem:
            return ToolResult(error=str(problem))

        async def told(done: float, total: float | None, message: str | None) -> None:
            await progress(message or (f"{done:g}/{total:g}" if total else f"{done:g}"))

        outcome = await attempt(lambda: client.call_tool(tool, dict(args), raise_on_error=False, progress_handler=told))
        if not isinstance(outcome, Failure):
            return to_result(outcome)
        if _is_over(outcome.error):
            died = self._lost()
            return ToolResult(
                error=say(
                    f"the tool server {self.name!r} went away while {tool} was running ({died}); whether it took effect is not "
                    "known. It is started again with the next call.",
                    f"{tool} の実行中にツールサーバー {self.name!r} が終了しました ({died})。"
                    "実行されたかどうかは不明です。次の呼び出しで再起動します。",
                )
            )
        return ToolResult(error=reason(outcome.error))

    def _lost(self) -> str:
        died = (self._process.epitaph if self._process is not None else "") or say("connection lost", "接続断")
        if self._client is not None:
            self._later(_close(self._client))
            self._client = None
            self._failed()
        return died

    def _failed(self) -> None:
        """The more often in a row, the longer the pause before it is started again."""
        self._failures = 1 if monotonic() - self._started_at > _STEADY and self._started_at else self._failures + 1
        self._not_before = monotonic() + min(_LONGEST_WAIT, 0.5 * 2 ** (self._failures - 1) if self._failures > 1 else 0.0)

    def _ended(self) -> None:
        getLogger("kaname").warning("the tool server %s ended: %s", self.name, self._lost())

    async def _heard(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._later(self._look_again())

    async def _look_again(self) -> None:
        if self._client is not None:
            outcome = await attempt(self._client.list_tools, passing=())
            if not isinstance(outcome, Failure):
                self.tools = outcome
                self._changed()

    async def _asked(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        from fastmcp.client.elicitation import ElicitResult

        assert self._elicit is not None
        answer = await self._elicit(self.name, message, getattr(params, "requested_schema", None) or {})
        return ElicitResult(action="decline") if answer is None else ElicitResult(action="accept", content=dict(answer))

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shut(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await _close(client)

    async def close(self) -> None:
        await self._shut()
        if self._tasks and self._loop is asyncio.get_running_loop():
            await asyncio.wait(self._tasks)


async def _close(client: Any) -> None:
    """Both halves: the first raises what went wrong before, and then leaves the second out."""
    for end in (client.close, client.transport.close):
        with suppress(asyncio.CancelledError), Border():
            await end()


def _is_over(problem: BaseException) -> bool:
    code = getattr(getattr(problem, "error", None), "code", None)
    text = str(problem).lower()
    return (
        code == -32000
        or "not connected" in text
        or "connecterror" in type(problem).__name__.lower()
        or "session terminated" in text
    )


def reason(problem: BaseException) -> str:
    """The innermost cause says the most."""
    cause: BaseException = problem
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return f"{cause or type(cause).__name__}"
