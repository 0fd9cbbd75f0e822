"""Design D, 3.9 to 3.14: what a subclass of a manager overrides decides in a run, and what cannot is refused when passed in."""

from __future__ import annotations

import asyncio

import pytest

from kaname import Agent, ConfigError, Memory, MemoryJournal, Price, ScriptedModel, ToolFallback, call, no_repeats, tool
from kaname.core.messages import Usage
from kaname.designs import (
    CacheManager,
    ErrorRecoveryManager,
    LearningEngine,
    PerformanceOptimizer,
    RecoveryStep,
    ResourceManager,
    SecurityManager,
)

ADDRESS = "a.b@example.com"


class Tools:
    """Three tools that write down their calls: one that fails, its stand-in, and one that returns an address."""

    def __init__(self):
        self.ran = ran = []

        @tool(effect="pure")
        def broken(n: int = 0) -> int:
            """Look."""
            ran.append("broken")
            raise OSError("down")

        @tool(effect="pure")
        def other(n: int = 0) -> int:
            """Look elsewhere."""
            ran.append("other")
            return n

        @tool(effect="pure")
        def who() -> dict:
            """Look somebody up."""
            ran.append("who")
            return {"mail": ADDRESS, "id": "ACME-7"}

        self.all = [broken, other, who]


@pytest.fixture
def tools():
    return Tools()


def agent_of(script, tools, *policies, **options):
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    return Agent(model, tools.all, policies=[*policies], stops=no_repeats(None), **{"journal": "memory", **options})


# 3.9 ResourceManager


@pytest.mark.requirement("D9")
async def test_can_execute_of_a_subclass_decides_over_model_and_tool_calls_with_the_estimate(tools):
    asked = []

    class Mine(ResourceManager):
        def can_execute(self, tool_name, estimated_cost, required_resources):
            asked.append((tool_name, estimated_cost))
            return tool_name != "other"

    model = ScriptedModel([call("who"), call("other"), "done"], name="acme/m", price=Price(1, 10))
    result = await agent_of(model, tools, Mine({}, {}), settings={"max_tokens": 1000}).run("go")
    assert (result.output, tools.ran) == ("done", ["who"])
    assert [name for name, _ in asked if name != "acme"] == ["who", "other"]
    assert all(0.01 <= cost < 0.02 for name, cost in asked if name == "acme"), "what the call can cost at most"
    assert "Mine does not allow it" in str(result.messages)


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("said", [False, None, "yes", 1])
async def test_can_execute_that_gives_no_clear_yes_stops_the_run(tools, said):
    class Mine(ResourceManager):
        def can_execute(self, tool_name, estimated_cost, required_resources):
            return said

    result = await agent_of(["done"], tools, Mine({}, {})).run("go")
    assert result.stop.kind == "budget"


@pytest.mark.requirement("D9")
async def test_can_execute_that_raises_stops_the_run(tools):
    class Mine(ResourceManager):
        def can_execute(self, tool_name, estimated_cost, required_resources):
            raise OSError("no answer")

    assert (await agent_of(["done"], tools, Mine({}, {})).run("go")).stop.kind == "budget"


@pytest.mark.requirement("D9")
async def test_checks_of_a_subclass_decide_too(tools):
    class Mine(ResourceManager):
        def check_quotas(self, tool_name):
            return tool_name != "who"

    result = await agent_of([call("who"), "done"], tools, Mine({}, {})).run("go")
    assert (result.output, tools.ran) == ("done", [])


class AsInTheDocument(ResourceManager):
    def __init__(self):
        self.api_quotas = {"who": {"limit": 1, "used": 0}}
        self.compute_resources = {"memory_limit": "4GB"}
        self.cost_tracking = {"budget": 0.25, "spent": 0.1}


