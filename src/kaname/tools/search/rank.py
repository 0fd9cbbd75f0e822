"""Rank chunks for a question: words and meaning are looked up side by side, and their scores are fused."""

from __future__ import annotations

from typing import NamedTuple

from .index import Index

_WORDS_COUNT = 0.25  # beside a cosine; by trial, see benchmarks/README.md
_WORDS_IN_TALK = 1.0  # in dialogues: turns are short, and much that is said means something alike
_WORDS_DECIDE = 1.0  # more, where some chunk has most of the question's words
_SOME, _MOST = 0.4, 0.8
_BY_WORDS, _BY_MEANING = 50, 150  # chunks that are looked at
_NEARER = 0.4  # how far a nearer sentence takes its chunk with it
_EARLIER = 0.5  # and how far the turn before takes the one that answers it


class Scores(NamedTuple):
    """By chunk: the fused `score`, its parts `meaning` (the raised cosine) and `words` (how much of the question it has), and
    the chunk's own `cosine`."""

    score: dict[int, float]
    cosine: dict[int, float]
    meaning: dict[int, float]
    words: dict[int, float]


def score(index: Index, query: str, vector: object) -> Scores:
    """Score the chunks that come into question.

    Scores are added, not ranks: a word that is found by chance must not weigh as much as one that is meant. The more of the
    question's words stand together somewhere, the more words count: then the question is put in the words of the answer, and
    what only means something like it is beside the point. A sentence that is nearer than its chunk raises it. A turn of a
    dialogue is scored together with the one before it, which often has the words that it answers to."""
    words = index.by_words(query, _BY_WORDS)
    cosine = index.by_vector(vector, _BY_MEANING, words)
    before = index.turns_before(cosine)
    if before:
        cosine |= index.by_vector(vector, 1, {number for number in (*before, *before.values()) if number})
    for number, share in index.having(query, list(cosine)).items():
        words[number] = max(share, words.get(number, 0.0))
    words |= index.spoken(query, before)
    meaning = dict(cosine)
    for number, nearest in index.by_sentence(vector, cosine).items():
        meaning[number] += _NEARER * max(0.0, nearest - meaning[number])
    own = dict(meaning)
    for number, earlier in before.items():
        meaning[number] += _EARLIER * max(0.0, own.get(earlier, -1.0) - own[number])
    weight = _weight(words, talk=2 * len(before) > len(cosine))
    fused = index.once({number: near + weight * words.get(number, 0.0) for number, near in meaning.items()})
    return Scores(fused, cosine, meaning, words)


def _weight(words: dict[int, float], *, talk: bool) -> float:
    """What all of a question's words count beside a cosine of 1."""
    if talk:
        return _WORDS_IN_TALK
    together = max(words.values(), default=0.0)
    return _WORDS_COUNT + _WORDS_DECIDE * min(1.0, max(0.0, (together - _SOME) / (_MOST - _SOME)))


def ranked(scores: dict[int, float]) -> list[int]:
    return sorted(scores, key=lambda number: (-scores[number], number))
