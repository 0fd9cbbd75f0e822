"""Read plain text and Markdown as blocks, each with the line in which it begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .base import Block, Headings
from .encoding import decode

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t\u3000]+(.*?))?(?:[ \t\u3000]+#+)?[ \t\u3000]*")
_FENCE = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_CODE = re.compile(r" {4}| {0,3}\t")
_BULLET = re.compile(r"\s{0,3}(?:[-*+]|\d{1,9}[.)])\s")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_NO_TITLE = re.compile(r"\s*(?:[-*+>|]|\d+[.)]|`{3}|~{3})")
_FRONT = re.compile(r"\s*(?:[\w-]+\s*:|- |#|$)|\s+\S")
_TOLD = re.compile(r"(?:title|subtitle|description|summary|tags|keywords|categories)\s*:", re.IGNORECASE)


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, as an editor counts them."""
    return re.split(r"\r\n|\r|\n", decode(path.read_bytes()))


def text(path: Path) -> Iterator[Block]:
    for line, lines in paragraphs(lines_of(path)):
        yield Block("\n".join(lines), "", f"line {line}")


def paragraphs(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    begun = 1
    held: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            begun = begun if held else number
            held.append(line.rstrip())
        elif held:
            yield begun, held
            held = []
    if held:
        yield begun, held


def markdown(path: Path) -> Iterator[Block]:
    lines = lines_of(path)
    skipped = _front_matter(lines)
    if skipped:
        yield Block("\n".join(_about(lines[1 : skipped - 1])), "", "line 2")
    reader = _MarkdownReader()
    for number, line in enumerate(lines[skipped:], skipped + 1):
        yield from reader.take(number, line)
    yield from reader.finish()


def _front_matter(lines: list[str]) -> int:
    """Count the lines of front matter between `---` and `---` at the beginning; 0 if there is none."""
    if lines[0].rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:200], 2):
        if line.rstrip() in ("---", "..."):
            return number if number > 2 else 0
        if not _FRONT.match(line):
            break
    return 0


def _about(lines: list[str]) -> Iterator[str]:
    """Yield the front matter's title, description and tags. The rest is for programs."""
    wanted = False
    for line in lines:
        wanted = bool(_TOLD.match(line)) or (wanted and line.startswith(("- ", " ", "\t")))
        if wanted and line.strip():
            yield line.rstrip()


class _MarkdownReader:
    def __init__(self) -> None:
        self._headings, self._held = Headings(), list[str]()
        self._begun, self._opened, self._fence, self._list = 1, 0, "", False

    def take(self, number: int, line: str) -> Iterator[Block]:
        if self._fence or self._opens(number, line):
            if self._fence and self._opened < number and self._closes(line):
                self._fence = ""
            self._hold(number, line)
            return
        heading, under = _HEADING.fullmatch(line), _UNDERLINE.fullmatch(line)
        if under and len(self._held) == 1 and not _NO_TITLE.match(self._held[0]):
            yield from self._headings.enter(1 if "=" in under[1] else 2, self._held.pop(), f"line {self._begun}")
        elif heading:
            yield from self.end_block()
            yield from self._headings.enter(len(heading[1]), heading[2] or "", f"line {number}")
        elif not line.strip() or _RULE.fullmatch(line):
            yield from self.end_block()
        else:
            self._hold(number, line)

    def end_block(self) -> Iterator[Block]:
        text = "\n".join(self._held).rstrip()
        self._held = []
        if text:
            yield self._headings.block(text, f"line {self._begun}")

    def finish(self) -> Iterator[Block]:
        yield from self.end_block()
        yield from self._headings.flush()

    def _hold(self, number: int, line: str) -> None:
        """Keep a line for the current block; in code, blank lines too."""
        self._begun = self._begun if self._held else number
        self._held.append(line.rstrip())

    def _opens(self, number: int, line: str) -> bool:
        """Return True if the line opens a fenced block. A line indented like code opens one only within a list."""
        if line.strip():
            bullet = _BULLET.match(line) is not None
            self._list = bullet or (self._list and line[0] in " \t")
        fence = _FENCE.fullmatch(line) if self._list or not _CODE.match(line) else None
        self._fence, self._opened = (fence[1], number) if fence else ("", 0)
        return bool(fence)

    def _closes(self, line: str) -> bool:
        """Return True if the line closes the fence: the same character, at least as often, and nothing else."""
        closing = line.strip()
        return len(closing) >= len(self._fence) and set(closing) == {self._fence[0]}
