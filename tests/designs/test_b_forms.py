"""Design B: messages that are changed, chunks and their content, failures by kind, the configuration made in code."""

import asyncio
import json
import time

import pytest

from kaname import (
    Agent,
    AgentConnectionError,
    AgentError,
    ClaudeConfig,
    ConfigError,
    LLMConfig,
    ModelError,
    OpenAIConfig,
    load_config,
    tool,
)
from kaname.core.errors import UnexpectedError
from kaname.designs import TinyAgent, YgentsConfig
from kaname.models.providers.scripted import ScriptedModel, call
from kaname.testing import WireServer
from kaname.testing.wire import Answer, reply
from tests.parts import add, assert_valid_history, chunks, fail

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def reading():
    """A model that tells how many messages it was sent."""
    return ScriptedModel(lambda request: f"I have read {len(request.messages)} messages")


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("kind", [Agent, TinyAgent])
async def test_messages_can_be_cleared_set_and_added_to(kind):
    async with kind(reading(), journal="memory") as agent:
        assert (await agent.run("one")).text == "I have read 1 messages"
        kept = agent.messages
        assert (await agent.run("two")).text == "I have read 3 messages"
        assert len(kept) == 4, "the list that was read follows the conversation"
        agent.messages.clear()
        assert (await agent.run("three")).text == "I have read 1 messages"
        assert [message["content"] for message in agent.messages] == ["three", "I have read 1 messages"]
        agent.messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        assert (await agent.run("four")).text == "I have read 3 messages"
        assert [message["content"] for message in agent.messages] == ["hi", "hello", "four", "I have read 3 messages"]
        agent.messages[0]["content"] = "good day"
        assert (await agent.run("five")).text == "I have read 5 messages"
        assert agent.messages[0]["content"] == "good day"
        del agent.messages[-2:]
        assert (await agent.run("six")).text == "I have read 5 messages"


@pytest.mark.requirement("B3")
async def test_messages_set_before_the_agent_is_opened_are_the_beginning():
    agent = Agent(reading(), journal="memory")
    agent.messages = [{"role": "system", "content": "Be brief."}]
    async with agent:
        assert (await agent.run("one")).text == "I have read 2 messages"
        assert agent.messages[0] == {"role": "system", "content": "Be brief."}
    async with agent:
        assert (await agent.run("one")).text == "I have read 1 messages", "a new conversation"


@pytest.mark.requirement("B3")
async def test_messages_that_cannot_be_continued_are_refused():
    made = {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    async with Agent(reading(), journal="memory") as agent:
        with pytest.raises(ConfigError, match="must follow directly after the call"):
            agent.messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [made]}]
        agent.messages.append({"role": "tool", "tool_call_id": "x", "content": "1"})
        with pytest.raises(ConfigError, match="must follow directly after the call"):
            await agent.run("?")


@pytest.mark.requirement("B3")
async def test_a_single_turn_asks_once_and_runs_its_tools():
    script = [[call("add", a=1, b=2), call("add", a=3, b=4)], call("add", a=5, b=6), "done"]
    async with Agent(ScriptedModel(script), [add], journal="memory") as agent:
        messages = [{"role": "user", "content": "go"}]
        await agent.process_single_turn_with_tools(messages)
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
        assert agent.messages == [], "another list is not the agent's conversation"
        await agent.process_single_turn_with_tools(messages)
        result = await agent.process_single_turn_with_tools(messages)
        assert (result.output, messages[-1]["content"]) == ("done", "done")
        assert_valid_history(result.history)
        ids = [made["id"] for message in messages for made in message.get("tool_calls", ())]
        assert len(set(ids)) == 3, "no two calls have the same id"

    class Own:
        def next(self, state):
            raise AssertionError

    with pytest.raises(ConfigError, match="a single turn needs"):
        Agent(ScriptedModel([]), strategy=Own(), journal="memory").process_single_turn_with_tools([])


