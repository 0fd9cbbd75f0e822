"""The searchable index: one SQLite file with chunks, their words (FTS5) and their vectors, which are compared in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from .dialogue import speaker
from .sentences import best, cosines_of_sums
from .store import FileRow as FileRow
from .store import IndexStore
from .store import StoredChunk as StoredChunk
from .store import Vectors as Vectors
from .tokenize import query_terms

_MOST_TERMS = 12
_MOST_LOOKED_UP = 64  # words of a question
_MOST_ABSENT = 6  # of its words that do not occur; by trial with the questions of tests/corpora
_MOST_PLACES = 8_000  # occurrences of all of them together
_MOST_CONTAINING = 200  # chunks
_ELSEWHERE, _FEW = 0.05, 3  # a typical cosine of a question with a sentence, and the number of chunks it weighs as much as
_UNRELATED = 0.08  # the cosine that a question has on average with sentences that it has nothing to do with, at most
_BEFORE = 0.7  # what a word of the turn before counts; by trial, see benchmarks/README.md
_TOO_COMMON = 0.1  # of all chunks: a word that says nothing


class Index(IndexStore):
    """An index that can be searched: by words, by the meaning of chunks, and by the meaning of their sentences."""

    _TURNS = (  # the turn before another is the chunk before it in the same file
        "SELECT c.id, ifnull(p.id, 0) FROM chunks c LEFT JOIN chunks p ON p.file = c.file AND p.number = c.number - 1 "
        "AND p.turn AND p.heading = c.heading WHERE c.turn AND (c.id IN ({marks}) OR c.id IN "
        "(SELECT c.id FROM chunks p JOIN chunks c ON c.file = p.file AND c.number = p.number + 1 "
        "WHERE p.turn AND p.id IN ({marks})))"
    )

    def by_words(self, query: str, most: int) -> dict[int, float]:
        """Return the best chunks by BM25, each with its share of the question's words, at most 1. Rare words count more.

        For a long question only the rarest words are looked up; words that occur almost everywhere are left out."""
        with self._read_lock():
            weighed, absent = self._weigh_terms(query)
            rare, _ = self._rarest(weighed)
            if not rare:
                return {}
            wanted = " OR ".join([f'"{term}"' for term, _ in rare])
            whole = sum([weight for _, weight in rare]) + absent
            rows = self._db.execute(
                "SELECT rowid, bm25(words) FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (wanted, most)
            )
            return {number: min(1.0, -score / whole) for number, score in rows}

    def word_shares(self, query: str, numbers: Iterable[int]) -> dict[int, float]:
        """Return each chunk's share of the question's words; {} if none of the words is too common to be looked up."""
        with self._read_lock():
            weighed, _ = self._weigh_terms(query)
            if not self._rarest(weighed)[1]:
                return {}
            weights = {term: weight for _, term, weight in weighed}
            whole = sum(weights.values())
            held = self._terms(numbers)
            return {
                number: sum([weight for term, weight in weights.items() if term in held.get(number, ())]) / whole
                for number in numbers
            }

    def turn_word_shares(self, query: str, before: Mapping[int, int]) -> dict[int, float]:
        """Return each turn's share of the question's words. Words that only the turn before it has count as well, but less."""
        with self._read_lock():
            weighed, absent = self._weigh_terms(query)
            weights = {term: weight for _, term, weight in weighed}
            whole = sum(weights.values()) + absent
            held = self._terms({*before, *before.values()})
        usual = sum(map(len, held.values())) / max(1, len(held))
        found = {}
        for number, earlier in before.items() if whole else ():
            own, other = held.get(number, []), held.get(earlier, [])
            mine, others = ({term for term in weights if term in terms_} for terms_ in (own, other))
            share = _length_factor(own, usual) * sum([weights[term] for term in mine])
            share += _BEFORE * _length_factor(other, usual) * sum([weights[term] for term in others - mine])
            found[number] = min(1.0, share / whole)
        return found

    def sharing_words_with(self, text: str) -> dict[int, float]:
        """Return the chunks that share words with a text, each with its share of the text's words. Rare words count more."""
        with self._read_lock():
            weighed, absent = self._weigh_terms(text)
            weights = {term: weight for _, term, weight in weighed}
            held = self._terms(self.by_words(text, _MOST_CONTAINING))
        whole = sum(weights.values()) + absent
        return {
            number: sum([weight for term, weight in weights.items() if term in own]) / whole for number, own in held.items()
        }

    def usual(self, vector: Any) -> float:
        """Return the average cosine of a question with the chunks, moved towards a typical value if there are few chunks.

        The result is capped at the value for unrelated texts, because all chunks may be about the subject of the question."""
        import numpy

        with self._read_lock():
            self._load()
            if self._matrix is None:
                return _ELSEWHERE
            if self._middle is None:
                self._middle = self._matrix.mean(axis=0)
            own, count = float(self._middle @ numpy.asarray(vector, dtype=numpy.float32)), len(self._matrix)
        return min(_UNRELATED, (own * count + _ELSEWHERE * _FEW) / (count + _FEW))

    def _terms(self, numbers: Iterable[int]) -> dict[int, list[str]]:
        wanted = tuple(numbers)
        marks = ",".join("?" * len(wanted))
        rows = self._db.execute(f"SELECT rowid, terms FROM words WHERE rowid IN ({marks})", wanted)
        return {number: found.split() for number, found in rows}

    def _weigh_terms(self, query: str) -> tuple[list[tuple[int, str, float]], float]:
        """Return the question's words that occur in the index, rarest first, and the total weight of those that do not.

        Each word comes with its number of chunks and its weight (inverse document frequency). Of very many words, those with
        digits and then the first ones are taken. Absent words count, so that one word shared by chance is not taken for the
        whole question; they do not count if a word with a digit occurs, since such a code is not found by chance."""
        wanted = sorted(query_terms(query), key=lambda term: not _has_digit(term))[:_MOST_LOOKED_UP]
        version = self._meta("version")
        if version != self._counted:
            self._counts, self._counted, self._size = {}, version, len(self)
        for term in wanted:
            if term not in self._counts:
                row = self._db.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
                self._counts[term] = row[0] if row else 0
        present = sorted([(self._counts[term], term) for term in wanted if self._counts[term]])
        absent = 0 if any(_has_digit(term) for _, term in present) else min(len(wanted) - len(present), _MOST_ABSENT)
        return [(count, term, self._weight(count)) for count, term in present], absent * self._weight(0)

    def _weight(self, count: int) -> float:
        return math.log((self._size - count + 0.5) / (count + 0.5) + 1.0)

    def _rarest(self, weighed: list[tuple[int, str, float]]) -> tuple[list[tuple[str, float]], bool]:
        """Return as many words as can be looked up quickly, and True if others occur in too many places."""
        common = max(20, self._size * _TOO_COMMON)
        kept: list[tuple[str, float]] = []
        places = 0
        for count, term, weight in weighed[:_MOST_TERMS]:
            places += count
            if places > _MOST_PLACES:
                return kept, True
            if len(kept) > 1 and count > common:
                break
            kept.append((term, weight))
        return kept, False

    def by_vector(self, vector: Any, most: int, also: Iterable[int] = ()) -> dict[int, float]:
        """Return the nearest chunks, and the chunks in `also`, with their cosines."""
        import numpy

        with self._read_lock():
            self._load()
            if self._matrix is None:
                return {}
            self._check_length([vector])
            scores = self._matrix @ numpy.asarray(vector, dtype=numpy.float32)
            most = min(most, len(scores))
            best = [int(place) for place in numpy.argpartition(-scores, most - 1)[:most]]
            best += [place for place in numpy.searchsorted(self._ids, list(also)).tolist() if place < len(scores)]
            return {int(self._ids[place]): float(scores[place]) for place in best}

    def drop_copies(self, scores: dict[int, float]) -> dict[int, float]:
        """Keep only the best of the chunks that have the same text under the same heading of a file."""
        with self._read_lock():
            marks = ",".join("?" * len(scores))
            rows = self._db.execute(f"SELECT id, file, heading, text FROM chunks WHERE id IN ({marks})", tuple(scores))
            first: dict[tuple[Any, ...], int] = {}
            for number, *text in sorted(rows, key=lambda row: (-scores[row[0]], row[0])):
                first.setdefault(tuple(text), number)
            return {number: scores[number] for number in first.values()}

    def by_sentence(self, vector: Any, numbers: Iterable[int]) -> dict[int, float]:
        """Return the cosine of each chunk that has several sentences, combined with its nearest sentence."""
        if not self._complete:
            return {}
        with self._read_lock():
            self._load()
            if self._matrix is None:
                return {}
            wanted = tuple(numbers)
            marks = ",".join("?" * len(wanted))
            rows = self._db.execute(f"SELECT id, sentences FROM chunks WHERE id IN ({marks}) AND length(sentences)", wanted)
            held = dict(rows.fetchall())
            return dict(zip(held, best(list(held.values()), self._vectors(held), vector), strict=True))

    def turns_before(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return the turns of dialogues among these chunks and their successors, each with the turn before it, or 0."""
        if not self._complete:
            return {}
        with self._read_lock():
            wanted = tuple(numbers)
            marks = ",".join("?" * len(wanted))
            return dict(self._db.execute(self._TURNS.format(marks=marks), wanted * 2).fetchall())

    def speakers(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return the speaker of each of these turns, in the form of `speaker`."""
        with self._read_lock():
            wanted = tuple(numbers)
            marks = ",".join("?" * len(wanted))
            rows = self._db.execute(f"SELECT id, text FROM chunks WHERE id IN ({marks})", wanted)
            return {number: speaker(text) for number, text in rows}

    def by_pair(self, vector: Any, before: Mapping[int, int]) -> tuple[dict[int, float], dict[int, float]]:
        """Return the cosines of turns by themselves, and of each combined with the turn before it, if any."""
        with self._read_lock():
            self._load()
            if self._matrix is None:
                return {}, {}
            rows, earlier = self._vectors(before), self._vectors([one or number for number, one in before.items()])
        own, both = (cosines_of_sums(rows, other, vector).tolist() for other in (rows, earlier))
        return dict(zip(before, own, strict=True)), dict(zip(before, both, strict=True))

    def _vectors(self, numbers: Iterable[int]) -> Any:
        """Return the vectors of these chunks from memory, one row each."""
        import numpy

        return self._matrix[numpy.minimum(numpy.searchsorted(self._ids, list(numbers)), len(self._ids) - 1)]

    def _load(self) -> None:
        """Load all vectors into memory. If the file has changed, load the new ones, or all again if some were removed."""
        if self._matrix is not None and self._meta("version") == self._seen:
            return
        self._db.execute("BEGIN")  # what others write meanwhile is for the next time
        try:
            version, removed = self._meta("version"), self._meta("removed")
            if removed != self._removed:
                self._matrix = self._ids = None
            self._read_new()
            self._seen, self._removed = version, removed
        finally:
            self._db.execute("COMMIT")

    def _read_new(self) -> None:
        import numpy

        known, ids = (0, []) if self._matrix is None else (int(self._ids[-1]), self._ids.tolist())
        new, size = self._db.execute("SELECT count(*), length(vector) / 2 FROM chunks WHERE id > ?", (known,)).fetchone()
        if not new:
            return
        whole = numpy.empty((len(ids) + new, size), dtype=numpy.float32)
        if ids:
            whole[: len(ids)] = self._matrix
        for number, vector in self._db.execute("SELECT id, vector FROM chunks WHERE id > ? ORDER BY id", (known,)):
            whole[len(ids)] = numpy.frombuffer(vector, dtype=numpy.float16)
            ids.append(number)
        self._matrix, self._ids, self._middle = whole, numpy.asarray(ids), None


def _length_factor(found: list[str], usual: float) -> float:
    """Return BM25's factor for the length of a text: 1 for the usual length, lower for longer texts."""
    return 2.2 / (1 + 1.2 * (0.25 + 0.75 * len(found) / usual)) if found else 0.0


def _has_digit(term: str) -> bool:
    return any(map(str.isdigit, term))
