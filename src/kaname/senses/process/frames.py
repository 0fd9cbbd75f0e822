"""Messages between the two processes: a JSON object and any number of blocks of bytes. Nothing is executed by reading them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = struct.Struct(">II")
LARGEST = 600_000_000  # bytes of one message: an hour of sound, or a video
_LONGEST_HEAD = 50_000_000


class BadFrame(Exception):
    """The other process has written something that is not a message."""


def pack(data: Mapping[str, Any], blocks: Sequence[bytes] = ()) -> list[bytes]:
    """Return the pieces of a message."""
    head = json.dumps({**data, "_": [len(block) for block in blocks]}).encode()
    return [_HEAD.pack(len(head), len(blocks)), head, *blocks]


def sizes(head: bytes) -> tuple[int, int]:
    """Return the length of the JSON and the number of blocks."""
    length, count = _HEAD.unpack(head)
    if length > _LONGEST_HEAD or count > 10_000:
        raise BadFrame
    return length, count


def parse(text: bytes, count: int) -> tuple[dict[str, Any], list[int]]:
    """Return the data and the lengths of the blocks that follow."""
    try:
        data = json.loads(text)
        lengths = [int(one) for one in data.pop("_")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadFrame from None
    if len(lengths) != count or any(one < 0 for one in lengths) or sum(lengths) > LARGEST:
        raise BadFrame
    return data, lengths


HEAD_BYTES = _HEAD.size