@pytest.mark.requirement("B4")
async def test_every_chunk_has_content():
    script = [["let me see", call("add", a=3, b=4), call("fail", why="no paper")], "the sum is 7"]
    seen = await chunks(Agent(ScriptedModel(script), [add, fail], journal="memory").run("go"))
    assert all(chunk["content"] not in (None, "") and "content" in chunk for chunk in seen), seen
    by_type = {chunk.type: chunk["content"] for chunk in seen}
    assert by_type["tool_call"] == {"why": "no paper"}
    assert seen[-1]["content"] == "completed"
    failed = Agent(ScriptedModel([ModelError("down")]), journal="memory").run("go")
    seen = []
    with pytest.raises(ModelError):
        async for chunk in failed:
            seen.append(chunk)
    assert seen[-1]["content"] == seen[-1]["message"] != ""


class Boom(ScriptedModel):
    def __init__(self):
        super().__init__([])

    async def reply(self, request, emit):
        return {}["nothing"]


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("model", "error", "told"),
    [
        (ScriptedModel([ModelError("the provider is down")]), ModelError, "LLM API エラー: "),
        (ScriptedModel([AgentConnectionError("no MCP server")]), AgentConnectionError, "ツールサーバー接続エラー: "),
        (None, AgentError, "エージェントエラー: "),
        (Boom(), UnexpectedError, "予期しないエラー: "),
    ],
)
async def test_each_kind_of_failure_has_an_error_chunk_of_its_own(model, error, told):
    seen = []
    with pytest.raises(error):
        async for chunk in TinyAgent(model, journal="memory").run("go"):
            seen.append(chunk)
    errors = [chunk for chunk in seen if chunk["type"] == "error"]
    assert [chunk["content"].startswith(told) for chunk in errors] == [True]
    assert issubclass(getattr(__import__("kaname.core.errors").core.errors, errors[0]["error"]), error)


@pytest.mark.requirement("B8")
async def test_a_server_that_cannot_be_reached_is_reported_to_the_caller_of_a_plain_agent():
    async with Agent(ScriptedModel(["hi"]), mcp_servers={"gone": {"command": "/nonexistent/x"}}, journal="memory") as agent:
        seen = [chunk async for chunk in agent.run("go")]
    (warning,) = [chunk for chunk in seen if chunk.get("status") == "warning"]
    assert (warning["source"], "gone" in warning["content"]) == ("mcp", True)
    optional = {"gone": {"command": "/nonexistent/x", "required": False}}
    async with TinyAgent(ScriptedModel(["hi"]), mcp_servers=optional, journal="memory") as agent:
        seen = [chunk async for chunk in agent.run("go")]
    assert ["gone" in chunk["content"] for chunk in seen if chunk["type"] == "status"] == [True]


@pytest.mark.requirement("B9")
async def test_a_tiny_agent_is_aborted_inside_a_stream_and_says_so():
    event = asyncio.Event()
    async with TinyAgent(ScriptedModel(lambda request: "x" * 80_000, pace=0.005), journal="memory") as agent:
        async with asyncio.timeout(60):
            async for chunk in agent.run("go", event):
                last = chunk
                if chunk["type"] == "content":
                    event.set()
        assert (last["type"], last["content"]) == ("status", "処理が中断されました")


@pytest.mark.requirement("B10")
@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("", {"temperature": 0.7, "max_tokens": 1000}),
        ("  temperature: 0.2\n  max_tokens: 50\n", {"temperature": 0.2, "max_tokens": 50}),
        ("  temperature: null\n  max_tokens: null\n", {}),
        ("  temperature: ${HEAT}\n", {"temperature": 0.5, "max_tokens": 1000}),
    ],
)
async def test_temperature_and_max_tokens_of_the_file_are_sent(tmp_path, monkeypatch, said, sent):
    monkeypatch.setenv("HEAT", "0.5")
    async with WireServer([reply("hello")]) as server:
        (tmp_path / "config.yaml").write_text(
            f"llm:\n  provider: openai\n{said}  openai: {{model: gpt-4, api_key: k, base_url: {server.url}}}\n"
        )
        async with Agent(load_config(tmp_path / "config.yaml"), journal="memory") as agent:
            await agent.run("hi")
    assert {name: server.requests[0][name] for name in ("temperature", "max_tokens") if name in server.requests[0]} == sent


