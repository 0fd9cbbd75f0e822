"""Collect every text in a reply: content, tool arguments, provider data, decoded JSON."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

from ....core.messages import Media, ModelReply, Provided, Thinking
from ....core.values import fenced_blocks, read_json
from ...failure.portable import MARK

_SIGNS = re.compile(r"[{\[\"']")  # without one of these there is no JSON in it, nor anything that is read as such


def in_calls(reply: ModelReply, known: Container[str]) -> list[str]:
    """The arguments of calls, the names of tools that nobody knows, and what a reader could not make sense of."""
    held: list[Any] = [call.args for call in reply.message.calls]
    held += [call.name for call in reply.message.calls if call.name not in known]
    held += [reply.note] if reply.problem else []
    return [text for one in held for text in texts(one)]


def of_provider(reply: ModelReply) -> list[str]:
    """Return the values that only the provider understands, and the addresses of media."""
    held: list[Any] = []
    for part in reply.message.parts:
        if isinstance(part, Provided):
            held += [part.data] if part.provider != MARK else []  # who wrote the reply is not a part of it
        elif isinstance(part, Thinking):
            held.append(part.signature)
        elif isinstance(part, Media):
            held += [part.name, part.url]
    return [text for one in held for text in texts(one)]


def as_meant(text: str) -> list[str]:
    """Return the decoded texts of a JSON text, or of JSON in fenced blocks; an empty list if there is no JSON."""
    return list(texts(text))[1:] or [one for block in fenced_blocks(text) for one in texts(block)]


def texts(value: Any) -> Iterator[str]:
    """All the texts in a JSON value, each as it is written and, if it is JSON itself, as it is meant."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            todo += [part for pair in reversed([*one.items()]) for part in reversed(pair)]
        elif isinstance(one, list | tuple):
            todo += reversed(one)
        elif isinstance(one, str):
            yield one
            meant = _read(one)
            todo += [] if meant is None or meant == one else [meant]
        elif one is not None:
            yield str(one)


def _read(text: str) -> Any:
    try:
        return read_json(text) if _SIGNS.search(text) else None
    except ValueError:
        return None
