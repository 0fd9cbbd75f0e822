"""Grounds: situations in which kaname has to keep its promises. Each is a few programs in processes of their own.

A ground is a function that takes a `Setting`. It starts programs with `setting.start(name, program)`; the schedule is over
when all of them have ended. A program is what a user would write: it starts a run or resumes it, and answers its questions.
If its process is killed, it begins anew. Add a ground with `@ground`, and every seed can choose it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Literal

from ...agent.agent import Agent
from ...agent.work.worker import Worker
from ...core.codec import encode_state
from ...core.errors import (
    InvalidState,
    JournalError,
    ModelError,
    RunBusy,
    RunExists,
    RunNotFound,
    RunSuperseded,
    SessionBusy,
)
from ...core.runs import UNDER_WAY, RunInfo
from ...kernel.load import load
from ...kernel.ports import ToolContext
from ...models.providers.scripted import call
from ...policies.money.budget import Budget
from ...policies.permission.approve import Approve
from ...run.handoffs.handoff import Team
from ...run.result import Result
from ...tools.function import tool
from .outside import Outside, Script, SentAnswer, SlowModel, book, count_up, look, order, outside, pay, put
from .promises import Evidence
from .stand_in import StandIn
from .store import Store, Weather
from .world import Process, World

_LATER = (RunBusy, SessionBusy, RunSuperseded, JournalError)  # what passes: try again
_TRIES = 400
_QUEUED = 12.0  # seconds after which a slow store has queued the last tick
WORDS = ("tea", "rice", "salt", "miso")
TOOLS = [look, count_up, put, pay, order, book]


class Setting:
    """What a ground needs: the world, its store, what is outside, and the record that is judged."""

    def __init__(self, world: World, weather: Weather, store: Store, there: Outside) -> None:
        self.world, self.weather, self.store, self.outside = world, weather, store, there
        self.random, self.evidence = world.random, Evidence(world, store, there)
        self._numbers = count(1)  # no two calls are equal: a model that repeats itself is stopped
        self.given: Callable[[Setting], StandIn] | None = None  # makes copies of the agent of a user
        self.words: Any = "Go."
        self.forms: Mapping[str, Sequence[Any]] = {"approve:": ("yes", "no"), "in-doubt:": ("retry", "skip")}

    def start(self, name: str, program: Callable[[Process], Awaitable[None]]) -> None:
        self.world.start(name, program)

    def agent(self, process: Process, script: Any, *, priced: bool = False, name: str = "desk", **options: Any) -> Agent[Any]:
        """Return an agent on the journal of that process."""
        tools = options.pop("tools", TOOLS)
        model = SlowModel(script, name=f"model of {name}", priced=priced)
        return Agent(model, tools, name=name, journal=self.store.open(process), **options)

    def script(self, most: int = 3) -> Script:
        """Return the replies of a model: some calls, in some turns, and an answer."""
        return Script([self.calls() for _ in range(self.random.randint(1, most))])

    def calls(self, most: int = 3) -> list[Any]:
        return [self.call() for _ in range(self.random.randint(1, most))]

    def call(self) -> Any:
        kind, word = self.random.randrange(7), f"{self.random.choice(WORDS)} {next(self._numbers)}"
        match kind:
            case 0:
                return call("look", what=word)
            case 1:
                return call("count_up", number=next(self._numbers))
            case 2:
                return call("put", what=word)
            case 3:
                return call("order", what=word)
            case 4:
                return call("book", room=word)
        return call("pay", yen=next(self._numbers))

    async def finish(
        self,
        agent: Agent[Any],
        run_id: str,
        begin: Callable[[], Awaitable[Result[Any]]],
        *,
        answers: bool = True,
        by: str = "",
    ) -> Result[Any] | None:
        """Start a run, or resume it, until it has ended. Answer its questions, or return when it asks."""
        for _ in range(_TRIES):
            try:
                result = await begin()
                while result.stop.kind == "waiting" and answers:
                    result = await self.answer(agent, result, by)
            except _LATER as problem:
                self.world.tell(f"{type(problem).__name__}: {str(problem)[:90]}")
                await self.outside.pause(1.0)
                continue
            except InvalidState as problem:  # another person has answered
                self.world.tell(f"InvalidState: {str(problem)[:90]}")
                await self.outside.pause(1.0)
                continue
            except ModelError:  # the provider is down: the run has failed, and can be resumed
                await self.outside.pause(1.0)
                continue
            self.note(result)
            return result
        self.world.report("never-ends", f"{run_id} has not ended after {_TRIES} tries")
        return None

    def note(self, result: Result[Any]) -> None:
        """Keep what a program was told of a run."""
        self.world.tell(f"{result.run_id} is {result.stop.kind} at fact {result.state.seq}")
        self.evidence.results.append((result.run_id, result.state.seq, encode_state(result.state)))

    async def answer(self, agent: Agent[Any], result: Result[Any], by: str = "") -> Result[Any]:
        """Answer one or all of the questions of a run, after a while."""
        await self.outside.pause(2.0)
        given = {key: self.answer_to(key) for key in result.questions}
        if len(given) > 1 and self.random.random() < 0.3:
            given = dict([self.random.choice(list(given.items()))])
        self.note_answers(result.run_id, given, by)
        return await agent.resume(result.run_id, given, by=by)

    def note_answers(self, run_id: str, given: Mapping[str, Any], by: str) -> None:
        for key, value in given.items():
            self.outside.answers.append(SentAnswer(self.outside.next_number(), run_id, key, value, by, self.world.now))
            self.world.tell(f"ANSWERS {key} of {run_id}: {value}")
            if "/" in key and ":" in key:  # of a child: the same answer for the run that asked first
                child, _, own = key.partition(":")
                self.outside.answers.append(SentAnswer(self.outside.next_number(), child, own, value, by, self.world.now))

    def answer_to(self, key: str) -> Any:
        for start, forms in self.forms.items():
            if key.startswith(start) or f":{start}" in key:
                return self.random.choice(forms)
        return "yes"

    async def until_ended(self, process: Process, runs: Sequence[str]) -> None:
        """Wait until all of these runs have ended."""
        journal = self.store.open(process)
        while True:
            await asyncio.sleep(0.5 + self.random.random())
            try:
                cards: list[RunInfo] = [card for run in runs for card in await journal.runs(run_id=run, limit=1)]
                queued = await journal.stores.queue.count() if journal.stores.queue is not None else {}
            except JournalError:
                continue
            if len(cards) == len(runs) and not any(card.status in UNDER_WAY for card in cards) and not any(queued.values()):
                return

    async def insist(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do something again until the store takes it."""
        for _ in range(_TRIES):
            try:
                return await work()
            except _LATER as problem:
                self.world.tell(f"{type(problem).__name__}: {str(problem)[:90]}")
                await self.outside.pause(0.5)
        raise AssertionError("the store never takes it")


