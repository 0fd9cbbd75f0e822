"""Design B, the tiny agent: an `Agent` whose chunks have the document's types, and whose tool servers all have to be there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping
from typing import Any, ClassVar, Generic

from ..agent.agent import Agent as KanameAgent
from ..agent.input import Input, is_config
from ..agent.peers.unused import Refusing
from ..agent.result import OutputT, Result
from ..agent.run import Run
from ..agent.steps.conversation import Conversation
from ..config.build import Config, config_of, load_config
from ..config.llm import LLM_SETTINGS, ClaudeConfig, LLMConfig, OpenAIConfig
from ..core import errors
from ..core.chunks import Chunk
from ..core.errors import AgentConnectionError, AgentError, ConfigError, ModelError, UnexpectedError
from ..core.notices import notice
from ..core.record import replace
from ..tools.mcp.config import as_entry, servers_by_name

__all__ = [
    "Agent",
    "AgentConnectionError",
    "AgentError",
    "ClaudeConfig",
    "LLMConfig",
    "OpenAIConfig",
    "YgentsConfig",
    "load_config",
]
_STATUS = ("warning", "waiting", "stopped", "queued")  # of which a reader of the document's chunks wants to know


class YgentsConfig(Config):
    """A whole configuration: what `load_config` gives for a file with the same words.

    `mcp_servers`: by name, in the usual form; or a FastMCP server of this process.
    """

    __slots__ = ()

    def __init__(self, llm: LLMConfig | Mapping[str, Any], mcp_servers: Mapping[str, Any] | None = None) -> None:
        servers = dict(mcp_servers or {})
        in_file = {name: server for name, server in servers.items() if isinstance(server, Mapping)}
        made = config_of({"llm": llm.in_file() if isinstance(llm, LLMConfig) else llm, "mcp_servers": in_file})
        agents = {name: replace(agent, mcp_servers=servers) for name, agent in made.agents.items()}
        Config.__init__(self, agents, made.files, {**made.value, "mcp_servers": servers})


class TinyRun(AsyncIterator[dict[str, Any]], Generic[OutputT]):
    """A run whose chunks are the document's dicts. `await` it for the result, as any run; `run` is the run itself."""

    def __init__(self, run: Run[OutputT]) -> None:
        self.run = run
        self._shown, self._failed = False, False
        self._raising: AgentError | None = None

    def __await__(self) -> Generator[Any, None, Result[OutputT]]:
        return self.run.__await__()

    async def aclose(self) -> None:
        """Stop the run, if it is not over: for `contextlib.aclosing`."""
        await self.run.__aexit__(None, None, None)

    async def __anext__(self) -> dict[str, Any]:
        if self._raising is not None:
            raise self._raising
        try:
            async for chunk in self.run:
                if (made := self._as_documented(chunk)) is not None:
                    return made
        except AgentError as problem:
            if self._failed:
                raise
            self._raising = problem  # it failed before it had begun: the caller is told in both ways
            return error_chunk(type(problem), problem.public)
        raise StopAsyncIteration

    def _as_documented(self, chunk: Chunk) -> dict[str, Any] | None:
        match chunk.type:
            case "delta":
                self._shown = True
                return {"type": "content", "content": chunk["content"]}
            case "message":
                shown, self._shown = self._shown, False
                return None if shown else {"type": "content", "content": chunk["content"]}  # it did not stream
            case "tool_call":
                return {"type": "tool_input", **{key: chunk[key] for key in ("tool_name", "arguments", "content", "id")}}
            case "tool_response":
                kind = "tool_error" if chunk["is_error"] else "tool_result"
                return {"type": kind, **{key: chunk[key] for key in ("tool_name", "result", "content", "tool_call_id")}}
            case "error":
                self._failed = True
                return error_chunk(getattr(errors, chunk["data"]["type"], AgentError), chunk["message"])
            case "status" if chunk["status"] not in _STATUS or chunk.get("kind") == "completed":
                return None
            case _:
                return {"type": chunk.type, **chunk.data, "content": chunk["content"]}


