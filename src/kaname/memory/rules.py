"""Find what is worth keeping in what a user says, and leave out what is to be forgotten, without a model.

The user's own words are kept with their date, not a judgement of them: whether they still hold, nobody has said.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..core.sentences import split_sentences
from ..tools.search.tokenize import query_terms
from .forgetting import request_in, without, words_to_forget

_QUESTION = re.compile(r"[?？]\s*$|(?:です|ます|でしょう|ました|ません)か[。.]?\s*$")
_THANKS = re.compile(r"^(?:thanks\b|thank you\b|ありがとう|助かり)", re.I)
_FEWEST = 2  # words that say something
_TOGETHER, _LONGEST = 200, 1_000  # characters

# The clauses of a sentence: cut at commas and dashes, before the conjunction of a clause with a subject of its own, before "so"
# with a question, and after the Japanese particles that join two clauses.
_REASON = r"(?:since|because|as)\s+(?:i|we|he|she|they|my|our|his|her|their)\b"
_SO = r"so\s+(?:what|who|which|when|where|why|how|can|could|should|would|will|do|does|is|are)\b"
_REASONS = re.compile(_REASON, re.I)
_JOINED = "|".join([rf"(?<=[ただいるすんうな]{particle})" for particle in ("ので", "から", "けど", "が")])
_CLAUSE = re.compile(rf"\s*[,;、，；]\s*|\s+[-–—]+\s+|\s+(?={_REASON}|{_SO})|(?:{_JOINED})(?!す)", re.I)
_ASKING = (  # a clause that begins so asks, or supposes
    "can could would will shall should may might must do does did is are was were am have has had "
    "what who whom whose which when where why how if unless whether suppose please"
)
_ASKS_FIRST = re.compile(rf"(?:(?:and|but|so|then|or)\s+)?(?:{'|'.join(_ASKING.split())})(?:n['’]?t)?\b", re.I)
_TELLS = re.compile(  # it has a subject of its own or a verb that is no question
    r"\b(?:i|we|he|she|they|my|our|his|her|their|is|are|was|were|has|have|had|will)\b|\b(?:i|we|he|she|they|it)['’]", re.I
)
_TELLS_JA = re.compile(
    r"(?:[ただいるすんうな](?:ので|から|けど|けれども?|が|し)|[っいしえきぎ]て|んで|ました|です|ます|った|した)$"
)
_SUPPOSES_JA = re.compile(r"^もし|(?:たら|だら|れば|なら|ても|でも)$")

# An order says nothing of the user: a verb with its object ("Write a letter"), or a sentence that ends in 〜て, 〜てください.
# An order to keep something, or one that is to hold from now on, does.
_ORDERS = re.compile(
    r"(?:(?:please|just|now|then|also|and|so|but|ok|okay|kindly)[\s,]+)*(?P<verb>[a-z]+)\s+(?:up\s+|out\s+|down\s+)?"
    r"(?:an?|the|this|these|those|my|our|me|us|it|them|him|some|any|something|how|what|why|who|where|all)\b",
    re.I,
)
_NO_VERB = (  # words that stand there without being a verb: of the closed classes, of time, and of the past
    "i we you he she it they this that these those there here my our your his her its their the a an all both each every some "
    "any no not in on at by for from to of with without about after before since until during over under between near via per "
    "as if when while because although though unless whether where what who why how which than like and or but so yet nor then "
    "is are was were am be has have had do does did will would can could shall should may might must let "
    "today yesterday tomorrow tonight now once twice again also always never often sometimes usually still already soon later "
    "only just even maybe perhaps almost half such except besides despite regarding yes ok well oh "
    "got bought lost met went sold made took gave found left saw ate wrote said told came need"
)
_FINITE = re.compile(r"\b(?:is|are|was|were|am|has|have|had|will)\b|['’](?:s|m|re|ll|ve)\b", re.I)
_ORDERS_JA = re.compile(
    r"(?:(?<!く)(?<!て)(?<!でし)(?<!まし)(?<!ちゃっ)(?<!じゃっ)(?<!だっ)て|んで|いで)(?:ね|よ|ください(?:ませ)?|下さい|くれ|ちょうだい|頂戴|ほしい(?:です)?|欲しい(?:です)?)?[。.!！\s]*$"
    r"|[おご]\w+ください[。.!！\s]*$"
)
_KEEPS = re.compile(
    r"\b(?:remember|remind|note|keep|forget|always|never|from\s+now\s+on|in\s+future)\b|覚えて|メモして|記録して|忘れない|いつも|常に|今後|これから",
    re.I,
)
_ENDED = re.compile(r"[.!?…。！？]$")


class Heard(NamedTuple):
    """Contents of a message.

    `kept`: the sentences that may be kept. `unwanted`: what is to be forgotten. `means_message_before`: a request to forget
    names nothing and follows nothing. `doubtful`: sentences that may be requests to forget in other words.
    """

    kept: list[str]
    unwanted: list[str]
    means_message_before: bool
    doubtful: list[str]


def _names_something(sentence: str) -> bool:
    return _states(sentence) and len(query_terms(sentence)) >= _FEWEST


def hear(text: str) -> Heard:
    """Read a message: a request to forget is never kept, nor is what it means in the same message."""
    kept, gone, doubtful = list[str](), list[str](), list[str]()
    sentences, before = split_sentences(text), False
    for place, sentence in enumerate(sentences):
        request = request_in(sentence)
        if request is None:
            kept.append(sentence)
            continue
        gone += request.about
        doubtful += [sentence] if request.is_doubtful else []
        if request.bare:
            meant = [one for one in _clauses(request.before) if _tells(one)]
            if not meant:  # what was said before
                meant, kept = [one for one in kept if _names_something(one)], []
            gone += meant
            if not meant and request.ahead and sentences[place + 1 :]:
                return Heard([], gone, False, [])
            before = before or not meant
    for about in gone:
        kept = without(kept, words_to_forget(about))
    return Heard(kept, gone, before, doubtful)


def statements(text: str) -> list[str]:
    """Return the sentences that tell something, and not those that only ask, order, thank, or want something forgotten: a few
    of them a memory, so that each is found by what it says. A question or an order that tells something as well is kept whole,
    as the user said it."""
    parts = [one[:_LONGEST] for one in hear(text).kept if _states(one)]
    kept: list[str] = []
    for sentence in parts:
        if kept and len(kept[-1]) + len(sentence) < _TOGETHER:
            end = "" if _ENDED.search(kept[-1]) else "." if kept[-1].isascii() else "。"
            kept[-1] += f"{end} {sentence}"
        else:
            kept.append(sentence)
    return [one for one in kept if len(query_terms(one)) >= _FEWEST]


def told_in(text: str) -> str:
    """Return the statements of a text, without the parts of its sentences that ask. The search index contains these."""
    return " ".join([_told(one) for one in split_sentences(text)])


def _told(sentence: str) -> str:
    parts = [one for one in _clauses(sentence) if _tells(one)] if _QUESTION.search(sentence) else []
    return (", " if sentence.isascii() else "、").join(parts) or sentence


def _states(sentence: str) -> bool:
    """True if a sentence tells something, whatever it asks or orders besides."""
    if _THANKS.search(sentence):
        return False
    first, *more = clauses = _clauses(sentence)
    if _QUESTION.search(sentence):
        return any(map(_tells, clauses))
    if _KEEPS.search(sentence):
        return True
    if _ORDERS_JA.search(sentence):
        return any(map(_tells, clauses[:-1]))
    return not _orders(first) or any(map(_has_subject, more))


def _clauses(sentence: str) -> list[str]:
    """Cut a sentence into its clauses. The mark of the question belongs to the clause that asks, not to its reason."""
    found = [one.strip() for one in _CLAUSE.split(sentence) if one and one.strip()]
    return [one.rstrip(" ?？") if len(found) > 1 and _REASONS.match(one) else one for one in found]


def _orders(clause: str) -> bool:
    """True if an English clause begins with a verb in its base form."""
    match = _ORDERS.match(clause)
    verb = match["verb"].casefold() if match and not _FINITE.search(clause) else "the"
    return verb not in _NO_VERB.split() and not re.search(r"ly$|\w{3}(?:ing|ed)$", verb)


def _tells(clause: str) -> bool:
    """True if a part of a sentence states something: it neither asks nor supposes."""
    if _QUESTION.search(clause) or len(query_terms(clause)) < _FEWEST:
        return False
    if _TELLS_JA.search(clause):
        return not _SUPPOSES_JA.search(clause)
    return _has_subject(clause)


def _has_subject(clause: str) -> bool:
    return bool(_TELLS.search(clause)) and not _ASKS_FIRST.match(clause) and not _orders(clause)
