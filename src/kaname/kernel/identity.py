"""What a model or a tool is: its class, settings, address, schema and code, never only its name.

Caches, jobs, evaluations and lasting approvals keep things apart by it. "" means that it is unknown, and nothing is shared.
Functions and objects are described in one of two ways:

- `tool_identity`: what the tool is. It is the same in every process and stays the same while the tool works.
- `result_identity`, `model_identity`: in addition, everything that a result depends on, as it is at this moment. There is none
  if something cannot be described, such as a connection or an object with a state of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache, partial
from hashlib import sha256
from inspect import isclass, isfunction, ismethod, ismodule
from logging import Logger
from re import Pattern
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any

from ..core.record import Record
from .bases import ActionBase, ModelBase, model_info, optional, options_of

_SCALARS = (str, int, float, bool, type(None))
_FIXED = ("datetime", "decimal", "fractions", "pathlib", "uuid", "typing", "types")  # `repr` says all about their values
_UNKNOWN = (TypeError, ValueError, RecursionError, AttributeError)


def tool_identity(action: Any) -> str:
    """Return a fingerprint of a tool: its class, code or server, and schema; "" if it cannot be told apart from others.

    It is stable across processes. An edited function, another function, another server (name, address or command) and another
    schema have another fingerprint, whatever the name. A function that encloses a value is told apart by values that do not
    change (texts, numbers, tuples); lists, dicts and sets count by their type, objects by their class and their texts.
    """
    try:
        return _fingerprint(describe_tool(action))
    except _UNKNOWN:
        return ""


def describe_tool(action: Any) -> list[Any]:
    """Return the parts of a `tool_identity`, as JSON."""
    own = optional(action, ActionBase, "identity")
    return [*_kind(action, ActionBase), action.parameters, _Description(strict=False).of(action if own == "" else own)]


def describe_model(model: Any) -> list[Any]:
    """Return a description of a model as JSON: its class, its name, and its `identity` or its texts."""
    own = model_info(model).identity
    return [*_kind(model, ModelBase), _Description(strict=False).of(model if own == "" else own)]


def result_identity(action: Any) -> str:
    """Return a fingerprint of a tool and of everything that its results depend on besides its arguments; "" if it has none.

    It holds the values that a function encloses, defaults to and reads from its module, as they are now. A method of an object,
    and a function that uses a value that is not JSON, have none.
    """
    own = optional(action, ActionBase, "identity")
    try:
        known = [*_kind(action, ActionBase), action.parameters, _Description(strict=True).of(own)]
        return _fingerprint(known) if own else ""
    except _UNKNOWN:
        return ""


def model_identity(model: Any) -> str:
    """Return a fingerprint of a model; "" if it has no `identity`, so that nothing tells it apart from others."""
    own = model_info(model).identity
    try:
        return _fingerprint([*_kind(model, ModelBase), _Description(strict=True).of(own)]) if own else ""
    except _UNKNOWN:
        return ""


def value_identity(value: Any) -> str:
    """Return a fingerprint of a function or a value and everything that it depends on; "" if it has none."""
    try:
        return _fingerprint(_Description(strict=True).of(value))
    except _UNKNOWN:
        return ""


def code_identity(function: Any) -> str:
    """Return a fingerprint of a function: the same in every process while its code and the values in it are the same."""
    return _fingerprint(_Description(strict=False).of(function))


def _fingerprint(described: Any) -> str:
    return sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]


def _kind(part: Any, base: type) -> list[Any]:
    served = list(options_of(part).server) if base is ActionBase else []
    return [type(part).__module__, type(part).__qualname__, str(getattr(part, "name", "")), served]


class _Description:
    """Describe functions and values as JSON. `strict`: raise `TypeError` for what cannot be described completely."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._under_way: list[int] = []

    def of(self, value: Any) -> Any:
        if type(value) in _SCALARS:
            return [type(value).__name__, repr(value)]
        if id(value) in self._under_way:  # a function that calls itself
            return ["again", self._under_way.index(id(value))]
        self._under_way.append(id(value))
        try:
            return self._describe(value)
        finally:
            self._under_way.pop()

    def _describe(self, value: Any) -> Any:
        if isinstance(value, tuple | frozenset | list | dict | set):
            return self._container(value)
        if isfunction(value):
            return self._function(value)
        if ismethod(value):
            return ["method", self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, partial):
            return ["partial", self.of(value.func), self.of(value.args), self.of(tuple(value.keywords.items()))]
        if isclass(value) or ismodule(value):
            return [value.__module__, value.__qualname__] if isclass(value) else value.__name__
        if isinstance(value, BuiltinFunctionType):
            own = value.__self__
            return [value.__module__, value.__qualname__, None if isinstance(own, ModuleType | None) else self.of(own)]
        return self._object(value)

    def _container(self, value: Any) -> Any:
        """Describe the values in it. Those of a list, a dict or a set can change, and then only its type is what it is."""
        kind = _name(type(value))
        if not self._strict and not isinstance(value, tuple | frozenset):
            return kind
        if isinstance(value, Mapping):
            return [kind, [[self.of(name), self.of(one)] for name, one in value.items()]]
        held = [self.of(one) for one in value]
        return [kind, held if isinstance(value, tuple | list) else sorted(held, key=json.dumps)]

    def _function(self, function: Any) -> Any:
        cells = [self.of(cell.cell_contents) for cell in function.__closure__ or ()]
        defaults = self.of((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()))
        read = self._globals(function) if self._strict else []
        return [function.__module__, function.__qualname__, _code(function.__code__), cells, defaults, read]

    def _globals(self, function: Any) -> list[Any]:
        """Describe what a function reads from its module. Functions and classes of other modules count by their names."""
        held, names = function.__globals__, _names(function.__code__)
        told = list[Any]()
        for name in sorted(names & held.keys()):
            value = held[name]
            if ismodule(value):
                plain = [(one, vars(value)[one]) for one in sorted(names & vars(value).keys())]
                told += [name, [self.of(pair) for pair in plain if isinstance(pair[1], _SCALARS)]]
            elif isfunction(value) and value.__module__ != function.__module__:
                told.append([name, value.__module__, value.__qualname__])
            elif isclass(value):
                own = vars(value).items() if value.__module__ == function.__module__ else ()
                code = [_code(one.__code__) for _, one in own if isfunction(one)]
                told.append([name, self.of(value), code, [self.of(pair) for pair in own if isinstance(pair[1], _SCALARS)]])
            else:
                told.append([name, self.of(value)])
        return told

    def _object(self, value: Any) -> Any:
        kind = _name(type(value))
        if isinstance(value, ActionBase | ModelBase):
            own = value.identity if isinstance(value, ActionBase) else value.about.identity
            if own != "":
                return [kind, self.of(own)]
        if isinstance(value, Enum):
            return [kind, value.name]
        if isinstance(value, bytes | complex | range) or type(value).__module__ in _FIXED:
            return [kind, repr(value)]
        if isinstance(value, Pattern):
            return [kind, value.pattern if isinstance(value.pattern, str) else repr(value.pattern), value.flags]
        if isinstance(value, Logger):
            return [kind, value.name]
        if isfunction(wrapped := getattr(value, "__wrapped__", None)):
            return [kind, self.of(wrapped)]
        if isinstance(value, Record):
            return [kind, [self.of(getattr(value, name)) for name in value.__match_args__]]
        if isinstance(value, Exception):
            return [kind, self.of(value.args)]
        if self._strict:
            raise TypeError(kind)
        runs = [getattr(type(value), name, None) for name in ("act", "execute", "__call__")]
        texts = {name: one for name, one in getattr(value, "__dict__", {}).items() if isinstance(one, str)}
        return [kind, [_code(one.__code__) for one in runs if isfunction(one)], texts]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@lru_cache(1024)
def _code(code: CodeType) -> list[Any]:
    held = [_code(one) if isinstance(one, CodeType) else _constant(one) for one in code.co_consts]
    return [code.co_code.hex(), code.co_exceptiontable.hex(), list(code.co_names), list(code.co_freevars), held]


def _constant(value: Any) -> Any:
    """Return a constant as text that is the same in every process: the order of a set is not."""
    if isinstance(value, frozenset):
        return sorted([_constant(one) for one in value], key=str)
    return [_constant(one) for one in value] if isinstance(value, tuple) else repr(value)


@lru_cache(1024)
def _names(code: CodeType) -> frozenset[str]:
    """Return the names that a function looks up, and those inside it."""
    inner = [_names(one) for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(code.co_names).union(*inner)
