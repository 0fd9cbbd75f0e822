"""From `provider/model` to an adapter. An adapter is imported when its name is first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.language import say
from ..kernel.ports import Model

# provider: "module:what makes a model from the rest of the name"
PROVIDERS = {
    "openai": "kaname.models.openai:OpenAI",
    "anthropic": "kaname.models.anthropic:Anthropic",
    "scripted": "kaname.models.scripted:ScriptedModel.from_file",
    "replay": "kaname.models.replay:ReplayModel.from_file",
}
GROUP = "kaname.models"  # the entry-point group where a package announces providers of its own


def resolve(name: str | Model) -> Model:
    """The model of that name; a model object is already one."""
    if not isinstance(name, str):
        if not hasattr(name, "reply"):
            raise ConfigError(
                f"a model is a name like 'provider/model' or an object with an async reply(request, emit), not {name!r}"
            )
        return name
    provider, slash, rest = name.partition("/")
    if not slash or not rest:
        raise ConfigError(
            say(f"a model name is written provider/model; got {name!r}", f"モデル名は provider/model の形です: {name!r}")
        )
    make = _maker(provider)
    model: Model = make(rest)
    return model


def _maker(provider: str) -> Any:
    if provider in PROVIDERS:
        module, _, path = PROVIDERS[provider].partition(":")
        target: Any = import_module(module)
        for attribute in path.split("."):
            target = getattr(target, attribute)
        return target
    from importlib.metadata import entry_points  # slow to load, and seldom needed

    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if provider in others:
        return others[provider].load()
    known = [*PROVIDERS, *others]
    raise ConfigError(
        say(
            f"no model adapter for the provider {provider!r}{nearest(provider, known)}",
            f"プロバイダー {provider!r} のアダプターはありません{nearest(provider, known)}",
        )
    )
