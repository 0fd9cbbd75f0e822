"""`Result`: a view of a run's final state."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from ..core.errors import ConfigError, MaxStepsExceeded, OutputDecodingFailed, RunStopped
from ..core.events import Asked
from ..core.messages import Media, Message, Text, ToolCall, ToolResult, Usage
from ..core.notices import join_notices
from ..core.openai_shape import result_text, to_openai
from ..core.people.answers import asks_person
from ..core.record import record, replace
from ..core.state import State
from ..core.steps import AgentStep, Stop
from ..kernel.bases import StrategyBase, optional
from ..kernel.chain import overrides
from ..kernel.load import load
from ..kernel.ports import Journal, Strategy
from ..people.answers import questions_of_tasks

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .partial import Partial

    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")


@record
class Result(Generic[OutputT]):
    """The result of a run.

    Attributes:
        run_id: The id of the run.
        output: The answer: an object of the output type, if the agent has one, else the text. After a limit, it is the best
            answer so far.
        text: The last text of the model in this turn.
        stop: The end of the run. `stop.kind` is `completed`, `degraded` (an answer without the tools that failed), a limit,
            `failed`, `cancelled`, `waiting` (for `questions`), or `released`: the run can be resumed.
        usage: Tokens and cost of the run.
        questions: The questions to answer, by key.
        history: The conversation. Every call in it has its result.
        session: The session of the run, or "".
        attempt: 1, and 1 more for each time that the run was resumed.
        state: The state of the run.
    """

    run_id: str
    output: OutputT | None
    text: str
    stop: Stop
    usage: Usage
    questions: Mapping[str, Asked]
    history: tuple[Message, ...]
    session: str
    attempt: int
    state: State

    def __repr__(self) -> str:
        return f"<Result {self.stop.kind}: {self.output!r:.200}, {self.usage.total} tokens, run {self.run_id}>"

    if not TYPE_CHECKING:  # a type checker would take any attribute

        def __getattr__(self, name: str) -> Any:
            from .peers.names import raise_missing

            raise_missing(self, name)

    @property
    def completed(self) -> bool:
        return self.stop.kind == "completed"

    @property
    def recorded(self) -> Any:
        """The output as the journal has it: plain JSON, also where `output` is an object of a type of yours."""
        return self.output if self.state.output is None else self.state.output

    @property
    def steps(self) -> tuple[AgentStep, ...]:
        """The steps of this turn: thought, action, input, observation. The last one is the answer."""
        return tuple(_steps(self.state.turn))

    @property
    def partial(self) -> Partial | None:
        """Return the calls that were made and not made, the reason, and advice; None if the run completed with an answer."""
        from .partial import partial_of

        return None if self.stop.kind in ("completed", "degraded") else partial_of(self.run_id, self.stop, self.state)

    @property
    def citations(self) -> tuple[Mapping[str, Any], ...]:
        """The sources of the answer that the provider names (pages that it searched, documents), in the provider's own form."""
        answers = [message for message in self.state.turn if message.role == "assistant"]
        return answers[-1].citations if answers else ()

    @property
    def media(self) -> tuple[Media, ...]:
        """Return the pictures and sounds that the model made in this turn, in order."""
        said = [message for message in self.state.turn if message.role == "assistant"]
        return tuple([part for message in said for part in message.parts if isinstance(part, Media)])

    @property
    def models(self) -> tuple[str, ...]:
        """The models that wrote the replies of this turn, in order."""
        return tuple([one.reply.model for one in self.state.replies])

    @property
    def role(self) -> str:
        """Always `assistant`: with `content` and `tool_calls` the result reads like a message in the OpenAI shapes."""
        return "assistant"

    @property
    def content(self) -> str:
        """All that the assistant said in this turn: what the `delta` chunks add up to. `text` is only the last message."""
        return "".join([message.text for message in self.state.turn if message.role == "assistant"])

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls of this turn in the OpenAI shapes, in their order."""
        said = [to_openai(message) for message in self.state.turn if message.role == "assistant"]
        return [call for message in said for call in message.get("tool_calls", ())]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation in the OpenAI shapes; every tool call in it has its result."""
        return [to_openai(message) for message in self.history]

    def unwrap(self) -> OutputT:
        """The output, if the run came to its answer (`completed`, or `degraded`); else the error that says why not."""
        if self.stop.kind not in ("completed", "degraded"):
            raise stop_error(self.stop, self.run_id, self.state)
        return cast(OutputT, self.output)

    def raise_for_stop(self) -> Self:
        """Return this result if the run completed. Raises the error of its stop otherwise."""
        if not self.completed:
            raise stop_error(self.stop, self.run_id, self.state)
        return self


