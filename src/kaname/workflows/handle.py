"""Handles: the future output of a task. A task that gets a handle waits for that output."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from ..strategies.graph.expression import Expression

_QUOTED = re.compile(r"steps\[('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]")


class Handle:
    """`handle["key"]`, `handle.key` and `handle[0]` are parts of it; comparisons make conditions: `when=total > 0`."""

    def __init__(self, expression: str) -> None:
        self._expression = expression

    def __getitem__(self, key: str | int) -> Handle:
        return Handle(f"{self._expression}[{key!r}]")

    def __getattr__(self, name: str) -> Handle:
        if name.startswith("_"):
            raise AttributeError(name)
        return Handle(f"{self._expression}[{name!r}]")

    def __repr__(self) -> str:
        return f"<what comes of {self._expression}>"

    def __format__(self, form: str) -> str:
        raise TypeError("it is not known yet: a text with it in it is for a task to write")

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise TypeError("it is not known yet: a condition on it is an option, when=…")

    def __iter__(self) -> Any:
        raise TypeError("it is not known yet: to do something for each item is an option, each=…")

    def _compare(self, sign: str, other: Any) -> Handle:
        return Handle(f"({self._expression}) {sign} ({other._expression if isinstance(other, Handle) else repr(other)})")

    def __eq__(self, other: object) -> Handle:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: object) -> Handle:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> Handle:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Handle:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Handle:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Handle:
        return self._compare(">=", other)

    def __and__(self, other: Any) -> Handle:
        return self._compare("and", other)

    def __or__(self, other: Any) -> Handle:
        return self._compare("or", other)

    def __add__(self, other: Any) -> Handle:
        return self._compare("+", other)

    def __sub__(self, other: Any) -> Handle:
        return self._compare("-", other)

    def __mul__(self, other: Any) -> Handle:
        return self._compare("*", other)

    def __truediv__(self, other: Any) -> Handle:
        return self._compare("/", other)

    def __floordiv__(self, other: Any) -> Handle:
        return self._compare("//", other)

    def __mod__(self, other: Any) -> Handle:
        return self._compare("%", other)

    def __radd__(self, other: Any) -> Handle:
        return Handle(f"({other!r}) + ({self._expression})")

    def __rsub__(self, other: Any) -> Handle:
        return Handle(f"({other!r}) - ({self._expression})")

    def __rmul__(self, other: Any) -> Handle:
        return Handle(f"({other!r}) * ({self._expression})")

    def __rtruediv__(self, other: Any) -> Handle:
        return Handle(f"({other!r}) / ({self._expression})")

    def __neg__(self) -> Handle:
        return Handle(f"-({self._expression})")

    def __invert__(self) -> Handle:
        return Handle(f"not ({self._expression})")

    __hash__ = object.__hash__


def expression_of(handle: Handle) -> str:
    return handle._expression


def task_of(handle: Handle) -> str:
    """The name of the task that it comes from."""
    found = _QUOTED.match(handle._expression)
    return str(ast.literal_eval(found[1])) if found else Expression(handle._expression).names[0]


def as_template(value: Any) -> Any:
    """Replace handles by expressions. All other values stay as they are, also texts with `${` in them."""
    if isinstance(value, Handle):
        return Expression(expression_of(value))
    if isinstance(value, Mapping):
        return {str(name): as_template(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_template(one) for one in value]
    return value
