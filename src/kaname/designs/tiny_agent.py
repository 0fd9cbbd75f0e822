"""Design B, the tiny agent: an `Agent` whose chunks have the document's types, and whose tool servers all have to be there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any, ClassVar, Generic

from ..agent.agent import Agent as KanameAgent
from ..agent.conversation import Conversation, check_messages
from ..config.build import Config, config_of, load_config
from ..config.llm import LLM_SETTINGS, ClaudeConfig, LLMConfig, OpenAIConfig
from ..core import errors
from ..core.chunks import Chunk
from ..core.errors import AgentConnectionError, AgentError, ConfigError, ModelError, UnexpectedError
from ..core.openai_shape import to_openai
from ..core.record import replace
from ..core.state import State
from ..core.steps import Finish, Step, Stop
from ..kernel.bases import StrategyInfo
from ..kernel.channel import Channel
from ..kernel.scope import Scope
from ..run.input import Input, is_config
from ..run.peers.unused import Refusing
from ..run.request import RunRequest, new_run_id
from ..run.result import OutputT, Result
from ..run.run import Run
from ..strategies.react import React
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
_FAILURES = {  # the document's own words, here and below
    AgentConnectionError: "ツールサーバー接続エラー",
    ModelError: "LLM API エラー",
    UnexpectedError: "予期しないエラー",
}
_AGENT_FAILED, _TOOL_FAILED, _ABORTED = "エージェントエラー", "ツール実行エラー", "処理が中断されました"
_TAKEN = {"model", "api_key", "base_url", "headers", "settings"}  # what the adapter for LiteLLM takes of a provider's block
_NO_CLIENT = "a client that is not set yet: agent._mcp_client = fastmcp.Client(…)"
_STATUS = ("warning", "waiting", "stopped", "queued")  # of which a reader of the document's chunks wants to know


class YgentsConfig(Config):
    """A whole configuration: what `load_config` gives for a file with the same words.

    `mcp_servers`: by name, in the usual form; a FastMCP server of this process; or `{}` for a server whose client is set later,
    as the document's tests do: `agent._mcp_client = client`.
    """

    __slots__ = ()

    def __init__(self, llm: LLMConfig | Mapping[str, Any], mcp_servers: Mapping[str, Any] | None = None) -> None:
        servers = dict(mcp_servers or {})
        in_file = {name: server for name, server in servers.items() if isinstance(server, Mapping) and server}
        made = config_of({"llm": llm.in_file() if isinstance(llm, LLMConfig) else llm, "mcp_servers": in_file})
        agents = {name: agent.with_keys(mcp_servers=servers) for name, agent in made.agents.items()}
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
                made = {key: chunk[key] for key in ("tool_name", "result", "content", "tool_call_id")}
                if not chunk["is_error"]:
                    return {"type": "tool_result", **made}
                return {"type": "tool_error", **made, "content": f"{_TOOL_FAILED} ({made['tool_name']}): {made['content']}"}
            case "error":
                self._failed = True
                return error_chunk(getattr(errors, chunk["data"]["type"], AgentError), chunk["message"])
            case "status" if chunk["status"] not in _STATUS or chunk.get("kind") == "completed":
                return None
            case "status" if chunk.get("kind") == "cancelled":
                return {"type": chunk.type, **chunk.data, "content": _ABORTED}
            case _:
                return {"type": chunk.type, **chunk.data, "content": chunk["content"]}


def error_chunk(kind: type[BaseException], problem: str) -> dict[str, Any]:
    """Return the error chunk for a failure, in the document's words for its kind."""
    words = next((words for one, words in _FAILURES.items() if issubclass(kind, one)), _AGENT_FAILED)
    return {"type": "error", "content": f"{words}: {problem}", "error": kind.__name__}


