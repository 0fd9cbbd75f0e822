"""Design D as its author wrote it, the managers: sections 3.3 and 3.5 to 3.8, 3.14 and 3.15, in that order, with their names."""

import asyncio
import json
import sqlite3
import subprocess
import sys

import pytest

from kaname import (
    Agent,
    AgentOrchestrator,
    Approve,
    ConfigError,
    ExecutionPlan,
    ExecutionStep,
    InvalidState,
    Memory,
    MemoryJournal,
    ModelError,
    NotAllowed,
    RAGPipeline,
    Role,
    ScriptedModel,
    SharedSession,
    SqliteJournal,
    TaskPlanner,
    ToolRegistry,
    call,
    tool,
)
from kaname.designs import CollaborationManager, ContextManager, TraceLogger, WorkflowEngine, as_context_part, as_sink
from kaname.sinks import OpenTelemetry
from tests import warm
from tests.designs.test_d_traces import Receiver

WORKFLOW = """
workflow:
  name: "データ分析パイプライン"
  steps:
    - name: "データ収集"
      tool: "data_collector" # Tool Registryに登録されたツール名
      condition: "always"   # 実行条件
    - name: "前処理"
      tool: "data_preprocessor"
      depends_on: ["データ収集"] # 依存するステップ
    - name: "分析"
      tool: "analyzer"
      depends_on: ["前処理"]
      parallel: true # 並列実行の可否
    - name: "レポート生成"
      tool: "report_generator"
      depends_on: ["分析"]
"""


def told(seen: list, reply="I see."):
    """A model that keeps what it was sent."""

    def answer(request):
        seen.append("\n".join(message.text for message in request.messages))
        return reply

    return ScriptedModel(answer)


@tool(effect="pure")
def price(item: str) -> int:
    """The price of an item."""
    if item == "moon":
        raise ValueError("not for sale")
    return 800


# 3.3 Memory: what is kept for long


@pytest.mark.requirement("D3")
async def test_what_was_said_in_one_process_is_found_and_told_in_the_next(tmp_path):
    first = Agent(told([]), context=Memory(tmp_path / "memory"), journal="memory")
    await first.run("My boat is called Ariadne and lies in the harbour of Otaru.", user_id="ken")
    await first.close()
    code = (
        "import sys; from kaname import Memory; memory = Memory(sys.argv[1])\n"
        "print([one.memory.text for one in memory.of('ken').search('the name of the ship')])\n"
        "print(memory.of('mika').search('the name of the ship'))"
    )
    done = warm.run(
        [sys.executable, "-c", code, str(tmp_path / "memory")], capture_output=True, text=True, timeout=180, check=True
    )
    own, others = done.stdout.splitlines()
    assert "Ariadne" in own
    assert others == "[]", "nobody else's"
    seen = []
    await Agent(told(seen), context=Memory(tmp_path / "memory"), journal="memory").run("What is my boat called?", user_id="ken")
    assert "Ariadne" in seen[-1]


# 3.5 Trace Logger


@pytest.mark.requirement("D5")
async def test_trace_logger_of_an_agent_logs_start_and_end_tool_calls_handoffs_and_errors(tmp_path, capsys):
    logger = TraceLogger("info", file=tmp_path / "trace.jsonl")
    expert = Agent(told([], "800 yen"), name="expert", journal="memory")
    script = [call("price", item="cup"), call("transfer_to_agent", agent="expert", reason="prices")]
    lead = Agent(ScriptedModel(script), [price], name="lead", team=[expert], sinks=[logger], journal="memory")
    assert (await lead.run("What does a cup cost?")).output == "800 yen"

    def broken(request):
        raise ModelError("no connection")

    failing = Agent(ScriptedModel(broken), name="failing", sinks=[logger], journal="memory")
    with pytest.raises(ModelError):
        await failing.run("Hello?")
    logger.close()
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    happened = [(line["agent"], line["event"], line["level"]) for line in lines]
    assert happened[:3] == [("lead", "Opened", "info"), ("lead", "ToolStarted", "info"), ("lead", "ToolFinished", "info")]
    assert ("lead", "HandedOff", "info") in [
        (one["agent"], one["event"], one["level"]) for one in lines if one.get("to") == "expert"
    ]
    assert ("expert", "Stopped", "info") in happened
    assert happened[-1] == ("failing", "Stopped", "error")
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == len(lines), "the console has the same lines"
    assert "tool=price" in shown[1]
    assert "800 yen" not in (tmp_path / "trace.jsonl").read_text(), "what was said is not logged unless it is asked for"


