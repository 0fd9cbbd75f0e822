"""Steps (what to do next) and stops (how a run ends). A strategy returns exactly one `Step`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .messages import ToolCall
from .record import record

StopKind = Literal[
    "completed",  # the answer is there
    "degraded",  # an answer without the tools that failed
    "max_steps",  # limits: the best partial result is kept
    "duplicate",
    "tool_limit",
    "deadline",
    "budget",
    "blocked",  # a policy refused to go on
    "undecodable",  # the final answer never took the wanted form
    "incomplete",  # the model stopped without an answer, or in the middle of it (the text is kept)
    "failed",  # an error; `Stop.error` names it
    "cancelled",  # a caller stopped it
    "waiting",  # not an end: questions are open (only in results, never in the journal)
    "released",  # not an end: no process executes it, and it can be resumed (only in results)
    "running",  # not an end: a process executes it (only in `agent.result`)
]


@record
class Stop:
    """The end of a run: its reason and details.

    Args:
        kind: The reason, such as `completed` or `max_steps`.
        detail: A sentence that can be shown to everybody.
        error: The name of the error, if the run failed.
        said: The provider's own words, for owners and administrators.
        withheld: What a policy that ends a run as `blocked` objects to. If it is empty, the user's message counts as blocked.
    """

    kind: StopKind
    detail: str = ""
    error: str = ""
    said: str = ""
    withheld: Literal["", "input", "output", "nothing"] = ""

    @property
    def summary(self) -> str:
        """Return the kind and the detail in one line."""
        return f"{self.kind}: " + self.detail if self.detail else self.kind

    @property
    def blocks_input(self) -> bool:
        """Return True if the run ended because of the user's message."""
        return self.kind == "blocked" and self.withheld in ("", "input")


@record
class CallModel:
    """Call the model. The schema is only sent without tools: a model that can call tools answers freely.

    Args:
        tools: True for all tools, False for none, or the names of the tools to offer.
        schema: The JSON Schema of the answer.
        note: A message to add before the call.
        agent: Another agent of the team, instead of the one at work.
        instructions: Instructions for this call, instead of the agent's.
        settings: Settings for this call, over the agent's.
        shown: False to hide the pieces of the reply while it is written.
    """

    tools: bool | tuple[str, ...] = True
    schema: Mapping[str, Any] | None = None
    note: str = ""
    agent: str = ""
    instructions: str | None = None
    settings: Mapping[str, Any] | None = None
    shown: bool = True


@record
class CallTools:
    """Run these calls, at the same time.

    Args:
        calls: The calls. A call that is running already is not started again.
        as_completed: Ask the strategy again when the first of the running calls is done.
        told: The progress so far, for readers of the run.
    """

    calls: tuple[ToolCall, ...]
    as_completed: bool = False
    told: Mapping[str, Any] | None = None


@record
class Conclude:
    """End at a limit: refuse the open calls, and ask the model once more, with `note`, for a last answer.

    That call is made without regard to the limit. The run then ends with `stop`.
    """

    stop: Stop
    note: str


@record
class Finish:
    stop: Stop
    output: Any = None


Step = CallModel | CallTools | Conclude | Finish


@record
class AgentStep:
    """One exchange as a person reads it.

    The last step of a finished run has no action. Its thought is the reason for the answer, or the answer itself if the model
    gave no reason.

    Attributes:
        thought: The text or the thinking of the model before the call.
        action: The name of the tool, or None.
        action_input: The arguments of the call.
        observation: The result of the call as the model reads it; None if there is none yet.
    """

    thought: str = ""
    action: str | None = None
    action_input: Any = None
    observation: str | None = None
