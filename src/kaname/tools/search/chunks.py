"""Blocks put together to chunks of a few sentences, never across headings; and the words that they are found by.

Short ones are found better; what is shown of a hit includes its neighbours."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from .blocks import Block

SIZE, LARGEST = 300, 500  # in columns: a Japanese letter counts as two
_SENTENCE = re.compile(r"(?<=[。．！？!?])[^\S\n]*|(?<=[.;:])[^\S\n]+|\n")
_UNDER_HEAD = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*")
_LATIN = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff々ー]+")
_KANA = re.compile(r"[\u3040-\u30ffー]")
_JAPANESE = "です ます した して いる ある こと から まで ので など ない れる られ しま ませ って とい いう ため よう もの すか"
_ENDINGS = frozenset(_JAPANESE.split())
_WORDS = (
    "a an and are as at be by can could did do does for from had has have how i if in is it its may me my no not of on or "
    "our shall should so than that the their them there they this to us was we were what when where which who whom whose "
    "why will with would you your much many any am"
)
_COMMON = frozenset(_WORDS.split())  # short ones, which have no stem but themselves


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
    """A block that is too long, cut at the ends of sentences or lines; a table's head goes with every part, if it is short."""
    if len(block.text) <= LARGEST and width(block.text) <= LARGEST:
        yield block
        return
    head = _head(block)
    part, begun = "", 0
    for start, joint, sentence in _sentences(block.text, len(head)):
        if part and width(part) + width(sentence) > SIZE:
            yield _cut(block, head + part, begun)
            part = ""
        begun = begun if part else start
        part = part + joint + sentence if part else sentence
    if part:
        yield _cut(block, head + part, begun)


def _head(block: Block) -> str:
    """Of a table that says that it is one; lines of a log have bars too."""
    lines = block.text.split("\n", 2)
    under = len(lines) > 2 and _UNDER_HEAD.fullmatch(lines[1]) is not None
    if len(lines) < 3 or not (block.table or under):
        return ""
    head = "\n".join(lines[: 2 if under else 1]) + "\n"
    return head if width(head) <= SIZE // 3 else ""


def _sentences(text: str, start: int) -> Iterator[tuple[int, str, str]]:
    """Each with its place and what joins it to the one before; what is no sentence at all is cut by length."""
    ends = [(found.start(), found.end(), found[0]) for found in _SENTENCE.finditer(text, start)]
    joint = ""
    for end, following, between in [*ends, (len(text), len(text), "")]:
        for place in range(start, end, LARGEST // 2):
            piece = text[place : min(end, place + LARGEST // 2)]
            if piece.strip():
                yield place, joint, piece
                joint = ""
        joint = joint if "\n" in joint else "\n" if "\n" in between else " " if between else joint
        start = following


def _cut(block: Block, text: str, start: int) -> Block:
    """A part says in which line it begins."""
    place = block.place
    if place.startswith("line "):
        after = bisect_right(block.lines, start, key=lambda one: one[0])
        line = int(place.removeprefix("line ")) + block.text.count("\n", 0, start)
        place = f"line {block.lines[max(0, after - 1)][1] if block.lines else line}"
    return block._replace(text=text, place=place)


def terms(text: str) -> list[str]:
    """What a text is found by: Latin words, and of Japanese every pair of letters, except where both are hiragana."""
    text = unicodedata.normalize("NFKC", text).lower()
    found = []
    for word in _LATIN.findall(text):
        found.append(_stem(word))
        if not word.isalnum():
            found += [_stem(part) for part in re.split(r"[._-]", word) if part]
    for run in _WIDE.findall(text):
        found += [char for char in run if not _KANA.fullmatch(char)] if len(run) < 3 else []
        found += [a + b for a, b in pairwise(run) if a + b not in _ENDINGS]
    return found


def _stem(word: str) -> str:
    """Roughly: what a plural or a form of a verb has in common with the word."""
    if len(word) < 4 or not word.isalpha():
        return word
    for ending, other in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + other
    return word.removesuffix("e") if len(word) > 4 else word


def query_terms(text: str) -> list[str]:
    """Those of a question, each once, without the words that every question has."""
    return list(dict.fromkeys([term for term in terms(text) if term not in _COMMON]))
