"""Tell a dialogue from other text: lines that begin with the name of a speaker, of whom several take turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_TIME = r"(?:[\[(]?\d[\d/.:年月日時分 T,-]*(?:[ap]\.?m\.?)?[\])]?[ \t]*(?:[-–][ \t]*)?)?"
_TURN = re.compile(
    rf"[ \t>*_-]*{_TIME}[*_]*(?P<who>[^\W\d_][^\n:：|?？!！。、,;]{{0,39}}?)[*_]*[ \t]*[:：][*_]*(?=[ \t\S])(?!//)"
)
_ASKS = re.compile(r"[?？]|か[。\n]|か$")
_FEWEST, _SPEAKERS = 4, 12


def speaker(line: str) -> str:
    """The name before the colon of a line such as `Mia: See you.` or `[10:03] 健太：うん。`; empty if there is none."""
    found = _TURN.match(line)
    return found["who"].strip().casefold() if found else ""


def is_dialogue(texts: Sequence[str]) -> bool:
    """True if most lines begin with one of a few speakers who take turns, and one of them asks something.

    Records (`Cause: … Action: …`) have labels that come again as well, but they ask nothing."""
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    said = Counter([who for line in lines if (who := speaker(line))])
    regular = {who: count for who, count in said.items() if count > 1}
    turns = sum(regular.values())
    asks = any(_ASKS.search(line) for line in lines if speaker(line) in regular)
    return asks and turns >= _FEWEST and 2 * turns > len(lines) and 1 < len(regular) <= _SPEAKERS


def turns(texts: Sequence[str]) -> list[bool]:
    """Which of these texts are turns of a dialogue: all that begin with a speaker, if together they are one."""
    return [bool(speaker(text)) for text in texts] if is_dialogue(texts) else [False] * len(texts)
