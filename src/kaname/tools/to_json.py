"""Convert a tool's return value to JSON. The conversion never fails, because the tool's effect has already happened."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import islice
from typing import Any

from ..core.messages import Media, ToolResult
from ..core.record import replace
from ..kernel.boundary import Border
from ..kernel.results import own_result

_PLAIN = frozenset({str, bool, int, float})
_DEEPEST, _LONGEST, _LARGEST_BITS = 100, 100_000, 10_000


def to_result(value: Any) -> ToolResult:
    """Convert a return value. A `ToolResult` keeps its fields, `Media` become media, and everything else becomes JSON."""
    if value is None or type(value) in _PLAIN:
        return ToolResult(_json(value, frozenset(), False))
    if (own := own_result(value)) is not None:
        error = own.error if own.error is None or isinstance(own.error, str) else str(own.error)
        return replace(own, output=to_json(own.output), error=error)
    items = value if isinstance(value, list | tuple) else [value]
    media = tuple([item for item in items if isinstance(item, Media)])
    if not media:
        return ToolResult(to_json(value))
    rest = [item if not isinstance(item, Media) else f"[{item.mime}]" for item in items]
    return ToolResult(to_json(rest if isinstance(value, list | tuple) else rest[0]), media=media)


def to_json(value: Any, *, whole: bool = False) -> Any:
    """Convert any value to JSON. A value without a JSON form is converted by `str`.

    `whole`: include every field of a pydantic model unchanged, even if its serialization leaves it out or rewrites it."""
    return _json(value, frozenset(), whole)


def _json(value: Any, above: frozenset[int], whole: bool) -> Any:
    if value is None or type(value) is str or type(value) is bool:
        return value
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < _LARGEST_BITS else f"[an integer of {value.bit_length():,} bits]"
    if isinstance(value, float):
        return float(value) if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    if id(value) in above:
        return "[a reference to something above]"
    if len(above) >= _DEEPEST:
        return "[nested too deeply to be shown]"
    shown: Any = None
    with Border() as border:
        shown = _container(value, above | {id(value)}, whole)
    return shown if border.failure is None else f"[a {type(value).__name__} that cannot be shown: {border.failure}]"


def _container(value: Any, above: frozenset[int], whole: bool) -> Any:
    def inside(item: Any) -> Any:
        return _json(item, above, whole)

    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(inside(key)): inside(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inside(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted([inside(item) for item in value], key=repr)  # the same in every process
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, type):
        return str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: inside(getattr(value, name, None)) for name in value.__dataclass_fields__}
    if hasattr(value, "model_dump"):  # a pydantic model
        return inside(_every_field(value) if whole else value.model_dump())
    for method in ("isoformat", "tolist"):  # dates and times, arrays
        if hasattr(value, method):
            return inside(getattr(value, method)())
    if isinstance(value, Iterable):
        return [inside(item) for item in islice(value, _LONGEST)]
    return str(value)


def _every_field(model: Any) -> dict[str, Any]:
    named = {name: field.alias or name for name, field in type(model).model_fields.items()}
    return {**{named[name]: getattr(model, name) for name in named}, **(model.model_extra or {})}
