"""Design D, as its document writes it: its names, its examples and its order (sections 3.1 to 7, the agent itself)."""

import asyncio
import json
import re
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel, Field

from kaname import (
    MAX_HANDOFF_DEPTH,
    Agent,
    BadArguments,
    ConfigError,
    GuardrailAction,
    GuardrailResult,
    ModelError,
    Policy,
    Retry,
    ScriptedModel,
    ToolContext,
    ToolNotFoundError,
    ToolRegistry,
    ToolResult,
    call,
    load_config,
    max_steps,
    tool,
)
from kaname.core.messages import ToolCall
from kaname.designs import (
    AgentRuntime,
    AnthropicAdapter,
    BaseAgent,
    Guardrail,
    LLMAdapter,
    OpenAIAdapter,
    ReActPlanner,
    TokenGuard,
    TraceLogger,
)
from kaname.models import Timeouts
from kaname.testing import WireServer
from kaname.testing.wire import Answer, anthropic_reply, reply
from tests.parts import add, adding, chunks

# 3.1 LLM Adapter


class EchoAdapter(LLMAdapter):
    """A provider of one's own: only `chat`, as the document has it."""

    def __init__(self, *replies):
        super().__init__()
        self.replies, self.asked = list(replies), []

    async def chat(self, messages, model="", stream=True, tools=None, **settings):
        self.asked.append({"messages": messages, "model": model, "stream": stream, "tools": tools, "settings": settings})
        for chunk in self.replies.pop(0):
            yield chunk


def delta(text):
    return {"type": "delta", "data": {"content": text}}


def tool_call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"type": "tool_call", "data": {"id": "call_xyz", "function": function}}


USAGE = {"type": "usage", "data": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}


@pytest.mark.requirement("D1", "D21")
async def test_adapter_of_ones_own_is_what_the_run_asks():
    adapter = EchoAdapter([delta("Let me "), delta("add. "), tool_call("add", a=3, b=4), USAGE], [delta("It is 7."), USAGE])
    agent = BaseAgent(
        "my-model", [add], llm_adapter=adapter, instructions="Be brief.", settings={"temperature": 0.5}, journal="memory"
    )
    result = await agent.run("3 + 4?")
    assert result.output == "It is 7."
    assert result.usage.input == 14
    assert result.usage.cost is None, "nobody has said what it costs"
    first, second = adapter.asked
    assert first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3 + 4?"}]
    assert (first["model"], first["stream"], first["settings"]) == ("my-model", True, {"temperature": 0.5})
    (definition,) = first["tools"]
    assert definition["type"] == "function"
    assert definition["function"]["name"] == "add"
    assert second["messages"][-1]["role"] == "tool"
    assert second["messages"][-1]["content"] == "7"
    assert agent.llm_adapter is adapter


@pytest.mark.requirement("D1")
@pytest.mark.parametrize(("adapter", "said"), [(OpenAIAdapter, reply), (AnthropicAdapter, anthropic_reply)])
async def test_openai_and_anthropic_adapters_by_themselves_and_with_a_chat_of_ones_own(adapter, said):
    class Shouting(adapter):
        async def chat(self, messages, **more):
            async for chunk in super().chat(messages, **more):
                yield delta(chunk["data"]["content"].upper()) if chunk["type"] == "delta" else chunk

    async with WireServer([said("adding", [("add", {"a": 1, "b": 2})]), said("it is three")] * 3) as server:
        plain = adapter("some-model", base_url=server.url, api_key="k")
        assert (await BaseAgent(tools=[add], llm_adapter=plain, journal="memory").run("1 + 2?")).output == "it is three"
        shouting = Shouting(base_url=server.url, api_key="k")
        agent = BaseAgent("other-model", [add], llm_adapter=shouting, journal="memory")
        result = await agent.run("1 + 2?")
        assert result.output == "IT IS THREE"
        assert [one["function"]["name"] for one in result.tool_calls] == ["add"]
        assert result.usage.input > 0
        in_an_agent = Agent(Shouting("third-model", base_url=server.url, api_key="k"), [add], journal="memory")
        assert (await in_an_agent.run("1 + 2?")).output == "IT IS THREE"
        await plain.close()
        await shouting.close()
        await in_an_agent.close()
        assert [one["model"] for one in server.requests] == ["some-model"] * 2 + ["other-model"] * 2 + ["third-model"] * 2


