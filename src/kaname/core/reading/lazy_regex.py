"""Regular expressions that are compiled on first use: compiling one takes longer than loading its module."""

from __future__ import annotations

import re
from typing import Any, cast

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


class _LazyRegex:
    def __init__(self, pattern: str, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._given)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)


def lazy_regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression that is compiled on first use."""
    return cast("re.Pattern[str]", _LazyRegex(pattern, flags))
