"""Design A as a reader of its document writes programs for it: values, classes and loops of one's own."""

import json
import sqlite3

import pytest

import kaname.designs
from kaname import (
    AgentResult,
    AgentRuntime,
    AgentState,
    AgentStep,
    CalculatorTool,
    ConfigError,
    DatabaseTool,
    FallbackStrategy,
    GuardrailResult,
    Guardrails,
    Model,
    PlanResult,
    RAGPipeline,
    ReActPlanner,
    ScriptedModel,
    SearchTool,
    ToolNotFoundError,
    ToolRegistry,
    ToolResult,
    call,
    replace,
)


class Echo:
    name = "echo"
    description = "Says it again."

    def __init__(self):
        self.seen = []

    async def execute(self, input_text):
        self.seen.append(input_text)
        return ToolResult(f"you said {input_text}")


class Broken:
    name = "broken"
    description = "Never works."

    async def execute(self, input_text):
        return ToolResult(output="", error="out of order")


def act(action, given):
    return f"Thought: I try.\nAction: {action}\nAction Input: {given}"


END = "Thought: I know.\nFinal Answer: done"


def runtime(*replies, tools=(), **parts):
    return AgentRuntime(ReActPlanner(ScriptedModel(list(replies)), "any"), tools, journal="memory", **parts)


class Verdict:
    def __init__(self, action, reason, details):
        self.action, self.reason, self.details = action, reason, details


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("details", [None, 3, "login failed", ["x"], {"failed": ["rule 7"]}])
@pytest.mark.parametrize("kind", [GuardrailResult, Verdict])
async def test_the_details_of_a_verdict_of_ones_own_can_be_anything(details, kind):
    class Rails(Guardrails):
        def check_input(self, text):
            return kind("block" if "!" in text else "warn", "not so loud", details)

    assert (await runtime(END, guardrails=Rails()).run("hello")).stopped_reason == "completed"
    blocked = await runtime(END, guardrails=Rails()).run("hello!")
    assert (blocked.stopped_reason, blocked.answer) == ("blocked", "not so loud")
    assert not GuardrailResult("block", "no", details).failed


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("given", ["SELECT id\nFROM u", "a\n\nb", "one\n  two\nthree: 3"])
async def test_a_plain_input_of_several_lines_is_read_whole_and_invented_observations_are_cut_off(given):
    reply = act("echo", given)
    plan = await ReActPlanner(ScriptedModel([reply]), "any").plan("?", AgentState(), ["echo"])
    assert (plan.action, plan.action_input) == ("echo", given)
    echo = Echo()
    result = await runtime(f"{reply}\nObservation: 7\nThought: hm\nFinal Answer: 7", END, tools=[echo]).run("?")
    assert (echo.seen, result.answer, result.steps[0].action_input) == ([given], "done", given)


@pytest.mark.requirement("A4")
async def test_two_actions_of_a_tool_that_may_change_something_are_still_asked_about():
    echo = Echo()
    result = await runtime(f"{act('echo', 'a')}\nb\nAction: echo\nAction Input: c", END, tools=[echo]).run("?")
    assert (echo.seen, result.answer) == ([], "done")


@pytest.mark.requirement("A10", "A11")
def test_a_subclass_names_its_tool(tmp_path):
    sales, manuals = type("Sales", (DatabaseTool,), {"name": "sales"}), type("Manuals", (SearchTool,), {"name": "manuals"})
    file = tmp_path / "x.db"
    sqlite3.connect(file).close()
    tools = [sales(file), manuals(tmp_path / "index.db"), sales(file, name="more"), DatabaseTool(file), SearchTool()]
    assert [one.name for one in tools] == ["sales", "manuals", "more", "database", "search"]


@pytest.mark.requirement("A4")
def test_the_documents_name_for_a_model():
    assert kaname.designs.LLMProvider is Model


@pytest.mark.requirement("A3", "A4")
async def test_a_planner_of_ones_own_gets_the_state_with_at_most_max_history_steps():
    class Planner:
        seen = 0

        async def plan(self, query, state, available_tools):
            self.seen, self.history = len(state.get_steps()), state.max_history
            return PlanResult("again", "echo", str(self.seen))

    planner = Planner()
    result = await AgentRuntime(planner, [Echo()], max_steps=55, journal="memory").run("?")
    assert (len(result.steps), planner.seen, planner.history) == (55, 50, 50)


@pytest.mark.requirement("A6")
async def test_a_loop_by_hand_sees_an_error_that_no_retry_mends():
    failed = await FallbackStrategy().execute_with_fallback(CalculatorTool(), "1/0")
    assert (failed.degraded, failed.is_error, failed.attempts) == (True, True, 1)
    assert "zero" in failed.error

    class Same(FallbackStrategy):
        async def execute_with_fallback(self, tool, input_text):
            return await super().execute_with_fallback(tool, input_text)

    for strategy in (FallbackStrategy(), Same()):  # in a run the model reads it, and mends it
        result = await runtime(
            act("calculator", "1/0"), act("calculator", "1/1"), END, tools=[CalculatorTool()], fallback_strategy=strategy
        ).run("?")
        assert (result.stopped_reason, result.steps[1].observation) == ("completed", "1")


@pytest.mark.requirement("A2", "A6")
async def test_a_tool_that_fails_for_good_in_the_last_step_is_answered_without():
    replies = [act("echo", "a"), act("broken", "b"), "Final Answer: I could not find out."]
    result = await runtime(*replies, tools=[Echo(), Broken()], fallback_strategy=FallbackStrategy(0), max_steps=2).run("?")
    assert (result.stopped_reason, result.answer) == ("tool_failure_degraded", "I could not find out.")
    assert "out of order" in result.detail


