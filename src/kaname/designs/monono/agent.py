"""MONONO's agent under the names of its document: `BaseAgent` and its parts, as forms of an `Agent`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ...agent.agent import Agent
from ...agent.options import AgentOptions
from ...core.chunks import Chunk
from ...core.durations import is_whole
from ...core.errors import AgentError, ConfigError, nearest
from ...core.messages import Message
from ...core.notices import notice
from ...core.record import replace
from ...core.values import plain_text
from ...kernel.chain import can_call, overrides
from ...kernel.ports import Sink
from ...run.handoffs import handoff as teams
from ...run.handoffs.handoff import Team
from ...run.peers.unused import Refusing
from ...run.request import new_run_id
from ...tools.registry import ToolRegistry
from .adapters import ChatModel, LLMAdapter, model_of
from .attached import Attached
from .collected import Collected, Foreign
from .guards import as_policy

if TYPE_CHECKING:
    from ...kernel.view import RunView

_MANAGERS = (
    "planning_engine", "workflow_engine", "resource_manager", "learning_engine", "error_recovery_manager",
    "multi_modal_processor", "security_manager", "performance_optimizer", "collaboration_manager",
)  # fmt: skip
_PARTS = (
    "model", "llm_adapter", "tool_registry", "guardrail", "trace_logger", "context_manager", "memory", "extra_cfg",
    *_MANAGERS,
)  # fmt: skip
_MEMORY = ("memory_window_size", "max_memory_items")
_RESOURCES = ("api_quotas", "compute_resources", "cost_tracking")
_OPTIONS = ({*AgentOptions.__annotations__} | {"output"}) - {"name", "instructions"}
_path: ContextVar[tuple[str, ...]] = ContextVar("handoff path", default=())


class _Setting:
    """An attribute that a subclass sets and an agent has. `instructions` and `model` can be changed later."""

    def __init__(self, name: str, declared: Any = None) -> None:
        self._name, self.declared = name, declared

    def __get__(self, agent: BaseAgent | None, owner: type) -> Any:
        if agent is None:
            return self.declared
        return getattr(agent.recipe, self._name) if self._name in ("name", "instructions") else agent.parts[self._name]

    def __set__(self, agent: BaseAgent, value: Any) -> None:
        if self._name == "instructions":
            agent.recipe = agent.recipe.with_changes(instructions=value)
        elif self._name == "model":
            agent.recipe = agent.recipe.with_changes(model=model_of(agent.llm_adapter, value))
            agent.parts["model"] = value
        else:
            raise ConfigError.of(
                "monono.fixed",
                "{name} cannot be changed after the agent was created: pass it to the constructor",
                name=self._name,
            )


class ShortTermMemory:
    """The part of a conversation that the model is shown: the last exchanges that fit into a number of messages.

    The turn that is under way does not count: the user's message, and every tool call with its result, are always there.
    """

    order = -1

    def __init__(self, most: int) -> None:
        self.most = most

    async def __call__(self, messages: Sequence[Message], view: RunView) -> Sequence[Message]:
        turn = len(messages) - (len(view.state.messages) - view.state.turn_start)
        head = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
        fits = [place for place in range(max(head, turn - self.most), turn) if messages[place].role == "user"]
        return [*messages[:head], *messages[fits[0] if fits else turn :]]


class BaseAgent(Refusing, Agent[Any]):
    """An agent by subclass: set `instructions`, `tools` and `model` on the class, or pass them.

        class Guide(BaseAgent):
            instructions = "You know the city."
            tools = [weather]
            model = "openai/gpt-5.4-mini"

    Args:
        model: A model's name or object. With an `llm_adapter`, the name that its `chat` gets.
        tools: Functions, `Tool` objects or definitions. They are registered in `tool_registry`, if there is one.
        name: By default the name of the class.
        instructions: The system prompt.
        llm_adapter: An `LLMAdapter`, or an object with `chat(messages, model, stream, …)`. By default what
            `_default_llm_adapter` returns.
        tool_registry: A `ToolRegistry`. A tool that is registered later is found at once.
        guardrail: A `Guardrail`, any other policy, or an object with `check_input`, `check_output` or `check_tool`.
        trace_logger: A `TraceLogger`, an object with `trace(event, data)`, or a function of one event.
        context_manager: A `ContextManager`, or an object with `get_relevant_context(query, session_id, user_id)`.
        memory: A `Memory`: what is kept of the conversations over sessions and processes, and found again when it fits.
        memory_window_size: How many messages of the conversation before this turn the model is shown. By default all.
        max_memory_items: How many the memory has at most. The smaller of the two counts. With one of them, the object
            remembers: its runs without a `session_id` and a `user_id` are one conversation.
        planning_engine: A `TaskPlanner`, or an object with `generate_plan(context)`. Every run plans its task first, carries
            the plan out with the tools, and plans again if it fails.
        workflow_engine: A `WorkflowEngine`. The model can run the workflows that it has loaded.
        resource_manager: A `ResourceManager`, asked before every call of the model and of a tool.
        learning_engine: A `LearningEngine`, which learns from the runs, and tells the model what it has learned.
        error_recovery_manager: An `ErrorRecoveryManager`, asked after every failed try of a tool.
        multi_modal_processor: A `MultiModalProcessor`. Its tasks are tools of the agent.
        security_manager: A `SecurityManager`, which cleans data and checks permissions.
        performance_optimizer: A `PerformanceOptimizer`, which caches and chooses among equal tools.
        collaboration_manager: A `CollaborationManager`. The model can give tasks to people, and sessions can be shared.
        extra_cfg: `memory_window_size`, `max_memory_items`, and the limits of a `ResourceManager` (`api_quotas`,
            `compute_resources`, `cost_tracking`) as a mapping. A memory size that is a parameter goes over it.
        options: The rest is as for an `Agent`: `policies`, `stops`, `journal`, `context`, `team`, …
    """

    if TYPE_CHECKING:
        instructions: str
        model: Any
        llm_adapter: Any
        tool_registry: ToolRegistry
        guardrail: Any
        trace_logger: Any
        context_manager: Any
        memory: Any
        planning_engine: Any
        workflow_engine: Any
        resource_manager: Any
        learning_engine: Any
        error_recovery_manager: Any
        multi_modal_processor: Any
        security_manager: Any
        performance_optimizer: Any
        collaboration_manager: Any
        extra_cfg: Mapping[str, Any]
        memory_window_size: int | None
        max_memory_items: int | None
    tools: Any = ()
    MAX_HANDOFF_DEPTH = teams.MAX_HANDOFF_DEPTH
    _unused: ClassVar[Mapping[str, str]] = {  # what the document has inside its agent, and what to use instead
        "_preprocess_messages": "BaseAgent(context=[…])",
        "_postprocess_response": "BaseAgent(sinks=[…])",
        "_add_to_memory": "BaseAgent(memory_window_size=…), BaseAgent(context=[Memory(…)])",
        "_execute_tool_and_get_response": "ToolRegistry.parse_arguments, ToolRegistry.execute",
        "_create_internal_chunk": "BaseAgent.stream",
        "_memory": "BaseAgent(memory_window_size=…), run(session_id=…)",
        "_tools": "tools",
        "_tools_definitions": "tools",
        "_handoff_depth": "MAX_HANDOFF_DEPTH",
        "_seq_counter": 'chunk["seq"]',
    }

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if not can_call(cls.on_handoff_return, cls, "", None):
            raise ConfigError.of(
                "monono.handoff_return", "{kind}.on_handoff_return must take (self, target, result)", kind=cls.__name__
            )
        for name in [one for one in ("name", "instructions", *_PARTS, *_MEMORY) if one in vars(cls)]:
            setattr(cls, name, _Setting(name, vars(cls)[name]))

    def __init__(
        self,
        model: Any = None,
        tools: Iterable[Any] | None = None,
        *,
        name: str = "",
        instructions: str | None = None,
        llm_adapter: Any = None,
        tool_registry: ToolRegistry | None = None,
        guardrail: Any = None,
        trace_logger: Any = None,
        context_manager: Any = None,
        memory: Any = None,
        planning_engine: Any = None,
        workflow_engine: Any = None,
        resource_manager: Any = None,
        learning_engine: Any = None,
        error_recovery_manager: Any = None,
        multi_modal_processor: Any = None,
        security_manager: Any = None,
        performance_optimizer: Any = None,
        collaboration_manager: Any = None,
        memory_window_size: int | None = None,
        max_memory_items: int | None = None,
        extra_cfg: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        passed = {one: value for one, value in locals().items() if one in (*_PARTS, *_MEMORY) and value is not None}
        self.parts = {one: passed.get(one, getattr(type(self), one)) for one in (*_PARTS, *_MEMORY)}
        options = {**self._class_options(), **options}
        recent = _memory({one: self.parts[one] for one in _MEMORY}, self.parts["extra_cfg"])
        managers = self._managers()
        own = cast(Any, type(self))
        self._own_session = f"memory-{new_run_id()}"
        self._remembers = any(one.most for one in recent)
        super().__init__(
            self._resolve_model(options.get("strategy")),
            self._register_tools([*(self._own_tools() if tools is None else tools), *managers.tools]),
            name=name or own.name or own.__name__,
            instructions=(own.instructions or "") if instructions is None else instructions,
            policies=[*as_policy(self.parts["guardrail"]), *managers.policies, *options.pop("policies", ())],
            sinks=[*_sinks(self.parts["trace_logger"]), *options.pop("sinks", ())],
            context=[*recent, *managers.context, *_context(options.pop("context", ()), *self._with_memory())],
            team=self._team(options.pop("team", ())),
            **options,
        )
        if self.parts["tool_registry"] is None:
            self.parts["tool_registry"] = self.tools
        self._check_chat()
        managers.join(self)
        self._plan_with(self.parts["planning_engine"])

    def _resolve_model(self, strategy: Any) -> Any:
        """Return the model behind the adapter. An agent with a strategy or a `stream` of its own needs none."""
        if self.parts["llm_adapter"] is None:
            self.parts["llm_adapter"] = self._default_llm_adapter()
        if (adapter := self.parts["llm_adapter"]) is not None:
            return model_of(adapter, self.parts["model"])
        if strategy is None and not overrides(self, "stream", BaseAgent):
            kind = type(self).__name__
            raise ConfigError.of("monono.no_model", "{kind} needs the name of a model: {kind}(model=…)", kind=kind)
        return None

    def _register_tools(self, tools: list[Any]) -> Any:
        """Return the tools, or the registry of the agent with these tools in it."""
        registry = self.parts["tool_registry"]
        if registry is None:
            return tools
        if not isinstance(registry, ToolRegistry):
            raise ConfigError.of("monono.registry", "tool_registry must be a ToolRegistry, not {it!r}", it=registry)
        for tool in [one for one in tools if not _served_by(registry, one)]:
            registry.register(tool)
        return registry

    def _with_memory(self) -> list[Any]:
        return [self.parts[name] for name in ("context_manager", "memory") if self.parts[name] is not None]

    def _managers(self) -> Attached:
        """Return the managers and the parts that they add. Limits in `extra_cfg` make a resource manager."""
        limits = {name: value for name, value in (self.parts["extra_cfg"] or {}).items() if name in _RESOURCES}
        if limits and self.parts["resource_manager"] is not None:
            raise ConfigError.of(
                "monono.two_limits",
                "extra_cfg has {names}, and there is a resource_manager: give these limits to one of the two",
                names=", ".join(limits),
            )
        if limits:
            from .resources import ResourceManager

            self.parts["resource_manager"] = ResourceManager(**limits)
        return Attached(self.parts)

    def _plan_with(self, planner: Any) -> None:
        """Have every run planned by this planner."""
        if planner is not None:
            from ..orchestrator.orchestrator import AgentOrchestrator

            recipe = AgentOrchestrator.around(self, planner).recipe
            made = {name: getattr(recipe, name) for name in ("strategy", "policies", "stops")}
            self.recipe = self.recipe.with_changes(**made, model=recipe.model or self.recipe.model)

    @classmethod
    def _class_options(cls) -> dict[str, Any]:
        """Return the options of an `Agent` that the class sets: `policies`, `stops`, `team`, …"""
        below = [kind for kind in reversed(cls.__mro__) if issubclass(kind, BaseAgent) and kind is not BaseAgent]
        return {name: vars(kind)[name] for kind in below for name in _OPTIONS if name in vars(kind)}

    def _own_tools(self) -> list[Any]:
        """Return the tools of the class; those that are its own methods, bound to this agent."""
        names = {id(value): name for kind in type(self).__mro__ for name, value in vars(kind).items()}
        return [getattr(self, names[id(tool)]) if id(tool) in names else tool for tool in type(self).tools]

    def _default_llm_adapter(self) -> Any:
        """Return the adapter of an agent that was given none. Override it to choose another."""
        return None if self.parts["model"] is None else LLMAdapter(self.parts["model"])

    def _team(self, given: Any) -> Any:
        """Have `on_handoff_return` called, unless the team has one of its own."""
        if not given or getattr(given, "on_handoff_return", None) is not None or not isinstance(given, Team | Iterable):
            return given
        team = given if isinstance(given, Team) else Team(tuple(given), max_depth=self.MAX_HANDOFF_DEPTH)
        return replace(team, on_handoff_return=self.on_handoff_return)

    def _check_chat(self) -> None:
        model, wanted = self.recipe.model, [("tools", bool(self.tools)), ("response_format", self._output is not None)]
        for name in [one for one, needed in wanted if needed and isinstance(model, ChatModel) and not model.accepts(one)]:
            raise ConfigError.of(
                "monono.chat_parameter",
                "{kind}.chat() has no parameter {name!r}, which this agent needs: add it, or **settings",
                kind=type(self.parts["llm_adapter"]).__name__,
                name=name,
            )

    # The verbs

    def run(self, user_input: Any, session_id: str | None = None, **options: Any) -> Any:
        """Collect what `stream` yields: `await` the result (`role`, `content`, `tool_calls`, `usage`), or iterate."""
        if overrides(self, "stream", BaseAgent):
            return Collected(lambda _: aiter(self.stream(user_input, session_id=session_id, **options)))
        return super().run(user_input, session_id=self._session_of(user_input, session_id, options), **options)

    def _session_of(self, user_input: Any, session_id: str | None, options: Mapping[str, Any]) -> str | None:
        """Return the session of a run: its own, or the conversation of this object if it has a memory.

        A run for a user that is named, as all runs of a server are, does not belong to the object's conversation. Neither does
        input that brings its own conversation.
        """
        whole = isinstance(user_input, Sequence) and any(_role(one) in ("assistant", "tool") for one in user_input)
        return (
            self._own_session
            if session_id is None and self._remembers and "user_id" not in options and not whole
            else session_id
        )

    async def stream(self, user_input: Any, session_id: str | None = None, **options: Any) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of a run. A run that fails ends with an `error` chunk; `run` raises the error instead.

        Args:
            user_input: The user's message.
            session_id: The session that it belongs to.
            options: As for `Agent.run`: `user_id`, `abort_event`, `deps`, …
        """
        failed = False
        try:
            session = self._session_of(user_input, session_id, options)
            async for chunk in super().run(user_input, session_id=session, **options):
                failed = failed or chunk.fails
                yield chunk
        except AgentError:
            if not failed:  # it has not begun
                raise

    def handoff(
        self, target_agent: Any, messages: Any, session_id: str | None = None, *, context: Any = None, **options: Any
    ) -> Collected:
        """Have another agent do it: iterate its chunks, which carry its name, or `await` its result.

        An agent that has had the work already, or more than `MAX_HANDOFF_DEPTH` handoffs one inside another, are refused: the
        only chunk is an `error`, and awaiting raises it. When the other agent has ended, `on_handoff_return` is called.

        Args:
            target_agent: A `BaseAgent`, any other agent, or an object with a `name` and `stream(messages)` or `run(messages)`.
            messages: What it is to do: a text, or the conversation so far as a list of messages.
            session_id: A session of the other agent.
            context: What it should know, such as a dict. It is told before the messages.
            options: As for `run`.
        """
        if context is not None:
            known: Any = [{"role": "user", "content": f"[Context] {plain_text(context)}"}]
            messages = [*known, *([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)]
        target = target_agent if isinstance(target_agent, Agent) else Foreign(target_agent)
        return Collected(partial(self._hand_over, target, messages, {"session_id": session_id, **options}))

    async def _hand_over(
        self, target: Any, messages: Any, options: Mapping[str, Any], collected: Collected
    ) -> AsyncGenerator[Chunk, None]:
        path = _path.get()
        path = path if path[-1:] == (self.name,) else (*path, self.name)
        if why := teams.refused_handoff(target.name, path, self.MAX_HANDOFF_DEPTH):
            yield Chunk(time(), self.name, "error", {"message": why, "type": teams.REFUSED}, 1)
            return
        run, outcome = target.run(messages, **options), None
        try:
            while True:
                token = _path.set((*path, target.name))
                try:
                    chunk = await anext(run)
                except StopAsyncIteration:
                    break
                finally:
                    _path.reset(token)
                yield chunk
            outcome = await run
        except AgentError as error:
            outcome = collected.error = error
        said = self.on_handoff_return(target.name, outcome)
        instead = await said if isawaitable(said) else said
        collected.result, collected.error = (outcome, collected.error) if instead is None else (instead, None)

    def on_handoff_return(self, target: str, result: Any) -> Any:
        """Called when an agent that got work from this one has ended: by `handoff`, or by its model's transfer or delegation.

        Override it. It can be async.

        Args:
            target: The other agent's name.
            result: What came of it, or the error.

        Returns:
            What takes the place of the answer, or None. After a transfer the answer is final, and this is not used.
        """


for _name in ("name", "instructions", *_PARTS, *_MEMORY):
    setattr(BaseAgent, _name, _Setting(_name))


def _memory(passed: Mapping[str, int | None], extra_cfg: Mapping[str, Any] | None) -> list[ShortTermMemory]:
    for name in extra_cfg or ():
        if name not in (*_MEMORY, *_RESOURCES):
            unknown = notice("monono.extra_cfg", "extra_cfg has an unknown key {name!r}", name=name)
            raise ConfigError(unknown + nearest(name, (*_MEMORY, *_RESOURCES)))
    sizes = {name: passed[name] if passed[name] is not None else (extra_cfg or {}).get(name) for name in _MEMORY}
    for name, size in sizes.items():
        if size is not None and not is_whole(size, 0):
            raise ConfigError.of(
                "monono.memory_size", "{name} must be an integer of at least 0, not {size!r}", name=name, size=size
            )
    known = [size for size in sizes.values() if size is not None]
    return [ShortTermMemory(min(known))] if known else []


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else getattr(message, "role", None)


def _context(given: Any, *managers: Any) -> list[Any]:
    listed = isinstance(given, Iterable) and not callable(given)
    parts = [*(given if listed else [given]), *managers]
    if all(map(callable, parts)):
        return parts
    from .context_manager import as_context_part

    return [as_context_part(one) for one in parts]


def _served_by(registry: ToolRegistry, tool: Any) -> bool:
    """Return whether a tool is a definition alone, of a tool that the registry has."""
    inner = tool.get("function", tool) if isinstance(tool, Mapping) and "execute" not in tool else {}
    return "name" in inner and registry.has(inner["name"])


def _sinks(trace_logger: Any) -> list[Sink]:
    from .trace_logger import as_sink

    return [] if trace_logger is None else [as_sink(trace_logger)]
