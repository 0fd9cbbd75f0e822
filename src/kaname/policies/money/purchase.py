"""Purchase: a payment for something else than a reply, such as a call of a tool that has a price, or a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...core.errors import AgentError, ModelError
from ...core.messages import NOTHING, Usage
from ...core.notices import notice
from ...kernel.stores import Balance
from ...kernel.view import current_view
from .budget import refusal
from .funds import PURSES, Bill, Funds, PaidLedger, calling

if TYPE_CHECKING:
    from ...kernel.view import RunView

T = TypeVar("T")
_numbers = count(1)
_LITTLE = 1e-9  # dollars, lost in sums of floats


class Purchase:
    """One payment of a run.

    Args:
        view: The run.
        what: What is paid for, as people read it.
    """

    def __init__(self, view: RunView, what: str) -> None:
        self.holder, self.funds, self._what = f"{view.run_id}:p{next(_numbers)}", Funds(view), what
        self._holds = False  # something is reserved
        self._unpriced: set[str] = view.scratch.setdefault(Purchase, set())  # what has turned out to have an unknown cost

    async def reserve(self, price: float | None) -> str:
        """Reserve the price in all limits. Return why it cannot be paid, or "".

        Args:
            price: US dollars; None if unknown.
        """
        refused = self._reserve_of_rules(price)
        self._holds = not refused and bool(price)
        for paid in () if refused or not price else self.funds.ledgers:
            try:
                refused = await self._reserve_in(paid, price or 0.0)
            except BaseException:
                self.funds.release(self.holder)
                raise
            if refused:
                self.funds.release(self.holder)
                break
        return refused

    def reserve_now(self, price: float | None) -> str:
        """Reserve in code that is not async. On the thread of an event loop, nothing is reserved in accounts."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.reserve(price))
        refused = self._reserve_of_rules(price)
        self._holds = not refused and bool(price)
        return refused

    def _reserve_of_rules(self, price: float | None) -> str:
        if price is None or (not price and self._what in self._unpriced):
            return self._no_price() if self.funds.needs_price else ""
        with PURSES:
            left = self.funds.remainders()
            if not price:
                return ""
            short = [one for one in left if one is None or one < price - _LITTLE]
            if short:
                return self._too_dear(min([one or 0.0 for one in short]), price)
            for _, purse, _ in self.funds.rules:
                purse.reserved[self.holder] = price
        return ""

    async def _reserve_in(self, paid: PaidLedger, price: float) -> str:
        ledger, accounts = paid

        def divide(balances: Sequence[Balance]) -> list[float] | None:
            left = [(one, one.remainder(balance)) for one, balance in zip(accounts, balances, strict=True)]
            if any(one.limit.unit == "usd" and rest < price - _LITTLE for one, rest in left):
                return None
            return [price if one.limit.unit == "usd" else 0.0 for one, _ in left]

        found, reserved = await ledger.reserve(self.holder, [one.name for one in accounts], divide)
        if reserved:
            return ""
        pairs = [pair for pair in zip(accounts, found, strict=True) if pair[0].limit.unit == "usd"]
        account, balance = min(pairs, key=lambda pair: pair[0].remainder(pair[1]))
        if account.remainder(balance) <= 0:
            return refusal(account, balance, price)
        return self._too_dear(account.remainder(balance), price)

    def settle(self, usage: Usage) -> None:
        """Charge what was spent to all limits."""
        if usage == NOTHING:
            if self._holds:
                self.funds.release(self.holder)
            return
        if usage.ceiling is None:
            self._unpriced.add(self._what)
        self.funds.settle(self.holder, usage, usage.total, calls=0)
        for bill in self.funds.bills:
            bill.add(usage)

    def _no_price(self) -> str:
        return notice(
            "budget.no_tool_price",
            "there is a limit on money, but what a call of {what} can cost is not known, so it was not made. Declare its "
            'price, or allow it: cost(…, unpriced=True), Budget(…, unpriced="allow")',
            what=self._what,
        )

    def _too_dear(self, left: float, price: float) -> str:
        return notice(
            "budget.too_dear",
            "not run: a call of {what} costs up to ${price:.4f}, and ${left:.4f} is left of the limit",
            what=self._what,
            price=price,
            left=max(0.0, left),
        )