Ground = Callable[[Setting], None]
GROUNDS: dict[str, Ground] = {}
BEATING: set[str] = set()  # grounds in which processes can be taken for dead although they live


def ground(function: Ground) -> Ground:
    """Register a ground under the name of its function."""
    GROUNDS[function.__name__.rstrip("_")] = function
    return function


def beating(function: Ground) -> Ground:
    """Register a ground in which a process can lose its run and come back."""
    BEATING.add(function.__name__.rstrip("_"))
    return ground(function)


@ground
def effects(setting: Setting) -> None:
    """Runs with tools of every effect, several calls at a time, in one process."""
    scripts = [setting.script() for _ in range(setting.random.choice((1, 1, 2)))]

    async def program(process: Process) -> None:
        agents = [setting.agent(process, script) for script in scripts]
        await asyncio.gather(
            *[
                setting.finish(agent, f"run-{number}", partial(_either, agent, f"run-{number}"))
                for number, agent in enumerate(agents)
            ]
        )

    setting.start("a", program)


async def _either(agent: Agent[Any], run_id: str, words: str = "Go.", **more: Any) -> Result[Any]:
    return await agent.start_or_resume(run_id, words, **more)


@ground
def retries(setting: Setting) -> None:
    """The provider and the services of tools fail now and then."""
    setting.outside.busy, setting.outside.fails, setting.outside.silent = 0.3, 0.2, 0.2
    effects(setting)


@ground
def two_at_once(setting: Setting) -> None:
    """Several processes start or resume the same run at the same time."""
    script = setting.script()

    async def program(process: Process) -> None:
        agent = setting.agent(process, script)
        await setting.finish(agent, "run-1", partial(_either, agent, "run-1"))

    for name in ("a", "b", "c")[: setting.random.choice((2, 2, 3))]:
        setting.start(name, program)


@beating
def takeover(setting: Setting) -> None:
    """Processes are taken for dead, or lose their run to another one that takes it over, and come back."""
    script = setting.script(2)

    async def program(process: Process) -> None:
        agent = setting.agent(process, script, tools=[look, count_up, put, pay])
        await setting.finish(agent, "run-1", partial(_take, setting, agent))

    for name in ("a", "b"):
        setting.start(name, program)


