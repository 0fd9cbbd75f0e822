"""Settle a call that a crash interrupted, by the effect that its tool declares. It is never repeated blindly."""

from __future__ import annotations

from typing import Any

from ..core.errors import BadArguments, JournalError, Released, Signal, Suspend
from ..core.events import ToolStarted
from ..core.messages import ToolResult
from ..core.notices import notice
from ..core.people.answers import RETRY, SKIP
from ..core.people.visible import shown_call
from .alarms import within
from .bases import options_of
from .boundary import Failure, attempt
from .ports import Repair, ToolContext
from .scope import Scope

_REPAIR_SECONDS = 300.0
SKIPPED = notice("effect.skipped", "this call was interrupted, and the user skipped it; it is not known whether it took effect")


async def settle(started: ToolStarted, scope: Scope) -> ToolResult | None:
    """Return the call's result if it is known by now, or `None` if it is safe to run the call."""
    call, tool = started.call, scope.caller(started.call).tools.get(started.call.name, None)
    if started.effect in ("pure", "idempotent"):
        return None
    if tool is None:
        return _ask(started, scope, notice("effect.no_tool", "the tool no longer exists"))
    try:
        prepared = tool.prepare(call)
    except BadArguments as problem:
        return _ask(
            started,
            scope,
            notice("effect.bad_arguments", "its arguments are no longer accepted: {it}", it=str(problem)),
        )
    await scope.confirm()
    if scope.stopping:
        raise Released
    context = scope.tool_context(call.id, started.key, started.attempt)
    options = options_of(tool)
    if started.effect == "compensable" and options.undo is not None and started.run_id == scope.run_id:
        outcome = await _repair(options.undo, prepared, context)
        return (
            _ask(started, scope, notice("effect.undo_failed", "undoing it failed: {it}", it=str(outcome)))
            if _is_failure(outcome)
            else None
        )
    if options.reconcile is not None:
        outcome = await _repair(options.reconcile, prepared, context)
        if _is_failure(outcome):
            return _ask(started, scope, notice("effect.look_up_failed", "checking its result failed: {it}", it=str(outcome)))
        return outcome if isinstance(outcome, ToolResult) else None
    return _ask(started, scope, "")


def is_skipped(result: ToolResult) -> bool:
    """Return True if a person did not want the interrupted call to be made again."""
    return getattr(result.error, "code", "") == SKIPPED.code


async def _repair(repair: Repair, prepared: Any, context: ToolContext) -> Any:
    return await attempt(lambda: within(_REPAIR_SECONDS, repair(prepared, context)), passing=(Signal, JournalError))


def _is_failure(outcome: Any) -> bool:
    return isinstance(outcome, Failure) or (isinstance(outcome, ToolResult) and outcome.is_error)


def _ask(started: ToolStarted, scope: Scope, why: str) -> ToolResult | None:
    key = (
        f"in-doubt:{started.call.id}:{started.attempt}"  # with the attempt: an answer is valid for one crash, not for the next
    )
    if key not in scope.state.answers:
        raise Suspend(key, _question(started, why, scope), (RETRY, SKIP), in_doubt=True, about=started.call)
    match scope.state.answers[key]:
        case {"result": value}:
            return ToolResult(value)
        case answer if answer == RETRY:
            return None
        case _:
            return ToolResult(error=SKIPPED)


def _question(started: ToolStarted, why: str, scope: Scope) -> str:
    call = shown_call(started.call.name, started.call.args)
    reason = " (" + why + ")" if why else ""
    if started.run_id != scope.run_id:
        return notice(
            "effect.forked",
            '{call} was started by run {run}, and may have taken effect there{reason}. Answer "retry" to run it in '
            'this run too, "skip" to continue without it, or {{"result": …}} if you know what it returned.',
            call=call,
            run=started.run_id,
            reason=reason,
        )
    if scope.overtaken:
        return notice(
            "effect.going_on",
            "{call} was started by another process, from which this run was taken over, and may still be running "
            'there. Make sure that it has ended. Then answer "retry" to run it again, "skip" to continue without '
            'it, or {{"result": …}} if you know what it returned.',
            call=call,
        )
    return notice(
        "effect.in_doubt",
        '{call} was started and then interrupted. It may already have taken effect{reason}. Answer "retry" '
        'to run it again, "skip" to continue without it, or {{"result": …}} if you know what it returned.',
        call=call,
        reason=reason,
    )