@pytest.mark.requirement("D5")
async def test_trace_is_called_by_a_program_too_and_the_level_holds_for_both(tmp_path, capsys):
    logger = TraceLogger("warning", file=tmp_path / "trace.jsonl", content=True)
    logger.trace("checkout", {"order": 12})
    logger.trace("payment refused", {"order": 12}, level="warning")
    agent = Agent(ScriptedModel([call("price", item="moon"), "well"]), [price], sinks=[logger], journal="memory")
    await agent.run("What does the moon cost?")
    logger.close()
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["payment refused", "ToolFinished"]
    assert lines[0] | {"time": ""} == {"time": "", "level": "warning", "event": "payment refused", "order": 12}
    assert "not for sale" in str(lines[1]["data"])
    assert "payment refused order=12" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="unknown level 'loud'"):
        logger.trace("x", level="loud")
    with pytest.raises(ConfigError, match="unknown level 'loud'"):
        TraceLogger("loud")


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("is_async", [False, True])
async def test_trace_of_a_subclass_and_of_an_object_of_ones_own_is_what_is_called(is_async):
    calls = []

    class Quiet(TraceLogger):
        def trace(self, event, data=None, level="info"):
            calls.append((event, data["agent"]))

    class Slow(TraceLogger):
        async def trace(self, event, data=None, level="info"):
            await asyncio.sleep(0)
            calls.append((event, data["agent"]))

    class Own:
        def trace(self, event, data):
            calls.append((event, data["data"][0].get("output")))

    agent = Agent(ScriptedModel(["hello"]), name="desk", sinks=[Slow() if is_async else Quiet()], journal="memory")
    await agent.run("hi")
    assert calls == [("Opened", "desk"), ("Stopped", "desk")]
    calls.clear()
    await Agent(ScriptedModel(["hello"]), sinks=[as_sink(Own())], journal="memory").run("hi")
    assert calls == [("Opened", None), ("Stopped", "hello")]
    with pytest.raises(ConfigError, match=r"has no method trace\(event, data\)"):
        as_sink(object())


@pytest.mark.requirement("D5")
async def test_trace_logger_sends_spans_to_opentelemetry_too():
    with Receiver() as receiver:
        logger = TraceLogger("error", console=False, otel=receiver.url)
        assert "trace" in logger.wants, "what the run calls is told where it stands"
        await Agent(
            ScriptedModel([call("price", item="cup"), "800"]), [price], name="desk", sinks=[logger], journal="memory"
        ).run("?")
        logger.close()
        tree = receiver.tree()
    assert tree["execute_tool price"] == "invoke_agent desk"
    assert "trace" not in TraceLogger(console=False).wants
    assert "trace" in TraceLogger(console=False, otel=OpenTelemetry("http://127.0.0.1:1")).wants


# 3.6 Planning & Task Decomposition Engine


def plan(*steps):
    return json.dumps({"description": "the plan", "steps": list(steps)})


def verdict(good, feedback=""):
    return json.dumps({"is_successful": good, "should_retry": not good, "feedback": feedback, "reason": ""})


@pytest.mark.requirement("D6")
async def test_task_is_split_into_subtasks_that_wait_for_each_other_and_a_failing_plan_is_made_anew():
    order, running, met = [], set(), []

    @tool(effect="pure")
    async def collect(source: str) -> list:
        """Collect."""
        running.add(source)
        met.append(len(running))
        if len(met) < 2:
            await asyncio.wait_for(both.wait(), 60)
        else:
            both.set()
        running.discard(source)
        order.append(source)
        if source == "paper":
            raise ValueError("the archive is closed")
        return [source]

    @tool(effect="pure")
    def join(first: list, second: list) -> str:
        """Join."""
        order.append("join")
        return "+".join([*first, *second])

    @tool(effect="pure")
    def tell() -> str:
        """Tell."""
        order.append("tell")
        return "told"

    both, prompts = asyncio.Event(), []

    def subtasks(second):
        return plan(
            {"name": "last", "tool_name": "tell", "arguments": {}, "depends_on": ["joined"]},
            {"name": "joined", "tool_name": "join", "arguments": {"first": "${a}", "second": "${b}"}, "depends_on": ["a", "b"]},
            {"name": "a", "tool_name": "collect", "arguments": {"source": "web"}},
            {"name": "b", "tool_name": "collect", "arguments": {"source": second}},
        )

    def script(request):
        prompts.append(request.messages[-1].text)
        return [subtasks("paper"), verdict(False, "no archive"), subtasks("radio"), verdict(True)][len(prompts) - 1]

    made = AgentOrchestrator(TaskPlanner(ScriptedModel(script), [collect, join, tell]), None, "memory")
    result = await made.execute_task("Collect what there is.")
    assert result.is_successful
    assert max(met) == 2, "independent subtasks run at the same time"
    assert order[-2:] == ["join", "tell"]
    assert order.count("join") == 1, "what depends on a failed subtask is not done"
    assert "the archive is closed" in " ".join(prompts), "the next plan knows why the last one failed"
    assert (await made.context(result.context.run_id)).progress == 1.0


