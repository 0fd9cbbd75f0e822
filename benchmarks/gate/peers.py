"""Other agent frameworks with the tools and instructions of the gate, each in an environment of its own.

The loop by hand and kaname are in `agents.py`. A framework is imported where it is used: only its own environment has it. This
file imports little itself, because what it imports is missing from the measured import of kaname.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, NamedTuple

Run = Callable[[str, Callable[[str], Any]], Awaitable[str]]
KEY, MOST = "sk-gate", 2000  # MOST: the limit of steps, which no run reaches


class Peer(NamedTuple):
    """A framework: its packages, the first of which names the version, what its users import, and how its agent is built."""

    packages: tuple[str, ...]
    modules: tuple[str, ...]
    build: Callable[[str, str, list[Any], str], Run]


def _pydantic_ai(model: str, url: str, tools: list[Any], instructions: str) -> Run:
    from pydantic_ai import Agent, AgentRunResultEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    chat = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key=KEY))
    agent, limits = Agent(chat, tools=tools, instructions=instructions), UsageLimits(request_limit=MOST)

    async def run(prompt: str, on_text: Callable[[str], Any]) -> str:
        answer = ""
        async with agent.run_stream_events(prompt, usage_limits=limits) as events:
            async for event in events:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    on_text(event.part.content)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    on_text(event.delta.content_delta)
                elif isinstance(event, AgentRunResultEvent):
                    answer = event.result.output
        return answer

    return run


def _langgraph(model: str, url: str, tools: list[Any], instructions: str) -> Run:
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=model, base_url=url, api_key=KEY, streaming=True, stream_usage=True)
    agent = create_agent(chat, [tool(one) for one in tools], system_prompt=instructions)

    async def run(prompt: str, on_text: Callable[[str], Any]) -> str:
        texts: list[str] = []
        asked = {"messages": [{"role": "user", "content": prompt}]}
        async for piece, about in agent.astream(asked, {"recursion_limit": MOST}, stream_mode="messages"):
            if about["langgraph_node"] == "model" and piece.content:
                texts.append(piece.content)
                on_text(piece.content)
        return "".join(texts)

    return run


def _openai_agents(model: str, url: str, tools: list[Any], instructions: str) -> Run:
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    chat = OpenAIChatCompletionsModel(model, AsyncOpenAI(base_url=url, api_key=KEY))
    settings = ModelSettings(include_usage=True)
    agent = Agent(
        "gate", instructions=instructions, tools=[function_tool(one) for one in tools], model=chat, model_settings=settings
    )

    async def run(prompt: str, on_text: Callable[[str], Any]) -> str:
        running = Runner.run_streamed(agent, prompt, max_turns=MOST)
        async for event in running.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                on_text(event.data.delta)
        return str(running.final_output)

    return run


def _google_adk(model: str, url: str, tools: list[Any], instructions: str) -> Run:
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.models.lite_llm import LiteLlm
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    chat = LiteLlm(f"openai/{model}", api_base=url, api_key=KEY)
    agent = LlmAgent(name="gate", model=chat, instruction=instructions, tools=tools)
    runner, config = InMemoryRunner(agent, app_name="gate"), RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=MOST)

    async def run(prompt: str, on_text: Callable[[str], Any]) -> str:
        session = await runner.session_service.create_session(app_name="gate", user_id="user")
        message, answer = types.Content(role="user", parts=[types.Part(text=prompt)]), ""
        events = runner.run_async(user_id="user", session_id=session.id, new_message=message, run_config=config)
        async for event in events:
            for part in (event.content.parts if event.content else None) or ():
                if part.text and event.partial:
                    on_text(part.text)
                elif part.text:
                    answer = part.text
        return answer

    return run


PEERS = {
    "pydantic-ai": Peer(
        ("pydantic-ai-slim[openai]",),
        ("pydantic_ai", "pydantic_ai.models.openai", "pydantic_ai.providers.openai"),
        _pydantic_ai,
    ),
    "langgraph": Peer(
        ("langgraph", "langchain", "langchain-openai"),
        ("langchain.agents", "langchain_core.tools", "langchain_openai"),
        _langgraph,
    ),
    "openai-agents": Peer(("openai-agents",), ("agents", "openai"), _openai_agents),
    "google-adk": Peer(
        ("google-adk", "litellm", "mcp"),
        ("google.adk.agents", "google.adk.runners", "google.adk.models.lite_llm"),
        _google_adk,
    ),
}


def load(name: str) -> None:
    """Import what a user of a framework imports to build an agent."""
    for module in PEERS[name].modules:
        import_module(module)


def build(name: str, model: str, url: str, tools: list[Any], instructions: str) -> Run:
    """Return a function that runs the agent of a framework once and returns its answer."""
    return PEERS[name].build(model, url, tools, instructions)
