"""Whatever a tool returns, as JSON; and as much of it as a model can read."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..core.messages import Media, ToolResult
from ..core.record import replace
from ..core.values import plain_text

SHOWN_LIMIT = 40_000  # characters; about ten thousand tokens
_TAIL = 4_000


def to_result(value: Any) -> ToolResult:
    """A tool's own `ToolResult` is taken as it is; a `Media` is shown as one; everything else becomes JSON."""
    if isinstance(value, ToolResult):
        return fit(replace(value, output=to_json(value.output)))
    if isinstance(value, Media):
        return ToolResult(f"[{value.mime}]", media=(value,))
    return fit(ToolResult(to_json(value)))


def fit(result: ToolResult) -> ToolResult:
    """Cut what the model reads of a huge output, and say so; the journal keeps the whole."""
    if result.shown is not None or isinstance(result.output, int | float | None):
        return result
    text = plain_text(result.output)
    if len(text) <= SHOWN_LIMIT:
        return result
    head, tail = text[: SHOWN_LIMIT - _TAIL], text[-_TAIL:]
    note = f"\n\n[… {len(text) - SHOWN_LIMIT:,} of {len(text):,} characters are left out here; ask for a smaller part …]\n\n"
    return replace(result, shown=head + note + tail)


def to_json(value: Any) -> Any:
    """JSON for any value; what has no JSON form is shown by its `str`."""
    if value is None or isinstance(value, str | bool | int):
        return value if not isinstance(value, Enum) else to_json(value.value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    return _container(value, frozenset())


def _container(value: Any, above: frozenset[int]) -> Any:
    if id(value) in above:
        return "[a reference to something above]"
    if len(above) > 100:
        return str(value)[:1000]
    within = above | {id(value)}

    def inside(item: Any) -> Any:
        return to_json(item) if isinstance(item, str | bool | int | float | None) else _container(item, within)

    if isinstance(value, Enum):
        return inside(value.value)
    if isinstance(value, Mapping):
        return {_key(key): inside(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [inside(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: inside(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "model_dump"):  # a pydantic model
        return inside(value.model_dump(mode="json"))
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(to_json(key))