@pytest.mark.requirement("D6")
async def test_workflow_engine_runs_what_a_planner_has_made():
    steps = (
        ExecutionStep("price", {"item": "cup"}, name="one"),
        ExecutionStep("add", {"a": "${one}", "b": "${params.fee}"}, name="sum", depends_on=("one",)),
    )

    @tool(effect="pure")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    result = await WorkflowEngine([price, add], journal="memory").run(ExecutionPlan("costs", steps, {"fee": 100}))
    assert result.output == 900


# 3.7 Context Manager


@pytest.fixture
def sources(tmp_path):
    """Documents and a database that a context manager may look into."""
    documents = RAGPipeline(tmp_path / "docs.db")
    documents.add_text("rules.md", "Refunds are paid within 14 days of the return.")
    documents.add_text("tea.md", "Sencha is steeped at 70 degrees for one minute.")
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE orders (id TEXT, customer TEXT, status TEXT, total INT)")
    rows = [(f"A-{number}", f"Customer {number}", "open", number) for number in range(10, 30)]
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [*rows, ("B-7", "田中ミカ", "shipped", 990)])
    database.commit()
    database.close()
    yield {"documents": documents, "databases": tmp_path / "shop.db"}
    documents.close()


@pytest.mark.requirement("D7")
def test_context_manager_selects_what_fits_of_session_profile_and_all(tmp_path):
    manager = ContextManager(tmp_path / "memory")
    assert (dict(manager.active_contexts), manager.global_context, dict(manager.user_profiles)) == ({}, {}, {})
    manager.active_contexts["s1"] = {"task": "the yearly report"}
    manager.active_contexts["s1"]["rows"] = [1]
    manager.active_contexts["s1"]["rows"].append(2)
    manager.global_context["company"] = "Kaname Tea"
    manager.user_profiles["ken"] = {"language": "日本語"}
    manager.of("ken").add("short answers", "profile", about="style")  # as a person sets it on the page
    assert manager.get_relevant_context("What is next?", "s1", "ken") == {
        "session": {"task": "the yearly report", "rows": [1, 2]},
        "user_profile": {"style": "short answers", "language": "日本語"},
        "global": {"company": "Kaname Tea"},
    }
    assert manager.get_relevant_context("What is next?", "s2") == {"global": {"company": "Kaname Tea"}}
    assert list(manager.user_profiles) == ["ken"]
    manager.close()


@pytest.mark.requirement("D7")
def test_context_manager_tells_a_part_of_a_large_context_the_relevant_first(tmp_path):
    manager = ContextManager(tmp_path / "memory", tokens=60)
    manager.global_context = {f"rule {number}": f"Department {number} " + "writes reports. " * 5 for number in range(20)}
    manager.global_context["harbour"] = "Ships leave the harbour at six."
    part = manager.get_relevant_context("When do ships leave the harbour?", "s")["global"]
    assert "harbour" in part
    assert len(part) < 5
    manager.close()


@pytest.mark.requirement("D7")
def test_context_is_there_in_the_next_process_with_what_was_changed_last(tmp_path):
    code = (
        "import sys; from kaname.designs import ContextManager; manager = ContextManager(sys.argv[1])\n"
        "manager.active_contexts['s1'] = {'notes': []}\n"
        "manager.user_profiles['ken'] = {'language': 'ja', 'age': 34}\n"
        "manager.global_context['company'] = 'Kaname Tea'\n"
        "del manager.user_profiles['ken']['age']\n"
        "manager.active_contexts['s1']['notes'].append('first')"
    )
    warm.run([sys.executable, "-c", code, str(tmp_path)], timeout=180, check=True)
    manager = ContextManager(tmp_path)
    assert dict(manager.active_contexts) == {"s1": {"notes": ["first"]}}
    assert dict(manager.user_profiles) == {"ken": {"language": "ja"}}
    assert manager.global_context == {"company": "Kaname Tea"}
    del manager.active_contexts["s1"]
    assert "s1" not in ContextManager(tmp_path).active_contexts
    with pytest.raises(ConfigError, match="cannot be stored: its value is not JSON"):
        manager.global_context["when"] = object()
        manager.save()
    with pytest.raises(ConfigError, match="a context must be a dict"):
        manager.active_contexts["s2"] = "no dict"


