"""The index: one SQLite file with the chunks, their words (FTS5) and their vectors. Vectors are compared exactly, in memory."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ...core.errors import ConfigError
from ...core.language import say
from .chunks import Chunk, query_terms, terms

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, modified REAL, size INTEGER, digest TEXT, chunks INTEGER, problem TEXT);
CREATE TABLE IF NOT EXISTS chunks (
    id INTEGER PRIMARY KEY, file INTEGER, number INTEGER, text TEXT, heading TEXT, place TEXT, vector BLOB);
CREATE INDEX IF NOT EXISTS of_file ON chunks (file);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (terms, tokenize="unicode61 remove_diacritics 2 tokenchars '._-'");
CREATE VIRTUAL TABLE IF NOT EXISTS vocabulary USING fts5vocab (words, row);
"""
_FORM = 1  # of the tables
_MOST_TERMS = 12
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
    def __init__(self, path: str | Path, embeddings: str) -> None:
        self.path = Path(path).expanduser()
        self._lock = threading.RLock()
        self._matrix: Any = None
        self._ids: Any = None
        self._seen = ""
        self._writable = True
        try:
            self._db = self._opened()
            made_with = self._meta("embeddings")
        except (sqlite3.DatabaseError, OSError) as problem:
            raise ConfigError(say(f"{path} is no index: {problem}", f"{path} は索引ではありません: {problem}")) from problem
        if made_with and made_with != embeddings:
            raise ConfigError(
                say(
                    f"{path} was made with {made_with}, not with {embeddings}; use that one, or another file",
                    f"{path} は {made_with} で作られています ({embeddings} ではありません)",
                )
            )
        if not made_with and self._writable:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('embeddings', ?)", (embeddings,))

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=30.0)
        try:
            form = db.execute("PRAGMA user_version").fetchone()[0]
            if form <= _FORM:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(_SCHEMA)
                db.execute(f"PRAGMA user_version = {_FORM}")
                return db
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
            self._writable = False
            return self._as_it_is()
        raise ConfigError(
            say(
                f"{self.path} was made by a newer kaname (form {form}); update, or use another file",
                f"{self.path} は新しい kaname で作られています (形式 {form})。更新するか、別のファイルを使ってください",
            )
        )

    def _as_it_is(self) -> sqlite3.Connection:
        """What may only be read is opened without making anything beside it."""
        for how in ("mode=ro", "immutable=1"):  # the second where SQLite cannot keep its notes
            address = f"file:{quote(str(self.path.resolve()))}?{how}"
            db = sqlite3.connect(address, uri=True, check_same_thread=False, isolation_level=None)
            with suppress(sqlite3.OperationalError):
                db.execute("SELECT count(*) FROM meta").fetchone()
                return db
            db.close()
        raise sqlite3.DatabaseError(say("it cannot be read", "読めません"))

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _meta(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def files(self) -> list[FileRow]:
        with self._lock:
            rows = self._db.execute("SELECT path, modified, size, digest, chunks, problem FROM files ORDER BY path")
            return [FileRow(*row) for row in rows]

    def put(self, file: FileRow, chunks: Sequence[Chunk], vectors: Any) -> None:
        """A file, in the place of what was known of it: all of it or nothing."""
        import numpy

        with self._lock, self._writing():
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

    def remove(self, paths: Iterable[str]) -> None:
        with self._lock, self._writing():
            for path in paths:
                self._forget(path)
            self._changed()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self._writable:
            raise ConfigError(say(f"{self.path} may only be read", f"{self.path} は読み取り専用です"))
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def _check_length(self, vectors: Any) -> None:
        row = self._db.execute("SELECT length(vector) / 2 FROM chunks LIMIT 1").fetchone()
        if row is not None and len(vectors) and len(vectors[0]) != row[0]:
            raise ConfigError(
                say(
                    f"{self.path} holds vectors of {row[0]} numbers, and these have {len(vectors[0])}: another model?",
                    f"{self.path} のベクトルは {row[0]} 次元ですが、これは {len(vectors[0])} 次元です",
                )
            )

    def _forget(self, path: str) -> None:
        row = self._db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if row is not None:
            self._db.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM chunks WHERE file = ?)", row)
            self._db.execute("DELETE FROM chunks WHERE file = ?", row)
            self._db.execute("DELETE FROM files WHERE id = ?", row)

    def _changed(self) -> None:
        self._db.execute(
            "INSERT INTO meta VALUES ('version', '1') ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
        )

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM chunks").fetchone()[0])

    def by_words(self, query: str, most: int) -> dict[int, float]:
        """The best by BM25, each with how much of the question it has: 1 for all of its words, the rare ones counting more.

        Of a long question the rarest words are looked up; those that stand everywhere are left out."""
        with self._lock:
            rare = self._rarest(query_terms(query))
            if not rare:
                return {}
            wanted = " OR ".join([f'"{term}"' for term, _ in rare])
            whole = sum([weight for _, weight in rare])
            rows = self._db.execute(
                "SELECT rowid, bm25(words) FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (wanted, most)
            )
            return {number: min(1.0, -score / whole) for number, score in rows}

    def _rarest(self, wanted: list[str]) -> list[tuple[str, float]]:
        """Words with their weights (inverse document frequency): the rarest, as many as can be looked up quickly."""
        size = len(self)
        counted = []
        for term in wanted:
            row = self._db.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
            counted.append((row[0] if row else 0, term))
        kept: list[tuple[str, float]] = []
        places = 0
        for count, term in sorted(counted)[:_MOST_TERMS]:
            places += count
            if len(kept) > 1 and (places > _MOST_PLACES or count > max(20, size * _TOO_COMMON)):
                break
            kept.append((term, math.log((size - count + 0.5) / (count + 0.5) + 1.0)))
        return kept

    def by_vector(self, vector: Any, most: int, also: Iterable[int] = ()) -> dict[int, float]:
        """The nearest, and others that are asked for, with their cosines."""
        import numpy

        with self._lock:
            self._load()
            if self._matrix is None:
                return {}
            self._check_length([vector])
            scores = self._matrix @ numpy.asarray(vector, dtype=numpy.float32)
            most = min(most, len(scores))
            best = [int(place) for place in numpy.argpartition(-scores, most - 1)[:most]]
            best += [place for place in numpy.searchsorted(self._ids, list(also)).tolist() if place < len(scores)]
            return {int(self._ids[place]): float(scores[place]) for place in best}

    def around(self, number: int) -> list[Stored]:
        """A chunk with those before and after it, under the same heading."""
        with self._lock:
            rows = self._db.execute(
                "SELECT c.id, f.path, c.number, c.text, c.heading, c.place FROM chunks a JOIN chunks c ON c.file = a.file "
                "AND c.number BETWEEN a.number - 1 AND a.number + 1 AND c.heading = a.heading JOIN files f ON f.id = c.file "
                "WHERE a.id = ? ORDER BY c.number",
                (number,),
            )
            return [Stored(*row) for row in rows]

    def _load(self) -> None:
        """All vectors into memory, again only when the file has changed."""
        import numpy

        version = self._meta("version")
        if self._matrix is not None and version == self._seen:
            return
        ids, blobs = [], []
        for number, blob in self._db.execute("SELECT id, vector FROM chunks ORDER BY id"):
            ids.append(number)
            blobs.append(blob)
        joined = numpy.frombuffer(b"".join(blobs), dtype=numpy.float16)
        self._matrix = joined.reshape(len(ids), -1).astype(numpy.float32) if ids else None
        self._ids, self._seen = numpy.asarray(ids), version
