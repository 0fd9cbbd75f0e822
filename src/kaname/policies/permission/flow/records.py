"""Values that the user's words determine without naming them: the address in the only record with the name that they gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....core.people.labels import ToolLabels
from ....core.values import identity
from .words import UserWords, leaves, stands_in

_LONGEST_NAME = 80  # characters of a field that can carry a name


class TrustedRecords:
    """The records of trusted results, in the order in which they were read."""

    def __init__(self, words: UserWords) -> None:
        self._words = words
        self._records: dict[Any, dict[str, list[Any]]] = {}
        self._answers: list[tuple[Any, dict[str, list[Any]]]] = []
        self._determined: set[Any] | None = None

    def learn(self, arguments: Any, output: Any, labels: ToolLabels) -> None:
        """Take the trusted fields of a result. Texts are never taken apart: what stands in them may be anybody's."""
        if labels.result != "trusted" and not isinstance(labels.result, tuple):
            return
        found = []
        for one in _records_in(output):
            fields = {} if one is None else _trusted_fields(one, labels.result)
            if fields:
                found.append(fields)
                self._records.setdefault(identity(fields), fields)
        if len(found) == 1 and (labels.result == "trusted" or _holds_all(found[0], arguments)):
            self._answers.append((arguments, found[0]))  # else it may be the only answer because of what somebody wrote
        elif labels.result == "trusted" and isinstance(output, str | int | float):
            self._answers.append((arguments, {"": [output]}))
        self._determined = None

    def has(self, value: Any) -> bool:
        """Return True if the user's words determine this value."""
        if self._determined is None:
            self._determined = self._find_determined()
        return _key(value) in self._determined

    def _find_determined(self) -> set[Any]:
        determined = set[Any]()
        for name in self._words.names:
            carriers = [fields for fields in self._records.values() if _carries(fields, name)]
            if len(carriers) == 1:
                determined |= _all_values(carriers[0])
        for arguments, fields in self._answers:
            asked = leaves([*arguments.values()]) if isinstance(arguments, Mapping) else []
            if asked and all(self._words.has(one) or _key(one) in determined for one in asked):
                determined |= _all_values(fields)
        return determined


def _records_in(output: Any) -> Iterator[Mapping[str, Any] | None]:
    """Yield the records of a result: itself, those of a list, or those of the only list in it."""
    if isinstance(output, Mapping):
        lists = [one for one in output.values() if isinstance(one, list) and all(isinstance(each, Mapping) for each in one)]
        if len(output) == len(lists) == 1:
            yield from lists[0]
        else:
            yield output
    elif isinstance(output, list):
        for one in output:
            yield one if isinstance(one, Mapping) else None


def _trusted_fields(record: Mapping[str, Any], trusted: Any) -> dict[str, list[Any]]:
    named = record if trusted == "trusted" else [name for name in trusted if name in record]
    return {name: [*leaves(record[name])] for name in named}


def _carries(fields: Mapping[str, list[Any]], name: str) -> bool:
    texts = [one for values in fields.values() for one in values if isinstance(one, str) and len(one) <= _LONGEST_NAME]
    lower = name.lower()
    return any(stands_in(lower, text.lower()) or (not name.isascii() and text.startswith(name)) for text in texts)


def _holds_all(fields: Mapping[str, list[Any]], arguments: Any) -> bool:
    """Return True if every argument of the query stands in a trusted field of its answer."""
    asked = leaves([*arguments.values()]) if isinstance(arguments, Mapping) else []
    held = _all_values(fields)
    return bool(asked) and all(_key(one) in held or _carries(fields, str(one)) for one in asked)


def _all_values(fields: Mapping[str, list[Any]]) -> set[Any]:
    return {_key(one) for values in fields.values() for one in values}


def _key(value: Any) -> Any:
    if isinstance(value, bool):
        return value, "bool"
    if isinstance(value, int | float):
        return float(value)
    return " ".join(str(value).split())
