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
    "cancelled",  # somebody stopped it
    "waiting",  # not an end: questions are open (only in results, never in the journal)
    "released",  # not an end: nobody executes it now, and it can be resumed (only in results, too)
    "running",  # not an end: somebody executes it (only in `agent.result`)
]


@record
class Stop:
    """`detail` can be shown to everybody; `said` is what a provider said in its own words, for owners and administrators.
    `withheld`: what a policy that ends a run as `blocked` objects to. If it does not say, the user's message counts as
    blocked."""

    kind: StopKind
    detail: str = ""
    error: str = ""
    said: str = ""
    withheld: Literal["", "input", "output", "nothing"] = ""

    @property
    def told(self) -> str:
        """Return the kind and the detail in one line."""
        return f"{self.kind}: " + self.detail if self.detail else self.kind

    @property
    def blocks_input(self) -> bool:
        """Return True if the run ended because of what the user said."""
        return self.kind == "blocked" and self.withheld in ("", "input")


@record
class CallModel:
    """Ask the model. Where tools are sent the schema is not: a model that may call tools answers freely.

    `tools`: all, none, or those of these names. `agent`: another one of the team than who is at work. `instructions` and
    `settings`: for this call, instead of the agent's, and over them. `shown`: whether its pieces are, while it is written.
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
    """Run these calls, at the same time. `as_completed`: ask the strategy again when the first of them, or of those that are
    still running, is done; a call that is running already is not started again. `told`: how far it is, for who watches."""

    calls: tuple[ToolCall, ...]
    as_completed: bool = False
    told: Mapping[str, Any] | None = None


@record
class Conclude:
    """A limit is reached: refuse the calls that are open, and put in the note with which the model is asked for its last
    words. It is asked once more, without regard to that limit; the run ends with `stop`."""

    stop: Stop
    note: str


@record
class Finish:
    stop: Stop
    output: Any = None


Step = CallModel | CallTools | Conclude | Finish


@record
class AgentStep:
    """One exchange as a person reads it. The last one of a finished run has no action; its thought is why this is the
    answer, or the answer itself, where the model gave no reason."""

    thought: str = ""
    action: str | None = None
    action_input: Any = None
    observation: str | None = None
