"""Find what is worth keeping in what a user says, without a model.

The user's own words are kept with their date, not a judgement of them: whether they still hold, nobody has said. Only what
names itself (`my phone number is …`) is a fact that the next of its name replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...tools.search.tokenize import query_terms

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_QUESTION = re.compile(r"[?？]\s*$|(?:です|ます|でしょう|ました|ません)か[。.]?\s*$")
_REQUEST = re.compile(
    r"^(?:please|can|could|would|will|what|how|why|when|where|who|which|is|are|do|does|did)\b|ください|下さい", re.I
)
_THANKS = re.compile(r"^(?:thanks?|thank you|great|ok(?:ay)?|hi|hello|ありがとう|助かり|了解|こんにちは|おはよう)", re.I)
_NAMED = (  # what can have only one value at a time, and names itself
    re.compile(
        r"\bmy (?P<about>(?:new |current )?[a-z][a-z ]{1,30}?) (?:is|are|has changed to|will be) (?:now )?(?P<value>.+)", re.I
    ),
    re.compile(r"(?:私の|僕の|わたしの|うちの)(?P<about>[^、。はが]{1,15})[はが](?P<value>.+)"),
)
_FEWEST = 2  # words that say something


class Statement(NamedTuple):
    text: str
    kind: str = "said"
    about: str = ""


def statements(text: str) -> Iterator[Statement]:
    """The sentences that tell something, as one memory, and each that names what it is about by itself."""
    told: list[str] = []
    for sentence in [one.strip() for one in _SENTENCE.split(text)]:
        if _QUESTION.search(sentence) or _THANKS.search(sentence) or not sentence:
            continue
        if named := next((found for pattern in _NAMED if (found := pattern.search(sentence))), None):
            about = re.sub(r"^(?:new|current) ", "", named["about"].strip().casefold())
            yield Statement(sentence, "fact", about)
        elif not _REQUEST.search(sentence):
            told.append(sentence)
    whole = " ".join(told)
    if len(query_terms(whole)) >= _FEWEST:
        yield Statement(whole)
