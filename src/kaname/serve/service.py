"""The agents that are served on one journal, and the runs that this process is at."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from hashlib import sha256
from logging import getLogger
from typing import Any, Literal

from ..api.agent import Agent
from ..api.attach import stop_run
from ..api.result import Result
from ..api.run import Run, find_live
from ..api.workflow.workflow import Workflow
from ..core.errors import AgentError, ConfigError, RunNotFound, nearest
from ..core.notices import notice
from ..core.runs import RunInfo
from .problems import Refused
from .users import Caller

OnDisconnect = Literal["stop", "continue"]
STOP: OnDisconnect = "stop"
CONTINUE: OnDisconnect = "continue"
UNSTORED = "unstored~"  # how the ids of runs begin that are deleted when they are over; no client gives a run such an id
_PAGE = 500  # runs
_SWEEP = 60.0  # seconds
_LOOKS = 5  # at a run that changes while it is looked at
LEFT = notice("serve.left", "its reader went away")
SERVED = "served"  # in a run's origin: a server may take it up again
_LETTING_GO = 10.0  # seconds for the runs to be written down when the server ends
log = getLogger("kaname.serve")


class Service:
    """Runs are started detached: the server decides what becomes of them, and lets them go when it ends.

    `on_disconnect`: whether a run is stopped or continues if the client of another protocol leaves before its end.
    """

    def __init__(
        self, agents: Iterable[Agent[Any]], workflows: Iterable[Workflow] = (), on_disconnect: OnDisconnect = STOP
    ) -> None:
        listed = list(agents)
        self.workflows = {workflow.name: workflow for workflow in workflows}
        self.agents = {agent.name: agent for agent in listed}
        if not listed or len(self.agents) != len(listed) or len({id(agent.journal) for agent in listed}) != 1:
            raise ConfigError(
                notice(
                    "serve.agents",
                    "a service has agents of different names that share one journal: Agent(…, name=…, journal=…)",
                )
            )
        self.journal = listed[0].journal
        for agent in listed:
            agent.origin = {**agent.origin, SERVED: agent.name}
        if on_disconnect not in (STOP, CONTINUE):
            told = notice("serve.on_disconnect", 'on_disconnect is "stop" or "continue", not {given!r}', given=on_disconnect)
            raise ConfigError(told)
        self.on_disconnect = on_disconnect
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: dict[str, Run[Any]] = {}
        self.closing = False

    def agent(self, name: str = "") -> Agent[Any]:
        """The one of that name; the first, where none is named."""
        if not name:
            return next(iter(self.agents.values()))
        if name not in self.agents:
            raise Refused(404, notice("serve.no_agent", "there is no agent {name!r}", name=name) + nearest(name, self.agents))
        return self.agents[name]

    def input_of(self, agent: Agent[Any], given: Any) -> Any:
        """What a run is given. A workflow's are its parameters, a JSON object: checked, and with their defaults."""
        workflow = self.workflows.get(agent.name)
        return given if workflow is None else workflow.as_input(given)

    def agent_of(self, card: RunInfo) -> Agent[Any]:
        """The one that a run belongs to; the run may have been handed to another of its team since."""
        if card.agent not in self.agents:
            raise Refused(
                409, notice("serve.not_ours", "run {run_id} is of agent {agent!r}, which is not served here",
                            run_id=card.run_id, agent=card.agent)
            )  # fmt: skip
        return self.agents[card.agent]

    def tools_of(self, card: RunInfo) -> Mapping[str, Any]:
        """The tools of the agent that a run belongs to, as far as it is served here."""
        agent = self.agents.get(card.agent)
        return {} if agent is None else agent.tools

    async def card(self, run_id: str, caller: Caller) -> RunInfo:
        """Return the run's card, if the caller may see it. The run of another user is answered like one that does not exist.

        A user's run is also found by the id that the user gave it.
        """
        for one in dict.fromkeys([run_id, own_run_id(run_id, caller)] if run_id else []):
            cards = await self.journal.runs(run_id=one, limit=1)
            if cards and caller.sees(cards[0].user):
                return cards[0]
        raise RunNotFound(run_id)

    async def begin(self, run: Run[Any]) -> Run[Any]:
        """Start it, and keep it; when this returns, it is on disk."""
        if self.closing:
            raise Refused(503, notice("serve.closing", "the server is shutting down; try again"), retry_after="1")
        run.detach()
        try:
            await run.begun()
        except asyncio.CancelledError:  # the client went before it began, perhaps while it waited for its turn
            run.abort()
            raise
        self._runs[run.run_id] = run
        run.over(lambda: self._forget(run))
        return run

    def _forget(self, run: Run[Any]) -> None:
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]
        if is_unstored(run.run_id):
            self._in_background(self.remove_unstored(run.run_id))

    async def remove_unstored(self, starting: str = UNSTORED) -> None:
        """Delete the runs that are over and were not to be stored: the one of that id, or all that there are."""
        before, deleted = 0, list[str]()
        try:
            while cards := await self.journal.runs(starting=starting, before=before, limit=_PAGE):
                before = cards[-1].place
                deleted += await self.journal.prune([one for one in cards if not one.session and not one.parent])
            if deleted:
                await self.journal.tidy()  # their text is still in the write-ahead log
        except AgentError as problem:
            log.warning("runs that were not to be stored could not be deleted: %s", problem)

    async def keep_removing_unstored(self) -> None:
        """Look for those that a crash has left, or that another program has ended."""
        while True:
            await self.remove_unstored()
            await asyncio.sleep(_SWEEP)

    def here(self, run_id: str) -> bool:
        return find_live(self.journal, run_id) is not None

    async def finished(self, run: Run[Any]) -> Result[Any]:
        """Its result, however it ended; a failure is told in the result's `stop`."""
        await run.wait()
        return await self.agent_result(run.run_id)

    async def agent_result(self, run_id: str) -> Result[Any]:
        cards = await self.journal.runs(run_id=run_id, limit=1)
        agent = self.agents.get(cards[0].agent) if cards else None
        return await (agent or self.agent()).result(run_id)

    async def card_and_result(self, run_id: str) -> tuple[RunInfo, Result[Any]]:
        """Read a run's card and its result so that they fit: if it has ended or waits by now, both say so."""
        for _ in range(_LOOKS):
            result = await self.agent_result(run_id)
            cards = await self.journal.runs(run_id=run_id, limit=1)
            if not cards:
                raise RunNotFound(run_id)
            going = cards[0].status == "running" and result.stop.kind in ("running", "released")
            if going or cards[0].seq == result.state.seq:
                break
        return cards[0], result

    async def stop(self, card: RunInfo, reason: str = "") -> bool:
        """Stop a run, wherever it is; return False if it was over already."""
        stopped = await stop_run(self.journal, card.run_id, reason)
        if is_unstored(card.run_id):
            self._in_background(self.remove_unstored(card.run_id))
        return stopped

    def left(self, run_id: str, on_disconnect: OnDisconnect | None = None, *, waiting: bool = False) -> None:
        """Stop a run whose client went away before its end, or let it continue: the rule for every protocol.

        `on_disconnect`: what the request itself says, instead of the server's setting. A run that waits for an answer is not
        stopped, because its client has seen the question, unless `waiting` says that nobody will answer it. Neither is one
        that a server which shuts down leaves behind.
        """
        if self.closing or (on_disconnect or self.on_disconnect) != STOP:
            return
        if (work := find_live(self.journal, run_id)) is not None:
            work.abort(LEFT)
        elif waiting:
            self._in_background(self._end(run_id))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, run_id: str) -> None:
        try:
            await stop_run(self.journal, run_id, LEFT)
        except AgentError as problem:
            log.warning("run %s, whose client went away, could not be stopped: %s", run_id, problem)

    async def close(self) -> None:
        """Let the runs go, so that the next server goes on with them; then the agents."""
        self.closing = True
        if self._runs:
            letting_go = [asyncio.ensure_future(run.let_go()) for run in tuple(self._runs.values())]
            _, late = await asyncio.wait(letting_go, timeout=_LETTING_GO)
            if late:
                log.warning("%d runs did not end in time; they are resumed after the restart", len(late))
        await asyncio.gather(*self._tasks)
        for agent in self.agents.values():
            await agent.close()
        sinks = {id(sink): sink for agent in self.agents.values() for sink in agent.sinks}
        for flush in [sink.flush for sink in sinks.values() if hasattr(sink, "flush")]:
            await asyncio.to_thread(flush)


def is_unstored(run_id: str) -> bool:
    return run_id.startswith(UNSTORED)


def own_run_id(run_id: str, caller: Caller) -> str:
    """Return the id under which a run is recorded that a caller gives an id of their own.

    A user's ids are the user's alone: with a mark of the user at the end, the id of another user's run is free, and the answer
    does not say that there is such a run. Administrators see all runs, and give ids as they are.
    """
    if caller.is_admin:
        return run_id
    mark = sha256(f"{caller.name}\0{run_id}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{run_id}.{mark}"


def not_waiting(card: RunInfo) -> Refused:
    """An answer that comes too late does not undo a stop."""
    return Refused(
        409, notice("serve.not_waiting", "run {run_id} asks nothing: {status}", run_id=card.run_id, status=card.status)
    )
