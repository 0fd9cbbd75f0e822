"""Design D: its fifteen components are parameters of `BaseAgent`, and its classes are used as the document writes them.

The classes in these tests are the document's own text, derived from kaname's class of that name; where the document leaves a
body open (`pass`), it stays open or does what its comment says.
"""

from __future__ import annotations

import asyncio
from inspect import signature

import pytest

from kaname import Agent, ConfigError, Memory, ScriptedModel, SqliteJournal, ToolRegistry, call, no_repeats, tool
from kaname.core.encryption.keys import KEY, forget_keys, new_secret
from kaname.core.messages import Usage
from kaname.designs import (
    AccessControlList,
    AuditLogger,
    BaseAgent,
    CacheManager,
    CollaborationManager,
    ContextManager,
    EncryptionHandler,
    ErrorRecoveryManager,
    ExecutionPlan,
    ExecutionStep,
    Guardrail,
    LearningEngine,
    LLMAdapter,
    MultiModalProcessor,
    OpenAIAdapter,
    PerformanceOptimizer,
    ResourceManager,
    SecurityManager,
    TaskPlanner,
    TraceLogger,
    WorkflowEngine,
)
from kaname.testing import WireServer
from kaname.testing.wire import Answer, reply

COMPONENTS = {  # by their sections
    "llm_adapter": LLMAdapter(ScriptedModel(['{"is_successful": true}'])),  # 3.1
    "tool_registry": None,
    "memory": None,  # 3.3, made in a folder of the test
    "guardrail": Guardrail(),
    "trace_logger": TraceLogger(console=False),
    "planning_engine": None,
    "context_manager": None,
    "workflow_engine": None,
    "resource_manager": ResourceManager({}, {}),
    "learning_engine": None,
    "error_recovery_manager": ErrorRecoveryManager(),
    "multi_modal_processor": MultiModalProcessor(),
    "security_manager": SecurityManager(),
    "performance_optimizer": None,
    "collaboration_manager": None,
}


@tool(effect="pure")
def look() -> str:
    """Look."""
    return "tea"


class LookOnce(TaskPlanner):
    async def generate_plan(self, context):
        return ExecutionPlan(context.user_input, [ExecutionStep("look", {}, name="look")])


def watching(seen, *replies):
    """A model that writes down what it is sent, and answers one reply after the other."""
    left = list(replies)

    def answer(request):
        seen.append(repr(request.messages))
        return left.pop(0) if len(left) > 1 else left[0]

    return ScriptedModel(answer)


@pytest.mark.requirement("D1", "D2", "D3", "D4", "D5", "D7", "D8", "D9", "D10", "D11", "D12", "D13", "D14", "D15")
async def test_fifteen_components_are_parameters_of_one_agent(tmp_path):
    made = COMPONENTS | {
        "tool_registry": ToolRegistry([look]),
        "memory": Memory(tmp_path / "memory"),
        "planning_engine": LookOnce(),
        "context_manager": ContextManager(tmp_path / "context"),
        "workflow_engine": WorkflowEngine(journal="memory"),
        "learning_engine": LearningEngine(tmp_path / "learning"),
        "performance_optimizer": PerformanceOptimizer(CacheManager(path=tmp_path / "values.db")),
        "collaboration_manager": CollaborationManager(),
    }
    assert (len(made), None in made.values()) == (15, False)
    assert set(made) <= set(signature(BaseAgent.__init__).parameters)
    agent = BaseAgent(**made, journal="memory")
    result = await agent.run("Look around.")
    assert (result.completed, result.output) == (True, "tea")
    assert {name for name, one in made.items() if getattr(agent, name) is not one} == set()
    await agent.close()


@pytest.mark.requirement("D9", "D10", "D11", "D12", "D13", "D14", "D15")
@pytest.mark.parametrize("name", [*COMPONENTS][6:])
def test_component_that_is_something_else_is_refused_with_its_name(name):
    with pytest.raises(ConfigError, match="get_relevant_context" if name == "context_manager" else f"{name} must be a"):
        BaseAgent(ScriptedModel(["done"]), **{name: object()}, journal="memory")


@pytest.mark.requirement("D9", "D21")
async def test_component_that_a_class_sets_is_used():
    class Frugal(BaseAgent):
        model = ScriptedModel(["done"], usage=Usage(10, 5, cost=0.05))
        resource_manager = ResourceManager({}, {}, {"budget": 0.0})

    assert (await Frugal(journal="memory").run("go")).stop.kind == "budget"


