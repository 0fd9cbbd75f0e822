"""Prices of replies, from the table `prices.json` (made by `scripts/prices.py`). The file `KANAME_PRICES` overrides it.

The cost of a model that is in neither is *unknown* (`None`), never zero.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.messages import Usage
from ..core.reading.lazy_regex import lazy_regex
from ..core.record import defaults, record

_DATED = lazy_regex(r"-(\d{4}-\d\d-\d\d|\d{8})$")


@record
class Price:
    """Price in US dollars for a million tokens.

    Attributes: input: The price of tokens that the model reads. output: The price of tokens that it writes. cached: The price
    of input that is read from the provider's cache (default: the price of `input`). written: The price of input that is
    written to the cache (default: the price of `input`). hour: The price of input that is written to the cache for an hour.
    Without it, such a reply costs *unknown*. over: With more tokens of input than this, the whole request is charged at the
    prices in `long`.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    over: int = 0
    long: Price | None = None
    hour: float | None = None

    def of(self, usage: Usage, written: int = 0, hour: int = 0) -> float | None:
        """Return the cost, or None if it is unknown.

        Args:
            usage: The tokens of the reply.
            written: How many of the input tokens were put into the provider's cache.
            hour: How many were put there for an hour.
        """
        if self.long is not None and usage.input > self.over:
            return self.long.of(usage, written, hour)
        if hour and self.hour is None:
            return None
        cached = self.input if self.cached is None else self.cached
        put = self.input if self.written is None else self.written
        fresh = max(0, usage.input - usage.cached - written - hour)
        kept = written * put + hour * (self.hour or 0.0)
        return (fresh * self.input + usage.cached * cached + kept + usage.output * self.output) / 1e6

    def most(self, input: int, output: int) -> float:
        """Return the highest cost that so many tokens can have, whatever the provider's cache holds."""
        if self.long is not None and input > self.over:
            return self.long.most(input, output)
        read = max(self.input, self.cached or 0.0, self.written or 0.0, self.hour or 0.0)
        return (input * read + output * self.output) / 1e6


def price_of(name: str) -> Price | None:
    """Return the price of `provider/model`. A dated release costs the same as its family, unless it has its own row."""
    table = _table(os.environ.get("KANAME_PRICES", ""))
    row = table.get(name) or table.get(_DATED.sub("", name))
    return None if row is None else _price(row)


def known_models() -> list[str]:
    """Return the names of all models with a price, in the order of the table."""
    return list(_table(os.environ.get("KANAME_PRICES", "")))


@cache
def _table(own: str) -> dict[str, Any]:
    shipped = json.loads(Path(__file__).with_name("prices.json").read_text())["prices"]
    if not own:
        return shipped  # type: ignore[no-any-return]
    try:
        given = json.loads(Path(own).read_text())
        rows = given.get("prices", given)
        for row in rows.values():
            _price(row)
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        raise ConfigError.of(
            "model.prices_unreadable",
            'the prices in KANAME_PRICES={own} cannot be read: {problem}. Expected {{"provider/model": '
            '{{"input": 1.0, "output": 2.0}}}} in US dollars per million tokens',
            own=own,
            problem=problem,
        ) from problem
    return {**shipped, **rows}


def _price(row: Mapping[str, Any]) -> Price:
    unknown = set(row) - {*defaults(Price), "input", "output"}
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is no part of a price")
    for name, value in row.items():
        if name != "long" and not (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9):
            raise ValueError(f"{name} is {value!r}, and not a number of dollars")
    return Price(**{**row, "long": _price(row["long"]) if row.get("long") else None})
