"""Design E as its document has it: the loop of `ExecuteTaskAsync`, the three parts behind their interfaces, plan and context."""

import asyncio
import json
from datetime import timedelta

import pytest

from kaname import ConfigError, Guardrails, InvalidState, ScriptedModel, ToolResult, ToolRule, cost, deadline, max_steps, tool
from kaname.core.errors import ModelError
from kaname.core.messages import ModelReply, Usage, assistant
from kaname.designs import (
    AgentContext,
    AgentOrchestrator,
    EvaluationResult,
    ExecutionMonitor,
    ExecutionPlan,
    ExecutionResult,
    ExecutionStep,
    IClaudeClient,
    IExecutionMonitor,
    IStateManager,
    ITaskPlanner,
    StateManager,
    TaskPlanner,
)
from kaname.kernel.bases import bound_of
from kaname.policies.failure.timeout import Timeout
from kaname.run.figures import figures

DONE = []


@pytest.fixture(autouse=True)
def nothing_done():
    DONE.clear()


@tool(effect="pure")
def price(item: str) -> int:
    """The price of an item."""
    DONE.append(f"price {item}")
    return {"tea": 300, "cake": 450}[item]


@tool
def buy(item: str, yen: int) -> str:
    """Buy an item."""
    DONE.append(f"buy {item} {yen}")
    return f"bought {item} for {yen}"


# 主要クラス設計: parts of one's own, with the document's methods and nothing else


class ClaudeClient:
    """What the document's planner asks: a text in, a text out."""

    def __init__(self, *answers):
        self.answers, self.prompts = list(answers), []

    async def generate(self, prompt):
        self.prompts.append(prompt)
        return self.answers.pop(0)


class MyPlanner:
    def __init__(self, claude):
        self._claude = claude

    async def generate_plan(self, context):
        prompt = " | ".join([context.user_input, *context.feedback_history])
        response = await self._claude.generate(prompt)
        name, _, arguments = response.partition(" ")
        return ExecutionPlan(description=response, steps=[ExecutionStep(tool_name=name, arguments=json.loads(arguments))])


class MyMonitor:
    async def evaluate_result(self, result, context):
        issues = [step["error"] for step in result.steps.values() if step["error"]]
        if issues:
            return EvaluationResult(should_retry=True, feedback="; ".join(issues))
        return EvaluationResult(is_successful=True)


class MyStateManager:
    def __init__(self):
        self.saved = []

    async def save(self, context):
        self.saved.append((context.phase, len(context.execution_history), list(context.feedback_history)))


TEA = 'price {"item": "tea"}'


@pytest.mark.requirement("E1", "E2", "E3", "E4")
async def test_e1_the_loop_of_the_document_with_parts_of_ones_own():
    claude = ClaudeClient('price {"item": "truffle"}', TEA)
    states = MyStateManager()
    orchestrator = AgentOrchestrator(MyPlanner(claude), MyMonitor(), states, tools=[price])
    result = await orchestrator.execute_task("What does tea cost?")
    assert isinstance(result, ExecutionResult)
    assert (result.is_successful, result.output, DONE) == (True, 300, ["price truffle", "price tea"])
    assert claude.prompts == ["What does tea cost?", "What does tea cost? | KeyError: 'truffle'"]
    context = result.context
    assert (context.is_completed, context.is_cancelled, context.cancellation_reason) == (True, False, "")
    assert [one.is_successful for one in context.execution_history] == [False, True]
    assert context.current_plan.description == TEA
    phases = list(dict.fromkeys([phase for phase, _, _ in states.saved]))
    assert phases == ["planning", "execution", "evaluation", "completed"], "monitoring is over with the only step"
    assert states.saved[-1] == ("completed", 2, ["KeyError: 'truffle'"])


@pytest.mark.requirement("E1")
async def test_e1_a_monitor_that_says_no_cancels_with_its_reason():
    class No:
        async def evaluate_result(self, result, context):
            return EvaluationResult(reason="never")

    result = await AgentOrchestrator(MyPlanner(ClaudeClient(TEA)), No(), "memory", tools=[price]).execute_task("Tea?")
    assert (result.is_successful, result.reason) == (False, "never")
    assert result.context.is_cancelled
    assert result.output == {"step1": 300}, "what there is by then is kept"


@pytest.mark.requirement("E1", "E3")
async def test_e3_another_plan_comes_before_success():
    seen = []

    class Both:
        def evaluate_result(self, result, context):  # it need not be async
            seen.append(len(context.execution_history))
            return {"should_retry": len(seen) == 1, "is_successful": True, "feedback": "once more"}

    claude = ClaudeClient(TEA, 'price {"item": "cake"}')
    result = await AgentOrchestrator(MyPlanner(claude), Both(), "memory", tools=[price]).execute_task("Prices?")
    assert (seen, result.output, claude.prompts[1]) == ([1, 2], 450, "Prices? | once more")


