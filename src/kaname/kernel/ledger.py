"""Ledger: accounts of money, tokens and calls in the journal's store. A journal that keeps one has the attribute `ledger`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Balance(NamedTuple):
    """An account: what was spent, and what is reserved for calls that have not ended."""

    name: str
    spent: float = 0.0
    reserved: float = 0.0


Divide = Callable[[Sequence[Balance]], Sequence[float] | None]
"""Takes the balances of the accounts and returns the amounts to reserve, in the same order; None to reserve nothing."""


class Ledger(Protocol):
    """Accounts that several runs and processes share.

    `reserve` looks at the accounts and reserves in one step that nobody can come between. It returns the balances as they
    were, and True if something was reserved. A reservation belongs to this process: if the process dies, it is free again.
    `settle` ends a reservation, and adds what was spent. `balances` lists the accounts whose names begin with a text.
    """

    async def reserve(self, holder: str, names: Sequence[str], divide: Divide) -> tuple[list[Balance], bool]: ...
    def settle(self, holder: str, spent: Mapping[str, float]) -> None: ...
    async def balances(self, starting: str = "") -> list[Balance]: ...


@runtime_checkable
class HasLedger(Protocol):
    @property
    def ledger(self) -> Ledger: ...
