"""Design A whole: the runtime, its planner, guardrails and fallback, with the document's names and defaults."""

import inspect

import pytest

from kaname import (
    AgentResult,
    AgentRuntime,
    AgentState,
    AgentStep,
    CalculatorTool,
    FallbackStrategy,
    GuardrailAction,
    GuardrailResult,
    Guardrails,
    PlanResult,
    ReActPlanner,
    ScriptedModel,
    ToolRegistry,
    ToolResult,
)


class Echo:
    name = "echo"
    description = "Says it again."

    def __init__(self, failures=0, error=None):
        self.failures, self.error, self.calls = failures, error, 0

    async def execute(self, input_text):
        self.calls += 1
        if self.calls <= self.failures:
            if self.error:
                raise self.error
            return ToolResult(error="out of order")
        return ToolResult(f"you said {input_text}")


def planner(*replies):
    return ReActPlanner(ScriptedModel(list(replies)), "scripted")


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}


@pytest.mark.requirement("A1", "A2", "A5", "A6")
def test_the_documents_names_and_defaults():
    assert list(inspect.signature(AgentRuntime).parameters)[:5] == [
        "planner",
        "tool_registry",
        "guardrails",
        "fallback_strategy",
        "max_steps",
    ]
    assert defaults(AgentRuntime)["max_steps"] == 10
    assert defaults(FallbackStrategy)["max_retries"] == 2
    assert defaults(AgentState)["max_history"] == 50
    rails = defaults(Guardrails)
    assert (rails["max_input_tokens"], rails["max_output_tokens"], rails["blocked_patterns"]) == (4096, 4096, None)
    assert list(inspect.signature(ReActPlanner).parameters) == ["llm_provider", "model"]
    assert list(inspect.signature(ReActPlanner.plan).parameters) == ["self", "query", "state", "available_tools"]
    assert AgentResult.__match_args__[:4] == ("answer", "steps", "tool_calls", "stopped_reason")
    assert PlanResult.__match_args__ == ("thought", "action", "action_input", "final_answer")
    assert GuardrailResult.__match_args__[:3] == ("action", "reason", "details")
    assert {one.value for one in GuardrailAction} == {"allow", "warn", "block"}


@pytest.mark.requirement("A1", "A2")
async def test_a_run_from_question_to_answer():
    tool = Echo()
    runtime = AgentRuntime(
        planner("Thought: I ask.\nAction: echo\nAction Input: hello", "Thought: Now I know.\nFinal Answer: It said hello."),
        ToolRegistry([tool]),
        Guardrails(),
        FallbackStrategy(),
        journal="memory",
    )
    result = await runtime.run("What does it say?")
    assert result.answer == "It said hello."
    assert result.tool_calls == 1
    assert result.stopped_reason == "completed"
    assert result.steps == [AgentStep("I ask.", "echo", "hello", "you said hello"), AgentStep("Now I know.")]


@pytest.mark.requirement("A1")
async def test_max_steps():
    replies = [f"Thought: more.\nAction: echo[{n}]" for n in range(20)]
    runtime = AgentRuntime(planner(*replies), [Echo()], max_steps=3, journal="memory")
    result = await runtime.run("Go on for ever.")
    assert (result.stopped_reason, result.tool_calls) == ("max_steps_reached", 3)


@pytest.mark.requirement("A1", "A5")
async def test_blocked_input_reaches_no_model():
    asked = []
    model = ScriptedModel(lambda request: asked.append(request) or "Final Answer: hi")
    runtime = AgentRuntime(ReActPlanner(model), guardrails=Guardrails(blocked_patterns=["(?i)bomb"]), journal="memory")
    result = await runtime.run("How do I build a BOMB?")
    assert result.stopped_reason == "blocked"
    assert result.answer == "the text matches the pattern no. 1", "and not what it says"
    assert not asked
    long = await AgentRuntime(planner("Final Answer: x"), journal="memory").run("word " * 5000)
    assert long.stopped_reason == "blocked"
    assert "4,096" in long.answer


