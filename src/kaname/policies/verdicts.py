"""What a guardrail says of a text: whether it may pass, and why not."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from ..core.language import say
from ..core.messages import NOTHING, Usage
from ..core.record import field, record, replace


class GuardrailAction(StrEnum):
    ALLOW = "allow"
    WARN = "warn"
    BLOCK = "block"


@record
class GuardrailResult:
    """`details`: the pattern, the limit or the check that objected. Never the text itself. `usage`: what a judge has cost."""

    action: GuardrailAction = GuardrailAction.ALLOW
    reason: str = ""
    details: dict[str, Any] = field(factory=dict)
    usage: Usage = NOTHING


ALLOWED = GuardrailResult()
Check = Callable[[str], Any]
"""A text in; out comes `None` to allow it, the reason to block it, or a `GuardrailResult`. It may be async."""
_ORDER = (GuardrailAction.ALLOW, GuardrailAction.WARN, GuardrailAction.BLOCK)


def over_limit(text: str, limit: int | None, side: str) -> GuardrailResult | None:
    tokens = 0 if limit is None else estimated_tokens(text)
    return None if limit is None or tokens <= limit else too_long(tokens, limit, side)


def too_long(tokens: int, limit: int, side: str) -> GuardrailResult:
    reason = say(
        f"the {side} has about {tokens:,} tokens; the limit is {limit:,}",
        f"{'入力' if side == 'input' else '出力'}が約 {tokens:,} トークンあり、上限の {limit:,} を超えています",
    )
    return GuardrailResult(GuardrailAction.BLOCK, reason, {"tokens": tokens, "limit": limit})


def by_pattern(pattern: str, action: GuardrailAction) -> GuardrailResult:
    reason = say(f"it matches the pattern {pattern!r}", f"パターン {pattern!r} に一致しました")
    return GuardrailResult(action, reason, {"pattern": pattern})


def understood(said: Any, check: Check) -> GuardrailResult:
    if isinstance(said, GuardrailResult):
        known = said.action in _ORDER
        return replace(said, action=GuardrailAction(said.action) if known else GuardrailAction.BLOCK)
    if said is None or said is True:
        return ALLOWED
    if said is False or isinstance(said, str):
        reason = said or say(f"{named(check)} does not allow it", f"{named(check)} が許可しませんでした")
        return GuardrailResult(GuardrailAction.BLOCK, reason, {"check": named(check)})
    kind = type(said).__name__  # not the value: it may hold the very text
    reason = f"{named(check)} returned a {kind}; expected None, the reason to block, or a GuardrailResult"
    return GuardrailResult(GuardrailAction.BLOCK, reason, {"check": named(check)})


def worse(one: GuardrailResult, other: GuardrailResult) -> GuardrailResult:
    picked = other if _ORDER.index(other.action) > _ORDER.index(one.action) else one
    return replace(picked, usage=one.usage + other.usage)


def estimated_tokens(text: str) -> int:
    """From the characters alone: four to a token where they are ASCII, one to a token in Japanese and the like."""
    plain = len(text.encode("ascii", "ignore"))
    return (plain + 3) // 4 + (len(text) - plain)


def named(check: Any) -> str:
    return str(getattr(check, "__name__", type(check).__name__))
