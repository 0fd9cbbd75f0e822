"""Agents as an HTTP service. `kaname.serve.app(…)` is an ASGI application; `kaname serve` runs it."""

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
    from importlib.util import find_spec

    if name == "app" and find_spec("starlette") is None:
        from ..core.errors import ConfigError
        from ..core.install import install_command

        raise ConfigError.of("serve.packages", "serving needs starlette and uvicorn: {how}", how=install_command("serve"))
    return getattr(import_module(".application" if name == "app" else ".users", __name__), name)