# 3.3 Memory


@pytest.mark.requirement("D3")
async def test_memory_is_short_by_extra_cfg_and_long_over_processes(tmp_path):
    seen = []
    sizes = {"memory_window_size": 2, "max_memory_items": 20}
    agent = BaseAgent(watching(seen, "I see."), extra_cfg=sizes, memory=Memory(tmp_path / "m"), journal="memory")
    for said in ("I am allergic to buckwheat.", "It rains.", "It still rains."):
        await agent.run(said)
    assert "It rains." in seen[-1]
    assert "user', parts=(Text(text='I am allergic" not in seen[-1], "the window is two messages"
    await agent.close()
    later, told = BaseAgent(watching(told := [], "No soba."), memory=Memory(tmp_path / "m"), journal="memory"), told
    await later.run("Am I allergic to buckwheat?")
    await later.close()
    assert "I am allergic to buckwheat." in told[0], "found by another object, with another journal"


# 3.6 Planning & Task Decomposition Engine


@pytest.mark.requirement("D6")
@pytest.mark.parametrize("own", [True, False])
async def test_planning_engine_splits_the_task_and_the_tools_of_the_agent_do_the_parts(own):
    ran = []

    @tool(effect="pure")
    def price(item: str) -> int:
        """The price of an item."""
        ran.append(item)
        return 800

    class Planner(TaskPlanner):
        async def generate_plan(self, context):
            steps = [ExecutionStep("price", {"item": one}, name=one) for one in ("cup", "pot")]
            return ExecutionPlan(f"prices for {context.user_input}", steps)

    plan = '{"description": "two", "steps": [{"name": "a", "tool_name": "price", "arguments": {"item": "cup"}}]}'
    model = ScriptedModel(lambda request: '{"is_successful": true}' if ran else plan)
    result = await BaseAgent(model, [price], planning_engine=Planner() if own else TaskPlanner(), journal="memory").run("tea")
    assert result.completed, result.stop
    assert ran == (["cup", "pot"] if own else ["cup"])


# 3.8 Workflow Engine


@pytest.mark.requirement("D8")
async def test_workflow_engine_runs_the_documents_workflow_for_the_model():
    ran = []

    def step(name):
        def run() -> str:
            """Work."""
            ran.append(name)
            return name

        return tool(run, name=name, effect="pure")

    names = ["data_collector", "data_preprocessor", "analyzer", "report_generator"]
    engine = WorkflowEngine(ToolRegistry([step(name) for name in names]), journal="memory")
    engine.load("""
workflow:
  name: "データ分析パイプライン"
  steps:
    - name: "データ収集"
      tool: "data_collector"
      condition: "always"
    - name: "前処理"
      tool: "data_preprocessor"
      depends_on: ["データ収集"]
    - name: "分析"
      tool: "analyzer"
      depends_on: ["前処理"]
      parallel: true
    - name: "レポート生成"
      tool: "report_generator"
      depends_on: ["分析"]
""")
    script = [call("run_workflow", name="データ分析パイプライン"), call("run_workflow", name="データ分析"), "done"]
    agent = BaseAgent(ScriptedModel(script), workflow_engine=engine, journal="memory")
    assert "データ分析パイプライン" in agent.tools["run_workflow"].description
    result = await agent.run("Analyse it.")
    assert (ran, result.steps[0].observation) == (names, "report_generator")
    assert "there is no workflow 'データ分析'; did you mean 'データ分析パイプライン'" in result.steps[1].observation


# 3.9 Resource Manager


class DocumentResources(ResourceManager):
    """As the document writes it, with its three comments carried out."""

    def __init__(self):
        self.api_quotas = {"openai": {"limit": 2, "used": 0}}
        self.compute_resources = {"cpu_limit": "100%", "memory_limit": "4GB"}
        self.cost_tracking = {"budget": 10.0, "spent": 0.0}
        self.asked = []

    def can_execute(self, tool_name, estimated_cost, required_resources):
        self.asked.append(tool_name)
        return (
            self.check_quotas(tool_name)
            and self.check_budget(estimated_cost)
            and self.check_compute(required_resources)
            and True
        )


