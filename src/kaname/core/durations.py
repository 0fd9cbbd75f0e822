"""Parse durations, amounts of money and sizes as people write them: "5m", "1h30m", 90, "$1", "200MB"."""

from __future__ import annotations

import re

from .errors import ConfigError
from .notices import notice

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")  # of seconds
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_MONEY = re.compile(r"\$?\s*(\d+(?:\.\d+)?)\s*(?:usd)?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)


def seconds(duration: float | str) -> float:
    """Return a duration in seconds. Raises `ConfigError` if it cannot be read."""
    plain = isinstance(duration, str) and _NUMBER.fullmatch(duration.strip()) is not None
    if plain or (isinstance(duration, int | float) and not isinstance(duration, bool)):
        value = float(duration)
    else:
        parts = list(_PART.finditer(str(duration).strip()))
        if not parts or "".join([part.group(0) for part in parts]) != str(duration).strip():
            raise ConfigError.of(
                "limit.no_duration",
                '{given!r} is not a duration; write "30s", "5m", "1h30m" or a number of seconds',
                given=duration,
            )
        value = sum([float(part.group(1)) * _UNITS[part.group(2)] for part in parts])
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
        found = _MONEY.fullmatch(str(sum_of_money).strip())
        if found is None:
            raise ConfigError.of(
                "limit.no_money",
                '{given!r} is not an amount of money; write "$1", "$0.25" or a number of US dollars',
                given=sum_of_money,
            )
        value = float(found.group(1))
    if not 0 <= value < float("inf"):
        told = notice(
            "limit.money_negative", "{given!r} is not a valid amount of money: it cannot be negative", given=sum_of_money
        )
        raise ConfigError(told)
    return value


def size_in_bytes(size: int | str) -> int:
    """Return a size in bytes: "200MB" is 200 million bytes. Raises `ConfigError` if it cannot be read."""
    found = _SIZE.fullmatch(str(size).strip()) if isinstance(size, int | str) and not isinstance(size, bool) else None
    value = 0 if found is None else int(float(found.group(1)) * 1000 ** " kmgt".index(found.group(2).lower() or " "))
    if value <= 0:
        raise ConfigError.of("limit.no_size", '{given!r} is not a size; write "200MB", "1GB" or a number of bytes', given=size)
    return value