@pytest.mark.requirement("D9")
async def test_init_of_the_document_keeps_the_limit_on_money_and_the_quotas(tools):
    manager = AsInTheDocument()
    model = ScriptedModel([call("who"), call("who"), "done"], usage=Usage(10, 5, cost=0.05))
    agent = agent_of(model, tools, manager)
    result = await agent.run("go")
    assert (result.output, tools.ran) == ("done", ["who"])
    assert manager.cost_tracking == {"budget": 0.25, "spent": pytest.approx(0.25)}
    assert (await agent.run("go")).stop.kind == "budget"
    elsewhere = agent_of(
        ScriptedModel(["done"], usage=Usage(10, 5, cost=0.05)), tools, AsInTheDocument(), journal=agent.journal
    )
    assert (await elsewhere.run("go")).stop.kind == "budget", "the limit is that of the journal, not of one object"


@pytest.mark.requirement("D9")
async def test_money_that_runs_in_another_agent_of_the_journal_is_seen(tools):
    journal, first, second = MemoryJournal(), ResourceManager({}, {}, {"budget": 1.0}), ResourceManager({}, {}, {"budget": 1.0})
    for manager in (first, second):
        model = ScriptedModel(["done"], usage=Usage(10, 5, cost=0.25))
        await agent_of(model, tools, manager, journal=journal).run("go")
    assert second.cost_tracking["spent"] == pytest.approx(0.5)


@pytest.mark.requirement("D9")
def test_init_that_sets_only_one_of_the_dicts_keeps_the_defaults_of_the_others():
    class Mine(ResourceManager):
        def __init__(self):
            self.api_quotas = {}

    assert Mine().cost_tracking == {"budget": 10.0, "spent": 0.0}
    assert Mine().can_execute("x", 11.0).reason == "$10.0000 of the budget is left, and the call may cost $11.0000"


@pytest.mark.requirement("D9")
async def test_quota_counts_retries_and_stand_ins(tools):
    manager = ResourceManager({"broken": {"limit": 2}, "other": {"limit": 5}}, {})
    fallback = ToolFallback(3, {"broken": "other"}, backoff=0)
    result = await agent_of([call("broken"), "done"], tools, manager, fallback).run("go")
    assert result.output == "done"
    assert tools.ran.count("broken") == manager.api_quotas["broken"]["used"] == 2


@pytest.mark.requirement("D9")
async def test_quota_holds_for_agents_below(tools):
    manager = ResourceManager({"who": {"limit": 1}}, {})
    worker = Agent(ScriptedModel([call("who"), call("who"), "ok"]), tools.all, name="worker", stops=no_repeats(None))
    head = Agent(
        ScriptedModel([call("delegate_to_agent", agent="worker", task="look"), "done"]),
        team=[worker],
        policies=[manager],
        journal="memory",
    )
    await head.run("go")
    assert (tools.ran, manager.api_quotas["who"]["used"]) == (["who"], 1)


@pytest.mark.requirement("D9")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"api_quotas": {"openai": {"limt": 3}}}, "did you mean 'limit'"),
        ({"api_quotas": {"openai": {"limit": True}}}, "limit"),
        ({"api_quotas": {"openai": {"limit": -1}}}, "limit"),
        ({"api_quotas": {"openai": {"limit": 3, "used": "1"}}}, "used"),
        ({"api_quotas": ["openai"]}, "api_quotas"),
        ({"compute_resources": {"cpu_limt": "80%"}}, "did you mean 'cpu_limit'"),
        ({"compute_resources": {"cpu_limit": "4GB"}}, "cpu_limit"),
        ({"cost_tracking": {"budgt": 1.0}}, "did you mean 'budget'"),
        ({"cost_tracking": {"budget": "much"}}, "budget"),
        ({"cost_tracking": {"budget": float("nan")}}, "budget"),
    ],
)
async def test_misspelt_limit_is_refused_with_the_nearest_name(tools, given, told):
    with pytest.raises(ConfigError, match=told):
        ResourceManager(**given)

    class Mine(ResourceManager):
        def __init__(self):
            vars(self).update(given)

    with pytest.raises(ConfigError, match=told):
        await agent_of(["done"], tools, Mine()).run("go")


@pytest.mark.requirement("D9")
@pytest.mark.parametrize(("name", "meant"), [("brokn", "broken"), ("opnai", "openai")])
async def test_quota_of_a_misspelt_tool_or_provider_is_refused(tools, name, meant):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        await agent_of(["done"], tools, ResourceManager({name: {"limit": 1}})).run("go")


# 3.11 ErrorRecoveryManager