@pytest.mark.requirement("D1")
async def test_what_is_no_adapter_or_cannot_do_what_the_agent_needs_is_refused():
    class Shape:  # not derived from anything
        async def chat(self, messages, model, stream):
            return {"role": "assistant", "content": f"{model}: {messages[-1]['content']}"}

    assert (await BaseAgent("m", llm_adapter=Shape(), journal="memory").run("hello")).output == "m: hello"
    with pytest.raises(ConfigError, match="chat\\(\\) has no parameter 'tools'"):
        BaseAgent("m", [add], llm_adapter=Shape(), journal="memory")
    with pytest.raises(ConfigError, match="not an LLM adapter"):
        BaseAgent("m", llm_adapter=object(), journal="memory")
    with pytest.raises(ConfigError, match="needs the name of a model"):
        BaseAgent(llm_adapter=OpenAIAdapter(api_key="k"), journal="memory")


@pytest.mark.requirement("D1", "D22")
async def test_error_chunk_of_an_adapter_ends_the_run_and_is_streamed():
    adapter = EchoAdapter(*[[delta("It"), {"type": "error", "data": {"message": "quota", "type": "QuotaError"}}]] * 2)
    agent = BaseAgent("m", llm_adapter=adapter, journal="memory")
    seen = await chunks(agent.stream("hi"))
    (error,) = [chunk for chunk in seen if chunk["type"] == "error"]
    assert set(error["data"]) >= {"message", "type"}
    with pytest.raises(ModelError, match="quota"):
        await agent.run("hi")


@pytest.mark.requirement("D1", "D21")
async def test_default_adapter_can_be_chosen_by_a_subclass():
    class Mine(BaseAgent):
        model = "m"

        def _default_llm_adapter(self):
            return EchoAdapter([delta("mine")])

    assert (await Mine(journal="memory").run("hi")).output == "mine"
    with pytest.raises(ConfigError, match=r"_preprocess_messages has no effect.*context"):

        class Silent(BaseAgent):
            def _preprocess_messages(self, messages): ...


# 3.2 Tool Registry


class Noting(ToolRegistry):
    def __init__(self, *tools):
        self.seen = []
        super().__init__(tools)

    def parse_arguments(self, name, arguments):
        parsed = super().parse_arguments(name, arguments)
        self.seen.append(("parse", name, parsed))
        return {**parsed, "city": parsed["city"].title()}

    async def execute(self, name, arguments, session_id=None, agent_name=None):
        self.seen.append(("execute", name, arguments, session_id, agent_name))
        result = await super().execute(name, arguments, session_id, agent_name)
        return {"noted": result.output}


@tool(effect="pure")
def weather(city: str, context: ToolContext, days: int = 1) -> dict:
    """The weather."""
    return {"city": city, "days": days, "session": context.session, "agent": context.agent}


@pytest.mark.requirement("D2", "D17")
async def test_registry_of_ones_own_parses_and_executes_for_a_run():
    registry, seen = Noting(), []

    class Guard(Policy):
        async def tool(self, call, next, view):
            seen.append(call.args)
            return await next(call)

    agent = BaseAgent(
        ScriptedModel([ToolCall("", "weather", "{'city': 'kyoto',}"), "clear"]),
        tool_registry=registry,
        policies=[Guard()],
        name="guide",
        journal="memory",
    )
    registry.register(weather)  # later than the agent
    result = await agent.run("go", session_id="s")
    assert registry.seen == [
        ("parse", "weather", {"city": "kyoto", "days": 1}),
        ("execute", "weather", {"city": "Kyoto", "days": 1}, "s", "guide"),
    ]
    assert seen == [{"city": "Kyoto", "days": 1}], "parsed first, then the guard"
    assert json.loads(result.steps[0].observation)["noted"] == {"city": "Kyoto", "days": 1, "session": "s", "agent": "guide"}
    assert agent.tool_registry is registry
    assert registry.list_tools() == ["weather"]


