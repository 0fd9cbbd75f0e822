"""Design A: what is passed in is what runs. Subclasses and objects of one's own, in the runtime and in a plain agent."""

import sqlite3
from contextlib import closing

import pytest

from kaname import (
    Agent,
    AgentRuntime,
    Approve,
    ConfigError,
    DatabaseTool,
    FallbackResult,
    FallbackStrategy,
    GuardrailAction,
    GuardrailResult,
    Guardrails,
    ModelError,
    PlanResult,
    ReActPlanner,
    ScriptedModel,
    ToolNotFoundError,
    ToolRegistry,
    ToolResult,
    call,
    cost,
    tool,
)


class Echo:
    name = "echo"
    description = "Says it again."

    def __init__(self, failures=0):
        self.failures, self.calls = failures, 0

    async def execute(self, input_text):
        self.calls += 1
        return ToolResult(error="out of order") if self.calls <= self.failures else ToolResult(f"you said {input_text}")


ACT, END = "Thought: I ask.\nAction: echo\nAction Input: hello", "Thought: Now I know.\nFinal Answer: It said hello."


def scripted(*replies):
    return ScriptedModel(list(replies))


class Recorder:
    """Subclasses of all the document's parts that write down in which order they are called."""

    def __init__(self):
        log = self.log = []

        class Planner(ReActPlanner):
            async def plan(self, query, state, available_tools):
                log.append(("plan", query, list(available_tools), [step.observation for step in state.get_steps()]))
                return await super().plan(query, state, available_tools)

        class Rails(Guardrails):
            def check_input(self, text):
                log.append(("check_input", text))
                return super().check_input(text)

            def check_output(self, text):
                log.append(("check_output", text))
                return super().check_output(text)

        class Falling(FallbackStrategy):
            async def execute_with_fallback(self, tool, input_text):
                log.append(("execute_with_fallback", tool.name, input_text))
                return await super().execute_with_fallback(tool, input_text)

        class Registry(ToolRegistry):
            def get(self, name):  # as the document writes it: without a default
                if log[-1:] != [("get", name)]:
                    log.append(("get", name))
                return super().get(name)

        self.planner, self.rails, self.falling, self.registry = Planner, Rails, Falling, Registry


@pytest.mark.requirement("A1", "A2")
async def test_the_methods_of_subclasses_are_called_in_the_documents_order():
    parts = Recorder()
    registry = parts.registry([Echo()])
    runtime = AgentRuntime(
        parts.planner(scripted(ACT, END), "any"), registry, parts.rails(), parts.falling(backoff=0), journal="memory"
    )
    result = await runtime.run("What does it say?")
    assert (result.answer, result.stopped_reason) == ("It said hello.", "completed")
    order = [entry for entry in parts.log if entry[0] != "check_output"]
    names = [entry[0] for entry in order]
    assert names[:2] == ["check_input", "plan"]
    assert names[2:5] == ["get", "execute_with_fallback", "get"]
    assert names.count("check_input") == 1, "once a run, before the first plan"
    assert [entry for entry in order if entry[0] == "plan"] == [
        ("plan", "What does it say?", ["echo"], []),
        ("plan", "What does it say?", ["echo"], ["you said hello"]),
    ]
    assert ("execute_with_fallback", "echo", "hello") in order
    assert ("check_output", "It said hello.") in parts.log
    assert result.usage.output > 0, "what the planner's model has used is counted"


@pytest.mark.requirement("A2", "A8")
async def test_a_tool_that_is_registered_later_is_found_at_once():
    for registry in (ToolRegistry(), Recorder().registry()):
        runtime = AgentRuntime(ReActPlanner(scripted(ACT, END)), registry, journal="memory")
        registry.register(Echo())
        result = await runtime.run("?")
        assert (result.answer, result.tool_calls) == ("It said hello.", 1)
        assert result.steps[0].observation == "you said hello"


class Forbidding(Guardrails):
    """Has an opinion of its own in both directions, and counts how often it was asked."""

    def __init__(self, **more):
        super().__init__(**more)
        self.asked = []

    def check_input(self, text):
        self.asked.append(text)
        if "password" in text:
            return GuardrailResult(GuardrailAction.BLOCK, "no passwords, please")
        return GuardrailResult(GuardrailAction.WARN, "odd") if "odd" in text else GuardrailResult()

    def check_output(self, text):
        return GuardrailResult(GuardrailAction.BLOCK, "not to be said") if "secret" in text else GuardrailResult()


def in_runtime(model, rails):
    return AgentRuntime(ReActPlanner(model), guardrails=rails, journal="memory").agent


def in_agent(model, rails):
    return Agent(model, policies=[rails], journal="memory")


