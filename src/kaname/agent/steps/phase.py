"""`LoopPhase`: tools can be called, the final output is asked for, or the sequence is over."""

from __future__ import annotations

from typing import Literal

from ...core.record import record
from ...core.steps import CallModel
from ...kernel.scope import Scope


@record
class LoopPhase:
    """The phase of a step sequence.

    | phase                       | tools are sent | the response schema is sent |
    |-----------------------------|----------------|-----------------------------|
    | `tool_use`                  | if there are   | if there are no tools       |
    | `final_output(retry_count)` | no             | yes                         |
    | `completed`                 | –              | –                           |

    `retry_count` counts the answers that could not be decoded.
    """

    name: Literal["tool_use", "final_output", "completed"]
    retry_count: int = 0

    @classmethod
    def tool_use(cls) -> LoopPhase:
        return cls("tool_use")

    @classmethod
    def final_output(cls, retry_count: int = 0) -> LoopPhase:
        return cls("final_output", retry_count)

    @classmethod
    def completed(cls) -> LoopPhase:
        return cls("completed")


def phase_of(scope: Scope) -> LoopPhase:
    """Return the phase that the next request to the model belongs to."""
    state = scope.state
    if state.stop is not None:
        return LoopPhase.completed()
    step = scope.agent.strategy.next(state)
    if not isinstance(step, CallModel) or step.schema is None:
        return LoopPhase.tool_use()
    tries = sum([one.step.schema is not None for one in state.replies])
    return LoopPhase.final_output(tries) if step.tools is False or tries else LoopPhase.tool_use()
