"""Find what is worth keeping in what a user says, and what he wants forgotten, without a model.

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

# The clauses of a sentence: cut at commas and dashes, and after the Japanese particles that join two clauses.
_JOINED = "|".join([rf"(?<=[ただいるすんう]{particle})" for particle in ("ので", "から", "けど", "が")])
_CLAUSE = re.compile(rf"\s*[,;、，；]\s*|\s+[-–—]+\s+|(?:{_JOINED})(?!す)")
_ASKING = (  # a clause that begins so asks, or supposes
    "can could would will shall should may might must do does did is are was were am have has had "
    "what who whom whose which when where why how if unless whether suppose please"
)
_ASKS_FIRST = re.compile(rf"(?:(?:and|but|so|then|or)\s+)?(?:{'|'.join(_ASKING.split())})(?:n['’]?t)?\b", re.I)
_TELLS = re.compile(  # it has a subject of its own or a verb that is no question
    r"\b(?:i|we|he|she|they|my|our|his|her|their|is|are|was|were|has|have|had|will)\b|\b(?:i|we|he|she|they|it)['’]", re.I
)
_TELLS_JA = re.compile(
    r"(?:[ただいるすんう](?:ので|から|けど|けれども?|が|し)|[っいしえきぎ]て|んで|ました|です|ます|った|した)$"
)
_SUPPOSES_JA = re.compile(r"^もし|(?:たら|だら|れば|なら|ても|でも)$")

# "Forget …" as a request: not "I forget …", "don't forget …", 忘れてしまった, 忘れないで.
_POLITE = r"(?:(?:please|kindly|just|now|also|and|but|so|then|ok|okay|oh)[\s,]+)*"
_YOU = (
    r"(?:(?:can|could|would|will)\s+you\s+|i(?:\s+want|\s+need|\s+would\s+like|['’]d\s+like)\s+you\s+to\s+|"
    r"you\s+(?:can|should|may)\s+)?"
)
_ABOUT = r"\s+(?:(?:about|that|what|everything|anything|i\s+(?:said|told\s+you|mentioned))\s+)*(?P<what>.*)$"
_MEMORY = r"(?=.*\b(?:memory|memories|remember(?:ed)?)\b)"
_FORGET = re.compile(rf"^{_POLITE}{_YOU}{_POLITE}(?:forget\b(?![-'’])|(?:delete|remove|erase)\b{_MEMORY}){_ABOUT}", re.I | re.S)
_NOT_KEEP = re.compile(
    rf"^{_POLITE}{_YOU}{_POLITE}(?:do\s+not|don['’]?t|never|stop)\s+(?:remember|memori[sz]|"
    r"(?:stor|sav|keep|record)(?=\w*\s+(?:this|that|it|my|our|what)\b))",
    re.I,
)
_FORGET_JA = re.compile(
    r"^(?P<what>.+?)(?:という(?:こと|の)|って(?:こと|いうの)|のこと|こと|の)?[はをも]?、?(?:もう|全部|すべて|ぜんぶ)?"
    r"(?:忘れて(?:ください|下さい|ほしい|欲しい|もらえ|くれ|いい|ね|よ|[。!！]|$)|(?:記憶|メモリー?)から(?:消し|削除し|除い)て)",
    re.S,
)
_NOT_KEEP_JA = re.compile(r"(?:覚え|記憶し|記録し|保存し)(?:なくて|ないで)")
_FROM_MEMORY = re.compile(r"\s+(?:from|in|out of)\s+(?:your\s+|the\s+)?memor(?:y|ies)\b.*$|[\s.!?。！？]+$", re.I)
_MINE = re.compile(r"\b(?:my|our|mine)\b", re.I)


def statements(text: str) -> list[str]:
    """The sentences that tell something, and not those that only ask, thank, or want something forgotten: a few of them a
    memory, so that each is found by what it says. Of a question that tells something as well, that part is kept."""
    told = [part[:_LONGEST] for one in _sentences(text) for part in _told(one)]
    kept: list[str] = []
    for sentence in told:
        if kept and len(kept[-1]) + len(sentence) < _TOGETHER:
            kept[-1] += f" {sentence}"
        else:
            kept.append(sentence)
    return [one for one in kept if len(query_terms(one)) >= _FEWEST]


def unwanted(text: str) -> list[str]:
    """What the user wants forgotten, one entry for each sentence that asks for it: `my PIN is 4711`.

    A single word is meant only if it is the user's own (`my PIN`): "forget York" is more often a figure of speech."""
    found = [clause for one in _sentences(text) for clause in _forgetting(one)[:1]]
    return [one for one in found if len(query_terms(one)) > 1 or _MINE.search(one)]


def without_unwanted(text: str) -> str:
    """The text without the sentences that want something forgotten or not kept; what they state besides stays."""
    kept = [part for one in _sentences(text) for part in (_besides(one) if _is_unwanted(one) else [one])]
    return " ".join(kept)


def _sentences(text: str) -> list[str]:
    return [one for part in _SENTENCE.split(text) if (one := part.strip())]


def _told(sentence: str) -> list[str]:
    if _THANKS.search(sentence):
        return []
    if _is_unwanted(sentence):
        return _besides(sentence)
    return _stated(_clauses(sentence)) if _QUESTION.search(sentence) else [sentence]


def _clauses(sentence: str) -> list[str]:
    return [one.strip() for one in _CLAUSE.split(sentence) if one and one.strip()]


def _stated(clauses: list[str]) -> list[str]:
    told = [one for one in clauses if _tells(one)]
    return [(", " if told[0].isascii() else "、").join(told)] if told else []


def _tells(clause: str) -> bool:
    """True if a part of a sentence states something: it neither asks nor supposes."""
    if _QUESTION.search(clause) or len(query_terms(clause)) < _FEWEST:
        return False
    if _TELLS_JA.search(clause):
        return not _SUPPOSES_JA.search(clause)
    return bool(_TELLS.search(clause)) and not _ASKS_FIRST.match(clause)


def _is_unwanted(sentence: str) -> bool:
    return bool(_forgetting(sentence) or _NOT_KEEP.search(sentence) or _NOT_KEEP_JA.search(sentence))


def _forgetting(sentence: str) -> list[str]:
    """What a sentence wants forgotten, and the clauses after it; empty if it is no such request."""
    found = _FORGET.match(sentence) or _FORGET_JA.match(sentence)
    return [_FROM_MEMORY.sub("", one).strip() for one in _clauses(found["what"])] if found else []


def _besides(sentence: str) -> list[str]:
    """What a request to forget states besides: "Forget my old number, I have a new one"."""
    return _stated([one for one in _forgetting(sentence)[1:] if one]) if _FORGET.match(sentence) else []