@pytest.mark.requirement("A2", "A5")
@pytest.mark.parametrize("make", [in_runtime, in_agent])
async def test_a_subclass_decides_what_goes_in_and_what_comes_out(make):
    asked = []
    model = ScriptedModel(lambda request: asked.append(request) or "Final Answer: here is the secret, and more")
    rails = Forbidding(max_input_tokens=1, blocked_patterns=["hello"])
    blocked = await make(model, rails).run("my password is 123")
    assert (blocked.stop.kind, blocked.stop.detail) == ("blocked", "no passwords, please")
    assert not asked
    run = make(model, rails).run("hello to you all, and much more than one token")
    shown = [chunk async for chunk in run]
    result = await run
    assert len(asked) == 1, "the subclass allows what the built-in check would not"
    assert (result.stop.kind, result.stop.detail) == ("blocked", "not to be said")
    assert not [chunk for chunk in shown if chunk.type == "delta"], "nothing of it was shown before it was judged"
    assert "secret" not in str([chunk.data for chunk in shown])


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("make", [in_runtime, in_agent])
async def test_a_subclass_that_warns_is_reported_and_the_run_goes_on(make):
    rails = Forbidding()
    agent = make(scripted("Final Answer: fine", "Final Answer: fine"), rails)
    seen = [chunk async for chunk in agent.run("an odd question")]
    assert [chunk["content"] for chunk in seen if chunk.get("status") == "warning"] == ["odd"]
    assert seen[-1]["kind"] == "completed"
    await agent.run("an odd question")
    assert rails.asked == ["an odd question"] * 2, "each run is judged, and once"


@pytest.mark.requirement("A5")
async def test_a_check_of_ones_own_that_fails_blocks():
    class Broken(Guardrails):
        def check_output(self, text):
            raise KeyError("a bug")

    result = await Agent(scripted("hi"), policies=[Broken()], journal="memory").run("?")
    assert (result.stop.kind, "check_output failed: KeyError" in result.stop.detail) == ("blocked", True)


@pytest.mark.requirement("A5")
def test_async_checks_beside_a_check_of_ones_own_are_refused():
    async def later(text):
        return None

    with pytest.raises(ConfigError, match="cannot wait for the async check later"):
        Forbidding(input_checks=[later])
    with pytest.raises(ConfigError, match="overrides check_output"):
        Forbidding(output_checks=[later])


class OwnFallback(FallbackStrategy):
    """Gives the answer of a cache when the tool fails."""

    async def execute_with_fallback(self, tool, input_text):
        result = await tool.execute(input_text)
        if result.is_error and input_text == "hello":
            return FallbackResult(output="from the cache")
        return FallbackResult(result.output, result.error, degraded=result.is_error)


@pytest.mark.requirement("A2", "A6")
async def test_a_fallback_of_ones_own_executes_the_calls_in_the_runtime_and_in_an_agent():
    runtime = AgentRuntime(ReActPlanner(scripted(ACT, END)), [Echo(9)], None, OwnFallback(), journal="memory")
    assert (await runtime.run("?")).steps[0].observation == "from the cache"
    script = scripted(call("echo", input="hello"), call("echo", input="other"), "I could not.")
    result = await Agent(script, [Echo(9)], policies=[OwnFallback()], journal="memory").run("?")
    assert [step.observation for step in result.steps[:2]] == ["from the cache", "Error: out of order"]
    assert (result.stop.kind, result.output) == ("degraded", "I could not.")
    with pytest.raises(ConfigError, match="would have no effect"):
        OwnFallback(fallback={"echo": "other"})


@pytest.mark.requirement("A6")
async def test_a_fallback_of_ones_own_can_change_the_input_and_does_not_swallow_a_question():
    class Shouting(FallbackStrategy):
        async def execute_with_fallback(self, tool, input_text):
            try:
                result = await tool.execute(input_text.upper())
            except BaseException:
                return FallbackResult(output="as if it had worked")
            return FallbackResult(result.output, result.error)

    script = [call("echo", input="hello"), "done"]
    result = await Agent(scripted(*script), [Echo()], policies=[Shouting()], journal="memory").run("?")
    assert result.steps[0].observation == "you said HELLO"
    echo = Echo()
    agent = Agent(scripted(*script), [echo], policies=[Shouting(), Approve("echo")], journal="memory")
    waiting = await agent.run("?")
    assert (waiting.stop.kind, echo.calls) == ("waiting", 0)
    done = await agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert (done.output, echo.calls) == ("done", 1)


class OwnPlanner:
    """No subclass: only the document's method."""

    def __init__(self, *plans):
        self.plans, self.seen = list(plans), []

    async def plan(self, query, state, available_tools):
        self.seen.append((query, state.get_messages(), state.get_steps(), available_tools))
        return self.plans.pop(0)


