"""Design E's diagram of states: every arrow is taken, no other is possible, and a task always ends, whatever befalls it."""

import asyncio
import itertools
import json
from contextlib import closing
from functools import reduce

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kaname import tool
from kaname.core.errors import ModelError
from kaname.core.events import ToolStarted
from kaname.core.messages import ModelReply, assistant
from kaname.core.state import State, evolve
from kaname.designs.orchestrator.orchestrator import AgentOrchestrator, TaskPlanner
from kaname.kernel.load import read_run
from kaname.strategies.orchestrate import phase_of
from tests.parts import Died, MortalJournal
from tests.properties import tries

ARROWS = {
    ("planning", "execution"),
    ("execution", "monitoring"),
    ("monitoring", "evaluation"),
    ("evaluation", "planning"),
    ("evaluation", "completed"),
    ("evaluation", "cancelled"),
}
# What a rule says of failed steps takes no time: evaluation is over before anybody sees it.
BY_RULE = {("monitoring", "planning")}
# From outside at any moment, by a failing model, or because the revisions are used up.
CANCELLED = {(phase, "cancelled") for phase in ("planning", "execution", "monitoring", "evaluation")}
# All that the new plan wants was done by the one before, and cannot be repeated.
KNOWN = {("planning", "evaluation")}
PLANS = {
    "good": [
        {"name": "a", "tool_name": "look", "arguments": {"what": "a"}},
        {"name": "b", "tool_name": "look", "arguments": {"what": "b"}},
        {"name": "c", "tool_name": "change", "arguments": {"what": "${a} ${b}"}},
    ],
    "short": [{"name": "a", "tool_name": "look", "arguments": {"what": "a"}}],
    "hasty": [{"name": "a", "tool_name": "look", "arguments": {"what": "a"}, "timeout": 0.005}],
    "unknown tool": [{"name": "a", "tool_name": "nothing", "arguments": {}}],
    "circle": [{"name": "a", "tool_name": "look", "arguments": {"what": "x"}, "depends_on": ["a"]}],
}

SELL = json.dumps({"description": "sell", "steps": [{"name": "a", "tool_name": "sell", "arguments": {"what": "a"}}]})


def plan(kind):
    return json.dumps({"description": kind, "steps": PLANS[kind]}) if kind in PLANS else kind


def verdict(kind):
    done, retry = {"yes": (True, False), "again": (False, True), "never": (False, False)}.get(kind, (None, None))
    said = {"is_successful": done, "should_retry": retry, "feedback": "", "reason": "no way", "answer": "it is done"}
    return json.dumps(said) if done is not None else kind


class Waiting:
    """One question of a run to the world: what is asked, and where the answer goes."""

    def __init__(self, kind, what=""):
        self.kind, self.what, self.answer = kind, what, asyncio.get_running_loop().create_future()


class World:
    """A run whose model and tools do nothing until they are told what."""

    def __init__(self, revisions=1):
        self.loop, self.journal, self.revisions = asyncio.new_event_loop(), MortalJournal(), revisions
        self.waiting, self.run_id = [], ""
        self.start()

    name = "told"

    async def reply(self, request, emit):
        judging = "You judge" in request.messages[0].text
        return ModelReply(assistant(await self.ask(Waiting("verdict" if judging else "plan"))), "end_turn")

    async def ask(self, waiting):
        self.waiting.append(waiting)
        try:
            return await waiting.answer
        finally:
            self.waiting.remove(waiting)

    def start(self):
        @tool(effect="pure")
        async def look(what: str) -> str:
            """Look."""
            return await self.ask(Waiting("tool", what))

        @tool(effect="idempotent")
        async def change(what: str) -> str:
            """Change."""
            return await self.ask(Waiting("tool", what))

        @tool
        async def sell(what: str) -> str:
            """Sell."""
            return await self.ask(Waiting("tool", what))

        self.made = AgentOrchestrator(TaskPlanner(self, [look, change, sell], max_revisions=self.revisions), None, self.journal)
        self.abort = asyncio.Event()

        async def follow():
            run = self.made.resume(self.run_id) if self.run_id else self.made.run("Do it.", abort_event=self.abort)
            self.run_id = run.run_id
            try:
                return await run
            except (ModelError, Died):
                return None

        self.task = self.loop.create_task(follow())
        self.settle()

    def settle(self, seconds=0.0):
        async def pause():
            await asyncio.sleep(seconds)
            for round in range(2000):
                await asyncio.sleep(0 if round < 60 else 0.001)
                if round > 20 and (self.waiting or self.task.done()):
                    break

        self.loop.run_until_complete(pause())

    def answer(self, kind, said):
        waiting = next((one for one in self.waiting if one.kind == kind), None)
        if waiting is not None and isinstance(said, Exception):
            waiting.answer.set_exception(said)
        elif waiting is not None:
            waiting.answer.set_result(said)
        self.settle()

    def break_off(self):
        """The process is gone: nothing that was under way says a word more, and another one goes on."""
        self.journal.dead = True
        self.task.cancel()
        self.settle()
        self.journal.revive()
        self.start()

    def end(self):
        for _ in range(200):
            if self.task.done():
                break
            for kind, said in (("plan", plan("short")), ("tool", "fine"), ("verdict", verdict("yes"))):
                self.answer(kind, said)
            self.settle(0.006)
        assert self.task.done(), "it always ends"
        self.task.exception()

    def facts(self):
        return self.loop.run_until_complete(read_run(self.journal, self.run_id))

    def phases(self):
        """After every fact, without those that stay the same."""
        passed = []
        for count in range(1, len(facts := self.facts()) + 1):
            state = reduce(evolve, facts[:count], State())
            phase = phase_of(*self.made.strategy.course(state), state)
            passed += [phase] if passed[-1:] != [phase] else []
        return passed

    def close(self):
        self.loop.close()

    def check(self):
        context = self.loop.run_until_complete(self.made.context(self.run_id))
        assert context.is_completed != context.is_cancelled
        assert context.is_completed or context.cancellation_reason
        assert len(context.execution_history) <= self.revisions + 1
        phases = self.phases()
        assert phases[0] == "planning"
        assert phases[-1] in ("completed", "cancelled")
        assert {*itertools.pairwise(phases)} <= ARROWS | BY_RULE | CANCELLED | KNOWN
        for one in context.execution_history:
            if {"a", "b", "c"} <= set(one.steps) and one.steps["c"]["status"] == "done":
                assert one.steps["a"]["status"] == one.steps["b"]["status"] == "done", "nothing before what it waits for"


