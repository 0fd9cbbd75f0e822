"""Checks of managers: the keys of their settings, and the methods that a subclass overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from typing import Any

from ...core.durations import is_number, is_whole
from ...core.errors import ConfigError, nearest
from ...core.notices import notice
from ...kernel.boundary import Border
from ...kernel.chain import can_call
from ...kernel.threads import runs_on_loop
from ...policies.money.budget import Verdict
from ...run.input import check_argument

Fits = tuple[Callable[[Any], bool], str]
"""Returns True if a value can be used, and says what is expected."""


COUNT: Fits = (lambda value: is_whole(value, 0), "an integer of at least 0")
POSITIVE: Fits = (lambda value: is_whole(value, 1), "an integer of at least 1")
AMOUNT: Fits = (lambda value: is_number(value, 0), "a number of at least 0")


def check_settings(where: str, given: Any, known: Mapping[str, Fits], needed: Iterable[str] = ()) -> None:
    """Raise `ConfigError` if settings have an unknown key, a value that cannot be used, or lack a key that is `needed`."""
    check_argument(isinstance(given, Mapping), where, "a mapping", given)
    for name, value in given.items():
        if name not in known:
            message = notice("monono.unknown_key", "{where} has an unknown key {name!r}", where=where, name=name)
            raise ConfigError(message + nearest(str(name), known))
        fits, what = known[name]
        check_argument(fits(value), f"{where}[{name!r}]", what, value)
    for name in [one for one in needed if one not in given]:
        check_argument(False, f"{where}[{name!r}]", known[name][1], None)


def check_each(where: str, given: Any, known: Mapping[str, Fits], needed: Iterable[str] = ()) -> None:
    """Check a mapping of settings by name."""
    check_argument(isinstance(given, Mapping), where, "a mapping", given)
    for name, one in given.items():
        check_settings(f"{where}[{name!r}]", one, known, needed)


def check_method(manager: Any, name: str, *parameters: str) -> None:
    """Raise `ConfigError` if a run cannot call a method of a manager with these parameters."""
    if runs_on_loop(getattr(manager, name)) or not can_call(getattr(manager, name), *parameters):
        raise ConfigError.of(
            "monono.method",
            "{kind}.{name} must be a plain function with the parameters ({parameters}), so that runs can call it",
            kind=type(manager).__name__,
            name=name,
            parameters=", ".join(parameters),
        )


def refusal(manager: Any, name: str, *arguments: Any, **named: Any) -> str:
    """Call a method that decides. Return "" if it says yes, else the reason. A method that fails says no."""
    with Border() as border:
        said = getattr(manager, name)(*arguments, **named)
        if said is True or (isinstance(said, Verdict) and said.allowed is True):
            return ""
        if isinstance(said, Verdict) and said.reason:
            return said.reason
    if border.failure is not None:
        getLogger("kaname").warning("%s.%s failed: %s", type(manager).__name__, name, border.failure)
    return notice("monono.refused", "{kind} does not allow it", kind=type(manager).__name__)
