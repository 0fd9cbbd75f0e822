"""`Equals`: which of several equal tools runs, and why."""

import pytest

from kaname import (
    Agent,
    Approve,
    ConfigError,
    Equals,
    FallbackStrategy,
    MemoryJournal,
    ScriptedModel,
    SqliteJournal,
    ToolResult,
    Usage,
    call,
    tool,
)
from kaname.core.events import Event, Opened, Received, Stopped, ToolFinished, ToolStarted, Warned
from kaname.core.messages import ToolCall, user
from kaname.core.steps import Stop
from kaname.policies.failure.figures import ToolFigures, choose, past_figures
from tests.parts import facts

pytestmark = pytest.mark.requirement("D14")

ran: list[str] = []


def searching(name, effect="pure", **more):
    @tool(effect=effect, name=name)
    def search(query: str) -> str:
        """Search."""
        ran.append(name)
        return f"{name} found {query}"

    return search


async def remember(journal, name, times, *, good=True, seconds=1.0, cost=0.0, not_run=False, retryable=True):
    """Record a run in which a tool was called so often."""
    run_id = f"{name}-{times}-{good}-{seconds}-{cost}-{not_run}-{retryable}"
    lease = await journal.claim(run_id)
    bodies = [(0.0, Opened()), (0.0, Received(user("?")))]
    for number in range(times):
        call_id = f"c1_{number}"
        bodies.append((float(number * 100), ToolStarted(ToolCall(call_id, name, {"query": "x"}), "pure")))
        error = None if good else "down"
        result = ToolResult(
            None if error else "x", error, call_id, name, usage=Usage(cost=cost), not_run=not_run, retryable=retryable
        )
        bodies.append((number * 100 + seconds, ToolFinished(result)))
    bodies.append((1000.0, Stopped(Stop("completed"), "x", decided=True)))
    await journal.append([Event(run_id, n, at, "agent", body) for n, (at, body) in enumerate(bodies, 1)], lease.epoch)


def agent_for(journal, *tools, asks="a", policies=None, **args):
    args = args or {"query": "tea"}
    model = ScriptedModel([call(asks, **args), "done"])
    return Agent(model, list(tools), policies=policies or [Equals("a", "b")], journal=journal)


async def run(agent):
    ran.clear()
    result = await agent.run("?")
    warned = [event.body.text for event in await facts(agent, result.run_id) if isinstance(event.body, Warned)]
    return result, warned


@pytest.mark.parametrize(
    ("of_a", "of_b", "runs", "told"),
    [
        ({"good": False}, {}, "b", "b was used instead of a: 100% of its last 10 calls succeeded, against 0%"),
        ({}, {"good": False}, "a", ""),
        ({"cost": 0.02}, {"cost": 0.01}, "b", "b was used instead of a: a call costs $0.0100, against $0.0200"),
        ({"cost": 0.01, "seconds": 9.0}, {"cost": 0.02, "seconds": 1.0}, "a", ""),
        ({"cost": None, "seconds": 9.0}, {"seconds": 1.0}, "a", ""),
        ({"seconds": 2.0}, {"seconds": 0.5}, "b", "b was used instead of a: a call takes 0.50 s, against 2.00 s"),
        ({"seconds": 1.0}, {"seconds": 0.9}, "a", ""),
        ({"good": False, "not_run": True}, {}, "a", ""),
        ({"good": False, "retryable": False}, {}, "a", ""),
    ],
    ids=["fails", "other fails", "dearer", "cheaper but slow", "cost unknown", "slower", "tie", "not run", "wrong arguments"],
)
async def test_tool_that_did_better_in_past_runs_is_used_and_the_reason_recorded(of_a, of_b, runs, told):
    journal = MemoryJournal()
    await remember(journal, "a", 10, **of_a)
    await remember(journal, "b", 10, **of_b)
    agent = agent_for(journal, searching("a"), searching("b"))
    result, warned = await run(agent)
    assert ran == [runs]
    assert warned == ([told] if told else [])
    assert (await agent.replay(result.run_id)).difference is None


