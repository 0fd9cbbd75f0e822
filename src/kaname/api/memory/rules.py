"""Find what is worth keeping in what a user says, without a model.

The user's own words are kept with their date, not a judgement of them: whether they still hold, nobody has said.
"""

from __future__ import annotations

import re

from ...tools.search.tokenize import query_terms

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_QUESTION = re.compile(r"[?？]\s*$|(?:です|ます|でしょう|ました|ません)か[。.]?\s*$")
_THANKS = re.compile(r"^(?:thanks\b|thank you\b|ありがとう|助かり)", re.I)
_FEWEST = 2  # words that say something
_TOGETHER, _LONGEST = 200, 1_000  # characters


def statements(text: str) -> list[str]:
    """The sentences that tell something, and not those that only ask or thank: a few of them a memory, so that each is found by
    what it says."""
    sentences = [one.strip() for one in _SENTENCE.split(text)]
    told = [one[:_LONGEST] for one in sentences if one and not _QUESTION.search(one) and not _THANKS.search(one)]
    kept: list[str] = []
    for sentence in told:
        if kept and len(kept[-1]) + len(sentence) < _TOGETHER:
            kept[-1] += f" {sentence}"
        else:
            kept.append(sentence)
    return [one for one in kept if len(query_terms(one)) >= _FEWEST]