@pytest.mark.requirement("D2")
async def test_registry_of_ones_own_is_what_runs_in_every_kind_of_agent():
    script = [call("weather", city="nara"), "Clear."]
    registries = [Noting(weather), Noting(weather)]
    agent = Agent(ScriptedModel(script), registries[0], journal="memory")
    text = 'Thought: I look.\nAction: weather\nAction Input: {"city": "nara"}'
    planner = ReActPlanner(ScriptedModel([text, "Final Answer: Clear."]))
    runtime = AgentRuntime(planner, registries[1], journal="memory")
    await agent.run("go")
    assert (await runtime.run("go")).answer == "Clear."
    for registry in registries:
        kinds = [kind for kind, *_ in registry.seen]
        assert kinds[:2] == ["parse", "execute"]
        assert kinds.count("execute") == 1


@pytest.mark.requirement("D2")
async def test_parse_arguments_and_execute_by_hand():
    registry = ToolRegistry([weather])
    parsed = registry.parse_arguments("weather", "{'city': 'Kyoto', 'days': '2',}")
    assert parsed == {"city": "Kyoto", "days": 2}
    result = await registry.execute("weather", parsed, session_id="s", agent_name="guide")
    assert result == ToolResult({"city": "Kyoto", "days": 2, "session": "s", "agent": "guide"})
    with pytest.raises(BadArguments, match="city"):
        registry.parse_arguments("weather", '{"town": "Kyoto"}')
    with pytest.raises(ToolNotFoundError, match="did you mean 'weather'"):
        await registry.execute("wether", {})

    @registry.register
    @tool(timeout="10ms", effect="pure")
    async def slow() -> str:
        """Slow."""
        await asyncio.Event().wait()

    @registry.register
    @tool
    def broken() -> str:
        """Broken."""
        raise ValueError("no")

    async with asyncio.timeout(60):
        assert "timed out" in (await registry.execute("slow", {})).error
    assert (await registry.execute("broken", "{}")).error == "ValueError: no"


@pytest.mark.requirement("D2")
async def test_one_registry_serves_two_agents_and_is_not_changed_by_them():
    registry = ToolRegistry([add])
    expert = Agent(ScriptedModel(lambda request: "expert"), registry, name="expert", journal="memory")
    lead = Agent(adding(), registry, name="lead", team=[expert], journal="memory")
    assert (await lead.run("3 + 4?")).output == "the sum is 7"
    assert registry.list_tools() == ["add"]
    assert "transfer_to_agent" in lead.tools
    with pytest.raises(ConfigError, match="tool_registry must be a ToolRegistry"):
        BaseAgent(adding(), tool_registry={"add": add}, journal="memory")


# 3.3 Memory


@pytest.mark.requirement("D3")
@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"memory_window_size": 4}, 4),
        ({"max_memory_items": 2}, 2),
        ({"extra_cfg": {"memory_window_size": 6, "max_memory_items": 4}}, 4),
        ({"memory_window_size": 2, "extra_cfg": {"memory_window_size": 6}}, 2),
        ({"memory_window_size": 3}, 2),
        ({"memory_window_size": 0}, 0),
        ({}, 10),
    ],
)
async def test_short_term_memory_is_bounded_by_parameters_and_by_extra_cfg(options, most):
    seen = []

    def answer(request):
        seen.append(request.messages)
        return call("add", a=1, b=2) if request.messages[-1].role == "user" else "three"

    agent = BaseAgent(ScriptedModel(lambda r: "I see."), instructions="Be brief.", journal="memory", **options)
    for turn in range(5):
        await agent.run(f"turn {turn}", session_id="s")
    agent = BaseAgent(ScriptedModel(answer), [add], name=agent.name, instructions="Be brief.", journal=agent.journal, **options)
    await agent.run("1 + 2?", session_id="s")
    assert [len(messages) - 2 for messages in seen] == [most, most + 2], "the turn itself is whole"
    assert seen[0][0].role == "system"
    assert seen[0][1].role == "user", "cut at whole exchanges"


def remembering(**options):
    """An agent that says everything that it was told."""
    said = ScriptedModel(lambda request: " / ".join([one.text for one in request.messages if one.role == "user"]))
    return BaseAgent(said, journal="memory", **options)