@pytest.mark.requirement("E1")
async def test_e1_revisions_are_bounded_for_parts_of_ones_own_too():
    class Again:
        async def evaluate_result(self, result, context):
            return EvaluationResult(should_retry=True, feedback="again")

    claude = ClaudeClient(*[TEA] * 9)
    result = await AgentOrchestrator(MyPlanner(claude), Again(), "memory", tools=[price]).execute_task("Tea?")
    assert len(claude.prompts) == 4, "the first plan and three revisions"
    assert "after 3 revisions" in result.reason
    assert DONE == ["price tea"] * 4, "each plan is carried out"
    claude = ClaudeClient(*[TEA] * 9)
    planner = MyPlanner(claude)
    planner.max_revisions = 0
    result = await AgentOrchestrator(planner, Again(), "memory", tools=[price]).execute_task("Tea?")
    assert len(claude.prompts) == 1


@pytest.mark.requirement("E1")
def test_e1_time_and_money_are_bounded_by_default():
    def limits(**more):
        stops = AgentOrchestrator(TaskPlanner(ScriptedModel([])), None, "memory", **more).recipe.stops
        bounds = [bound_of(rule) for rule in stops]
        return {one.kind: one.most for one in bounds if one.kind in ("deadline", "budget") and one.most is not None}

    assert limits() == {"deadline": 1800, "budget": 10}
    assert limits(stops=cost("$2")) == {"deadline": 1800, "budget": 2}
    assert limits(stops=[cost(None), max_steps(3)]) == {"deadline": 1800}


class Priced:
    """A model whose every answer costs three dollars; none, if its price is not known."""

    name = "priced"

    def __init__(self, dollars, *answers):
        self.dollars, self.answers = dollars, list(answers)

    async def reply(self, request, emit):
        return ModelReply(assistant(self.answers.pop(0)), "end_turn", Usage(10, 10, cost=self.dollars))


def plan(*steps, **more):
    return json.dumps({"description": "a plan", "steps": list(steps), **more})


def step(tool_name, **arguments):
    return {"tool_name": tool_name, "arguments": arguments}


AGAIN = json.dumps({"is_successful": False, "should_retry": True, "feedback": "again", "reason": "", "answer": ""})
YES = json.dumps({"is_successful": True, "should_retry": False, "feedback": "", "reason": "", "answer": "300 yen"})
GOOD = plan(step("price", item="tea"))


@pytest.mark.requirement("E1", "E6")
async def test_e1_money_runs_out():
    def made(dollars, *answers):
        return AgentOrchestrator(TaskPlanner(Priced(dollars, *answers), [price], max_revisions=9), None, "memory")

    dear = made(3.0, *[GOOD, AGAIN] * 9)
    result = await dear.execute_task("Tea?")
    assert (result.is_successful, result.context.usage.cost) == (False, 12.0)
    assert "limit of $10 was reached ($12.0000 spent)" in result.reason
    unknown = made(None, GOOD, AGAIN, GOOD, YES)
    assert (await unknown.execute_task("Tea?")).is_successful, "without a price the other two limits hold"


# Task Planner


@pytest.mark.requirement("E2")
async def test_e2_the_plan_of_a_subclass_is_what_runs():
    class Cautious(TaskPlanner):
        async def generate_plan(self, context):
            made = await super().generate_plan(context)
            DONE.append(f"planned {[one.tool_name for one in made.steps]}")
            return ExecutionPlan(made.description, [one for one in made.steps if one.tool_name != "buy"], made.parameters)

    model = ScriptedModel([plan(step("price", item="tea"), step("buy", item="tea", yen=300)), YES])
    orchestrator = AgentOrchestrator(Cautious(model, [price, buy]), None, "memory")
    result = await orchestrator.execute_task("Buy tea.")
    assert result.output == "300 yen", "the model judges, as without the subclass"
    assert DONE == ["planned ['price', 'buy']", "price tea"]
    told = await figures(orchestrator.agent.journal, agent="orchestrator")
    assert (told.planned, told.tool_calls) == (1, 1)


@pytest.mark.requirement("E2")
async def test_e2_a_subclass_with_a_constructor_of_its_own_needs_nothing_else():
    class Fixed(TaskPlanner):
        def __init__(self, item):
            self.item = item

        async def generate_plan(self, context):
            return {"description": "fixed", "steps": [{"tool_name": "price", "arguments": {"item": self.item}}]}

    result = await AgentOrchestrator(Fixed("cake"), None, "memory", tools=[price]).execute_task("Cake?")
    assert (result.is_successful, result.output) == (True, 450)
    with pytest.raises(ConfigError, match="has no model"):
        await TaskPlanner.generate_plan(Fixed("cake"), AgentContext("Cake?"))


@pytest.mark.requirement("E2")
async def test_e2_the_helpers_of_the_documents_planner_can_be_replaced():
    class Lines(TaskPlanner):
        """Plans written as lines: a tool, and its arguments."""

        def build_planning_prompt(self, context):
            return f"Plan this, line by line: {context.user_input}"

        def parse_plan_from_response(self, response):
            split = [line.partition(" ") for line in response.splitlines()]
            return ExecutionPlan("lines", [ExecutionStep(name, json.loads(args)) for name, _, args in split])

    asked = []

    def script(request):
        asked.append(request.messages[-1].text)
        return ["price tea", 'price {"item": "tea"}\nbuy {"item": "tea", "yen": "${step1}"}'][len(asked) - 1]

    planner = Lines(ScriptedModel(script), [price, buy])
    result = await AgentOrchestrator(planner, MyMonitor(), "memory").execute_task("Buy tea.")
    assert (result.is_successful, DONE) == (True, ["price tea", "buy tea 300"])
    assert asked[0] == "Plan this, line by line: Buy tea."
    assert "the plan cannot be read (JSONDecodeError" in asked[1]
    asked.clear()
    made = await planner.generate_plan(AgentContext("Buy tea."))
    assert [one.tool_name for one in made.steps] == ["price", "buy"]


