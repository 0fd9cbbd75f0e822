"""Patterns and conditions of permission rules. An answer is True, False, or None if it cannot be decided."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...core.errors import ConfigError, nearest
from ...core.notices import notice
from ...core.values import identity

Answer = bool | None
_NUMBERS = ("less_than", "at_most", "greater_than", "at_least")
_KINDS = ("equals", "one_of", "starts_with", *_NUMBERS)
_STEP_UP = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)")
_JSON = (str, int, float, bool, type(None), list, tuple, dict)


class Condition(NamedTuple):
    """One condition on an argument: its kind, and what the argument is compared with."""

    kind: str
    wanted: Any


def all_of(answers: Iterable[Answer]) -> Answer:
    """Return False if one answer is False, None if one is undecided, else True. Answers after a False are not asked for."""
    together: Answer = True
    for answer in answers:
        if answer is False:
            return False
        together = None if answer is None else together
    return together


def any_of(answers: Iterable[Answer]) -> Answer:
    """Return True if one answer is True, None if one is undecided, else False."""
    found = list(answers)
    return True if True in found else None if None in found else False


def any_fits(text: str | None, patterns: Iterable[str]) -> Answer:
    """Return True if one of the patterns fits the text. A text that is unknown (None) fits only `*`."""
    return any_of([fits(text, pattern) for pattern in patterns])


def fits(text: str | None, pattern: str) -> Answer:
    """Return True if the whole text fits the pattern, in which `*` stands for any characters.

    A text with a step up (`a/../b`) may mean something other than it says: only an exact pattern, or `*` alone, decides it.
    """
    if pattern == "*":
        return True
    if text is None:
        return None
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    if _STEP_UP.search(text):
        return None
    *middle, last = others
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    place, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def read_conditions(given: Any, where: str) -> tuple[Condition, ...]:
    """Return the conditions on one argument.

    Args:
        given: A text, in which `*` stands for any characters; a list of the values that are allowed; another value that the
            argument must equal; or a mapping with `equals`, `one_of`, `starts_with`, `less_than`, `at_most`, `greater_than`
            and `at_least`.
        where: The place, for messages.

    Raises:
        ConfigError: If a condition is unknown, or has a value that it cannot be compared with.
    """
    if isinstance(given, str):
        return (Condition("pattern", given),)
    if isinstance(given, list | tuple):
        given = {"one_of": given}
    elif not isinstance(given, Mapping):
        given = {"equals": given}
    for kind, wanted in given.items():
        if kind not in _KINDS:
            message = notice("permit.no_condition", "{where}: there is no condition {kind!r}", where=where, kind=kind)
            raise ConfigError(message + nearest(str(kind), _KINDS))
        usable = {
            "one_of": isinstance(wanted, list | tuple) and bool(wanted),
            "starts_with": isinstance(wanted, str) and bool(wanted),
            "equals": isinstance(wanted, _JSON),
        }
        if not usable.get(kind, _is_number(wanted)):
            raise ConfigError.of(
                "permit.condition", "{where}: {kind} cannot be {wanted!r:.100}", where=where, kind=kind, wanted=wanted
            )
    if not given:
        raise ConfigError.of("permit.no_conditions", "{where}: the condition is empty", where=where)
    return tuple([Condition(kind, wanted) for kind, wanted in given.items()])


def holds(condition: Condition, value: Any) -> Answer:
    """Return True if an argument's value meets the condition; None if it is of a type that cannot be compared."""
    kind, wanted = condition
    if kind in ("equals", "one_of"):
        listed = wanted if kind == "one_of" else [wanted]
        return identity(value) in [identity(one) for one in listed] if isinstance(value, _JSON) else None
    if kind in ("pattern", "starts_with"):
        if not isinstance(value, str):
            return None
        if kind == "pattern":
            return fits(value, wanted)
        return None if _STEP_UP.search(value) else value.startswith(wanted)
    if not _is_number(value):
        return None
    if kind in ("less_than", "at_most"):
        return bool(value < wanted) if kind == "less_than" else bool(value <= wanted)
    return bool(value > wanted) if kind == "greater_than" else bool(value >= wanted)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)
