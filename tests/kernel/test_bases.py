"""Optional members of parts: declared once, with defaults, and read in one way."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from kaname import Agent, Budget, Policy, PolicyInfo, ScriptedModel, Timeout, ToolResult, call
from kaname.core.errors import ConfigError, Halt, UnexpectedError
from kaname.core.events import ToolFinished
from kaname.core.messages import ToolCall, user
from kaname.core.steps import CallModel, CallTools, Conclude, Finish, Stop
from kaname.kernel import bases
from kaname.kernel.bases import ContextBase, ModelBase, SinkBase, StrategyBase, optional
from kaname.kernel.chain import in_order
from kaname.kernel.ports import Place
from kaname.run.recipe import strategy_kind
from kaname.strategies.stop import max_steps
from tests.parts import add

SOURCE = Path(bases.__file__).parents[1]
BASES = [value for name, value in vars(bases).items() if name.endswith("Base")]
MEMBERS = sorted({name for base in BASES for name in vars(base) if not name.startswith("_")})


class Bare:
    """A part with nothing of its own."""


@pytest.mark.parametrize("base", BASES)
def test_part_without_a_member_has_the_default_of_its_base(base):
    inherited = type("Inherits", (base,), {})()
    for name in [name for name in vars(base) if not name.startswith("_")]:
        bare, whole = optional(Bare(), base, name), getattr(inherited, name)
        assert callable(bare) == callable(whole)
        if not callable(bare):
            assert bare == whole
    assert strategy_kind(cast(Any, Bare())) == "Bare"


def test_optional_members_are_read_in_one_way_everywhere():
    """Not by `getattr` with a default of its own, which can differ from place to place."""
    by_hand = re.compile(rf'(getattr|hasattr)\([^()]*, "({"|".join(MEMBERS)})"')
    allowed = {  # objects of the user's or another library's, which are none of our parts
        "designs/monono/adapters.py", "designs/monono/guards.py", "policies/names.py",
        "policies/content/guardrails/tool_rules.py", "kernel/results.py", "tools/mcp/connection.py", "tools/definition.py",
        "testing/wire_contract.py", "testing/combine/trial.py", "testing/combine/ways.py", "testing/combine/stage.py",
        "kernel/bases.py", "tools/registry.py",
        "policies/money/meter.py",  # `options` at every tool call: `options_of` would be one call more
    }  # fmt: skip
    found = {f"{file.relative_to(SOURCE)}" for file in SOURCE.rglob("*.py") if by_hand.search(file.read_text())}
    assert found - allowed == set()


class Twice(StrategyBase):
    """Ask the model twice, and end with a text of its own at a limit."""

    def next(self, state):
        return CallModel() if state.replied < 2 else Finish(Stop("completed"), "whole")

    def conclude(self, state, stop):
        return Finish(stop, f"at a limit after {state.replied}")

    def partial(self, state):
        return "in part"


async def test_strategy_concludes_at_a_limit_and_has_a_partial_output():
    agent = Agent(ScriptedModel(["a", "b"]), strategy=Twice(), stops=max_steps(1), journal="memory")
    assert (await agent.run("go")).output == "at a limit after 1"
    agent = Agent(ScriptedModel(["a"]), strategy=Twice(), policies=[Closed()], journal="memory")
    assert (await agent.run("go")).output == "in part"


class Stubborn(StrategyBase):
    """Ask for last words at a limit, and then go on as if there were none."""

    def next(self, state):
        return CallTools((ToolCall(f"again{len(state.results)}", "add", {"a": len(state.results), "b": 1}),))

    def conclude(self, state, stop):
        return Conclude(stop, "Say something.")


async def test_limit_binds_a_strategy_that_goes_on_after_its_last_words():
    agent = Agent(ScriptedModel(["words"]), [add], strategy=Stubborn(), stops=max_steps(2), journal="memory")
    result = await agent.run("go")
    assert (result.stop.kind, len(result.state.results)) == ("max_steps", 2)


class Repeats(StrategyBase):
    """Call the same tool under the same id for ever: no limit would count it."""

    def next(self, state):
        return CallTools((ToolCall("x", "add", {"a": 1, "b": 1}),))


async def test_strategy_that_reuses_the_id_of_a_call_is_refused():
    agent = Agent(ScriptedModel([]), [add], strategy=Repeats(), stops=max_steps(5), journal="memory")
    with pytest.raises(UnexpectedError, match="every call needs a new id"):
        await agent.run("go")


class Closed(Policy):
    async def model(self, request, next, view):
        raise Halt(Stop("refused", "closed"))


class Closing(ModelBase):
    name = "closing"
    closed = False

    async def reply(self, request, emit):
        return await ScriptedModel(["Hi."]).reply(request, emit)

    def ignores(self, settings) -> Sequence[str]:
        return [name for name in settings if name == "temperature"]

    async def close(self) -> None:
        self.closed = True


class Greeting(ContextBase):
    order = 3

    async def __call__(self, messages, view):
        return [*messages, user("Be polite.")]


class Counting(SinkBase):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, event) -> None:
        self.seen.append(type(event.body).__name__)


async def test_parts_that_inherit_from_their_bases_work_together():
    model, sink = Closing(), Counting()
    agent = Agent(model, context=[Greeting()], sinks=[sink], settings={"temperature": 0.5}, journal="memory")
    chunks = [chunk async for chunk in agent.run("Hello")]
    assert any("temperature" in str(chunk) and chunk["data"].get("status") == "warning" for chunk in chunks)
    assert "Stopped" in sink.seen
    await agent.close()
    assert model.closed


def test_policies_stand_in_the_order_of_their_places_wherever_they_are_listed():
    def policy(place):
        return type("Own", (Policy,), {"place": place})()

    assert [one.place for one in in_order([policy(place) for place in reversed(get_args(Place))])] == [*get_args(Place)]
    first, second = policy("attempt"), policy("attempt")
    assert in_order([first, second]) == (first, second), "the first of a place is the outermost"
    with pytest.raises(ConfigError, match="there is no place 'outside'; a policy stands in one of: turn, choice, call"):
        in_order([policy("outside")])


@pytest.mark.parametrize("name", ["inner", "is_default", "replayed", "stands_alone"])
def test_members_that_a_value_has_replaced_are_refused_with_the_value(name):
    old = type("Own", (Policy,), {name: True})()
    with pytest.raises(ConfigError, match=rf"sets '{name}', which has no effect any more.*about = PolicyInfo"):
        Agent(ScriptedModel(["Hi."]), policies=[old], journal="memory")


async def test_policy_says_what_repeats_its_decisions_in_a_replay():
    class AsRecorded(Policy):
        def __init__(self, facts) -> None:
            self.results = {fact.body.result.call_id: fact.body.result for fact in facts if isinstance(fact.body, ToolFinished)}

        async def tool(self, call, next, view):
            return self.results[call.id] if self.results[call.id].not_run else await next(call)

    class OnlyOnce(Policy):
        """Lets a tool run once in the life of the program, which a replay cannot know."""

        about = PolicyInfo(replayed=False, repeat=AsRecorded)
        ran = False

        async def tool(self, call, next, view):
            if self.ran:
                return ToolResult(error="it has run", not_run=True, retryable=False)
            self.ran = True
            return await next(call)

    def ring() -> str:
        """Ring."""
        return "rung"

    agent = Agent(ScriptedModel([call("ring"), "A.", call("ring"), "B."]), [ring], policies=[OnlyOnce()], journal="memory")
    for observed in ("rung", "Error: it has run"):
        result = await agent.run("go")
        assert str(result.steps[0].observation) == observed
        assert (await agent.replay(result.run_id)).same


def test_about_of_a_subclass_keeps_the_fields_that_it_leaves_at_their_defaults():
    class Mine(Budget):
        about = PolicyInfo(stands_alone=True)

    budget = Mine(tools={"look": "2 calls/day"})
    assert budget.about.stands_alone
    assert budget.about.in_background is Budget.about.in_background, "else a call in the background counts twice"
    assert budget.about.repeat is Budget.about.repeat

    class Patient(Timeout):
        about = PolicyInfo(judges_replies=True)

    assert (Patient.about.replayed, Patient.about.stands_alone, Patient.about.judges_replies) == (False, True, True)
    assert Timeout.about == PolicyInfo(stands_alone=True, replayed=False), "a subclass changes nothing in its base"
