"""JSON for answers and events: any value can be written, also a notice, and half a surrogate pair."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import msgspec
from starlette.responses import JSONResponse


def _as_text(value: Any) -> str:
    """A notice is a text of a class of its own; what JSON does not know is told in words."""
    return str.__str__(value if isinstance(value, str) else str(value))


_encode = msgspec.json.Encoder(enc_hook=_as_text).encode


def to_json(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # half a surrogate pair: as an escape
        return json.dumps(_finite(value), default=_as_text).encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


class Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return to_json(content)