@pytest.mark.requirement("D7")
async def test_documents_databases_and_memory_are_injected_by_themselves(tmp_path, sources):
    seen = []
    manager = ContextManager(tmp_path / "memory", **sources)
    manager.of("ken").add("Ken's favourite tea is gyokuro.")
    agent = Agent(told(seen), context=manager, journal=tmp_path / "j.db")
    asked = await agent.run("Where is order A-17, and when are refunds paid?", session_id="s1", user_id="ken")
    assert "[rules.md#1] Refunds are paid within 14 days" in seen[-1]
    assert '"customer": "Customer 17"' in seen[-1]
    assert "Customer 18" not in seen[-1]
    assert "Sencha" not in seen[-1]
    await agent.run("田中ミカさんの注文は?", user_id="ken")
    assert '"id": "B-7"' in seen[-1]
    await agent.run("Which tea do I like best, my favourite?", user_id="ken")
    assert "gyokuro" in seen[-1]
    await agent.run("Good morning!")
    assert seen[-1] == "Good morning!", "what has nothing to do with it is not told"
    await agent.run("Which orders are open?")
    assert "Customer" not in seen[-1], "twenty rows fit alike: none of them is meant"
    (tmp_path / "shop.db").unlink()
    (await agent.replay(asked.run_id)).raise_for_difference()
    await agent.close()


@pytest.mark.requirement("D7")
async def test_source_that_cannot_be_asked_is_a_warning_and_the_rest_is_told(tmp_path, sources):
    seen, warned = [], []
    manager = ContextManager(tmp_path / "memory", **sources)
    (tmp_path / "shop.db").write_text("no database")
    agent = Agent(told(seen), context=manager, journal="memory")
    async for chunk in agent.run("When are refunds paid?"):
        warned += [str(chunk.data)] if chunk.data.get("status") == "warning" else []
    assert len(warned) == 1
    assert "Refunds are paid" in seen[-1]
    await agent.close()
    with pytest.raises(ConfigError, match="missing"):
        ContextManager(tmp_path / "memory", documents=tmp_path / "missing.db")


@pytest.mark.requirement("D7")
async def test_sessions_are_kept_apart_also_where_two_users_use_the_same_id(tmp_path):
    seen = []
    manager = ContextManager(tmp_path / "memory", learn="nothing")
    agent = Agent(told(seen), context=manager, journal="memory")
    manager.active_contexts["s1"] = {"plan": "sell the boat"}
    manager.active_contexts[SharedSession("all")] = {"plan": "a party"}
    await agent.run("What is next?", session_id="s1", user_id="ken")
    assert "sell the boat" in seen[-1]
    for user, session in (("mika", "s1"), ("", "s1"), ("ken", "s2"), ("ken", None)):
        await agent.run("What is next?", session_id=session, user_id=user)
        assert "sell the boat" not in seen[-1], (user, session)
    for user in ("ken", "mika"):
        await agent.run("What is next?", session_id=SharedSession("all"), user_id=user)
        assert "a party" in seen[-1]
    await agent.close()


