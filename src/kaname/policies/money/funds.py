"""Funds of a call: the limits of its run and of the runs in whose tools it runs, the purse of a run and its children, and the
bill of each tool call around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ...core.messages import NOTHING, Usage
from ...core.state import State
from ...kernel.bases import Bound, bound_of
from ...kernel.ports import Policy
from ...kernel.stores import Ledger
from .budget import Account, Budget, ledger_of

if TYPE_CHECKING:
    from ...kernel.view import RunView

_REPLYS_SHARE = 0.8
PURSES = Lock()
"""Hold it to look into purses and to reserve in them: a tool can run another agent in a thread of its own."""


class Purse:
    """Calls at the same time must not spend the same money. The facts alone cannot tell: a call is recorded after it."""

    __slots__ = ("_opening", "reserved", "spent")

    def __init__(self) -> None:
        self.spent = 0.0
        self.reserved: dict[str, float] = {}
        self._opening: dict[int, float] = {}  # what was left at first, by the rule that a person has written

    def remainder(self, rule: Any, state: State) -> float | None:
        """Return the remaining amount of a rule's limit; None if the rule has no limit, or the amount is unknown."""
        bound = bound_of(rule)
        by_facts, written = bound.dollars_left(state), bound.root or rule
        if by_facts is None:
            most = bound_of(written).most if bound.allows_unpriced else None
            return None if most is None else most - self.spent - sum(self.reserved.values())  # of what is known
        opening = self._opening.setdefault(id(written), by_facts + self.spent)
        return min(by_facts, opening - self.spent) - sum(self.reserved.values())


def purse_of(view: RunView) -> Purse:
    purse: Purse = view.scratch.setdefault(Purse, Purse())
    return purse


class RunLimits:
    """The limits of one run: the accounts of its budgets, its rules on money with the purse of each, its rules on calls."""

    def __init__(self, view: RunView) -> None:
        self.agent = view.agent if view.root.team else None  # without a team it does not change
        policies, bounds = view.policies(), [(rule, bound_of(rule)) for rule in view.stops]
        self.budgets = [policy for policy in policies if isinstance(policy, Budget) and any(policy.limits.values())]
        self.share = _share_of_reply(policies)
        self.rules: list[tuple[Any, Purse]] = [
            (rule, bound.purse or purse_of(view)) for rule, bound in bounds if bound.kind == "budget" and _has_limit(bound)
        ]
        self.calls = [bound.most for _, bound in bounds if bound.kind == "tool_limit" and bound.most is not None]
        self.limits_money = bool(self.budgets or self.rules)
        self._accounts: tuple[int, list[Account]] = (-1, [])
        self._funds: tuple[int, Funds | None] = (-1, None)
        self._needs_price: bool | None = None

    def accounts(self, view: RunView) -> list[Account]:
        """Return the accounts, each once: a child run may have the same budget as its parent."""
        minute = _minute()
        if self._accounts[0] != minute:
            self._accounts = minute, self._find_accounts(view)
        return self._accounts[1]

    def funds(self, view: RunView) -> Funds:
        """Return the funds of a call that is inside no other."""
        minute, (found_at, funds) = _minute(), self._funds
        if funds is None or found_at != minute:
            funds = Funds(view)
            self._funds = minute, funds
        return funds

    def _find_accounts(self, view: RunView) -> list[Account]:
        found: dict[str, Account] = {}
        for account in [one for budget in self.budgets for one in budget.accounts(view)]:
            known = found.get(account.name)
            if known is None or account.limit.amount < known.limit.amount:
                found[account.name] = account
        return list(found.values())

    def needs_price(self, view: RunView) -> bool:
        """Return True if a limit on money allows nothing whose price is unknown."""
        if self._needs_price is None:  # which accounts there are does not change, only their periods
            strict = [budget for budget in self.budgets if not budget.allows_unpriced]
            money = any(account.limit.unit == "usd" for budget in strict for account in budget.accounts(view))
            self._needs_price = money or any(not bound_of(rule).allows_unpriced for rule, _ in self.rules)
        return self._needs_price

    @property
    def longest_reply(self) -> int:
        return min([budget.longest_reply for budget in self.budgets], default=16_384)


def _share_of_reply(policies: Sequence[Policy]) -> float:
    """Return the share of the limits for the reply. The rest is for those who judge it while it is written."""
    return _REPLYS_SHARE if any(policy.about.judges_replies for policy in policies) else 1.0


def _has_limit(bound: Bound) -> bool:
    """Return True if the rule that a person has written is not switched off. A child's rule stands for one of its parent."""
    return (bound if bound.root is None else bound_of(bound.root)).most is not None


def _minute() -> int:
    """Return the number of the minute. No period of an account begins within one."""
    return int(time()) // 60


def limits_of(view: RunView) -> RunLimits:
    limits: RunLimits | None = view.scratch.get(RunLimits)
    if limits is None or (limits.agent is not None and limits.agent is not view.agent):
        limits = view.scratch[RunLimits] = RunLimits(view)
    return limits


