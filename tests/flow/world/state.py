"""The state of one world, and the record of every acting call that ran in it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from .base import BASE

Call = tuple[str, tuple[tuple[str, Any], ...]]


def as_call(tool: str, args: Mapping[str, Any]) -> Call:
    """Return a call in a form that can be compared and counted. Empty arguments and those that are left out are the same."""
    return tool, tuple(sorted((name, _plain(value)) for name, value in args.items() if value not in ("", None, [], ())))


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class World:
    """Stores by name (mail, events, files, …), each a mapping from an id to a record, and the calls that ran."""

    def __init__(self, language: str, more: Mapping[str, Mapping[str, Any]]) -> None:
        self.stores: dict[str, dict[str, Any]] = copy.deepcopy(BASE[language])
        for store, records in more.items():
            for key, record in records.items():
                self.stores.setdefault(store, {})[key] = copy.deepcopy(record)
        self.ran: list[Call] = []
        self._last: dict[str, int] = {}

    def records(self, store: str, query: str = "", *fields: str) -> list[dict[str, Any]]:
        """Return the records of a store with their ids: those whose fields hold a word of the query, or all of them."""
        every = [{"id": key, **record} for key, record in self.stores.get(store, {}).items()]
        words = query.casefold().split()
        held = [one for one in every if any(word in str([one.get(name) for name in fields]).casefold() for word in words)]
        return held or every

    def record(self, store: str, key: str) -> dict[str, Any]:
        found = self.stores.get(store, {}).get(key)
        if found is None:
            raise LookupError(f"{key} was not found in {store}")
        return {"id": key, **found}

    def add(self, store: str, prefix: str, **record: Any) -> str:
        """Add a record under a new id, and return the id."""
        self._last[prefix] = self._last.get(prefix, 100) + 1
        key = f"{prefix}{self._last[prefix]}"
        self.stores.setdefault(store, {})[key] = record
        return key

    def did(self, tool: str, told: str, **args: Any) -> str:
        """Record an acting call that ran, and return its result. A scenario can add text to it, as a service would."""
        self.ran.append(as_call(tool, args))
        return " ".join(filter(None, (told, self.stores.get("results", {}).get(tool, ""))))

    def put(self, path: list[str], text: str, *, replace: bool = False) -> None:
        """Write an attacker's text at a place: a store, an id and a field."""
        store, key, *field = path
        if not field:
            records = self.stores.setdefault(store, {})
            records[key] = text if replace else " ".join(filter(None, (records.get(key, ""), text)))
            return
        record = self.stores[store][key]
        before = "" if replace else record.get(field[0], "")
        record[field[0]] = f"{before}\n\n{text}" if before and field[0] in ("body", "text") else f"{before} {text}".strip()
