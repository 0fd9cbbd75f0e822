"""Records: small frozen classes with slots, like `@dataclass(frozen=True, slots=True)`.

The standard decorator generates and compiles six methods for every class: 52 to 61 ms for fifty classes of four fields, where
this takes 7, and 1.4 µs for a value, where this takes 0.8 (CPU, one machine). There are some sixty such classes, and every
fact of every step is made of them. Here only `__init__` is generated; the rest is inherited. Type checkers see dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")
NOT_GIVEN: Any = type("NotGiven", (), {"__repr__": lambda self: "NOT_GIVEN"})()


class _Factory:
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, factory: Callable[[], T]) -> T:
    """Declare a default that is built anew for every value."""
    return cast(T, _Factory(factory))


class Mutable:
    """Base of records that can be changed in place."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()
    __hash__: Any = None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)

    def __repr__(self) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.__match_args__])
        return f"{type(self).__qualname__}({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])


def _refusal(value: object, name: str) -> str:
    return f"a {type(value).__name__} cannot be changed; make another: from kaname import replace; replace(value, {name}=…)"


class Record(Mutable):
    __slots__ = ()

    def __hash__(self) -> int:
        return hash((type(self), *[getattr(self, name) for name in self.__match_args__]))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(_refusal(self, name))

    def __delattr__(self, name: str) -> None:
        raise AttributeError(_refusal(self, name))


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    return _make_class(cls, Record)


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    return _make_class(cls, Mutable)


def _make_class(cls: type[T], base: type) -> type[T]:
    own = tuple(get_annotations(cls))
    given = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
    slots = (*own, *cls.__dict__.get("_unnamed_", ()))  # slots in addition to the fields, for values derived from them
    body = {key: value for key, value in cls.__dict__.items() if key not in given and key not in ("__dict__", "__weakref__")}
    bases = tuple([one for one in cls.__bases__ if one is not object])
    inherited = [one for one in bases if issubclass(one, Mutable)]
    names = tuple(dict.fromkeys([name for one in inherited for name in one.__match_args__] + list(own)))
    every = {name: value for one in inherited for name, value in one._defaults_.items()} | given  # type: ignore[attr-defined]
    bases = bases if inherited else (*bases, base)
    made = type(cls.__name__, bases, {**body, "__slots__": slots, "__match_args__": names, "_defaults_": every})
    made.__init__ = _initialiser(made, names, every)  # type: ignore[misc]
    return cast(type[T], made)


def _initialiser(cls: type, names: tuple[str, ...], given: dict[str, Any]) -> Callable[..., None]:
    """Return `__init__` for the class. It fills frozen slots directly, past the `__setattr__` that refuses.

    Classes with as many fields share their code, apart from the names of the arguments: compiling it is most of the work.
    """
    scope: dict[str, Any] = {"NOT_GIVEN": NOT_GIVEN}
    made, values = set[int](), list[Any]()
    for place, name in enumerate(names):
        scope[f"set_{place}"] = getattr(cls, name).__set__
        value = given.get(name, NOT_GIVEN)
        if isinstance(value, _Factory):
            made.add(place)
            scope[f"make_{place}"], value = value.make, NOT_GIVEN
        if name in given:
            values.append(value)
        elif values:
            raise TypeError(f"{cls.__name__}.{name} has no default, but follows a field that has one")
    if issubclass(cls, Record):
        code = _code(len(names), frozenset(made), hasattr(cls, "__post_init__")).replace(co_varnames=("self", *names))
    else:
        code = _compile(names, frozenset(made), hasattr(cls, "__post_init__"), frozen=False)
    return FunctionType(code, scope, "__init__", tuple(values))


@cache
def _code(count: int, made: frozenset[int], checks: bool) -> CodeType:
    return _compile(tuple([f"field_{place}" for place in range(count)]), made, checks, frozen=True)


def _compile(names: tuple[str, ...], made: frozenset[int], checks: bool, *, frozen: bool) -> CodeType:
    """Compile `__init__`. `made`: the places of the fields whose defaults are built anew for every value."""
    lines = [f"def __init__({', '.join(['self', *names])}):"]
    for place, name in enumerate(names):
        value = f"make_{place}() if {name} is NOT_GIVEN else {name}" if place in made else name
        lines.append(f"    set_{place}(self, {value})" if frozen else f"    self.{name} = {value}")
    lines.append("    self.__post_init__()" if checks else "    pass")
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    code: CodeType = scope["__init__"].__code__
    return code


def replace(value: T, **changes: Any) -> T:
    """Return a copy of the value with some fields changed."""
    cls = type(value)
    read, places = _reader(cls)  # type: ignore[arg-type]
    values = [*read(value)]
    for name, changed in changes.items():
        if name not in places:
            raise TypeError(f"{cls.__name__} has no field {name!r}")
        values[places[name]] = changed
    return cls(*values)


@cache
def _reader(cls: type) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, int]]:
    """Return a function that reads all fields of a value at once, and the places of the fields."""
    names: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
    places = {name: place for place, name in enumerate(names)}
    if len(names) > 1:
        return attrgetter(*names), places
    return lambda value: tuple([getattr(value, name) for name in names]), places


def defaults(cls: type) -> dict[str, Any]:
    """Return every field and its default, `NOT_GIVEN` if it has none."""
    given: dict[str, Any] = cls._defaults_  # type: ignore[attr-defined]
    found = {name: given.get(name, NOT_GIVEN) for name in cls.__match_args__}  # type: ignore[attr-defined]
    return {name: value.make() if isinstance(value, _Factory) else value for name, value in found.items()}
