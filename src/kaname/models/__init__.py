"""Models: adapters to providers, and models for tests. The names below are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME_OF = {
    "Anthropic": "providers.anthropic",
    "LiteLLM": "providers.litellm",
    "Local": "local.model",
    "OpenAI": "providers.openai",
    "OpenAIResponses": "providers.responses",
    "Price": "prices",
    "ReplayModel": "providers.replay",
    "ScriptedModel": "providers.scripted",
    "Timeouts": "http.client",
    "price_of": "prices",
}

__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from .http.client import Timeouts as Timeouts
    from .local.model import Local as Local
    from .prices import Price as Price
    from .prices import price_of as price_of
    from .providers.anthropic import Anthropic as Anthropic
    from .providers.litellm import LiteLLM as LiteLLM
    from .providers.openai import OpenAI as OpenAI
    from .providers.replay import ReplayModel as ReplayModel
    from .providers.responses import OpenAIResponses as OpenAIResponses
    from .providers.scripted import ScriptedModel as ScriptedModel


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kaname.models' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
