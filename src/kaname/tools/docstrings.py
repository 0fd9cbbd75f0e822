"""What a docstring says of a function and of its parameters: Google, NumPy and Sphinx styles."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params|引数)\s*:?\s*$")
_OTHER = re.compile(r"^(Returns?|Raises|Yields?|Examples?|Notes?|See Also|戻り値|例外|例)\s*:?\s*$")
_GOOGLE = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*[::]\s*(.+)$")
_NUMPY = re.compile(r"^(\w+)\s*:\s*\S.*$|^(\w+)$")
_SPHINX = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s+)?(\w+)\s*:\s*(.*)$")


def parse(function: Any) -> tuple[str, dict[str, str]]:
    """The description without its sections, and a text for each parameter that has one."""
    lines = (inspect.getdoc(function) or "").splitlines()
    summary: list[str] = []
    params: dict[str, str] = {}
    section, last = "", ""
    for number, line in enumerate(lines):
        underlined = number + 1 < len(lines) and set(lines[number + 1].strip()) == {"-"}
        if _SECTION.match(line.strip()) and not line.startswith(" "):
            section = "numpy" if underlined else "google"
        elif _OTHER.match(line.strip()) and not line.startswith(" "):
            section = "other"
        elif found := _SPHINX.match(line):
            section, last = "sphinx", found.group(1)
            params[last] = found.group(2).strip()
        elif section == "google":
            last = _google(line, params, last)
        elif section == "numpy":
            last = _numpy(line, params, last)
        elif not section:
            summary.append(line)
    return "\n".join(summary).strip(), {name: text for name, text in params.items() if text}


def _google(line: str, params: dict[str, str], last: str) -> str:
    indent = len(line) - len(line.lstrip())
    if (found := _GOOGLE.match(line)) and 0 < indent <= 4:
        params[found.group(1)] = found.group(2).strip()
        return found.group(1)
    if last and line.strip():
        params[last] = f"{params[last]} {line.strip()}"
    return last


def _numpy(line: str, params: dict[str, str], last: str) -> str:
    if set(line.strip()) == {"-"}:
        return last
    if not line.startswith(" ") and (found := _NUMPY.match(line)):
        name = found.group(1) or found.group(2)
        params[name] = ""
        return name
    if last and line.strip():
        params[last] = f"{params[last]} {line.strip()}".strip()
    return last