@pytest.mark.requirement("E2")
async def test_e2_a_bad_plan_of_ones_own_planner_is_sent_back_before_anything_runs():
    claude = ClaudeClient('prise {"item": "tea"}', 'buy {"item": "tea"}', 'price {"item": 3}', TEA)
    result = await AgentOrchestrator(MyPlanner(claude), MyMonitor(), "memory", tools=[price, buy]).execute_task("Tea?")
    assert (result.is_successful, DONE) == (True, ["price tea"])
    for words, prompt in zip(("there is no tool 'prise'", "'yen'", "item"), claude.prompts[1:], strict=True):
        assert words in prompt.rsplit(" | ", 1)[1]


@pytest.mark.requirement("E2")
@pytest.mark.parametrize("limit", [0.05, "50ms", timedelta(milliseconds=50)])
async def test_e2_the_timeout_stops_the_step_and_leads_to_another_plan(limit):
    stopped = []

    @tool(effect="pure")
    async def slow() -> str:
        """Slow."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return "never"

    class Planner:
        async def generate_plan(self, context):
            if context.feedback_history:
                return ExecutionPlan(context.feedback_history[-1], [ExecutionStep("price", {"item": "tea"})])
            return ExecutionPlan("slow", [ExecutionStep("slow", {}, timeout=limit)])

    orchestrator = AgentOrchestrator(Planner(), MyMonitor(), "memory", tools=[price, slow])
    async with asyncio.timeout(60):
        result = await orchestrator.execute_task("Go.")
    assert (result.is_successful, stopped) == (True, [True])
    assert result.plan.description == "timed out after 0.05 s"
    assert (await figures(orchestrator.agent.journal)).timeouts == 1


@pytest.mark.requirement("E2", "E6")
async def test_e2_the_timeout_of_a_models_plan_stops_its_step():
    @tool
    async def slow(item: str) -> str:
        """Slow."""
        await asyncio.Event().wait()
        return "never"

    seen = []

    def script(request):
        seen.append(request.messages[-1].text)
        return [plan({**step("slow", item="tea"), "timeout": 0.05}), GOOD, YES][len(seen) - 1]

    orchestrator = AgentOrchestrator(TaskPlanner(ScriptedModel(script), [price, slow]), None, "memory")
    async with asyncio.timeout(60):
        assert (await orchestrator.execute_task("Go.")).is_successful
    assert "timed out after 0.05 s; it may or may not have taken effect" in seen[1]
    told = await figures(orchestrator.agent.journal)
    assert (told.timeouts, told.tool_errors, told.error_rate) == (1, 1, 0.5)


@pytest.mark.requirement("E2")
async def test_e2_a_timeout_that_cannot_be_read_is_sent_back():
    seen = []

    def script(request):
        seen.append(request.messages[-1].text)
        return [plan({**step("price", item="tea"), "timeout": "soon"}), GOOD, YES][len(seen) - 1]

    result = await AgentOrchestrator(TaskPlanner(ScriptedModel(script), [price]), None, "memory").execute_task("Go.")
    assert result.is_successful
    assert "timeout of step 1: 'soon' is not a duration" in seen[1]


@pytest.mark.requirement("E2")
async def test_e2_steps_without_dependencies_are_carried_out_in_their_order():
    @tool
    async def write(text: str) -> str:
        """Write."""
        await asyncio.sleep(0.01)
        DONE.append(f"wrote {text}")
        return text

    @tool(effect="pure")
    def read() -> str:
        """Read."""
        return DONE[-1]

    class Planner:
        async def generate_plan(self, context):
            steps = [ExecutionStep("write", {"text": "${text}"}), ExecutionStep("read")]
            return ExecutionPlan("in order", steps, {"text": "hello"})

    result = await AgentOrchestrator(Planner(), MyMonitor(), "memory", tools=[write, read]).execute_task("Go.")
    assert result.steps["step2"]["output"] == "wrote hello"
    assert len(result.context.execution_history) == 1, "at the first attempt"


@pytest.mark.requirement("E2")
@pytest.mark.parametrize("said", [None, "a plan", 3])
async def test_e2_what_is_no_plan_ends_the_task_with_that_reason(said):
    class Planner:
        async def generate_plan(self, context):
            return said

    result = await AgentOrchestrator(Planner(), MyMonitor(), "memory", tools=[price]).execute_task("Go.")
    assert not result.is_successful
    assert "Planner.generate_plan failed" in result.reason


@pytest.mark.requirement("E2", "E4")
async def test_e2_a_planner_that_fails_is_asked_once_more_when_the_task_is_resumed():
    answers = [ModelError("overloaded"), TEA]

    class Planner(MyPlanner):
        async def generate_plan(self, context):
            if isinstance(answers[0], Exception):
                raise answers.pop(0)
            return await super().generate_plan(context)

    orchestrator = AgentOrchestrator(Planner(ClaudeClient(TEA)), MyMonitor(), "memory", tools=[price])
    result = await orchestrator.execute_task("Tea?")
    assert "Planner.generate_plan failed: ModelError" in result.reason
    again = await orchestrator.resume_task(result.context.run_id)
    assert (again.is_successful, again.output) == (True, 300)


# Execution Monitor


@pytest.mark.requirement("E3")
async def test_e3_evaluate_result_says_something_of_a_good_result_too():
    good = ExecutionResult(
        ExecutionPlan("p", [ExecutionStep("price", name="a")]), {"a": {"status": "done", "output": 1, "error": None}}
    )
    assert await ExecutionMonitor().evaluate_result(good, AgentContext("Go.")) == EvaluationResult(is_successful=True)
    bad = ExecutionResult(good.plan, {"a": {"status": "failed", "output": None, "error": "it fell down"}})
    said = await ExecutionMonitor().evaluate_result(bad, AgentContext("Go."))
    assert (said.should_retry, said.is_successful, said.feedback) == (True, False, "a: it fell down")
    strict = ExecutionMonitor(rules=(lambda plan, steps: EvaluationResult(reason="no"),))
    assert (await strict.evaluate_result(good, AgentContext("Go."))).reason == "no"


@pytest.mark.requirement("E3")
def test_e3_every_field_of_a_verdict_has_a_default():
    assert EvaluationResult() == EvaluationResult(should_retry=False, is_successful=False, feedback="", reason="")
    assert EvaluationResult(True, False, "f", "r") == EvaluationResult(should_retry=True, feedback="f", reason="r")


@pytest.mark.requirement("E3")
async def test_e3_a_subclass_decides_after_rules_and_model():
    seen = []

    class Second(ExecutionMonitor):
        async def evaluate_result(self, result, context):
            said = await super().evaluate_result(result, context)
            seen.append((said.should_retry, said.is_successful, said.answer))
            return EvaluationResult(reason="on second thoughts, no") if said.is_successful else said

    asked = []

    def script(request):
        asked.append(request.messages[-1].text)
        return [plan(step("price", item="truffle")), GOOD, YES][len(asked) - 1]

    orchestrator = AgentOrchestrator(TaskPlanner(ScriptedModel(script), [price]), Second(), "memory")
    result = await orchestrator.execute_task("What does tea cost?")
    assert (result.is_successful, result.reason) == (False, "on second thoughts, no")
    assert seen == [(True, False, ""), (False, True, "300 yen")], "the model is not asked about what a rule has settled"
    assert "What does tea cost?\nWhat the steps gave:\n- step1: 300" in asked[2]


@pytest.mark.requirement("E3")
async def test_e3_the_helpers_of_the_documents_monitor_can_be_replaced():
    class Picky(ExecutionMonitor):
        async def validate_execution_result(self, result):
            return [f"{name} is too dear" for name, one in result.steps.items() if one["output"] > 400]

        def generate_feedback(self, issues):
            return f"Please mend: {', '.join(issues)}"

    claude = ClaudeClient('price {"item": "cake"}', TEA)
    result = await AgentOrchestrator(MyPlanner(claude), Picky(), "memory", tools=[price]).execute_task("Cheap?")
    assert (result.output, claude.prompts[1]) == (300, "Cheap? | Please mend: step1 is too dear")


@pytest.mark.requirement("E3", "E6")
async def test_e3_a_monitor_has_a_model_of_its_own():
    judge = Priced(0.5, YES)
    orchestrator = AgentOrchestrator(MyPlanner(ClaudeClient(TEA)), ExecutionMonitor(model=judge), "memory", tools=[price])
    result = await orchestrator.execute_task("Tea?")
    assert (result.output, result.context.usage.cost) == ("300 yen", 0.5)
    told = await figures(orchestrator.agent.journal, agent="orchestrator")
    assert told.cost == 0.5, "what was spent inside a call is counted"


@pytest.mark.requirement("E3")
@pytest.mark.parametrize("said", [None, "fine", True])
async def test_e3_what_is_no_verdict_ends_the_task_with_that_reason(said):
    class Monitor:
        async def evaluate_result(self, result, context):
            return said

    result = await AgentOrchestrator(MyPlanner(ClaudeClient(TEA)), Monitor(), "memory", tools=[price]).execute_task("Go.")
    assert (result.is_successful, result.context.is_cancelled) == (False, True)
    assert "Monitor.evaluate_result failed: TypeError: it returned" in result.reason


# 状態管理


@pytest.mark.requirement("E4")
def test_e4_the_methods_of_the_context():
    context = AgentContext(user_input="Buy tea.")
    assert (context.current_plan, context.execution_history, context.feedback_history) == (None, [], [])
    assert (context.is_completed, context.is_cancelled, context.cancellation_reason) == (False, False, "")
    context.current_plan = ExecutionPlan(description="buy", steps=[], parameters={})
    context.add_feedback("cheaper")
    assert context.feedback_history == ["cheaper"]
    context.mark_completed()
    assert (context.is_completed, context.to_result().is_successful) == (True, True)
    other = AgentContext("Buy tea.")
    other.mark_cancelled("sold out")
    assert (other.is_cancelled, other.cancellation_reason) == (True, "sold out")
    result = other.to_result()
    assert (result.is_successful, result.reason, result.context) == (False, "sold out", other)


@pytest.mark.requirement("E4")
async def test_e4_what_a_part_does_to_the_context_counts():
    class Planner(MyPlanner):
        async def generate_plan(self, context):
            if len(context.feedback_history) > 1:
                context.mark_cancelled("no third plan")
            return await super().generate_plan(context)

    class Monitor:
        async def evaluate_result(self, result, context):
            context.add_feedback(f"not {result.output['step1']}")
            return EvaluationResult(should_retry=True)

    claude = ClaudeClient(TEA, 'price {"item": "cake"}', TEA)
    result = await AgentOrchestrator(Planner(claude), Monitor(), "memory", tools=[price]).execute_task("Go.")
    assert result.reason == "no third plan"
    assert result.context.feedback_history == ["not 300", "not 450"]

    class Content:
        async def evaluate_result(self, result, context):
            context.mark_completed()
            return EvaluationResult()

    done = AgentOrchestrator(MyPlanner(ClaudeClient(TEA)), Content(), "memory", tools=[price])
    assert (await done.execute_task("Go.")).is_successful


@pytest.mark.requirement("E4")
async def test_e4_a_second_process_does_not_ask_again_what_was_answered(tmp_path):
    asked = []

    class Planner(MyPlanner):
        async def generate_plan(self, context):
            asked.append("plan")
            return await super().generate_plan(context)

    class Monitor(MyMonitor):
        async def evaluate_result(self, result, context):
            asked.append("verdict")
            return await super().evaluate_result(result, context)

    def made():
        claude = ClaudeClient(TEA)
        return AgentOrchestrator(Planner(claude), Monitor(), StateManager(tmp_path / "tasks.db"), tools=[price])

    run = made().run("Tea?")
    async for chunk in run:
        if chunk.type == "tool_response" and chunk["tool_name"] == "price":
            run.abort("enough")
    assert asked == ["plan"]
    result = await made().resume_task(run.run_id)
    assert (result.output, asked, DONE) == (300, ["plan", "verdict"], ["price tea"])
    replayed = await made().agent.replay(run.run_id)
    assert replayed.same, str(replayed)
    assert asked == ["plan", "verdict"]


@pytest.mark.requirement("E4")
async def test_e4_a_state_manager_is_given_the_context_after_a_restart_too(tmp_path):
    class Keeper(StateManager):
        saved = []

        async def save(self, context):
            planned = context.current_plan.description if context.current_plan else ""
            self.saved.append((context.run_id, context.user_input, context.phase, planned))

    def made():
        return AgentOrchestrator(
            TaskPlanner(ScriptedModel([GOOD, YES]), [price], approve=True), None, Keeper(tmp_path / "t.db")
        )

    waiting = await made().execute_task("Tea?")
    assert Keeper.saved[-1] == (waiting.context.run_id, "Tea?", "planning", "")
    Keeper.saved.clear()
    done = await made().resume_task(waiting.context.run_id, dict.fromkeys(waiting.context.questions, "yes"))
    assert done.is_successful
    assert Keeper.saved[-1] == (waiting.context.run_id, "Tea?", "completed", "a plan")


@pytest.mark.requirement("E4")
async def test_e4_a_task_is_resumed_by_the_same_kind_of_parts():
    def made(planner, monitor, journal="memory"):
        return AgentOrchestrator(planner, monitor, journal, tools=[price])

    class Later(MyMonitor):
        async def evaluate_result(self, result, context):
            raise TimeoutError("not now")

    first = made(MyPlanner(ClaudeClient(TEA)), Later())
    result = await first.execute_task("Tea?")
    assert "Later.evaluate_result failed: TimeoutError: not now" in result.reason
    for planner, monitor in ((TaskPlanner(ScriptedModel([GOOD])), MyMonitor()), (MyPlanner(ClaudeClient(TEA)), None)):
        other = made(planner, monitor, first.agent.journal)
        for resume in (other.resume, other.resume_task):
            with pytest.raises(InvalidState, match="was started with the strategy"):
                await resume(result.context.run_id)
    again = made(MyPlanner(ClaudeClient()), MyMonitor(), first.agent.journal)
    assert (await again.resume_task(result.context.run_id)).output == 300, "its plan is not asked for again"


@pytest.mark.requirement("E4")
async def test_e4_a_state_manager_that_fails_is_told_and_ends_nothing():
    class Broken:
        async def save(self, context):
            raise OSError("the disk is full")

    orchestrator = AgentOrchestrator(MyPlanner(ClaudeClient(TEA)), MyMonitor(), Broken(), tools=[price])
    run = orchestrator.run("Tea?")
    told = [chunk["content"] async for chunk in run if chunk.get("status") == "warning"]
    assert "'Broken.save' raised OSError: the disk is full" in told[0]
    assert (await orchestrator.context(run.run_id)).is_completed


@pytest.mark.requirement("E1")
async def test_e1_what_cannot_be_used_is_refused_when_it_is_passed_in():
    planner, monitor = MyPlanner(ClaudeClient(TEA)), MyMonitor()
    with pytest.raises(ConfigError, match=r"is not a planner: it has no method generate_plan\(context\)"):
        AgentOrchestrator(object(), monitor, "memory")
    with pytest.raises(ConfigError, match=r"is not a monitor: it has no method evaluate_result"):
        AgentOrchestrator(planner, object(), "memory")
    with pytest.raises(ConfigError, match="state_manager must be a journal, a path, or an object with save"):
        AgentOrchestrator(planner, monitor, {"path": "x.db"})

    class Empty: ...

    with pytest.warns(UserWarning, match=r"Empty has no method save\(context\)"):
        made = AgentOrchestrator(planner, monitor, Empty(), tools=[price])
    assert (await made.execute_task("Tea?")).is_successful


# Execution: MCP ツール実行


@pytest.mark.slow
@pytest.mark.requirement("E1", "E5")
async def test_e1_tool_servers_can_be_given():
    from fastmcp import FastMCP  # two seconds

    server = FastMCP("shop")

    @server.tool
    def stock(item: str) -> int:
        """How many there are."""
        return 7

    class Planner:
        async def generate_plan(self, context):
            return ExecutionPlan("look", [ExecutionStep("stock", {"item": "tea"})])

    async with AgentOrchestrator(Planner(), MyMonitor(), "memory", mcp_servers={"shop": server}) as orchestrator:
        assert orchestrator.tools.has("stock")
        result = await orchestrator.execute_task("How many?")
    assert (result.is_successful, result.output) == (True, 7)
    first = await orchestrator.altered(max_revisions=0).execute_task("How many?")
    assert (first.is_successful, first.output) == (True, 7), "it starts with a run, too"
    await orchestrator.close()


@pytest.mark.requirement("E5")
async def test_e5_policies_hold_for_the_steps_of_any_planner():
    guard = Guardrails(tools=[ToolRule("buy", arguments={"yen": lambda yen: yen < 100})])
    claude = ClaudeClient('buy {"item": "tea", "yen": 300}', 'buy {"item": "tea", "yen": 90}')
    result = await AgentOrchestrator(MyPlanner(claude), MyMonitor(), "memory", tools=[buy], policies=[guard]).execute_task(
        "Buy tea."
    )
    assert (result.is_successful, DONE) == (True, ["buy tea 90"])
    assert "yen" in claude.prompts[1]
    model = ScriptedModel([plan(step("buy", item="tea", yen=300)), GOOD, YES])
    orchestrator = AgentOrchestrator(TaskPlanner(model, [price, buy]), None, "memory", policies=[guard])
    assert (await orchestrator.execute_task("Buy tea.")).is_successful
    assert DONE == ["buy tea 90", "price tea"]
    assert (
        await orchestrator.altered(
            max_revisions=1, model=ScriptedModel([plan(step("buy", item="tea", yen=300))] * 2)
        ).execute_task("Buy.")
    ).reason
    assert "buy tea 300" not in DONE


@pytest.mark.requirement("E5")
async def test_e5_a_tool_that_is_registered_later_can_be_planned_by_ones_own_planner():
    @tool(effect="pure")
    def weather() -> ToolResult:
        """The weather."""
        return ToolResult("rain")

    orchestrator = AgentOrchestrator(MyPlanner(ClaudeClient("weather {}")), MyMonitor(), "memory")
    orchestrator.tools.register(weather)
    assert (await orchestrator.execute_task("Weather?")).output == "rain"


# 監視


@pytest.mark.requirement("E6")
async def test_e6_revisions_of_ones_own_planner_are_counted_and_it_is_no_tool():
    claude = ClaudeClient('price {"item": "truffle"}', TEA)
    orchestrator = AgentOrchestrator(MyPlanner(claude), MyMonitor(), "memory", tools=[price])
    await orchestrator.execute_task("Tea?")
    told = await figures(orchestrator.agent.journal)
    assert (told.planned, told.revisions, told.model_calls) == (1, 1, 0)
    assert (told.tool_calls, told.tool_errors, told.completion_rate) == (2, 1, 1.0)


@pytest.mark.requirement("E6")
async def test_e6_the_timeouts_of_the_model_and_of_the_whole_are_counted():
    class Silent:
        name = "silent"

        async def reply(self, request, emit):
            await asyncio.Event().wait()

    made = AgentOrchestrator(TaskPlanner(Silent(), [price]), None, "memory", policies=[Timeout(0.02)])
    result = await made.execute_task("Tea?")
    assert "no reply within 0.02 s" in result.reason
    slow = AgentOrchestrator(TaskPlanner(Silent(), [price]), None, made.agent.journal, stops=deadline(0.05))
    assert "the time limit of 0.05 s was reached" in (await slow.execute_task("Tea?")).reason
    told = await figures(made.agent.journal)
    assert (told.timeouts, told.runs, told.completion_rate) == (2, 2, 0.0)


@pytest.mark.requirement("E6")
async def test_e6_calls_cost_and_completion_rate():
    def made(journal, *answers):
        return AgentOrchestrator(TaskPlanner(Priced(0.25, *answers), [price], max_revisions=0), None, journal)

    first = made("memory", GOOD, YES)
    await first.execute_task("Tea?")
    await made(first.agent.journal, GOOD, AGAIN).execute_task("Tea?")
    told = await figures(first.agent.journal)
    assert (told.runs, told.completion_rate, told.model_calls, told.cost) == (2, 0.5, 4, 1.0)
    assert told.as_json()["cost"] == 1.0


# 実行計画構造: what a reader of the document writes next


@pytest.mark.requirement("E2")
async def test_e2_plans_and_steps_have_get_and_set_and_what_was_recorded_counts():
    made = ExecutionPlan()
    made.description, made.parameters["n"] = "changed", "tea"
    made.steps.append(ExecutionStep())
    made.steps[0].tool_name, made.steps[0].timeout = "price", timedelta(seconds=5)
    made.steps[0].arguments["item"] = "${parameters.n}"
    assert (ExecutionPlan().steps, ExecutionStep().arguments) == ([], {}), "defaults are made anew"

    class Planner:
        async def generate_plan(self, context):
            return made

    class Meddler:
        async def evaluate_result(self, result, context):
            context.current_plan.steps.append(ExecutionStep("buy"))
            result.plan.steps.clear()
            return EvaluationResult(is_successful=True)

    result = await AgentOrchestrator(Planner(), Meddler(), "memory", tools=[price]).execute_task("Tea?")
    assert (result.output, [one.tool_name for one in result.plan.steps]) == (300, ["price"])
    assert result.plan.steps[0].timeout == 5.0, "in seconds, as it is recorded"


@pytest.mark.requirement("E1", "E5")
async def test_e1_another_plan_calls_again_what_can_be_repeated_and_says_what_it_reuses():
    polled = []

    @tool(effect="pure")
    def poll() -> int:
        """Look again."""
        polled.append(1)
        return len(polled)

    class Planner:
        async def generate_plan(self, context):
            return ExecutionPlan("wait", [ExecutionStep("buy", {"item": "tea", "yen": 300}), ExecutionStep("poll")])

    class Until(ExecutionMonitor):
        def validate_execution_result(self, result):
            return [] if result.steps["step2"]["output"] == 3 else ["not yet"]

        async def generate_feedback(self, issues):
            return " and ".join(issues)

    result = await AgentOrchestrator(Planner(), Until(), "memory", tools=[buy, poll]).execute_task("Wait.")
    assert (result.is_successful, len(polled), DONE) == (True, 3, ["buy tea 300"]), "nothing is bought twice"
    assert result.context.feedback_history == ["not yet", "not yet"], "helpers are plain or async alike"
    assert [one.steps["step1"].get("reused", False) for one in result.context.execution_history] == [False, True, True]
    assert not any("reused" in one.steps["step2"] for one in result.context.execution_history)


@pytest.mark.requirement("E3")
@pytest.mark.parametrize(
    ("result", "issue"),
    [
        (ExecutionResult(is_successful=False, reason="server down"), "server down"),
        (ExecutionResult(), "the result is marked as unsuccessful, without a reason"),
        (ExecutionResult(is_successful=True), ""),
        (ExecutionResult(steps={"a": {"status": "done", "output": 1, "error": None}}), ""),
    ],
)
async def test_e3_a_result_that_is_not_successful_is_no_success(result, issue):
    said = await ExecutionMonitor().evaluate_result(result, AgentContext("Go."))
    assert (said.should_retry, said.is_successful, said.feedback) == (bool(issue), not issue, issue)


@pytest.mark.requirement("E3")
async def test_e3_model_and_rules_of_a_monitor_count_when_it_is_called_alone():
    class Own:  # a result of one's own, as far as the document speaks of it
        is_successful = True

    no = json.dumps({"is_successful": False, "should_retry": False, "feedback": "", "reason": "judge says no", "answer": ""})
    said = await ExecutionMonitor(model=ScriptedModel([no])).evaluate_result(Own(), AgentContext("Go."))
    assert said.reason == "judge says no"
    strict = ExecutionMonitor(rules=(lambda plan, steps: EvaluationResult(reason="no"),))
    assert (await strict.evaluate_result(Own(), AgentContext("Go."))).reason == "no"

    class Bare(ExecutionMonitor):
        def __init__(self):
            self.own = 1

    made = AgentOrchestrator(MyPlanner(ClaudeClient(TEA)), Bare(), "memory", tools=[price])
    assert (await made.execute_task("Tea?")).is_successful


@pytest.mark.requirement("E2")
@pytest.mark.parametrize("kind", ["built-in", "subclass", "as in the document"])
async def test_e2_a_client_that_generates_texts_is_a_planners_model(kind):
    class Sub(TaskPlanner):
        async def parse_plan_from_response(self, response):
            return super().parse_plan_from_response(response)

    class Written(TaskPlanner):
        def __init__(self, claude):
            self._claude = claude

        async def generate_plan(self, context):
            response = await self._claude.generate(self.build_planning_prompt(context))
            return self.parse_plan_from_response(response)

    claude = ClaudeClient("{}", GOOD) if kind == "subclass" else ClaudeClient(GOOD)
    planner = {"built-in": TaskPlanner, "subclass": Sub, "as in the document": Written}[kind](claude)
    made = AgentOrchestrator(planner, ExecutionMonitor(judge=False), "memory", tools=[price])
    result = await made.execute_task("What does tea cost?")
    assert (result.is_successful, result.output) == (True, 300)
    for words in ('{"description":', "- price: The price of an item.", "What does tea cost?"):
        assert words in claude.prompts[0]
    if kind == "subclass":
        assert 'the plan must be an object with "description"' in claude.prompts[1]
    alone = TaskPlanner(ClaudeClient(GOOD), [price])
    assert "- price: The price" in alone.build_planning_prompt(AgentContext("Tea?"))
    assert (await alone.generate_plan(AgentContext("Tea?"))).steps[0].tool_name == "price"


@pytest.mark.requirement("E2")
async def test_e2_why_no_plan_could_be_made_is_told():
    class Never(TaskPlanner):
        async def build_planning_prompt(self, context):
            return "Plan."

        def parse_plan_from_response(self, response):
            raise ValueError(f"cannot parse {response}")

    class Sub(TaskPlanner):
        async def generate_plan(self, context):
            return await super().generate_plan(context)

    def made(planner):
        return AgentOrchestrator(planner, None, "memory", tools=[price])

    reason = (await made(Never(ScriptedModel(["junk"] * 9))).execute_task("Go.")).reason
    assert "did not write a plan that can be run: the plan cannot be read (ValueError: cannot parse junk)" in reason
    inner = plan(step("planner:generate_plan"))
    reason = (await made(Sub(ScriptedModel([inner] * 9))).execute_task("Go.")).reason
    assert "there is no tool 'planner:generate_plan'" in reason
    assert "available: price" in reason
    assert "monitor:" not in reason
    with pytest.raises(ConfigError, match=r"no model: pass TaskPlanner\(model, tools\)"):
        await made(TaskPlanner()).execute_task("Go.")
    for wrong in (None, 1.5, -1):
        with pytest.raises(ConfigError, match="max_revisions must be an integer of at least 0"):
            made(TaskPlanner(ScriptedModel([]), max_revisions=wrong))


@pytest.mark.requirement("E4")
async def test_e4_phases_and_feedback_are_saved_as_they_are(caplog):
    class Planner(MyPlanner):
        async def generate_plan(self, context):
            context.add_feedback("a note of the planner")
            return await super().generate_plan(context)

    class States:
        def __init__(self):
            self.saved = []

        def save(self, context):
            self.saved.append((context.phase, context.is_completed))

    states = States()
    result = await AgentOrchestrator(Planner(ClaudeClient(TEA)), MyMonitor(), states, tools=[price]).execute_task("Tea?")
    assert result.context.feedback_history == ["a note of the planner"]
    assert [one for one in states.saved if one[0] == "completed"] == [("completed", True)]

    class Broken:
        def save(self, context):
            raise OSError("the disk is full")

    await AgentOrchestrator(MyPlanner(ClaudeClient(TEA)), MyMonitor(), Broken(), tools=[price]).execute_task("Tea?")
    assert "Broken.save raised OSError: the disk is full" in caplog.text


@pytest.mark.requirement("E4")
def test_e4_the_result_of_a_loop_by_hand_has_its_output():
    context = AgentContext("Go.")
    context.execution_history.append(ExecutionResult(output={"step1": 3}))
    context.mark_completed()
    assert context.to_result().output == {"step1": 3}


@pytest.mark.requirement("E1")
@pytest.mark.parametrize("hook", ["execute_plan", "execute_step", "generate_plan", "evaluate_result"])
def test_e1_an_override_that_the_loop_would_not_call_is_refused(hook):
    with pytest.raises(ConfigError, match=rf"Mine\.{hook} has no effect in kaname.*Use AgentOrch"):
        type("Mine", (AgentOrchestrator,), {hook: lambda self, *given: None})


@pytest.mark.requirement("E6")
async def test_e6_what_a_planner_asks_its_model_is_no_task_and_is_paid_for():
    class Sub(TaskPlanner):
        async def generate_plan(self, context):
            return await super().generate_plan(context)

    def made(journal, *answers):
        planner = Sub(Priced(0.25, *answers), [price], max_revisions=1)
        return AgentOrchestrator(planner, ExecutionMonitor(judge=False), journal)

    first = made("memory", "junk", GOOD)
    await first.execute_task("Tea?")
    told = await figures(first.agent.journal)
    assert (told.runs, told.planned, told.revisions, told.model_calls, told.cost) == (1, 1, 0, 2, 0.5)
    assert not (await made(first.agent.journal, "junk", "junk").execute_task("Tea?")).is_successful
    told = await figures(first.agent.journal)
    assert (told.runs, told.completion_rate, told.model_calls, told.cost) == (2, 0.5, 4, 1.0), "also if no plan came of it"
    assert (await figures(first.agent.journal, agent="planner")).runs == 4


@pytest.mark.requirement("E1")
def test_e1_the_interfaces_of_the_document_can_be_imported():
    parts = {ITaskPlanner: MyPlanner(None), IExecutionMonitor: MyMonitor(), IStateManager: MyStateManager()}
    for interface, part in {**parts, IClaudeClient: ClaudeClient()}.items():
        assert isinstance(part, interface)
        assert not isinstance(object(), interface)