class Task(RuleBasedStateMachine):
    """Plans, results, verdicts, failures, time-outs, cancellations and broken processes, in any order."""

    def __init__(self):
        super().__init__()
        self.world, self.broken = World(), 0

    def waits(self, kind):
        return any(one.kind == kind for one in self.world.waiting)

    @precondition(lambda self: self.waits("plan"))
    @rule(kind=st.sampled_from([*PLANS, "nonsense", "{}"]))
    def write_plan(self, kind):
        self.world.answer("plan", plan(kind))

    @precondition(lambda self: self.waits("tool"))
    @rule(said=st.sampled_from(["fine", ValueError("it fell down")]))
    def give_result(self, said):
        self.world.answer("tool", said)

    @precondition(lambda self: self.waits("tool"))
    @rule()
    def let_time_pass(self):
        self.world.settle(0.006)

    @precondition(lambda self: self.waits("verdict"))
    @rule(kind=st.sampled_from(["yes", "again", "never", "nonsense"]))
    def judge(self, kind):
        self.world.answer("verdict", verdict(kind))

    @precondition(lambda self: self.waits("plan") or self.waits("verdict"))
    @rule(kind=st.sampled_from(["plan", "verdict"]), seldom=st.integers(0, 9))
    def fail_to_reply(self, kind, seldom):
        if seldom == 9:
            self.world.answer(kind, ModelError("the provider is gone"))

    @rule(seldom=st.integers(0, 9))
    def cancel(self, seldom):
        if seldom == 9:
            self.world.abort.set()
            self.world.settle()

    @precondition(lambda self: self.broken < 2 and not self.world.task.done())
    @rule()
    def die(self):
        self.broken += 1
        self.world.break_off()

    def teardown(self):
        with closing(self.world):
            self.world.end()
            self.world.check()
            started = [fact.body.call.id for fact in self.world.facts() if isinstance(fact.body, ToolStarted)]
            assert len(started) <= len(set(started)) + 2 * self.broken, "once a plan, but for what a dead process left"


TestTask = Task.TestCase
TestTask.settings = tries(200, stateful_step_count=20)


def run_of(*answers):
    with closing(World()) as world:
        for kind, said in answers:
            world.answer(kind, said)
        world.end()
        world.check()
        phases = world.phases()
    return {*itertools.pairwise(phases)}


@pytest.mark.requirement("E1")
def test_e1_every_arrow_of_the_diagram_is_taken():
    results = [("tool", "fine")] * 3
    taken = run_of(("plan", plan("good")), *results, ("verdict", verdict("again")), ("plan", plan("short")))
    taken |= run_of(("plan", plan("good")), *results, ("verdict", verdict("never")))
    taken |= run_of(("plan", plan("short")), ("tool", ValueError("no")), ("plan", plan("good")))
    taken |= run_of(("plan", SELL), ("tool", "sold"), ("verdict", verdict("again")), ("plan", SELL))
    assert taken >= ARROWS | BY_RULE | KNOWN
