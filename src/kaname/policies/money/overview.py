"""Overview of the accounts in a ledger, as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC
from typing import Any

from ...core.record import record
from ...kernel.stores import Ledger
from .limits import Limit


@record
class AccountInfo:
    """An account: whose it is, its period, what was spent and reserved, and the limit, if it is known here."""

    scope: str
    whose: str
    unit: str
    period: str
    window: str
    spent: float
    reserved: float
    limit: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).__match_args__}


async def overview(ledger: Ledger, limits: Iterable[tuple[str, Limit]] = (), *, past: bool = False) -> list[AccountInfo]:
    """Return the accounts of the periods that have not ended.

    Args:
        ledger: The ledger of a journal.
        limits: The limits to show with them, as `budget.about.limits` lists them.
        past: Return the accounts of all periods.
    """
    known = {(level, limit.unit, limit.period): limit for level, limit in limits}
    found = []
    for balance in await ledger.balances():
        scope, whose, unit, period, window = balance.name.split("\x1f")
        limit = known.get((scope, unit, period)) or known.get((f"tool {whose}", unit, period))  # type: ignore[arg-type]
        times = [time.time() + hours * 3600 for hours in range(-14, 15)]  # a day begins earlier or later in other zones
        if past or window in [Limit(0, unit, period).window(at, UTC) for at in times]:  # type: ignore[arg-type]
            amount = None if limit is None else limit.amount
            found.append(AccountInfo(scope, whose, unit, period, window, balance.spent, balance.reserved, amount))
    return found
