"""Notices: English sentences for people with a code and values, so that they can be shown in another language.

Exceptions and facts hold them as ordinary strings. The terminal looks the code up in its catalogue (`cli/messages/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Notice(str):
    """A text made from the template `code` with `values`. Joined with other text, it keeps its parts, each with its code."""

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
        return join_notices("", (self, other))

    def __radd__(self, other: str) -> Notice:
        return join_notices("", (other, self))


def notice(code: str, template: str, /, **values: Any) -> Notice:
    return Notice(template.format(**values), code, values)


def to_json(value: Any) -> Any:
    """Convert a notice, with the notices in its values, to JSON. A value that JSON does not know becomes a text."""
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


def join_notices(between: str, parts: Iterable[str]) -> Notice:
    """Return `between.join(parts)` as a notice in which every part keeps its code."""
    texts = list(parts)
    return Notice(between.join(texts), "", {"between": between, "parts": texts})


def translate(text: str, catalogue: Mapping[str, str]) -> str:
    """Return a notice in the words of a catalogue of templates by code; as it is, if the catalogue does not know it."""
    if not isinstance(text, Notice):
        return text
    if not text.code:
        return translate(text.values["between"], catalogue).join([translate(one, catalogue) for one in text.values["parts"]])
    shown = {name: str(one) if isinstance(one, BaseException) else one for name, one in text.values.items()}
    values = {name: translate(one, catalogue) if isinstance(one, str) else one for name, one in shown.items()}
    try:
        return catalogue[text.code].format(**values)
    except (LookupError, ValueError, TypeError):  # not known, or recorded by a kaname that had other values for it
        return text


def without_wording(data: Any) -> Any:
    """Return the data of a fact with the codes of its notices instead of their texts: another version words them otherwise."""
    if isinstance(data, list):
        return [without_wording(one) for one in data]
    if not isinstance(data, dict):
        return data
    worded = {name for name in data if f"{name}_notice" in data}
    kept = {name: one for name, one in data.items() if name not in worded}
    return {
        name: _code_of(one) if name.removesuffix("_notice") in worded else without_wording(one) for name, one in kept.items()
    }


def _code_of(told: Any) -> Any:
    if isinstance(told, list):
        return [_code_of(one) for one in told]
    return [told["code"], {name: _code_of(one) for name, one in told["values"].items()}] if isinstance(told, dict) else told