async def _take(setting: Setting, agent: Agent[Any]) -> Result[Any]:
    if not await agent.journal.runs(run_id="run-1", limit=1):
        return await agent.start_or_resume("run-1", "Go.")
    return await agent.resume("run-1", takeover=setting.weather.kills_left > 0 and setting.random.random() < 0.2)


@ground
def approvals(setting: Setting) -> None:
    """Calls need an approval. The user, and another person in another process, answer."""
    script = setting.script(2)
    setting.evidence.approved = frozenset({"pay", "order"})

    async def user(process: Process) -> None:
        agent = setting.agent(process, script, policies=[Approve("pay", "order")])
        answers = setting.random.random() < 0.5
        result = await setting.finish(agent, "run-1", partial(_either, agent, "run-1"), answers=answers)
        if result is not None and result.questions:
            await setting.until_ended(process, ["run-1"])

    async def boss(process: Process) -> None:
        agent = setting.agent(process, script, policies=[Approve("pay", "order")])
        while True:
            await setting.outside.pause(1.5)
            cards = await agent.journal.runs(run_id="run-1", limit=1)
            if cards and cards[0].status not in UNDER_WAY:
                return
            if cards and cards[0].status in ("waiting", "interrupted"):
                await setting.finish(agent, "run-1", partial(agent.resume, "run-1"), by="boss")

    setting.start("user", user)
    setting.start("boss", boss)


@ground
def expiry(setting: Setting) -> None:
    """Questions expire, while people answer in the last moment and clocks differ."""
    script = setting.script(2)
    then: Literal["refuse", "approve"] = "refuse" if setting.random.random() < 0.5 else "approve"
    setting.evidence.approved = frozenset({"pay"})

    async def program(process: Process) -> None:
        agent = setting.agent(process, script, policies=[Approve("pay", expires=4, then=then)])
        for _ in range(_TRIES):
            answers = setting.random.random() < 0.3
            result = await setting.finish(agent, "run-1", partial(_either, agent, "run-1"), answers=answers)
            if result is None or not result.questions:
                return
            await setting.outside.pause(4.0)

    setting.start("a", program)
    if setting.random.random() < 0.4:
        setting.start("b", program)


@ground
def children(setting: Setting) -> None:
    """Agents delegate work to others, which act and ask."""
    inner = setting.script(2)
    names = ["helper", "clerk"][: setting.random.choice((1, 2))]
    asked = [call("delegate_to_agent", agent=name, task="Go.") for name in names]
    outer = Script([[*asked, *setting.calls(1)] if setting.random.random() < 0.5 else asked])
    approving = setting.random.random() < 0.4
    setting.evidence.approved = frozenset({"pay"}) if approving else frozenset()

    def make(process: Process) -> Agent[Any]:
        policies = [Approve("pay")] if approving else []
        members = tuple([setting.agent(process, inner, name=name, policies=policies) for name in names])
        return setting.agent(process, outer, policies=policies, team=Team(members))

    async def program(process: Process) -> None:
        agent = make(process)
        await setting.finish(agent, "run-1", partial(_either, agent, "run-1"))

    setting.start("a", program)
    if setting.random.random() < 0.3:
        setting.start("b", program)


@ground
def queue(setting: Setting) -> None:
    """Runs are queued, and several workers execute them."""
    runs = [f"run-{number}" for number in range(setting.random.randint(2, 4))]
    script = Script([setting.calls(2)])
    sessions = setting.random.choice(("", "talk"))
    per_key, most = setting.random.choice((0, 1)), setting.random.choice((1, 2, 4))
    options: dict[str, dict[str, Any]] = {
        run: {
            "key": setting.random.choice(("", "ann", "bob")),
            "priority": setting.random.choice((0, 0, 1)),
            "delay": setting.random.choice((0.0, 0.0, 2.0)),
            "session_id": sessions if setting.random.random() < 0.5 else "",
        }
        for run in runs
    }

    async def client(process: Process) -> None:
        agent = setting.agent(process, script)
        for run in runs:
            await setting.insist(partial(agent.submit, "Go.", run_id=run, **options[run]))

    async def work(process: Process) -> None:
        await _work(setting, process, setting.agent(process, script), runs, concurrency=most, per_key=per_key)

    setting.start("client", client)
    for name in ("v", "w"):
        setting.start(name, work)
    _answer_from_outside(setting, script, runs)


async def _work(setting: Setting, process: Process, agent: Agent[Any], runs: Sequence[str], **options: Any) -> None:
    worker = Worker([agent], **options)
    working = asyncio.create_task(worker.work())
    await setting.until_ended(process, runs)
    worker.stop()
    await working