@pytest.mark.requirement("D11")
async def test_handle_failure_of_a_subclass_is_what_a_run_does(tools):
    told = []

    class Mine(ErrorRecoveryManager):
        def handle_failure(self, error, context_of_failure):
            told.append((error, context_of_failure["tool"], context_of_failure["attempt"]))
            if context_of_failure["attempt"] < 2:
                return RecoveryStep("retry", wait=0.0)
            return RecoveryStep("fallback", tool="other")

    result = await agent_of([call("broken", n=4), "done"], tools, Mine()).run("go")
    assert (result.output, tools.ran) == ("done", ["broken", "broken", "other"])
    assert [(name, attempt) for _, name, attempt in told] == [("broken", 1), ("broken", 2)]
    assert all("down" in error for error, _, _ in told)


@pytest.mark.requirement("D11")
@pytest.mark.parametrize("said", [RecoveryStep("report", "Call support at 555."), None])
async def test_failure_that_is_reported_ends_the_tries_with_the_message(tools, said):
    class Mine(ErrorRecoveryManager):
        def handle_failure(self, error, context_of_failure):
            return said

    result = await agent_of([call("broken"), "done"], tools, Mine()).run("go")
    assert tools.ran == ["broken"]
    assert ("Call support at 555." if said else "down") in str(result.messages)


@pytest.mark.requirement("D11")
async def test_retry_of_a_call_with_effects_is_not_made_whatever_handle_failure_says():
    sent = []

    @tool
    def send() -> str:
        """Send."""
        sent.append(1)
        raise OSError("down")

    class Mine(ErrorRecoveryManager):
        def handle_failure(self, error, context_of_failure):
            return RecoveryStep("retry", wait=0.0)

    await Agent(ScriptedModel([call("send"), "done"]), [send], policies=[Mine()], journal="memory").run("go")
    assert sent == [1]


@pytest.mark.requirement("D11")
async def test_handle_failure_that_returns_something_else_fails_the_run(tools):
    class Mine(ErrorRecoveryManager):
        def handle_failure(self, error, context_of_failure):
            return "retry"

    with pytest.raises(Exception, match=r"handle_failure returned 'retry'.*RecoveryStep"):
        await agent_of([call("broken"), "done"], tools, Mine()).run("go")


@pytest.mark.requirement("D11")
async def test_breaker_opens_although_a_stand_in_answers_and_the_stand_in_is_used_at_once(tools):
    manager = ErrorRecoveryManager(
        {"default": {"max_attempts": 1}}, {"broken_failure": "try_other"}, {"broken": {"failure_threshold": 2}}
    )
    result = await agent_of([call("broken", n=n) for n in range(4)] + ["done"], tools, manager).run("go")
    assert (result.output, tools.ran) == ("done", ["broken", "other", "broken", "other", "other", "other"])
    assert manager.circuit_breakers["broken"] == {"is_open": True, "failure_threshold": 2}


@pytest.mark.requirement("D11")
async def test_breaker_opens_between_two_tries_of_one_call(tools):
    manager = ErrorRecoveryManager(
        {"default": {"max_attempts": 9, "delay": 0}}, circuit_breakers={"broken": {"failure_threshold": 3}}
    )
    await agent_of([call("broken"), "done"], tools, manager).run("go")
    assert tools.ran == ["broken"] * 3


@pytest.mark.requirement("D11")
async def test_delay_and_tries_are_those_of_the_tool(tools):
    manager = ErrorRecoveryManager(
        {"default": {"max_attempts": 3, "delay": 1000}, "broken": {"max_attempts": 2, "delay": 0}}, {"broken": "other"}
    )
    async with asyncio.timeout(10):  # the delay of "default" is longer
        await agent_of([call("broken"), "done"], tools, manager).run("go")
    assert tools.ran == ["broken", "broken", "other"]


@pytest.mark.requirement("D11")
async def test_init_of_the_document_is_what_recovers(tools):
    class Mine(ErrorRecoveryManager):
        def __init__(self):
            self.retry_policies = {"default": {"max_attempts": 2, "delay": 0}}
            self.fallback_strategies = {"broken_failure": "try_other"}
            self.circuit_breakers = {"broken": {"is_open": False, "failure_threshold": 2}}

    manager = Mine()
    await agent_of([call("broken"), "done"], tools, manager).run("go")
    assert (tools.ran, manager.circuit_breakers["broken"]["is_open"]) == (["broken", "broken", "other"], True)


