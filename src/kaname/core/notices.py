"""Notices: English sentences for people, with a code and values, so that an edge can say them in another language.

Exceptions and facts hold them as ordinary strings. The terminal looks the code up in its catalogue (`cli/messages/`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Notice(str):
    """A text that was made from the template `code` with `values`. Added to another text, it is still known by its parts."""

    __slots__ = ("code", "values")
    code: str
    values: dict[str, Any]

    def __new__(cls, text: str, code: str = "", values: dict[str, Any] | None = None) -> Notice:
        made = super().__new__(cls, text)
        made.code, made.values = code, values or {}
        return made

    def __str__(self) -> str:
        return self  # so that str(error) keeps the code

    def __add__(self, other: str) -> Notice:
        return joined("", (self, other))

    def __radd__(self, other: str) -> Notice:
        return joined("", (other, self))


def notice(code: str, template: str, /, **values: Any) -> Notice:
    return Notice(template.format(**values), code, values)


def to_json(value: Any) -> Any:
    """A notice as JSON, with those in its values; anything that JSON does not know as a text."""
    if isinstance(value, Notice):
        values = {name: to_json(one) for name, one in value.values.items()}
        return {"text": str.__str__(value), "code": value.code, "values": values}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return Notice(value["text"], value["code"], {name: from_json(one) for name, one in value["values"].items()})
    return [from_json(one) for one in value] if isinstance(value, list) else value


def joined(between: str, parts: Iterable[str]) -> Notice:
    """`between.join(parts)`, in which every part keeps its code."""
    texts = list(parts)
    return Notice(between.join(texts), "", {"between": between, "parts": texts})
