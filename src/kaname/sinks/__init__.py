"""Sinks: receivers of every fact, after it became durable, and of every delta. These write traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .log import Console as Console
    from .log import JsonLines as JsonLines
    from .otel import OpenTelemetry as OpenTelemetry

__all__ = ["Console", "JsonLines", "OpenTelemetry"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kaname.sinks' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(".otel" if name == "OpenTelemetry" else ".log", __name__), name)