@pytest.mark.requirement("D9")
async def test_resource_manager_of_the_document_is_asked_before_model_and_tool_calls_and_keeps_the_quota():
    manager = DocumentResources()
    assert manager.can_execute("openai", 0.5, {"memory": "2GB", "cpu": "0%"}) is True
    assert not manager.can_execute("openai", 11.0, {})
    assert not manager.can_execute("look", 0.0, {"memory": "8GB"})
    assert not manager.can_execute("look", 0.0, {"cpu": "101%"})
    manager.asked.clear()
    async with WireServer([reply("", [("look", {})]), reply("Tea."), reply("Never sent.")]) as server:
        adapter = OpenAIAdapter("gpt-5.4-mini", base_url=server.url, api_key="k")
        agent = BaseAgent(tools=[look], llm_adapter=adapter, resource_manager=manager, journal="memory")
        assert (await agent.run("What is there?")).output == "Tea."
        assert manager.asked == ["openai", "look", "openai"]
        assert manager.api_quotas["openai"] == {"limit": 2, "used": 2}
        assert 0 < manager.cost_tracking["spent"] < 1
        assert (await agent.run("And now?")).stop.kind == "budget"
        assert len(server.requests) == 2
        await agent.close()


@pytest.mark.requirement("D9")
async def test_limits_of_extra_cfg_are_those_of_a_resource_manager():
    model = ScriptedModel(["done"] * 2, usage=Usage(10, 5, cost=0.3))
    limits = {"cost_tracking": {"budget": 0.5}, "compute_resources": {}, "memory_window_size": 4}
    agent = BaseAgent(model, extra_cfg=limits, journal="memory")
    await agent.run("go")
    assert agent.resource_manager.cost_tracking == {"budget": 0.5, "spent": pytest.approx(0.3)}
    with pytest.raises(ConfigError, match="extra_cfg has cost_tracking, compute_resources, and there is a resource_manager"):
        BaseAgent(model, extra_cfg=limits, resource_manager=ResourceManager())
    with pytest.raises(ConfigError, match="did you mean 'cost_tracking'"):
        BaseAgent(model, extra_cfg={"cost_traking": {}})


# 3.10 Learning & Adaptation Engine


@pytest.mark.requirement("D10")
async def test_learning_engine_of_the_document_is_told_every_task_and_tells_the_model_its_improvement(tmp_path):
    tracked, personalized, seen = [], [], []

    class Mine(LearningEngine):
        def track_success_patterns(self, task_description, approach_details, was_successful, user_feedback=None):
            tracked.append((task_description, approach_details["tools"], was_successful))

        def suggest_improvements(self, failed_task_context):
            return "Consider rephrasing the prompt or using the 'search_web' tool."

        def personalize_responses(self, user_id, interaction_history, preferences):
            personalized.append((user_id, interaction_history))

    model = watching(seen, call("look"), call("look"), "done")
    agent = BaseAgent(model, [look], learning_engine=Mine(tmp_path), stops=no_repeats(1), journal="memory")
    await agent.run("How much is the tea?", user_id="ken")
    await agent.close()
    first = len(seen)
    await agent.run("How much is the tea?", user_id="ken")
    await agent.close()
    assert [done for *_, done in tracked] == [False, True]
    assert tracked[0][:2] == ("How much is the tea?", ["look", "look"])
    assert personalized == [("ken", ["How much is the tea?"])] * 2
    told = ["search_web" in one for one in seen]
    assert told == [False] * first + [True] * (len(seen) - first), "what failed before is told, and only then"


# 3.11 Error Recovery & Resilience Manager


class DocumentRecovery(ErrorRecoveryManager):
    """As the document writes it, but for the delay."""

    def __init__(self):
        self.retry_policies = {"default": {"max_attempts": 3, "delay": 0}}
        self.fallback_strategies = {"tool_A_failure": "try_tool_B"}
        self.circuit_breakers = {"service_X": {"is_open": False, "failure_threshold": 5}}
        self.failures = []

    def handle_failure(self, error, context_of_failure):
        self.failures.append({**context_of_failure})
        return super().handle_failure(error, context_of_failure)


def failing_tools(ran):
    def make(name, works):
        def work() -> str:
            """Work."""
            ran.append(name)
            if not works:
                raise OSError("down")
            return name

        return tool(work, name=name, effect="pure")

    return [make("tool_A", False), make("tool_B", True), make("service_X", False)]


