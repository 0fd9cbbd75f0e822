"""Design A as its document is written: its components in its order, with its names, signatures and defaults."""

import inspect
import json
import sqlite3
import time
from contextlib import closing

import pytest

from kaname import load_config
from kaname.designs import (
    AgentResult,
    AgentRuntime,
    AgentState,
    AgentStep,
    CalculatorTool,
    DatabaseTool,
    DuplicateToolError,
    FallbackResult,
    FallbackStrategy,
    GuardrailAction,
    GuardrailResult,
    Guardrails,
    PlanResult,
    RAGPipeline,
    ReActPlanner,
    ScriptedModel,
    SearchTool,
    Tool,
    ToolNotFoundError,
    ToolRegistry,
    ToolResult,
)


class WeatherTool:
    name = "weather"
    description = "Tells the weather of a city."

    def __init__(self, failures=0):
        self.failures, self.tries = failures, 0

    async def execute(self, input_text: str) -> ToolResult:
        self.tries += 1
        if self.tries <= self.failures:
            return ToolResult(output="", error="the station does not answer")
        return ToolResult(output=f"{input_text}: sunny", error=None)


@pytest.mark.requirement("A1", "A2", "A3")
async def test_the_react_loop():
    """ReAct ループ: from the query to an AgentResult with answer, steps and tool_calls."""
    llm = ScriptedModel(
        [
            "Thought: I need the weather.\nAction: weather\nAction Input: Tokyo",
            "Thought: I know it now.\nFinal Answer: It is sunny in Tokyo.",
        ]
    )
    registry = ToolRegistry()
    registry.register(WeatherTool())
    runtime = AgentRuntime(
        planner=ReActPlanner(llm_provider=llm, model="any"),
        tool_registry=registry,
        guardrails=Guardrails(),
        fallback_strategy=FallbackStrategy(),
    )
    assert runtime.max_steps == 10
    result = await runtime.run("How is the weather in Tokyo?")
    assert isinstance(result, AgentResult)
    assert result.answer == "It is sunny in Tokyo."
    assert result.tool_calls == 1
    assert result.stopped_reason == "completed"
    assert result.steps[0] == AgentStep(
        thought="I need the weather.", action="weather", action_input="Tokyo", observation="Tokyo: sunny"
    )


@pytest.mark.requirement("A1")
async def test_max_steps_reached():
    llm = ScriptedModel(lambda request: f"Thought: more\nAction: weather\nAction Input: {len(request.messages)}")
    tool = WeatherTool()
    runtime = AgentRuntime(ReActPlanner(llm, "any"), ToolRegistry([tool]), Guardrails(), FallbackStrategy(), journal="memory")
    result = await runtime.run("?")
    assert (result.stopped_reason, result.tool_calls, tool.tries) == ("max_steps_reached", 10, 10)


@pytest.mark.requirement("A3")
def test_agent_state():
    state = AgentState(max_history=50)
    for number in range(60):
        state.add_message("user", f"question {number}")
        state.add_message("assistant", f"answer {number}")
    assert len(state.get_messages()) == 50
    assert state.get_messages()[-1] == {"role": "assistant", "content": "answer 59"}
    assert AgentState().max_history == 50
    state.add_step(AgentStep(thought="t", action="a", action_input="i", observation="o"))
    assert state.get_steps() == [AgentStep("t", "a", "i", "o")]
    state.clear()
    assert (state.get_messages(), state.get_steps()) == ([], [])


@pytest.mark.requirement("A4")
async def test_react_planner():
    planner = ReActPlanner(
        ScriptedModel(["Thought: calculate\nAction: calculator\nAction Input: 2+2", "Final Answer: 4"]), "any"
    )
    state = AgentState()
    plan = await planner.plan("What is 2 + 2?", state, ["calculator"])
    assert plan == PlanResult(thought="calculate", action="calculator", action_input="2+2", final_answer=None)
    state.add_step(AgentStep(plan.thought, plan.action, plan.action_input, "4"))
    plan = await planner.plan("What is 2 + 2?", state, ["calculator"])
    assert (plan.action, plan.final_answer) == (None, "4")