def _answer_from_outside(setting: Setting, script: Any, runs: Sequence[str], **options: Any) -> None:
    """Let a person in a process of its own answer what queued runs ask."""

    async def person(process: Process) -> None:
        agent = setting.agent(process, script, **options)
        open_ = set(runs)
        for _ in range(_TRIES):
            await setting.outside.pause(3.0)
            for run in sorted(open_):
                try:
                    cards = await agent.journal.runs(run_id=run, limit=1)
                    if cards and cards[0].status not in UNDER_WAY:
                        open_.discard(run)
                    elif cards and cards[0].status == "waiting":
                        asked = (await load(agent.journal, run)).questions
                        given = {key: setting.answer_to(key) for key in asked}
                        setting.note_answers(run, given, "boss")
                        await agent.submit_answers(run, given, by="boss")
                except (*_LATER, InvalidState) as problem:
                    setting.world.tell(f"{type(problem).__name__}: {str(problem)[:90]}")
            if not open_:
                return

    setting.start("person", person)


@ground
def budget(setting: Setting) -> None:
    """Runs in two processes share a budget."""
    limit = setting.random.choice((0.025, 0.045, 0.2))
    setting.evidence.limit = limit
    scripts = {f"run-{number}": setting.script(2) for number in range(setting.random.randint(2, 3))}

    async def program(runs: Sequence[str], process: Process) -> None:
        async def one(run: str) -> None:
            agent = setting.agent(
                process, scripts[run], priced=True, policies=[Budget(total=f"${limit}", longest_reply=100)], tools=[look, put]
            )
            await setting.finish(agent, run, partial(_either, agent, run))

        await asyncio.gather(*[one(run) for run in runs])

    names = list(scripts)
    setting.start("a", partial(program, names[:1]))
    setting.start("b", partial(program, names[1:]))


@ground
def schedules(setting: Setting) -> None:
    """Two workers have the same schedule, and their clocks differ."""
    script, every = Script([[call("put", what="tick"), call("pay", yen=1)]]), setting.random.choice((4, 7, 40))
    until = setting.world.now + setting.random.uniform(8.0, 16.0)
    setting.evidence.every = every

    def make(process: Process) -> Agent[Any]:
        agent = setting.agent(process, script)
        if setting.world.now < until:
            agent.schedule("tick", "Go.", every=every, missed="all")
        return agent

    async def work(process: Process) -> None:
        agent = make(process)
        worker = Worker([agent])
        working = asyncio.create_task(worker.work())
        while setting.world.now < until + _QUEUED or not await _ticks_have_ended(setting, agent):
            await asyncio.sleep(1.0)
            if setting.world.now >= until:
                agent.schedules = {}
        worker.stop()
        await working

    setting.start("v", work)
    setting.start("w", work)
    _answer_ticks(setting, make)


async def _ticks_have_ended(setting: Setting, agent: Agent[Any]) -> bool:
    try:
        cards = await agent.journal.runs(limit=100)
        assert agent.journal.stores.queue is not None
        queued = await agent.journal.stores.queue.count()
    except JournalError:
        return False
    return not any(card.status in UNDER_WAY for card in cards) and not any(queued.values())


def _answer_ticks(setting: Setting, make: Callable[[Process], Agent[Any]]) -> None:
    async def person(process: Process) -> None:
        agent = make(process)
        while len(setting.world.running) > 1:
            await setting.outside.pause(3.0)
            try:
                for card in await agent.journal.runs(status="waiting", limit=100):
                    given = {key: setting.answer_to(key) for key in (await load(agent.journal, card.run_id)).questions}
                    setting.note_answers(card.run_id, given, "boss")
                    await agent.submit_answers(card.run_id, given, by="boss")
            except (*_LATER, InvalidState) as problem:
                setting.world.tell(f"{type(problem).__name__}: {str(problem)[:90]}")

    setting.start("person", person)


@ground
def messages(setting: Setting) -> None:
    """People say something to a run while it works, from another process. What comes too late, the next run gets."""
    script, many = setting.script(), setting.random.randint(1, 4)

    async def program(process: Process) -> None:
        agent = setting.agent(process, script, tools=[look, count_up, put, pay])
        await setting.finish(agent, "run-1", partial(_either, agent, "run-1", session_id="talk"))
        while "friend" in setting.world.running:
            await setting.outside.pause(1.0)
        await setting.finish(agent, "run-2", partial(_either, agent, "run-2", session_id="talk"))

    async def friend(process: Process) -> None:
        agent = setting.agent(process, script, tools=[look])
        while not await agent.journal.runs(run_id="run-1", limit=1):
            await setting.outside.pause(0.5)
        for number in range(many):
            await setting.outside.pause(2.0)
            text = f"Message {number} of {process}."
            setting.outside.said[text] = ("talk", False)
            try:
                await agent.say("run-1", text, urgent=setting.random.random() < 0.3)
            except JournalError as problem:
                setting.world.tell(f"{type(problem).__name__}: {str(problem)[:90]}")
                continue
            setting.outside.said[text] = ("talk", True)

    setting.start("a", program)
    setting.start("friend", friend)


