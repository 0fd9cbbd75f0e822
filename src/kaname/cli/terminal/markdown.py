"""Markdown as it streams: headings, lists, emphasis and code are rendered at once, a table when it is complete."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .screen import columns, pad, truncate, width

_RESET, _BOLD, _CODE, _HEAD = "\x1b[0m", "\x1b[1m", "\x1b[36m", "\x1b[1;35m"
_UNDECIDED = re.compile(r"[ \t]{0,8}((#{1,6}|[-*+])[ \t]*|`{1,2}|```[^\n]*)?")  # how a line begins that may become anything yet
_HEADING, _ITEM = re.compile(r"#{1,6}[ \t]+"), re.compile(r"([ \t]*)[-*+][ \t]+")
_MARK = re.compile(r"\n|\*\*|`")
_RULE = re.compile(r"[|\s:-]*-[|\s:-]*")


class Markdown:
    """Render Markdown for a terminal. Call `feed` with each piece of text, and `end` at the end.

    Text that may become a mark is kept back until that is decided.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._line_start = True
        self._heading = self._bold = self._code = self._fenced = False
        self._rows: list[str] = []  # of a table

    def feed(self, text: str) -> str:
        self._rest += text
        return self._render(last=False)

    def end(self) -> str:
        shown = self._render(last=True) + self._table()
        return shown + (_RESET if self._heading or self._bold or self._code or self._fenced else "")

    def _render(self, *, last: bool) -> str:
        out: list[str] = []
        while self._rest:
            piece = self._begin_line(last=last) if self._line_start else self._render_in_line(last=last)
            if piece is None:
                break
            out.append(piece)
        return "".join(out)

    def _take(self, length: int) -> str:
        taken, self._rest = self._rest[:length], self._rest[length:]
        return taken

    def _begin_line(self, *, last: bool) -> str | None:
        """Return the prefix of a line, such as a bullet; None while more text is needed to decide."""
        line, ended, _ = self._rest.partition("\n")
        if line.startswith("|") and not self._fenced:
            if not ended and not last:
                return None
            self._rows.append(self._take(len(line) + len(ended)).rstrip("\n"))
            return ""
        if self._rows:
            return self._table()
        if not ended and not last and _UNDECIDED.fullmatch(line):
            return None
        if line.lstrip().startswith("```"):
            self._take(len(line) + len(ended))
            self._fenced = not self._fenced
            return _CODE if self._fenced else _RESET
        self._line_start = False
        if self._fenced:
            return ""
        if heading := _HEADING.match(line):
            self._take(heading.end())
            self._heading = True
            return _HEAD
        if item := _ITEM.match(line):
            self._take(item.end())
            return f"{item[1]}• "
        return ""

    def _render_in_line(self, *, last: bool) -> str | None:
        mark = _MARK.search(self._rest)
        if mark is None:
            half = int(self._rest.endswith("*") and not last)  # perhaps the first of two
            return self._take(len(self._rest) - half) or None
        if mark.start():
            return self._take(mark.start())
        after = self._rest[mark.end() : mark.end() + 1]
        if mark[0] == "**" and not after and not last:
            return None
        sign = self._take(mark.end())
        if sign == "\n":
            return self._end_line()
        opens = bool(after.strip()) or self._bold  # `a ** b` is arithmetic
        if self._fenced or (sign == "**" and (self._code or not opens)):
            return sign
        if sign == "`":
            self._code = not self._code
        else:
            self._bold = not self._bold
        return _RESET + self._look()

    def _end_line(self) -> str:
        look = self._look()
        self._line_start, self._heading, self._bold, self._code = True, False, False, False
        return (_RESET if look else "") + "\n"

    def _look(self) -> str:
        """Return the escapes that turn on what is on."""
        return _HEAD * self._heading + _BOLD * self._bold + _CODE * self._code

    def _table(self) -> str:
        """Return the rows that were kept back as a table. Without a rule under the first row they are not a table."""
        rows, self._rows = self._rows, []
        if len(rows) < 2 or not _RULE.fullmatch(rows[1]):
            return "".join([f"{row}\n" for row in rows])
        cells = [
            [cell.strip().replace("**", "").replace("`", "") for cell in row.strip().strip("|").split("|")] for row in rows
        ]
        places = range(max(map(len, cells)))
        cells = [row + [""] * (len(places) - len(row)) for row in cells]
        right = [cell.endswith(":") and not cell.startswith(":") for cell in cells.pop(1)]
        wide = _column_widths(cells)
        lines = [" │ ".join([_cell(row[place], wide[place], right=right[place]) for place in places]).rstrip() for row in cells]
        rule = "─┼─".join(["─" * size for size in wide])
        return "".join([f"{_BOLD}{lines[0]}{_RESET}\n{rule}\n", *[f"{line}\n" for line in lines[1:]]])


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of the columns: those of their longest cells, or less if the table is wider than the terminal."""
    longest = [max(map(width, column)) for column in zip(*rows, strict=True)]
    most = max(6, (columns() - 1) // len(longest) - 3)
    fits = sum(longest) + 3 * len(longest) < columns()
    return longest if fits else [min(most, one) for one in longest]


def _cell(text: str, size: int, *, right: bool) -> str:
    text = truncate(text, size)
    return " " * (size - width(text)) + text if right else pad(text, size)
