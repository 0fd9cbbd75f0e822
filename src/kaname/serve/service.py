"""The agents that are served on one journal, and the runs that this process executes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import nullcontext
from hashlib import sha256
from logging import getLogger
from typing import Any, Literal, get_args

from starlette.requests import Request

from ..agent.agent import Agent
from ..agent.work.deaths import SERVED
from ..agent.work.worker import Worker
from ..core.errors import AgentError, ConfigError, RunNotFound, nearest
from ..core.notices import notice
from ..core.runs import UPLOAD, RunInfo, is_upload
from ..kernel.bases import SinkBase
from ..kernel.chain import overrides
from ..run.attach import queued_card, stop_run
from ..run.result import Result
from ..run.run import GRACE, Run, find_live, let_go_of
from ..workflows.workflow import Workflow
from .access.auditor import Auditor
from .problems import HttpRefused
from .readers import Readers
from .stream import while_client_waits
from .users import Caller

Shown = Literal["nothing", "call", "turn", "run"]  # what people see who answer for other users, of one agent
SHOWN: tuple[Shown, ...] = get_args(Shown)
OnDisconnect = Literal["stop", "continue"]
STOP: OnDisconnect = "stop"
CONTINUE: OnDisconnect = "continue"
UNSTORED = "unstored~"  # prefix of the ids of runs that are deleted when they have ended; no client can choose such an id
_PAGE = 500  # runs
_SWEEP = 60.0  # seconds
_UNUSED = 3600.0  # seconds after which an upload that no message named is deleted
_LOOKS = 5  # tries to read a run that changes meanwhile
LEFT = notice("serve.left", "the client disconnected")
log = getLogger("kaname.serve")


class Service:
    """Start, resume and stop runs for requests.

    Runs are started detached: they do not end with their request, and are released when the server shuts down. `on_disconnect`:
    "stop" or "continue" a run whose client leaves before its end, in protocols other than ours.
    """

    def __init__(
        self, agents: Iterable[Agent[Any]], workflows: Iterable[Workflow] = (), on_disconnect: OnDisconnect = STOP
    ) -> None:
        listed = list(agents)
        self.workflows = {workflow.name: workflow for workflow in workflows}
        self.agents = {agent.name: agent for agent in listed}
        if not listed or len(self.agents) != len(listed) or len({id(agent.journal) for agent in listed}) != 1:
            raise ConfigError.of(
                "serve.agents",
                "a server needs agents with different names that share one journal: Agent(…, name=…, journal=…)",
            )
        self.journal = listed[0].journal
        self.auditor = Auditor(None, self.journal)
        for agent in listed:
            agent.origin = {**agent.origin, SERVED: agent.name}
        if on_disconnect not in (STOP, CONTINUE):
            raise ConfigError.of(
                "serve.on_disconnect", 'on_disconnect must be "stop" or "continue", not {given!r}', given=on_disconnect
            )
        self.on_disconnect = on_disconnect
        self.shown: dict[str, Shown] = {}  # by agent, where it is declared: see `shown_by`
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: dict[str, Run[Any]] = {}
        self._opening: set[Run[Any]] = set()
        self._past: list[Run[Any]] = []  # runs that are over, and whose tasks in the background are not
        self.worker: Worker | None = None  # that executes queued and interrupted runs here
        self.readers, self.closing = Readers(), False
        self.grace, self._hurry = GRACE, asyncio.Event()  # seconds that tool calls under way have to end at the shutdown

    def agent(self, name: str = "") -> Agent[Any]:
        """Return the agent of that name, or the first one if no name is given.

        Raise `HttpRefused` (404) if there is none.
        """
        if not name:
            return next(iter(self.agents.values()))
        if name not in self.agents:
            raise HttpRefused(
                404, notice("serve.no_agent", "there is no agent {name!r}", name=name) + nearest(name, self.agents)
            )
        return self.agents[name]

    def input_of(self, agent: Agent[Any], given: Any) -> Any:
        """Return the input for a run. For a workflow it is its parameters, a JSON object: checked, and with defaults."""
        workflow = self.workflows.get(agent.name)
        return given if workflow is None else workflow.as_input(given)

    def agent_of(self, card: RunInfo) -> Agent[Any]:
        """Return the agent of a run. The run may have been transferred to another agent of its team since."""
        if card.agent not in self.agents:
            raise HttpRefused(
                409, notice("serve.not_ours", "run {run_id} belongs to agent {agent!r}, which this server does not serve",
                            run_id=card.run_id, agent=card.agent)
            )  # fmt: skip
        return self.agents[card.agent]

    def tools_of(self, card: RunInfo) -> Mapping[str, Any]:
        """Return the tools of the agent of a run; an empty mapping if that agent is not served here."""
        agent = self.agents.get(card.agent)
        return {} if agent is None else agent.tools

    def shown_by(self, agent: str) -> Shown:
        """Return the parts of a question that a person sees who can answer for an agent, but cannot see its run.

        An agent that is not served here shows nothing, because its declaration is unknown.
        """
        return self.shown.get(agent, "call") if agent in self.agents else "nothing"

    async def card(self, run_id: str, caller: Caller, *, queued: bool = False) -> RunInfo:
        """Return the card of a run. Raise `RunNotFound` if it does not exist, or belongs to another user and the caller is no
        administrator.

        A user also finds a run by the id that the user gave it. `queued`: also one that no worker has begun.
        """
        for one in dict.fromkeys([run_id, own_run_id(run_id, caller)] if run_id else []):
            cards = await self.journal.runs(run_id=one, limit=1)
            card = cards[0] if cards else await queued_card(self.journal, one) if queued else None
            if card is not None and caller.sees(card.user):
                await self.auditor.read(caller, f"run:{one}", card.user)
                return card
        raise RunNotFound(run_id)

    async def card_to_answer(self, run_id: str, caller: Caller) -> RunInfo:
        """Return the card of a run whose questions the caller can answer, perhaps another user's. Raise `RunNotFound`."""
        if caller.answers_for_others:
            cards = await self.journal.runs(run_id=run_id, limit=1)
            if cards and caller.can_answer(cards[0].user, cards[0].agent):
                await self.auditor.read(caller, f"run:{run_id}", cards[0].user)
                return cards[0]
        if not caller.may("approve"):
            raise HttpRefused.of("serve.role", "this request needs the role {role!r}", http=403, role="approve")
        return await self.card(run_id, caller)

    async def resume(self, card: RunInfo, answers: Mapping[str, Any], caller: Caller, *, takeover: bool = False) -> Run[Any]:
        """Return the run, resumed with the caller's answers: the one way in for answers of every protocol.

        Raise `AuditError` if an answer could not be recorded in the audit log now.
        """
        if answers:
            await self.auditor.require_log()
        return self.agent_of(card).resume(card.run_id, answers, takeover=takeover, by=caller.name)

    async def begin(self, run: Run[Any], request: Request | None = None) -> Run[Any]:
        """Start the run and keep it. When this returns, the run is on disk.

        `request`: its client is waited for. A run whose client leaves before it has begun, while its files are read or its
        session is busy, never begins.
        """
        if self.closing:
            raise HttpRefused(503, notice("serve.closing", "the server is shutting down; try again"), retry_after="1")
        run.detach()
        self._opening.add(run)  # a server that shuts down meanwhile releases it before it does anything
        try:
            async with nullcontext() if request is None else while_client_waits(request):
                await run.begun()
        except (asyncio.CancelledError, HttpRefused):  # the client left before the run began, perhaps while it was queued
            if not self.closing:  # else it is released, as it is
                run.abort()
            raise
        finally:
            self._opening.discard(run)
        self._runs[run.run_id] = run
        run.over(lambda: self._forget(run))
        return run

    def _forget(self, run: Run[Any]) -> None:
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]
            self._past = [one for one in (*self._past, run) if one.tasks]
        if is_unstored(run.run_id):
            self.remove_later(run.run_id)

    def remove_later(self, run_id: str) -> None:
        """Delete a run that is not to be stored, in the background."""
        self._in_background(self.remove_unstored(run_id))

    async def remove_unstored(self, starting: str = UNSTORED, age: float = 0.0) -> None:
        """Delete ended runs that were not to be stored: their ids start with `starting`, and they are `age` seconds old."""
        before, deleted, latest = 0, list[str](), time.time() - age
        try:
            while cards := await self.journal.runs(starting=starting, before=before, limit=_PAGE):
                before = cards[-1].place
                await self.auditor.before_deleting()
                old = [one for one in cards if not one.session and not one.parent and one.created <= latest]
                for card in [one for one in old if one.status == "interrupted" and is_upload(one)]:  # left by a crash
                    await self.journal.delete(card.run_id)
                deleted += await self.journal.prune(old)
            if deleted:
                await self.journal.tidy()  # otherwise their text stays in the write-ahead log
        except AgentError as problem:
            log.warning("runs that were not to be stored could not be deleted: %s", problem)

    async def before_deletion(self, caller: Caller, subject: str, owner: str) -> None:
        """Record that the caller deletes something, after what its runs still have to say. Raise `AuditError` if it cannot."""
        await self.auditor.before_deleting()
        await self.auditor.record("delete", caller, subject, user=owner)

    async def keep_removing_unstored(self) -> None:
        """Delete, every minute, unstored runs that a crash has left or another program has ended, and unused uploads."""
        while True:
            await self.remove_unstored()
            await self.remove_unstored(UPLOAD, _UNUSED)
            await asyncio.sleep(_SWEEP)

    def run_here(self, run_id: str) -> Run[Any] | None:
        """Return the run if this server executes it."""
        return self._runs.get(run_id)

    def is_here(self, run_id: str) -> bool:
        return find_live(self.journal, run_id) is not None

    async def agent_result(self, run_id: str) -> Result[Any]:
        cards = await self.journal.runs(run_id=run_id, limit=1)
        agent = self.agents.get(cards[0].agent) if cards else None
        return await (agent or self.agent()).result(run_id)

    async def card_and_result(self, run_id: str, run: Run[Any] | None = None) -> tuple[RunInfo, Result[Any]]:
        """Read the card and the result of a run so that they match: if it has ended or waits by now, both say so.

        `run`: the run, if this server has executed it just now.
        """
        for _ in range(_LOOKS):
            cards = await self.journal.runs(run_id=run_id, limit=1)
            if not cards:
                raise RunNotFound(run_id)
            result = await (self.agents.get(cards[0].agent, self.agent()).result(run_id) if run is None else run.outcome())
            going = cards[0].status == "running" and result.stop.kind in ("running", "released")
            if going or cards[0].seq == result.state.seq:
                break
        return cards[0], result

    async def stop(self, card: RunInfo, reason: str = "") -> bool:
        """Stop a run, wherever it is executed. Return False if it had already ended."""
        stopped = await stop_run(self.journal, card.run_id, reason)
        if is_unstored(card.run_id):
            self.remove_later(card.run_id)
        return stopped

    def handle_departure(self, run_id: str, on_disconnect: OnDisconnect | None = None, *, waiting: bool = False) -> None:
        """Stop a run whose client left before its end, or let it continue: the rule for every protocol.

        `on_disconnect`: what the request says, instead of the setting of the server. A run that waits for an answer is not
        stopped, because its client has seen the question; with `waiting` it is, because an answer cannot come. A server that
        shuts down stops no run.
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

    def hurry(self) -> None:
        """Cut the tool calls that `close` waits for."""
        self._hurry.set()
        if self.worker is not None and self.closing:
            self.worker.stop(at_once=True)

    async def close(self) -> None:
        """Release the runs, so that the next server resumes them; then close the agents and flush the sinks.

        Tool calls under way have `grace` seconds to end, except pure ones.
        """
        self.closing = True
        if self.worker is not None:
            self.worker.stop(at_once=self._hurry.is_set())
        runs = [*self._runs.values(), *self._opening, *self._past]
        await let_go_of(runs, grace=self.grace, hurry=self._hurry)
        await asyncio.gather(*self._tasks)
        for agent in self.agents.values():
            await agent.close()
        sinks = {id(sink): sink for agent in self.agents.values() for sink in agent.sinks}
        for flush in [sink.flush for sink in sinks.values() if overrides(sink, "flush", SinkBase)]:
            await asyncio.to_thread(flush)


def is_unstored(run_id: str) -> bool:
    return run_id.startswith(UNSTORED)


def own_run_id(run_id: str, caller: Caller) -> str:
    """Return the id under which a run is recorded if a caller chooses the id.

    The ids of each user are separate: they end with a hash of the user. So a user can choose an id that another user has, and
    the answer does not reveal that run. Administrators see all runs, and their ids are used as they are.
    """
    if caller.is_admin:
        return run_id
    mark = sha256(f"{caller.name}\0{run_id}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{run_id}.{mark}"


def not_waiting(card: RunInfo) -> HttpRefused:
    """Return the error for an answer to a run that is not waiting. An answer that comes too late does not undo a stop."""
    return HttpRefused(
        409,
        notice(
            "serve.not_waiting", "run {run_id} is not waiting for an answer: {status}", run_id=card.run_id, status=card.status
        ),
    )
