"""`Agent`: a recipe with defaults, and the verbs run, resume, fork, replay, attach, stop."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar, Unpack, cast, overload
from warnings import warn
from weakref import ref

from ..core.chunks import Chunk
from ..core.errors import ConfigError
from ..core.events import BACKGROUND
from ..core.messages import Message
from ..core.state import State
from ..kernel.bases import ContextBase, ModelBase, optional, options_of
from ..kernel.channel import Channel
from ..kernel.ports import ContextPart, Journal, Model, Policy, Recipe, Sink, StopRule, Strategy
from ..kernel.scope import Scope
from ..kernel.view import current_view
from ..run.afterwards import Afterwards
from ..run.attach import follow_chunks, stop_run
from ..run.child import Parent
from ..run.handoffs.handoff import Team, check_policies, hand_back, join
from ..run.input import Input, as_mapping, as_tuple, as_turn, check_deps, is_config, tell_of_tools, tools_of_agent
from ..run.opener import Opener
from ..run.recipe import (
    all_models,
    changed_recipe,
    check_parts,
    choose_models,
    describe,
    pass_trace_on,
    recipe_of,
    tools_of_context,
)
from ..run.request import RunRequest, Turns, check_ids, new_run_id
from ..run.result import OutputT, Result, read_result, result_of, run_blocking
from ..run.run import Run
from ..run.turns import Recent
from ..stores.default import choose
from ..strategies.output import Output
from ..strategies.stop import Rules
from .conversation import Conversation
from .options import AgentOptions, explained

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.build import Config
    from ..designs.step_sequence import AgentConfiguration, AgentStepSequence
    from ..run.many.batches import BatchPrices
    from ..run.many.map import Map, MapInput, Runner
    from ..run.replay import Replay
    from ..tools.mcp.config import Servers
    from ..tools.mcp.questions import Elicit
    from ..tools.mcp.servers import McpServers
    from .work.schedule import Missed, Schedule

    Thinks: TypeAlias = Model | str | Config | Sequence[Model | str | Sequence[Model | str]] | None

T = TypeVar("T")
_SETTINGS = "{'temperature': 0}"  # an example, for errors


@explained
class Agent(Generic[OutputT]):
    """An agent: a model, its tools, and the rules it works under.

    Inside `async with`, the runs of one user without a `session_id` are one conversation (`messages`). Otherwise each run
    stands alone.

    Args:
        model: A model name ("openai/gpt-5.4-mini", "local"), a `Model`, or a `Config` with everything that its file says. In a
            list, the next model is asked when one fails (`ModelFallback`); a list inside it holds equal models.
        tools: Functions, `Tool` objects, or definitions. Functions are wrapped with `@tool`.
        name: The name, in records and traces, and for other agents of a team.
        instructions: The system prompt.
        output: The type of the answer: any type that pydantic validates. By default the answer is text.
        strategy: What decides the next step (default: `React`, which calls tools until the model answers).
        policies: Rules around each model call and tool call: approvals, guardrails, budgets, caches.
        stops: Limits. Each replaces the default of its kind: `max_steps(20) | cost("$1")`.
        journal: Where runs are recorded: a path, a `Journal`, or "memory" (default: the journal of the project).
        sinks: Receivers of everything that is recorded: a console, a log file, OpenTelemetry.
        context: Parts that change what the model sees: memories, summaries, project files. One, or a list.
        settings: Settings of the model, such as `{"temperature": 0}`.
        mcp_servers: Tool servers by name, in the usual form. They start with `async with` or the first run, and end with
            `close`.
        elicit: A function `elicit(server, question, schema)` that answers what a tool server asks the user.
        team: Agents to transfer or delegate work to, or a `Team`.

    Raises:
        ConfigError: A value cannot be used.
    """

    config: Config | None = None  # what it was made of, if it was a configuration
    schedules: Mapping[str, Schedule] = {}

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
        listed = (context,) if callable(context) else as_tuple("context", context)
        parts = tuple(sorted(listed, key=lambda part: optional(part, ContextBase, "order")))  # what cuts comes before what adds
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
        """Return an agent of a configuration.

        Args:
            config: The configuration: `load_config("kaname.yaml")`.
            agent: The name of the agent (default: the first one in the file).
            options: Options of `Agent`, which replace what the file says.
        """
        if not is_config(config):
            raise ConfigError.of(
                "agent.config",
                "from_config() expects a Config. Load the file first: Agent.from_config(load_config({given!r}))",
                given=config,
            )
        parts = {**config.parts(agent or None), **options}
        return Agent(parts.pop("model"), parts.pop("tools"), **parts)

    def _init_from_config(self, config: Config, tools: Iterable[Any], options: Mapping[str, Any]) -> None:
        """Build the agent from a configuration. Options that were passed override it."""
        parts = config.parts()
        own = [name for name in (*AgentOptions.__annotations__, "output") if options[name] not in (None, "", ())]
        parts |= {name: options[name] for name in own}
        Agent.__init__(self, parts.pop("model"), [*parts.pop("tools"), *tools], **parts)
        self.config = config

    def _make_servers(self, servers: Servers, elicit: Elicit | None) -> McpServers:
        from ..run.sampling import answers_for
        from ..tools.mcp.servers import McpServers

        return McpServers(servers, self.tools, elicit, answers_for(self))

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.recipe.name

    def __repr__(self) -> str:
        model = getattr(self.recipe.model, "name", "no model")
        return f"<Agent {self.recipe.name!r}: {model}, tools: {', '.join(self.tools) or 'none'}>"

    if not TYPE_CHECKING:  # a type checker would take any attribute

        def __getattr__(self, name: str) -> Any:
            from ..run.peers.names import raise_missing

            raise_missing(self, name)

    @property
    def available_tools(self) -> list[dict[str, Any]]:
        """The tools as the model sees them."""
        listed = [tool for tool in self.tools.values() if options_of(tool).listed]
        shown = [tool for tool in listed if tool.name not in self.tools.hidden]
        return [{"name": one.name, "description": one.description, "parameters": one.parameters} for one in shown]

    # The open agent

    async def __aenter__(self) -> Self:
        """Start the tool servers, and begin a conversation."""
        if self.servers is not None:
            await self.servers.start()
        self._conversation.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conversation.close()
        await self.close()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The open agent's conversation (of runs without a `user_id`) in the OpenAI shapes.

        It is a plain list: clear it, append to it, or set another. The next run continues from what it holds then. Read it
        from the agent while a run is under way: it has the user's message, and every exchange that is finished.
        """
        return self._conversation.messages

    @messages.setter
    def messages(self, messages: Iterable[Mapping[str, Any] | Message]) -> None:
        self._conversation.messages = messages

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
        """Start a run: `await` it for the result, or iterate it (`async for`) for its chunks. It begins with one of these.

        Args:
            user_input: A text, a list of texts and `Media`, or messages.
            session_id: The conversation that the run belongs to. Runs of one session take turns.
            user_id: The user.
            abort_event: An event, such as `asyncio.Event`. When it is set, the run stops within moments and keeps what it has.
            run_id: The id of the run. By default it is a new one.
            deps: What tools find in `ToolContext.deps`. It is not recorded.
            when_busy: What to do if a run of the session is under way: "wait" (default), or "refuse" with `SessionBusy`.
            by: The person who starts the run, if that is not the user. An approval that must come from another person than the
                user cannot come from this person either.
            model: The model for this run only. Pass it again to `resume`.
            settings: Settings of the model for this run only, over those of the agent. Pass them again to `resume`.

        Raises:
            ConfigError: A value cannot be used.
        """
        if when_busy not in ("wait", "refuse"):
            raise ConfigError.of("agent.when_busy", "when_busy must be 'wait' or 'refuse', not {given!r}", given=when_busy)
        opener = self._opener_with(model, settings)
        return self._run(self._request(user_input, session_id, user_id, run_id, deps, when_busy, by), abort_event, opener)

    def run_sync(self, user_input: Input, **options: Any) -> Result[OutputT]:
        """Run and wait for the result, and for work in the background, in code without an event loop. Options as for `run`."""
        return run_blocking(lambda: self.run(user_input, **options), self.close)

    async def close(self) -> None:
        """Wait until memories of the last runs are stored. Then close model connections, tool servers and memory files.

        The journal stays open.
        """
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
        """Return the run as an `AgentStepSequence`, which the caller pulls step by step.

        It does not wait for other runs of its session; later runs wait for it. For the parameters see `AgentStepSequence`.
        """
        sequence: AgentStepSequence = import_module("kaname.designs").AgentStepSequence(  # the one arrow that points up
            self,
            user_input,
            configuration=configuration,
            termination_policy=termination_policy,
            session_id=session_id,
            user_id=user_id,
            run_id=run_id,
            deps=deps,
        )
        return sequence

    def process_single_turn_with_tools(self, messages: list[Any]) -> Run[Any]:
        """Use `kaname.designs.TinyAgent` instead. This name ends with the next release."""
        warn("Agent.process_single_turn_with_tools has moved to kaname.designs.TinyAgent", DeprecationWarning, stacklevel=2)
        run: Run[Any] = import_module("kaname.designs.tiny_agent").process_single_turn_with_tools(self, messages)
        return run

    def _request(
        self,
        user_input: Input,
        session_id: str | None,
        user_id: str,
        run_id: str | None,
        deps: Any,
        turns: Turns,
        by: str = "",
    ) -> RunRequest:
        check_ids(session_id=session_id, user_id=user_id, run_id=run_id, by=by)
        session, words = self._conversation.session if session_id is None else session_id, as_turn(user_input)
        return RunRequest(run_id or new_run_id(), words, "new", session, user_id or "", turns=turns, by=by, deps=deps)

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
        """Continue a run after a crash, a stop or a question. A completed run returns its result again.

        Args:
            run_id: The run.
            answers: Answers to its questions, by the keys of `result.questions`.
            takeover: Continue the run even if another process seems to execute it. That process can write nothing more.
            after: First show the chunks of the facts after this number.
            abort_event: As for `run`.
            deps: As for `run`.
            by: The person who answers.
            model: The model for the rest of this run only.
            settings: Settings of the model for the rest of this run only.

        Raises:
            RunNotFound: There is no such run.
            RunBusy: Another process executes it.
        """
        check_ids(run_id=run_id, by=by)
        answers = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
        request = RunRequest(run_id, how="resume", answers=answers, by=by, takeover=takeover, after=after, deps=deps)
        return self._run(request, abort_event, self._opener_with(model, settings))

    def resume_sync(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Result[OutputT]:
        """Resume and wait for the result, in code without an event loop."""
        return run_blocking(lambda: self.resume(run_id, answers, **options), self.close)

    async def result(self, run_id: str) -> Result[OutputT]:
        """Read the result of a run from its journal. While a process executes the run, `stop.kind` is `running`.

        Raises `RunNotFound`.
        """
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
        """Make a run once, however often this is called: start it, continue it after a crash, or return its result again.

        Args:
            run_id: The id of the run.
            user_input: The input, if the run is new.
            answers: Answers to its questions, by the keys of `result.questions`.
            session_id, user_id, abort_event, deps: As for `run`.
            takeover: As for `resume`.

        Raises:
            RunBusy: Another process executes the run.
            RunExists: The run belongs to another user.
        """
        check_ids(session_id=session_id, user_id=user_id, run_id=run_id)
        answers = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
        options: dict[str, Any] = {"answers": answers, "takeover": takeover, "deps": deps}
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
            after=parent.seen,
            deps=parent.deps,
        )
        return self._run(request, opener=Opener(recipe, journal, sinks, self._description))

    def run_request(self, request: RunRequest) -> Run[OutputT]:
        """Return the run of a request, for a worker."""
        return self._run(request)

    def attach(self, run_id: str, after: int = 0) -> AsyncIterator[Chunk]:
        """Read the chunks of a run, in this process or another, until it ends. A run that waits for an answer is waited for.

        Args:
            run_id: The run.
            after: The number of a fact: the chunks of later facts are read. Runs of this process also show their deltas.
        """
        return follow_chunks(self.journal, run_id, after)

    async def stop(self, run_id: str, reason: str = "") -> bool:
        """Stop a run and its work in the background, in any process.

        Args:
            run_id: The run.
            reason: Why, for the record.

        Returns:
            False if it had ended already.

        Raises:
            RunNotFound: There is no such run.
        """
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
        """Start a new run that continues from a fact of another run, which stays as it is.

        If the fork stops or waits, resume it with an agent that has the same changes: they are not recorded with the run.

        Args:
            run_id: The run to fork.
            at: The number of the fact (default: the last one).
            user_input: The next input.
            results: Results of calls that wait at that fact, by call id.
            model: The model of the fork.
            instructions: The instructions of the fork.
            abort_event: As for `run`.
            deps: As for `run`.
            new_id: The id of the fork. By default it is a new one.
            by: The person who forks it.
        """
        recipe = changed_recipe(self.recipe, model, None, instructions)
        if at is not None and not isinstance(at, int):
            raise ConfigError.of("fork.at_kind", "at must be the number of a fact, not {at!r}", at=at)
        check_ids(by=by)
        messages = () if user_input is None else as_turn(user_input)
        results = as_mapping("results", results, "{call_id: output}")
        request = RunRequest(new_id or new_run_id(), messages, "fork", source=(run_id, at), results=results, deps=deps, by=by)
        return self._run(request, abort_event, self._opener(recipe))

    def map(
        self,
        inputs: Iterable[Input | MapInput] | AsyncIterable[Input | MapInput],
        *,
        job: str = "",
        at_once: int = 8,
        batch: bool | BatchPrices = False,
        deps: Any = None,
    ) -> Map[OutputT]:
        """Run the agent once for each input, several at a time.

        Args:
            inputs: A list, an iterator or an async iterator of inputs. It is read as the runs progress, so it can be very long.
                Pass `MapInput(…)` for an input with a key, a session or a user of its own.
            job: The name of the job. The ids of its runs follow from it, the key and the input: with the same name, inputs that
                have a result are not run again, and runs that were interrupted are resumed. By default it is a new one.
            at_once: How many runs are under way at the same time (default: 8).
            batch: True to call the model through the provider's batch API, for half the price. A run waits until its batch is
                done, which takes up to a day for each of its steps.
            deps: What tools find in `ToolContext.deps`.

        Returns:
            `Map`: iterate it for `(key, result)` as they come, or await it for all results in the order of the inputs.

        An input that fails does not stop the others: `result.stop` says what happened.
        """
        from ..run.many.map import Map

        return Map(cast("Runner[OutputT]", self), inputs, job, at_once, batch, deps)

    async def submit(
        self,
        user_input: Input,
        *,
        session_id: str = "",
        user_id: str = "",
        run_id: str | None = None,
        priority: int = 0,
        delay: float | str = 0.0,
        at: float = 0.0,
        key: str = "",
        queue: str = "default",
    ) -> str:
        """Queue a run for a worker (`kaname worker`, or `kaname serve` on this journal), and return its id.

        When this returns, the run is in the database of the journal. With the same `run_id` it is queued once.

        Args:
            user_input: The input, as for `run`.
            session_id: The conversation. Its runs are executed one after the other, over all machines.
            user_id: The user.
            run_id: The id of the run. By default it is a new one.
            priority: Runs with a higher priority are started first (default: 0).
            delay: Start it not before this time has passed, in seconds or as text such as "5m".
            at: Start it not before this time, in seconds since 1970.
            key: A user, tenant or provider. Workers with a limit per key execute only so many of its runs at a time.
            queue: The queue, for workers with `--queues`.

        Raises:
            ConfigError: If the journal is in memory.
        """
        from .work.submit import submit_run

        how = {"priority": priority, "at": at, "key": key, "queue": queue}
        return await submit_run(self.journal, self.recipe, user_input, session_id, user_id, run_id, delay, **how)

    async def submit_answers(
        self, run_id: str, answers: Mapping[str, Any], *, by: str = "", priority: int = 0, queue: str = "default"
    ) -> None:
        """Record the answers to the questions of a waiting run, and queue the run for a worker.

        When this returns, the answers are in the journal. Raises `InvalidState` if they are not accepted.
        """
        from .work.submit import submit_answers

        await submit_answers(self._opener(self.recipe), run_id, answers, by, priority, queue)

    async def say(self, run_id: str, message: Any, *, by: str = "", urgent: bool = False) -> bool:
        """Say something to a run while it works, in any process. When this returns, the message is on disk.

        The model sees it at its next call. If the run ends before that, the next run of its session gets the message.

        Args:
            run_id: The run.
            message: A text, a list of texts and `Media`, or a message.
            by: The person who says it.
            urgent: End the model call under way, so that the model sees the message at once.

        Returns:
            False if the run had ended already.

        Raises:
            RunNotFound: If there is no such run.
            InvalidState: If the run has ended and belongs to no session.
        """
        return await self._tell(self.journal, self.recipe, run_id, message, by=by, urgent=urgent)

    async def _tell(self, journal: Journal, recipe: Recipe, run_id: str, message: Any, **how: Any) -> bool:
        from ..run.say import say

        return await say(journal, recipe, run_id, message, **how)

    def schedule(
        self,
        name: str,
        user_input: Input,
        *,
        cron: str = "",
        tz: str = "UTC",
        every: float | str | None = None,
        at: Any = None,
        missed: Missed = "one",
        session_id: str = "",
        user_id: str = "",
        priority: int = 0,
        key: str = "",
        queue: str = "default",
    ) -> None:
        """Queue a run at certain times, as long as a worker or a server with this agent works.

        Several workers can have the same schedule: the run of each time is executed once.

            agent.schedule("report", "Write the daily report", cron="0 9 * * 1-5", tz="Asia/Tokyo")

        Args:
            name: The name of the schedule. Ids of its runs begin with it and the name of the agent.
            user_input: The input, as for `run`.
            cron: A cron expression with five fields: minute, hour, day, month, day of the week.
            tz: The time zone of `cron` and `at` (default: UTC).
            every: An interval such as "15m", up to "400d", counted from 1970-01-01 00:00 UTC, so that all machines agree.
            at: One time: a `datetime`, a text such as "2026-12-01T09:00", or seconds since 1970.
            missed: What to do after a time at which no worker was alive: "skip" it, run "one" for all missed times (default),
                or run "all" of them, up to 100.
            session_id, user_id, priority, key, queue: As for `submit`.

        Raises:
            ConfigError: If a value is wrong.
        """
        from .work.schedule import make_schedule

        as_turn(user_input)
        how = {"session_id": session_id, "user_id": user_id, "priority": priority, "key": key, "queue": queue}
        made = make_schedule(self.name, name, user_input, cron, tz, every, at, missed, **how)
        self.schedules = {**self.schedules, name: made}

    async def replay(self, run_id: str, *, rerun_pure_tools: bool = False, deps: Any = None) -> Replay:
        """Repeat a recorded run offline, and compare its decisions with the recorded ones.

        Args:
            run_id: The run.
            rerun_pure_tools: Run pure tools again, instead of using their recorded results.
            deps: For tools that are run again.
        """
        from ..run.replay import replay

        if rerun_pure_tools:
            check_deps(self.recipe, deps)
        return await replay(self.recipe, self.journal, run_id, rerun_pure_tools, deps, self.servers)

    # Inside

    def _opener(self, recipe: Recipe) -> Opener:
        return Opener(recipe, self.journal, self.sinks, self._description, self._recent)

    def _opener_with(self, model: Any, settings: Mapping[str, Any] | None) -> Opener:
        """Return the opener of runs with another model or other settings."""
        if model is None and settings is None:
            return self._opener(self.recipe)
        return self._opener(changed_recipe(self.recipe, model, as_mapping("settings", settings, _SETTINGS)))

    def _description(self, recipe: Recipe) -> Mapping[str, Any]:
        return {**describe(recipe), "origin": self.origin} if self.origin else describe(recipe)

    def _view(self, run_id: str, state: State) -> Result[OutputT]:
        return result_of(run_id, state, None if self._output is None else self._output.restore, self.recipe.strategy)

    def _run(self, request: RunRequest, abort_event: Any = None, opener: Opener | None = None) -> Run[OutputT]:
        opener = self._opener(self.recipe) if opener is None else opener
        how = (abort_event, partial(self._tell, opener.journal, opener.recipe))
        arguments = (request.run_id, partial(self._open_run, opener, request), self._view, opener.journal, *how)
        if self._output is None:
            return Run(*arguments)
        from .typed_run import TypedRun

        return TypedRun(self._output, *arguments)

    async def _open_run(self, opener: Opener, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
        """Open a run: start the tool servers, check what the request brings, take the turn, record the beginning, lend.

        `stack` ends it.
        """
        if opener.recipe.context or opener.recipe.team:  # last of all, if nothing has failed
            stack.push(lambda problem, *_: self._afterwards.begin(scope) if problem is None else None)
        if self._conversation.session:
            request = await self._conversation.take_turn(request, self.journal, stack)
        if self.servers is not None:
            await self.servers.start()
        if self.servers is None or self.servers.complete:  # the tools of a server that is missing are not known
            check_policies(self.recipe)
        check_deps(self.recipe, request.deps)
        scope: Scope = await opener.open(request, channel, stack)
        current_view.set(ref(scope))
        if self.servers is not None and (missing := self.servers.missing_notice) and not scope.state.finished:
            await scope.warn("mcp", missing)
        if self._conversation.session:
            self._conversation.begin(scope)
            stack.callback(self._conversation.keep, scope)
        if any(key.startswith(BACKGROUND) for key in scope.state.custom):
            await import_module("kaname.run.tasks").revive(scope)
        if scope.state.stop is None:
            stack.push_async_exit(partial(hand_back, scope, self._view))
        pass_trace_on(scope, stack)
        return scope