@pytest.mark.requirement("A2", "A5")
async def test_a_check_of_the_output_judges_the_answer_and_patterns_judge_the_rest():
    class OnlyJson(Guardrails):
        def check_output(self, text):
            try:
                json.loads(text)
            except ValueError:
                return GuardrailResult("block", "the answer is JSON")
            return GuardrailResult()

    async def reason(*replies):
        rails = OnlyJson(blocked_patterns=["hunter2"])
        result = await runtime(*replies, tools=[Echo()], guardrails=rails).run("?")
        return result.stopped_reason, result.answer

    answer = 'Thought: fine\nFinal Answer: {"a": 1}'
    assert await reason(act("echo", "not JSON"), answer) == ("completed", '{"a": 1}')
    assert await reason(act("echo", "x"), END) == ("blocked", "the answer is JSON")
    assert (await reason(act("echo", "hunter2"), answer))[0] == "blocked"
    assert (await reason(f"Thought: hunter2\n{answer}"))[0] == "blocked"


@pytest.mark.requirement("A8")
def test_the_attributes_of_a_registered_tool_are_reached():
    echo, registry = Echo(), ToolRegistry()
    registry.register(echo)
    assert registry.get("echo").seen is echo.seen
    with pytest.raises(AttributeError, match="elsewhere"):
        _ = registry.get("echo").elsewhere
    with pytest.raises(ToolNotFoundError, match="'nothing'"):
        raise ToolNotFoundError("nothing")


@pytest.mark.requirement("A1", "A3")
async def test_a_call_without_a_tool_is_not_counted_and_its_input_is_a_text():
    result = await runtime(
        call("nothing", input_text="1"), call("echo", a=1, b=2), call("echo", x="y"), END, tools=[Echo()]
    ).run("?")
    assert [step.action_input for step in result.steps[:3]] == ["1", '{"a": 1, "b": 2}', "y"]
    assert result.tool_calls == 2
    stopped = await runtime(
        call("broken", input="1"), call("echo", input="2"), tools=[Echo(), Broken()], fallback_strategy=FallbackStrategy(0)
    ).run("?")
    assert (stopped.stopped_reason, stopped.tool_calls) == ("tool_failure_degraded", 1), "the second was not run"


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("name", ["planner", "tool_registry", "guardrails", "fallback_strategy", "max_steps"])
def test_the_parts_of_a_runtime_cannot_be_changed_silently(name):
    made = runtime(END)
    with pytest.raises(ConfigError, match=f"{name} cannot be changed later"):
        setattr(made, name, None)
    made.note = "of my own"


@pytest.mark.requirement("A6", "A7")
async def test_a_result_class_of_ones_own_is_read_by_its_shape():
    class Outcome:
        def __init__(self, output, error=None):
            self.output, self.error = output, error

        @property
        def is_error(self):
            return self.error is not None

    class Own(Echo):
        async def execute(self, input_text):
            return Outcome("", "no such word") if input_text == "bad" else Outcome(f"heard {input_text}")

    fallback = FallbackStrategy(0)
    result = await runtime(act("echo", "a"), act("echo", "bad"), END, tools=[Own()], fallback_strategy=fallback).run("?")
    assert (result.steps[0].observation, result.stopped_reason) == ("heard a", "tool_failure_degraded")
    assert "no such word" in result.detail
    direct = await fallback.execute_with_fallback(Own(), "bad")
    assert (direct.error, direct.degraded) == ("no such word", True)


@pytest.mark.requirement("A10", "A11")
async def test_sources_of_ones_own_are_taken_or_refused_with_the_reason(tmp_path):
    (tmp_path / "zoo.md").write_text("The zebra has stripes.")
    documents = RAGPipeline(tmp_path / "index.db")
    documents.add(tmp_path / "zoo.md")

    class Pipeline:
        def search(self, query, top_k):
            return documents.search(query, top_k)

    search = SearchTool(Pipeline())
    assert "documents" in search.description
    assert (await search.execute("zebra")).output["passages"][0]["source"] == "zoo.md"
    documents.close()
    with pytest.raises(ConfigError, match=r"search\(query, top_k\)"):
        SearchTool(object())
    with sqlite3.connect(":memory:") as connection, pytest.raises(ConfigError, match="SQLite or DuckDB file"):
        DatabaseTool(connection)
    connection.close()


@pytest.mark.requirement("A1", "A3")
def test_a_changed_step_is_another_one():
    step = AgentStep("t", "echo", "a", "b")
    with pytest.raises(AttributeError, match="from kaname import replace"):
        step.thought = "u"
    assert replace(step, thought="u") == AgentStep("u", "echo", "a", "b")
    assert replace(AgentResult("a", [], 0, "completed"), answer="b").answer == "b"


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("base", [Guardrails, object])
async def test_thoughts_and_arguments_can_be_judged_too(base):
    class Rails(base):
        def check_input(self, text):
            return None

        def check_output(self, text):
            return None

        def check_thought(self, text):
            return "not even in thought" if "hunter2" in text else None

    for reply in (act("echo", "hunter2"), f"Thought: hunter2\n{END}"):
        result = await runtime(reply, END, tools=[Echo()], guardrails=Rails()).run("?")
        assert (result.stopped_reason, result.answer) == ("blocked", "not even in thought")


@pytest.mark.requirement("A11")
async def test_a_refused_statement_is_named_as_it_was_written(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE items (id INTEGER)")
    connection.close()
    database = DatabaseTool(tmp_path / "x.db")
    for sql, verb in {
        "DROP TABLE items": "DROP",
        "create table other (id)": "CREATE",
        "WITH one AS (SELECT 1) DELETE FROM items": "DELETE",
        "PRAGMA user_version": "PRAGMA",
    }.items():
        assert (await database.execute(sql)).error == f"not run: only SELECT is allowed, not {verb}", sql
    database.close()
