"""Ledger in memory: accounts that end with the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..kernel.ports import Balance, Divide


class MemoryLedger:
    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._reserved: dict[str, dict[str, float]] = {}  # amounts by account and holder

    async def reserve(self, holder: str, names: Sequence[str], divide: Divide) -> tuple[list[Balance], bool]:
        found = [self._balance(name) for name in names]
        amounts = divide(found)
        for name, amount in zip(names, amounts or (), strict=False):
            self._reserved.setdefault(name, {})[holder] = amount
        return found, amounts is not None

    def settle(self, holder: str, spent: Mapping[str, float]) -> None:
        for reserved in self._reserved.values():
            reserved.pop(holder, None)
        self._reserved = {name: reserved for name, reserved in self._reserved.items() if reserved}
        for name, amount in spent.items():
            self._spent[name] = self._spent.get(name, 0.0) + amount

    async def balances(self, starting: str = "") -> list[Balance]:
        names = sorted({*self._spent, *self._reserved})
        return [self._balance(name) for name in names if name.startswith(starting)]

    def _balance(self, name: str) -> Balance:
        return Balance(name, self._spent.get(name, 0.0), sum(self._reserved.get(name, {}).values()))
