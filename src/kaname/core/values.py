"""Values as models write them: read lenient JSON, compare by value, and show as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Any, Literal

from .reading.lazy_regex import lazy_regex
from .reading.lenient_json import lenient_json

_LANGUAGE = lazy_regex(r"[\w-]*[ \t]*\n|json\b", re.IGNORECASE)
_FENCED = lazy_regex(r"```[\w-]*\n(.*?)\n```", re.DOTALL)


OutputMode = Literal["native", "tool", "prompted"]


class AnswerSchema(dict[str, Any]):
    """The schema of a typed answer. It may be sent in a strict form: null in the answer then stands for a field's default.

    `mode`: how the model is asked for it, or "" if the adapter chooses.
    """

    def __init__(self, schema: Mapping[str, Any], mode: OutputMode | Literal[""] = "") -> None:
        super().__init__(schema)
        self.mode = mode


def read_json(text: str) -> Any:
    """Parse JSON that a model wrote, repairing only what has exactly one reading (see `core/reading/lenient_json.py`).

    Code fences around it are removed, and JSON inside a JSON string is unpacked. Raises `ValueError` with the place of the
    first mistake, or `TwoReadings` if the text can mean two things.
    """
    value = lenient_json(_strip_fence(text))
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        return lenient_json(_strip_fence(value))
    return value


def fenced_blocks(text: str) -> list[str]:
    """Return the contents of the code fences in a text."""
    return _FENCED.findall(text)


def _strip_fence(text: str) -> str:
    """Return the text inside a code fence, if the fence is the whole text."""
    fenced = text.strip()
    if len(fenced) < 6 or not (fenced.startswith("```") and fenced.endswith("```")):
        return text
    inner = fenced[3:-3]
    language = _LANGUAGE.match(inner)
    return inner[language.end() :] if language else inner


def identity(value: Any) -> Hashable:
    """Return a key that is equal for equal values, whatever their spelling: key order, 1 or 1.0. True is not 1.

    Values that are not JSON are compared by their type and content, never by the text that is shown of them.
    """
    if isinstance(value, dict):
        return ("{", frozenset([(key, identity(item)) for key, item in value.items()]))
    if isinstance(value, list | tuple):
        return ("[", tuple([identity(item) for item in value]))
    if value is True or value is False:
        return ("bool", value)
    if value != value:
        return ("nan",)
    return value if isinstance(value, str | int | float) or value is None else _identity_of_object(value)


def _identity_of_object(value: Any) -> Hashable:
    kind = type(value)
    if isinstance(value, Mapping):
        return identity(dict(value))
    if isinstance(value, set | frozenset):
        return ("set", frozenset([identity(item) for item in value]))
    own_hash: Any = kind.__hash__
    if own_hash is not None and own_hash is not object.__hash__:
        return (kind, value)
    if hasattr(value, "__dict__"):
        return (kind, identity(vars(value)))
    return (kind, object())  # it cannot be compared, so it is equal to no other value


def shorten(text: str, limit: int) -> str:
    """Return the beginning and the end of a long text, with a note about the part that is left out."""
    if len(text) <= limit:
        return text
    tail = limit // 10
    note = f"\n\n[… {len(text) - limit:,} of {len(text):,} characters are left out here; ask for a smaller part …]\n\n"
    return text[: limit - tail] + note + text[-tail:]


def json_encoder(comma: str = ", ", colon: str = ": ") -> Callable[[Any], str]:
    """Return a `json.dumps` that is set up once. The standard one is set up anew for every value."""
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(comma, colon), check_circular=False)
    if c_make_encoder is None:  # a Python without the C part
        return encoder.encode
    pieces = c_make_encoder(None, encoder.default, encode_basestring, None, colon, comma, False, False, True)
    return lambda value: "".join(pieces(value, 0))


readable_json = json_encoder()


def identity_text(key: Hashable) -> str:
    """Return a key of `identity` as text that is the same in every process. Raises `TypeError` if it holds more than JSON."""
    if isinstance(key, frozenset):
        return "{" + ",".join(sorted([identity_text(item) for item in key])) + "}"
    if isinstance(key, tuple):
        return "(" + ",".join([identity_text(item) for item in key]) + ")"
    if isinstance(key, float) and key.is_integer():
        return str(int(key))
    if key is None or isinstance(key, str | int | float):
        return json.dumps(key)
    raise TypeError(f"{type(key).__name__} is not JSON")


_ESCAPES = lazy_regex(r"(?<!\\)((?:\\\\)*)((?:\\u[0-9a-fA-F]{4})+)")


def unescape_json(text: str) -> str:
    """Return JSON text with letters instead of their escapes. Text that is not JSON is returned unchanged.

    `json.dumps` writes every letter beyond ASCII as an escape, which costs a model six times the tokens.
    """

    def letters(found: re.Match[str]) -> str:
        said: str = json.loads(f'"{found[2]}"')
        return found[1] + said if said.isprintable() and not any(map(str.isascii, said)) else found[0]

    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _ESCAPES.sub(letters, text)


def plain_text(value: Any) -> str:
    """Return a JSON value as a model reads it: text stays text."""
    if type(value) is int:
        return str(value)
    return value if isinstance(value, str) else readable_json(value)


def parting(old: str, new: str, most: int) -> tuple[str, str]:
    """Return both texts, from a little before the place where they differ, cut to `most` characters."""
    same = next((place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - 60) if old and new else 0
    cut = [text[start : start + most] + ("…" if len(text) > start + most else "") for text in (old, new)]
    kind = [text.split(" ", 1)[0] + " …" if start and text else "" for text in (old, new)]
    return kind[0] + cut[0], kind[1] + cut[1]