class OwnRegistry:
    def __init__(self):
        self.tools = {}

    def register(self, tool):
        self.tools[tool.name] = tool

    def get(self, name):
        return self.tools[name]

    def has(self, name):
        return name in self.tools

    def list_tools(self):
        return sorted(self.tools)


class Verdict:
    def __init__(self, action, reason=""):
        self.action, self.reason = action, reason


class OwnRails:
    def check_input(self, text):
        return Verdict("block", "too rude") if "!" in text else Verdict("allow")

    def check_output(self, text):
        return Verdict("allow")


class OwnExecution:
    async def execute_with_fallback(self, tool, input_text):
        result = await tool.execute(input_text)
        return FallbackResult(f"{result.output}, twice")


@tool(effect="pure")
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@pytest.mark.requirement("A1", "A2", "A3", "A4", "A8")
async def test_objects_of_ones_own_with_the_documents_methods_are_what_runs():
    planner = OwnPlanner(
        PlanResult("I ask.", "echo", "hello"),
        PlanResult("I add.", "add", '{"a": 1}'),
        PlanResult("Done.", final_answer="It said hello."),
    )
    registry = OwnRegistry()
    runtime = AgentRuntime(planner, registry, OwnRails(), OwnExecution(), journal="memory")
    registry.register(Echo())
    registry.register(add)
    result = await runtime.run("What does it say?")
    assert (result.answer, result.stopped_reason, result.tool_calls) == ("It said hello.", "completed", 2)
    assert [(step.action, step.action_input, step.observation) for step in result.steps[:2]] == [
        ("echo", "hello", "you said hello, twice"),
        ("add", {"a": 1, "b": 2}, "3, twice"),
    ]
    query, messages, steps, tools = planner.seen[-1]
    assert (query, tools) == ("What does it say?", ["add", "echo"])
    assert messages == [{"role": "user", "content": "What does it say?"}]
    assert [step.observation for step in steps] == ["you said hello, twice", "3, twice"]
    assert (await runtime.run("Tell me!")).answer == "too rude"
    assert result.usage.cost is None, "nobody knows what a planner of one's own has spent"


@pytest.mark.requirement("A1", "A4")
async def test_a_planner_of_ones_own_keeps_to_the_limits_and_fails_with_a_reason():
    class Endless(OwnPlanner):
        async def plan(self, query, state, available_tools):
            self.seen.append(query)
            assert len(self.seen) < 50
            return PlanResult("again", "echo", str(len(self.seen)))

    planner = Endless()
    result = await AgentRuntime(planner, [Echo()], max_steps=3, journal="memory").run("?")
    assert (result.stopped_reason, len(planner.seen)) == ("max_steps_reached", 3)
    nothing = await AgentRuntime(OwnPlanner(*[PlanResult("hm")] * 3), journal="memory").run("?")
    assert nothing.stopped_reason == "incomplete"
    assert "neither an action nor a final answer" in nothing.answer
    unknown = await AgentRuntime(
        OwnPlanner(PlanResult("", "ecco", "x"), PlanResult("", final_answer="no such tool")), [Echo()], journal="memory"
    ).run("?")
    assert "did you mean 'echo'" in unknown.steps[0].observation


@pytest.mark.requirement("A1", "A6")
async def test_a_degraded_run_asks_a_planner_of_ones_own_for_the_answer_without_tools():
    planner = OwnPlanner(PlanResult("I ask.", "echo", "x"), PlanResult("", final_answer="I could not ask."))
    runtime = AgentRuntime(planner, [Echo(9)], None, FallbackStrategy(backoff=0), journal="memory")
    result = await runtime.run("?")
    assert (result.answer, result.stopped_reason) == ("I could not ask.", "tool_failure_degraded")
    assert planner.seen[-1][3] == []
    assert "echo failed after 3 tries: out of order" in result.detail


@pytest.mark.requirement("A1")
@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"planner": object()}, "plan(query, state, available_tools)"),
        ({"tool_registry": 7}, "get, has and list_tools"),
        ({"guardrails": object()}, "check_input and check_output"),
        ({"fallback_strategy": object()}, "execute_with_fallback"),
    ],
)
def test_a_part_without_the_methods_is_refused(part, told):
    with pytest.raises(ConfigError) as caught:
        AgentRuntime(**{"planner": OwnPlanner(), **part}, journal="memory")
    assert told in str(caught.value)


