"""Refuse what a design's document has and kaname would not use, with what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...core.errors import ConfigError
from ...core.notices import notice


class Refusing:
    """A class whose subclasses and objects cannot have the names in `_unused`, each with what to use instead."""

    _unused: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        above: Any = super(cls, cls)
        for name in [one for one in above._unused if one in vars(cls)]:
            raise ConfigError(_refusal(cls, name, above._unused[name]))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._unused:
            raise ConfigError(_refusal(type(self), name, self._unused[name]))
        super().__setattr__(name, value)


def _refusal(kind: type, name: str, instead: str) -> str:
    return notice(
        "designs.unused",
        "{kind}.{name} has no effect in kaname, because a run does not use it. Use {instead}.",
        kind=kind.__name__,
        name=name,
        instead=instead,
    )
