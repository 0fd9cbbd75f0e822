"""Recognize dialogues: texts in which most lines begin with the name of a speaker, and several speakers take turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from .tokenize import query_terms

_TIME = r"(?:[\[(]?\d[\d/.:年月日時分 T,-]*(?:[ap]\.?m\.?)?[\])]?[ \t]*(?:[-–][ \t]*)?)?"
_TURN = re.compile(
    rf"[ \t>*_-]*{_TIME}[*_]*(?P<who>[^\W\d_][^\n:：|?？!！。、,;]{{0,39}}?)[*_]*[ \t]*[:：][*_]*(?=[ \t\S])(?!//)"
)
_ASKS = re.compile(r"[?？]|か[。\n]|か$")
_FEWEST, _SPEAKERS = 4, 12
_LETTER, _KANJI = r"[^\W_\u3040-\u30ff\u3400-\u9fff]", r"[\u3400-\u9fff々]"


def speaker(line: str) -> str:
    """The name before the colon of a line such as `Mia: See you.` or `[10:03] 健太：うん。`; "" for other lines."""
    match = _TURN.match(line)
    return match["who"].strip().casefold() if match else ""


def is_dialogue(texts: Sequence[str]) -> bool:
    """Return True if most lines begin with one of a few speakers who take turns, and one of them asks something.

    Records (`Cause: … Action: …`) also repeat their labels, but they contain no question."""
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    said = Counter([who for line in lines if (who := speaker(line))])
    regular = {who: count for who, count in said.items() if count > 1}
    turns = sum(regular.values())
    asks = any(_ASKS.search(line) for line in lines if speaker(line) in regular)
    return asks and turns >= _FEWEST and 2 * turns > len(lines) and 1 < len(regular) <= _SPEAKERS


def turns(texts: Sequence[str]) -> list[bool]:
    """Mark the texts that are turns of a dialogue: all that begin with a speaker, if the texts together are a dialogue."""
    return [bool(speaker(text)) for text in texts] if is_dialogue(texts) else [False] * len(texts)


def named_speakers(question: str, speakers: Iterable[str]) -> set[str]:
    """Return those of the speakers that the question names."""
    return {who for who in set(speakers) if who and _name_pattern(who).search(question)}


def without_names(question: str, names: Iterable[str]) -> str:
    """Remove these names from the question. Return it unchanged if no other word would be left."""
    left = question
    for who in names:
        left = _name_pattern(who).sub(" ", left)
    return " ".join(left.split()) if re.search(r"\w", left) else question


@lru_cache(4_096)
def _name_pattern(who: str) -> re.Pattern[str]:
    """Compile a pattern for a name or for its first word, since `Mia` stands for `Mia Tanaka`.

    It does not match within a longer word. A name of a single kanji does not match next to another kanji."""
    first = who.split()[0]
    forms = [who, first] if query_terms(first) else [who]
    beside = f"(?:{_LETTER}|{_KANJI})" if len(forms[-1]) == 1 else _LETTER
    either = "|".join(map(re.escape, forms))
    return re.compile(rf"(?<!{beside})(?:{either})(?!{beside})(?:['’]s(?!{_LETTER}))?", re.IGNORECASE)
