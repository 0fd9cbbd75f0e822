"""`Agent`: a recipe with defaults, and the verbs run, resume, fork, replay, attach, stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar, Unpack, cast, overload

from ..core.chunks import Chunk
from ..core.errors import ConfigError
from ..core.notices import notice
from ..core.openai_shape import to_openai
from ..core.state import State
from ..journals.default import choose
from ..kernel.channel import Channel
from ..kernel.ports import ContextPart, Journal, Model, Policy, Recipe, Sink, StopRule, Strategy
from ..kernel.scope import Scope
from ..models.registry import resolve
from ..strategies.output import Output
from ..strategies.stop import Rules
from ..tools.registry import ToolRegistry
from .afterwards import Afterwards
from .child import Parent
from .ids import check_ids
from .input import Input, as_list, as_mapping, as_tuple, as_turn, check_deps, is_config
from .open_run import Beginnings, Recent, new_run_id
from .options import AgentOptions, Explained
from .recipe import brought, check_parts, describe, recipe_of, traced_by
from .result import OutputT, Result, result_of
from .run import Begin, Run, blocking, recorded
from .team.handoff import Team, check_policies, join

if TYPE_CHECKING:
    from pathlib import Path

    from ..tools.mcp.config import Servers
    from ..tools.mcp.elicitation import Elicit
    from ..tools.mcp.servers import McpServers
    from .config.build import Config
    from .designs.step_sequence import AgentConfiguration, AgentStepSequence
    from .replay import Replay

    Thinks: TypeAlias = Model | str | Config | None

T = TypeVar("T")


class Agent(Explained, Generic[OutputT]):
    """`model` is a name (`provider/model`), an object, or a `Config` with all that a file says. `output` is any type that
    pydantic can validate.

    `mcp_servers`: tool servers by name, in the usual form; they start with `async with`, or with the first run, and end with
    `close`. `elicit(server, question, schema)` answers what a server asks the user. `team`: agents to hand work to.

    Inside `async with`, runs of one user without a `session_id` are one conversation (`messages`); otherwise each stands alone.
    """

    @overload
    def __init__(
        self: Agent[str], model: Thinks = ..., tools: Iterable[Any] = ..., *, output: None = ..., **more: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[T], model: Thinks = ..., tools: Iterable[Any] = ..., *, output: type[T], **more: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any], model: Thinks = ..., tools: Iterable[Any] = ..., *, output: Any, **more: Unpack[AgentOptions]
    ) -> None: ...
    def __init__(
        self,
        model: Thinks = None,
        tools: Iterable[Any] = (),
        *,
        name: str = "agent",
        instructions: str = "",
        output: Any = None,
        strategy: Strategy | None = None,
        policies: Iterable[Policy] = (),
        stops: StopRule | Rules | Iterable[StopRule] | None = None,
        journal: Journal | str | Path | None = None,
        sinks: Iterable[Sink] = (),
        context: ContextPart | Sequence[ContextPart] = (),
        settings: Mapping[str, Any] | None = None,
        mcp_servers: Servers | None = None,
        elicit: Elicit | None = None,
        team: Team | Iterable[Agent[Any]] = (),
    ) -> None:
        if is_config(model):
            self._configured(model, tools, {**locals(), "name": "" if name == "agent" else name})
            return
        if not name:
            raise ConfigError(notice("agent.name_missing", "an agent needs a name"))
        policies, sinks = as_tuple("policies", policies), as_tuple("sinks", sinks)
        given = (context,) if callable(context) else as_tuple("context", context)
        parts = tuple(sorted(given, key=lambda part: getattr(part, "order", 0)))  # what cuts comes before what adds
        check_parts(instructions, policies, sinks, strategy, parts)
        self._output = None if output is None or output is str else Output(output)
        if self._output is not None:
            self._output.check()
        self.tools = ToolRegistry([*as_list(tools), *brought(parts)])
        self.servers = self._serving(mcp_servers, elicit) if mcp_servers else None
        self.recipe = recipe_of(
            name,
            None if model is None else resolve(cast("Model | str", model)),
            self.tools,
            strategy,
            self._output,
            policies,
            stops,
            instructions,
            parts if self.servers is None else (self.servers.instruct, *parts),
            as_mapping("settings", settings, "{'temperature': 0}"),
        )
        self.journal = choose(journal)
        self.sinks = sinks
        self.origin: Mapping[str, Any] = {}  # how it was made, for a front end that wants to make it again
        self._recent, self._afterwards = Recent(), Afterwards()
        self._conversation = ""  # the session of an open agent
        self._heads: dict[str, tuple[str, State]] = {}  # the runs where that conversation stands, of each user
        self.team: Team | None = None
        if team:
            join(self, team)

    @classmethod
    def from_config(cls, config: Config, *, agent: str = "", **options: Any) -> Agent[Any]:
        """An agent of the file, the first unless it is named; what is said beside it goes over what the file says."""
        parts = {**config.parts(agent or None), **options}
        return Agent(parts.pop("model"), parts.pop("tools"), **parts)

    def _configured(self, config: Config, tools: Iterable[Any], given: Mapping[str, Any]) -> None:
        """As the file says, and what was said beside it."""
        parts = config.parts()
        own = [name for name in (*AgentOptions.__annotations__, "output") if given[name] not in (None, "", ())]
        parts |= {name: given[name] for name in own}
        Agent.__init__(self, parts.pop("model"), [*parts.pop("tools"), *tools], **parts)

    def _serving(self, servers: Servers, elicit: Elicit | None) -> McpServers:
        from ..tools.mcp.servers import McpServers
        from .sampling import answers_for

        return McpServers(servers, self.tools, elicit, answers_for(self))

    @property
    def name(self) -> str:
        return self.recipe.name

    def __repr__(self) -> str:
        model = getattr(self.recipe.model, "name", "no model")
        return f"<Agent {self.recipe.name!r}: {model}, tools: {', '.join(self.tools) or 'none'}>"

    # The verbs

    def run(
        self,
        user_input: Input,
        *,
        session_id: str | None = None,
        user_id: str = "",
        abort_event: Any = None,
        run_id: str | None = None,
        deps: Any = None,
        when_busy: Literal["wait", "refuse"] = "wait",
    ) -> Run[OutputT]:
        """Do it: `await` the result, or `async for` the chunks. Nothing happens before one of them.

        `abort_event`: when it is set, the run stops within moments and keeps what it has. `session_id`: the conversation it
        belongs to; runs of one session take turns, or are refused `when_busy` (`SessionBusy`). `deps`: what tools find in
        `ToolContext.deps`; it is not recorded.
        """
        if when_busy not in ("wait", "refuse"):
            raise ConfigError(notice("agent.when_busy", "when_busy is 'wait' or 'refuse', not {given!r}", given=when_busy))
        run, begin = self._beginning(self._begin, user_input, session_id, user_id, run_id, when_busy)
        return self._run(run, begin, deps, abort_event)

    def run_sync(self, user_input: Input, **options: Any) -> Result[OutputT]:
        """The same, for code without an event loop."""
        return blocking(lambda: self.run(user_input, **options), self.close)

    async def close(self) -> None:
        """Close the model's connections in this event loop, the tool servers and the files of memories; not the journal.

        What is still being learnt from the last runs is waited for."""
        await self._afterwards.end(self.recipe.context)
        if self.servers is not None:
            await self.servers.close()
        if (close := getattr(self.recipe.model, "close", None)) is not None:
            await close()

    def steps(
        self,
        user_input: Input,
        *,
        configuration: AgentConfiguration | None = None,
        session_id: str | None = None,
        user_id: str = "",
        run_id: str | None = None,
        deps: Any = None,
    ) -> AgentStepSequence:
        """The run as a sequence that the caller pulls step by step. In its session it does not hold others up."""
        from .designs.step_sequence import AgentStepSequence, as_sequence

        recipe = as_sequence(self.recipe, configuration)
        beginning = Beginnings(recipe, self.journal, self.sinks, partial(self._description, recipe), self._recent)
        run, begin = self._beginning(beginning, user_input, session_id, user_id, run_id, "none")
        return AgentStepSequence(run, lambda channel: self._remembering(begin(channel), deps), self._view)

    def _beginning(
        self, beginning: Beginnings, given: Input, session_id: str | None, user_id: str, run_id: str | None, turns: Any
    ) -> tuple[str, Begin]:
        check_ids(session_id=session_id, user_id=user_id, run_id=run_id)
        run, messages, user_id = run_id or new_run_id(), as_turn(given), user_id or ""
        conversation = self._conversation if session_id is None else ""
        session = session_id or conversation

        def begin(channel: Channel) -> AbstractAsyncContextManager[Scope]:
            base = self._heads.get(user_id, ("",))[0] if conversation else None
            return beginning.new(run, messages, session, user_id, base, channel, turns)

        return run, begin

    def resume(
        self,
        run_id: str,
        answers: Mapping[str, Any] | None = None,
        *,
        takeover: bool = False,
        after: int | None = None,
        abort_event: Any = None,
        deps: Any = None,
        by: str = "",
    ) -> Run[OutputT]:
        """Go on after a crash, a stop or a question. A completed run gives its result again.

        `answers`: by the keys of `result.questions`; `by`: whose they are. `after`: first show the chunks of the facts after
        that number. `takeover`: even if another process seems to be at it; that process can write nothing more.
        """
        check_ids(run_id=run_id, by=by)
        given = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
        return self._run(run_id, partial(self._begin.again, run_id, given, takeover, after, by=by), deps, abort_event)

    def resume_sync(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Result[OutputT]:
        """The same, for code without an event loop."""
        return blocking(lambda: self.resume(run_id, answers, **options), self.close)

    async def result(self, run_id: str) -> Result[OutputT]:
        """What the journal knows of a run, its result or its questions, without executing anything. While somebody executes it,
        `stop.kind` is `running`."""
        check_ids(run_id=run_id)
        return await recorded(self.journal, run_id, self._view)

    def start_or_resume(
        self,
        run_id: str,
        user_input: Input,
        answers: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        user_id: str = "",
        takeover: bool = False,
        abort_event: Any = None,
        deps: Any = None,
    ) -> Run[OutputT]:
        """Do what that id stands for once, however often it is asked for: begin it, go on with it after a crash, or give its
        result again. Who asks while another process is at it gets `RunBusy`."""
        check_ids(session_id=session_id, user_id=user_id, run_id=run_id)
        messages, session = as_turn(user_input), session_id or ""
        given = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
        begin = partial(self._begin.either, run_id, messages, session, user_id, given, takeover)
        return self._run(run_id, begin, deps, abort_event)

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Input, answers: Mapping[str, Any], parent: Parent
    ) -> Run[OutputT]:
        """Start or resume a run inside another's tool call, on its journal: what `ToolContext.run_child` does."""
        sinks = (*self.sinks, *[sink for sink in parent.sinks if sink not in self.sinks])
        beginning = Beginnings(recipe, journal, sinks, partial(self._description, recipe), Recent())
        opened_by, messages = (parent.run_id, parent.call_id), as_turn(given)
        begin: Begin = partial(beginning.new, run_id, messages, "", parent.user, None, parent=opened_by)
        if not parent.first:
            begin = partial(beginning.either, run_id, messages, "", parent.user, answers, False, parent=opened_by)
        return self._run(run_id, begin, parent.deps, journal=journal)

    def attach(self, run_id: str, after: int = 0) -> AsyncIterator[Chunk]:
        """Read a run that is under way, here or in another process: the chunks of its facts after that number, and those to
        come, until it is over. In this process with the deltas; a run that waits is waited for."""
        from .attach import attached

        return attached(self.journal, run_id, after)

    async def stop(self, run_id: str, reason: str = "") -> bool:
        """Stop a run, wherever it is executed, also one that waits for an answer or was interrupted. Return False if it was
        over already; raise `RunNotFound` if there is no such run."""
        from .attach import stop_run

        return await stop_run(self.journal, run_id, reason)

    def fork(
        self,
        run_id: str,
        at: int | None = None,
        *,
        user_input: Input | None = None,
        results: Mapping[str, Any] | None = None,
        model: Model | str | None = None,
        instructions: str | None = None,
        abort_event: Any = None,
        deps: Any = None,
        new_id: str | None = None,
    ) -> Run[OutputT]:
        """A new run (`new_id`) that goes on from fact `at` of another (by default its last), which stays as it is.

        Change what you like: the next `user_input`, the `results` of calls that wait there, the model, the instructions.
        If the fork stops or waits, resume it with an agent that has those changes: a run does not carry its model along.
        """
        changes: dict[str, Any] = {} if model is None else {"model": resolve(model)}
        changes |= {} if instructions is None else {"instructions": instructions}
        recipe = self.recipe.altered(**changes)
        beginning = Beginnings(recipe, self.journal, self.sinks, partial(self._description, recipe), self._recent)
        messages = () if user_input is None else as_turn(user_input)
        new, given = new_id or new_run_id(), as_mapping("results", results, "{call_id: output}")
        if at is not None and not isinstance(at, int):
            raise ConfigError(notice("fork.at_kind", "at is the number of a fact, not {at!r}", at=at))
        return self._run(new, partial(beginning.fork, new, run_id, at, messages, given), deps, abort_event)

    async def replay(self, run_id: str, *, rerun_pure_tools: bool = False, deps: Any = None) -> Replay:
        """Run a recorded run again, offline, and compare: did it take the same decisions? `deps`: for tools that are rerun."""
        from .replay import replay

        if rerun_pure_tools:
            check_deps(self.tools, deps)
        return await replay(self.recipe, self.journal, run_id, rerun_pure_tools, deps, self.servers)

    # The conversation of an open agent

    async def __aenter__(self) -> Self:
        if self.servers is not None:
            await self.servers.start()
        self._conversation, self._heads = f"conversation-{new_run_id()}", {}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conversation = ""
        await self.close()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The open agent's conversation (of runs without a `user_id`) in the OpenAI shapes."""
        return [to_openai(message) for message in self._heads[""][1].history] if "" in self._heads else []

    @property
    def available_tools(self) -> list[dict[str, Any]]:
        """The tools as the model is told of them."""
        shown = [tool for tool in self.tools.values() if getattr(tool, "listed", True)]
        return [{"name": one.name, "description": one.description, "parameters": one.parameters} for one in shown]

    # Inside

    @property
    def _begin(self) -> Beginnings:
        return Beginnings(self.recipe, self.journal, self.sinks, partial(self._description, self.recipe), self._recent)

    def _description(self, recipe: Recipe) -> Mapping[str, Any]:
        return {**describe(recipe), "origin": self.origin} if self.origin else describe(recipe)

    def _view(self, run_id: str, state: State) -> Result[OutputT]:
        typed = None if self._output is None else self._output.typed
        return result_of(run_id, state, typed, getattr(self.recipe.strategy, "partial", None))

    def _run(
        self, run_id: str, begin: Begin, deps: Any, abort_event: Any = None, *, journal: Journal | None = None
    ) -> Run[OutputT]:
        def opened(channel: Channel) -> AbstractAsyncContextManager[Scope]:
            return self._remembering(begin(channel), deps)

        return Run(run_id, opened, self._view, journal or self.journal, abort_event)

    @asynccontextmanager
    async def _remembering(self, begin: AbstractAsyncContextManager[Scope], deps: Any) -> AsyncIterator[Scope]:
        """Whatever becomes of a run of the open agent's conversation, the conversation stands there now."""
        if self.servers is not None:
            await self.servers.start()
        if self.servers is None or self.servers.complete:  # of a server that is not there nobody knows the tools
            check_policies(self.recipe)
        check_deps(self.tools, deps)
        async with begin as scope:
            scope.deps = deps
            if self.servers is not None and (missing := self.servers.missing) and not scope.state.finished:
                await scope.view.warn("mcp", missing)
            try:
                with traced_by(scope):
                    yield scope
            finally:
                if self._conversation and scope.state.session == self._conversation:
                    self._heads[scope.state.user] = (scope.run_id, scope.state)
        self._afterwards.begin(scope)
