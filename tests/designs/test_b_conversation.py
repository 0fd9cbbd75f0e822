"""Design B: the conversation lives on the agent; it moves with the run, and nothing that is put into it is lost."""

import asyncio
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from kaname import Agent, AgentConnectionError, ConfigError, SessionBusy, tool
from kaname.designs import LLMConfig, OpenAIConfig, TinyAgent, YgentsConfig
from kaname.models.providers.scripted import ScriptedModel, call
from kaname.testing import WireServer
from kaname.testing.wire import reply
from tests.parts import Later, add

fastmcp = Later("fastmcp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def reading():
    """A model that tells how many messages it was sent."""
    return ScriptedModel(lambda request: f"I have read {len(request.messages)} messages")


def roles(messages):
    return [message["role"] for message in messages]


@pytest.mark.requirement("B3")
async def test_the_conversation_of_a_tiny_agent_lives_outside_async_with_too():
    agent = TinyAgent(reading(), journal="memory")
    assert agent.messages == []
    assert (await agent.run("one")).text == "I have read 1 messages"
    async with agent:
        assert (await agent.run("two")).text == "I have read 3 messages"
    assert roles(agent.messages) == ["user", "assistant"] * 2
    async with agent:
        assert (await agent.run("three")).text == "I have read 5 messages", "entering again does not forget"
    agent.messages.clear()
    assert (await agent.run("four")).text == "I have read 1 messages"
    assert (await agent.run("five")).text == "I have read 3 messages"
    assert [message["content"] for message in agent.messages][::2] == ["four", "five"]
    plain = Agent(reading(), journal="memory")
    await plain.run("one")
    assert (await plain.run("two")).text == "I have read 1 messages", "a plain agent keeps its rule"
    assert plain.messages == []


@pytest.mark.requirement("B3")
async def test_messages_move_with_the_run_and_what_is_added_meanwhile_stays():
    script = [[call("add", a=1, b=2), call("add", a=3, b=4)], "done", "next"]
    sent = []

    def model(request):
        sent.append([message.role for message in request.messages])
        return script.pop(0)

    async with TinyAgent(ScriptedModel(model), [add], journal="memory") as agent:
        first, results = agent.messages, 0
        async for chunk in agent.run("go"):
            assert roles(agent.messages)[:1] == ["user"]
            results += chunk["type"] == "tool_result"
            if results == 2:
                assert roles(agent.messages)[:4] == ["user", "assistant", "tool", "tool"]
                agent.messages.append({"role": "user", "content": "also"})
                results += 1
        assert agent.messages is first
        assert [message["content"] for message in first].count("also") == 1
        assert sorted(roles(first)) == ["assistant", "assistant", "tool", "tool", "user", "user"]
        await agent.run("more")
        assert sorted(sent[-1]) == ["assistant", "assistant", "tool", "tool", "user", "user", "user"], "the next run has it"
        assert agent.messages[-1] == {"role": "assistant", "content": "next"}
        assert len(agent.messages) == 8


@pytest.mark.requirement("B3")
async def test_runs_of_one_conversation_take_turns():
    inner = []

    @tool
    async def nest() -> str:
        """Ask the same agent."""
        inner.append((await agent.run("inner")).text)
        return "asked"

    def model(request):
        return call("nest") if request.messages[-1].text == "nest" else f"{len(request.messages)}"

    async with TinyAgent(ScriptedModel(model, pace=0.01), [nest], journal="memory") as agent:
        done = await asyncio.gather(*[agent.run(text) for text in "abc"])
        assert sorted(result.text for result in done) == ["1", "3", "5"]
        assert roles(agent.messages) == ["user", "assistant"] * 3
        running = asyncio.ensure_future(agent.run("d").run.wait())
        await asyncio.sleep(0)
        with pytest.raises(SessionBusy):
            while not running.done():
                await asyncio.sleep(0)
                await agent.run("e", when_busy="refuse")
        await running
        async with asyncio.timeout(60):
            assert (await agent.run("nest")).completed, "a tool of the run does not wait for it"
        assert len(inner) == 1


@pytest.mark.requirement("B3")
async def test_a_single_turn_of_another_list_leaves_the_conversation_alone():
    replies = iter(["hello Bob", call("add", a=1, b=2), "3", "Bob"])
    async with TinyAgent(ScriptedModel(lambda request: next(replies)), [add], journal="memory") as agent:
        await agent.run("I am Bob")
        before, given = list(agent.messages), {"role": "user", "content": "1 + 2?", "name": "x"}
        other = [given]
        await agent.process_single_turn_with_tools(other)
        ids = [made["id"] for made in other[1]["tool_calls"]]
        await agent.process_single_turn_with_tools(other)
        assert roles(other) == ["user", "assistant", "tool", "assistant"]
        assert other[0] is given, "it is extended, and not made anew"
        assert [made["id"] for made in other[1]["tool_calls"]] == ids
        assert agent.messages == before
        assert (await agent.run("who am I?")).text == "Bob"
        assert len(agent.messages) == 4


@pytest.mark.requirement("B3")
async def test_calls_keep_their_ids_from_turn_to_turn_and_no_two_have_the_same():
    made = [call("add", a=1, b=2)]
    async with TinyAgent(ScriptedModel([made, made, "six", made, "seven"]), [add], journal="memory") as agent:
        agent.messages.append({"role": "user", "content": "go"})
        seen = []
        for _ in range(2):
            await agent.process_single_turn_with_tools(agent.messages)
            ids = [one["id"] for message in agent.messages for one in message.get("tool_calls", ())]
            assert ids[: len(seen)] == seen
            seen = ids
        await agent.process_single_turn_with_tools(agent.messages)
        agent.messages.append({"role": "user", "content": "again"})
        await agent.run("go on")
        ids = [one["id"] for message in agent.messages for one in message.get("tool_calls", ())]
        assert ids[:2] == seen
        assert len(set(ids)) == 3
        twice = [*agent.messages, *agent.messages]
        agent.messages = twice
        agent.recipe = agent.recipe.with_changes(model=ScriptedModel(lambda request: "ok"))
        await agent.run("?")
        ids = [one["id"] for message in agent.messages for one in message.get("tool_calls", ())]
        assert len(set(ids)) == len(ids) == 6


@pytest.mark.requirement("B9")
@pytest.mark.parametrize("place", ["memory", "file"])
async def test_an_abort_before_the_start_keeps_the_users_message(place, tmp_path):
    event = asyncio.Event()
    event.set()
    journal = "memory" if place == "memory" else tmp_path / "journal.db"
    async with TinyAgent(reading(), journal=journal) as agent:
        seen = [chunk async for chunk in agent.run("remember me", event)]
        assert seen[-1]["type"] == "status"
        assert agent.messages == [{"role": "user", "content": "remember me"}]
        assert (await agent.run("two")).text == "I have read 2 messages"


@pytest.mark.requirement("B3", "B9")
async def test_a_run_can_be_closed_like_a_generator():
    async with TinyAgent(ScriptedModel(lambda request: "x" * 80_000, pace=0.005), journal="memory") as agent:
        async with asyncio.timeout(60), aclosing(agent.run("go")) as chunks:
            async for _ in chunks:
                break
        assert (await chunks).stop.kind == "cancelled"
        await agent.run("never begun").aclose()


@pytest.mark.requirement("B3", "B6")
@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("process_single_turn_with_tools", "agent.steps"),
        ("_is_problem_solved", "stops=.*termination_policy="),
        ("_execute_tool_calls", "policies="),
        ("_get_model_name", "LLMConfig"),
        ("_get_llm_params", "temperature="),
        ("_get_tools_schema", "tools="),
        ("_mcp_client", "mcp_servers="),
    ],
)
def test_what_would_not_be_called_is_refused(name, instead):
    with pytest.raises(ConfigError, match=f"Mine.{name} has no effect.*{instead}"):
        type("Mine", (TinyAgent,), {name: lambda self, *given: None})
    with pytest.raises(ConfigError, match=f"TinyAgent.{name} has no effect.*{instead}"):
        setattr(TinyAgent(reading(), journal="memory"), name, None)


