"""Design D, as a reader of its document alone writes programs: forms that the document suggests without spelling them out."""

import asyncio
import json

import pytest
from pydantic import BaseModel

from kaname import Agent, ConfigError, ScriptedModel, ToolRegistry, call
from kaname.designs import (
    BaseAgent,
    CollaborationManager,
    ContextManager,
    Guardrail,
    LLMAdapter,
    OpenAIAdapter,
    TraceLogger,
    WorkflowEngine,
)
from kaname.models import Timeouts
from tests.parts import add

# 3.2 Tools


@pytest.mark.requirement("D2", "D17")
async def test_parse_arguments_of_ones_own_gets_the_text_of_the_model():
    class Mine(ToolRegistry):
        def parse_arguments(self, name, arguments):
            return json.loads(arguments)

    agent = BaseAgent(ScriptedModel([call("add", a=1, b=2), "3"]), [add], tool_registry=Mine(), journal="memory")
    result = await agent.run("go")
    assert [step.observation for step in result.steps if step.action] == ["3"]


class Args(BaseModel):
    city: str
    days: int = 1


class Named:
    name, description = "weather", "Gives the weather."


class Called(Named):
    def __call__(self, city: str, days: int = 1) -> str:
        return f"{city} {days}"


class Typed(Named):
    effect = "pure"

    async def execute(self, city: str, days: int = 1) -> str:
        return f"{city} {days}"


class Number(Named):
    def execute(self, days: int) -> str:
        return f"Nara {days + 1}"


class OneText(Named):
    def execute(self, city: str) -> str:
        return f"{city} 2"


class WithArgs(Named):
    parameters = Args

    async def execute(self, city, days) -> str:
        return f"{city} {days + 1}"


class CalledWithArgs(Named):
    parameters = Args.model_json_schema()

    def __call__(self, city, days):
        return f"{city} {days}"


@pytest.mark.requirement("D2")
@pytest.mark.parametrize(
    ("made", "properties", "arguments"),
    [
        (Called(), {"city": "string", "days": "integer"}, {"city": "Nara", "days": "2"}),
        (Typed(), {"city": "string", "days": "integer"}, {"city": "Nara", "days": 2}),
        (Number(), {"days": "integer"}, {"days": 1}),
        (OneText(), {"city": "string"}, {"city": "Nara"}),
        (WithArgs(), {"city": "string", "days": "integer"}, {"city": "Nara"}),
        (CalledWithArgs(), {"city": "string", "days": "integer"}, {"city": "Nara", "days": 2}),
    ],
)
async def test_tool_of_a_class_is_what_its_name_and_its_signature_say(made, properties, arguments):
    agent = Agent(ScriptedModel([call("weather", **arguments), "ok"]), [made], journal="memory")
    shown = agent.tools["weather"]
    assert shown.description == "Gives the weather."
    assert {name: one["type"] for name, one in shown.parameters["properties"].items()} == properties
    assert shown.effect == getattr(made, "effect", "irreversible")
    assert (await agent.run("go")).steps[0].observation == "Nara 2"


@pytest.mark.requirement("D2", "D22")
@pytest.mark.parametrize("parameters", [["city"], Args, {"type": "object", "properties": {"town": {}, "days": {}}}])
def test_parameters_that_the_method_cannot_take_are_refused_at_once(parameters):
    class Wrong(Named):
        def execute(self, where: Args): ...

    made = Wrong()
    made.parameters = parameters
    with pytest.raises(ConfigError, match="weather: `parameters`"):
        ToolRegistry([made])


# 3.5 Trace Logger


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("base", [object, TraceLogger])
async def test_trace_that_takes_the_data_by_name_is_called_so(base):
    class Log(base):
        seen = []

        def trace(self, event, **data):
            self.seen.append((event, data["level"]))

    agent = BaseAgent(ScriptedModel(["hello"]), trace_logger=Log(), journal="memory")
    await agent.run("go")
    assert ("Opened", "info") in Log.seen


