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

    def __neg__(self) -> Handle:
        return Handle(f"-({self._expression})")

    def __invert__(self) -> Handle:
        return Handle(f"not ({self._expression})")


_OPERATORS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
}  # fmt: skip


def _add_operator(name: str, sign: str) -> None:
    def join(left: Any, right: Any) -> Handle:
        sides = [one._expression if isinstance(one, Handle) else repr(one) for one in (left, right)]
        return Handle(f"({sides[0]}) {sign} ({sides[1]})")

    setattr(Handle, f"__{name}__", join)
    if name in ("add", "sub", "mul", "truediv"):
        setattr(Handle, f"__r{name}__", lambda self, other: join(other, self))


for _name, _sign in _OPERATORS.items():
    _add_operator(_name, _sign)


def expression_of(handle: Handle) -> str:
    return handle._expression


def task_of(handle: Handle) -> str:
    """Return the name of the task that it comes from."""
    match = _QUOTED.match(handle._expression)
    return str(ast.literal_eval(match[1])) if match else Expression(handle._expression).names[0]


def as_template(value: Any) -> Any:
    """Replace handles by expressions. All other values stay as they are, also texts with `${` in them."""
    if isinstance(value, Handle):
        return Expression(expression_of(value))
    if isinstance(value, Mapping):
        return {str(name): as_template(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_template(one) for one in value]
    return value
