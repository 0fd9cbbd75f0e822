"""Tools until the model answers; then, if an output type is wanted, the answer in that form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from ..core.errors import UnexpectedError
from ..core.messages import REFUSAL, Message, ModelReply, Provided, ToolCall, ToolResult
from ..core.notices import notice
from ..core.record import field, record, replace
from ..core.state import State
from ..core.steps import CallModel, CallTools, Conclude, Finish, Step, Stop
from ..kernel.bases import StrategyBase, StrategyInfo
from .output import Output
from .termination import (
    ContinueWithThinking,
    ContinueWithTools,
    StandardTerminationPolicy,
    TerminateImmediately,
    TerminateWithOutput,
    TerminationDecision,
    TerminationPolicy,
)

FINAL = "Give your final answer now, as one JSON object that fits the required schema, and nothing else."
GO_ON = "Go on."
LIMIT = (
    "A limit is reached: {why}. No tool can be used any more. Answer now from what is known, in the language of the question, "
    "and say what was not done."
)
WITHOUT = (
    "These tools could not be used:\n{failed}\n\nAnswer without tools now, as well as you can and in the language of the "
    "question, and tell the user what could not be done."
)
NO_TOOLS = "it calls a tool, and no tool can be used now"
_ASK = CallModel()
AGAIN = "That answer does not fit the required schema: {problem}. Give it again, corrected, and nothing else."


@record
class React(StrategyBase):
    """Phases: tool use (tools are sent, the schema is not), final output (the reverse, with its retries), completed.

    With no tools to send the first call is already the final one.
    """

    output: Output | None = None
    termination: TerminationPolicy = field(factory=StandardTerminationPolicy)
    max_decode_retries: int = 2
    max_form_retries: int = 2
    concludes: bool = True  # at a limit the model has the last words

    @property
    def about(self) -> StrategyInfo:  # type: ignore[override]
        return StrategyInfo(output=self.output, listens=True)

    def next(self, state: State) -> Step:
        if state.limit is not None:
            return self._last_words(state, state.limit)
        if not state.judging:
            if state.replies and state.replies[-1].step.schema is not None and not _was_told(state):
                return self._final("")  # the final answer is being asked for
            if failed := _given_up(state.messages):
                return self._final(WITHOUT.format(failed=failed))
            said_last = bool(state.messages) and state.messages[-1].role == "assistant"  # somebody asked it to go on
            return CallModel(schema=self._schema, note=GO_ON if said_last else "") if self.output or said_last else _ASK
        reply = state.replies[-1].reply
        if reply.problem:
            return self._misread(reply, state)
        decision = self.termination.decide(reply, state)
        if state.started and not isinstance(decision, ContinueWithTools) and (begun := _started_calls(state)):
            return CallTools(begun)  # before a crash the policy ran them: what became of them comes first
        return self._act_on(decision, reply, state)

    def _act_on(self, decision: TerminationDecision, reply: ModelReply, state: State) -> Step:
        match decision:
            case ContinueWithTools(calls):
                return self._use(calls, reply, state)
            case ContinueWithThinking(note):
                return CallModel(tools=state.replies[-1].step.schema is None, schema=self._schema, note=note or GO_ON)
            case TerminateWithOutput(text):
                return self._answer(text, state)
            case TerminateImmediately(Stop(kind="completed")) if self._can_ask_again and not reply.message.text:
                return self._answer("", state)  # nothing is no answer of the wanted form
            case TerminateImmediately(Stop(kind="completed")) if (end := _end(state)).kind == "degraded":
                return Finish(end, end.detail)  # it had nothing to say: then what could not be done is the answer
            case TerminateImmediately(stop):
                ended = notice("stop.at_once", "the termination policy ended the run")
                return Finish(stop if stop.detail else replace(stop, detail=ended))
            case _:
                raise UnexpectedError(f"{self._judge}.decide returned {decision!r}, which is no decision")

    def _use(self, calls: Sequence[ToolCall], reply: ModelReply, state: State) -> Step:
        """Run those calls of the reply. Those that the policy left out are not run, and the model is told."""
        sent, asked = state.replies[-1].step, reply.message.calls
        if sent.schema is not None:
            return self._again(NO_TOOLS, state)
        if not sent.tools and _end(state).kind == "degraded":
            return self._answer(reply.message.text, state)  # none were on offer any more
        if asked and tuple(calls) == asked:
            return CallTools(state.pending)
        if not asked or any(call not in asked for call in calls):
            raise UnexpectedError(f"{self._judge}.decide continues with calls that the reply does not have: {calls!r:.200}")
        chosen = tuple([call for call in state.pending if call in calls or call.id in state.started])
        return CallTools(chosen) if chosen else CallModel(schema=self._schema)

    @property
    def _judge(self) -> str:
        return type(getattr(self.termination, "policy", self.termination)).__name__

    @property
    def _can_ask_again(self) -> bool:
        return self.output is not None and self.concludes

    @property
    def _schema(self) -> Mapping[str, Any] | None:
        return None if self.output is None else self.output.schema

    def _misread(self, reply: ModelReply, state: State) -> Step:
        """The form of the reply was wrong: say so and ask again, a few times. What could not be read is never the answer."""
        in_a_row = len(list(takewhile(lambda replied: replied.reply.problem, reversed(state.replies))))
        if in_a_row <= self.max_form_retries:
            return CallModel(tools=state.replies[-1].step.tools, schema=self._schema, note=reply.note)
        end = _end(state)  # if it can say nothing, what could not be done is the answer
        if end.kind == "degraded" and self.output is None:
            return Finish(end, end.detail)
        message = notice(
            "stop.unreadable", "the model's replies could not be read, even after retries: {problem}", problem=reply.problem
        )
        return Finish(Stop("incomplete", message))

    def _answer(self, text: str, state: State) -> Step:
        end = _end(state, text if self.output is None else "")
        if self.output is None:  # if it says nothing, what could not be done is the answer
            return Finish(end, text if text.strip() or end.kind != "degraded" else end.detail)
        if refused := _refusal(state.replies[-1].reply.message):
            message = notice("stop.refused", "the model refused to answer: {said}", said=refused)
            return Finish(Stop("incomplete", message))
        if state.replies[-1].step.schema is None:  # tools were on offer: now without them, in the wanted form
            try:
                return Finish(end, self.output.decode_exactly(text))  # it has that form already
            except ValueError:
                return self._final(FINAL)
        try:
            return Finish(end, self.output.decode(text))
        except ValueError as problem:
            return self._again(str(problem), state)

    def _again(self, problem: str, state: State) -> Step:
        """Ask for the final answer again, a few times."""
        tries = sum([reply.step.schema is not None for reply in state.replies])
        if tries <= self.max_decode_retries:
            return self._final(AGAIN.format(problem=problem))
        end = _end(state)
        told = notice(
            "stop.undecodable",
            "the answer did not have the required form after {tries} tries: {problem}",
            tries=tries,
            problem=problem,
        )
        told = told + ("; " + end.detail) if end.kind == "degraded" else told
        return Finish(Stop("undecodable", told, "OutputDecodingFailed"))

    def conclude(self, state: State, stop: Stop) -> Step:
        """Let the model answer at a limit from what is there, without tools; but not when time or money has run out."""
        if state.limit is None and stop.kind == "max_steps" and not self.concludes and (failed := _given_up(state.messages)):
            return Conclude(stop, WITHOUT.format(failed=failed))  # without the tool first, as after any other step
        if not self.concludes or state.limit is not None or stop.kind not in ("max_steps", "duplicate", "tool_limit"):
            return Finish(state.limit or stop)
        return Conclude(stop, LIMIT.format(why=stop.detail))

    def _last_words(self, state: State, stop: Stop) -> Step:
        if state.concluding is not None:
            return self._final("")
        text = state.replies[-1].reply.message.text
        stop = stop if self.concludes else _end(state)
        if self.output is None:
            return Finish(stop, text or None)
        try:
            return Finish(stop, self.output.decode(text))
        except ValueError:
            return Finish(stop)

    def _final(self, note: str) -> CallModel:
        return CallModel(tools=False, schema=self._schema, note=note)


def _was_told(state: State) -> bool:
    """Return True if the user has said something since the last reply."""
    return not state.noted and state.messages[-1].role == "user"


def _refusal(message: Message) -> str:
    """Return the words with which the model refused to answer in the wanted form, if the provider says that it did."""
    refused = any(isinstance(part, Provided) and part.data.get("type") == REFUSAL for part in message.parts)
    return message.text if refused else ""


def _started_calls(state: State) -> tuple[ToolCall, ...]:
    """Return the calls that were started and not finished."""
    return tuple([call for call in state.pending if call.id in state.started])


def _given_up(messages: Sequence[Message]) -> str:
    """Return the message about calls that have failed for good."""
    told = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        told += [str(part.error) for part in message.parts if isinstance(part, ToolResult) and part.gave_up]
    return "\n".join(told)


def _end(state: State, text: str = "") -> Stop:
    """Completed; or degraded, if the answer had to do without a tool; or incomplete, if this text was cut off."""
    if text and state.replies[-1].reply.stop_reason == "max_tokens":
        return Stop("incomplete", notice("stop.incomplete", "the answer was cut off at the token limit"))
    for message in state.messages[state.turn_start :]:
        for part in message.parts:
            if isinstance(part, ToolResult) and part.gave_up:
                return Stop("degraded", str(part.error))
    return Stop("completed")