@pytest.mark.requirement("D5", "D22")
def test_trace_that_cannot_be_called_is_refused():
    class Log:
        def trace(self, message): ...

    with pytest.raises(ConfigError, match=r"\(message\).* trace\(event, data\)"):
        BaseAgent(ScriptedModel(["hello"]), trace_logger=Log())


# 3.7 Context Manager


@pytest.mark.requirement("D7")
def test_context_that_is_not_json_is_refused_and_does_not_break_the_rest(tmp_path):
    context = ContextManager(tmp_path)
    context.active_contexts["s"] = {"a": 1}
    with pytest.raises(ConfigError, match="not JSON"):
        context.active_contexts["s"] = {"o": object()}
    assert context.active_contexts["s"] == {"a": 1}
    context.active_contexts["s"]["a"] = object()
    context.active_contexts["s"]["n"] = 0
    assert context.get_relevant_context("a", "s") == {"session": {"n": 0}}
    context.active_contexts["t"] = {"b": 2}
    context.user_profiles["u"] = {"c": 3}
    context.global_context["d"] = 4
    with pytest.raises(ConfigError, match="'a' cannot be stored"):
        context.save()
    after = ContextManager(tmp_path)
    assert dict(after.active_contexts) == {"s": {"a": 1, "n": 0}, "t": {"b": 2}}
    assert (dict(after.user_profiles), after.global_context) == ({"u": {"c": 3}}, {"d": 4})


class Written(ContextManager):
    """With the document's `__init__`, letter by letter."""

    def __init__(self):
        self.active_contexts = {}
        self.global_context = {}
        self.user_profiles = {}


@pytest.mark.requirement("D7")
async def test_context_manager_with_the_documents_own_init_works_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, seen = Written(), []
    first.active_contexts["s"] = {"task": "tea"}
    first.user_profiles["u"] = {"likes": "sencha"}
    first.global_context["shop"] = "Kaname"
    first.close()
    model = ScriptedModel(lambda request: seen.append(request.messages) or "ok")
    await BaseAgent(model, context_manager=Written(), journal="memory").run("go", session_id="s", user_id="u")
    told = "".join([message.text for message in seen[0]])
    assert all(one in told for one in ("task: tea", "likes: sencha", "shop: Kaname"))
    assert not hasattr(Written(), "unknown")


@pytest.mark.requirement("D7")
def test_dicts_that_are_assigned_take_the_place_of_what_is_kept(tmp_path):
    context = ContextManager(tmp_path)
    context.active_contexts["old"], context.user_profiles["old"] = {"a": 1}, {"a": 1}
    context.active_contexts, context.user_profiles, context.global_context = {"s": {"b": 2}}, {"u": {"c": 3}}, {"d": 4}
    context.close()
    after = ContextManager(tmp_path)
    assert dict(after.active_contexts) == {"s": {"b": 2}}
    assert dict(after.user_profiles) == {"u": {"c": 3}}
    assert after.global_context == {"d": 4}
    after.active_contexts = {}
    assert dict(ContextManager(tmp_path).active_contexts) == {}


class OnlySelects:
    def get_relevant_context(self, query, session_id, user_id=None):
        return {"found": f"{query} in {session_id}"}


@pytest.mark.requirement("D7")
@pytest.mark.parametrize(
    "options", [{"context": OnlySelects()}, {"context": [OnlySelects()]}, {"context_manager": OnlySelects()}]
)
async def test_object_that_only_selects_context_is_passed_as_it_is(options):
    seen = []
    model = ScriptedModel(lambda request: seen.append(request.messages) or "ok")
    await BaseAgent(model, journal="memory", **options).run("tea", session_id="s")
    assert "found: tea in s" in "".join([message.text for message in seen[0]])


@pytest.mark.requirement("D7", "D22")
@pytest.mark.parametrize("option", ["context", "context_manager"])
def test_object_that_selects_no_context_is_refused(option):
    with pytest.raises(ConfigError, match="get_relevant_context"):
        BaseAgent(ScriptedModel(["ok"]), **{option: object()})