@pytest.mark.requirement("D7")
async def test_get_relevant_context_of_a_subclass_and_of_an_object_of_ones_own_is_what_is_called(tmp_path):
    seen, asked = [], []

    class Chosen(ContextManager):
        def get_relevant_context(self, query, session_id, user_id=None):
            asked.append((query, session_id, user_id))
            return {**super().get_relevant_context(query, session_id, user_id), "weather": "rain"}

    class Slow(ContextManager):
        async def get_relevant_context(self, query, session_id, user_id=None):
            return ["snow", {"wind": 3}]

    class Own:
        def get_relevant_context(self, query, session_id, user_id=None):
            return f"{user_id} asked {query!r} in {session_id}"

    wanted = {Chosen: "- company: Kaname Tea\nweather: rain", Slow: '- snow\n- {"wind": 3}'}
    for kind, told_ in wanted.items():
        manager = kind(tmp_path / "memory")
        manager.global_context["company"] = "Kaname Tea"
        await Agent(told(seen), context=manager, journal="memory").run("Hi", session_id="s", user_id="ken")
        assert told_ in seen[-1]
    assert asked == [("Hi", "s", "ken")]
    own = Agent(told(seen), context=as_context_part(Own()), journal="memory")
    await own.run("Hi", session_id="s", user_id="ken")
    assert "ken asked 'Hi' in s" in seen[-1]
    assert not own.tools, "it brings nothing along"
    with pytest.raises(ConfigError, match="has no method get_relevant_context"):
        as_context_part(object())


# 3.8 Workflow Engine


def pipeline(order):
    @tool(effect="pure")
    def data_collector() -> dict:
        """Collect."""
        order.append("data_collector")
        return {"rows": [3, 4, 5]}

    @tool(effect="pure")
    def data_preprocessor(data: dict) -> list:
        """Clean."""
        order.append("data_preprocessor")
        return sorted(data["rows"])

    @tool(effect="pure")
    def analyzer(values: list) -> int:
        """Analyse."""
        order.append("analyzer")
        return sum(values)

    @tool(effect="pure")
    def report_generator(total: int) -> str:
        """Report."""
        order.append("report_generator")
        return f"合計 {total}"

    return ToolRegistry([report_generator, analyzer, data_preprocessor, data_collector])


@pytest.mark.requirement("D8")
@pytest.mark.parametrize("form", ["file", "json file", "text", "dict", "steps"])
async def test_workflow_of_the_document_runs_as_it_stands_in_every_form(tmp_path, form):
    import yaml

    order, held = [], yaml.safe_load(WORKFLOW)
    (tmp_path / "workflow.yaml").write_text(WORKFLOW, encoding="utf-8")
    (tmp_path / "workflow.json").write_text(json.dumps(held), encoding="utf-8")
    given = {
        "file": str(tmp_path / "workflow.yaml"),
        "json file": tmp_path / "workflow.json",
        "text": WORKFLOW,
        "dict": held,
        "steps": held["workflow"]["steps"],
    }[form]
    engine = WorkflowEngine(pipeline(order), journal="memory")
    result = await engine.run(given)
    assert result.output == "合計 12"
    assert order == ["data_collector", "data_preprocessor", "analyzer", "report_generator"]
    status = await engine.status(result.run_id)
    assert (status["status"], status["progress"]) == ("completed", 1.0)
    assert list(status["steps"]) == ["データ収集", "前処理", "分析", "レポート生成"]
    assert status["steps"]["分析"] == {"status": "done", "output": 12, "error": None}
    assert status["workflow"] == ("workflow" if form == "steps" else "データ分析パイプライン")


@pytest.mark.requirement("D8")
async def test_parallel_steps_run_at_once_and_one_that_may_not_runs_alone():
    running, most = set(), {}

    @tool(effect="pure")
    async def work(name: str) -> str:
        """Work."""
        running.add(name)
        await asyncio.sleep(0.02)
        most[name] = max(most.get(name, 0), len(running))
        running.discard(name)
        return name

    steps = [
        {"name": name, "tool": "work", "args": {"name": name}, "parallel": name != "alone"} for name in ("a", "b", "c", "alone")
    ]
    await WorkflowEngine([work], journal="memory").run(steps)
    assert most["a"] == 3
    assert most["alone"] == 1


