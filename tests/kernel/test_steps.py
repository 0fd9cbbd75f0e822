"""What a strategy may ask for: one agent's model with some tools and other words, and calls that do not wait for each other."""

import asyncio

import pytest

from kaname import Agent, Approve, ScriptedModel, max_steps, no_repeats, per_tool, tool
from kaname.core.errors import ToolNotFoundError
from kaname.core.messages import ToolCall
from kaname.core.steps import CallModel, CallTools, Finish, Stop
from tests.parts import add, until

NO_LIMITS = max_steps(None) | no_repeats(None) | per_tool(None)


class Asking:
    def __init__(self, step):
        self.step = step

    def next(self, state):
        return Finish(Stop("completed"), state.replies[-1].reply.message.text) if state.replies else self.step


async def test_a_model_call_may_choose_tools_instructions_and_settings():
    seen = []

    def script(request):
        seen.append(request)
        return "fine"

    @tool(effect="pure")
    def other() -> str:
        """Other."""
        return ""

    step = CallModel(tools=("other",), instructions="Be rude.", settings={"temperature": 2})
    agent = Agent(
        ScriptedModel(script),
        [add, other],
        instructions="Be kind.",
        settings={"top_p": 1},
        strategy=Asking(step),
        journal="memory",
    )
    result = await agent.run("hi")
    assert [spec.name for spec in seen[0].tools] == ["other"]
    assert seen[0].messages[0].text == "Be rude."
    assert dict(seen[0].settings) == {"top_p": 1, "temperature": 2}
    assert result.state.replies[0].step == step
    assert (await agent.replay(result.run_id)).same
    broken = Agent(ScriptedModel(script), [add], strategy=Asking(CallModel(tools=("ad",))), journal="memory")
    with pytest.raises(ToolNotFoundError, match="did you mean 'add'"):
        await broken.run("hi")


async def test_a_model_call_may_choose_the_agent():
    expert = Agent(ScriptedModel(["I know it"]), name="expert", journal="memory")
    root = Agent(ScriptedModel(["no idea"]), strategy=Asking(CallModel(agent="expert")), journal="memory")
    root.recipe = root.recipe.with_changes(team={"expert": expert.recipe})
    chunks = [chunk async for chunk in root.run("hi")]
    assert [chunk.agent for chunk in chunks if chunk.type == "usage"] == ["expert"]
    assert chunks[-1].data["output"] == "I know it"


TASKS = {  # what each takes, and what must be done before it
    "a": (0.5, ()),
    "b": (0.01, ()),
    "c": (0.01, ("b",)),
    "d": (0.01, ("c",)),
    "e": (0.01, ("d",)),
    "f": (0.02, ("b",)),
    "g": (0.01, ("e", "f")),
    "h": (0.01, ("a",)),
    "i": (0.01, ("h", "g")),
    "j": (0.01, ("i",)),
}


class Graph:
    """Ten tasks: each starts the moment its own dependencies are done."""

    def next(self, state):
        done = {call_id.partition(":")[2] for call_id in state.results}
        if len(done) == len(TASKS):
            return Finish(Stop("completed"), sorted(done))
        ready = [name for name, (_, needs) in TASKS.items() if name not in done and done.issuperset(needs)]
        return CallTools(tuple(ToolCall(f"{state.turns}:{name}", "work", {"name": name}) for name in ready), as_completed=True)


def graph(policies=(), journal="memory", fail=None, patient=False):
    times = {}

    @tool(effect="pure")
    async def work(name: str) -> str:
        """Work."""
        times.setdefault(name, []).append(asyncio.get_running_loop().time())
        await asyncio.sleep(TASKS[name][0])
        if patient and name == "a":  # the slowest, however slow the machine is
            await until(lambda: len(times.get("g", ())) > len(times["a"]))
        times[name].append(asyncio.get_running_loop().time())
        return name if name != fail else 1 / 0

    return times, Agent(tools=[work], strategy=Graph(), stops=NO_LIMITS, policies=policies, journal=journal)


async def test_a_graph_of_ten_tasks_runs_in_two_turns_and_does_not_wait_for_its_slowest():
    times, agent = graph(patient=True)
    for turn in (1, 2):
        result = await agent.run("go", session_id="s")
        assert (result.stop.kind, result.output, result.state.turns) == ("completed", sorted(TASKS), turn)
        for name, (_, needs) in TASKS.items():
            began = times[name][2 * turn - 2]
            assert all(times[need][2 * turn - 1] <= began for need in needs), f"{name} began too early"
        assert times["g"][2 * turn - 1] < times["a"][2 * turn - 1], "the others did not wait for the slow one"


async def test_a_question_in_a_graph_lets_the_tasks_under_way_finish():
    times, agent = graph([Approve(when=lambda call: call.args["name"] == "c")])
    waiting = await agent.run("go")
    assert list(waiting.questions) == ["approve:1:c"]
    assert len(times["a"]) == 2, "it was running, and has come to its end"
    assert (await agent.resume(waiting.run_id, {"approve:1:c": "yes"})).output == sorted(TASKS)
    assert [len(times[name]) for name in "ab"] == [2, 2], "what was done is not done again"


async def test_an_abort_in_a_graph_ends_the_tasks_under_way():
    times, agent = graph()
    run = agent.run("go").start()
    await until(lambda: "a" in times)
    run.abort()
    result = await run
    assert result.stop.kind == "cancelled"
    assert len(times["a"]) == 1
    assert (await agent.resume(run.run_id)).output == sorted(TASKS)


async def test_a_task_that_fails_has_its_error_as_its_result():
    _, agent = graph(fail="c")
    result = await agent.run("go")
    assert "ZeroDivisionError" in result.state.results["1:c"].error


class Together:
    """Starts two calls as completed, then waits for both at once."""

    def next(self, state):
        calls = tuple(ToolCall(f"t{n}", "work", {"name": name}) for n, name in enumerate("ab"))
        if len(state.results) == 2:
            return Finish(Stop("completed"), "both")
        return (
            CallTools(calls, as_completed=not state.results)
            if not state.results
            else CallTools(calls[:1] if "t0" not in state.results else calls[1:])
        )


async def test_a_call_that_is_running_is_waited_for_and_not_started_again():
    times, agent = graph()
    agent.recipe = agent.recipe.with_changes(strategy=Together())
    assert (
        await Agent(tools=list(agent.tools.values()), strategy=Together(), stops=NO_LIMITS, journal="memory").run("go")
    ).output == "both"
    assert [len(times[name]) for name in "ab"] == [2, 2]


async def test_a_policy_that_ends_the_run_while_a_question_is_open_ends_it():
    from kaname import Halt, Policy

    class Strict(Policy):
        async def tool(self, call, next, view):
            result = await next(call)
            if call.args["name"] == "a":
                raise Halt(Stop("blocked", "no more"))
            return result

    _, agent = graph([Approve(when=lambda call: call.args["name"] == "b"), Strict()])
    result = await agent.run("go")
    assert (result.stop.kind, result.stop.detail) == ("blocked", "no more")


async def test_when_the_journal_fails_no_call_goes_on():
    from kaname.core.errors import JournalError
    from kaname.stores.memory import MemoryJournal

    class Failing(MemoryJournal):
        async def append(self, events, epoch):
            if events[0].seq > 5:
                raise JournalError("broken")
            await super().append(events, epoch)

    times, agent = graph(journal=Failing())
    with pytest.raises(JournalError, match="broken"):
        await agent.run("go")
    await asyncio.sleep(0.6)
    assert len(times["a"]) == 1, "it was stopped in the middle"