# 3.8 Workflow Engine, 3.15 Collaboration Manager


@pytest.mark.requirement("D8")
async def test_engine_runs_a_workflow_that_it_has_loaded():
    engine = WorkflowEngine([add], journal="memory")
    flow = engine.load({"workflow": {"name": "sum", "steps": [{"name": "one", "tool": "add", "args": {"a": 1, "b": 2}}]}})
    assert (await engine.run(flow)).output == 3


@pytest.mark.requirement("D8", "D22")
def test_engine_refuses_what_is_no_registry():
    with pytest.raises(ConfigError, match="tools must be a list of tools, or a registry"):
        WorkflowEngine(object())


@pytest.mark.requirement("D15")
async def test_collaboration_manager_says_what_it_needs():
    manager = CollaborationManager(journal="memory")
    with pytest.raises(ConfigError, match=r"CollaborationManager\(\[agent\]\)"):
        await manager.share_session_with_users("s", ["u"])
    with pytest.raises(ConfigError, match="majority_vote.*summation.*llm_based_synthesis"):
        await manager.merge_agent_outputs(["a"], "vote")


@pytest.mark.requirement("D15")
async def test_task_for_a_person_can_be_a_dict():
    manager = CollaborationManager(journal="memory")
    asked = asyncio.create_task(manager.delegate_task_to_human({"invoice": 12}, "cannot see"))
    while not (tasks := await manager.tasks.pending()):
        await asyncio.sleep(0.01)
    ((run_id, question),) = tasks.items()
    assert '"invoice": 12' in question
    await manager.tasks.answer(run_id, "right")
    assert await asked == "right"


# 3.1 LLM Adapter, 3.4 Guardrail, 4.1 run


@pytest.mark.requirement("D1", "D20")
@pytest.mark.parametrize("stream", [True, False])
async def test_chat_by_hand_counts_its_chunks_and_can_give_the_text_at_once(stream):
    adapter = LLMAdapter(ScriptedModel(["It is clear in Kyoto."]))
    got = [chunk async for chunk in adapter.chat([{"role": "user", "content": "go"}], stream=stream)]
    texts = [chunk["data"]["content"] for chunk in got if chunk["type"] == "delta"]
    assert "".join(texts) == "It is clear in Kyoto."
    assert (len(texts) > 1) is stream
    assert [chunk["seq"] for chunk in got] == list(range(1, len(got) + 1))


@pytest.mark.requirement("D1", "D22")
def test_adapter_takes_a_timeout():
    assert OpenAIAdapter("m", api_key="k", timeout=5).options["timeouts"] == Timeouts(first_byte=5, between=5)
    assert OpenAIAdapter("m", timeout=Timeouts(1, 2, 3)).options["timeouts"] == Timeouts(1, 2, 3)


@pytest.mark.requirement("D4")
@pytest.mark.parametrize("which", ["check_input", "check_output", "check_tool"])
@pytest.mark.parametrize("base", [object, Guardrail])
@pytest.mark.parametrize("said", [True, False])
async def test_guardrail_that_returns_a_bool_allows_with_true_and_blocks_with_false(which, base, said):
    ran = []

    def look(city: str) -> str:
        ran.append(city)
        return "clear"

    def check(self, *given):
        return said

    check.__name__ = which
    guard = type("Guard", (base,), {which: check})()
    agent = BaseAgent(ScriptedModel([call("look", city="Nara"), "clear"]), [look], guardrail=guard, journal="memory")
    result = await agent.run("go")
    blocked = result.stop.kind == "blocked" or ran == []
    assert blocked is not said
    if said:
        assert result.output == "clear"


@pytest.mark.requirement("D16")
async def test_usage_is_read_by_the_documents_names():
    usage = (await BaseAgent(ScriptedModel(["hello"]), journal="memory").run("go")).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (usage.input, usage.output, usage.total)