@pytest.mark.requirement("D8")
async def test_conditions_loops_human_steps_and_failures_are_seen_in_the_state_of_each_step(tmp_path):
    @tool(effect="pure")
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    registry, journal = ToolRegistry([double, price]), SqliteJournal(tmp_path / "j.db")
    path = tmp_path / "flow.yaml"
    path.write_text(
        """
workflow:
  params: {start: 1}
  steps:
    - {name: grow, tool: double, args: {n: "${last or params.start}"}, until: result >= 8}
    - {name: each, tool: double, args: {n: "${item}"}, for_each: [1, 2]}
    - {name: bad, tool: price, args: {item: moon}, on_failure: skip}
    - {name: after_bad, tool: price, args: {item: cup}, depends_on: [bad]}
    - {name: whatever, tool: price, args: {item: cup}, depends_on: [bad], condition: always}
    - {name: sure, ask: "Report ${grow}?", options: ["yes", "no"]}
    - {name: report, tool: double, args: {n: "${grow}"}, condition: sure == "yes"}
    - {name: nothing, tool: double, args: {n: 0}, condition: sure != "yes"}
"""
    )
    engine = WorkflowEngine(registry, journal=journal)
    waiting = await engine.run(path)
    half = await engine.status(waiting.run_id)
    assert (half["status"], half["steps"]["sure"]["status"], half["steps"]["report"]["status"]) == (
        "waiting",
        "running",
        "waiting",
    )
    assert half["progress"] == pytest.approx(5 / 8)
    ((key, asked),) = waiting.questions.items()
    assert asked.prompt == "Report 8?"
    again = WorkflowEngine(registry, journal=journal)  # another process, which finds the file by the run
    result = await again.resume(waiting.run_id, {key: "yes"})
    steps = (await again.status(result.run_id))["steps"]
    assert {name: step["status"] for name, step in steps.items()} == {
        **dict.fromkeys(("grow", "each", "whatever", "sure", "report"), "done"),
        "bad": "failed",
        "after_bad": "skipped",
        "nothing": "skipped",
    }
    assert (steps["grow"]["output"], steps["each"]["output"], steps["report"]["output"]) == (8, [2, 4], 16)
    assert "not for sale" in steps["bad"]["error"]
    await journal.close()


@pytest.mark.requirement("D8")
async def test_engine_finds_tools_that_are_registered_later_and_tells_every_mistake_before_it_runs():
    registry, events = ToolRegistry(), []

    class Own:
        def trace(self, event, data):
            events.append(event)

    engine = WorkflowEngine(registry, journal="memory", trace_logger=Own())
    steps = [{"name": "a", "tool": "price", "args": {"item": "cup"}}]
    with pytest.raises(ConfigError, match="there is no tool 'price'"):
        engine.load(steps)
    registry.register(price)
    assert (await engine.run(steps)).output == 800
    assert events == ["Opened", "ToolStarted", "ToolFinished", "Stopped"]
    with pytest.raises(ConfigError) as wrong:
        engine.run({"workflow": {"steps": [{"name": "a", "tool": "prize", "depends_on": ["z"]}]}})
    assert "steps.0.tool" in str(wrong.value)
    assert "steps.0.depends_on" in str(wrong.value)
    with pytest.raises(ConfigError, match="is not a workflow"):
        engine.load(7)
    asked = await engine.run([{"name": "sure", "ask": "Sure?"}])
    with pytest.raises(ConfigError, match="Load its definition first"):
        await WorkflowEngine(journal=engine.journal).resume(asked.run_id, {})


@pytest.mark.requirement("D8")
async def test_steps_run_through_the_execute_that_a_registry_overrides():
    executed = []

    class Counting(ToolRegistry):
        async def execute(self, name, arguments, session_id="", agent_name=""):
            executed.append((name, agent_name))
            return await super().execute(name, arguments, session_id, agent_name)

    engine = WorkflowEngine(Counting([price]), journal="memory")
    assert (await engine.run([{"name": "a", "tool": "price", "args": {"item": "cup"}}])).output == 800
    assert executed == [("price", "workflow")]


# 3.14 Performance Optimizer