@pytest.mark.requirement("A6")
async def test_a_tool_that_declares_no_effect_is_tried_once_and_the_result_says_why():
    tried = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        tried.append(yen)
        raise ConnectionError("no line")

    script = scripted("Thought: a\nAction: pay\nAction Input: 5", "Final Answer: It did not work.")
    runtime = AgentRuntime(ReActPlanner(script), [pay], None, FallbackStrategy(backoff=0), journal="memory")
    result = await runtime.run("Pay 5 yen.")
    assert (result.stopped_reason, result.answer, tried) == ("tool_failure_degraded", "It did not work.", [5])
    assert "pay failed after 1 try: ConnectionError: no line" in result.detail
    assert 'not retried: pay is not declared effect="pure"' in result.detail


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "reply",
    [
        'Thought: two\nAction: add\nAction Input: {"a": 1}\nAction: add\nAction Input: {"a": 5}',
        'Thought: one\nAction: add\nAction Input: {"a": 1}\nFinal Answer: 3',
        'Thought: one\nAction: add\nAction Input: {"a": 1}\nObservation: 17\nFinal Answer: 17',
        '思考: 足す\n行動: add\n行動の入力: {"a": 1}',
        '```\nThought: one\nAction: add\nAction Input: {"a": 1}\n```',
    ],
)
async def test_the_first_action_of_a_reply_counts_for_a_tool_that_changes_nothing(reply):
    planned = await ReActPlanner(scripted(reply)).plan("?", state(), ToolRegistry([add]))
    assert (planned.action, planned.final_answer) == ("add", None)
    result = await AgentRuntime(ReActPlanner(scripted(reply, "Final Answer: 3")), [add], journal="memory").run("?")
    assert (result.answer, [step.observation for step in result.steps]) == ("3", ["3", None])


def state():
    from kaname import AgentState

    return AgentState()


@pytest.mark.requirement("A4")
async def test_a_tool_that_says_nothing_of_its_effect_is_asked_about():
    unclear = f"{ACT}\nFinal Answer: It said hello."
    asked = []
    script = iter([unclear, ACT, END])
    model = ScriptedModel(lambda request: asked.append(request) or next(script))
    echo = Echo()
    result = await AgentRuntime(ReActPlanner(model), [echo], journal="memory").run("?")
    assert (result.answer, echo.calls) == ("It said hello.", 1)
    question = asked[1].messages[-1].text
    assert question.startswith("Is a tool to be called?")
    assert "If echo is meant" in question
    assert "could not be read" not in question


@pytest.mark.requirement("A4")
async def test_after_three_unreadable_replies_there_is_a_failure_and_never_the_thought():
    thoughts = ["Thought: it may be 13 million"] * 3
    result = await AgentRuntime(ReActPlanner(scripted(*thoughts)), [Echo()], journal="memory").run("?")
    assert result.stopped_reason == "incomplete"
    assert "13 million" not in result.answer
    assert "neither an action nor a final answer" in result.answer
    with pytest.raises(ModelError, match="even after retries"):
        await ReActPlanner(scripted(*thoughts)).plan("?", state(), ["echo"])


@pytest.mark.requirement("A11")
async def test_the_runtime_refuses_comments_whoever_made_the_tool(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript("CREATE TABLE items (name TEXT); INSERT INTO items VALUES ('tea')")
    sql = "SELECT name FROM items -- all of them"
    plain, lenient = DatabaseTool(tmp_path / "shop.db"), DatabaseTool(tmp_path / "shop.db", comments="strip", name="lenient")
    replies = [f"Thought: a\nAction: {name}\nAction Input: {sql}" for name in ("database", "lenient")]
    runtime = AgentRuntime(ReActPlanner(scripted(*replies, "Final Answer: x")), [plain, lenient], journal="memory")
    first, second, _ = (await runtime.run("?")).steps
    assert "write it without comments" in first.observation
    assert "tea" in second.observation, "unless the tool was told otherwise"
    elsewhere = await Agent(scripted(call("database", sql=sql), "x"), [plain], journal="memory").run("?")
    assert "tea" in elsewhere.steps[0].observation, "elsewhere they are stripped: models write them"
    plain.close()
    lenient.close()


@pytest.mark.requirement("A8")
def test_the_registry_names_the_nearest_tool():
    with pytest.raises(ToolNotFoundError, match="did you mean 'echo'"):
        ToolRegistry([Echo()]).get("ehco")


@pytest.mark.requirement("A1")
async def test_a_cost_limit_with_a_planner_of_unknown_cost_ends_the_run():
    planner = OwnPlanner(PlanResult("", "echo", "x"), PlanResult("", final_answer="never"))
    agent = AgentRuntime(planner, [Echo()], journal="memory").agent
    agent.recipe = agent.recipe.with_changes(stops=(*agent.recipe.stops, cost("$1")))
    assert (await agent.run("?")).stop.kind == "budget"
