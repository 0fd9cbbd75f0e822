"""`Partial`: what a run that did not come to its answer has done, what it has not, why, and what the user can do."""

from __future__ import annotations

from ..core.messages import ToolCall, ToolResult
from ..core.notices import join_notices, notice
from ..core.openai_shape import result_text
from ..core.record import record
from ..core.state import State
from ..core.steps import Stop
from ..core.values import plain_text, shorten

_LONGEST = 200


@record
class Deed:
    """A tool call: its tool, its arguments, and what came of it."""

    tool: str
    args: str
    outcome: str = ""

    def __str__(self) -> str:
        return f"{self.tool}({self.args})" + (f": {self.outcome}" if self.outcome else "")


@record
class Partial:
    """A partial result.

    Attributes: done: Calls that succeeded. failed: Calls that failed. in_doubt: Calls that were started, and whose outcome is
    unknown. not_done: Calls that were requested but not started. why: The reason for the stop. advice: What the user can do
    now. The texts of the last two are notices, which front ends translate.
    """

    done: tuple[Deed, ...]
    failed: tuple[Deed, ...]
    in_doubt: tuple[Deed, ...]
    not_done: tuple[Deed, ...]
    why: str
    advice: tuple[str, ...]

    def __str__(self) -> str:
        lists = (
            (notice("partial.done", "Done:"), self.done),
            (notice("partial.failed", "Failed:"), self.failed),
            (notice("partial.in_doubt", "Started, outcome unknown:"), self.in_doubt),
            (notice("partial.not_done", "Not done:"), self.not_done),
        )
        listed = [join_notices("\n", (head, *[f"- {deed}" for deed in deeds])) for head, deeds in lists if deeds]
        return join_notices("\n", (self.why, *listed, *self.advice))


def partial_of(run_id: str, stop: Stop, state: State) -> Partial:
    """Return the partial result of a run that has stopped or waits."""
    calls = [call for reply in state.replies for call in reply.reply.message.calls]
    done, failed, in_doubt, not_done = list[Deed](), list[Deed](), list[Deed](), list[Deed]()
    for call in calls:
        result = state.results.get(call.id)
        if call.id in state.started:
            in_doubt.append(_as_deed(call))
        elif result is None or result.not_run:
            not_done.append(_as_deed(call, result))
        else:
            (failed if result.is_error else done).append(_as_deed(call, result))
    advice = _advice(run_id, stop)
    if in_doubt:
        told = notice(
            "partial.check",
            "Check what became of {names} before you have it done again",
            names=", ".join(d.tool for d in in_doubt),
        )
        advice.insert(0, told)
    return Partial(tuple(done), tuple(failed), tuple(in_doubt), tuple(not_done), stop.summary, tuple(advice))


def _as_deed(call: ToolCall, result: ToolResult | None = None) -> Deed:
    outcome = "" if result is None else shorten(result_text(result), _LONGEST)
    return Deed(call.name, shorten(plain_text(call.args), _LONGEST), outcome)


def _advice(run_id: str, stop: Stop) -> list[str]:
    go_on = notice("partial.resume", "To continue: agent.resume({run_id!r}), or `kaname runs resume {run_id}`", run_id=run_id)
    match stop.kind:
        case "waiting":
            return [notice("partial.answer", "Answer the question to continue: {go_on}", go_on=go_on)]
        case "budget":
            return [notice("partial.budget", "Raise the limit, or wait until it is renewed"), go_on]
        case "deadline" | "max_steps":
            return [notice("partial.limit", "Give it a higher limit, or a smaller task"), go_on]
        case "duplicate" | "tool_limit":
            return [notice("partial.stuck", "It kept repeating itself: say what is missing, or give it another tool")]
        case "blocked":
            return [notice("partial.blocked", "A guardrail blocked this. Put the request in other words")]
        case "undecodable" | "incomplete":
            return [notice("partial.form", "Try again, or choose a model that keeps to the required form"), go_on]
        case _:
            return [go_on]