@pytest.mark.requirement("D11")
async def test_breaker_that_begins_open_lets_no_call_through(tools):
    manager = ErrorRecoveryManager(circuit_breakers={"who": {"is_open": True}})
    result = await agent_of([call("who"), "done"], tools, manager).run("go")
    assert tools.ran == []
    assert "is not called for now" in str(result.messages)


@pytest.mark.requirement("D11")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"retry_policies": {"default": {"max_attempt": 3}}}, "did you mean 'max_attempts'"),
        ({"retry_policies": {"broken": {"max_attempts": 0}}}, "not 0"),
        ({"retry_policies": {"default": {"delay": "1"}}}, "delay"),
        ({"retry_policies": {"brokn": {"max_attempts": 3}}}, "did you mean 'broken'"),
        ({"circuit_breakers": {"broken": {"failure_treshold": 3}}}, "did you mean 'failure_threshold'"),
        ({"circuit_breakers": {"broken": {"failure_threshold": "3"}}}, "failure_threshold"),
        ({"circuit_breakers": {"brokn": {"failure_threshold": 3}}}, "did you mean 'broken'"),
        ({"fallback_strategies": {"broken_failure": "try_othr"}}, "did you mean 'other'"),
        ({"fallback_strategies": {"broken": "other", "other": "broken"}}, "circular"),
    ],
)
async def test_misspelt_recovery_is_refused_with_the_nearest_name(tools, given, told):
    class Mine(ErrorRecoveryManager):
        def __init__(self):
            vars(self).update(given)

    for make in (lambda: ErrorRecoveryManager(**given), Mine):
        with pytest.raises(ConfigError, match=told):
            await agent_of(["done"], tools, make()).run("go")


# 3.13 SecurityManager


class Guard(SecurityManager):
    def check_permissions(self, user_identity, action, resource_id):
        return user_identity == "ann" and (action, resource_id) == ("use", "who")


@pytest.mark.requirement("D13")
@pytest.mark.parametrize(("user", "name", "ran"), [("ann", "who", ["who"]), ("bob", "who", []), ("ann", "other", [])])
async def test_check_permissions_of_a_subclass_decides_in_a_run(tools, user, name, ran):
    result = await agent_of([call(name), "done"], tools, *Guard().policies).run("go", user_id=user)
    assert tools.ran == ran
    assert ran or "Guard does not allow it" in str(result.messages)


@pytest.mark.requirement("D13")
async def test_check_permissions_of_a_subclass_decides_over_a_stand_in(tools):
    class Mine(SecurityManager):
        def check_permissions(self, user_identity, action, resource_id):
            return resource_id != "other"

    fallback = ToolFallback(0, {"broken": "other"})
    await agent_of([call("broken"), "done"], tools, *Mine().policies, fallback).run("go", user_id="ann")
    assert tools.ran == ["broken"]


@pytest.mark.requirement("D13")
async def test_rules_hold_in_addition_to_check_permissions_of_a_subclass(tools):
    class Mine(SecurityManager):
        def check_permissions(self, user_identity, action, resource_id):
            return True

    manager = Mine([{"user": "ann", "tool": "who"}])
    await agent_of([call("who"), call("other"), "done"], tools, *manager.policies).run("go", user_id="ann")
    assert tools.ran == ["who"]


@pytest.mark.requirement("D13")
@pytest.mark.parametrize("said", ["yes", 1, None, OSError("no answer")])
async def test_check_permissions_that_gives_no_clear_yes_refuses(tools, said):
    class Mine(SecurityManager):
        def check_permissions(self, user_identity, action, resource_id):
            if isinstance(said, Exception):
                raise said
            return said

    await agent_of([call("who"), "done"], tools, *Mine().policies).run("go", user_id="ann")
    assert tools.ran == []


