"""Rate limits in their written form: "60/min", "100k/min", "5/s"."""

from __future__ import annotations

import re
from typing import Any

from ...core.errors import ConfigError
from ...core.record import record

_RATE = re.compile(
    r"(?P<number>\d+(?:[._]\d+)*)\s*(?P<times>[km])?\s*(?:requests?|tokens?|calls?)?\s*(?:/|per|a|an)\s*(?P<period>[a-z]+)",
    re.I,
)
_TIMES = {"": 1.0, "k": 1e3, "m": 1e6}
_PERIODS = {1.0: ("s", "sec", "second"), 60.0: ("m", "min", "minute"), 3600.0: ("h", "hour"), 86400.0: ("d", "day")}
_SECONDS = {word: seconds for seconds, words in _PERIODS.items() for word in words}


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
    found = _RATE.fullmatch(given.strip()) if isinstance(given, str) else None
    period = _SECONDS.get(found["period"].lower()) if found else None
    amount = float(found["number"].replace("_", "")) * _TIMES[(found["times"] or "").lower()] if found else 0.0
    if period is None or amount < 1:
        raise ConfigError.of(
            "pace.rate",
            'Pace: {what} must be a rate such as "60/min", "100k/min" or "5/s" (s, min, hour or day), not {given!r}',
            what=what,
            given=given,
        )
    return PaceRate(amount, period)


def read_at_once(given: Any) -> int | None:
    """Return the number of calls at once. Raises `ConfigError`."""
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        raise ConfigError.of("pace.at_once", "Pace: at_once must be a whole number of at least 1, not {given!r}", given=given)
    return given
