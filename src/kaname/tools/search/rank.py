"""Rank chunks for a question: add how near they are in meaning and how many of its words they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dialogue import named_speakers, without_names
from .index import Index

_WORDS = 3.0  # what all of a question's words count where they stand together, if a cosine counts 1
_BEFORE = 0.4  # the part of a turn's meaning and words that is that of the turn before it
_MEANT_AROUND, _WORDS_AROUND = 0.25, 0.5  # the parts of other chunks that are those of their section
_SPEAKER = 0.2  # added to turns of the speaker whom the question names
_LOOKED_AT = 150  # chunks whose sentences are compared
Embed = Callable[[str], Any]
Found = dict[int, float]


def score(index: Index, query: str, vector: Any, embed: Embed) -> tuple[Found, Found]:
    """Score the best chunks. Returns their scores, and their cosines.

    - A score is the cosine with the question plus the share of its words. The larger the share that one chunk has, the more
      all words count: then the question is phrased like the answer.
    - A chunk is scored together with its context: in a dialogue the turn before it, which it often answers, and elsewhere the
      section in which it stands.
    - The sentence of a chunk that is nearest to the question takes the place of half of the chunk's meaning.
    - In dialogues the name of a speaker does not count as meaning, because otherwise turns that contain little more than a
      name are nearest. The turns of this speaker get `_SPEAKER` added.

    The numbers were chosen on the tuned halves in benchmarks/README.md."""
    names = named_speakers(query, index.speakers())
    of_turns = embed(without_names(query, names)) if names else vector
    with index.comparing() as some:
        if not some:
            return {}, {}
        cosines, words = index.cosines(vector, of_turns), index.words(query)
        scores = index.in_context(cosines, _MEANT_AROUND, _BEFORE)
        scores += _WORDS * words.max() ** 2 * index.in_context(words, _WORDS_AROUND, _BEFORE)
        scores[index.spoken_by(names)] += _SPEAKER
        found = index.largest(scores, _LOOKED_AT)
        similar = index.of(cosines, found)
        for number, nearer in index.by_sentence(vector, found).items():
            found[number] += nearer - similar[number]
        return index.drop_copies(found), similar


def rank(scores: Found) -> list[int]:
    """Return the chunks from the best to the worst score."""
    return sorted(scores, key=lambda number: (-scores[number], number))
