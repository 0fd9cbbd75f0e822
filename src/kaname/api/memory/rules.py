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


def statement(text: str) -> str:
    """The sentences that tell something, and not those that only ask or thank; nothing, if there are none."""
    sentences = [one.strip() for one in _SENTENCE.split(text)]
    told = [one for one in sentences if one and not _QUESTION.search(one) and not _THANKS.search(one)]
    whole = " ".join(told)
    return whole if len(query_terms(whole)) >= _FEWEST else ""