@pytest.mark.requirement("D11")
async def test_recovery_manager_of_the_document_retries_falls_back_and_opens_its_breaker():
    ran, manager = [], DocumentRecovery()
    script = [call("tool_A"), "B it is.", *[call("service_X"), "It does not work."] * 2]
    agent = BaseAgent(watching([], *script), failing_tools(ran), error_recovery_manager=manager, journal="memory")
    assert (await agent.run("go")).output == "B it is."
    await agent.run("go")
    result = await agent.run("go")
    assert result.output == "It does not work."
    assert ran == ["tool_A"] * 3 + ["tool_B"] + ["service_X"] * 5
    assert manager.circuit_breakers["service_X"]["is_open"] is True
    assert {"tool": "tool_A", "attempt": 3, "can_retry": True} in manager.failures
    assert "service_X failed: " in str(result.messages), "and what to do is said in plain words"


@pytest.mark.requirement("D11")
async def test_recovery_manager_of_the_document_is_asked_about_failures_of_the_llm_adapter_too():
    busy = Answer(status=503, body=b'{"error": {"message": "busy"}}')
    manager = DocumentRecovery()
    async with WireServer([busy, busy, reply("Here I am."), *[busy] * 3]) as server:
        adapter = OpenAIAdapter("gpt-4", base_url=server.url, api_key="k")
        agent = BaseAgent(tools=failing_tools([]), llm_adapter=adapter, error_recovery_manager=manager, journal="memory")
        assert (await agent.run("go")).output == "Here I am."
        assert manager.failures == [{"service": "openai", "attempt": n, "can_retry": True} for n in (1, 2)]
        chunks = [chunk async for chunk in agent.stream("go")]
        assert chunks[-1]["type"] == "error"
        assert (len(server.requests), manager.failures[-1]["attempt"]) == (6, 3), "three tries, as its policy says"
        await agent.close()


@pytest.mark.requirement("D11")
async def test_breaker_of_a_provider_keeps_calls_from_it():
    busy = Answer(status=503, body=b'{"error": {"message": "busy"}}')
    manager = ErrorRecoveryManager(
        retry_policies={"default": {"max_attempts": 5, "delay": 0}}, circuit_breakers={"openai": {"failure_threshold": 2}}
    )
    async with WireServer([busy] * 5) as server:
        adapter = OpenAIAdapter("gpt-4", base_url=server.url, api_key="k")
        agent = BaseAgent(llm_adapter=adapter, error_recovery_manager=manager, journal="memory")
        for _ in range(2):
            last = [chunk async for chunk in agent.stream("go")][-1]
        assert "openai has failed too often and is not called for now" in last["data"]["message"]
        assert (len(server.requests), manager.circuit_breakers["openai"]["is_open"]) == (2, True)
        await agent.close()


# 3.12 Multi-modal Processor


@pytest.mark.requirement("D12")
async def test_multi_modal_processor_gives_its_tasks_to_the_model_and_a_method_of_ones_own_is_one():
    class Mine(MultiModalProcessor):
        async def process_image(self, image_data: str, task_type: str = "describe") -> str:
            """Look at a picture."""
            return f"{task_type}: {image_data}"

    model = ScriptedModel([call("process_image", image_data="cat.png"), "A cat."])
    agent = BaseAgent(model, multi_modal_processor=Mine(), journal="memory")
    assert {"read_text", "describe_picture", "transcribe"} <= set(agent.tools)
    assert (await agent.run("What is on it?")).steps[0].observation == "describe: cat.png"
    await agent.close()


# 3.13 Security & Privacy Manager


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv(KEY, new_secret())
    yield
    forget_keys()


@pytest.mark.requirement("D13")
async def test_security_manager_of_the_document_encrypts_checks_cleans_and_writes_the_audit_log(tmp_path, key):
    paid = []

    class Mine(SecurityManager):
        def __init__(self):
            self.encryption_handler = EncryptionHandler()
            self.access_control = AccessControlList([{"user": "ann", "tool": "pay"}])
            self.audit_logger = AuditLogger(tmp_path / "audit.log")

        def sanitize_data(self, data, pii_patterns):
            return super().sanitize_data(data, pii_patterns)

        def check_permissions(self, user_identity, action, resource_id):
            return self.access_control.is_allowed(user_identity, action, resource_id)

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid, receipt to a.b@example.com"

    manager = Mine()
    sealed = manager.encryption_handler.encrypt("sk-secret")
    assert ("sk-secret" in sealed, manager.encryption_handler.decrypt(sealed)) == (False, "sk-secret")
    assert manager.sanitize_data("a.b@example.com", ["email"]) == "[email]"
    journal, seen = SqliteJournal(tmp_path / "j.db"), []
    for user in ("ann", "bob"):
        model = watching(seen, call("pay", yen=5), "done")
        agent = BaseAgent(model, [pay], security_manager=manager, journal=journal)
        await agent.run("Pay 5 yen, write to c.d@example.com", user_id=user)
    await journal.close()
    assert paid == [5]
    assert not any("example.com" in one for one in seen)
    assert b"SQLite format" not in (tmp_path / "j.db").read_bytes()
    entries = [(one.kind, one.actor, one.detail["tool"]) for one in manager.audit_logger.entries()]
    assert entries == [("access", "ann", "pay"), ("refusal", "bob", "pay")]
    assert [*manager.audit_logger.verify()] == []