@pytest.mark.requirement("D3")
@pytest.mark.parametrize("options", [{"memory_window_size": 20}, {"extra_cfg": {"max_memory_items": 4}}])
async def test_object_with_a_memory_remembers_its_runs_without_a_session(options):
    agent = remembering(**options)
    await agent.run("I am Ken.")
    assert (await agent.run("Who am I?")).content == "I am Ken. / Who am I?"
    streamed = [chunk async for chunk in agent.stream("And now?")]
    told = "".join([chunk["data"]["content"] for chunk in streamed if chunk["type"] == "delta"])
    assert told == "I am Ken. / Who am I? / And now?"
    assert (await remembering(**options).run("Who am I?")).content == "Who am I?", "another object has another memory"


@pytest.mark.requirement("D3")
async def test_memory_of_an_object_is_not_shared_between_users_and_sessions():
    agent = remembering(memory_window_size=20)
    await agent.run("I am Ken.")
    for options in ({"user_id": "ann"}, {"user_id": ""}, {"session_id": "s"}):  # a server names the user, even the empty one
        assert (await agent.run("Who am I?", **options)).content == "Who am I?"
    whole = [
        {"role": "user", "content": "I am Mika."},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Me?"},
    ]
    assert (await agent.run(whole)).content == "I am Mika. / Me?", "it brings its own conversation"


@pytest.mark.requirement("D3")
@pytest.mark.parametrize("options", [{}, {"memory_window_size": 0}])
async def test_object_without_a_memory_begins_anew(options):
    agent = remembering(**options)
    await agent.run("I am Ken.")
    assert (await agent.run("Who am I?")).content == "Who am I?"


@pytest.mark.requirement("D3")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"extra_cfg": {"memory_window": 6}}, "did you mean 'memory_window_size'"),
        ({"memory_window_size": -1}, "memory_window_size must be an integer"),
        ({"extra_cfg": {"max_memory_items": "all"}}, "max_memory_items must be an integer"),
    ],
)
def test_memory_sizes_that_cannot_be_are_refused(options, told):
    with pytest.raises(ConfigError, match=told):
        BaseAgent(ScriptedModel([]), journal="memory", **options)


# 3.4 Guardrail


@pytest.mark.requirement("D4")
async def test_guardrail_of_ones_own_judges_tool_use_after_parsing():
    seen, ran = [], []

    class MyGuard(Guardrail):
        def check_tool(self, name, arguments):
            seen.append((name, arguments))
            return "not in winter" if arguments["days"] > 3 else None

    @tool
    def trip(city: str, days: int = 1) -> str:
        """Book."""
        ran.append((city, days))
        return "booked"

    script = [[ToolCall("", "trip", "{'city': 'K', 'days': '9',}"), ToolCall("", "trip", '{"city": "N"}')], "done"]
    result = await BaseAgent(ScriptedModel(script), [trip], guardrail=MyGuard(), journal="memory").run("go")
    assert sorted(seen, key=str) == [("trip", {"city": "K", "days": 9}), ("trip", {"city": "N", "days": 1})]
    assert [step.observation for step in result.steps[:2]] == ["Error: not in winter", "booked"]
    assert ran == [("N", 1)]


@pytest.mark.requirement("D4")
async def test_guard_that_fails_refuses_and_an_object_with_checks_is_a_guard():
    class Shape:
        async def check_tool(self, name, arguments):
            raise RuntimeError("no idea")

    agent = BaseAgent(adding(), [add], guardrail=Shape(), journal="memory")
    assert "check_tool failed: RuntimeError" in (await agent.run("go")).steps[0].observation
    with pytest.raises(ConfigError, match="not a guardrail"):
        BaseAgent(adding(), guardrail=object(), journal="memory")