# 4.3 Handoff, 5.2 definitions, 7 configuration


class Plain:
    name = "plain"

    async def stream(self, messages, session_id=None):
        yield {"type": "delta", "data": {"content": f"did {messages}"}}
        yield " well"


class OnlyRuns:
    name = "plain"

    async def run(self, messages):
        return {"role": "assistant", "content": f"did {messages} well"}


@pytest.mark.requirement("D18")
@pytest.mark.parametrize("target", [Plain(), OnlyRuns()])
async def test_handoff_to_an_object_of_ones_own(target):
    ended = []

    class Lead(BaseAgent):
        model = ScriptedModel(["…"])

        def on_handoff_return(self, target, result):
            ended.append(target)

    got = [chunk async for chunk in Lead(journal="memory").handoff(target, "it")]
    assert "".join([chunk["data"]["content"] for chunk in got]) == "did it well"
    assert {chunk["agent"] for chunk in got} == {"plain"}
    assert ended == ["plain"]
    result = await Lead(journal="memory").handoff(target, "it")
    assert (result["content"] if isinstance(result, dict) else result.content) == "did it well"


@pytest.mark.requirement("D18", "D22")
def test_handoff_to_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match=r"a name, and a method stream\(messages\) or run\(messages\)"):
        BaseAgent(ScriptedModel(["…"])).handoff(object(), "it")


@pytest.mark.requirement("D18")
async def test_handoff_tells_the_context_before_the_messages():
    seen = []
    model = ScriptedModel(lambda request: seen.append(request.messages) or "ok")
    await BaseAgent(ScriptedModel(["…"])).handoff(
        BaseAgent(model, name="b", journal="memory"), "Is it right?", context={"invoice": 12}
    )
    assert [message.text for message in seen[0]] == ['[Context] {"invoice": 12}', "Is it right?"]


@pytest.mark.requirement("D18")
async def test_handoff_depth_of_the_class_counts_and_the_refuser_says_no():
    class Never(BaseAgent):
        MAX_HANDOFF_DEPTH = 0
        model = ScriptedModel(["…"])

    other = BaseAgent(ScriptedModel(["…"]), name="other")
    (chunk,) = [chunk async for chunk in Never().handoff(other, "it")]
    assert (chunk["agent"], chunk["type"], chunk["data"]["type"]) == ("Never", "error", "HandoffRefused")

    class Once(Never):
        MAX_HANDOFF_DEPTH = 1

    assert Once(team=[other]).team.max_depth == 1


@pytest.mark.requirement("D18", "D22")
@pytest.mark.parametrize("name", ["_memory", "_tools", "_tools_definitions", "_handoff_depth", "_seq_counter"])
def test_what_would_have_no_effect_is_refused_with_the_class(name):
    with pytest.raises(ConfigError, match=f"Mine.{name} has no effect"):
        type("Mine", (BaseAgent,), {name: 1})


@pytest.mark.requirement("D18", "D22")
def test_callback_with_another_signature_is_refused_with_the_class():
    with pytest.raises(ConfigError, match=r"Mine.on_handoff_return must take \(self, target, result\)"):
        type("Mine", (BaseAgent,), {"on_handoff_return": lambda self, result: None})


@pytest.mark.requirement("D2", "D19")
async def test_definition_of_a_tool_that_the_registry_has_is_served_by_it():
    definition = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    model = ScriptedModel([call("add", a=1, b=2), "3"])
    agent = BaseAgent(model, [definition], tool_registry=ToolRegistry([add]), journal="memory")
    assert (await agent.run("go")).steps[0].observation == "3"


@pytest.mark.requirement("D22")
def test_agent_without_a_model_and_config_by_path_are_refused_at_once():
    with pytest.raises(ConfigError, match="BaseAgent needs the name of a model"):
        BaseAgent(name="x")
    with pytest.raises(ConfigError, match=r"load_config\('agent.yaml'\)"):
        BaseAgent.from_config("agent.yaml")
