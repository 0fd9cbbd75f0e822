"""Durations, amounts of money, sizes and counts as people write them: "5m", "1h30m", 90, "$1", "200MB", "1,000". Pauses between
retries, and checks of numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from math import inf, isfinite
from time import time
from typing import TypeGuard

from .errors import ConfigError
from .reading.lazy_regex import lazy_regex

_LARGEST = sys.float_info.max
_WORDS = {
    0.001: ("ms",),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
    86400.0: ("d", "day", "days"),
}
UNITS = {word: value for value, words in _WORDS.items() for word in words}
"""Names of units of time, in lower case, and their seconds."""
_NUMBER = lazy_regex(r"\d+(?:\.\d+)?")  # of seconds
_PART = lazy_regex(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_COUNT = lazy_regex(r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:_\d+)*(?:\.\d+)?)\s*([km]?)", re.IGNORECASE)  # not 5,00
_MONEY = lazy_regex(r"\$?\s*(\d+(?:\.\d+)?)\s*(?:usd)?", re.IGNORECASE)
_SIZE = lazy_regex(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)


def is_whole(value: object, least: float = -inf, most: float = inf) -> TypeGuard[int]:
    """Return True for an integer from `least` to `most`. True and False are not numbers."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, least: float = -inf, most: float = inf) -> TypeGuard[int | float]:
    """Return True for a finite number from `least` to `most`, as a float can hold it. True and False are not numbers."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and -_LARGEST <= value <= _LARGEST and least <= value <= most  # type: ignore[operator]


def seconds(duration: float | str) -> float:
    """Return a duration in seconds. Raises `ConfigError` if it cannot be read."""
    plain = isinstance(duration, str) and _NUMBER.fullmatch(duration.strip()) is not None
    if plain or (isinstance(duration, int | float) and not isinstance(duration, bool)):
        value = float(duration)
    else:
        text = str(duration).strip()
        parts = list(_PART.finditer(text))
        known = all(part.group(2).lower() in UNITS for part in parts)
        if not parts or not known or "".join([part.group(0) for part in parts]) != text:
            raise ConfigError.of(
                "limit.no_duration",
                '{given!r} is not a duration; write "30s", "5m", "1h30m" or a number of seconds',
                given=duration,
            )
        value = sum([float(part.group(1)) * UNITS[part.group(2).lower()] for part in parts])
    if not 0 < value < float("inf"):
        raise ConfigError.of(
            "limit.duration_zero", "{given!r} is not a valid duration: it must be more than zero", given=duration
        )
    return value


def dollars(sum_of_money: float | str) -> float:
    """Return an amount of money in US dollars. Raises `ConfigError` if it cannot be read."""
    if isinstance(sum_of_money, int | float) and not isinstance(sum_of_money, bool):
        value = float(sum_of_money)
    else:
        match = _MONEY.fullmatch(str(sum_of_money).strip())
        if match is None:
            raise ConfigError.of(
                "limit.no_money",
                '{given!r} is not an amount of money; write "$1", "$0.25" or a number of US dollars',
                given=sum_of_money,
            )
        value = float(match.group(1))
    if not 0 <= value < float("inf"):
        raise ConfigError.of(
            "limit.money_negative", "{given!r} is not a valid amount of money: it cannot be negative", given=sum_of_money
        )
    return value


def size_in_bytes(size: int | str) -> int:
    """Return a size in bytes: "200MB" is 200 million bytes. Raises `ConfigError` if it cannot be read."""
    found = _SIZE.fullmatch(str(size).strip()) if isinstance(size, int | str) and not isinstance(size, bool) else None
    value = 0 if found is None else int(float(found.group(1)) * 1000 ** " kmgt".index(found.group(2).lower() or " "))
    if value <= 0:
        raise ConfigError.of("limit.no_size", '{given!r} is not a size; write "200MB", "1GB" or a number of bytes', given=size)
    return value


def read_count(text: str) -> float | None:
    """Return a number of things: "100", "1,000", "1_000", "1.5k" or "2M". None if it cannot be read."""
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        return None
    return float(re.sub("[,_]", "", match.group(1))) * 1000.0 ** " km".index(match.group(2).lower() or " ")


def backoff(failures: int, first: float, longest: float = inf, *, growth: float = 2.0, jitter: float = 0.0) -> float:
    """Return the seconds to wait before the next try.

    Args:
        failures: The number of failed tries in a row. Without one, there is no pause.
        first: The seconds after the first failure.
        longest: The maximum.
        growth: The factor for each further failure.
        jitter: The share of the pause that is left to chance, so that many callers do not return at the same moment: with
            0.25, between 75 and 100 % of the pause.
    """
    pause = min(longest, first * growth ** min(failures - 1, 60)) if failures > 0 else 0.0
    if not jitter:
        return pause
    from random import uniform  # slow to load, and rarely needed

    return pause * uniform(1.0 - jitter, 1.0)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a server allows a retry (`retry-after-ms`, `retry-after`); None if it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            value = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(0.0, value) if isfinite(value) else None
    from email.utils import parsedate_to_datetime  # slow to load, and seldom needed

    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time())
    except (ValueError, TypeError):
        return None