@pytest.mark.requirement("D4")
async def test_token_guard_controls_which_tools_how_often_with_what_and_how_many_tokens():
    @tool(effect="pure")
    def look(city: str) -> str:
        """Look."""
        return f"saw {city}"

    async def observed(guard, *calls):
        agent = BaseAgent(ScriptedModel([[*calls], "done"]), [look, add], guardrail=guard, journal="memory")
        result = await agent.run("go")
        assert result.output == "done"
        return [step.observation for step in result.steps[:-1]]

    two = (call("look", city="Kyoto"), call("add", a=1, b=2))
    assert await observed(TokenGuard(allowed_tools=["look"]), *two) == ["saw Kyoto", "Error: add is not allowed here"]
    (first, second) = await observed(TokenGuard(max_calls={"look": 1}), call("look", city="A"), call("look", city="B"))
    assert first == "saw A"
    assert "limit of calls to look is reached" in second
    (first, second) = await observed(TokenGuard(max_calls=1), call("add", a=1, b=2), call("add", a=2, b=2))
    assert first == "3"
    assert "limit of calls to add is reached" in second
    (first,) = await observed(TokenGuard(arguments={"look": {"city": "[A-Z][a-z]+"}}), call("look", city="kyoto"))
    assert "cannot be called with this city" in first
    (first, second) = await observed(TokenGuard(max_tokens=15), *two)
    assert "this turn has used 15 tokens, and the limit is 15" in first
    assert (await observed(TokenGuard(max_tokens=16), *two)) == ["saw Kyoto", "3"]


@pytest.mark.requirement("D4")
async def test_guardrail_of_ones_own_judges_what_goes_in_and_what_comes_out():
    class MyGuard(Guardrail):
        def check_input(self, text):
            return GuardrailResult(GuardrailAction.BLOCK, "not that") if "secret" in text else super().check_input(text)

        def check_output(self, text):
            return GuardrailResult(GuardrailAction.BLOCK, "not out") if "42" in text else super().check_output(text)

    class Shape:
        def check_input(self, text):
            return "not that" if "secret" in text else None

        def check_output(self, text):
            return "not out" if "42" in text else None

    for guard in (MyGuard(), Shape()):
        agent = BaseAgent(
            ScriptedModel(lambda request: "it is 42" if "?" in request.messages[-1].text else "hello"),
            guardrail=guard,
            journal="memory",
        )
        assert (await agent.run("hi")).content == "hello"
        blocked = await agent.run("the secret")
        assert (blocked.stop.kind, blocked.stop.detail) == ("blocked", "not that")
        streamed = await chunks(agent.stream("what?"))
        assert "42" not in str([chunk["data"] for chunk in streamed if chunk["type"] in ("delta", "message")])
        assert [(one["kind"], one["detail"]) for one in streamed if one.get("status") == "stopped"] == [("blocked", "not out")]


# 3.5 Trace Logger


@pytest.mark.requirement("D5")
async def test_trace_logger_of_ones_own_is_told_what_happens():
    traced = []

    class Mine(TraceLogger):
        def trace(self, event, data=None, level="info"):
            traced.append(event)

    class Shape:
        def trace(self, event, data):
            traced.append(event)

    for logger in (Mine(console=False), Shape()):
        traced.clear()
        agent = BaseAgent(adding(), [add], trace_logger=logger, journal="memory")
        await agent.run("3 + 4?")
        assert "ToolStarted" in traced
        assert agent.trace_logger is logger
    with pytest.raises(ConfigError, match="not a trace logger"):
        BaseAgent(adding(), trace_logger=object(), journal="memory")


# 6 Extension: by a file too


@pytest.mark.requirement("D21")
async def test_adapter_of_ones_own_is_named_in_a_file(tmp_path):
    (tmp_path / "adapters.py").write_text(
        "from kaname.designs import LLMAdapter\n"
        "class Echo(LLMAdapter):\n"
        "    async def chat(self, messages, **more):\n"
        "        yield {'type': 'delta', 'data': {'content': messages[-1]['content'].upper()}}\n"
    )
    (tmp_path / "kaname.yaml").write_text("agents: {echo: {model: adapters.py:Echo}}")
    agent = Agent(load_config(tmp_path / "kaname.yaml"), journal="memory")
    assert (await agent.run("hello")).output == "HELLO"
    (tmp_path / "kaname.yaml").write_text("agents: {echo: {model: adapters.py:Eco}}")
    with pytest.raises(ConfigError, match=r"adapters.py has no 'Eco'; did you mean 'Echo'"):
        Agent(load_config(tmp_path / "kaname.yaml"), journal="memory")


@pytest.mark.requirement("D2", "D21")
async def test_function_with_a_pydantic_model_is_a_tool_by_being_in_the_list():
    class Order(BaseModel):
        item: str
        pieces: int = Field(ge=1)

    def place(order: Order) -> str:
        """Place an order."""
        return f"{order.pieces} × {order.item}"

    script = [[call("place", order={"item": "cup", "pieces": 0}), call("place", order={"item": "cup", "pieces": "2"})], "done"]
    result = await BaseAgent(ScriptedModel(script), [place], journal="memory").run("go")
    assert "order.pieces" in result.steps[0].observation
    assert result.steps[1].observation == "2 × cup"


