"""A list of things to do, as people and models read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

TODO = "todo"  # the tool that writes the list, and the fact that holds it
_MARKS = {"open": "[ ]", "doing": "[>]", "done": "[x]"}


def todo_lines(items: Iterable[Any]) -> list[str]:
    """Return the list as lines of text. What is no item is left out."""
    return [f"{_MARKS.get(item.get('status', ''), '[ ]')} {item.get('text', '')}" for item in items if isinstance(item, dict)]
