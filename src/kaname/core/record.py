"""Records: small frozen classes with slots, like `@dataclass(frozen=True, slots=True)`.

The standard decorator generates and compiles six methods for every class: 52 to 61 ms for fifty classes of four fields, where
this takes 7, and 1.4 µs for a value, where this takes 0.8 (CPU, one machine). There are some sixty such classes, and every
fact of every step is made of them. Here only `__init__` is generated; the rest is inherited. Type checkers see dataclasses.

To fill a frozen slot, a descriptor must be called for each field. A record with many fields is therefore filled as a value of
a twin class that has the same slots and allows changes, and then gets its own class: a third of the time for fifteen fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from inspect import get_annotations
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")
_MANY = 5  # fields from which on the twin is quicker
_set_class = object.__dict__["__class__"].__set__
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


def _join_fields(inherited: list[Any], own: tuple[str, ...], given: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the fields and the defaults, those of the bases first."""
    names = dict.fromkeys([name for one in inherited for name in one.__match_args__])
    defaults = {name: value for one in inherited for name, value in one._defaults_.items()}
    return (*(names | dict.fromkeys(own)),), defaults | given


def _make_class(cls: type[T], base: type) -> type[T]:
    own = tuple(get_annotations(cls))
    given = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
    slots = (*own, *cls.__dict__.get("_unnamed_", ()))  # slots in addition to the fields, for values derived from them
    body = {key: value for key, value in cls.__dict__.items() if key not in given and key not in ("__dict__", "__weakref__")}
    bases = tuple([one for one in cls.__bases__ if one is not object])
    inherited = [one for one in bases if issubclass(one, Mutable)]
    names, every = _join_fields(inherited, own, given)
    bases = bases if inherited else (*bases, base)
    made = type(cls.__name__, bases, {**body, "__slots__": slots, "__match_args__": names, "_defaults_": every})
    is_plain = all(issubclass(one, Record) for one in bases)  # else the other base may mind a twin
    twin = _twin(bases, slots) if is_plain and len(names) >= _MANY else None
    made.__init__ = _initialiser(made, names, every, twin)  # type: ignore[misc]
    made._twin_ = twin  # type: ignore[attr-defined]
    return cast(type[T], made)


def _twin(bases: tuple[type, ...], slots: tuple[str, ...]) -> type:
    """Return a class with the same slots whose values can be changed."""
    free = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type("Unfinished", bases, {"__slots__": slots, "__module__": __name__, **free})


def _initialiser(cls: type, names: tuple[str, ...], given: dict[str, Any], twin: type | None) -> Callable[..., None]:
    """Return `__init__` for the class. It fills frozen slots past the `__setattr__` that refuses.

    Classes with as many fields share their code, apart from the names of the arguments: compiling it is most of the work.
    """
    scope: dict[str, Any] = {"NOT_GIVEN": NOT_GIVEN, "own": cls, "twin": twin, "set_class": _set_class}
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
    frozen = issubclass(cls, Record)
    how = (frozen and twin is None, frozen and twin is not None)
    plan = _code(len(names), frozenset(made), hasattr(cls, "__post_init__"), *how)
    own = dict(zip(_arguments(len(names)), names, strict=True))
    code = plan.replace(co_varnames=("self", *names), co_names=tuple([own.get(name, name) for name in plan.co_names]))
    return FunctionType(code, scope, "__init__", tuple(values))


def _arguments(count: int) -> list[str]:
    return [f"field_{place}" for place in range(count)]


@cache
def _code(count: int, made: frozenset[int], checks: bool, with_setters: bool, with_twin: bool) -> CodeType:
    """Compile `__init__`. `made`: the places of the fields whose defaults are built anew for every value."""
    names = _arguments(count)
    values = [f"make_{n}() if {name} is NOT_GIVEN else {name}" if n in made else name for n, name in enumerate(names)]
    setters = [f"set_{n}(self, {value})" for n, value in enumerate(values)]
    stores = [f"self.{name} = {value}" for name, value in zip(names, values, strict=True)]
    lines = [f"def __init__({', '.join(['self', *names])}):"]
    if with_twin:  # a subclass of the user's has other slots than the twin
        lines += [" if type(self) is own:", *[f"  {one}" for one in ("set_class(self, twin)", *stores, "self.__class__ = own")]]
        lines += [" else:", *[f"  {one}" for one in setters]]
    else:
        lines += [f" {one}" for one in (setters if with_setters else stores)]
    lines.append(" self.__post_init__()" if checks else " pass")
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    code: CodeType = scope["__init__"].__code__
    return code


def replace(value: T, **changes: Any) -> T:
    """Return a copy of a value with some fields changed.

    Args:
        value: The value. It stays as it is.
        changes: The new values of fields, by name.
    """
    cls = type(value)
    copy, read, places = _reader(cls)  # type: ignore[arg-type]
    for name in changes:
        if name not in places:
            raise TypeError(f"{cls.__name__} has no field {name!r}")
    if copy is None:
        values = [*read(value)]
        for name, changed in changes.items():
            values[places[name]] = changed
        return cls(*values)
    made: Any = copy(value)
    for name, changed in changes.items():
        setattr(made, name, changed)
    if made.__class__ is not cls:
        made.__class__ = cls
    return made  # type: ignore[no-any-return]  # a cast would be a call for each copy


Read = Callable[[Any], tuple[Any, ...]]
Copy = Callable[[Any], Any]


@cache
def _reader(cls: type) -> tuple[Copy | None, Read, dict[str, int]]:
    """Return a function that copies a value so that it can be changed, one that reads all its fields, and their places."""
    names: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
    places = {name: place for place, name in enumerate(names)}
    if len(names) > 1:
        return _copier(cls, names), attrgetter(*names), places
    return None, lambda value: tuple([getattr(value, name) for name in names]), places


def _copier(cls: type, names: tuple[str, ...]) -> Copy | None:
    """Return a function that copies the fields into a value of the twin; None if there is no twin or values are checked."""
    base = cls if issubclass(cls, Mutable) and not issubclass(cls, Record) else cls.__dict__.get("_twin_")
    if base is None or hasattr(cls, "__post_init__") or "__init__" not in cls.__dict__:
        return None
    scope = {"make": partial(object.__new__, base)}
    exec(
        "\n".join(["def copy(value):", " made = make()", *[f" made.{one} = value.{one}" for one in names], " return made"]),
        scope,
    )
    return cast(Copy, scope["copy"])


def defaults(cls: type) -> dict[str, Any]:
    """Return every field and its default, `NOT_GIVEN` if it has none."""
    given: dict[str, Any] = cls._defaults_  # type: ignore[attr-defined]
    found = {name: given.get(name, NOT_GIVEN) for name in cls.__match_args__}  # type: ignore[attr-defined]
    return {name: value.make() if isinstance(value, _Factory) else value for name, value in found.items()}
