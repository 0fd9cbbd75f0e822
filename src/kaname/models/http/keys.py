"""When a provider's key is needed: where a model is made, or, for a replay, only where it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...core.errors import ConfigError

_LATER: ContextVar[bool] = ContextVar("kaname_keys_later", default=False)


@contextmanager
def keys_at_first_call() -> Iterator[None]:
    """Let models be made without their keys, such as for a replay. Calling such a model raises the `ConfigError` instead."""
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)


def keys_are_needed() -> bool:
    """Return False inside `keys_at_first_call`."""
    return not _LATER.get()


def demand_key(missing: str) -> None:
    """Raise a `ConfigError` that says which key is missing, unless it is not needed yet. `missing` is empty if none is."""
    if missing and keys_are_needed():
        raise ConfigError(missing)
