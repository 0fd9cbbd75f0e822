"""What stands in blocks: code between fences, strings of JSON, triple quotes. A line in them is no label, whatever it says."""

from __future__ import annotations

import json
import re

from .react_labels import Label

TILDES = re.compile(r"[ \t]{0,3}~~~")
_TRIPLE = re.compile(r"\"\"\"|'''")
_OPENING = re.compile(r"(`{3,}|~{3,})[\w-]{0,20}[ \t]{0,8}\n")
_MOST_TRIES = 3  # inputs that are looked at as JSON: the first call counts


class Blocks:
    """The lines of a text, one after the other. A block that never ends is none, but in an answer."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._ticks = sum([line.count("```") for line in lines])
        self._tildes = sum([TILDES.match(line) is not None for line in lines])
        self._inside = self._waved = False
        self._until = -1  # the last line of a value
        self._tries = 0
        self._opened = False  # an input has begun, and nothing of it was there

    def keeps(self, place: int, *, answering: bool) -> bool:
        if place <= self._until:
            return True
        return (self._inside and (answering or self._ticks > 0)) or (self._waved and (answering or self._tildes > 0))

    def past(self, place: int, label: Label | None) -> None:
        line = self._lines[place]
        ticks = line.count("```")
        self._ticks -= ticks
        self._inside = self._inside != bool(ticks % 2)
        if TILDES.match(line) is not None:
            self._tildes -= 1
            self._waved = not self._waved
        self._look(place, label.rest if label is not None else line, label)

    def _look(self, place: int, said: str, label: Label | None) -> None:
        """A value begins with the input: JSON, or triple quotes somewhere on the line of a call."""
        if label is not None:
            self._opened = label.kind in ("input", "action")
        if not self._opened or place <= self._until or not said.strip():
            return
        self._opened = False
        is_json = said.lstrip()[:1] == "{"
        if self._tries >= _MOST_TRIES or not (is_json or _TRIPLE.search(said)):
            return
        rest = "\n".join([said, *self._lines[place + 1 :]])
        self._tries += 1
        end = _json_end(rest) if is_json else _quotes_end(rest, len(said))
        if end > 0:
            self._until = place + rest.count("\n", 0, end)


def _json_end(text: str) -> int:
    start = len(text) - len(text.lstrip())
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return -1


def _quotes_end(text: str, width: int) -> int:
    """The end of the triple quotes that open on the first line."""
    place = 0
    while (opening := _TRIPLE.search(text, place, width)) is not None:
        end = text.find(opening[0], opening.end())
        if end < 0:
            return -1
        place = end + 3
        if place > width:
            return place
    return -1


def fenced_whole(text: str) -> str | None:
    """What stands in the code block that the text begins with. Blocks in it are its text."""
    opening = _OPENING.match(text)
    if opening is None:
        return None
    depth, bare, last = 1, 0, -1
    for fence in re.finditer(rf"^[ \t]{{0,3}}{opening[1]}(?!{opening[1][0]})([^\n`]*)$", text[opening.end() :], re.MULTILINE):
        named = bool(fence[1].strip())
        if depth == 0 and named:
            break  # another block
        depth = max(depth + (1 if named else -1), 0)
        bare += not named
        if depth == 0 and (last < 0 or bare % 2):
            last = opening.end() + fence.start()
    return None if last < 0 else text[opening.end() : max(last - 1, opening.end())]
