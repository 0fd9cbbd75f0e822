"""A list of things to do, as people and models read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TODO = "todo"  # the tool that writes the list, and the fact that holds it
_MARKS = {"open": "[ ]", "doing": "[>]", "done": "[x]", "failed": "[!]", "skipped": "[-]"}  # the last two only of a plan
_OF_PLAN = {"waiting": "open", "running": "doing"}


def todo_of_plan(statuses: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the steps of a plan, by name with their status, in the form of the list."""
    return [{"text": name, "status": _OF_PLAN.get(status, status)} for name, status in statuses.items()]


def todo_lines(items: Iterable[Any]) -> list[str]:
    """Return the list as lines of text. What is no item is left out."""
    return [f"{_MARKS.get(item.get('status', ''), '[ ]')} {item.get('text', '')}" for item in items if isinstance(item, dict)]
