"""Design B as its document is written: its examples, in its order, with its names.

The model is a real OpenAI-compatible server (WireServer), the tool server a real FastMCP server in this process.
"""

import asyncio
from unittest.mock import MagicMock, patch

import pytest

from kaname import ConfigError, call
from kaname.designs.tiny_agent import (
    Agent,
    AgentConnectionError,
    AgentError,
    LLMConfig,
    OpenAIConfig,
    YgentsConfig,
    load_config,
)
from kaname.testing import WireServer
from kaname.testing.wire import reply
from tests.parts import Later

fastmcp = Later("fastmcp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def config_for(server, mcp_servers=None):
    return YgentsConfig(
        llm=LLMConfig(provider="openai", openai=OpenAIConfig(api_key="test-key", model="gpt-4", base_url=server.url)),
        mcp_servers=mcp_servers or {},
    )


def inmemory_mcp_server():
    server = fastmcp.FastMCP(name="TestServer")

    @server.tool()
    def get_weather(city: str) -> str:
        """Get weather for a city"""
        return f"Weather in {city}: Sunny, 25°C"

    @server.tool()
    def calculate(operation: str, a: float, b: float) -> float:
        """Perform basic math operations"""
        if operation == "add":
            return a + b
        if operation == "divide" and b == 0:
            raise ValueError("Division by zero")
        raise ValueError(f"Unknown operation: {operation}")

    @server.resource("file://test/data")
    def get_test_data() -> str:
        """Test data resource"""
        return "This is test data"

    return server


def display_chunk(chunk, out):
    """The document's helper, with a list in the place of print."""
    if chunk.get("type") == "content":
        out.append(chunk["content"])
    elif chunk.get("type") == "tool_input":
        out.append(f"\n🔧 ツール実行: {chunk['tool_name']}")
        out.append(f"   引数: {chunk['arguments']}")
    elif chunk.get("type") == "tool_result":
        out.append(f"✅ 結果: {chunk['result']}")
    elif chunk.get("type") == "error":
        out.append(f"❌ エラー: {chunk['content']}")


@pytest.mark.requirement("B1", "B2", "B3", "B4", "B10", "B12")
async def test_basic_use(tmp_path):
    """基本的な使用パターン: load_config, async with Agent(config), available_tools, run with an abort_event."""
    async with WireServer([reply("東京を調べます", [("get_weather", {"city": "Tokyo"})]), reply("晴れです")]) as server:
        (tmp_path / "config.yaml").write_text(
            f"llm:\n  provider: openai\n  openai: {{model: gpt-4, api_key: k, base_url: {server.url}}}\n"
        )
        config = load_config(tmp_path / "config.yaml")
        out, abort_event = [], asyncio.Event()
        async with Agent(config, mcp_servers={"test_server": inmemory_mcp_server()}, journal="memory") as agent:
            await agent._cache_available_tools()
            names = [tool.get("name", "Unknown") for tool in agent.available_tools]
            assert names == ["get_weather", "calculate"]
            async for chunk in agent.run("What's the weather in Tokyo?", abort_event=abort_event):
                display_chunk(chunk, out)
            assert agent.config is config
            assert agent.config.llm.provider == "openai"
            assert agent.config.llm.openai.model == "gpt-4"
    shown = "".join(out)
    assert shown.startswith("東京を調べます")
    assert shown.endswith("晴れです")
    assert "🔧 ツール実行: get_weather   引数: {'city': 'Tokyo'}✅ 結果: Weather in Tokyo: Sunny, 25°C" in shown
    sent = server.requests[0]
    assert (sent["model"], sent["temperature"], sent["max_tokens"], sent["stream"]) == ("gpt-4", 0.7, 1000, True)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["get_weather", "calculate"]


@pytest.mark.requirement("B3", "B4", "B10")
async def test_simple_completion_flow():
    async with WireServer([reply("Hello world!")]) as server, Agent(config_for(server), journal="memory") as agent:
        assert agent.messages == []
        results = [chunk async for chunk in agent.run("Hello")]
        content_chunks = [c for c in results if c.get("type") == "content"]
        assert len(content_chunks) > 0
        assert "Hello world!" in "".join(c["content"] for c in content_chunks)
        assert agent.messages == [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hello world!"},
        ]
    assert server.headers[0]["authorization"] == "Bearer test-key"


@pytest.mark.requirement("B3", "B4", "B5", "B12")
async def test_tool_execution_flow():
    calls = [("get_weather", {"city": "Tokyo"}), ("calculate", {"operation": "divide", "a": 1, "b": 0})]
    async with WireServer([reply("", calls), reply("Sunny, and not divisible.")]) as server:
        config = config_for(server, {"test_server": inmemory_mcp_server()})
        async with Agent(config, journal="memory") as agent:
            results = [chunk async for chunk in agent.run("What's the weather in Tokyo?")]
            tool_inputs = [c for c in results if c.get("type") == "tool_input"]
            tool_results = [c for c in results if c.get("type") == "tool_result"]
            tool_errors = [c for c in results if c.get("type") == "tool_error"]
            weather_calls = [t for t in tool_inputs if t.get("tool_name") == "get_weather"]
            assert weather_calls[0]["arguments"]["city"] == "Tokyo"
            assert [c["result"] for c in tool_results] == ["Weather in Tokyo: Sunny, 25°C"]
            assert ["Division by zero" in c["content"] for c in tool_errors] == [True]
            roles = [message["role"] for message in agent.messages]
            assert roles == ["user", "assistant", "tool", "tool", "assistant"]
            assert all("content" in chunk for chunk in results), "on every chunk"


@pytest.mark.requirement("B1", "B12")
async def test_client_of_an_in_memory_server_is_injected_as_the_documents_test_does():
    """`test_tool_execution_flow` of the document, line by line: only the provider is a real server in the place of a mock."""
    inmemory_mcp_client = fastmcp.Client(inmemory_mcp_server())
    async with WireServer([reply("I'll check", [("get_weather", {"city": "Tokyo"})]), reply("Sunny.")]) as server:
        config = config_for(server, {"test_server": {}})
        async with Agent(config) as agent:
            agent._mcp_client = inmemory_mcp_client
            agent._mcp_client_connected = True
            async with inmemory_mcp_client:
                results = [chunk async for chunk in agent.run("What's the weather in Tokyo?")]
                tool_inputs = [c for c in results if c.get("type") == "tool_input"]
                tool_results = [c for c in results if c.get("type") == "tool_result"]
                assert len(tool_results) > 0
                weather_calls = [t for t in tool_inputs if t.get("tool_name") == "get_weather"]
                assert weather_calls[0]["arguments"]["city"] == "Tokyo"
            assert [tool.get("name") for tool in agent.available_tools] == ["get_weather", "calculate"]
    sent = server.requests[0]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["get_weather", "calculate"]
    assert type(agent.recipe.model).__name__ == "LiteLLM", "the document calls litellm.acompletion"


@pytest.mark.requirement("B8", "B12")
async def test_server_whose_client_was_never_set_is_reported_and_a_client_without_a_place_is_refused():
    async with WireServer([reply("Hello."), reply("Hello.")]) as server:
        async with Agent(config_for(server, {"test_server": {}}), journal="memory") as agent:
            results = [chunk async for chunk in agent.run("Hello")]
        assert "test_server" in str([c["content"] for c in results if c["type"] == "status"])
        async with Agent(config_for(server), journal="memory") as agent:
            with pytest.raises(ConfigError, match="mcp_servers="):
                agent._mcp_client = fastmcp.Client(inmemory_mcp_server())


@pytest.mark.requirement("B3", "B4")
async def test_process_single_turn_with_tools():
    """The document's loop, driven by its caller: one completion and its tools at a time."""
    async with WireServer([reply("", [("get_weather", {"city": "Oslo"})]), reply("Sunny in Oslo.")]) as server:
        config = config_for(server, {"t": inmemory_mcp_server()})
        async with Agent(config, journal="memory") as agent:
            agent.messages.append({"role": "user", "content": "Oslo?"})
            first = [chunk["type"] async for chunk in agent.process_single_turn_with_tools(agent.messages)]
            assert "tool_result" in first
            assert "content" not in first
            assert [message["role"] for message in agent.messages] == ["user", "assistant", "tool"]
            assert len(server.requests) == 1
            async for _ in agent.process_single_turn_with_tools(agent.messages):
                pass
            assert agent.messages[-1] == {"role": "assistant", "content": "Sunny in Oslo."}
    assert server.requests[1]["messages"][-1]["content"] == "Weather in Oslo: Sunny, 25°C"


@pytest.mark.requirement("B12")
async def test_inmemory_server_tools():
    async with fastmcp.Client(inmemory_mcp_server()) as client:
        tool_names = [tool.name for tool in await client.list_tools()]
        assert {"get_weather", "calculate"} <= set(tool_names)
        assert "Sunny" in str(await client.call_tool("get_weather", {"city": "Tokyo"}))


@pytest.mark.requirement("B8", "B9")
async def test_error_handling_and_abort_event():
    assert issubclass(AgentConnectionError, AgentError)
    async with WireServer([]) as server:
        gone = YgentsConfig(
            llm=LLMConfig(provider="openai", openai=OpenAIConfig(api_key="k", model="gpt-4", base_url=server.url)),
            mcp_servers={"files": {"command": "/nonexistent/server"}},
        )
        with pytest.raises(AgentConnectionError, match="files"):
            async with Agent(gone, journal="memory"):
                pass
        seen = []
        with pytest.raises(AgentConnectionError):
            async for chunk in Agent(gone, journal="memory").run("?"):
                seen.append(chunk)
        assert [chunk["type"] for chunk in seen] == ["error"]
        assert seen[0]["content"].startswith("ツールサーバー接続エラー: ")
    abort_event = asyncio.Event()
    abort_event.set()
    async with Agent(_never(), journal="memory") as agent:
        seen = [chunk async for chunk in agent.run("?", abort_event)]
    assert (seen[-1]["type"], seen[-1]["content"]) == ("status", "処理が中断されました")


def _never():
    from kaname import ScriptedModel

    return ScriptedModel([call("nothing"), "never"], pace=1)


# The document's own tests: they patch `litellm.acompletion`, and no provider is called


def piece(content=None, tool_calls=None):
    return MagicMock(choices=[MagicMock(delta=MagicMock(content=content, tool_calls=tool_calls))])


CONFIG = {"llm": LLMConfig(provider="openai", openai=OpenAIConfig(api_key="test-key", model="gpt-4"))}


@pytest.mark.requirement("B1", "B3")
async def test_simple_completion_flow_with_litellm_patched():
    async def mock_acompletion(*args, **kwargs):
        for content in ("Hello", " world", "!"):
            yield piece(content)

    with patch("litellm.acompletion", side_effect=mock_acompletion) as asked:
        async with Agent(YgentsConfig(**CONFIG), journal="memory") as agent:
            results = [chunk async for chunk in agent.run("Hello")]
    assert "".join(c["content"] for c in results if c.get("type") == "content") == "Hello world!"
    given = asked.call_args.kwargs
    assert (given["model"], given["api_key"], given["temperature"], given["max_tokens"], given["stream"]) == (
        "openai/gpt-4",
        "test-key",
        0.7,
        1000,
        True,
    )


@pytest.mark.requirement("B1", "B5")
async def test_tool_execution_flow_with_litellm_patched():
    async def mock_acompletion(*args, **kwargs):
        yield piece("I'll check the weather")
        call = {"id": "tool_call_1", "function": {"name": "get_weather", "arguments": {"city": "Tokyo"}}}
        yield piece(tool_calls=[call])

    with patch("litellm.acompletion", side_effect=mock_acompletion):
        async with Agent(YgentsConfig(**CONFIG, mcp_servers={"test_server": inmemory_mcp_server()}), journal="memory") as agent:
            results = [chunk async for chunk in agent.run("What's the weather in Tokyo?")]
    tool_inputs = [c for c in results if c.get("type") == "tool_input"]
    tool_results = [c for c in results if c.get("type") == "tool_result"]
    assert len(tool_results) > 0
    weather_calls = [t for t in tool_inputs if t.get("tool_name") == "get_weather"]
    assert weather_calls[0]["arguments"]["city"] == "Tokyo"


@pytest.mark.requirement("B8")
async def test_tool_that_fails_is_reported_in_the_documents_words():
    broken = {"operation": "divide", "a": 1, "b": 0}
    async with (
        WireServer([reply(calls=[("calculate", broken)]), reply("It cannot be divided.")]) as server,
        Agent(config_for(server, {"test_server": inmemory_mcp_server()}), journal="memory") as agent,
    ):
        results = [chunk async for chunk in agent.run("1 / 0?")]
    (failed,) = [chunk for chunk in results if chunk["type"] == "tool_error"]
    assert failed["content"].startswith("ツール実行エラー (calculate): ")
    assert "Division by zero" in failed["content"]
