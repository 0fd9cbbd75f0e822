"""Parse a docstring's summary and parameters: Google, NumPy and Sphinx styles, English and Japanese."""

from __future__ import annotations

import inspect
import re
from typing import Any

_PARAMETERS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "引数"}
_DROPPED = {"returns", "return", "raises", "yields", "yield", "receives", "example", "examples"}
_DROPPED |= {"戻り値", "返り値", "例外", "例"}
_HEADING = re.compile(r"^(\w[\w ]*?)\s*[::]?\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*[::]\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?(\w+)\s*:\s*(.*)$")


def parse(function: Any) -> tuple[str, dict[str, str]]:
    """Return the description without its sections on parameters and results, and the text of each documented parameter."""
    lines = (inspect.getdoc(function) or "").expandtabs(4).splitlines()
    kept: list[str] = []
    reader = _Parameters()
    section = ""
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        heading = _section_name(line, following)
        if heading:
            section = "numpy" if heading in _PARAMETERS and _is_rule(following) else heading
            reader.begin()
        elif found := _SPHINX.match(line.strip()):
            section = "sphinx"
            reader.entry([found.group(1)], found.group(2), _indent(line))
        elif re.match(r"^:(returns?|rtype|raises?|type)\b", line.strip()):
            section = "returns"
        elif section in _PARAMETERS:
            reader.google(line)
        elif section == "numpy":
            reader.numpy(line)
        elif section == "sphinx" and _indent(line):
            reader.more(line)
        if section in ("", "sphinx") and line.strip() and not line.strip().startswith(":") and not _indent(line):
            section = ""
        if section == "" or section not in (*_PARAMETERS, *_DROPPED, "numpy", "sphinx"):
            kept.append(line)
    return "\n".join(kept).strip(), {name: text.strip() for name, text in reader.texts.items() if text.strip()}


def _section_name(line: str, following: str) -> str:
    """Return the name of the section that a line opens, or "".

    Such a line is not indented and has a word or two, with a colon and an indented line after it, or a rule under it."""
    found = None if _indent(line) or not line.strip() else _HEADING.match(line)
    if found is None:
        return ""
    name = found.group(1).strip().lower()
    colon = line.rstrip().endswith((":", ":"))
    known = name in _PARAMETERS or name in _DROPPED
    return name if _is_rule(following) or (colon and (known or _indent(following))) else ""


def _is_rule(line: str) -> bool:
    return len(line.strip()) > 2 and set(line.strip()) <= {"-", "="}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class _Parameters:
    """The texts of parameters, collected line by line."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        self._last: list[str] = []
        self._column: int | None = None

    def entry(self, names: list[str], text: str, column: int) -> None:
        self._last, self._column = names, column
        self.texts |= dict.fromkeys(names, text)

    def more(self, line: str) -> None:
        for name in self._last:
            self.texts[name] = f"{self.texts[name]} {line.strip()}"

    def google(self, line: str) -> None:
        found = _ENTRY.match(line.strip())
        if found and (self._column is None or _indent(line) <= self._column):
            self.entry([found.group(1)], found.group(2), _indent(line))
        elif line.strip():
            self.more(line)

    def numpy(self, line: str) -> None:
        if _is_rule(line) or not line.strip():
            return
        found = None if _indent(line) else _NUMPY_ENTRY.match(line)
        if found:
            self.entry([name.strip() for name in found.group(1).split(",")], "", 0)
        else:
            self.more(line)
