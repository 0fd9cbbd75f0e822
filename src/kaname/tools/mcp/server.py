"""Lifecycle of one MCP server: started, called, restarted when it dies, ended with us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from logging import getLogger
from time import monotonic
from typing import Any

from ...core.errors import AgentConnectionError, ConfigError
from ...core.messages import ToolResult
from ...core.notices import notice
from ...core.record import replace
from ...core.tracing import current
from ...kernel.boundary import Failure, attempt
from ...kernel.ports import ToolContext
from ...kernel.results import timed_out
from .config import Entry
from .connection import Connection, causes, reason
from .elicitation import Clock, Elicit, Questions
from .results import to_result
from .sampling import Sample, Samples

_LONGEST_WAIT = 30.0
_STEADY = 30.0  # seconds after which a server that was started again counts as well
_LOOKING = 10.0  # seconds for a list, a resource or a prompt


class McpServer:
    """`changed` is called when its list of tools is another one. A server that died is started again by the next call."""

    def __init__(
        self, entry: Entry, changed: Callable[[], None], elicit: Elicit | None = None, sample: Sample | None = None
    ) -> None:
        self.entry, self.tools, self.capabilities = entry, [], None  # type: tuple[Entry, list[Any], Any]
        self.instructions = ""  # what it tells the model of itself
        self._changed, self._clock = changed, Clock()
        self._elicit, self._questions = elicit, Questions(entry.name, elicit, self._clock)
        self._samples = Samples(entry.name, sample) if sample is not None and entry.sampling else None
        self._live: Connection | None = None
        self._starting: asyncio.Task[Connection] | None = None
        self._process: Any = None
        self._failures, self._started_at, self._not_before = 0, 0.0, 0.0
        self._died_of_the_probe = self._old_way = self._late = False
        self._calls, self._closed, self._stale, self._looking = 0, False, False, False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def missing(self) -> str:
        """Why it is not there, in words for everybody: what the server itself said stays in the log."""
        if self._late:
            return notice(
                "mcp.missing_late",
                "the tools of the server {name!r} are missing in this run: it did not answer within {limit:g} s. If it needs "
                "longer to start, raise `start_timeout` in its entry.",
                name=self.name,
                limit=self.entry.start_timeout,
            )
        return notice(
            "mcp.missing", "the tools of the server {name!r} are missing in this run: it did not start", name=self.name
        )

    @property
    def due(self) -> bool:
        """Whether a run that begins now should try to start it."""
        return self._live is None and (self.entry.required or monotonic() >= self._not_before)

    def elicit_by(self, elicit: Elicit) -> None:
        """Who is asked, where the program has named nobody."""
        if self._elicit is None:
            self._elicit, self._questions = elicit, Questions(self.name, elicit, self._clock)

    # Its life

    async def start(self) -> Connection:
        """Connect and look at the tools, all who want it together. Raises `AgentConnectionError` with the reason."""
        self._closed = False
        if self._live is not None:
            return self._live
        if self._starting is None or self._starting.done():
            self._starting = self._later(self._start())
        task = self._starting
        await asyncio.wait([task])  # one who waits may be cancelled; the others go on waiting
        if task.cancelled():
            raise AgentConnectionError(_closed(self.name))
        return task.result()

    async def _start(self) -> Connection:
        """Start it, a second time if the server has forgotten who we are, or ended when it was asked for its protocol.

        In the first case we register anew. In the second it is greeted in the old way, and so it is whenever it is restarted.
        """
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

    async def _start_once(self, limit: float) -> Connection:
        begun, self._died_of_the_probe, self._late = monotonic(), False, False
        made = await attempt(asyncio.to_thread, self._connection, passing=(ConfigError,))
        if isinstance(made, Failure):
            raise self._not_started(reason(made.error), begun)
        connection: Connection = made
        self._process = connection.process
        try:
            async with self._clock.limit(limit):  # it stands still while somebody signs in
                outcome = await attempt(connection.open, passing=())
        except TimeoutError:
            words = f"; {said}" if (said := connection.process.words if connection.process is not None else "") else ""
            await self._given_up(connection)
            self._late = True
            told = notice(
                "mcp.start_timeout", "it did not answer within {limit:g} s (`start_timeout`){words}", limit=limit, words=words
            )
            raise self._not_started(told, begun) from None
        except asyncio.CancelledError:
            await self._given_up(connection)
            raise
        if isinstance(outcome, Failure):
            why = connection.why(outcome.error)
            self._died_of_the_probe = connection.process is not None and connection.process.died_of_the_probe
            await self._given_up(connection)
            raise self._not_started(why, begun) from outcome.error
        self.capabilities, self.tools = outcome
        self.instructions = (connection.client.instructions or "").strip()
        self._live, self._started_at = connection, monotonic()
        return connection

    def _connection(self) -> Connection:
        return Connection(
            replace(self.entry, protocol="legacy") if self._old_way else self.entry,
            self._on_end,
            message_handler=self._heard,
            elicitation_handler=None if self._elicit is None else self._questions.asked,
            sampling_handler=None if self._samples is None else self._samples.asked,
            auth=(self._elicit, self._clock),
        )

    @staticmethod
    async def _given_up(connection: Connection) -> None:
        connection.kill()  # it has not begun anything that it would have to end in order
        await connection.close()

    def _not_started(self, why: str, begun: float) -> AgentConnectionError:
        self._failed(at_least=max(1.0, monotonic() - begun))
        return AgentConnectionError(
            notice(
                "mcp.not_started",
                "the tool server {name!r} ({told}) did not start: {why}",
                name=self.name,
                told=self.entry.told,
                why=why,
            )
        )

    def _failed(self, at_least: float = 0.0) -> None:
        """The more often in a row, the longer the pause before it is started again."""
        self._failures = 1 if monotonic() - self._started_at > _STEADY and self._started_at else self._failures + 1
        pause = 0.5 * 2 ** (self._failures - 1) if self._failures > 1 else 0.0
        self._not_before = monotonic() + min(_LONGEST_WAIT, max(at_least, pause))

    async def connection(self) -> Connection:
        """After a death, as soon as the pause before the next try is over."""
        if self._closed:
            raise AgentConnectionError(_closed(self.name))
        if self._live is not None:
            return self._live
        await asyncio.sleep(max(0.0, self._not_before - monotonic()))
        if self._closed:
            raise AgentConnectionError(_closed(self.name))
        connection = await self.start()
        self._changed()
        return connection

    def _drop(self, connection: Connection) -> None:
        if self._live is connection:
            self._live = None
            self._later(connection.close())
            self._failed()

    def _on_end(self) -> None:
        if self._live is not None and self._live.process is self._process:
            getLogger("kaname").warning("the tool server %s ended: %s", self.name, self._process.epitaph)
            self._drop(self._live)

    def forget(self) -> None:
        """The loop that it lived in is gone, and nobody can wait for its end."""
        if self._process is not None:
            self._process.kill()
        self._live, self._starting, self._process, self._tasks = None, None, None, set()
        self._calls, self._looking = 0, False

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

    # What it is asked to do

    async def call(
        self, tool: str, args: Mapping[str, Any], context: ToolContext, schema: Any, pure: bool = False
    ) -> ToolResult:
        """A start has its own time limit, and so has the call. A server that does not know us any more is told who we are."""
        for last in (False, True):
            try:
                connection = await self.connection()
            except AgentConnectionError as problem:
                return ToolResult(error=str(problem) + _not_sent(tool))
            key = connection.key(tool, args)
            outcome = await self._sent(connection, tool, args, context, pure)
            if not isinstance(outcome, Failure):
                return outcome if isinstance(outcome, ToolResult) else connection.explained(to_result(outcome, schema))
            if last or not connection.refused(outcome.error, key):
                break
            self._drop(connection)
        return self._call_error(connection, tool, key, outcome.error)

    async def _sent(self, connection: Connection, tool: str, args: Mapping[str, Any], context: ToolContext, pure: bool) -> Any:
        async def told(done: float, total: float | None, message: str | None) -> None:
            await context.progress(message or (f"{done:g}/{total:g}" if total else f"{done:g}"))

        self._calls += 1
        try:
            with nullcontext() if self._samples is None else self._samples.on_behalf_of(context):
                async with self._clock.limit(self.entry.timeout):
                    meta = {"traceparent": trace} if (trace := current.get()) else None
                    return await attempt(partial(connection.client.call_tool_mcp, meta=meta), tool, dict(args), told)
        except TimeoutError:
            return timed_out(self.entry.timeout, in_doubt=not pure)
        finally:
            self._calls -= 1
            if self._calls == 0:  # nobody is left for whom an answer would be of use
                self._questions.call_off()

    def _call_error(self, connection: Connection, tool: str, key: str, problem: BaseException) -> ToolResult:
        let_go = self._live is not connection and getattr(getattr(problem, "error", None), "code", -32000) == -32000
        if not let_go and not connection.over(problem, key):
            return ToolResult(error=connection.error(problem))
        died = connection.why(problem) or notice("mcp.connection_lost", "connection lost")
        self._drop(connection)
        if connection.unreached(problem, key) or connection.refused(problem, key):
            gone = notice("mcp.unreachable", "the tool server {name!r} cannot be reached ({died})", name=self.name, died=died)
            return ToolResult(error=gone + _not_sent(tool))
        told = notice(
            "mcp.went_away",
            "the tool server {name!r} went away while {tool} was running ({died}); whether it took effect is not "
            "known. It is started again with the next call.",
            name=self.name,
            tool=tool,
            died=died,
        )
        return ToolResult(error=told)

    async def ask(self, method: str, *args: Any) -> Any:
        """Something that only reads: a list, a resource, a prompt. Once more where the connection turns out to be gone."""
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
            if last or not connection.over(outcome.error):
                raise AgentConnectionError(connection.error(outcome.error)) from outcome.error
            self._drop(connection)
        return None

    # What it tells by itself

    async def _heard(self, message: Any) -> None:
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
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it is told


def _closed(name: str) -> str:
    return notice("mcp.closed", "the tool server {name!r} was closed", name=name)


def _not_sent(tool: str) -> str:
    return notice("mcp.not_sent", "; the call of {tool} was not sent", tool=tool)
