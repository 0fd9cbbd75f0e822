"""Lifecycle of one MCP server: start, call, restart when it dies, close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from logging import getLogger
from time import monotonic
from typing import Any

from ...core.durations import backoff
from ...core.errors import AgentConnectionError, ConfigError
from ...core.messages import ToolResult
from ...core.notices import notice
from ...core.record import replace
from ...core.tracing import current
from ...kernel.boundary import Failure, attempt
from ...kernel.ports import ToolContext
from ...kernel.results import timeout_result
from .config import Entry
from .connection import McpConnection, causes, reason
from .questions import Clock, Elicit, Questions, Sample, Samples
from .results import to_result

_LONGEST_WAIT = 30.0
_STEADY = 30.0  # seconds after which a server that was started again counts as well
_LOOKING = 10.0  # seconds for a list, a resource or a prompt


class McpServer:
    """One server and its connection. The next call restarts a server that died.

    `changed` is called when its list of tools changes."""

    def __init__(
        self, entry: Entry, changed: Callable[[], None], elicit: Elicit | None = None, sample: Sample | None = None
    ) -> None:
        self.entry, self.tools, self.capabilities = entry, [], None  # type: tuple[Entry, list[Any], Any]
        self.instructions = ""  # the server's instructions for the model
        self._changed, self._clock = changed, Clock()
        self._elicit, self._questions = elicit, Questions(entry.name, elicit, self._clock)
        self._samples = Samples(entry.name, sample) if sample is not None and entry.sampling else None
        self._live: McpConnection | None = None
        self._starting: asyncio.Task[McpConnection] | None = None
        self._process: Any = None
        self._failures, self._started_at, self._not_before = 0, 0.0, 0.0
        self._died_of_the_probe = self._old_way = self._late = False
        self.calls_under_way, self._closed, self._stale, self._looking = 0, False, False, False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def missing_notice(self) -> str:
        """A notice for every reader of a run that the server is missing. The server's own messages are only logged."""
        if self._late:
            return notice(
                "mcp.missing_late",
                "the tools of the server {name!r} are not available in this run: the server did not answer within "
                "{limit:g} s. If it needs more time to start, increase `start_timeout` in its entry.",
                name=self.name,
                limit=self.entry.start_timeout,
            )
        return notice(
            "mcp.missing",
            "the tools of the server {name!r} are not available in this run: the server did not start",
            name=self.name,
        )

    @property
    def connected(self) -> bool:
        """True while there is a connection to the server."""
        return self._live is not None

    @property
    def due(self) -> bool:
        """True if a run that begins now should try to start the server."""
        return self._live is None and (self.entry.required or monotonic() >= self._not_before)

    def set_elicit(self, elicit: Elicit) -> None:
        """Set the callback for the server's questions, unless the program has set one."""
        if self._elicit is None:
            self._elicit, self._questions = elicit, Questions(self.name, elicit, self._clock)

    # Start and end

    async def start(self) -> McpConnection:
        """Connect and list the tools. Concurrent callers share one start. Raises `AgentConnectionError` with the reason."""
        self._closed = False
        if self._live is not None:
            return self._live
        if self._starting is None or self._starting.done():
            self._starting = self._later(self._start())
        task = self._starting
        await asyncio.wait([task])  # a cancelled caller must not cancel the start for the others
        if task.cancelled():
            raise AgentConnectionError(_closed_notice(self.name))
        return task.result()

    async def _start(self) -> McpConnection:
        """Start the server, and try once more if it has forgotten our client or exited when asked for its protocol version.

        In the first case kaname registers again. In the second it uses the older handshake, now and for every restart."""
        begun = monotonic()
        try:
            return await self._start_once(self.entry.start_timeout)
        except AgentConnectionError as problem:
            forgotten = any(type(one).__name__ == "ForgottenClient" for one in causes(problem))
            if not forgotten and not self._died_of_the_probe:
                raise
        self._old_way, left = self._died_of_the_probe, self.entry.start_timeout - (monotonic() - begun)
        try:
            return await self._start_once(self.entry.start_timeout if forgotten else max(1.0, left))
        except AgentConnectionError:
            self._old_way = False
            raise

    async def _start_once(self, limit: float) -> McpConnection:
        begun, self._died_of_the_probe, self._late = monotonic(), False, False
        made = await attempt(asyncio.to_thread, self._make_connection, passing=(ConfigError,))
        if isinstance(made, Failure):
            raise self._start_error(reason(made.error), begun)
        connection: McpConnection = made
        self._process = connection.process
        try:
            async with self._clock.limit(limit):  # paused while the user signs in
                outcome = await attempt(connection.open, passing=())
        except TimeoutError:
            words = f"; {said}" if (said := connection.process.last_words if connection.process is not None else "") else ""
            await self._give_up(connection)
            self._late = True
            message = notice(
                "mcp.start_timeout", "it did not answer within {limit:g} s (`start_timeout`){words}", limit=limit, words=words
            )
            raise self._start_error(message, begun) from None
        except asyncio.CancelledError:
            await self._give_up(connection)
            raise
        if isinstance(outcome, Failure):
            why = connection.why(outcome.error)
            self._died_of_the_probe = connection.process is not None and connection.process.died_of_the_probe
            await self._give_up(connection)
            raise self._start_error(why, begun) from outcome.error
        self.capabilities, self.tools = outcome
        self.instructions = (connection.client.instructions or "").strip()
        self._live, self._started_at = connection, monotonic()
        return connection

    def _make_connection(self) -> McpConnection:
        return McpConnection(
            replace(self.entry, protocol="legacy") if self._old_way else self.entry,
            self._on_end,
            message_handler=self._handle_message,
            elicitation_handler=None if self._elicit is None else self._questions.ask,
            sampling_handler=None if self._samples is None else self._samples.answer,
            auth=(self._elicit, self._clock),
        )

    @staticmethod
    async def _give_up(connection: McpConnection) -> None:
        connection.kill()  # nothing has begun that would have to end cleanly
        await connection.close()

    def _start_error(self, why: str, begun: float) -> AgentConnectionError:
        self._count_failure(at_least=max(1.0, monotonic() - begun))
        return AgentConnectionError.of(
            "mcp.not_started",
            "the tool server {name!r} ({told}) did not start: {why}",
            name=self.name,
            told=self.entry.label,
            why=why,
        )

    def _count_failure(self, at_least: float = 0.0) -> None:
        """Count a failure, and lengthen the pause before the next start with each one in a row."""
        self._failures = 1 if monotonic() - self._started_at > _STEADY and self._started_at else self._failures + 1
        pause = backoff(self._failures - 1, 1.0, _LONGEST_WAIT)
        self._not_before = monotonic() + max(min(_LONGEST_WAIT, at_least), pause)

    async def connection(self) -> McpConnection:
        """Return the live connection. After a failure, wait for the pause to pass and start the server again."""
        if self._closed:
            raise AgentConnectionError(_closed_notice(self.name))
        if self._live is not None:
            return self._live
        await asyncio.sleep(max(0.0, self._not_before - monotonic()))
        if self._closed:
            raise AgentConnectionError(_closed_notice(self.name))
        connection = await self.start()
        self._changed()
        return connection

    def _drop(self, connection: McpConnection) -> None:
        if self._live is connection:
            self._live = None
            self._later(connection.close())
            self._count_failure()

    def _on_end(self) -> None:
        if self._live is not None and self._live.process is self._process:
            getLogger("kaname").warning("the tool server %s ended: %s", self.name, self._process.epitaph)
            self._drop(self._live)

    def forget(self) -> None:
        """Drop everything without waiting, because the event loop that the server belonged to is gone."""
        if self._process is not None:
            self._process.kill()
        self._live, self._starting, self._process, self._tasks = None, None, None, set()
        self.calls_under_way, self._looking = 0, False

    async def close(self) -> None:
        self._closed = True
        self._questions.call_off()
        if self._starting is not None:
            self._starting.cancel()
        connection, self._live = self._live, None
        if connection is not None:
            await connection.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Requests

    async def call(
        self, tool: str, args: Mapping[str, Any], context: ToolContext, schema: Any, pure: bool = False
    ) -> ToolResult:
        """Call a tool. Start and call have separate time limits. If the server lost our session, reconnect and retry."""
        for last in (False, True):
            try:
                connection = await self.connection()
            except AgentConnectionError as problem:
                return ToolResult(error=str(problem) + _not_sent(tool))
            key = connection.call_key(tool, args)
            outcome = await self._send(connection, tool, args, context, pure)
            if not isinstance(outcome, Failure):
                return outcome if isinstance(outcome, ToolResult) else connection.with_advice(to_result(outcome, schema))
            if last or not connection.is_session_unknown(outcome.error, key):
                break
            self._drop(connection)
        return self._call_error(connection, tool, key, outcome.error)

    async def _send(
        self, connection: McpConnection, tool: str, args: Mapping[str, Any], context: ToolContext, pure: bool
    ) -> Any:
        async def report_progress(done: float, total: float | None, message: str | None) -> None:
            await context.progress(message or (f"{done:g}/{total:g}" if total else f"{done:g}"))

        self.calls_under_way += 1
        try:
            with nullcontext() if self._samples is None else self._samples.on_behalf_of(context):
                async with self._clock.limit(self.entry.timeout):
                    meta = {"traceparent": trace} if (trace := current.get()) else None
                    return await attempt(partial(connection.client.call_tool_mcp, meta=meta), tool, dict(args), report_progress)
        except TimeoutError:
            return timeout_result(self.entry.timeout, in_doubt=not pure)
        finally:
            self.calls_under_way -= 1
            if self.calls_under_way == 0:  # no call is left that could use an answer
                self._questions.call_off()

    def _call_error(self, connection: McpConnection, tool: str, key: str, problem: BaseException) -> ToolResult:
        let_go = self._live is not connection and getattr(getattr(problem, "error", None), "code", -32000) == -32000
        if not let_go and not connection.is_over(problem, key):
            return ToolResult(error=connection.error(problem))
        died = connection.why(problem) or notice("mcp.connection_lost", "connection lost")
        self._drop(connection)
        if connection.was_never_sent(problem, key) or connection.is_session_unknown(problem, key):
            gone = notice("mcp.unreachable", "the tool server {name!r} cannot be reached ({died})", name=self.name, died=died)
            return ToolResult(error=gone + _not_sent(tool))
        message = notice(
            "mcp.went_away",
            "the tool server {name!r} stopped while {tool} was running ({died}); it is not known whether the "
            "call took effect. The next call restarts the server.",
            name=self.name,
            tool=tool,
            died=died,
        )
        return ToolResult(error=message)

    async def ask(self, method: str, *args: Any) -> Any:
        """Request something that only reads: a list, a resource, a prompt. Retried once if the connection is gone."""
        limit = min(_LOOKING, self.entry.start_timeout)
        for last in (False, True):
            connection = await self.connection()
            try:
                async with asyncio.timeout(limit):
                    asked = connection if method == "list_tools" else connection.client
                    outcome = await attempt(getattr(asked, method), *args, passing=())
            except TimeoutError:
                late = notice("mcp.timeout", "no answer within {limit:g} s", limit=limit)
                raise AgentConnectionError(f"{self.name!r}: {method}: " + late) from None
            if not isinstance(outcome, Failure):
                return outcome
            if last or not connection.is_over(outcome.error):
                raise AgentConnectionError(connection.error(outcome.error)) from outcome.error
            self._drop(connection)
        return None

    # Messages of the server

    async def _handle_message(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._stale = True
            if not self._looking:  # a storm of notices is answered with one look
                self._looking = True
                self._later(self._look_again())

    async def _look_again(self) -> None:
        while self._stale and self._live is not None:
            self._stale = False
            listed = await attempt(self.ask, "list_tools", passing=())
            if isinstance(listed, Failure) and self._closed:
                break
            if isinstance(listed, Failure):
                getLogger("kaname").warning("the tool server %s does not tell its tools: %s", self.name, listed)
            else:
                self.tools = listed
                self._changed()
        self._looking = False

    def _later(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)
        return task

    def _finish_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the waiting caller gets it


def _closed_notice(name: str) -> str:
    return notice("mcp.closed", "the tool server {name!r} was closed", name=name)


def _not_sent(tool: str) -> str:
    return notice("mcp.not_sent", "; the call to {tool} was not sent", tool=tool)
