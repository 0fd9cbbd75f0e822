"""Vectors of a chunk's sentences, stored as one byte per number, so that a relevant sentence is found within a longer chunk."""

from __future__ import annotations

import re
from typing import Any

from .chunk import SENTENCE
from .readers.base import width

_SHORTEST = 30  # columns: shorter sentences are joined with a neighbour
_SCALE = 4  # bytes before each vector: by what its numbers are multiplied
_BLANK = re.compile(r"\s+")


def sentences(text: str) -> list[str]:
    """Split a chunk into sentences, joining short ones. Returns [] for a single sentence: the chunk's own vector covers it."""
    found: list[str] = []
    for sentence in [_BLANK.sub(" ", one).strip() for one in SENTENCE.split(text)]:
        if found and sentence and min(width(found[-1]), width(sentence)) < _SHORTEST:
            found[-1] += f" {sentence}"
        elif sentence:
            found.append(sentence)
    return found if len(found) > 1 else []


def pack_vectors(vectors: Any) -> bytes:
    """Pack vectors into bytes: the scale of each vector, followed by one byte per number."""
    import numpy

    if not len(vectors):
        return b""
    given = numpy.asarray(vectors, dtype=numpy.float32)
    scales = numpy.maximum(numpy.abs(given).max(axis=1, keepdims=True) / 127, 1e-12).astype("<f4")
    small = numpy.rint(given / scales).astype(numpy.int8)
    return numpy.concatenate([scales.view(numpy.int8).reshape(len(given), _SCALE), small], axis=1).tobytes()


def cosines_of_sums(some: Any, others: Any, vector: Any) -> Any:
    """Return the cosine of the vector with each sum `some[i] + others[i]`, which stands for the meaning of both texts."""
    import numpy

    both = some + others
    return both @ numpy.asarray(vector, dtype=numpy.float32) / numpy.maximum(numpy.linalg.norm(both, axis=1), 1e-12)


def best(blobs: list[bytes], own: Any, vector: Any) -> list[float]:
    """Return the cosine of each chunk combined with its nearest sentence; -1 for a chunk without sentences.

    Args:
        blobs: For each chunk, the stored vectors of its sentences.
        own: The vectors of the chunks themselves.
        vector: The vector of the question.
    """
    import numpy

    size = len(vector) + _SCALE
    counts = [len(blob) // size if len(blob) % size == 0 else 0 for blob in blobs]
    kept = b"".join([blob for blob, count in zip(blobs, counts, strict=True) if count])
    if not kept:
        return [-1.0] * len(blobs)
    rows = numpy.frombuffer(kept, dtype=numpy.int8).reshape(-1, size)
    vectors = rows[:, _SCALE:] * rows[:, :_SCALE].copy().view("<f4")
    cosines = cosines_of_sums(vectors, numpy.repeat(own, counts, axis=0), vector)
    starts = numpy.cumsum([0, *[count for count in counts if count]])[:-1]
    found = iter(numpy.maximum.reduceat(cosines, starts).tolist())
    return [next(found) if count else -1.0 for count in counts]