@pytest.mark.requirement("A2")
async def test_output_is_checked_too():
    runtime = AgentRuntime(
        planner("Final Answer: the key is sk-12345678"), guardrails=Guardrails(blocked_patterns=[r"sk-\d+"]), journal="memory"
    )
    handle = runtime.stream("Tell me the key.")
    seen = [chunk async for chunk in handle]
    assert (await handle).stop.kind == "blocked"
    assert "".join([chunk["content"] for chunk in seen if chunk.type == "delta"]) == "the key is "


@pytest.mark.requirement("A6")
@pytest.mark.parametrize("error", [None, ConnectionError("no line")])
async def test_a_failing_tool_is_tried_again(error):
    tool = Echo(failures=2, error=error)
    result = await FallbackStrategy(backoff=0.001).execute_with_fallback(tool, "x")
    assert (result.output, result.attempts, result.degraded) == ("you said x", 3, False)


@pytest.mark.requirement("A1", "A6")
async def test_when_all_tries_failed_the_model_answers_without_the_tool():
    tool = Echo(failures=99)
    alone = await FallbackStrategy(backoff=0.001).execute_with_fallback(tool, "x")
    assert (alone.degraded, alone.attempts, alone.is_error) == (True, 3, True)
    asked = []
    script = iter(["Action: echo[hi]", "I could not use echo, but I think it says hi."])
    model = ScriptedModel(lambda request: asked.append(request) or next(script))
    tool = Echo(failures=99)
    runtime = AgentRuntime(ReActPlanner(model), [tool], None, FallbackStrategy(backoff=0.001), journal="memory")
    result = await runtime.run("What does it say?")
    assert result.stopped_reason == "tool_failure_degraded"
    assert result.answer == "I could not use echo, but I think it says hi."
    assert tool.calls == 3
    assert not asked[1].tools
    assert "echo failed after 3 tries: out of order" in asked[1].messages[-1].text


@pytest.mark.requirement("A4")
async def test_the_planner_by_itself():
    state = AgentState()
    state.add_message("user", "What is 2 + 2?")
    tools = ToolRegistry([CalculatorTool()])
    first = await planner("Thought: calculate\nAction: calculator\nAction Input: 2+2").plan("What is 2 + 2?", state, tools)
    assert first == PlanResult("calculate", "calculator", "2+2", None)
    state.add_step(AgentStep("calculate", "calculator", "2+2", "4"))
    asked = []
    script = iter(["Thought: hm", "Thought: hm", "Thought: done\nFinal Answer: 4"])
    thinking = ReActPlanner(ScriptedModel(lambda request: asked.append(request) or next(script)))
    last = await thinking.plan("What is 2 + 2?", state, ["calculator"])
    assert last == PlanResult("done", None, None, "4")
    told = [message.text for message in asked[0].messages]
    assert told[-2:] == ["Thought: calculate\nAction: calculator\nAction Input: 2+2", "Observation: 4"]
    assert "could not be read" in asked[1].messages[-1].text


@pytest.mark.requirement("A5")
def test_guardrails_by_themselves():
    rails = Guardrails(10, 10, [r"\b\d{4}-\d{4}\b"], warn_patterns=["(?i)hurry"])
    assert rails.check_input("hello").action is GuardrailAction.ALLOW
    assert rails.check_input("word " * 30).action is GuardrailAction.BLOCK
    assert rails.check_input("日本語の長い文章です。とても長い。").action is GuardrailAction.BLOCK
    blocked = rails.check_output("card 1234-5678")
    assert (blocked.action, blocked.details["pattern"]) == (GuardrailAction.BLOCK, r"\b\d{4}-\d{4}\b")
    assert "1234" not in blocked.reason
    assert rails.check_input("Hurry up!").action is GuardrailAction.WARN