async def test_model_decides_while_too_little_is_known(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    await remember(journal, "a", 4, good=False)
    await remember(journal, "b", 10)
    await run(agent_for(journal, searching("a"), searching("b")))
    assert ran == ["a"]
    await remember(journal, "a", 5, good=False)
    await run(agent_for(journal, searching("a"), searching("b")))
    assert ran == ["b"]
    await journal.close()


async def test_tool_that_does_not_take_the_arguments_or_needs_approval_is_not_used_instead():
    journal = MemoryJournal()
    await remember(journal, "a", 10, good=False)
    await remember(journal, "b", 10)

    @tool(effect="pure", name="b")
    def other(text: str) -> str:
        """Search."""
        ran.append("b")
        return text

    await run(agent_for(journal, searching("a"), other))
    assert ran == ["a"]
    await run(agent_for(journal, searching("a"), searching("b"), policies=[Approve("b"), Equals("a", "b")]))
    assert ran == ["a"]


async def test_several_calls_in_a_turn_are_explained_once():
    journal = MemoryJournal()
    await remember(journal, "a", 10, good=False)
    await remember(journal, "b", 10)
    model = ScriptedModel([call("a", query="x"), call("a", query="y"), "done"])
    agent = Agent(model, [searching("a"), searching("b")], policies=[Equals("a", "b")], journal=journal)
    _, warned = await run(agent)
    assert ran == ["b", "b"]
    assert len(warned) == 1


async def test_call_that_has_begun_is_not_chosen_again():
    journal = MemoryJournal()
    await remember(journal, "a", 10, good=False)
    await remember(journal, "b", 10)

    @tool(effect="pure", name="b")
    def broken(query: str) -> str:
        """Search."""
        ran.append("b")
        raise OSError("down")

    policies = [FallbackStrategy(max_retries=0, fallback={"b": "a"}), Equals("a", "b")]
    await run(agent_for(journal, searching("a"), broken, asks="b", policies=policies))
    assert ran == ["b", "a"]


@pytest.mark.parametrize("effect", ["irreversible", "compensable"])
async def test_tools_with_effects_cannot_be_equals(effect):
    with pytest.raises(ConfigError, match="Equals: b must be declared"):
        await agent_for(MemoryJournal(), searching("a"), searching("b", effect)).run("?")


def test_equals_needs_two_names():
    with pytest.raises(ConfigError, match="at least two tools"):
        Equals("a", "a")


async def test_unknown_name_among_equals_is_reported_before_the_run():
    with pytest.raises(ConfigError, match="Equals: there is no tool named 'b'"):
        await agent_for(MemoryJournal(), searching("a")).run("?")


def test_best_of_three_is_chosen_whatever_their_order():
    figures = {"a": ToolFigures(10, 0.5, 1.0, 0.0), "b": ToolFigures(10, 0.8, 1.0, 0.0), "c": ToolFigures(10, 1.0, 1.0, 0.0)}
    assert choose("a", ["b", "c"], figures)[0] == choose("a", ["c", "b"], figures)[0] == "c"
    assert choose("c", ["a", "b"], figures) == ("c", "")


async def test_first_try_counts_as_failed_if_another_tool_was_used_after_it():
    journal = MemoryJournal()
    lease = await journal.claim("r")
    bodies = [
        Opened(),
        Received(user("?")),
        ToolStarted(ToolCall("c1_0", "a", {}), "pure"),
        ToolStarted(ToolCall("c1_0", "b", {}), "pure"),
        ToolFinished(ToolResult("x", call_id="c1_0", name="a")),
    ]
    await journal.append([Event("r", n, float(n), "agent", body) for n, body in enumerate(bodies, 1)], lease.epoch)
    figures = await past_figures(journal, ["a", "b"])
    assert (figures["a"].success, figures["b"].success) == (0.0, 1.0)
