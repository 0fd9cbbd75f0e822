"""Vectors of a chunk's sentences: one that means what is asked is not lost among its neighbours. Kept as one byte a number."""

from __future__ import annotations

import re
from typing import Any

from .chunk import SENTENCE, width

_SHORTEST = 30  # columns: what is shorter goes with its neighbour
_SCALE = 4  # bytes before each vector: by what its numbers are multiplied
_BLANK = re.compile(r"\s+")


def sentences(text: str) -> list[str]:
    """The sentences of a chunk, the short ones joined; none if it is a single one, which the chunk's own vector stands for."""
    found: list[str] = []
    for sentence in [_BLANK.sub(" ", one).strip() for one in SENTENCE.split(text)]:
        if found and sentence and min(width(found[-1]), width(sentence)) < _SHORTEST:
            found[-1] += f" {sentence}"
        elif sentence:
            found.append(sentence)
    return found if len(found) > 1 else []


def packed(vectors: Any) -> bytes:
    """Vectors as bytes: each number in one, and before each vector its scale."""
    import numpy

    if not len(vectors):
        return b""
    given = numpy.asarray(vectors, dtype=numpy.float32)
    scales = numpy.maximum(numpy.abs(given).max(axis=1, keepdims=True) / 127, 1e-12).astype("<f4")
    small = numpy.rint(given / scales).astype(numpy.int8)
    return numpy.concatenate([scales.view(numpy.int8).reshape(len(given), _SCALE), small], axis=1).tobytes()


def best(blobs: list[bytes], vector: Any) -> list[float]:
    """The cosine of the nearest sentence of each chunk; -1 where there is none."""
    import numpy

    size = len(vector) + _SCALE
    counts = [len(blob) // size if len(blob) % size == 0 else 0 for blob in blobs]
    kept = b"".join([blob for blob, count in zip(blobs, counts, strict=True) if count])
    if not kept:
        return [-1.0] * len(blobs)
    rows = numpy.frombuffer(kept, dtype=numpy.int8).reshape(-1, size)
    scales = rows[:, :_SCALE].copy().view("<f4")[:, 0]
    cosines = (rows[:, _SCALE:].astype(numpy.float32) @ numpy.asarray(vector, dtype=numpy.float32)) * scales
    starts = numpy.cumsum([0, *[count for count in counts if count]])[:-1]
    found = iter(numpy.maximum.reduceat(cosines, starts).tolist())
    return [next(found) if count else -1.0 for count in counts]
