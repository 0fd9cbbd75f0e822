"""The searchable index: one SQLite file with chunks, their words (FTS5) and their vectors, which are compared in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .chunk import best
from .dialogue import speaker
from .readers.base import page_of
from .store import FileRow as FileRow
from .store import IndexStore
from .store import StoredChunk as StoredChunk
from .store import Vectors as Vectors
from .tokenize import query_terms

_MOST_LOOKED_UP = 64  # words of a question
_MOST_ABSENT = 6  # of its words that do not occur; by trial with the questions of tests/corpora
_MOST_PLACES = 20_000  # occurrences of all of them together
_MOST_CONTAINING = 200  # chunks
_ELSEWHERE, _FEW = 0.05, 3  # a typical cosine of a question with a sentence, and the number of chunks it weighs as much as
_UNRELATED = 0.08  # the cosine that a question has on average with sentences that it has nothing to do with, at most


class Index(IndexStore):
    """An index that can be searched: by words, by the meaning of chunks, and by the meaning of their sentences.

    Scores are arrays with a number for each chunk, in the order of `ids`. They belong together within one `comparing`."""

    ONE_TALK = False
    """True: the turn before a turn of a dialogue is the last one that was stored, in whatever file."""

    @contextmanager
    def comparing(self) -> Iterator[bool]:
        """Hold the index as it is now, with its vectors in memory. Yields False if it is empty."""
        with self._read_lock():
            self._load()
            yield self._matrix is not None

    def words(self, query: str) -> Any:
        """Return each chunk's share of the question's words, from 0 to 1. Rare words count more.

        Words that occur in too many places are not looked up: they say little, and take long."""
        import numpy

        weighed, whole = self._weigh_terms(query)
        shares = numpy.zeros(len(self._ids), dtype=numpy.float32)
        places = 0
        for count, term, weight in weighed:
            places += count
            if places > _MOST_PLACES:
                break
            rows = self._db.execute("SELECT rowid FROM words WHERE words MATCH ?", (f'"{term}"',))
            shares[self._positions(number for (number,) in rows)] += weight
            whole += weight
        return shares / whole if whole else shares

    def cosines(self, vector: Any, of_turns: Any) -> Any:
        """Return each chunk's cosine with the question: with `vector`, or with `of_turns` for the turns of dialogues."""
        import numpy

        self._check_length([vector])
        cosines = self._matrix @ numpy.asarray(vector, dtype=numpy.float32)
        if of_turns is not vector:
            cosines[self._turns] = self._matrix[self._turns] @ numpy.asarray(of_turns, dtype=numpy.float32)
        return cosines

    def in_context(self, scores: Any, of_section: float, of_turn: float) -> Any:
        """Return the scores, each with this part of the score of the chunk's context.

        The context of a turn is the turn before it in the dialogue, which it often answers. That of another chunk is the mean
        of its section: of what stands under one heading of a file, or on one page."""
        import numpy

        means = numpy.bincount(self._sections, weights=scores) / numpy.bincount(self._sections)
        context = numpy.where(self._turns, scores[self._before], means[self._sections])
        return scores + numpy.where(self._turns, of_turn, of_section) * (context - scores)

    def speakers(self) -> Iterable[str]:
        """Return the names of all who speak in dialogues, in the form of `speaker`."""
        with self.comparing():
            return list(self._spoken)

    def spoken_by(self, names: Iterable[str]) -> list[int]:
        """Return the positions of the turns of these speakers."""
        return [place for name in names for place in self._spoken.get(name, ())]

    def by_words(self, query: str, most: int) -> dict[int, float]:
        """Return the chunks that have the largest shares of the question's words."""
        with self.comparing() as some:
            shares = self.words(query) if some else []
            return {number: share for number, share in self.largest(shares, most).items() if share}

    def by_vector(self, vector: Any, most: int) -> dict[int, float]:
        """Return the nearest chunks, with their cosines."""
        with self.comparing() as some:
            return self.largest(self.cosines(vector, vector) if some else [], most)

    def of(self, scores: Any, numbers: Iterable[int]) -> dict[int, float]:
        """Return the scores of these chunks."""
        wanted = list(numbers)
        return dict(zip(wanted, scores[self._positions(wanted)].tolist(), strict=True))

    def sharing_words_with(self, text: str) -> dict[int, float]:
        """Return the chunks that share words with a text, each with its share of the text's words. Rare words count more."""
        return self.by_words(text, _MOST_CONTAINING)

    def largest(self, scores: Any, most: int) -> dict[int, float]:
        """Return the chunks with the largest scores."""
        import numpy

        if not len(scores):
            return {}
        most = min(most, len(scores))
        best = numpy.argpartition(-scores, most - 1)[:most]
        return {int(self._ids[place]): float(scores[place]) for place in best}

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
        """Return the cosine of each chunk that has several sentences, combined with its nearest sentence; not of turns."""
        if not self._complete:
            return {}
        with self._read_lock():
            self._load()
            if self._matrix is None:
                return {}
            wanted = tuple(numbers)
            marks = ",".join("?" * len(wanted))
            rows = self._db.execute(
                f"SELECT id, sentences FROM chunks WHERE id IN ({marks}) AND length(sentences) AND turn IS NOT 1", wanted
            )
            held = dict(rows.fetchall())
            return dict(zip(held, best(list(held.values()), self._vectors(held), vector), strict=True))

    def _vectors(self, numbers: Iterable[int]) -> Any:
        """Return the vectors of these chunks from memory, one row each."""
        return self._matrix[self._positions(numbers)]

    def _positions(self, numbers: Iterable[int]) -> Any:
        """Return the positions of these chunks, without those that another process has stored meanwhile."""
        import numpy

        wanted = numpy.fromiter(numbers, dtype=numpy.int64)
        places = numpy.minimum(numpy.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return places[self._ids[places] == wanted]

    def _load(self) -> None:
        """Load all vectors into memory. If the file has changed, load the new ones, or all again if some were removed."""
        if self._matrix is not None and self._meta("version") == self._seen:
            return
        self._db.execute("BEGIN")  # what others write meanwhile is for the next time
        try:
            version, removed = self._meta("version"), self._meta("removed")
            if removed != self._removed:
                self._matrix = self._ids = None
                self._groups, self._spoken, self._last_turn = ([], [], []), {}, -1
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
        turn = "turn, CASE WHEN turn THEN text END" if self._complete else "0, NULL"
        rows = self._db.execute(
            f"SELECT id, vector, file, heading, place, {turn} FROM chunks WHERE id > ? ORDER BY id", (known,)
        )
        last: tuple[int, str, str] | None = None
        for number, vector, file, heading, place, is_turn, text in rows:
            whole[len(ids)] = numpy.frombuffer(vector, dtype=numpy.float16)
            section = (file, heading, page_of(place))
            self._group(len(ids), text if is_turn else None, begins=section != last)
            ids.append(number)
            last = section
        self._matrix, self._ids, self._middle = whole, numpy.asarray(ids), None
        self._sections, self._turns, self._before = map(numpy.asarray, self._groups)

    def _group(self, place: int, turn: str | None, *, begins: bool) -> None:
        """Add a chunk to the groups: its section, whether it is a turn, and the place of the turn before it, or its own."""
        sections, turns, before = self._groups
        earlier = self._last_turn if self.ONE_TALK else place - 1
        follows = turn is not None and earlier >= 0 and turns[earlier] and (self.ONE_TALK or not begins)
        sections.append(sections[-1] + begins if sections else 0)
        turns.append(turn is not None)
        before.append(earlier if follows else place)
        if turn is not None:
            self._last_turn = place
            self._spoken.setdefault(speaker(turn), []).append(place)


def _has_digit(term: str) -> bool:
    return any(map(str.isdigit, term))
