"""Rate limits in their written form: "60/min", "100k/min", "5/s"."""

from __future__ import annotations

import re
from typing import Any

from ...core.durations import UNITS, is_whole, read_count
from ...core.errors import ConfigError
from ...core.record import record

_RATE = re.compile(
    r"(?P<amount>.*?\d\s*[km]?)\s*(?:requests?|tokens?|calls?)?\s*(?:/|\bper\b|\ban?\b)\s*(?P<period>[a-z]+)", re.IGNORECASE
)


@record
class PaceRate:
    """So much in any period of so many seconds."""

    amount: float
    seconds: float


@record
class PaceLimits:
    """The limits of one `Pace`. Calls with equal limits wait in one queue."""

    requests: PaceRate | None = None
    tokens: PaceRate | None = None
    at_once: int | None = None

    @property
    def rates(self) -> list[tuple[str, PaceRate]]:
        """Return the limits per period by what they count."""
        return [(kind, rate) for kind, rate in (("requests", self.requests), ("tokens", self.tokens)) if rate is not None]


def read_rate(given: Any, what: str) -> PaceRate | None:
    """Return the rate that a text such as "60/min" says. Raises `ConfigError`."""
    if given is None:
        return None
    match = _RATE.fullmatch(given.strip()) if isinstance(given, str) else None
    amount, period = (None, None) if match is None else (read_count(match["amount"]), UNITS.get(match["period"].lower()))
    if amount is None or amount < 1 or period is None:
        raise ConfigError.of(
            "pace.rate",
            'Pace: {what} must be a rate such as "60/min", "100k/min" or "5/s" (s, min, hour or day), not {given!r}',
            what=what,
            given=given,
        )
    return PaceRate(amount, period)


def read_at_once(given: Any) -> int | None:
    """Return the number of calls at once. Raises `ConfigError`."""
    if given is not None and not is_whole(given, 1):
        raise ConfigError.of("pace.at_once", "Pace: at_once must be a whole number of at least 1, not {given!r}", given=given)
    return given
