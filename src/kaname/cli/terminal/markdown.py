"""Markdown as it streams: headings, emphasis and code get their looks while they are written, before the line has ended."""

from __future__ import annotations

import re

_RESET, _BOLD, _CODE, _HEAD = "\x1b[0m", "\x1b[1m", "\x1b[36m", "\x1b[1;35m"
_UNFINISHED = re.compile(r"((?<!\*)\*|(?<!`)`{1,2}|```[^\n`]*|(?:^|\n)#{1,6})$")
_MARK = re.compile(r"(```[^\n]*\n?|\*\*|`)")


class Markdown:
    """`feed` gives the text with its looks. A mark that has not wholly come yet is kept back until it has."""

    def __init__(self) -> None:
        self._rest = ""
        self._bold = self._code = self._block = False
        self._line_start = True
        self._heading = False

    def feed(self, text: str) -> str:
        text = self._rest + text
        held = _UNFINISHED.search(text)
        self._rest = text[held.start() :] if held else ""
        return self._styled(text[: held.start()] if held else text)

    def end(self) -> str:
        rest, self._rest = self._rest, ""
        return self._styled(rest) + (_RESET if self._bold or self._code or self._block or self._heading else "")

    def _styled(self, text: str) -> str:
        out = []
        for part in _MARK.split(text):
            if part.startswith("```"):
                self._block = not self._block
                out.append(_CODE if self._block else _RESET)
                self._line_start = True
            elif part == "`" and not self._block:
                self._code = not self._code
                out.append(_CODE if self._code else _RESET)
            elif part == "**" and not self._block and not self._code:
                self._bold = not self._bold
                out.append(_BOLD if self._bold else _RESET)
            else:
                out.append(part if self._block else self._lines(part))
        return "".join(out)

    def _lines(self, text: str) -> str:
        """Headings begin a line and end with it."""
        out = []
        for place, line in enumerate(text.split("\n")):
            if place:
                out.append((_RESET if self._heading else "") + "\n")
                self._heading, self._line_start = False, True
            if line:
                if self._line_start and re.match(r"#{1,6} ", line):
                    self._heading = True
                    out.append(_HEAD)
                self._line_start = False
                out.append(line)
        return "".join(out)