@pytest.mark.requirement("D13")
async def test_sanitize_data_of_a_subclass_cleans_what_comes_in_and_goes_out(tools):
    seen, patterns = [], []

    class Mine(SecurityManager):
        def sanitize_data(self, data, pii_patterns):
            patterns.append(pii_patterns)
            text = super().sanitize_data(data, pii_patterns)
            return {**text, "id": "[id]"} if isinstance(text, dict) else text.replace("ACME-7", "[id]")

    def script(request):
        seen.append(repr(request.messages))
        return call("who") if len(seen) == 1 else "It is ACME-7."

    journal, shown = MemoryJournal(), []
    manager = Mine(patterns={"staff": "E[0-9]{6}"})
    agent = agent_of(ScriptedModel(script), tools, *manager.policies, journal=journal)
    run = agent.run("Who is ACME-7, E123456?")
    async for chunk in run:
        shown.append(repr(chunk))
    result = await run
    facts = repr([event async for event in journal.read(result.run_id)])
    assert result.output == "It is [id]."
    assert "Who is [id], [staff]?" in facts
    assert not any("ACME-7" in one or ADDRESS in one for one in [*seen, *shown, facts])
    assert patterns[0] == {"staff": "E[0-9]{6}"}


@pytest.mark.requirement("D13")
async def test_sanitize_data_that_returns_no_text_for_a_text_lets_nothing_in(tools):
    class Mine(SecurityManager):
        def sanitize_data(self, data, pii_patterns):
            return None

    seen = []
    agent = agent_of(ScriptedModel(lambda request: seen.append(1) or "ok"), tools, *Mine().policies)
    with pytest.raises(Exception, match="sanitize_data returned"):
        await agent.run("go")
    assert seen == []


@pytest.mark.requirement("D13")
async def test_init_of_the_document_is_used_or_refused_by_name(tools):
    class AccessControlList:
        def is_allowed(self, user_identity, action, resource_id):
            return resource_id == "who"

    class Mine(SecurityManager):
        def __init__(self, **more):
            self.access_control = AccessControlList()
            vars(self).update(more)

    await agent_of([call("who"), call("other"), "done"], tools, *Mine().policies).run("go", user_id="ann")
    assert tools.ran == ["who"]
    assert Mine().sanitize_data(ADDRESS) == "[email]"
    for name in ("audit_logger", "encryption_handler"):
        with pytest.raises(ConfigError, match=name):
            Mine(**{name: object()}).policies  # noqa: B018
    with pytest.raises(ConfigError, match="access_control"):
        Mine(access_control=object()).policies  # noqa: B018


async def _later(self, *given):
    return True


def _short(self, data):
    return data


@pytest.mark.parametrize(
    ("kind", "name", "method"),
    [
        (SecurityManager, "check_permissions", _later),
        (SecurityManager, "check_permissions", _short),
        (SecurityManager, "sanitize_data", _later),
        (SecurityManager, "sanitize_data", _short),
        (ResourceManager, "can_execute", _later),
        (ResourceManager, "can_execute", _short),
        (ErrorRecoveryManager, "handle_failure", _later),
        (ErrorRecoveryManager, "handle_failure", _short),
    ],
)
async def test_method_that_cannot_be_called_in_a_run_is_refused_when_it_is_passed_in(tools, kind, name, method):
    manager = type("Mine", (kind,), {name: method})()
    with pytest.raises(ConfigError, match=rf"Mine\.{name} must be a plain function"):
        policies = manager.policies if kind is SecurityManager else [manager]
        await agent_of(["done"], tools, *policies).run("go")


# 3.14 CacheManager


