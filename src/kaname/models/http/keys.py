"""Check for a provider's key when a model is built, or, for a replay, only when it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...core.errors import ConfigError

_LATER: ContextVar[bool] = ContextVar("kaname_keys_later", default=False)


@contextmanager
def keys_at_first_call() -> Iterator[None]:
    """Allow models to be built without their keys or weights, for a replay. Calling one then raises the `ConfigError`."""
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)


def keys_are_needed() -> bool:
    """Return False inside `keys_at_first_call`."""
    return not _LATER.get()


def demand_key(missing: str) -> None:
    """Raise a `ConfigError` with the text `missing`, unless it is empty or keys are not needed yet."""
    if missing and keys_are_needed():
        raise ConfigError(missing)
