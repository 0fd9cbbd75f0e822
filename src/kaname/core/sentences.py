"""Split text into sentences, in English and Japanese."""

from __future__ import annotations

import re
from functools import lru_cache

_MARKS = ".!?"  # not "…", which is a pause: what stands before it, such as a negation, may be meant for what follows


@lru_cache
def _ends(also: str, wrapped: bool) -> re.Pattern[str]:
    marks = re.escape(_MARKS + also)
    return re.compile(
        rf"(?:(?<=[。！？])|(?<=．)(?![0-9０-９]))[^\S\n]*|(?<=[{marks}])(?<!e\.g\.)(?<!i\.e\.)(?:[^\S\n]+|(?=\n)|$)|(?<=[!?])(?=[ぁ-んァ-ヶ一-龥])"
        + (r"|\n\s*\n" if wrapped else r"|\n+")
    )


def sentence_ends(text: str, start: int = 0, *, also: str = "", wrapped: bool = False) -> list[tuple[int, int]]:
    """Return the ends of sentences, each with the index at which the next sentence begins.

    Args:
        text: The text.
        start: Where to begin looking.
        also: Further ASCII marks that end a sentence, such as ";".
        wrapped: A sentence can continue in the next line, and only an empty line ends it. By default every line end does.
    """
    return [found.span() for found in _ends(also, wrapped).finditer(text, start)]


def split_sentences(text: str, *, also: str = "") -> list[str]:
    """Return the sentences of a text with their marks, without blanks around them. `also`: as for `sentence_ends`."""
    return [one for part in _ends(also, False).split(text) if (one := part.strip())]


def begins_sentence(text: str, place: int) -> bool:
    """Return True if a sentence begins at this place, or in the quotation marks before it."""
    before = text[:place].rstrip(" \t\u3000'\"(「")
    return before[-1:] in ("", "\n", ":", *_MARKS, *"。．！？")
