"""Limits as people write them: "$5/day", "200k tokens/hour", "100 calls"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Any, Literal

from ...core.errors import ConfigError
from ...core.notices import notice
from ...core.record import record

Unit = Literal["usd", "tokens", "calls"]
_LIMIT = re.compile(
    r"(?P<dollar>\$)?\s*(?P<number>\d+(?:[.,_]\d+)*)\s*(?P<times>[km])?\s*(?P<unit>usd|dollars?|tokens?|calls?|requests?)?"
    r"\s*(?:(?:/|per|a|an)\s*(?P<period>hour|day|month|h|d))?",
    re.IGNORECASE,
)
_TIMES = {"": 1.0, "k": 1e3, "m": 1e6}
_PERIODS = {"": "", "h": "hour", "hour": "hour", "d": "day", "day": "day", "month": "month"}
_FORMS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m"}


@record
class Limit:
    """At most so much of a unit, in all or in each period."""

    amount: float
    unit: Unit
    period: str = ""

    def __str__(self) -> str:
        amount = f"${self.amount:g}" if self.unit == "usd" else f"{self.amount:,.0f} {self.unit}"
        return f"{amount}/{self.period}" if self.period else amount

    def show(self, amount: float) -> str:
        """Return an amount of this unit as people read it."""
        return f"${amount:.4f}" if self.unit == "usd" else f"{amount:,.0f} {self.unit}"

    def window(self, now: float, zone: tzinfo) -> str:
        """Return the name of the period that contains a time, such as 2026-11-17; "" without a period."""
        return datetime.fromtimestamp(now, zone).strftime(_FORMS[self.period]) if self.period else ""


def read_limits(given: Any, what: str) -> tuple[Limit, ...]:
    """Return the limits that a text, a number of dollars, or a list of them says. Raises `ConfigError`."""
    if given is None:
        return ()
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple([limit for one in given for limit in read_limits(one, what)])
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < float("inf"):
        return (Limit(float(given), "usd"),)
    found = _LIMIT.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None or not (found["dollar"] or found["unit"]) or (found["dollar"] and _unit(found["unit"]) != "usd"):
        raise ConfigError(
            notice(
                "budget.limit",
                '{what}: {given!r} is not a limit. Write "$5/day", "200k tokens/hour" or "100 calls/month"; '
                "the period (hour, day or month) can be left out",
                what=what,
                given=given,
            )
        )
    number = float(found["number"].replace(",", "").replace("_", "")) * _TIMES[(found["times"] or "").lower()]
    return (Limit(number, _unit(found["unit"]), _PERIODS[(found["period"] or "").lower()]),)


def _unit(word: str | None) -> Unit:
    start = (word or "usd").lower()
    return "tokens" if start.startswith("token") else "calls" if start.startswith(("call", "request")) else "usd"
