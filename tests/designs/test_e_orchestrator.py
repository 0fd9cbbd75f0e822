"""Design E: plan, execute, monitor, evaluate, plan again; it always ends."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, ConfigError, ScriptedModel, cost, deadline, max_steps, tool
from kaname.core.messages import ModelReply, assistant
from kaname.designs.orchestrator.orchestrator import AgentContext, AgentOrchestrator, ExecutionMonitor, TaskPlanner
from kaname.kernel.bases import ModelInfo
from kaname.run.figures import figures, rate
from kaname.strategies.graph.asking import EvaluationResult
from tests.properties import tries

DONE = []


@pytest.fixture(autouse=True)
def nothing_done():
    DONE.clear()


@tool(effect="pure")
def price(item: str) -> int:
    """The price of an item."""
    DONE.append(("price", item))
    return {"tea": 300, "cake": 450}[item]


@tool
def buy(item: str, yen: int) -> str:
    """Buy an item."""
    DONE.append(("buy", item, yen))
    return f"bought {item} for {yen}"


def plan(*steps, description="buy tea"):
    return json.dumps({"description": description, "steps": list(steps)})


def step(name, tool_name, after=(), **arguments):
    return {"name": name, "tool_name": tool_name, "arguments": arguments, "depends_on": list(after), "expected_outcome": "fine"}


def verdict(ok, retry=False, **words):
    said = {"is_successful": ok, "should_retry": retry, "feedback": "", "reason": "", "answer": "", **words}
    return json.dumps(said)


GOOD = plan(step("cost", "price", item="tea"), step("order", "buy", item="tea", yen="${cost}"))


def orchestrator(script, monitor=None, **more):
    approve = more.pop("approve", False)
    revisions = more.pop("max_revisions", 3)
    planner = TaskPlanner(ScriptedModel(script), [price, buy], approve=approve, max_revisions=revisions)
    return AgentOrchestrator(planner, monitor, "memory", **more)


@pytest.mark.requirement("E1", "E5")
async def test_e1_plan_execute_evaluate():
    script = [f"Here is the plan: {GOOD} I hope it helps.", verdict(True, answer="Tea is bought.")]
    context = (await orchestrator(script).execute_task("Buy tea.")).context
    assert context.is_completed
    assert context.output == "Tea is bought."
    assert DONE == [("price", "tea"), ("buy", "tea", 300)]
    assert context.progress == 1.0


@pytest.mark.requirement("E2")
async def test_e2_bad_plan_is_sent_back_before_anything_runs():
    seen = []

    def script(request):
        seen.append(request.messages[-1].text)
        if len(seen) == 1:
            return plan(
                step("a", "prise", item="tea"), step("b", "buy", item="tea"), step("c", "price", ["x"], item="${nobody}")
            )
        assert len(seen) > 2 or DONE == []
        return GOOD if len(seen) == 2 else verdict(True)

    context = (await orchestrator(script).execute_task("Buy tea.")).context
    assert context.is_completed
    for words in ("there is no tool 'prise'", "required argument 'yen'", "there is no task 'x'", "there is no 'nobody'"):
        assert words in seen[1]
    assert context.execution_history[0].problem


@tool(effect="pure")
def stock(item: str, shops: int = 1) -> dict:
    """How many there are, as a table."""
    return {"rows": [{"item": item, "pieces": 7 * shops}]}


@tool(effect="pure")
def count(sql: str) -> dict:
    """One number, as a table."""
    return {"rows": [{"n": 40}]}


@tool(effect="pure")
def work_out(expression: str, times: int = 1) -> int:
    """Arithmetic."""
    DONE.append(expression)
    return eval(expression, {}) * times


@pytest.mark.requirement("E2")
async def test_e2_small_model_plans_in_a_simple_form():
    seen = []

    class Small:
        name, about = "small", ModelInfo(tool_mode="constrained")

        async def reply(self, request, emit):
            seen.append(request)
            if len(seen) == 1:
                sold = "${step1} - ${step2[0].pieces}"
                calls = [("count", {"sql": "…"}), ("stock", {"item": "tea"}), ("work_out", {"expression": sold})]
                return ModelReply(assistant(json.dumps({"steps": [{"tool": name, "args": args} for name, args in calls]})))
            return ModelReply(assistant(json.dumps({"answer": "33 cups were sold", "is_successful": True, "feedback": ""})))

    made = AgentOrchestrator(TaskPlanner(Small(), [count, stock, work_out]), None, "memory")
    result = await made.execute_task("How many were sold?")
    assert DONE == ["40 - 7"], "what holds a single value is that value"
    assert (result.is_successful, result.output) == (True, "33 cups were sold")
    forms = seen[0].schema["properties"]["steps"]["items"]["anyOf"]
    assert [form["properties"]["tool"]["const"] for form in forms] == ["count", "stock", "work_out"]
    assert {"type": "integer", "default": 1} in forms[2]["properties"]["args"]["properties"]["times"]["anyOf"]
    assert "depends_on" not in seen[0].messages[0].text


async def test_form_of_plans_can_be_chosen():
    seen = []

    def script(request):
        seen.append(request)
        return GOOD if len(seen) == 1 else json.dumps({"answer": "tea", "is_successful": True, "feedback": ""})

    planner = TaskPlanner(ScriptedModel(script), [price, buy], form="simple", instructions="Plan with:\n{tools}")
    result = await AgentOrchestrator(planner, None, "memory").execute_task("Buy tea.")
    assert result.output == "tea", "a plan in the full form is understood as well"
    assert seen[0].messages[0].text.startswith("Plan with:\n- price: The price of an item.")


async def test_time_limits_of_a_plan_fit_into_the_whole():
    hasty = [{**one, "timeout": 40} for one in json.loads(GOOD)["steps"]]
    seen = []

    def script(request):
        seen.append(request.messages[-1].text)
        return [plan(*hasty), GOOD, verdict(True)][len(seen) - 1]

    made = orchestrator(script, stops=deadline("60s") | cost("$2"), approve=True)
    waiting = await made.execute_task("Buy tea.")
    assert "the timeouts of the steps add up to 80 s, but the whole task has 60 s" in seen[1]
    assert "In total: at most 2 calls, at most 600 s; makes changes: order (irreversible)" in waiting.reason
    assert "The task stops after 60 s or $2." in waiting.reason
    assert (waiting.context.phase, list(waiting.context.questions)) == ("planning", ["task:plan2?approve"])
    assert (await made.resume(waiting.context.run_id, dict.fromkeys(waiting.context.questions, "yes"))).completed


@pytest.mark.requirement("E3")
async def test_e3_expected_outcome_as_a_schema_is_checked_before_the_model_is_asked():
    cheap = {**step("cost", "price", item="tea"), "expected_outcome": {"type": "integer", "maximum": 100}}
    seen = []

    def script(request):
        seen.append(request.messages[-1].text)
        return [plan(cheap), GOOD, verdict(True)][len(seen) - 1]

    context = (await orchestrator(script).execute_task("Buy tea.")).context
    assert context.is_completed
    assert seen[1].startswith("not as expected: cost")
    assert DONE == [("price", "tea"), ("price", "tea"), ("buy", "tea", 300)], "what can be repeated is"


@pytest.mark.parametrize("rule", [lambda plan, steps: 1 / 0, lambda plan, steps: True])
async def test_rule_that_is_broken_ends_the_task_with_that_reason(rule):
    made = orchestrator([GOOD], ExecutionMonitor(rules=(rule,)))
    result = await made.execute_task("Buy tea.")
    assert not result.is_successful
    assert "the rule <lambda> failed" in result.reason
    assert result.output == {"cost": 300, "order": "bought tea for 300"}
    assert (await made.context(result.context.run_id)).phase == "cancelled"


async def test_steps_with_effects_keep_the_order_that_their_dependencies_allow():
    steps = [
        step("order", "buy", item="tea", yen=1),
        step("cost", "price", item="tea"),
        step("more", "buy", item="cake", yen=2),
    ]
    steps[0]["depends_on"] = "cost"
    made = orchestrator([plan(*steps), verdict(True)], approve=True)
    waiting = await made.execute_task("Buy tea.")
    assert "1. order: buy" in waiting.reason
    assert "[irreversible] (after cost)" in waiting.reason
    assert "(after cost, order)" in waiting.reason
    result = await made.resume_task(waiting.context.run_id, dict.fromkeys(waiting.context.questions, "Yes!"))
    assert result.is_successful
    assert DONE == [("price", "tea"), ("buy", "tea", 1), ("buy", "cake", 2)]


async def test_run_that_is_stopped_has_what_there_is_and_not_the_plans_text():
    made = orchestrator([GOOD, verdict(True)])
    run = made.run("Buy tea.")
    async for chunk in run:
        if chunk.type == "tool_response":
            run.abort("enough")
    assert (await run).output == {"cost": 300}


def test_form_that_there_is_not_is_told():
    with pytest.raises(ConfigError, match="form must be 'full' or 'simple', not 'smple'"):
        AgentOrchestrator(TaskPlanner(ScriptedModel([]), [price], form="smple"))


async def test_verdict_that_cannot_be_read_is_asked_for_again_and_costs_no_plan():
    context = (await orchestrator([GOOD, "It is done, I think.", verdict(True, answer="ok")]).execute_task("Buy tea.")).context
    assert (context.output, len(context.execution_history), DONE.count(("price", "tea"))) == ("ok", 1, 1)


@pytest.mark.requirement("E2")
async def test_e2_plan_alone():
    planner = TaskPlanner(ScriptedModel([GOOD]), [price, buy])
    made = await planner.generate_plan(AgentContext("Buy tea."))
    assert [one.tool_name for one in made.steps] == ["price", "buy"]
    assert made.steps[1].arguments == {"item": "tea", "yen": "${cost}"}
    assert DONE == [], "nothing is carried out"


@pytest.mark.requirement("E3")
async def test_e3_rules_first_and_then_the_model():
    broken = plan(step("cost", "price", item="truffle"))
    script = [broken, GOOD, verdict(False, retry=True, feedback="buy cake, too"), GOOD, verdict(True, answer="done")]
    context = (await orchestrator(script).execute_task("Buy tea.")).context
    assert context.is_completed
    assert "steps failed" in context.feedback_history[0]
    assert context.feedback_history[1] == "buy cake, too"
    assert DONE.count(("buy", "tea", 300)) == 1, "finished work is kept"

    def too_dear(made, steps):
        return EvaluationResult(reason="too dear") if steps["cost"]["output"] > 200 else None

    context = (await orchestrator([GOOD], ExecutionMonitor((too_dear,))).execute_task("Buy tea.")).context
    assert (context.is_cancelled, context.cancellation_reason) == (True, "too dear")


@pytest.mark.requirement("E4")
async def test_e4_context_follows_from_the_facts(tmp_path):
    script = [GOOD, verdict(True, answer="done")]

    def made():
        return AgentOrchestrator(TaskPlanner(ScriptedModel(script), [price, buy]), None, str(tmp_path / "j.db"))

    first = made()
    run = first.run("Buy tea.")
    async for chunk in run:
        if chunk.type == "tool_response":
            run.abort("enough")
    context = await made().context(run.run_id)
    assert (context.is_cancelled, context.cancellation_reason) == (True, "enough")
    assert context.user_input == "Buy tea."
    assert context.current_plan.description == "buy tea"
    assert context.output is not None
    result = await made().resume(run.run_id)
    assert result.output == "done"
    assert DONE.count(("price", "tea")) == 1


async def test_plan_is_approved_once_or_changed_by_a_person():
    made = orchestrator([GOOD, plan(step("cost", "price", item="cake")), verdict(True)], approve=True)
    waiting = await made.run("Buy tea.")
    ((key, asked),) = waiting.questions.items()
    assert '2. order: buy({"item": "tea", "yen": "${cost}"}) [irreversible]' in asked.prompt
    assert '1. cost: price({"item": "tea"})\n' in asked.prompt
    waiting = await made.resume(waiting.run_id, {key: "only look at cake"})
    ((key, asked),) = waiting.questions.items()
    assert 'price({"item": "cake"})' in asked.prompt
    assert (await made.resume(waiting.run_id, {key: "yes"})).stop.kind == "completed"
    assert DONE == [("price", "cake")]
    refused = orchestrator([GOOD], approve=True)
    waiting = await refused.run("Buy tea.")
    result = await refused.resume(waiting.run_id, dict.fromkeys(waiting.questions, "no"))
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "the user did not approve the plan")


async def test_step_called_approve_is_no_approval():
    script = [plan(step("approve", "price", item="tea"), step("order", "buy", ["approve"], item="tea", yen=1)), verdict(True)]
    made = orchestrator(script, approve=True)
    waiting = await made.run("Buy tea.")
    await made.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert DONE == [("price", "tea"), ("buy", "tea", 1)]


async def test_model_that_fails_ends_the_task_with_that_reason_and_what_there_is():
    result = await orchestrator([GOOD]).execute_task("Buy tea.")
    assert not result.is_successful
    assert "replies" in result.reason
    assert result.output == {"cost": 300, "order": "bought tea for 300"}


async def test_revisions_are_bounded_and_partial_results_delivered():
    script = [GOOD, *[verdict(False, retry=True, feedback="again"), GOOD] * 9]
    context = (await orchestrator(script, max_revisions=2).execute_task("Buy tea.")).context
    assert context.is_cancelled
    assert "after 2 revisions" in context.cancellation_reason
    assert context.output == {"cost": 300, "order": "bought tea for 300"}


async def test_limits_hold_and_deliver_what_there_is():
    made = orchestrator([GOOD, verdict(True)], stops=max_steps(2))
    result = await made.run("Buy tea.")
    assert result.stop.kind == "max_steps"
    assert result.output == {"cost": 300}
    assert DONE == [("price", "tea")]


@pytest.mark.requirement("E5")
async def test_e5_tool_that_is_registered_later_is_planned_with():
    @tool(effect="pure")
    def weather() -> str:
        """The weather."""
        return "rain"

    seen = []

    def script(request):
        seen.append(request.messages[0].text)
        return plan(step("look", "weather")) if len(seen) == 1 else verdict(True)

    made = orchestrator(script)
    made.tools.register(weather)
    assert (await made.execute_task("Weather?")).is_successful
    assert "weather: The weather" in seen[0]


@pytest.mark.requirement("D6")
async def test_d6_independent_steps_run_at_the_same_time_and_progress_is_seen():
    running, most = 0, 0

    @tool(effect="pure")
    async def look(n: int) -> int:
        """Look."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return n

    steps = [step(f"s{n}", "look", n=n) for n in range(3)]
    script = [plan(*steps, step("last", "look", ["s0", "s1", "s2"], n=9)), verdict(True)]
    made = AgentOrchestrator(TaskPlanner(ScriptedModel(script), [look]), None, "memory")
    seen, told = [], []
    async for chunk in (run := made.run("Look.")):
        if chunk.type == "tool_response":
            seen.append((await made.context(run.run_id)).progress)
        if chunk.get("status") == "progress":
            told.append((chunk["percent"], chunk["done"], chunk["of"], len(chunk["running"])))
            assert ("steps" in chunk.data) == (len(told) == 1), "the plan is shown once"
            items = [(one["text"], one["status"]) for one in chunk["items"]]
    assert (told[0], told[-1]) == ((0, 0, 4, 3), (75, 3, 4, 1))
    assert told == sorted(told)
    assert items == [("s0", "done"), ("s1", "done"), ("s2", "done"), ("last", "doing")], "in the form of a list of things to do"
    assert most == 3
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.requirement("E6")
async def test_e6_figures_from_the_journal():
    script = [plan(step("a", "price", item="truffle")), GOOD, verdict(True)]
    made = orchestrator(script)
    good = await made.execute_task("Buy tea.")
    journal = made.agent.journal
    await rate(journal, good.context.run_id, "bad")
    await rate(journal, good.context.run_id, "good", "quick")
    told = await figures(journal)
    assert (told.runs, told.completion_rate, told.planned, told.revisions) == (1, 1.0, 1, 1)
    assert (told.model_calls, told.tool_calls, told.tool_errors, told.satisfaction) == (3, 3, 1, 1.0)
    assert told.as_json()["by_status"] == {"completed": 1}
    assert (await made.resume(good.context.run_id)).stop.kind == "completed", "a rated run is still what it was"
    with pytest.raises(ConfigError, match="'good' or 'bad'"):
        await rate(journal, good.context.run_id, "fine")


class Random:
    """A model that plans well or badly, and judges as it likes."""

    name = "random"

    def __init__(self, choices):
        self.choices = iter(choices)

    def __call__(self, request):
        choice = next(self.choices, 0)
        if "You judge" in request.messages[0].text:
            return [verdict(True), verdict(False, True), verdict(False), "nonsense"][choice % 4]
        plans = [GOOD, plan(step("cost", "price", item="truffle")), plan(step("a", "nothing")), "nonsense", plan()]
        return plans[choice % 5]


@tries(300)
@given(st.lists(st.integers(0, 19), max_size=12), st.integers(0, 3))
def test_it_always_ends_completed_or_cancelled_with_a_reason(choices, revisions):
    context = asyncio.run(orchestrator(Random(choices), max_revisions=revisions).execute_task("Buy tea.")).context
    assert context.is_completed != context.is_cancelled
    assert context.is_completed or context.cancellation_reason
    assert len(context.execution_history) <= revisions + 1


def test_agent_is_an_agent():
    assert isinstance(orchestrator([]).agent, Agent)
