"""At the edge: agents as an HTTP service. `kaname.serve.app(…)` is an ASGI application; `kaname serve` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .application import app as app
    from .users import Caller as Caller
    from .users import Users as Users

__all__ = ["Caller", "Users", "app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kaname.serve' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(".application" if name == "app" else ".users", __name__), name)