@pytest.mark.requirement("B10")
async def test_a_configuration_by_its_name_and_by_its_shape():
    async with WireServer([reply("hi")] * 5) as server:
        block = {"api_key": "k", "model": "gpt-4", "base_url": server.url}
        shapes = [
            YgentsConfig(LLMConfig("openai", openai=OpenAIConfig(**block))),
            {"llm": {"provider": "openai", "openai": block}, "mcp_servers": {}},
            SimpleNamespace(llm=LLMConfig("openai", openai=block), mcp_servers={}),
            SimpleNamespace(
                llm=SimpleNamespace(provider="openai", openai=SimpleNamespace(**block), claude=None, temperature=None),
                mcp_servers=None,
            ),
        ]
        for config in shapes:
            async with TinyAgent(config=config, journal="memory") as agent:
                await agent.run("hello")
                assert (agent.config.llm.openai.model, agent.config.mcp_servers) == ("gpt-4", {})
    assert [sent.get("temperature") for sent in server.requests] == [0.7, 0.7, 0.7, None]
    with pytest.raises(ConfigError, match="not both"):
        TinyAgent("openai/gpt-4", config=shapes[0])
    with pytest.raises(ConfigError, match=r"llm.provider: unknown provider 'opnai'"):
        TinyAgent({"llm": {"provider": "opnai"}})


@pytest.mark.requirement("B8", "B12")
async def test_every_kind_of_server_is_required_and_a_client_is_one():
    server = fastmcp.FastMCP(name="Weather")

    @server.tool()
    def get_weather(city: str) -> str:
        """Get weather for a city"""
        return f"Sunny in {city}"

    model = ScriptedModel([call("get_weather", city="Oslo"), "Sunny."])
    async with TinyAgent(model, mcp_servers={"weather": fastmcp.Client(server)}, journal="memory") as agent:
        seen = [chunk async for chunk in agent.run("Oslo?")]
    assert [chunk["result"] for chunk in seen if chunk["type"] == "tool_result"] == ["Sunny in Oslo"]
    for gone in (object(), "/nonexistent/server --now", {"command": "/nonexistent/server"}):
        with pytest.raises(AgentConnectionError, match="gone"):
            async with TinyAgent(reading(), mcp_servers={"gone": gone}, journal="memory"):
                pass
