"""Rank chunks for a question: score them by shared words and by meaning, and add both scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dialogue import named_speakers, without_names
from .index import Index

_WORDS_COUNT = 0.3  # what all of a question's words count, where a cosine counts 1; by trial, see benchmarks/README.md
_WORDS_IN_TALK = 0.75  # the same in dialogues: turns are short, and many of them mean something similar
_WORDS_DECIDE = 1.0  # added where one chunk has most of the question's words
_SOME, _MOST = 0.4, 0.8
_BY_WORDS, _BY_MEANING = 50, 150  # chunks that are looked at
_NEARER, _AT_MOST = 0.5, 0.9  # how far a nearer sentence raises its chunk; at most so much of the way to the best one
_SPEAKER = 0.2  # added to turns of the speaker whom the question names
Embed = Callable[[str], Any]
Found = dict[int, float]


def score(index: Index, query: str, vector: Any, embed: Embed) -> tuple[Found, Found]:
    """Score the candidate chunks. Returns their scores, and their cosines.

    Scores are added, not ranks, so that a chance match of a word weighs less than an intended one. The larger the share of the
    question's words in one chunk, the more words count: then the question is phrased like the answer. A sentence that is nearer
    than its chunk raises the chunk, but never above the best one, since a single sentence often only resembles the question.
    A turn of a dialogue is scored together with the turn before it, which it often answers."""
    words = index.by_words(query, _BY_WORDS)
    cosine = index.by_vector(vector, _BY_MEANING, words)
    for number, share in index.word_shares(query, list(cosine)).items():
        words[number] = max(share, words.get(number, 0.0))
    before = index.turns_before(cosine)
    cosine = {number: near for number, near in cosine.items() if number not in before}
    own, meant, spoken = _turns(index, query, vector, embed, before, words) if before else ({}, {}, {})
    words |= spoken
    weight = _weight(words, talk=len(own) > len(cosine))
    scores = {number: near + weight * words.get(number, 0.0) for number, near in (cosine | meant).items()}
    best = max(scores.values(), default=0.0)
    for number, nearer in index.by_sentence(vector, cosine).items():
        raised = _NEARER * max(0.0, nearer - cosine[number])
        scores[number] += min(raised, _AT_MOST * (best - scores[number]))
    return index.drop_copies(scores), cosine | own


def _turns(
    index: Index, query: str, vector: Any, embed: Embed, before: dict[int, int], words: Found
) -> tuple[Found, Found, Found]:
    """Score the turns of dialogues. Returns their own cosines, the cosines of their meaning, and their shares of words.

    The meaning of a turn is its own or that of it with the turn before, whichever is nearer. Speakers' names are removed from
    the question before it is embedded, because otherwise turns that contain little more than a name are nearest; then the
    nearest turns are looked up again. A turn of a named speaker gets `_SPEAKER` added instead."""
    who = index.speakers(before)
    names = named_speakers(query, who.values())
    if names:
        vector = embed(without_names(query, names))
        before = index.turns_before({*words, *index.by_vector(vector, _BY_MEANING)})
        who |= index.speakers(before.keys() - who.keys())
    own, together = index.by_pair(vector, before)
    meant = {number: max(near, together[number]) + _SPEAKER * (who.get(number) in names) for number, near in own.items()}
    return own, meant, index.turn_word_shares(query, before)


def _weight(words: Found, *, talk: bool) -> float:
    """The weight of the question's words relative to a cosine of 1."""
    if talk:
        return _WORDS_IN_TALK
    together = max(words.values(), default=0.0)
    return _WORDS_COUNT + _WORDS_DECIDE * min(1.0, max(0.0, (together - _SOME) / (_MOST - _SOME)))


def rank(scores: Found) -> list[int]:
    """Return the chunks from the best to the worst score."""
    return sorted(scores, key=lambda number: (-scores[number], number))