@tool(effect="irreversible", background=True)
async def ship(what: str, context: ToolContext) -> str:
    """Ship something, which takes a while."""
    await outside().pause(3.0)
    return await outside().act("ship", context, {"what": what})


@ground
def background(setting: Setting) -> None:
    """Tools work in the background, and the model collects what came of them."""
    shipped = [call("ship", what=f"box {number}") for number in range(setting.random.choice((1, 2)))]
    collected = [call("tasks", action="collect", task=f"c1_{number}") for number in range(len(shipped))]
    script = Script([shipped, *[setting.calls(1)] * setting.random.choice((0, 1)), collected])

    async def program(process: Process) -> None:
        agent = setting.agent(process, script, tools=[*TOOLS, ship])
        await setting.finish(agent, "run-1", partial(_either, agent, "run-1"))

    setting.start("a", program)


@ground
def session(setting: Setting) -> None:
    """Processes talk in the same session at the same time."""

    async def program(process: Process) -> None:
        agent = setting.agent(process, Script([]), tools=[look])
        for number in range(2):
            run = f"run-{process.name}-{number}"
            await setting.finish(agent, run, partial(_either, agent, run, f"Hello {run}.", session_id="talk"))

    for name in ("a", "b", "c")[: setting.random.choice((2, 3))]:
        setting.start(name, program)


@ground
def forks(setting: Setting) -> None:
    """A run is forked at some fact while or after it works."""
    script = setting.script(2)

    async def program(process: Process) -> None:
        agent = setting.agent(process, script)
        await setting.finish(agent, "run-1", partial(_either, agent, "run-1"))

    async def forker(process: Process) -> None:
        agent = setting.agent(process, script)
        await setting.outside.pause(4.0)
        while not (cards := await agent.journal.runs(run_id="run-1", limit=1)):
            await setting.outside.pause(1.0)
        at = setting.random.randint(2, max(2, cards[0].seq)) if cards[0].seq > 1 else 1

        async def begin() -> Result[Any]:
            if await agent.journal.runs(run_id="fork-1", limit=1):
                return await agent.resume("fork-1")
            try:
                return await agent.fork("run-1", at, new_id="fork-1")
            except RunExists:
                return await agent.resume("fork-1")

        await setting.finish(agent, "fork-1", begin)

    setting.start("a", program)
    setting.start("b", forker)


@ground
def stops(setting: Setting) -> None:
    """A run is stopped from another process."""
    script = setting.script(3)

    async def program(process: Process) -> None:
        agent = setting.agent(process, script)
        result = await setting.finish(agent, "run-1", partial(_once, agent))
        if result is not None and result.questions:
            await setting.until_ended(process, ["run-1"])

    async def stopper(process: Process) -> None:
        agent = setting.agent(process, script)
        await setting.outside.pause(5.0)
        for _ in range(_TRIES):
            try:
                if not await agent.stop("run-1", "enough"):
                    return
            except (RunNotFound, *_LATER) as problem:
                setting.world.tell(f"{type(problem).__name__}: {str(problem)[:90]}")
            await setting.outside.pause(1.0)

    setting.start("a", program)
    setting.start("b", stopper)


async def _once(agent: Agent[Any]) -> Result[Any]:
    """Start the run, or resume it if it was interrupted: a run that was stopped stays so."""
    cards = await agent.journal.runs(run_id="run-1", limit=1)
    if cards and cards[0].status not in UNDER_WAY:
        return await agent.result("run-1")
    return await agent.start_or_resume("run-1", "Go.")


@ground
def agent_of_user(setting: Setting) -> None:
    """The agent of a user, in one or two processes."""
    assert setting.given is not None
    stand_in = setting.given(setting)
    setting.evidence.effects = stand_in.effects

    async def program(process: Process) -> None:
        agent = stand_in.copy(setting.store.open(process))
        await setting.finish(agent, "run-1", partial(_either, agent, "run-1", setting.words))

    setting.start("a", program)
    if setting.random.random() < 0.3:
        setting.start("b", program)


DELAYING = {"queue", "expiry"}  # grounds in which a process waits until a time that another one has set
LONG = {"queue", "schedules"}  # grounds that take long, and are played half as often
OWN = tuple(name for name in GROUNDS if name != "agent_of_user")