class TinyAgent(Refusing, KanameAgent[OutputT]):
    """`Agent` of the tiny agent's design: `run` yields the document's chunks.

    Types: `content`, `tool_input`, `tool_result`, `tool_error`, `status`, `error`, each with `content`. A tool server that
    cannot be reached raises `AgentConnectionError` on entry, unless its configuration says `required: false`. All runs of the
    agent are one conversation (`messages`), also outside `async with`. The model of a configuration's `llm` is called through
    LiteLLM, if it is installed. The messages of kaname's own chunks are the document's, in Japanese.

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
            raise ConfigError.of("tiny.config", "pass a config or a model, not both")
        model = _as_config(model if config is None else config)
        read = model
        if is_config(model):
            model = _through_litellm(model)
            options.setdefault("mcp_servers", model.agent().mcp_servers)
        if servers := options.get("mcp_servers"):
            options["mcp_servers"] = {
                name: {"server": _NO_CLIENT} if one == {} else {"required": True, **as_entry(name, one)}
                for name, one in servers_by_name(servers).items()
            }
        super().__init__(model, tools, **options)
        if is_config(read):
            self.config = read
        self._conversation = Conversation(lasting=True)

    def __setattr__(self, name: str, value: Any) -> None:
        """Use the client of a server that the configuration leaves open (`{}`), from the next run on. kaname connects it."""
        servers = [] if getattr(self, "servers", None) is None else self.servers.servers  # type: ignore[union-attr]
        left_open = [one for one in servers if one.entry.server is _NO_CLIENT]
        if name == "_mcp_client" and value is not None and left_open:
            for server in left_open:
                server.entry = replace(server.entry, server=value, required=True)
            vars(self)[name] = value
        elif name != "_mcp_client_connected" or "_mcp_client" not in vars(self):
            super().__setattr__(name, value)

    def run(self, user_input: Input, abort_event: Any = None, **options: Any) -> TinyRun[OutputT]:  # type: ignore[override]
        return TinyRun(super().run(user_input, abort_event=abort_event, **options))

    def process_single_turn_with_tools(self, messages: list[Any]) -> TinyRun[Any]:  # type: ignore[override]
        """Ask the model once about these messages and run the tools that it calls: `await` it, or iterate its chunks.

        Args:
            messages: A list, to which the reply and the tools' results are added. The conversation changes only if the list is
                the agent's own `messages`.

        Raises:
            ConfigError: The agent has a strategy of its own, which decides by itself what a turn is.
        """
        return TinyRun(process_single_turn_with_tools(self, messages))

    async def _cache_available_tools(self) -> None:
        """Connect the servers, as entering does: the document's example calls it."""
        if self.servers is not None:
            await self.servers.start()


class OneTurn(React):
    """One reply of the model, and the tools that it calls."""

    __slots__ = ()

    @property
    def about(self) -> StrategyInfo:  # type: ignore[override]
        return replace(super().about, kind="React")

    def next(self, state: State) -> Step:
        if state.replies and not state.judging:
            return Finish(Stop("completed"), state.replies[-1].reply.message.text)
        return super().next(state)


def process_single_turn_with_tools(agent: KanameAgent[Any], messages: list[Any]) -> Run[Any]:
    """Return the run of a single turn of an agent: see `TinyAgent.process_single_turn_with_tools`."""
    strategy = agent.recipe.strategy
    if not isinstance(strategy, React):
        raise ConfigError.of(
            "agent.single_turn",
            "a single turn needs the default strategy React, and this agent uses {kind}",
            kind=type(strategy).__name__,
        )
    settings = {name: getattr(strategy, name) for name in strategy.__match_args__}
    opener = agent._opener(agent.recipe.with_changes(strategy=OneTurn(**settings)))
    session = agent._conversation.session if messages is agent._conversation.messages else ""
    request = RunRequest(new_run_id(), check_messages(messages), session=session, base="")

    async def open_run(channel: Channel, stack: AsyncExitStack) -> Scope:
        scope = await agent._open_run(opener, request, channel, stack)
        if not session:
            stack.callback(lambda: messages.extend([to_openai(message) for message in scope.state.turn[1:]]))
        return scope

    return Run(request.run_id, open_run, agent._view, agent.journal)


def _as_config(given: Any) -> Any:
    """Return a configuration, if it is one by its shape: `llm` and `mcp_servers` as attributes or keys. All else stays."""
    read = _fields(given)
    if is_config(given) or hasattr(given, "reply") or "llm" not in read:
        return given
    llm = {name: _fields(value) or value for name, value in _fields(read["llm"]).items()}
    return YgentsConfig(llm, read.get("mcp_servers"))


def _through_litellm(config: Config) -> Config:
    """Return the configuration with the model of its `llm` called through LiteLLM, as the document does.

    Without LiteLLM, and for a block with keys that LiteLLM does not take, kaname's own adapter is used.
    """
    made = config.agents.get("agent")
    provider, _, name = str(made.model if made is not None else "").partition("/")
    block = {} if made is None else made.providers.get(provider, {})
    if made is None or not config.value.get("llm") or not name or set(block) - _TAKEN or find_spec("litellm") is None:
        return config
    changed = made.with_keys({"litellm": block}, model=f"litellm/{provider}/{name}")
    return Config({**config.agents, "agent": changed}, config.files, config.value)


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
