"""The index: one SQLite file with the chunks, their words (FTS5) and their vectors. Vectors are compared exactly, in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from .sentences import best
from .store import FileRow as FileRow
from .store import IndexStore
from .store import Stored as Stored
from .store import Vectors as Vectors
from .tokenize import query_terms

_MOST_TERMS = 12
_MOST_LOOKED_UP = 64  # words of a question
_MOST_ABSENT = 6  # of its words that stand nowhere; by trial with the questions of tests/corpora
_MOST_PLACES = 8_000  # where all of them stand, taken together
_MOST_CONTAINING = 200  # chunks
_ELSEWHERE, _FEW = 0.05, 3  # a usual cosine of a question with a sentence, and of how many chunks it stands for
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
        """The best by BM25, each with how much of the question it has: 1 for all of its words, the rare ones counting more.

        Of a long question the rarest words are looked up; those that stand everywhere are left out."""
        with self._reading():
            weighed, absent = self._weighed(query)
            rare, _ = self._rarest(weighed)
            if not rare:
                return {}
            wanted = " OR ".join([f'"{term}"' for term, _ in rare])
            whole = sum([weight for _, weight in rare]) + absent
            rows = self._db.execute(
                "SELECT rowid, bm25(words) FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (wanted, most)
            )
            return {number: min(1.0, -score / whole) for number, score in rows}

    def having(self, query: str, numbers: Iterable[int]) -> dict[int, float]:
        """How much of the question each of these chunks has, if some of its words stand in too many places to look them up."""
        with self._reading():
            weighed, _ = self._weighed(query)
            if not self._rarest(weighed)[1]:
                return {}
            weights = {term: weight for _, term, weight in weighed}
            whole = sum(weights.values())
            held = self._terms(numbers)
            return {
                number: sum([weight for term, weight in weights.items() if term in held.get(number, ())]) / whole
                for number in numbers
            }

    def spoken(self, query: str, before: Mapping[int, int]) -> dict[int, float]:
        """How much of the question each of these turns has; what only the turn before it has counts too, but less."""
        with self._reading():
            weighed, absent = self._weighed(query)
            weights = {term: weight for _, term, weight in weighed}
            whole = sum(weights.values()) + absent
            held = self._terms({*before, *before.values()})
        usual = sum(map(len, held.values())) / max(1, len(held))
        found = {}
        for number, earlier in before.items() if whole else ():
            own, other = held.get(number, []), held.get(earlier, [])
            mine, others = ({term for term in weights if term in terms_} for terms_ in (own, other))
            share = _normal(own, usual) * sum([weights[term] for term in mine])
            share += _BEFORE * _normal(other, usual) * sum([weights[term] for term in others - mine])
            found[number] = min(1.0, share / whole)
        return found

    def containing(self, text: str) -> dict[int, float]:
        """How much of a text's words each chunk has that shares one of them, the rare ones counting more."""
        with self._reading():
            weighed, absent = self._weighed(text)
            weights = {term: weight for _, term, weight in weighed}
            held = self._terms(self.by_words(text, _MOST_CONTAINING))
        whole = sum(weights.values()) + absent
        return {
            number: sum([weight for term, weight in weights.items() if term in own]) / whole for number, own in held.items()
        }

    def usual(self, vector: Any) -> float:
        """The cosine that a question has with the chunks on average; of few chunks, nearer to what is usual elsewhere.

        Where all chunks are about what is asked, it says nothing: it is never more than what unrelated texts have."""
        import numpy

        with self._reading():
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

    def _weighed(self, query: str) -> tuple[list[tuple[int, str, float]], float]:
        """The question's words that stand somewhere: in how many chunks, and the weight (inverse document frequency).

        Rarest first. Of very many, those with digits and then the first ones. Beside them the weight of words that stand
        nowhere: without them a word that is shared by chance would count as all of the question. A code is no chance."""
        wanted = sorted(query_terms(query), key=lambda term: not _coded(term))[:_MOST_LOOKED_UP]
        version = self._meta("version")
        if version != self._counted:
            self._counts, self._counted, self._size = {}, version, len(self)
        for term in wanted:
            if term not in self._counts:
                row = self._db.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
                self._counts[term] = row[0] if row else 0
        present = sorted([(self._counts[term], term) for term in wanted if self._counts[term]])
        absent = 0 if any(_coded(term) for _, term in present) else min(len(wanted) - len(present), _MOST_ABSENT)
        return [(count, term, self._weight(count)) for count, term in present], absent * self._weight(0)

    def _weight(self, count: int) -> float:
        return math.log((self._size - count + 0.5) / (count + 0.5) + 1.0)

    def _rarest(self, weighed: list[tuple[int, str, float]]) -> tuple[list[tuple[str, float]], bool]:
        """As many as can be looked up quickly; and whether others stand in too many places."""
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
        """The nearest, and others that are asked for, with their cosines."""
        import numpy

        with self._reading():
            self._load()
            if self._matrix is None:
                return {}
            self._check_length([vector])
            scores = self._matrix @ numpy.asarray(vector, dtype=numpy.float32)
            most = min(most, len(scores))
            best = [int(place) for place in numpy.argpartition(-scores, most - 1)[:most]]
            best += [place for place in numpy.searchsorted(self._ids, list(also)).tolist() if place < len(scores)]
            return {int(self._ids[place]): float(scores[place]) for place in best}

    def once(self, scores: dict[int, float]) -> dict[int, float]:
        """Leave out copies: of the same text under the same heading of a file only the best says something."""
        with self._reading():
            marks = ",".join("?" * len(scores))
            rows = self._db.execute(f"SELECT id, file, heading, text FROM chunks WHERE id IN ({marks})", tuple(scores))
            first: dict[tuple[Any, ...], int] = {}
            for number, *text in sorted(rows, key=lambda row: (-scores[row[0]], row[0])):
                first.setdefault(tuple(text), number)
            return {number: scores[number] for number in first.values()}

    def by_sentence(self, vector: Any, numbers: Iterable[int]) -> dict[int, float]:
        """The cosines of the nearest sentences of these chunks, as far as they have several."""
        if not self._complete:
            return {}
        with self._reading():
            wanted = tuple(numbers)
            marks = ",".join("?" * len(wanted))
            rows = self._db.execute(f"SELECT id, sentences FROM chunks WHERE id IN ({marks}) AND length(sentences)", wanted)
            held = dict(rows.fetchall())
        return dict(zip(held, best(list(held.values()), vector), strict=True))

    def turns_before(self, numbers: Iterable[int]) -> dict[int, int]:
        """Those of these chunks, and of the ones after them, that are turns of a dialogue, with the turn before each, or 0."""
        if not self._complete:
            return {}
        with self._reading():
            wanted = tuple(numbers)
            marks = ",".join("?" * len(wanted))
            return dict(self._db.execute(self._TURNS.format(marks=marks), wanted * 2).fetchall())

    def _load(self) -> None:
        """All vectors into memory; when the file has changed, those that are new, or all again if some are gone."""
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


def _normal(found: list[str], usual: float) -> float:
    """How much a word counts in a text of this length, as BM25 has it: 1 in a usual one."""
    return 2.2 / (1 + 1.2 * (0.25 + 0.75 * len(found) / usual)) if found else 0.0


def _coded(term: str) -> bool:
    """`e-2044`, `3`."""
    return any(map(str.isdigit, term))
