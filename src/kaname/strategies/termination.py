"""The meaning of a reply: go on with tools, think on, or end. Decided from the stop reason and the calls, never from words."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any, Protocol, get_args

from ..core.errors import ConfigError
from ..core.messages import ModelReply, ToolCall
from ..core.notices import notice
from ..core.record import field, record
from ..core.state import State
from ..core.steps import CallTools, Stop, StopKind
from .stop import count, no_repeats, per_tool

_ENDS = [kind for kind in get_args(StopKind) if kind not in ("waiting", "released", "running")]


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
    """`reason`: how the run ends. A text is the kind of a `Stop`."""

    reason: Stop

    def __post_init__(self) -> None:
        reason: Any = self.reason
        if reason in _ENDS:
            object.__setattr__(self, "reason", Stop(reason))
        elif not isinstance(reason, Stop):
            raise ConfigError.of(
                "termination.reason",
                "TerminateImmediately takes a Stop(kind, detail) or one of these kinds: {kinds}; not {reason!r:.100}",
                kinds=", ".join(_ENDS),
                reason=reason,
            )


TerminationDecision = ContinueWithTools | ContinueWithThinking | TerminateWithOutput | TerminateImmediately


class TerminationPolicy(Protocol):
    """Decides what a reply means, from the reply and the run's state alone: after a resume, the same reply is judged again."""

    def decide(self, reply: ModelReply, state: State) -> TerminationDecision: ...


class AskedOnce:
    """Ask a policy once for each reply, however often its decision is needed. For one run."""

    def __init__(self, policy: TerminationPolicy) -> None:
        self.policy = policy
        self._reply: ModelReply | None = None
        self.decision: TerminationDecision | None = None  # on the last reply

    def decide(self, reply: ModelReply, state: State) -> TerminationDecision:
        if self.decision is None or reply is not self._reply:
            self.decision, self._reply = self.policy.decide(reply, state), reply
        return self.decision


def check_termination(policy: Any) -> None:
    """Raise `ConfigError` for a policy that cannot be asked: a class, or it has no `decide`, or one that must be awaited."""
    decide = getattr(policy, "decide", None)
    if isinstance(policy, type) or not callable(decide) or iscoroutinefunction(decide):
        raise ConfigError.of(
            "termination.no_policy",
            "{policy!r:.100} is not a termination policy: pass an instance with a method decide(reply, state) that "
            "is not async",
            policy=policy,
        )
    if isinstance(policy, DuplicateDetectionPolicy):
        check_termination(policy.base)


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
                message = notice("stop.no_call", "the model announced a tool call, but did not make one")
                return TerminateImmediately(Stop("incomplete", message))
            case _ if text:
                return TerminateWithOutput(text)
            case "max_tokens":
                message = notice("stop.no_room", "the model reached its token limit before it answered")
                return TerminateImmediately(Stop("incomplete", message))
            case _:
                return TerminateImmediately(Stop("completed", notice("stop.silent", "the model gave an empty answer")))


@record
class DuplicateDetectionPolicy:
    """A termination policy that ends the run if a call is repeated, or one tool is called too often.

    Args:
        base: The policy that decides otherwise (default: `StandardTerminationPolicy`).
        max_duplicate_tool_calls: The maximum number of equal calls (default: 2).
        max_tool_calls_per_tool: The maximum number of calls of one tool (default: 5); None for no limit.
    """

    base: TerminationPolicy = field(factory=StandardTerminationPolicy)
    max_duplicate_tool_calls: int = 2
    max_tool_calls_per_tool: int | None = 5

    def __post_init__(self) -> None:
        for name in ("max_duplicate_tool_calls", "max_tool_calls_per_tool"):
            count(getattr(self, name), name)

    def decide(self, reply: ModelReply, state: State) -> TerminationDecision:
        decision = self.base.decide(reply, state)
        if isinstance(decision, ContinueWithTools):
            rules = no_repeats(self.max_duplicate_tool_calls) | per_tool(self.max_tool_calls_per_tool)
            if stop := rules(state, CallTools(decision.calls)):
                return TerminateImmediately(stop)
        return decision