@pytest.mark.requirement("D14")
async def test_cache_gives_every_caller_the_same_value_and_a_copy_of_their_own(tmp_path):
    manager = CacheManager(path=tmp_path / "values.db")
    first = manager.get_or_set("k", lambda: {"rows": (1, 2), 3: "x"})
    first["rows"].append(3)
    assert manager.get_or_set("k", dict) == {"rows": [1, 2], "3": "x"}

    go = asyncio.Event()

    async def compute():
        await go.wait()
        return {"rows": [1]}

    waiting = [asyncio.ensure_future(manager.get_or_set("async", compute)) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    one, *others = await asyncio.gather(*waiting)
    one["rows"].append(2)
    assert others == [{"rows": [1]}] * 2
    manager.close()


@pytest.mark.requirement("D14")
async def test_value_that_another_has_stored_meanwhile_is_not_computed_again(tmp_path):
    manager, slow = CacheManager(path=tmp_path / "values.db"), CacheManager(path=tmp_path / "values.db")

    async def compute():
        slow.set("k", "first")
        return "second"

    assert await manager.get_or_set("k", compute) == "first"
    assert manager.get("k") == "first"
    manager.close()
    slow.close()


@pytest.mark.requirement("D14")
def test_init_of_the_document_is_enough_for_the_optimizer(tmp_path):
    class Mine(PerformanceOptimizer):
        def __init__(self):
            self.cache_manager = CacheManager(max_size="1GB", default_ttl=3600, path=tmp_path / "values.db")

    mine = Mine()
    assert mine.get_or_set_cache("k", lambda: 1) == 1
    assert mine.optimize_tool_selection("x", {"a": {"cost": 2}, "b": {"cost": 1}}) == "b"
    mine.cache_manager.close()


# 3.10 LearningEngine


@pytest.mark.requirement("D10")
def test_learning_is_kept_for_the_next_process(tmp_path):
    LearningEngine(tmp_path).track_success_patterns("How much is tea?", ["search_web"], True)
    (best,) = LearningEngine(tmp_path).track_success_patterns("How much is cocoa?", ["search_web"], True)
    assert (best.tools, best.good) == (("search_web",), 2)


@pytest.mark.requirement("D10")
async def test_learning_engine_that_an_agent_has_learns_from_its_runs_and_tells_the_profile(tmp_path, tools):
    seen, tracked = [], []

    class Mine(LearningEngine):
        def track_success_patterns(self, task_description, approach_details, was_successful, user_feedback=None):
            tracked.append((task_description, approach_details["tools"], was_successful))
            return super().track_success_patterns(task_description, approach_details, was_successful, user_feedback)

    def script(request):
        seen.append(repr(request.messages))
        return call("who") if len(seen) == 1 else "done"

    engine = Mine(tmp_path)
    engine.personalize_responses("ken", [], {"language": "日本語"})
    agent = agent_of(ScriptedModel(script), tools, context=[engine])
    await agent.run("How much is tea?", user_id="ken")
    await agent.close()
    assert tracked == [("How much is tea?", ["who"], True)]
    assert "日本語" in seen[0]
    (best,) = engine.track_success_patterns("How much is cake?", {"tools": ["who"], "user": "ken"}, True)
    assert (best.tools, best.good) == (("who",), 2)
    (other,) = engine.track_success_patterns("How much is cake?", {"tools": ["who"], "user": "bob"}, True)
    assert other.good == 1, "what ken did is not told bob"
    assert isinstance(engine, Memory)


@pytest.mark.requirement("D10")
async def test_agent_is_told_the_improvement_of_a_subclass_after_a_failure_of_the_same_user(tmp_path, tools):
    seen = []

    class Mine(LearningEngine):
        def suggest_improvements(self, failed_task_context):
            return f"Look twice at {failed_task_context['task']}"

        def personalize_responses(self, user_id, interaction_history, preferences):
            return {"tone": f"kind to {user_id}"}

    engine = Mine(tmp_path)
    engine.track_success_patterns("How much is tea?", {"tools": ["who"], "user": "ken"}, False)
    agent = agent_of(
        ScriptedModel(lambda request: seen.append(repr(request.messages)) or "done"), tools, context=[engine], name="shop"
    )
    for user in ("ken", "bob"):
        await agent.run("How much is cake?", user_id=user)
    await agent.close()
    assert ["Look twice at How much is cake?" in one for one in seen] == [True, False]
    assert ["tone: kind to ken" in one for one in seen] == [True, False]


def test_method_of_a_learning_engine_that_cannot_be_called_is_refused(tmp_path):
    kind = type("Mine", (LearningEngine,), {"suggest_improvements": _later})
    with pytest.raises(ConfigError, match=r"Mine\.suggest_improvements must be a plain function"):
        kind(tmp_path)