@pytest.mark.requirement("D13")
async def test_call_that_the_audit_log_cannot_record_is_not_run(tmp_path):
    ran = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    (tmp_path / "file").write_text("no folder")
    manager = SecurityManager(audit_logger=AuditLogger(tmp_path / "file" / "audit.log"))
    result = await BaseAgent(ScriptedModel([call("pay"), "done"]), [pay], security_manager=manager, journal="memory").run("go")
    assert (ran, result.output) == ([], "done")


@pytest.mark.requirement("D13")
def test_encryption_handler_needs_a_key_and_reads_only_what_it_has_written(monkeypatch, key):
    from kaname import EncryptionError

    sealed = EncryptionHandler().encrypt("x")
    for wrong in (sealed[:-4] + "AAA=", "plain"):
        with pytest.raises(EncryptionError):
            EncryptionHandler().decrypt(wrong)
    monkeypatch.setenv(KEY, new_secret())
    with pytest.raises(EncryptionError, match="not encrypted with this key"):
        EncryptionHandler().decrypt(sealed)
    monkeypatch.delenv(KEY)
    with pytest.raises(EncryptionError, match="EncryptionHandler has no key"):
        EncryptionHandler()


@pytest.mark.requirement("D13")
async def test_an_access_control_list_without_rules_as_in_the_document_allows_nothing():
    ran = []

    class Mine(SecurityManager):
        def __init__(self):
            self.access_control = AccessControlList()

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        ran.append(yen)
        return "paid"

    manager = Mine()
    for action, resource in (("use", "pay"), ("hand_over", "desk"), ("read", "order:5")):
        verdict = manager.check_permissions("ann", action, resource)
        assert not verdict
        assert "no rules" in verdict.reason
    model = ScriptedModel([call("pay", yen=5), "done"])
    result = await BaseAgent(model, [pay], security_manager=manager, journal="memory").run("Pay", user_id="ann")
    assert (result.output, ran) == ("done", [])


# 3.14 Performance Optimizer


@tool(effect="pure")
def price(item: str) -> int:
    """The price. It leaves a mark where it was computed."""
    with open(item, "a") as file:
        file.write("once ")
    return 800


@pytest.mark.requirement("D14")
async def test_performance_optimizer_of_the_document_caches_replies_results_and_values_in_one_file(tmp_path):
    asked = []
    counted = tmp_path / "counted"

    class Mine(PerformanceOptimizer):
        def __init__(self):
            self.cache_manager = CacheManager(max_size="1GB", default_ttl=3600, path=tmp_path / "values.db")

        def get_or_set_cache(self, cache_key, computation_function, ttl=None):
            return self.cache_manager.get_or_set(cache_key, computation_function, ttl)

    class Plain(PerformanceOptimizer):
        def __init__(self):
            self.cache_manager = CacheManager(max_size="1GB", default_ttl=3600, path=tmp_path / "values.db")

    for optimizer in (Plain(), Mine()):
        counted = tmp_path / type(optimizer).__name__
        for _ in range(2):
            assert Mine().get_or_set_cache("rates", lambda: asked.append(1) or {"USD": 151.2}) == {"USD": 151.2}
            model = ScriptedModel([call("price", item=str(counted)), "800 yen."])
            agent = BaseAgent(model, [price], performance_optimizer=optimizer, settings={"temperature": 0}, journal="memory")
            assert (await agent.run("What does a cup cost?")).output == "800 yen."
        assert counted.read_text() == "once "
        optimizer.cache_manager.close()
    assert asked == [1]


