"""Limits as people write them: "$5/day", "200k tokens/hour", "100 calls"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal

from ...core.durations import dollars, is_number, read_count
from ...core.errors import ConfigError
from ...core.notices import notice
from ...core.reading.lazy_regex import lazy_regex
from ...core.record import record

Unit = Literal["usd", "tokens", "calls"]
_MONEY = lazy_regex(r"\$.*|.*usd", re.IGNORECASE)
_COUNT = lazy_regex(r"(?P<amount>.*?\d\s*[km]?)\s*(?P<unit>tokens?|calls?|requests?)", re.IGNORECASE)
_PERIOD = lazy_regex(r"(.*?)\s*(?:(?:/|\bper\b|\ban?\b)\s*(hour|day|month|h|d))?", re.IGNORECASE)
_PERIODS = {"": "", "h": "hour", "hour": "hour", "d": "day", "day": "day", "month": "month"}
_FORMS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m"}


@record
class Limit:
    """At most so much of a unit, in all or in each period."""

    amount: float
    unit: Unit
    period: str = ""

    def __str__(self) -> str:
        shown = f"${self.amount:g}" if self.unit == "usd" else self.show(self.amount)
        match self.period:
            case "hour":
                return notice("budget.per_hour", "{amount}/hour", amount=shown)
            case "day":
                return notice("budget.per_day", "{amount}/day", amount=shown)
            case "month":
                return notice("budget.per_month", "{amount}/month", amount=shown)
        return shown

    def show(self, amount: float) -> str:
        """Return an amount of this unit as people read it."""
        if self.unit == "usd":
            if amount >= 1:
                return f"${amount:.2f}"
            return f"${amount:.4f}" if amount >= 0.0001 or not amount else f"${amount:.9f}".rstrip("0")
        if self.unit == "tokens":
            return notice("budget.tokens_of", "{amount:,.0f} tokens", amount=amount)
        return notice("budget.calls_of", "{amount:,.0f} calls", amount=amount)

    def window(self, now: float, zone: tzinfo) -> str:
        """Return the name of the period that contains a time, such as 2026-11-17; "" without a period."""
        return datetime.fromtimestamp(now, zone).strftime(_FORMS[self.period]) if self.period else ""

    def renewal(self, now: float, zone: tzinfo) -> str:
        """Return the time at which the period ends; "" without a period."""
        begun = datetime.fromtimestamp(now, zone).replace(minute=0, second=0, microsecond=0)
        match self.period:
            case "hour":
                then = begun + timedelta(hours=1)
            case "day":
                then = begun.replace(hour=0) + timedelta(days=1)
            case "month":
                then = (begun.replace(day=1, hour=0) + timedelta(days=32)).replace(day=1)
            case _:
                return ""
        return then.strftime("%Y-%m-%d %H:%M %Z")


def read_limits(given: Any, what: str) -> tuple[Limit, ...]:
    """Return the limits that a text, a number of dollars, or a list of them says. Raises `ConfigError`."""
    if given is None:
        return ()
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return tuple([limit for one in given for limit in read_limits(one, what)])
    if is_number(given, 0):
        return (Limit(float(given), "usd"),)
    parts = _PERIOD.fullmatch(given.strip()) if isinstance(given, str) else None
    amount, period = ("", "") if parts is None else (parts[1], parts[2] or "")
    found = _PERIODS[period.lower()]
    if _MONEY.fullmatch(amount):
        with suppress(ConfigError):  # told below, with the forms of a limit
            return (Limit(dollars(amount), "usd", found),)
    counted = _COUNT.fullmatch(amount)
    if counted is not None and (number := read_count(counted["amount"])) is not None:
        unit: Unit = "tokens" if counted["unit"].lower().startswith("token") else "calls"
        return (Limit(number, unit, found),)
    raise ConfigError.of(
        "budget.limit",
        '{what}: {given!r} is not a limit. Write "$5/day", "200k tokens/hour" or "100 calls/month"; '
        "the period (hour, day or month) can be left out",
        what=what,
        given=given,
    )
