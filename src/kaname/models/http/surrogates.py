"""Join a character whose two halves arrived in two pieces of a stream. JSON that is cut between them is not valid Unicode."""

from __future__ import annotations

import json
from typing import Any


class Halves:
    """A decoder. A half at the end of a text is kept for the text at the same place of the next piece.

    A half without the other becomes U+FFFD.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[Any, ...], str] = {}

    def decode(self, data: bytes) -> Any:
        kept, self.kept = self.kept, {}
        return self._join(json.loads(data), kept, ())

    def _join(self, value: Any, kept: dict[tuple[Any, ...], str], place: tuple[Any, ...]) -> Any:
        if isinstance(value, dict):
            return {name: self._join(one, kept, (*place, name)) for name, one in value.items()}
        if isinstance(value, list):
            return [self._join(one, kept, (*place, number)) for number, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        text = kept.get(place, "") + value
        if text and "\ud800" <= text[-1] <= "\udbff":
            self.kept[place], text = text[-1], text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
