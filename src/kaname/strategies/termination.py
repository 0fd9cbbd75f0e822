"""What a reply means: go on with tools, think on, or end. Decided from the stop reason and the calls, never from words."""

from __future__ import annotations

from typing import Protocol

from ..core.messages import ModelReply, ToolCall
from ..core.notices import notice
from ..core.record import field, record
from ..core.state import State
from ..core.steps import CallTools, Stop
from .stop import no_repeats, per_tool


@record
class ContinueWithTools:
    calls: tuple[ToolCall, ...]


@record
class ContinueWithThinking:
    note: str = ""


@record
class TerminateWithOutput:
    text: str


@record
class TerminateImmediately:
    reason: Stop


TerminationDecision = ContinueWithTools | ContinueWithThinking | TerminateWithOutput | TerminateImmediately


class TerminationPolicy(Protocol):
    def decide(self, reply: ModelReply, state: State) -> TerminationDecision: ...


class StandardTerminationPolicy:
    """| stop reason     | with calls         | with text           | with neither        |
    |-----------------|--------------------|---------------------|---------------------|
    | `tool_use`      | continue with them | end: incomplete     | end: incomplete     |
    | `end_turn`      | continue with them | end with the text   | end: completed      |
    | `max_tokens`    | end with the text  | end with the text   | end: incomplete     |
    | `stop_sequence` | end with the text  | end with the text   | end: completed      |
    | none given      | continue with them | end with the text   | end: completed      |

    An `end_turn` with calls is a tool turn, because Gemini reports it so. Calls that were cut off at `max_tokens` are not run.
    """

    def decide(self, reply: ModelReply, state: State) -> TerminationDecision:
        calls, text = reply.message.calls, reply.message.text
        match reply.stop_reason:
            case "tool_use" | "end_turn" | None if calls:
                return ContinueWithTools(calls)
            case "tool_use":
                told = notice("stop.no_call", "the model announced a tool call and made none")
                return TerminateImmediately(Stop("incomplete", told))
            case _ if text:
                return TerminateWithOutput(text)
            case "max_tokens":
                told = notice("stop.no_room", "the model's token limit was reached before an answer")
                return TerminateImmediately(Stop("incomplete", told))
            case _:
                return TerminateImmediately(Stop("completed", notice("stop.silent", "the model had nothing to say")))


@record
class DuplicateDetectionPolicy:
    """Wraps any policy: a repeated call, or one tool called too often, ends the run."""

    base: TerminationPolicy = field(factory=StandardTerminationPolicy)
    max_duplicate_tool_calls: int = 2
    max_tool_calls_per_tool: int | None = 5

    def decide(self, reply: ModelReply, state: State) -> TerminationDecision:
        decision = self.base.decide(reply, state)
        if isinstance(decision, ContinueWithTools):
            rules = no_repeats(self.max_duplicate_tool_calls) | per_tool(self.max_tool_calls_per_tool)
            if stop := rules(state, CallTools(decision.calls)):
                return TerminateImmediately(stop)
        return decision