def error_chunk(kind: type[BaseException], problem: str) -> dict[str, Any]:
    """The error chunk for a failure: each kind has its own words."""
    if issubclass(kind, AgentConnectionError):
        told = notice("tiny.connection", "tool server connection error: {problem}", problem=problem)
    elif issubclass(kind, ModelError):
        told = notice("tiny.model", "model API error: {problem}", problem=problem)
    elif issubclass(kind, UnexpectedError):
        told = notice("tiny.unexpected", "unexpected error: {problem}", problem=problem)
    else:
        told = notice("tiny.agent", "agent error: {problem}", problem=problem)
    return {"type": "error", "content": told, "error": kind.__name__}


class TinyAgent(Refusing, KanameAgent[OutputT]):
    """`Agent` of the tiny agent's design: `run` yields the document's chunks.

    Types: `content`, `tool_input`, `tool_result`, `tool_error`, `status`, `error`, each with `content`. A tool server that
    cannot be reached raises `AgentConnectionError` on entry, unless its configuration says `required: false`. All runs of the
    agent are one conversation (`messages`), also outside `async with`.

    Args:
        model: A configuration (`YgentsConfig`, what `load_config` returns, or an object or a mapping with `llm` and
            `mcp_servers`); or a model's name or object.
        tools: Functions, `Tool` objects or definitions, in addition to those of the servers.
        config: The configuration, under the document's name.
        options: The rest is as for an `Agent`: `stops`, `policies`, `journal`, …
    """

    _unused: ClassVar[Mapping[str, str]] = {
        "process_single_turn_with_tools": "agent.steps(…), which yields the steps one by one, or policies=[…]",
        "_is_problem_solved": "stops=[…], or agent.steps(…, termination_policy=…)",
        "_execute_tool_calls": "policies=[…] with a `tool` of their own",
        "_get_model_name": "LLMConfig(…)",
        "_get_llm_params": "LLMConfig(temperature=…, max_tokens=…), OpenAIConfig(settings={…})",
        "_get_tools_schema": "tools=[…], mcp_servers={…}",
        "_mcp_client": "mcp_servers={name: server}, with a FastMCP server or a fastmcp.Client",
        "_mcp_client_connected": "mcp_servers={name: server}",
        "_cached_tools": "tools=[…], mcp_servers={…}",
    }

    def __init__(self, model: Any = None, tools: Any = (), *, config: Any = None, **options: Any) -> None:
        if model is not None and config is not None:
            raise ConfigError(notice("tiny.config", "pass a config or a model, not both"))
        model = _as_config(model if config is None else config)
        if is_config(model):
            options.setdefault("mcp_servers", model.agent().mcp_servers)
        if servers := options.get("mcp_servers"):
            options["mcp_servers"] = {
                name: {"required": True, **as_entry(name, one)} for name, one in servers_by_name(servers).items()
            }
        super().__init__(model, tools, **options)
        self._conversation = Conversation(lasting=True)

    def run(self, user_input: Input, abort_event: Any = None, **options: Any) -> TinyRun[OutputT]:  # type: ignore[override]
        return TinyRun(super().run(user_input, abort_event=abort_event, **options))

    def process_single_turn_with_tools(self, messages: list[Any]) -> TinyRun[Any]:  # type: ignore[override]
        return TinyRun(super().process_single_turn_with_tools(messages))

    async def _cache_available_tools(self) -> None:
        """Connect the servers, as entering does: the document's example calls it."""
        if self.servers is not None:
            await self.servers.start()


def _as_config(given: Any) -> Any:
    """Return a configuration, if it is one by its shape: `llm` and `mcp_servers` as attributes or keys. All else stays."""
    read = _fields(given)
    if is_config(given) or hasattr(given, "reply") or "llm" not in read:
        return given
    llm = {name: _fields(value) or value for name, value in _fields(read["llm"]).items()}
    return YgentsConfig(llm, read.get("mcp_servers"))


def _fields(given: Any) -> Mapping[str, Any]:
    read = (
        given.in_file()
        if hasattr(given, "in_file")
        else given
        if isinstance(given, Mapping)
        else getattr(given, "__dict__", {})
    )
    return {name: value for name, value in read.items() if value is not None or name in LLM_SETTINGS}


Agent = TinyAgent  # the document's own name for it
