"""`Agent`: a recipe with defaults, and the verbs run, resume, fork, replay, attach, stop."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, Unpack, overload
from weakref import ref

from ..core.chunks import Chunk
from ..core.errors import ConfigError
from ..core.notices import notice
from ..core.record import replace
from ..core.state import State
from ..kernel.bases import ContextBase, ModelBase, optional
from ..kernel.channel import Channel
from ..kernel.ports import ContextPart, Journal, Model, Policy, Recipe, Sink, StopRule, Strategy
from ..kernel.scope import Scope
from ..kernel.view import current_view
from ..run.afterwards import Afterwards
from ..run.child import Parent
from ..run.handoffs.handoff import HandingBack, Team, check_policies, join
from ..run.ids import check_ids
from ..run.input import Input, as_mapping, as_tuple, as_turn, check_deps, is_config, tell_of_tools, tools_of_agent
from ..run.many.verb import Mappable
from ..run.opener import Opener
from ..run.recipe import (
    all_models,
    changed_recipe,
    check_parts,
    choose_models,
    describe,
    recipe_of,
    tools_of_context,
    traced_by,
)
from ..run.request import RunRequest, Turns, new_run_id
from ..run.result import OutputT, Result, read_result, result_of, run_blocking
from ..run.run import Run
from ..run.turns import Recent
from ..stores.default import choose
from ..strategies.output import Output
from ..strategies.stop import Rules
from .options import AgentOptions, Explained
from .steps.conversation import Conversation, Conversing
from .work.verb import Submits

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.build import Config
    from ..run.replay import Replay
    from ..tools.mcp.config import Servers
    from ..tools.mcp.elicitation import Elicit
    from ..tools.mcp.servers import McpServers
    from .steps.configuration import AgentConfiguration
    from .steps.sequence import AgentStepSequence

    Thinks: TypeAlias = Model | str | Config | Sequence[Model | str | Sequence[Model | str]] | None

T = TypeVar("T")
_SETTINGS = "{'temperature': 0}"  # an example, for errors


class Agent(Conversing, Mappable[OutputT], Submits, Explained, Generic[OutputT]):
    """`model` is a name (`provider/model`), an object, or a `Config` with all that a file says. In a list, the next model is
    asked when one fails (`ModelFallback`); a list inside it holds equals. `output` is any type that pydantic can validate.

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
            self._init_from_config(model, tools, {**locals(), "name": "" if name == "agent" else name})
            return
        if not name:
            raise ConfigError.of("agent.name_missing", "the name of an agent must not be empty")
        policies, sinks = as_tuple("policies", policies), as_tuple("sinks", sinks)
        given = (context,) if callable(context) else as_tuple("context", context)
        parts = tuple(sorted(given, key=lambda part: optional(part, ContextBase, "order")))  # what cuts comes before what adds
        check_parts(instructions, policies, sinks, strategy, parts)
        self._output = None if output is None or output is str else Output.of(output)
        if self._output is not None:
            self._output.check()
        chosen, around = choose_models(model, policies)
        self.tools = tools_of_agent(tools, tools_of_context(parts), chosen, around)
        self.servers = self._make_servers(mcp_servers, elicit) if mcp_servers else None
        self.recipe = recipe_of(
            name,
            chosen,
            self.tools,
            strategy,
            self._output,
            around,
            stops,
            instructions,
            tell_of_tools(self.tools, parts if self.servers is None else (self.servers.instruct, *parts), bool(self.servers)),
            as_mapping("settings", settings, _SETTINGS),
            served=self.servers is not None,
        )
        self.journal, self.sinks = choose(journal), sinks
        self.origin: Mapping[str, Any] = {}  # how it was made, for a front end that wants to make it again
        self._recent, self._afterwards = Recent(), Afterwards()
        self._conversation = Conversation()
        self.team: Team | None = None
        if team:
            join(self, team)

    @classmethod
    def from_config(cls, config: Config, *, agent: str = "", **options: Any) -> Agent[Any]:
        """An agent of the file, the first unless it is named; what is said beside it goes over what the file says."""
        if not is_config(config):
            told = notice(
                "agent.config",
                "from_config() expects a Config. Load the file first: Agent.from_config(load_config({given!r}))",
                given=config,
            )
            raise ConfigError(told)
        parts = {**config.parts(agent or None), **options}
        return Agent(parts.pop("model"), parts.pop("tools"), **parts)

    def _init_from_config(self, config: Config, tools: Iterable[Any], given: Mapping[str, Any]) -> None:
        """Build the agent from a configuration. Options that were passed override it."""
        parts = config.parts()
        own = [name for name in (*AgentOptions.__annotations__, "output") if given[name] not in (None, "", ())]
        parts |= {name: given[name] for name in own}
        Agent.__init__(self, parts.pop("model"), [*parts.pop("tools"), *tools], **parts)
        self.config = config

    def _make_servers(self, servers: Servers, elicit: Elicit | None) -> McpServers:
        from ..run.sampling import answers_for
        from ..tools.mcp.servers import McpServers

        return McpServers(servers, self.tools, elicit, answers_for(self))

    @property
    def name(self) -> str:  # type: ignore[override]
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
        by: str = "",
        model: Model | str | Sequence[Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Run[OutputT]:
        """Do it: `await` the result, or `async for` the chunks. Nothing happens before one of them.

        `abort_event`: when it is set, the run stops within moments and keeps what it has. `session_id`: the conversation it
        belongs to; runs of one session take turns, or are refused `when_busy` (`SessionBusy`). `deps`: what tools find in
        `ToolContext.deps`; it is not recorded. `by`: who starts it, if that is not the user; an approval that must come from
        another person than the user cannot come from this one either. `model`, `settings`: for this run only, over the agent's;
        pass them again to `resume`.
        """
        if when_busy not in ("wait", "refuse"):
            raise ConfigError.of("agent.when_busy", "when_busy must be 'wait' or 'refuse', not {given!r}", given=when_busy)
        opener = self._opener(changed_recipe(self.recipe, model, as_mapping("settings", settings, _SETTINGS)))
        check_ids(by=by)
        request = replace(self._request(user_input, session_id, user_id, run_id, deps, when_busy), by=by)
        return self._run(request, abort_event, opener)

    def run_sync(self, user_input: Input, **options: Any) -> Result[OutputT]:
        """Run and wait for the result, and for work in the background, in code without an event loop. Options as for `run`."""
        return run_blocking(lambda: self.run(user_input, **options), self.close)

    async def close(self) -> None:
        """Close the connections of the models in this event loop, the tool servers and the files of memories; not the journal.

        What is still being learnt from the last runs is waited for."""
        await self._afterwards.end(self.recipe.context)
        if self.servers is not None:
            await self.servers.close()
        for model in all_models(self.recipe):
            await optional(model, ModelBase, "close")()
        if (senses := sys.modules.get("kaname.senses.process.client")) is not None:
            await senses.close_workers()

    def steps(
        self,
        user_input: Input,
        *,
        configuration: AgentConfiguration | None = None,
        termination_policy: Any = None,
        session_id: str | None = None,
        user_id: str = "",
        run_id: str | None = None,
        deps: Any = None,
    ) -> AgentStepSequence:
        """Return the run as an `AgentStepSequence` that the caller pulls.

        It does not wait for other runs of its session; later runs wait for it."""
        from .steps.configuration import as_sequence
        from .steps.sequence import AgentStepSequence

        opener = self._opener(as_sequence(self.recipe, configuration, termination_policy))
        request = self._request(user_input, session_id, user_id, run_id, deps, "ahead")
        return AgentStepSequence.opened_by(request.run_id, partial(self._open_run, opener, request), self._view, opener.answer)

    def _request(
        self, given: Input, session_id: str | None, user_id: str, run_id: str | None, deps: Any, turns: Turns
    ) -> RunRequest:
        check_ids(session_id=session_id, user_id=user_id, run_id=run_id)
        session = self._conversation.session if session_id is None else session_id
        return RunRequest(run_id or new_run_id(), as_turn(given), "new", session, user_id or "", turns=turns, deps=deps)

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
        model: Model | str | Sequence[Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Run[OutputT]:
        """Go on after a crash, a stop or a question. A completed run gives its result again.

        `answers`: by the keys of `result.questions`; `by`: whose they are. `after`: first show the chunks of the facts after
        that number. `takeover`: even if another process seems to be at it; that process can write nothing more.
        """
        check_ids(run_id=run_id, by=by)
        given = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
        request = RunRequest(run_id, how="resume", answers=given, by=by, takeover=takeover, after=after, deps=deps)
        return self._run(
            request, abort_event, self._opener(changed_recipe(self.recipe, model, as_mapping("settings", settings, _SETTINGS)))
        )

    def resume_sync(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Result[OutputT]:
        """Resume and wait for the result, in code without an event loop."""
        return run_blocking(lambda: self.resume(run_id, answers, **options), self.close)

    async def result(self, run_id: str) -> Result[OutputT]:
        """Return what the journal knows of a run, without executing it. While a process does, `stop.kind` is `running`."""
        check_ids(run_id=run_id)
        return await read_result(self.journal, run_id, self._view)

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
        result again. Who asks while another process is at it gets `RunBusy`; `RunExists`, if it belongs to another user."""
        check_ids(session_id=session_id, user_id=user_id, run_id=run_id)
        given = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
        options: dict[str, Any] = {"answers": given, "takeover": takeover, "deps": deps}
        return self._run(RunRequest(run_id, as_turn(user_input), "either", session_id or "", user_id, **options), abort_event)

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Input, answers: Mapping[str, Any], parent: Parent
    ) -> Run[OutputT]:
        """Start or resume a run inside another's tool call, on its journal: what `ToolContext.run_child` does."""
        sinks = (*self.sinks, *[sink for sink in parent.sinks if sink not in self.sinks])
        request = RunRequest(
            run_id,
            as_turn(given),
            "new" if parent.first else "either",
            user=parent.user,
            parent=(parent.run_id, parent.call_id),
            answers=answers,
            by=parent.by,
            deps=parent.deps,
        )
        return self._run(request, opener=Opener(recipe, journal, sinks, self._description))

    def run_request(self, request: RunRequest) -> Run[OutputT]:
        """Return the run of a request, for a worker."""
        return self._run(request)

    def attach(self, run_id: str, after: int = 0) -> AsyncIterator[Chunk]:
        """Read a run that is under way, here or in another process: the chunks of its facts after that number, and those to
        come, until it is over. In this process with the deltas; a run that waits is waited for."""
        from ..run.attach import follow_chunks

        return follow_chunks(self.journal, run_id, after)

    async def stop(self, run_id: str, reason: str = "") -> bool:
        """Stop a run and its work in the background, wherever they are. Return False if all was over; raise `RunNotFound`."""
        from ..run.attach import stop_run

        return await stop_run(self.journal, run_id, reason)

    def fork(
        self,
        run_id: str,
        at: int | None = None,
        *,
        user_input: Input | None = None,
        results: Mapping[str, Any] | None = None,
        model: Model | str | Sequence[Any] | None = None,
        instructions: str | None = None,
        abort_event: Any = None,
        deps: Any = None,
        new_id: str | None = None,
        by: str = "",
    ) -> Run[OutputT]:
        """A new run (`new_id`) that goes on from fact `at` of another (by default its last), which stays as it is.

        Change what you like: the next `user_input`, the `results` of calls that wait there, the model, the instructions.
        `by`: who forks it, as for `run`.
        If the fork stops or waits, resume it with an agent that has those changes: a run does not carry its model along.
        """
        recipe = changed_recipe(self.recipe, model, None, instructions)
        if at is not None and not isinstance(at, int):
            raise ConfigError.of("fork.at_kind", "at must be the number of a fact, not {at!r}", at=at)
        check_ids(by=by)
        messages = () if user_input is None else as_turn(user_input)
        given = as_mapping("results", results, "{call_id: output}")
        request = RunRequest(new_id or new_run_id(), messages, "fork", source=(run_id, at), results=given, deps=deps, by=by)
        return self._run(request, abort_event, self._opener(recipe))

    async def replay(self, run_id: str, *, rerun_pure_tools: bool = False, deps: Any = None) -> Replay:
        """Run a recorded run again, offline, and compare: did it take the same decisions? `deps`: for tools that are rerun."""
        from ..run.replay import replay

        if rerun_pure_tools:
            check_deps(self.tools, deps)
        return await replay(self.recipe, self.journal, run_id, rerun_pure_tools, deps, self.servers)

    # Inside

    def _opener(self, recipe: Recipe) -> Opener:
        return Opener(recipe, self.journal, self.sinks, self._description, self._recent)

    def _description(self, recipe: Recipe) -> Mapping[str, Any]:
        return {**describe(recipe), "origin": self.origin} if self.origin else describe(recipe)

    def _view(self, run_id: str, state: State) -> Result[OutputT]:
        return result_of(run_id, state, None if self._output is None else self._output.restore, self.recipe.strategy)

    def _run(self, request: RunRequest, abort_event: Any = None, opener: Opener | None = None) -> Run[OutputT]:
        opener = self._opener(self.recipe) if opener is None else opener
        how = (abort_event, partial(self._tell, opener.journal, opener.recipe))
        given = (request.run_id, partial(self._open_run, opener, request), self._view, opener.journal, *how)
        if self._output is None:
            return Run(*given)
        from .steps.typed_run import TypedRun

        return TypedRun(self._output, *given)

    @asynccontextmanager
    async def _open_run(self, opener: Opener, request: RunRequest, channel: Channel) -> AsyncIterator[Scope]:
        """Open the run: start the tool servers, check what the request brings, record the beginning, lend the tools `deps`."""
        async with self._conversation.turn(request, self.journal) as turn:
            if self.servers is not None:
                await self.servers.start()
            if self.servers is None or self.servers.complete:  # the tools of a server that is missing are not known
                check_policies(self.recipe)
            check_deps(self.tools, request.deps)
            async with opener.open(turn, channel) as scope:
                scope.deps = request.deps
                current_view.set(ref(scope.view))
                if self.servers is not None and (missing := self.servers.missing_notice) and not scope.state.finished:
                    await scope.view.warn("mcp", missing)
                self._conversation.begin(scope)
                try:
                    async with HandingBack(scope, self._view):
                        with traced_by(scope):
                            yield scope
                finally:
                    self._conversation.keep(scope)
        self._afterwards.begin(scope)