# 7 Errors before the start


@pytest.mark.requirement("D22")
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: BaseAgent("gpt-4oo", llm_adapter=Listing()), "Listing has no model 'gpt-4oo'; did you mean 'gpt-4o'"),
        (lambda: Agent("local/nowhere.gguf"), "model file .* was not found"),
        (lambda: BaseAgent("opnai/gpt-4o"), "did you mean 'openai'"),
        (lambda: BaseAgent(42), "model must be a name"),
    ],
)
def test_unknown_model_is_told_before_the_start_where_a_list_of_names_can_be_had(make, told):
    with pytest.raises(ConfigError, match=told):
        make()
    assert BaseAgent("gpt-4o", llm_adapter=Listing(), journal="memory").model == "gpt-4o"


class Listing(EchoAdapter):
    models = ("gpt-4o", "gpt-4o-mini")


@pytest.mark.requirement("D22")
async def test_model_that_does_not_answer_in_time_is_given_up_and_told():
    async with WireServer(lambda _: Answer(delay=60)) as server, asyncio.timeout(40):
        adapter = OpenAIAdapter("m", base_url=server.url, api_key="k", timeouts=Timeouts(first_byte=0.05))
        agent = BaseAgent(llm_adapter=adapter, policies=[Retry(tries=1)], journal="memory")
        seen = await chunks(agent.stream("hi"))
        await agent.close()
    (error,) = [chunk for chunk in seen if chunk["type"] == "error"]
    assert error["data"]["type"] == "ModelTimeout"
    assert "no answer within 0.05 s" in error["data"]["message"]


# 4.1 The stream, and what run collects of it; 5 the data


class Guide(BaseAgent):
    """Section 6: a new agent is a class."""

    instructions = "You know the city."
    model = ScriptedModel([["Let me look. ", call("add", a=3, b=4)], "The sum is 7."])
    tools = [add]


