"""Verdicts of guardrails: allow, warn or block, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from inspect import isawaitable
from logging import getLogger
from typing import Any

from ....core.errors import Signal
from ....core.messages import NOTHING, ModelReply, Usage
from ....core.notices import notice
from ....core.record import field, record, replace
from ....core.tokens import estimate_tokens
from ....kernel.alarms import Late, within
from ....kernel.boundary import Failure, attempt
from ....kernel.threads import off_loop, runs_on_loop

AT_ONCE = 64  # characters that are looked at before somebody else may go on


class GuardrailAction(StrEnum):
    """The verdict of a check: let the text pass, let it pass with a warning, or block it."""

    ALLOW = "allow"
    WARN = "warn"
    BLOCK = "block"


@record
class GuardrailResult:
    """The verdict of a check.

    Attributes:
        action: `ALLOW`, `WARN` or `BLOCK`.
        reason: The reason, for people. It must not repeat the text that was checked.
        details: The pattern, the limit or the check that objected. A check of your own can put anything here, also None.
        usage: Tokens and cost of the check, if it called a model.
    """

    action: GuardrailAction = GuardrailAction.ALLOW
    reason: str = ""
    details: Any = field(factory=dict)
    usage: Usage = NOTHING

    @property
    def failed(self) -> bool:
        """Return True if the check did not come to a judgement."""
        return isinstance(self.details, dict) and self.details.get("failed") is True


class Withheld(Signal):
    """Something in a reply is blocked. `reply`: the whole of it, where it was complete."""

    def __init__(self, why: GuardrailResult, reply: ModelReply | None = None) -> None:
        super().__init__(why.reason)
        self.why, self.reply = why, reply


ALLOWED = GuardrailResult()
Check = Callable[[str], Any]
"""A text in; out comes `None` to allow it, the reason to block it, or a `GuardrailResult`. It may be async.

The reason is kept and shown: it must not repeat the text."""
_ANYTHING = (Exception, SystemExit, BaseExceptionGroup)
_METHODS = ("check_input", "check_output", "check_tool")  # of a guardrail: True says that it has passed
_NEAR = 0.9  # of a limit: a warning from here on
_SIDES = {"input": notice("guardrail.input", "input"), "output": notice("guardrail.output", "output")}
_ORDER = (GuardrailAction.ALLOW, GuardrailAction.WARN, GuardrailAction.BLOCK)


def by_limit(text: str, limit: int | None, side: str) -> GuardrailResult | None:
    """Return a block for a text that is over the limit, a warning from 90 % of the limit on, and else None."""
    tokens = 0 if limit is None else estimate_tokens(text)
    if limit is None or tokens < limit * _NEAR or not tokens:
        return None
    if tokens > limit:
        return too_long(tokens, limit, side)
    reason = notice(
        "guardrail.nearly_too_long",
        "the {side} has about {tokens:,} tokens, which is near the limit of {limit:,}",
        side=_SIDES[side],
        tokens=tokens,
        limit=limit,
    )
    return GuardrailResult(GuardrailAction.WARN, reason, {"tokens": tokens, "limit": limit})


def too_long(tokens: int, limit: int, side: str) -> GuardrailResult:
    reason = notice(
        "guardrail.too_long",
        "the {side} has about {tokens:,} tokens; the limit is {limit:,}",
        side=_SIDES[side],
        tokens=tokens,
        limit=limit,
    )
    return GuardrailResult(GuardrailAction.BLOCK, reason, {"tokens": tokens, "limit": limit})


def by_pattern(pattern: str, action: GuardrailAction, number: int = 0) -> GuardrailResult:
    """`number`: tell that and not the pattern, which would say what is blocked."""
    shown = notice("guardrail.number", "no. {number}", number=number) if number else repr(pattern)
    reason = notice("guardrail.matched", "the text matches the pattern {shown}", shown=shown)
    return GuardrailResult(action, reason, {"pattern": pattern})


async def run_check(check: Check, text: str, seconds: float) -> GuardrailResult:
    """Run a check. A check that fails or times out blocks the text. A plain function gets a thread."""
    try:
        work = check if runs_on_loop(check) else partial(_in_thread, check)
        said = await within(seconds, attempt(work, text, passing=(), caught=_ANYTHING))
    except Late:
        why = notice("guardrail.check_timeout", "took longer than {seconds:g} s", seconds=seconds)
        return _failed_verdict(check, why)
    if isinstance(said, Failure):  # not its message: it may hold the very text; and where it is, is the owner's business
        getLogger("kaname").warning("the check %s failed: %s", check_name(check), said.kind)
        return _failed_verdict(check, notice("guardrail.check_failed", "failed: {kind}", kind=type(said.error).__name__))
    return understood(said, check)


async def _in_thread(check: Check, text: str) -> Any:
    said = await off_loop(check, text)
    return await said if isawaitable(said) else said


def _failed_verdict(check: Check, why: str) -> GuardrailResult:
    reason = notice("guardrail.check_broken", "the check {named} {why}", named=check_name(check), why=why)
    return GuardrailResult(GuardrailAction.BLOCK, reason, {"check": check_name(check), "failed": True})


def understood(said: Any, check: Check) -> GuardrailResult:
    if isinstance(said, GuardrailResult):
        known = said.action in _ORDER
        return replace(said, action=GuardrailAction(said.action) if known else GuardrailAction.BLOCK)
    if hasattr(said, "action") and hasattr(said, "reason"):  # a class of one's own with the same fields
        action = GuardrailAction(said.action) if said.action in _ORDER else GuardrailAction.BLOCK
        return GuardrailResult(action, str(said.reason), getattr(said, "details", None))
    if isinstance(said, bool) and check_name(check) in _METHODS:
        said = None if said else ""
    if said is None:
        return ALLOWED
    if isinstance(said, GuardrailAction) or (isinstance(said, str) and not said):
        action = said if isinstance(said, GuardrailAction) else GuardrailAction.BLOCK
        no = notice("guardrail.not_allowed", "the text did not pass the check {named}", named=check_name(check))
        return GuardrailResult(action, no, {"check": check_name(check)})
    if isinstance(said, str):
        return GuardrailResult(GuardrailAction.BLOCK, said, {"check": check_name(check)})
    kind = type(said).__name__  # not the value: it may hold the very text. And who knows what True of a function would mean
    reason = f"{check_name(check)} returned a {kind}; expected None to allow it, the reason to block it, or a GuardrailResult"
    return GuardrailResult(GuardrailAction.BLOCK, reason, {"check": check_name(check), "failed": True})


def first_block(verdicts: Iterable[GuardrailResult]) -> GuardrailResult | None:
    return next((verdict for verdict in verdicts if verdict.action is GuardrailAction.BLOCK), None)


def cost_of(verdicts: Iterable[GuardrailResult]) -> Usage:
    usage = NOTHING
    for verdict in verdicts:
        usage = usage + verdict.usage
    return usage


def worse(one: GuardrailResult, other: GuardrailResult) -> GuardrailResult:
    picked = other if _ORDER.index(other.action) > _ORDER.index(one.action) else one
    return replace(picked, usage=one.usage + other.usage)


def check_name(check: Any) -> str:
    return str(getattr(check, "__name__", type(check).__name__))