def stop_error(stop: Stop, run_id: str, state: State) -> RunStopped:
    error = OutputDecodingFailed(stop) if stop.kind == "undecodable" else RunStopped(stop)
    if stop.kind == "max_steps":
        last_words = state.limit is not None and not state.noted
        error = MaxStepsExceeded(stop, state.spent.steps - last_words)
    error.run_id = run_id
    return error


_WITH_AN_ANSWER = ("completed", "degraded", "max_steps", "duplicate", "tool_limit")  # at a limit: the model's last words


def result_of(run_id: str, state: State, typed: Callable[[Any], Any] | None, strategy: Strategy | None = None) -> Result[Any]:
    """Return the result of a run. Without an output, it is what the strategy has so far, or the last text."""
    turn = state.turn
    text = next((m.text for m in reversed(turn) if m.role == "assistant" and m.text), "")
    stop = state.stop or Stop("released")
    if state.stop is None and state.questions:
        stop = Stop("waiting", join_notices("; ", [asked.prompt for asked in state.questions.values()]))
    output = state.output
    if typed is not None:
        output = typed(output) if stop.kind in _WITH_AN_ANSWER and output is not None else None
    elif output is None:
        has_more = overrides(strategy, "partial", StrategyBase)
        output = optional(strategy, StrategyBase, "partial")(state) if has_more else text
    return Result(
        run_id,
        output,
        text,
        stop,
        state.usage,
        {key: asked for key, asked in state.questions.items() if asks_person(key)},
        state.history,
        state.session,
        state.attempt,
        state,
    )


def _steps(turn: tuple[Message, ...]) -> Iterator[AgentStep]:
    results = {p.call_id: p for m in turn if m.role == "tool" for p in m.parts if isinstance(p, ToolResult)}
    for message in turn:
        if message.role != "assistant":
            continue
        calls: tuple[ToolCall, ...] = message.calls
        text = "".join([p.text for p in message.parts if isinstance(p, Text)])
        thought = (text or message.thinking) if calls else (message.thinking or text)
        for call in calls:
            result = results.get(call.id)
            yield AgentStep(thought, call.name, call.args, None if result is None else result_text(result))
        if not calls:
            yield AgentStep(thought)


View = Callable[[str, State], Result[Any]]


async def settle() -> None:
    """Wait for work in the background, which would end with the event loop."""
    if (tasks := sys.modules.get("kaname.run.tasks")) is not None:
        await tasks.settle_tasks()


def run_blocking(make: Callable[[], Awaitable[Result[OutputT]]], close: Callable[[], Awaitable[None]]) -> Result[OutputT]:
    """Run it to its end in an event loop of its own, with its work in the background."""

    async def go() -> Result[OutputT]:
        try:
            made = await make()
            await settle()
            return made
        finally:
            await close()

    if _loop_is_running():
        raise ConfigError.of(
            "run.sync_in_event_loop",
            "run_sync and resume_sync cannot be used inside a running event loop; write `await agent.run(…)` there",
        )
    return asyncio.run(go())


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def read_result(journal: Journal, run_id: str, view: View, known: Result[Any] | None = None) -> Result[Any]:
    """Return the result of a run as the journal has it, whichever process executes it.

    Its questions include those of work in the background that it left behind when it ended. `known`: the result to which the
    run has come in this process. It is read again if the run has gone on since.
    """
    cards = await journal.runs(run_id=run_id, limit=1)
    if known is not None and cards and (known.state.seq, known.state.time) == (cards[0].seq, cards[0].updated):
        result = known
    else:
        result = view(run_id, await load(journal, run_id))
    if asked := await questions_of_tasks(journal, result.state):
        result = replace(result, questions={**result.questions, **asked})
    going = bool(cards) and cards[0].status == "running" and result.stop.kind == "released"
    return replace(result, stop=Stop("running")) if going else result
