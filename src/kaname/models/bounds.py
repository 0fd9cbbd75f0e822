"""Bounds of a reply: the settings that limit its length, under whatever name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class BoundedReplies:
    """A model whose settings can bound the length of a reply."""

    __slots__ = ()

    settings: Mapping[str, Any] = {}

    def longest_reply(self, settings: Mapping[str, Any]) -> int | None:
        """Return the maximum number of tokens of a reply with these settings, or None if there is no maximum."""
        given = {**self.settings, **settings}
        found = [int(given[name]) for name in _NAMES if isinstance(given.get(name), int | float) and given[name] >= 1]
        return max(found, default=None)

    def shorten_replies(self, settings: Mapping[str, Any], tokens: int) -> Mapping[str, Any]:
        """Return settings with which a reply has no more than so many tokens."""
        given = {**self.settings, **settings}
        names = [name for name in _NAMES if given.get(name) is not None] or _NAMES[:1]
        return {**settings, **dict.fromkeys(names, tokens)}
