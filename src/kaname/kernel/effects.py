"""A call that a former life started and never finished: settled by what the tool says of its effect, never repeated blindly."""

from __future__ import annotations

import json
from typing import Any

from ..core.errors import Suspend
from ..core.events import ToolStarted
from ..core.language import say
from ..core.messages import ToolResult
from .boundary import Failure, attempt
from .ports import Action, ToolContext

RETRY, SKIP = "retry", "skip"


async def settle(tool: Action, started: ToolStarted, prepared: Any, context: ToolContext) -> ToolResult | None:
    """The call's result where it is known by now; `None` where it is safe to run it."""
    match started.effect:
        case "pure" | "idempotent":
            return None
        case "compensable" if tool.undo is not None:
            outcome = await attempt(tool.undo, prepared, context)
            return await _ask(tool, started, context, f"undoing it failed with {outcome}") if _failed(outcome) else None
        case _ if tool.reconcile is not None:
            outcome = await attempt(tool.reconcile, prepared, context)
            if _failed(outcome):
                return await _ask(tool, started, context, f"looking it up failed with {outcome}")
            return outcome if isinstance(outcome, ToolResult) else None
        case _:
            return await _ask(tool, started, context, "")


def _failed(outcome: Any) -> bool:
    return isinstance(outcome, Failure) or (isinstance(outcome, ToolResult) and outcome.is_error)


async def _ask(tool: Action, started: ToolStarted, context: ToolContext, why: str) -> ToolResult | None:
    key = f"in-doubt:{started.call.id}:{started.attempt}"  # with the attempt: an answer holds for one death, not for the next
    match context.scope.state.answers.get(key):
        case None:
            raise Suspend(key, _question(tool, started, why), (RETRY, SKIP))
        case "retry":
            return None
        case {"result": value}:
            return ToolResult(value)
        case _:
            return ToolResult(error="interrupted, and skipped by decision of the user: whether it took effect is unknown")


def _question(tool: Action, started: ToolStarted, why: str) -> str:
    args = json.dumps(started.call.args, ensure_ascii=False)
    reason = f" ({why})" if why else ""
    return say(
        f"{tool.name}({args}) was started before the process died and may already have taken effect{reason}. "
        'Answer "retry" to run it again, "skip" to go on without it, or {"result": …} if you know what it returned.',
        f"{tool.name}({args}) は実行開始後にプロセスが落ちたため、すでに効果が出ている可能性があります{reason}。"
        '再実行するなら "retry"、飛ばすなら "skip"、結果がわかっているなら {"result": …} と答えてください。',
    )