def is_unpriced(what: str, view: RunView) -> bool:
    """Return True if something has turned out to have an unknown cost."""
    return what in view.scratch.get(Purchase, ())


async def buy(what: str, price: float | None, work: Callable[[], Awaitable[T]], cost: Callable[[T], Usage]) -> T:
    """Do paid work on behalf of the run in this task, and charge it to the limits of the run. Outside of a run, only do it.

    Args:
        what: What is paid for.
        price: What it costs at most, in US dollars; None if unknown.
        work: Does it.
        cost: Returns what it has cost.

    Raises:
        AgentError: The limits do not allow it.
    """
    if (view := _payer()) is None:
        return await work()
    with _Paying(view, what, price) as paying:
        paying.check(await paying.purchase.reserve(price))
        made = await work()
        paying.usage = cost(made)
        return made


def buy_in_thread(what: str, price: float | None, work: Callable[[], T], cost: Callable[[T], Usage]) -> T:
    """Do what `buy` does, in code that is not async. On the thread of an event loop, accounts are only charged afterwards."""
    if (view := _payer()) is None:
        return work()
    with _Paying(view, what, price) as paying:
        paying.check(paying.purchase.reserve_now(price))
        made = work()
        paying.usage = cost(made)
        return made


class _Paying:
    """Settles a purchase, also one that fails: it costs what the provider says, else unknown, at most its price."""

    def __init__(self, view: RunView, what: str, price: float | None) -> None:
        self.purchase, self.usage = Purchase(view, what), NOTHING
        self._view, self._price = view, price

    def check(self, refused: str) -> None:
        """Raise the reason, or go on: from now on the work costs something."""
        if refused:
            raise AgentError(refused)
        self.usage = Usage(cost=None, most=self._price)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ModelError) and error.usage is not None:
            self.usage = error.usage
        self.purchase.settle(self.usage)
        if not any(bill.is_of(self._view) for bill in self.purchase.funds.bills):  # not in a tool
            self._view.charge(self.usage)


async def meter(
    what: str, work: Callable[[], Awaitable[T]], reported: Callable[[T], Usage | None], payer: RunView | None = None
) -> tuple[T, Usage]:
    """Do work that may run agents and report what it spent, such as a check. Return its result and what to record for it.

    Args:
        what: What is paid for.
        work: Does it.
        reported: Returns what the work reports, or None if nobody records it: then it is recorded with the next reply.
        payer: The run that pays. By default the one that this task works for.
    """
    if (view := payer or _payer()) is None:
        made = await work()
        return made, reported(made) or NOTHING
    purchase, bill = Purchase(view, what), Bill(view, what, calling.get(), holds=False)
    outer, is_recorded = calling.set(bill), False
    try:
        made = await work()
        if (told := reported(made)) is None:
            return made, NOTHING
        own, is_recorded = excess(told, bill.usage), True
        purchase.settle(own)
        return made, bill.usage + own
    finally:
        calling.reset(outer)
        bill.is_open = False
        if not is_recorded and bill.usage is not NOTHING:
            view.charge(bill.usage)


def is_limited() -> bool:
    """Return True if limits on money apply to what is paid for in this task."""
    view = _payer()
    return view is not None and Funds(view).are_limited


def _payer() -> RunView | None:
    """Return the run that this task works for, if it has not ended."""
    if (bill := calling.get()) is not None:
        return bill.view
    view = current_view.get()()
    return view if view is not None and view.state.stop is None else None


def excess(reported: Usage, metered: Usage) -> Usage:
    """Return the part of what a tool reports that was not metered while it worked.

    A tool may report the total, with the agents that ran inside it, or only what kaname cannot see.
    """
    if metered == NOTHING or reported == NOTHING:
        return reported
    known, seen = reported.ceiling, metered.ceiling
    tokens = reported.input >= metered.input and reported.output >= metered.output
    if not tokens or (known is None) != (seen is None) or (known or 0.0) < (seen or 0.0) - _LITTLE:
        return reported
    if known is None:
        same = reported.total == metered.total
        return NOTHING if same else Usage(reported.input - metered.input, reported.output - metered.output, cost=None)
    more = max(0.0, known - (seen or 0.0))
    rest = Usage(reported.input - metered.input, reported.output - metered.output, cost=0.0 if more < _LITTLE else more)
    return NOTHING if rest == NOTHING else rest
