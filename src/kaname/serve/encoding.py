"""JSON for responses and events. Any value can be written, also a notice and half a surrogate pair.

A large text that is sent to many clients is in memory once, and is sent in pieces: a client that does not read costs no more
than the piece that it has not taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import isfinite
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from starlette.responses import JSONResponse, Response

PIECE = 65_536  # bytes that are passed to a connection before it is waited for
PATIENCE = 30.0  # seconds in which a client has to read something


def _as_text(value: Any) -> str:
    """Return a notice, which is a subclass of `str`, or any value that JSON does not know, as a plain text."""
    return str.__str__(value if isinstance(value, str) else str(value))


_encode = msgspec.json.Encoder(enc_hook=_as_text).encode


def to_json(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # half a surrogate pair: as an escape
        return json.dumps(_finite(value), default=_as_text).encode()


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by None: JSON has no number for them."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


class Shared:
    """Bytes that several responses share. They are released with the last of these responses."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data


Part = bytes | Shared | tuple["Part", ...]  # a tuple: a frame with a text that is shared
_held: WeakValueDictionary[int, Shared] = WeakValueDictionary()


def share(data: bytes) -> Part:
    """Return the bytes. If they are large and another response holds the same bytes, return that object."""
    if len(data) <= PIECE:
        return data
    key = hash(data)
    found = _held.get(key)
    if found is None or found.data != data:
        found = _held[key] = Shared(data)
    return found


def size_of(part: Part) -> int:
    """Return the number of bytes."""
    if isinstance(part, tuple):
        return sum(map(size_of, part))
    return len(part.data if isinstance(part, Shared) else part)


def join_parts(parts: Iterable[Part]) -> list[Part]:
    """Join small parts into parts of at most `PIECE` bytes. A larger one, and one with a shared text, stays as it is."""
    joined: list[Part] = []
    small: list[bytes] = []
    size = 0
    for part in parts:
        size += size_of(part)
        if small and (size > PIECE or not isinstance(part, bytes)):
            joined.append(b"".join(small))
            small, size = [], size_of(part)
        if isinstance(part, bytes):
            small.append(part)
        else:
            joined.append(part)
            size = 0
    return [*joined, b"".join(small)] if small else joined


def pieces(part: Part) -> Iterator[bytes]:
    """Return the bytes in pieces that are sent, and waited for, one by one."""
    if isinstance(part, tuple):
        return chain.from_iterable(map(pieces, part))
    data = part.data if isinstance(part, Shared) else part
    if len(data) <= PIECE:
        return iter((data,))
    return (data[start : start + PIECE] for start in range(0, len(data), PIECE))


class Json(JSONResponse):
    """A JSON response. A large body is shared with other responses that have the same."""

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(content, status_code, headers, **more)
        keep_once(self)

    def render(self, content: Any) -> bytes:
        return to_json(content)


def keep_once(response: Response) -> Response:
    """Share the body of a response with other responses that have the same, and return the response."""
    part = share(bytes(response.body))
    if isinstance(part, Shared):
        response.body, response.shared = part.data, part  # type: ignore[attr-defined]
    return response