@pytest.mark.requirement("D1", "D16", "D19", "D21")
async def test_agent_by_subclass_and_what_its_result_says():
    agent = Guide(journal="memory")
    assert (agent.name, agent.instructions, agent.guardrail, agent.trace_logger) == ("Guide", "You know the city.", None, None)
    assert agent.model is Guide.model
    assert isinstance(agent.llm_adapter, LLMAdapter)
    assert agent.tool_registry.list_tools() == ["add"]
    result = await agent.run("3 + 4?", session_id="s")
    assert result.role == "assistant"
    assert result.content == "Let me look. The sum is 7."
    assert result.tool_calls == [
        {"id": "c1_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3, "b": 4}'}}
    ]
    assert result.usage.total == 30
    streamed = await chunks(Guide(journal="memory").stream("3 + 4?"))
    assert "".join(one["data"]["content"] for one in streamed if one["type"] == "delta") == result.content
    agent.instructions = "You know nothing."
    agent.model = ScriptedModel(lambda request: request.messages[0].text)
    assert (await agent.run("hi")).output == "You know nothing."
    with pytest.raises(ConfigError, match="tool_registry cannot be changed"):
        agent.tool_registry = ToolRegistry()


@pytest.mark.requirement("D21")
async def test_methods_of_the_class_are_tools_and_what_is_passed_goes_over_the_class():
    class Clerk(BaseAgent):
        name = "clerk"
        instructions = "Count."

        def __init__(self, stock, **more):
            super().__init__(**more)
            self.stock = stock

        @tool(effect="pure")
        def count(self, item: str) -> int:
            """Count."""
            return self.stock[item]

        tools = [count]
        model = ScriptedModel([call("count", item="cup"), "done"])

    result = await Clerk({"cup": 5}, journal="memory").run("how many cups?")
    assert result.steps[0].observation == "5"
    other = Clerk({}, journal="memory", name="second", instructions="", model=ScriptedModel(["x"]))
    assert (other.name, other.instructions, Clerk.instructions, Clerk.name) == ("second", "", "Count.", "clerk")
    assert (await other.run("hi")).output == "x"


@pytest.mark.requirement("D3", "D4", "D21")
async def test_everything_can_be_set_on_the_class():
    seen, noted = [], []

    class Careful(BaseAgent):
        model = ScriptedModel(lambda request: seen.append(len(request.messages)) or "I see.")
        memory_window_size = 2
        guardrail = TokenGuard(10_000)
        trace_logger = staticmethod(noted.append)
        stops = max_steps(3)
        settings = {"temperature": 0}
        journal = "memory"

    class Other(Careful):
        memory_window_size = 0

    agent = Careful()
    for turn in range(4):
        await agent.run(f"turn {turn}", session_id="s")
    assert seen == [1, 3, 3, 3]
    assert agent.guardrail in agent.recipe.policies
    assert agent.recipe.settings == {"temperature": 0}
    assert [rule.bound.most for rule in agent.recipe.stops if rule.bound.kind == "max_steps"] == [3]
    assert noted
    assert Other().memory_window_size == 0


@pytest.mark.requirement("D16", "D20")
async def test_chunks_of_the_stream_in_the_documents_form():
    seen = [chunk async for chunk in Guide(name="MononoAgent", journal="memory").stream("3 + 4?", session_id="s")]
    for number, chunk in enumerate(seen, 1):
        assert list(chunk) == ["time", "agent", "type", "data", "seq"]
        assert (chunk["agent"], chunk["seq"]) == ("MononoAgent", number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", chunk["time"])
    by_type = {chunk["type"]: chunk["data"] for chunk in seen}
    assert by_type["delta"]["content"]
    assert by_type["tool_call"]["function"] == {"name": "add", "arguments": '{"a": 3, "b": 4}'}
    assert by_type["tool_response"]["tool_call_id"] == by_type["tool_call"]["id"]
    assert (by_type["tool_response"]["name"], by_type["tool_response"]["content_preview"]) == ("add", "7")
    assert {"prompt_tokens", "completion_tokens", "total_tokens"} <= set(by_type["usage"])


@pytest.mark.requirement("D16")
async def test_run_collects_a_stream_of_ones_own():
    class Loud(Guide):
        async def stream(self, user_input, session_id=None, **options):
            async for chunk in super().stream(user_input, session_id=session_id, **options):
                if chunk["type"] == "delta":
                    chunk = {**chunk, "data": {"content": chunk["data"]["content"].upper()}}
                yield chunk

    result = await Loud(journal="memory").run("3 + 4?", "s")
    assert (result.role, result.content) == ("assistant", "LET ME LOOK. THE SUM IS 7.")
    assert result.tool_calls[0]["function"]["name"] == "add"
    assert result.usage.total == 30


@pytest.mark.requirement("D16")
async def test_session_id_picks_the_session():
    agent = BaseAgent(ScriptedModel(lambda request: f"{len(request.messages)} so far"), journal="memory")
    assert (await agent.run("a", "s1")).output == "1 so far"
    assert (await agent.run("b", session_id="s1")).output == "3 so far"
    assert (await agent.run("c", session_id="s2")).output == "1 so far"


# 4.2 A tool call, from parsing to the model


@pytest.mark.requirement("D17")
@pytest.mark.parametrize("name", ["weather", "nowhere"])
@pytest.mark.parametrize("sent", ["{'city': 'K',}", '```json\n{"city": "K"}\n```', {"city": "K"}])
async def test_guard_never_sees_unparsed_arguments(name, sent):
    seen = []

    class Guard(Policy):
        async def tool(self, call, next, view):
            seen.append(call.args)
            return await next(call)

    model = ScriptedModel([ToolCall("", name, sent), "done"])
    await Agent(model, [weather], policies=[Guard()], journal="memory").run("go")
    assert seen == [{"city": "K", "days": 1} if name == "weather" else {"city": "K"}]


@pytest.mark.requirement("D17")
@pytest.mark.parametrize("name", ["weather", "nowhere"])
@pytest.mark.parametrize("sent", ["the city of Kyoto", "[1]", '{"city": '])
async def test_arguments_that_cannot_be_read_do_not_reach_the_guard(name, sent):
    class Guard(Policy):
        async def tool(self, call, next, view):
            raise AssertionError(call.args)

    model = ScriptedModel([ToolCall("", name, sent), "done"])
    result = await Agent(model, [weather], policies=[Guard()], journal="memory").run("go")
    assert ("there is no tool named" if name == "nowhere" else "arguments of weather") in result.steps[0].observation
    assert result.output == "done"


# 4.3 Handoff


def answering(name, text="done", **more):
    return BaseAgent(ScriptedModel(lambda request: text), name=name, journal="memory", **more)


@pytest.mark.requirement("D18")
async def test_handoff_by_a_program_streams_the_targets_chunks_and_comes_back():
    returned = []

    class Lead(BaseAgent):
        model = ScriptedModel(lambda request: "lead")

        async def on_handoff_return(self, target, result):
            returned.append((target, result.content))

    lead, target = Lead(journal="memory"), answering("target_agent_name", "text from target")
    seen = await chunks(lead.handoff(target, "do it", session_id="s"))
    assert {chunk["agent"] for chunk in seen} == {"target_agent_name"}
    assert "".join(one["data"]["content"] for one in seen if one["type"] == "delta") == "text from target"
    assert [chunk["seq"] for chunk in seen] == [*range(1, len(seen) + 1)]
    assert returned == [("target_agent_name", "text from target")]
    assert (await lead.handoff(target, [{"role": "user", "content": "again"}])).content == "text from target"
    assert (await lead.handoff(Agent(adding(), [add], journal="memory"), "3 + 4?")).content == "the sum is 7"
    with pytest.raises(ConfigError):
        lead.handoff("target", "do it")


@pytest.mark.requirement("D18")
async def test_handoff_that_fails_comes_back_with_the_error():
    class Lead(BaseAgent):
        def on_handoff_return(self, target, result):
            return "somebody else did it" if isinstance(result, ModelError) and result_stands_in else None

    broken = BaseAgent(ScriptedModel([ModelError("gone")]), name="broken", journal="memory")
    result_stands_in = False
    lead = Lead(ScriptedModel([]), journal="memory")
    seen = await chunks(lead.handoff(broken, "go"))
    assert [chunk["type"] for chunk in seen].count("error") == 1
    with pytest.raises(ModelError, match="gone"):
        await lead.handoff(broken, "go")
    result_stands_in = True
    assert await lead.handoff(broken, "go") == "somebody else did it"


class Passing(BaseAgent):
    """Hands everything on to `self.to`, in its own `stream`."""

    model = ScriptedModel(lambda request: "at the end")
    to: Any = None

    async def stream(self, user_input, session_id=None, **options):
        chunks_of = super().stream(user_input) if self.to is None else self.handoff(self.to, user_input)
        async for chunk in chunks_of:
            yield chunk


@pytest.mark.requirement("D18")
async def test_handoffs_of_programs_are_limited_in_depth_and_refused_in_a_circle():
    def chain(length):
        agents = [Passing(name=f"a{number}", journal="memory") for number in range(length)]
        for one, following in pairwise(agents):
            one.to = following
        return agents

    assert (await chain(MAX_HANDOFF_DEPTH + 1)[0].run("go")).content == "at the end"
    too_long = chain(MAX_HANDOFF_DEPTH + 2)
    (error,) = await chunks(too_long[0].stream("go"))
    assert (error["type"], error["data"]["type"], error["agent"]) == ("error", "HandoffRefused", "a5")
    assert "handed over 5 times" in error["data"]["message"]
    circle = chain(3)
    circle[-1].to = circle[0]
    (error,) = await chunks(circle[0].stream("go"))
    assert "a0 has already worked on this (a0 → a1 → a2 → a0)" in error["data"]["message"]


@pytest.mark.requirement("D18")
async def test_on_handoff_return_of_a_subclass_is_called_after_delegation_and_after_transfer():
    returned = []

    class Lead(BaseAgent):
        def on_handoff_return(self, target, result):
            returned.append((target, result.output))

    for script in (
        [call("delegate_to_agent", agent="expert", task="do it"), "the expert did it"],
        [call("transfer_to_agent", agent="expert", reason="it knows")],
    ):
        lead = Lead(ScriptedModel(script), team=[answering("expert")], journal="memory")
        await lead.run("go")
    assert returned == [("expert", "done"), ("expert", "done")]
