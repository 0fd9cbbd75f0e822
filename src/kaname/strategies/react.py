"""Tools until the model answers; then, if an output type is wanted, the answer in that form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from ..core.errors import UnexpectedError
from ..core.messages import Message, ModelReply, ToolResult
from ..core.notices import notice
from ..core.record import field, record
from ..core.state import State
from ..core.steps import CallModel, CallTools, Conclude, Finish, Step, Stop
from .output import Output
from .termination import (
    ContinueWithThinking,
    ContinueWithTools,
    StandardTerminationPolicy,
    TerminateImmediately,
    TerminateWithOutput,
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
AGAIN = "That answer does not fit the required schema: {problem}. Give it again, corrected, and nothing else."


@record
class React:
    """Phases: tool use (tools are sent, the schema is not), final output (the reverse, with its retries), completed.

    With no tools to send the first call is already the final one.
    """

    output: Output | None = None
    termination: TerminationPolicy = field(factory=StandardTerminationPolicy)
    max_decode_retries: int = 2
    max_form_retries: int = 2
    concludes: bool = True  # at a limit the model has the last words

    def next(self, state: State) -> Step:
        if state.limit is not None:
            return self._last_words(state, state.limit)
        if not state.judging:
            if failed := _given_up(state.messages):
                return self._final(WITHOUT.format(failed=failed))
            said_last = bool(state.messages) and state.messages[-1].role == "assistant"  # somebody asked it to go on
            return CallModel(schema=self._schema, note=GO_ON if said_last else "")
        reply = state.replies[-1].reply
        if reply.problem:
            return self._misread(reply, state)
        match self.termination.decide(reply, state):
            case ContinueWithTools() if not state.replies[-1].step.tools and _end(state).kind == "degraded":
                return self._answer(reply.message.text, state)  # none were on offer any more
            case ContinueWithTools():
                return CallTools(state.pending)
            case ContinueWithThinking(note):
                return CallModel(schema=self._schema, note=note or GO_ON)
            case TerminateWithOutput(text):
                return self._answer(text, state)
            case TerminateImmediately(Stop(kind="completed")) if self.output is not None:
                return self._answer("", state)  # nothing is no answer of the wanted form
            case TerminateImmediately(Stop(kind="completed")) if (end := _end(state)).kind == "degraded":
                return Finish(end, end.detail)  # it had nothing to say: then what could not be done is the answer
            case TerminateImmediately(stop):
                return Finish(stop)
            case decision:
                raise UnexpectedError(f"{type(self.termination).__name__}.decide returned {decision!r}, which is no decision")

    @property
    def _schema(self) -> Mapping[str, Any] | None:
        return None if self.output is None else self.output.schema

    def _misread(self, reply: ModelReply, state: State) -> Step:
        """The form of the reply was wrong: say so and ask again, a few times; then take the best that there is."""
        in_a_row = len(list(takewhile(lambda replied: replied.reply.problem, reversed(state.replies))))
        if in_a_row <= self.max_form_retries:
            return CallModel(tools=state.replies[-1].step.tools, schema=self._schema, note=reply.note)
        said = [replied.reply.message.text for replied in state.replies if replied.reply.message.text.strip()]
        said = [text for text in said if not text.lstrip().startswith(("{", "`", "<", "Action"))]  # words, not debris
        if said:
            return self._answer(said[-1], state)
        end = _end(state)  # if it can say nothing, what could not be done is the answer
        if end.kind == "degraded" and self.output is None:
            return Finish(end, end.detail)
        told = notice(
            "stop.unreadable",
            "the model's replies could not be read, even when it was asked again: {problem}",
            problem=reply.problem,
        )
        return Finish(Stop("incomplete", told))

    def _answer(self, text: str, state: State) -> Step:
        end = _end(state, text if self.output is None else "")
        if self.output is None:  # if it says nothing, what could not be done is the answer
            return Finish(end, text if text.strip() or end.kind != "degraded" else end.detail)
        if state.replies[-1].step.schema is None:  # tools were on offer: now without them, in the wanted form
            return self._final(FINAL)
        try:
            return Finish(end, self.output.decode(text))
        except ValueError as problem:
            tries = sum([reply.step.schema is not None for reply in state.replies])
            if tries > self.max_decode_retries:
                told = notice("stop.undecodable", "after {tries} tries: {problem}", tries=tries, problem=str(problem))
                told = told + ("; " + end.detail) if end.kind == "degraded" else told
                return Finish(Stop("undecodable", told, "OutputDecodingFailed"))
            return self._final(AGAIN.format(problem=problem))

    def conclude(self, state: State, stop: Stop) -> Step:
        """At a limit the model answers from what is there, without tools; but not when time or money has run out."""
        if not self.concludes or state.limit is not None or stop.kind not in ("max_steps", "duplicate", "tool_limit"):
            return Finish(state.limit or stop)
        return Conclude(stop, LIMIT.format(why=stop.detail))

    def _last_words(self, state: State, stop: Stop) -> Step:
        if state.concluding is not None:
            return self._final("")
        text = state.replies[-1].reply.message.text
        if self.output is None:
            return Finish(stop, text or None)
        try:
            return Finish(stop, self.output.decode(text))
        except ValueError:
            return Finish(stop)

    def _final(self, note: str) -> CallModel:
        return CallModel(tools=False, schema=self._schema, note=note)


def _given_up(messages: Sequence[Message]) -> str:
    """What is said of the calls just made that have failed for good."""
    results = [part for message in takewhile(lambda one: one.role == "tool", reversed(messages)) for part in message.parts]
    return "\n".join([str(part.error) for part in results if isinstance(part, ToolResult) and part.gave_up])


def _end(state: State, text: str = "") -> Stop:
    """Completed; or degraded, if the answer had to do without a tool; or incomplete, if this text was cut off."""
    if text and state.replies[-1].reply.stop_reason == "max_tokens":
        return Stop("incomplete", notice("stop.incomplete", "the answer was cut off at the token limit"))
    for message in state.messages[state.turn_start :]:
        for part in message.parts:
            if isinstance(part, ToolResult) and part.gave_up:
                return Stop("degraded", str(part.error))
    return Stop("completed")