class Bill:
    """The bill of a model call or a tool call that is under way: what was paid for inside it.

    Args:
        view: The run. The bill holds it weakly: timers keep the context in which they were set.
        call_id: The tool call, or "" for a model call.
        outer: The bill of the call inside which this one is made.
        holds: True if money is reserved for the call itself, so that nothing inside it can wait for that money.
    """

    __slots__ = ("_view", "call_id", "holds", "is_open", "outer", "usage")

    def __init__(self, view: RunView, call_id: str, outer: Bill | None, holds: bool) -> None:
        self._view, self.call_id, self.outer, self.holds = ref(view), call_id, outer, holds
        self.usage, self.is_open = NOTHING, True

    @property
    def view(self) -> RunView | None:
        """Return the run, if it has not ended."""
        view = self._view()
        return view if view is not None and view.state.stop is None else None

    def is_of(self, view: RunView) -> bool:
        """Return True if this is the bill of a call of that run."""
        return self._view() is view

    def add(self, usage: Usage) -> None:
        """Put something on the bill. After the call has ended, it is charged to the run."""
        if self.is_open:
            self.usage += usage
        elif (view := self.view) is not None:
            view.charge(usage)


calling: ContextVar[Bill | None] = ContextVar("calling", default=None)
"""The bill of the call that is under way in this task."""


class PaidLedger(NamedTuple):
    ledger: Ledger
    accounts: list[Account]


class Funds:
    """All limits that a call of a run is paid from.

    A run inside a tool of another run, which was not opened with `run_child`, is paid from the limits of both. A child that
    was opened with `run_child` has the limits of its parent already.
    """

    def __init__(self, view: RunView) -> None:
        self.bills: list[Bill] = []  # on which the call is put
        self.is_nested = False
        levels = [(one, limits_of(one)) for one in (view, *self._payers_around(view))]
        self.rules = [(rule, purse, one) for one, limits in levels for rule, purse in limits.rules]
        self.share = levels[0][1].share
        self.longest_reply = min([limits.longest_reply for _, limits in levels])
        self.needs_price = any(limits.needs_price(one) for one, limits in levels if limits.limits_money)
        self.ledgers = _ledgers([(one, limits) for one, limits in levels if limits.budgets])
        self.accounts = [account for paid in self.ledgers for account in paid.accounts]

    def _payers_around(self, view: RunView) -> Iterator[RunView]:
        """Yield the runs around this one from whose limits the call is paid, too, and note the bills on which it is put."""
        bill, seen, inmost = calling.get(), view, True
        while bill is not None:
            self.is_nested = self.is_nested or bill.holds
            if bill.is_of(view):
                self.bills += [bill] if bill.call_id and inmost else []  # the tool asks a model itself
                inmost = False
            elif (outer := bill.view) is not None and outer is not seen:
                parent, seen = seen.state.parent, outer
                if bill.call_id and (parent is None or parent[0] != outer.run_id):
                    self.bills.append(bill)
                    yield outer
            bill = bill.outer

    @property
    def are_limited(self) -> bool:
        return bool(self.rules or self.accounts)

    def remainders(self) -> list[float | None]:
        """Return the remaining amount of each rule on money; None for those whose remainder is unknown."""
        return [purse.remainder(rule, view.state) for rule, purse, view in self.rules]

    def settle(self, holder: str, usage: Usage, tokens: int, calls: int) -> None:
        """Charge what was spent to all limits, and end the reservations of the holder."""
        purses = {id(purse): purse for _, purse, _ in self.rules}.values()
        with PURSES:
            for purse in purses:
                purse.reserved.pop(holder, None)
                purse.spent += usage.ceiling or 0.0
        amounts = {"usd": usage.ceiling or 0.0, "tokens": float(tokens), "calls": float(calls)}
        for ledger, accounts in self.ledgers:
            charges = {account.name: amounts[account.limit.unit] for account in accounts}
            if usage.ceiling is None:  # told beside what is known, and not as nothing
                money = [account.name for account in accounts if account.limit.unit == "usd"]
                charges |= {name.replace("\x1fusd\x1f", "\x1funpriced\x1f"): 1.0 for name in money}
            ledger.settle(holder, charges)

    def release(self, holder: str) -> None:
        """End the reservations of the holder, who has spent nothing."""
        with PURSES:
            for _, purse, _ in self.rules:
                purse.reserved.pop(holder, None)
        for ledger, _ in self.ledgers:
            ledger.settle(holder, {})


def funds_of(view: RunView) -> Funds:
    """Return the funds of the call that this task is about to make."""
    return limits_of(view).funds(view) if calling.get() is None else Funds(view)


def _ledgers(levels: Sequence[tuple[RunView, RunLimits]]) -> list[PaidLedger]:
    """Return the accounts by ledger, each account once."""
    found: dict[int, tuple[Ledger, dict[str, Account]]] = {}
    for view, limits in levels:
        ledger = ledger_of(view.journal)
        _, accounts = found.setdefault(id(ledger), (ledger, {}))
        for account in limits.accounts(view):
            known = accounts.get(account.name)
            if known is None or account.limit.amount < known.limit.amount:
                accounts[account.name] = account
    return [PaidLedger(ledger, list(accounts.values())) for ledger, accounts in found.values() if accounts]
