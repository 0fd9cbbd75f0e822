"""Join a character whose two halves came in two pieces of a stream: JSON that is cut between them is no Unicode."""

from __future__ import annotations

import json
from typing import Any


class Halves:
    """`decoded(data)`: the JSON, with a half that stands at the end of a text kept for the text at the same place of the next
    piece. A half without the other becomes U+FFFD."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], str] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def decoded(self, data: bytes) -> Any:
        kept, self._kept = self._kept, {}
        return self._joined(json.loads(data), kept, ())

    def _joined(self, value: Any, kept: dict[tuple[Any, ...], str], place: tuple[Any, ...]) -> Any:
        if isinstance(value, dict):
            return {name: self._joined(one, kept, (*place, name)) for name, one in value.items()}
        if isinstance(value, list):
            return [self._joined(one, kept, (*place, number)) for number, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        text = kept.get(place, "") + value
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._kept[place], text = text[-1], text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
