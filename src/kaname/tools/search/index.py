"""The index: one SQLite file with the chunks, their words (FTS5) and their vectors. Vectors are compared exactly, in memory."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import unicodedata
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from ...core.notices import notice
from . import index_file as opening
from .chunk import Chunk
from .tokenize import query_terms, terms

_MOST_TERMS = 12
_MOST_LOOKED_UP = 64  # words of a question
_MOST_ABSENT = 6  # of its words that stand nowhere; by trial with the questions of tests/corpora
_MOST_PLACES = 8_000  # where all of them stand, taken together
_TOO_COMMON = 0.1  # of all chunks: a word that says nothing


class Stored(NamedTuple):
    id: int
    path: str
    number: int
    text: str
    heading: str
    place: str


class FileRow(NamedTuple):
    path: str
    modified: float
    size: int
    digest: str
    chunks: int
    problem: str


class Index:
    """`embeddings`: the name of those that it must have been made with; by default whichever they are (`made_with`)."""

    def __init__(self, path: str | Path, embeddings: str = "", *, new: bool = True) -> None:
        self.path = Path(path).expanduser()
        self._lock = threading.RLock()
        self._matrix: Any = None
        self._ids: Any = None
        self._seen = self._removed = self._counted = self._listed = ""
        self._size, self._counts = 0, dict[str, int]()
        self._names: dict[str, list[str]] = {}
        if not new and not self.path.exists():
            raise opening.no_index(path)
        try:
            with opening.told(self.path):
                self._open()
                self.made_with = self._meta("embeddings")
        except (sqlite3.DatabaseError, OSError) as problem:
            raise ConfigError(
                notice("search.not_an_index", "{path} is no index: {problem}", path=path, problem=problem)
            ) from problem
        if embeddings:
            self._belong(embeddings)

    def _open(self) -> None:
        """Open the file. It is closed with `close`, or when nothing refers to this index any more."""
        self._db, self._writable = opening.opened(self.path)
        self._closing = weakref.finalize(self, self._db.close)

    def _belong(self, embeddings: str) -> None:
        if self.made_with and self.made_with != embeddings:
            self.close()
            raise ConfigError(
                notice(
                    "search.other_embeddings",
                    "{path} was made with {made_with}, not with {embeddings}; use that one, or another file",
                    path=self.path,
                    made_with=self.made_with,
                    embeddings=embeddings,
                )
            )
        if not self.made_with and self._writable:
            with opening.told(self.path):
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('embeddings', ?)", (embeddings,))

    def use(self, embeddings: str) -> None:
        """From now on it belongs to these."""
        with self._reading():
            self._belong(embeddings)
            self.made_with = embeddings

    def close(self) -> None:
        with self._lock:
            self._closing()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, opening.told(self.path):
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self._writable:
            raise ConfigError(notice("search.read_only", "{path} may only be read", path=self.path))
        with self._reading(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def _meta(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def files(self) -> list[FileRow]:
        with self._reading():
            rows = self._db.execute("SELECT path, modified, size, digest, chunks, problem FROM files ORDER BY path")
            return [FileRow(*row) for row in rows]

    def some_paths(self, most: int) -> tuple[list[str], int]:
        """The first so many, and how many there are."""
        with self._reading():
            paths = [path for (path,) in self._db.execute("SELECT path FROM files ORDER BY path LIMIT ?", (most,))]
            (every,) = self._db.execute("SELECT count(*) FROM files").fetchone()
        return paths, every

    def put(self, file: FileRow, chunks: Sequence[Chunk], vectors: Any) -> None:
        """A file, in the place of what was known of it: all of it or nothing."""
        with self._writing():
            self._insert(file, chunks, vectors)

    def _insert(self, file: FileRow, chunks: Sequence[Chunk], vectors: Any) -> None:
        """Within a transaction."""
        import numpy

        self._check_length(vectors)
        self._forget(file.path)
        cursor = self._db.execute(
            "INSERT INTO files (path, modified, size, digest, chunks, problem) VALUES (?, ?, ?, ?, ?, ?)", file
        )
        for number, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True), 1):
            blob = numpy.asarray(vector, dtype=numpy.float16).tobytes()
            row = (cursor.lastrowid, number, chunk.text, chunk.heading, chunk.place, blob)
            made = self._db.execute(
                "INSERT INTO chunks (file, number, text, heading, place, vector) VALUES (?, ?, ?, ?, ?, ?)", row
            )
            found_by = " ".join([*terms(chunk.heading), *terms(chunk.text)])
            self._db.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (made.lastrowid, found_by))
        self._changed()

    def touch(self, path: str, modified: float) -> None:
        """The same content, with another time."""
        with self._writing():
            self._db.execute("UPDATE files SET modified = ? WHERE path = ?", (modified, path))

    def remove(self, paths: Iterable[str]) -> None:
        with self._writing():
            for path in paths:
                self._forget(path)
            self._changed()

    def below(self, *paths: str | Path) -> list[str]:
        """Return the files that have these paths, or are in these folders."""
        named = {*map(str, paths), *[str(Path(path).expanduser().resolve()) for path in paths]}
        below = tuple([one.rstrip(os.sep) + os.sep for one in named])
        return [row.path for row in self.files() if row.path in named or row.path.startswith(below)]

    def _check_length(self, vectors: Any) -> None:
        row = self._db.execute("SELECT length(vector) / 2 FROM chunks LIMIT 1").fetchone()
        if row is not None and len(vectors) and len(vectors[0]) != row[0]:
            raise ConfigError(
                notice(
                    "search.vector_size",
                    "{path} holds vectors of {row} numbers, and these have {count}: another model?",
                    path=self.path,
                    row=row[0],
                    count=len(vectors[0]),
                )
            )

    def _forget(self, path: str) -> None:
        row = self._db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if row is not None:
            self._db.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM chunks WHERE file = ?)", row)
            self._db.execute("DELETE FROM chunks WHERE file = ?", row)
            self._db.execute("DELETE FROM files WHERE id = ?", row)
            self._count_up("removed")

    def _changed(self) -> None:
        self._count_up("version")

    def _count_up(self, key: str) -> None:
        self._db.execute(
            "INSERT INTO meta VALUES (?, '1') ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1", (key,)
        )

    def __len__(self) -> int:
        with self._reading():
            return int(self._db.execute("SELECT count(*) FROM chunks").fetchone()[0])

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
            found = {}
            for number in numbers:
                row = self._db.execute("SELECT terms FROM words WHERE rowid = ?", (number,)).fetchone()
                held = set(row[0].split()) if row else set()
                found[number] = sum([weight for term, weight in weights.items() if term in held]) / whole
            return found

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

    def once(self, found: dict[int, float]) -> dict[int, float]:
        """Without copies: of the same text under the same heading of a file only the first says something."""
        with self._reading():
            marks = ",".join("?" * len(found))
            rows = self._db.execute(
                f"SELECT min(id) FROM chunks WHERE id IN ({marks}) GROUP BY file, heading, text", tuple(found)
            )
            return {number: found[number] for (number,) in rows}

    def around(self, number: int) -> list[Stored]:
        """A chunk with those before and after it, under the same heading."""
        with self._reading():
            rows = self._db.execute(
                "SELECT c.id, f.path, c.number, c.text, c.heading, c.place FROM chunks a JOIN chunks c ON c.file = a.file "
                "AND c.number BETWEEN a.number - 1 AND a.number + 1 AND c.heading = a.heading JOIN files f ON f.id = c.file "
                "WHERE a.id = ? ORDER BY c.number",
                (number,),
            )
            return [Stored(*row) for row in rows]

    def numbered(self, path: str, number: int) -> int | None:
        """Which chunk it is."""
        with self._reading():
            row = self._db.execute(
                "SELECT c.id FROM chunks c JOIN files f ON f.id = c.file WHERE f.path = ? AND c.number = ?", (path, number)
            ).fetchone()
            return int(row[0]) if row else None

    def same_name(self, path: str) -> list[str]:
        """The paths of all files that have the same name."""
        with self._reading():
            version = self._meta("version")
            if version != self._listed:
                self._names, self._listed = {}, version
                for (other,) in self._db.execute("SELECT path FROM files ORDER BY path"):
                    self._names.setdefault(_name(other), []).append(other)
            return self._names.get(_name(path), [])

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
        self._matrix, self._ids = whole, numpy.asarray(ids)


def _coded(term: str) -> bool:
    """`e-2044`, `3`."""
    return any(map(str.isdigit, term))


def _name(path: str) -> str:
    """Of a file, in letters as they are typed."""
    return unicodedata.normalize("NFC", Path(path).name)
