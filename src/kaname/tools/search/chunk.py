"""Chunk blocks into pieces of a few sentences, never across headings, with the vectors of their sentences.

In a dialogue, every turn is a piece. Short pieces are found more reliably; a hit is shown with its neighbours. The vectors of
sentences, stored as one byte per number, find a relevant sentence within a longer chunk."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...core.sentences import sentence_ends, split_sentences
from .dialogue import is_dialogue, speaker
from .readers.base import Block, page_of, width
from .tokenize import query_terms as query_terms
from .tokenize import terms as terms

SIZE, LARGEST = 300, 500  # in columns: a Japanese letter counts as two
_PIECE = LARGEST // 2  # in letters
_GAPS = " \t\u3000|,、，"
_UNDER_HEAD = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*")


class TextChunk(NamedTuple):
    text: str
    heading: str
    place: str


def _begins_another(held: Sequence[Block], block: Block) -> bool:
    """Return True if a block has another heading or page than the chunk before it, or makes it too long."""
    if block.heading != held[0].heading or (page_of(block.place) and block.place != held[0].place):
        return True
    return sum([width(one.text) for one in held]) + width(block.text) > SIZE


def chunk_blocks(blocks: Iterable[Block]) -> Iterator[TextChunk]:
    held: list[Block] = []
    whole = list(blocks)
    spoken = is_dialogue([block.text for block in whole])
    for block in [part for one in whole for turn in (_turns(one) if spoken else [one]) for part in _parts(turn)]:
        if held and (_begins_another(held, block) or (spoken and speaker(block.text))):
            yield _join(held)
            held = []
        held.append(block)
    if held:
        yield _join(held)


def _turns(block: Block) -> Iterator[Block]:
    """Split a block into the turns of a dialogue. Each begins with the line that names its speaker."""
    start = place = 0
    for line in block.text.splitlines(keepends=True):
        if place > start and speaker(line):
            yield _part_of(block, block.text[start:place].rstrip("\n"), start)
            start = place
        place += len(line)
    yield _part_of(block, block.text[start:].rstrip("\n"), start)


def _join(held: list[Block]) -> TextChunk:
    return TextChunk("\n".join([block.text for block in held]), held[0].heading, held[0].place)


def _parts(block: Block) -> Iterator[Block]:
    """Split a block that is too long at sentence or line ends. Every part repeats the head of a table, if that is short."""
    if len(block.text) <= LARGEST and width(block.text) <= LARGEST:
        yield block
        return
    head = _head(block)
    part, begun = "", 0
    for start, joint, sentence in _sentences(block.text, len(head)):
        if part and width(part) + width(sentence) > SIZE:
            yield _part_of(block, head + part, begun)
            part = ""
        begun = begun if part else start
        part = part + joint + sentence if part else sentence
    if part:
        yield _part_of(block, head + part, begun)


def _head(block: Block) -> str:
    """Return the head of a table, or "" if the block is not marked as a table: log lines contain bars too."""
    lines = block.text.split("\n", 2)
    under = len(lines) > 2 and _UNDER_HEAD.fullmatch(lines[1]) is not None
    if len(lines) < 3 or not (block.table or under):
        return ""
    head = "\n".join(lines[: 2 if under else 1]) + "\n"
    return head if width(head) <= SIZE // 3 else ""


def _sentences(text: str, start: int) -> Iterator[tuple[int, str, str]]:
    """Yield each sentence with its offset and the separator before it. Text without sentence ends is cut by length."""
    ends = [(end, following, text[end:following]) for end, following in sentence_ends(text, start, also=";")]
    joint = ""
    for end, following, between in [*ends, (len(text), len(text), "")]:
        for place, piece in _pieces(text, start, end):
            if piece.strip():
                yield place, joint, piece
                joint = ""
        joint = joint if "\n" in joint else "\n" if "\n" in between else " " if between else joint
        start = following


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """Cut after a cell of a table, else after a word. A word is only cut if it is too long itself."""
    while end - start > _PIECE:
        window = text[start : start + _PIECE + 1]
        cuts = [window.rfind(" | ", 1) + 2, max(map(window.rfind, _GAPS))]
        cut = next((one + 1 for one in cuts if one > _PIECE // 4), _PIECE)
        yield start, text[start : start + min(cut, _PIECE)]
        start += min(cut, _PIECE)
    if start < end:
        yield start, text[start:end]


def _part_of(block: Block, text: str, start: int) -> Block:
    """Return a part of a block, with the line in which it begins."""
    place = block.place
    if place.startswith("line "):
        after = bisect_right(block.lines, start, key=lambda one: one[0])
        line = int(place.removeprefix("line ")) + block.text.count("\n", 0, start)
        place = f"line {block.lines[max(0, after - 1)][1] if block.lines else line}"
    return block._replace(text=text, place=place)


_SHORTEST = 30  # columns: shorter sentences are joined with a neighbour
_SCALE = 4  # bytes before each vector: by what its numbers are multiplied
_BLANK = re.compile(r"\s+")


def sentences(text: str) -> list[str]:
    """Split a chunk into sentences, joining short ones. Returns [] for a single sentence: the chunk's own vector covers it."""
    found: list[str] = []
    for sentence in [_BLANK.sub(" ", one) for one in split_sentences(text, also=";")]:
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