@pytest.mark.requirement("D14")
def test_designs_are_loaded_by_the_name_and_heavy_packages_with_the_first_use():
    code = (
        "import sys, kaname.designs; assert 'kaname.designs.orchestrator.orchestrator' not in sys.modules\n"
        "from kaname.designs import TraceLogger; TraceLogger(otel='http://127.0.0.1:1')\n"
        "heavy = {'opentelemetry', 'numpy', 'pydantic', 'sqlite3', 'yaml', 'kaname.agent.agent'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from kaname.designs import ContextManager, CollaborationManager, WorkflowEngine\n"
        "heavy = {'opentelemetry', 'litellm', 'fastmcp', 'duckdb', 'asyncpg'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr


# 3.15 Collaboration Manager


@pytest.mark.requirement("D15")
async def test_session_that_exists_is_shared_with_users_who_see_what_was_said_and_continue_it(tmp_path):
    seen = []
    journal = SqliteJournal(tmp_path / "j.db")
    desk = Agent(told(seen), name="desk", journal=journal)
    for text in ("The budget is 500 yen.", "Spend it on tea."):
        await desk.run(text, session_id="s1", user_id="ken")
    context = ContextManager(tmp_path / "memory")
    context.active_contexts["s1"] = {"project": "the garden party"}
    manager = CollaborationManager([desk], context_manager=context)
    shared = await manager.share_session_with_users("s1", ["mika"])
    said = ["The budget is 500 yen.", "I see.", "Spend it on tea.", "I see."]
    assert [one.text for one in await shared.said("mika")] == said
    shown = [one.chunk.data async for one in shared.follow("mika", wait=False)]
    assert [one["content"] for one in shown if one.get("status") == "received"] == [said[0], said[2]]
    assert len(seen) == 2, "nothing was asked of the model for it"
    await shared.speak("mika", "And cups?")
    assert seen[-1] == "\n".join([*said, "mika: And cups?"])
    assert context.active_contexts[shared.session] == {"project": "the garden party"}
    with pytest.raises(NotAllowed, match="'eve' needs the right 'read'"):
        await shared.said("eve")
    await desk.run("Only for me.", session_id="s1", user_id="ken")
    assert "Only for me." not in [one.text for one in await shared.said("mika")]
    later = await CollaborationManager([desk]).shared_session("s1")
    assert later.people == {"ken": "approve", "mika": "speak"}, "in another process, too"
    more = await CollaborationManager([desk]).share_session_with_users("s1", {"bob": "read"})
    assert more.people == {"ken": "approve", "mika": "speak", "bob": "read"}
    assert [one.text for one in await more.said("bob")][-2:] == ["mika: And cups?", "I see."]
    with pytest.raises(NotAllowed, match="'bob' needs the right 'speak' .* has only 'read'"):
        more.speak("bob", "Hello")
    await journal.close()


@pytest.mark.requirement("D15")
async def test_new_session_can_be_shared_and_what_cannot_be_is_told():
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    desk = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], name="desk", policies=[Approve("pay")], journal="memory")
    manager = CollaborationManager([desk])
    assert await manager.shared_session("new") is None
    shared = await manager.share_session_with_users("new", {"ken": "approve"})
    assert await shared.said("ken") == []
    with pytest.raises(ConfigError, match="a list of user ids"):
        await manager.share_session_with_users("new", "mika")
    with pytest.raises(ConfigError, match="must be 'read', 'speak' or 'approve'"):
        await manager.share_session_with_users("new", ["mika"], right="dance")
    asked = await desk.run("Pay 5.", session_id="s1", user_id="ken")
    with pytest.raises(InvalidState, match="cannot be shared now: its last run is waiting"):
        await manager.share_session_with_users("s1", ["mika"])
    await desk.resume(asked.run_id, dict.fromkeys(asked.questions, "yes"))
    other = Agent(told([]), name="desk", journal=desk.journal)
    await other.run("Hello", session_id="s1", user_id="eve")
    with pytest.raises(ConfigError, match="matches several sessions"):
        await manager.share_session_with_users("s1", ["mika"])
    of_ken = await manager.share_session_with_users("s1", ["mika"], owner="ken")
    assert [one.text for one in await of_ken.said("mika")][-1] == "done"


@pytest.mark.requirement("D15")
async def test_task_is_delegated_to_a_person_with_the_role_and_the_answer_comes_back():
    people = {"mika": "accountant", "ken": ["driver", "cook"], "bob": Role("gardens")}
    journal = MemoryJournal()
    manager = CollaborationManager(people=people, journal=journal)
    waiting = asyncio.create_task(
        manager.delegate_task_to_human("Is invoice 12 right?", "I cannot see the goods", "accountant")
    )
    while not (tasks := await manager.tasks.pending()):
        await asyncio.sleep(0)
    ((run_id, asked),) = tasks.items()
    assert asked == "[accountant] Is invoice 12 right? (I cannot see the goods)"
    assert await manager.tasks.pending("ken") == {}
    assert list(await manager.tasks.pending("mika")) == [run_id]
    for person in ("ken", "bob", "eve", ""):
        with pytest.raises(NotAllowed, match="needs the role 'accountant'"):
            await manager.tasks.answer(run_id, "yes", by=person)
    assert not waiting.done()
    elsewhere = CollaborationManager(people=people, journal=journal)
    await elsewhere.tasks.answer(run_id, "It is.", by="mika")
    assert await asyncio.wait_for(waiting, 60) == "It is."
    again = manager.delegate_task_to_human("Is invoice 12 right?", "I cannot see the goods", "accountant", run_id=run_id)
    assert await again == "It is.", "a task that was given before is not given again"
    with pytest.raises(InvalidState, match="is not waiting for an answer"):
        await manager.tasks.answer(run_id, "no", by="mika")
    with pytest.raises(ConfigError, match="no person has the role 'cok'; did you mean 'cook'"):
        await manager.delegate_task_to_human("Soup", "hunger", "cok")