@pytest.mark.requirement("B10")
async def test_a_providers_own_settings_go_over_the_short_forms_defaults(tmp_path):
    async with WireServer([reply("hello")]) as server:
        block = OpenAIConfig(api_key="k", model="gpt-4", base_url=server.url, settings={"temperature": 0})
        async with Agent(YgentsConfig(LLMConfig("openai", openai=block)), journal="memory") as agent:
            await agent.run("hi")
            assert (agent.config.llm.openai.settings, agent.config.mcp_servers) == ({"temperature": 0}, {})
    assert (server.requests[0]["temperature"], server.requests[0]["max_tokens"]) == (0, 1000)


@pytest.mark.requirement("B10")
def test_the_configuration_made_in_code_is_checked_like_the_file():
    claude = YgentsConfig(LLMConfig("claude", claude=ClaudeConfig(api_key="secret-key", model="claude-sonnet-4")))
    assert Agent(claude, journal="memory").recipe.model.name == "anthropic/claude-sonnet-4"
    assert "secret-key" not in repr(claude.llm) + repr(claude.llm.claude)
    with pytest.raises(ConfigError) as caught:
        YgentsConfig(LLMConfig("opnai", temperature="hot"), {"files": {"args": []}})
    for told in ("llm.provider: unknown provider 'opnai'; did you mean 'openai'", "llm.temperature", "mcp_servers.files"):
        assert told in str(caught.value)
    with pytest.raises(ConfigError, match="'model' is missing"):
        YgentsConfig(LLMConfig("openai", openai=OpenAIConfig(api_key="k")))
    with pytest.raises(ConfigError, match="openai must be of type OpenAIConfig or a mapping"):
        LLMConfig("openai", openai="gpt-4")
    assert Agent(ScriptedModel([]), journal="memory").config is None


@pytest.mark.requirement("B9")
async def test_an_abort_takes_moments_inside_a_stream_and_inside_a_tool():
    @tool
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "late"

    async def seconds_to_stop(script, until):
        event = asyncio.Event()
        began = 0.0
        async for chunk in Agent(ScriptedModel(script, pace=0.005), [nap], journal="memory").run("go", abort_event=event):
            if not event.is_set() and until(chunk):
                began = time.perf_counter()
                event.set()
        return time.perf_counter() - began

    for script, until in (
        (["x" * 80_000], lambda chunk: chunk.type == "delta"),
        ([call("nap")], lambda chunk: chunk.get("status") == "tool_started"),
    ):
        took = [await seconds_to_stop(list(script), until) for _ in range(3)]
        assert min(took) < 2, "the fastest of three: the machine may be busy; benchmarks/kernel.py has the figure"


@pytest.mark.requirement("B4")
async def test_fragments_of_several_calls_are_joined_by_their_index():
    def piece(index, **function):
        return {
            "index": index,
            **({"id": f"call_{index}", "type": "function"} if "name" in function else {}),
            "function": function,
        }

    pieces = [
        [piece(0, name="add", arguments='{"a": 1,')],
        [piece(1, name="add", arguments='{"a": 10,')],
        [piece(0, arguments=' "b": 2}')],
        [piece(1, arguments=' "b": 20}')],
    ]
    lines = [{"choices": [{"index": 0, "delta": {"tool_calls": one}}]} for one in pieces]
    lines.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    events = (*[json.dumps(line).encode() for line in lines], b"[DONE]")
    async with WireServer([Answer(events), reply("33")]) as server:
        block = OpenAIConfig(api_key="k", model="gpt-4", base_url=server.url)
        async with TinyAgent(YgentsConfig(LLMConfig("openai", openai=block)), [add], journal="memory") as agent:
            seen = [chunk async for chunk in agent.run("go")]
    assert [chunk["arguments"] for chunk in seen if chunk["type"] == "tool_input"] == [{"a": 1, "b": 2}, {"a": 10, "b": 20}]
    assert [chunk["result"] for chunk in seen if chunk["type"] == "tool_result"] == [3, 30]
