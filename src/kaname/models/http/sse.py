"""Parse server-sent events from bytes, however the network slices them, also in the middle of a character."""

from __future__ import annotations

import json
from typing import Any


class EventStream:
    """A parser. `feed(bytes)` returns the data of every complete event. Event names, ids and comments are ignored.

    Lines may end in LF, CR LF or CR; several `data:` lines of one event are joined with a line feed.
    """

    __slots__ = ("_after_return", "_begun", "_data", "_rest")

    def __init__(self) -> None:
        self._begun = False
        self._rest: list[bytes] = []  # the pieces of a line that has not ended
        self._data: list[bytes] = []
        self._after_return = False  # the last slice ended in CR: a LF at the head of the next belongs to it

    def feed(self, slice_: bytes) -> list[bytes]:
        if (
            slice_.endswith(b"\n\n")
            and not self._rest
            and not self._data
            and slice_.startswith(b"data:")
            and b"\r" not in slice_
        ):
            lines = slice_[:-2].split(b"\n\n")
            if slice_.count(b"\n") == 2 * len(lines):  # whole events of one line, as nearly all servers send them
                self._begun, self._after_return = True, False
                return [line[6:] if line[5:6] == b" " else line[5:] for line in lines if line.startswith(b"data:")]
        slice_ = self._with_line_feeds(slice_)
        if b"\n" not in slice_:
            self._rest.append(slice_)
            return []
        lines = b"".join([*self._rest, slice_]).split(b"\n")
        self._rest = [last] if (last := lines.pop()) else []
        if not self._begun:
            self._begun, lines[0] = True, lines[0].removeprefix(b"\xef\xbb\xbf")
        return self._events_of(lines)

    def _with_line_feeds(self, slice_: bytes) -> bytes:
        """Return the slice with LF for every end of a line. A LF after the CR that ended the last slice is left out."""
        if self._after_return and slice_[:1] == b"\n":
            slice_ = slice_[1:]
        if slice_:
            self._after_return = slice_[-1:] == b"\r"
        return slice_.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in slice_ else slice_

    def _events_of(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in lines:
            if not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        return events

    def end(self) -> list[bytes]:
        """Return the last event even if its blank line is missing, because the connection is closed."""
        return self.feed(b"\n\n") if self._rest or self._data else []


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