@pytest.mark.requirement("A5")
def test_guardrails():
    assert [action.value for action in GuardrailAction] == ["allow", "warn", "block"]
    guardrails = Guardrails(max_input_tokens=10, max_output_tokens=5, blocked_patterns=[r"rm\s+-rf"])
    assert guardrails.check_input("hello") == GuardrailResult(action=GuardrailAction.ALLOW)
    for verdict in (guardrails.check_input("please rm  -rf /"), guardrails.check_output("rm -rf")):
        assert (verdict.action, bool(verdict.reason), verdict.details["pattern"]) == (GuardrailAction.BLOCK, True, r"rm\s+-rf")
    assert guardrails.check_input("x" * 32).action is GuardrailAction.ALLOW
    for nearly in ("x" * 36, "x" * 40):  # from 90 % of the limit on
        verdict = guardrails.check_input(nearly)
        assert (verdict.action, "near the limit of 10" in verdict.reason) == (GuardrailAction.WARN, True)
    assert guardrails.check_output("x" * 20).action is GuardrailAction.WARN
    assert guardrails.check_input("x" * 41).details == {"tokens": 11, "limit": 10}
    assert guardrails.check_output("x" * 21).details == {"tokens": 6, "limit": 5}
    limits = inspect.signature(Guardrails).parameters
    assert [limits[name].default for name in ("max_input_tokens", "max_output_tokens", "blocked_patterns")] == [
        4096,
        4096,
        None,
    ]


@pytest.mark.requirement("A5")
def test_a_pattern_that_could_run_forever_is_bounded():
    guardrails = Guardrails(max_input_tokens=None, blocked_patterns=[r"(a|a|a)*b(c+)+d"])
    begun = time.monotonic()
    assert guardrails.check_input("a" * 5000 + "c" * 5000).action in (GuardrailAction.BLOCK, GuardrailAction.ALLOW)
    assert time.monotonic() - begun < 30


@pytest.mark.requirement("A6")
async def test_fallback_strategy():
    assert inspect.signature(FallbackStrategy).parameters["max_retries"].default == 2
    tool = WeatherTool(failures=2)
    result = await FallbackStrategy(backoff=0).execute_with_fallback(tool, "Oslo")
    assert isinstance(result, FallbackResult)
    assert (result.output, result.degraded, tool.tries) == ("Oslo: sunny", False, 3)
    tool = WeatherTool(failures=9)
    result = await FallbackStrategy(max_retries=2, backoff=0).execute_with_fallback(tool, "Oslo")
    assert (result.degraded, tool.tries) == (True, 3)


@pytest.mark.requirement("A7", "A8")
def test_tool_and_registry():
    assert isinstance(WeatherTool(), Tool)
    assert not isinstance("weather", Tool)
    assert (ToolResult(output="x", error=None).is_error, ToolResult(output="", error="no").is_error) == (False, True)
    registry = ToolRegistry()
    registry.register(WeatherTool())
    registry.register(CalculatorTool())
    assert registry.list_tools() == ["calculator", "weather"]
    assert (registry.has("weather"), registry.has("wether")) == (True, False)
    with pytest.raises(DuplicateToolError):
        registry.register(WeatherTool())
    with pytest.raises(ToolNotFoundError, match="did you mean 'weather'"):
        registry.get("wether")


@pytest.mark.requirement("A9")
async def test_calculator():
    calculator = CalculatorTool()
    for typed, answer in {
        "1+2-3*4": "-9",
        "7/2": "3.5",
        "7//2": "3",
        "7%4": "3",
        "2**8": "256",
        "-(3)": "-3",
        "1e3": "1000",
    }.items():
        assert (await calculator.execute(typed)).output == answer, typed
    for typed in ("len([1])", "(1).bit_length()", "x", "'a'", "[n for n in ()]", "lambda: 1"):
        assert (await calculator.execute(typed)).is_error, typed


