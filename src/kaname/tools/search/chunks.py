"""Blocks put together to chunks of a few sentences, never across headings; and the words that they are found by.

Short ones are found better; what is shown of a hit includes its neighbours."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from .blocks import Block

SIZE, LARGEST = 300, 500  # in columns: a Japanese letter counts as two
_SENTENCE = re.compile(r"(?<=[。．！？!?])\s*|(?<=[.;:])\s+|\n")
_LATIN = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff々ー]+")
_HIRAGANA = re.compile(r"[\u3040-\u309f]+")
_WORDS = (
    "a an and are as at be by can could did do does for from had has have how i if in is it its may me my no not of on or "
    "our shall should so than that the their them there they this to us was we were what when where which who whom whose "
    "why will with would you your much many any am"
)
_COMMON = frozenset(_WORDS.split())


class Chunk(NamedTuple):
    text: str
    heading: str
    place: str


def width(text: str) -> int:
    return sum(2 if ord(char) > 0x2E80 else 1 for char in text)


def chunked(blocks: Iterable[Block]) -> Iterator[Chunk]:
    held: list[Block] = []
    for block in [part for one in blocks for part in _parts(one)]:
        full = held and (block.heading != held[0].heading or sum(width(one.text) for one in held) + width(block.text) > SIZE)
        page = held and block.place.startswith(("page", "slide")) and block.place != held[0].place
        if full or page:
            yield _joined(held)
            held = []
        held.append(block)
    if held:
        yield _joined(held)


def _joined(held: list[Block]) -> Chunk:
    return Chunk("\n".join([block.text for block in held]), held[0].heading, held[0].place)


def _parts(block: Block) -> Iterator[Block]:
    """A block that is too long, cut at the ends of sentences or lines; a table's head goes with every part."""
    if width(block.text) <= LARGEST:
        yield block
        return
    lines = block.text.split("\n")
    head = "\n".join(lines[:2]) + "\n" if len(lines) > 3 and lines[0].count("|") > 1 else ""
    part = ""
    for sentence in [one for one in _SENTENCE.split(block.text[len(head) :]) if one.strip()]:
        while width(sentence) > LARGEST:  # no sentence at all
            yield block._replace(text=head + sentence[: LARGEST // 2])
            sentence = sentence[LARGEST // 2 :]
        if part and width(part) + width(sentence) > SIZE:
            yield block._replace(text=head + part)
            part = ""
        joint = "\n" if head else "" if part and ord(part[-1]) > 0x2E80 else " "
        part = f"{part}{joint}{sentence}".strip() if part else sentence
    if part:
        yield block._replace(text=head + part)


def terms(text: str) -> list[str]:
    """What a text is found by: Latin words, and of Japanese every pair of letters, except where both are hiragana."""
    text = unicodedata.normalize("NFKC", text).lower()
    found = []
    for word in _LATIN.findall(text):
        found.append(word)
        if not word.isalnum():
            found += [part for part in re.split(r"[._-]", word) if part]
    for run in _WIDE.findall(text):
        if len(run) == 1:
            found.append(run)
        found += [a + b for a, b in pairwise(run) if not _HIRAGANA.fullmatch(a + b)]
    return found


def query_terms(text: str) -> list[str]:
    """Those of a question, each once, without the words that every question has."""
    return list(dict.fromkeys([term for term in terms(text) if term not in _COMMON]))