@pytest.mark.requirement("D14")
@pytest.mark.parametrize("form", ["method", "manager"])
async def test_get_or_set_cache_of_ones_own_keeps_what_runs_compute(form, tmp_path):
    kept = {}

    def get_or_set(key, computation_function, ttl=None):
        if key not in kept:
            kept[key] = computation_function()
        return kept[key]

    class OwnManager(CacheManager):
        def get_or_set(self, key, computation_function, ttl=None):
            return get_or_set(key, computation_function, ttl)

    class Mine(PerformanceOptimizer):
        def __init__(self):
            self.cache_manager = OwnManager(path=tmp_path / "values.db")

        if form == "method":

            def get_or_set_cache(self, cache_key, computation_function, ttl=None):
                return get_or_set(cache_key, computation_function, ttl)

    counted = tmp_path / "counted"
    for _ in range(2):
        model = ScriptedModel([call("price", item=str(counted)), "800 yen."])
        agent = BaseAgent(model, [price], performance_optimizer=Mine(), settings={"temperature": 0}, journal="memory")
        assert (await agent.run("What does a cup cost?")).output == "800 yen."
    assert counted.read_text() == "once "
    assert any("800" in text for text in kept.values())


@pytest.mark.requirement("D14")
async def test_get_or_set_cache_of_ones_own_that_fails_is_reported_once_and_the_run_goes_on(tmp_path):
    class Mine(PerformanceOptimizer):
        def __init__(self):
            self.cache_manager = None

        def get_or_set_cache(self, cache_key, computation_function, ttl=None):
            return self.cache_manager.get_or_set(cache_key, computation_function, ttl)

    model = ScriptedModel([call("price", item=str(tmp_path / "counted")), "800 yen."])
    agent = BaseAgent(model, [price], performance_optimizer=Mine(), settings={"temperature": 0}, journal="memory")
    shown = [str(chunk.data) async for chunk in agent.stream("What does a cup cost?")]
    assert any("800 yen." in one for one in shown)
    assert len([one for one in shown if "get_or_set_cache failed" in one]) == 1


@pytest.mark.requirement("D14")
async def test_optimize_tool_selection_decides_which_of_equal_tools_runs(tmp_path):
    ran, asked = [], []

    def search(name):
        def run(query: str) -> str:
            """Search the web."""
            ran.append(name)
            return name

        return tool(run, name=name, effect="pure")

    class Mine(PerformanceOptimizer):
        def optimize_tool_selection(self, task_description, available_tools_with_metadata):
            asked.append((task_description, sorted(available_tools_with_metadata)))
            return "cheap_search"

    optimizer = Mine(CacheManager(path=tmp_path / "values.db"), equals=[("fast_search", "cheap_search")])
    model = ScriptedModel([call("fast_search", query="tea"), "done"])
    agent = BaseAgent(model, [search("fast_search"), search("cheap_search")], performance_optimizer=optimizer, journal="memory")
    await agent.run("Search for tea.")
    assert (ran, asked) == (["cheap_search"], [("Search for tea.", ["cheap_search", "fast_search"])])
    optimizer.cache_manager.close()


# 3.15 Collaboration Manager


@pytest.mark.requirement("D15")
async def test_collaboration_manager_shares_the_agents_sessions_and_gives_its_tasks_to_people():
    manager = CollaborationManager(people={"mika": "accountant"})
    given = {"task_details": "Is it right?", "reason_for_delegation": "doubt", "human_expert_role": "accountant"}
    model = ScriptedModel([call("delegate_task_to_human", **given), "It is right."])
    agent = BaseAgent(model, name="desk", collaboration_manager=manager, journal="memory")
    waiting = await agent.run("Check invoice 12.", session_id="s1", user_id="ken")
    assert [one.prompt for one in waiting.questions.values()] == ["[accountant] Is it right? (doubt)"]
    done = await agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "Yes."))
    assert done.output == "It is right."
    shared = await manager.share_session_with_users("s1", ["mika"])
    assert [one.text for one in await shared.said("mika")][-1] == "It is right."
    asked = asyncio.create_task(manager.delegate_task_to_human("Water the tea.", "no hands"))
    while not (tasks := await manager.tasks.pending()):
        await asyncio.sleep(0)
    assert [card.run_id for card in await agent.journal.runs(status="waiting")] == [*tasks], "in the agent's journal"
    await manager.tasks.answer(*tasks, "Done.")
    assert await asyncio.wait_for(asked, 60) == "Done."
    other = Agent(ScriptedModel(["done"]), name="other", journal="memory")
    named = CollaborationManager([other])
    BaseAgent(ScriptedModel(["done"]), collaboration_manager=named, journal="memory")
    assert named.agents == [other]