@pytest.mark.requirement("D15")
async def test_task_without_a_role_is_for_anybody_and_agents_delegate_through_the_manager():
    manager = CollaborationManager(journal="memory")
    waiting = asyncio.create_task(manager.delegate_task_to_human("Water the tea.", "I have no hands"))
    while not (tasks := await manager.tasks.pending()):
        await asyncio.sleep(0)
    await manager.tasks.answer(*tasks, "Done.")
    assert await asyncio.wait_for(waiting, 60) == "Done."

    class ByMail(CollaborationManager):
        async def delegate_task_to_human(self, task_details, reason_for_delegation, human_expert_role=None):
            """Write a letter."""
            return f"{human_expert_role} answers: {task_details}"

    given = {"task_details": "Is it right?", "reason_for_delegation": "doubt", "human_expert_role": "accountant"}
    script = [call("delegate_task_to_human", **given), "done"]
    people = {"mika": "accountant"}
    parked = await Agent(ScriptedModel(script), CollaborationManager(people=people).tools, journal="memory").run("Ask.")
    assert [one.prompt for one in parked.questions.values()] == ["[accountant] Is it right? (doubt)"]
    answered = await Agent(ScriptedModel(script), ByMail(people=people).tools, journal="memory").run("Ask.")
    assert answered.steps[0].observation == "accountant answers: Is it right?"


@pytest.mark.requirement("D15")
def test_task_is_assigned_to_the_agent_or_person_whose_role_it_fits():
    desk = Agent(ScriptedModel([]), name="desk", journal="memory")
    people = {"mika": Role("invoices and taxes", may=("accountant",)), "ken": Role("lorries", may=("driver",))}
    manager = CollaborationManager([desk], people=people, roles={"desk": Role("poems and letters")})
    assert manager.assign_task("Write a letter to the harbour").name == "desk"
    assert manager.assign_task("Check the taxes of March").name == "mika"
    assert manager.assign_task("Anything", needs="driver").name == "ken"
    assert manager.assign_task("Fly to the moon").name == ""
    with pytest.raises(ConfigError, match="give each person a role"):
        CollaborationManager(people={"mika": 7}, journal="memory")


@pytest.mark.requirement("D15")
@pytest.mark.parametrize(
    ("strategy", "results", "merged"),
    [
        ("majority_vote", ["Kyoto", "Osaka", "kyoto."], "Kyoto"),
        ("summation", [1, "2", "about 3 pieces"], 6),
        ("average", [{"role": "assistant", "content": "1,000円"}, 2000], 1500),
        ("llm_based_synthesis", {"a": "tea", "b": "coffee"}, "Tea or coffee."),
    ],
)
async def test_results_of_several_agents_are_merged(strategy, results, merged):
    seen = []
    manager = CollaborationManager(judge=told(seen, "Tea or coffee."))
    assert await manager.merge_agent_outputs(results, merge_strategy=strategy) == merged
    assert len(seen) == (strategy == "llm_based_synthesis")
    assert seen == [] or ("tea" in seen[0] and "coffee" in seen[0])


@pytest.mark.requirement("D15")
async def test_merging_is_by_majority_unless_said_otherwise_and_disagreement_is_told():
    agents = [Agent(ScriptedModel(lambda request, said=said: said), journal="memory") for said in ("yes", "no", "yes")]
    results = await asyncio.gather(*[agent.run("Is it?") for agent in agents])
    manager = CollaborationManager()
    assert await manager.merge_agent_outputs([*results, ValueError("no connection")]) == "yes"
    assert (manager.last_merge.dissent, list(manager.last_merge.failed)) == ({"2": "no"}, ["4"])
    await manager.merge_agent_outputs(["yes", "no"])
    assert manager.last_merge.tied
    with pytest.raises(ConfigError, match="'synthesis' needs an agent that decides"):
        await manager.merge_agent_outputs(["a"], "llm_based_synthesis")
    with pytest.raises(ConfigError, match="results must be a list"):
        await manager.merge_agent_outputs("Kyoto")