@pytest.mark.requirement("A9")
@pytest.mark.parametrize("typed", ["9**9**9", "9**9**9**9", "(" * 10_000 + "1" + ")" * 10_000, "1+" * 5_000_000 + "1"])
async def test_calculator_is_never_slow(typed):
    calculator = CalculatorTool()
    fastest = float("inf")
    for _ in range(5):  # of several: the machine may be busy with something else
        begun = time.process_time()
        result = await calculator.execute(typed)
        fastest = min(fastest, time.process_time() - begun)
        assert result.is_error
        assert result.error
    assert fastest < 0.05


@pytest.mark.requirement("A10", "A11")
async def test_search_and_database_with_the_files_settings(tmp_path):
    """設定パラメータ: `search.top_k` and `database.max_rows`."""
    (tmp_path / "animals.md").write_text("\n\n".join([f"# Animal {n}\n\nThe animal number {n} eats grass." for n in range(9)]))
    pipeline = RAGPipeline(tmp_path / "index.db")
    pipeline.add(tmp_path / "animals.md")
    found = (await SearchTool(pipeline).execute("which animal eats grass")).output["passages"]
    assert len(found) == 5
    assert all(one["source"] == "animals.md" and one["chunk"] and one["cite"] for one in found), (
        "every hit says where it stands"
    )
    pipeline.close()
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.executescript("CREATE TABLE items (id INTEGER); ")
    connection.executemany("INSERT INTO items VALUES (?)", [(n,) for n in range(150)])
    connection.commit()
    connection.close()
    database = DatabaseTool(tmp_path / "shop.db")
    assert len((await database.execute("SELECT id FROM items")).output["rows"]) == 100
    database.close()
    (tmp_path / "kaname.yaml").write_text(
        "agents: {a: {model: scripted/x.json, tools: ['search:index.db', 'database:shop.db']}}\n"
        "search: {top_k: 2}\ndatabase: {max_rows: 3}\n"
    )
    (tmp_path / "x.json").write_text("[]")
    search, database = load_config(tmp_path / "kaname.yaml").parts()["tools"]
    assert len((await search.execute("which animal eats grass")).output["passages"]) == 2
    assert len((await database.execute("SELECT id FROM items")).output["rows"]) == 3
    search.pipeline.close()
    database.close()


@pytest.mark.requirement("A11")
async def test_database_refuses_everything_but_one_select(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript("CREATE TABLE items (id INTEGER, name TEXT); INSERT INTO items VALUES (1, '茶')")
    database = DatabaseTool(tmp_path / "shop.db")
    result = await database.execute("WITH all_of AS (SELECT * FROM items) SELECT name FROM all_of")
    assert json.loads(json.dumps(result.output)) == {"rows": [{"name": "茶"}]}
    for sql in ("DELETE FROM items", "SELECT 1; SELECT 2", "DROP TABLE items", "PRAGMA user_version = 7", "ATTACH 'x' AS y"):
        assert (await database.execute(sql)).is_error, sql
    database.close()


@pytest.mark.requirement("A1", "A6")
async def test_error_handling():
    """エラーハンドリング: is_error → retries (at most 2) → degraded → the model answers directly → tool_failure_degraded."""
    tool = WeatherTool(failures=9)
    llm = ScriptedModel(["Thought: ask\nAction: weather\nAction Input: Tokyo", "Final Answer: I could not find out."])
    runtime = AgentRuntime(
        ReActPlanner(llm, "any"), ToolRegistry([tool]), Guardrails(), FallbackStrategy(2, backoff=0), journal="memory"
    )
    result = await runtime.run("?")
    assert tool.tries == 3
    assert result.answer == "I could not find out."
    assert result.stopped_reason == "tool_failure_degraded"
    assert result.detail == "weather failed after 3 tries: the station does not answer"
