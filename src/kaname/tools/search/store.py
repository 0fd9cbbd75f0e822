"""Store documents in the file of an index: the files, their chunks, words and vectors."""

from __future__ import annotations

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
from . import index_file as opening
from .chunk import TextChunk, pack_vectors
from .dialogue import turns
from .embed import other_embeddings
from .readers.base import page_of
from .tokenize import terms


class StoredChunk(NamedTuple):
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


Vectors = tuple[Any, Any]
"""The vectors of a chunk: a list with its own, and those of its sentences or the bytes that they are stored as."""


class IndexStore:
    """The stored part of an index.

    `embeddings`: the name of the embeddings that the index must have been made with. Default: accept any (`made_with`)."""

    def __init__(self, path: str | Path, embeddings: str = "", *, new: bool = True) -> None:
        self.path = Path(path).expanduser()
        self._lock = threading.RLock()
        self._matrix: Any = None
        self._ids: Any = None
        self._middle: Any = None  # the mean of all vectors
        self._sections: Any = None
        self._turns: Any = None
        self._before: Any = None
        self._groups: tuple[list[int], list[bool], list[int]] = ([], [], [])  # the same, as lists
        self._spoken: dict[str, list[int]] = {}  # by speaker, the positions of their turns
        self._last_turn = -1
        self._seen = self._removed = self._counted = self._listed = ""
        self._size, self._counts = 0, dict[str, int]()
        self._names: dict[str, list[str]] = {}
        if not new and not self.path.exists():
            raise opening.no_index(path)
        try:
            with opening.explain_errors(self.path):
                self._open()
                self.made_with = self._meta("embeddings")
        except (sqlite3.DatabaseError, OSError) as problem:
            raise ConfigError.of(
                "search.not_an_index", "{path} is not an index: {problem}", path=path, problem=problem
            ) from problem
        if embeddings:
            self._belong(embeddings)

    def _open(self) -> None:
        """Open the file. It is closed by `close`, or when this object is garbage-collected."""
        self._db, self._writable = opening.open_index(self.path)
        self._complete = self._writable or opening.has_sentences(self._db)
        self._closing = weakref.finalize(self, self._db.close)

    def _belong(self, embeddings: str) -> None:
        if self.made_with and self.made_with != embeddings:
            self.close()
            raise other_embeddings(self.path, self.made_with, embeddings)
        if not self.made_with and self._writable:
            with opening.explain_errors(self.path):
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('embeddings', ?)", (embeddings,))

    def use(self, embeddings: str) -> None:
        """Bind the index to these embeddings. Raises `ConfigError` if it was made with others."""
        with self._read_lock():
            self._belong(embeddings)
            self.made_with = embeddings

    def close(self) -> None:
        with self._lock:
            self._closing()

    @contextmanager
    def _read_lock(self) -> Iterator[None]:
        """Hold the lock, and turn SQLite errors into `ConfigError`."""
        with self._lock, opening.explain_errors(self.path):
            yield

    @contextmanager
    def _write_transaction(self) -> Iterator[None]:
        """Hold the lock in a write transaction. Raises `ConfigError` if the file is read-only."""
        if not self._writable:
            raise ConfigError.of("search.read_only", "{path} is read-only", path=self.path)
        with self._read_lock(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def _meta(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def files(self) -> list[FileRow]:
        with self._read_lock():
            rows = self._db.execute("SELECT path, modified, size, digest, chunks, problem FROM files ORDER BY path")
            return [FileRow(*row) for row in rows]

    def some_paths(self, most: int) -> tuple[list[str], int]:
        """Return the first `most` paths, and the number of all files."""
        with self._read_lock():
            paths = [path for (path,) in self._db.execute("SELECT path FROM files ORDER BY path LIMIT ?", (most,))]
            (every,) = self._db.execute("SELECT count(*) FROM files").fetchone()
        return paths, every

    def put(self, file: FileRow, chunks: Sequence[TextChunk], vectors: Any, sentences: Sequence[Any] | None = None) -> None:
        """Store a file and replace its earlier version, in one transaction.

        Args:
            file: The file.
            chunks: Its chunks.
            vectors: A vector for each chunk.
            sentences: For each chunk the vectors of its sentences. If omitted, add them later; see `without_sentences`.
        """
        with self._write_transaction():
            self._insert(file, chunks, vectors, sentences, turns([chunk.text for chunk in chunks]))

    def _insert(
        self,
        file: FileRow,
        chunks: Sequence[TextChunk],
        vectors: Any,
        sentences: Sequence[Any] | None = None,
        spoken: Sequence[bool] = (),
    ) -> None:
        """Store a file within a transaction. `spoken` marks the chunks that are turns of a dialogue."""
        import numpy

        self._check_length(vectors)
        self._forget(file.path)
        cursor = self._db.execute(
            "INSERT INTO files (path, modified, size, digest, chunks, problem) VALUES (?, ?, ?, ?, ?, ?)", file
        )
        for number, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True), 1):
            blob = numpy.asarray(vector, dtype=numpy.float16).tobytes()
            within = None if sentences is None else _bytes(sentences[number - 1])
            row = (cursor.lastrowid, number, *chunk, blob, within, int(bool(spoken) and spoken[number - 1]))
            made = self._db.execute(
                "INSERT INTO chunks (file, number, text, heading, place, vector, sentences, turn) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            found_by = " ".join([*terms(chunk.heading), *terms(chunk.text)])
            self._db.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (made.lastrowid, found_by))
        self._count_version()

    def vectors_of(self, path: str) -> dict[tuple[str, str], Vectors]:
        """Return the stored vectors of a file by text and heading, so that unchanged chunks are not embedded again."""
        import numpy

        with self._read_lock():
            rows = self._db.execute(
                "SELECT c.text, c.heading, c.vector, c.sentences FROM files f JOIN chunks c ON c.file = f.id "
                "WHERE f.path = ? AND c.sentences IS NOT NULL",
                (path,),
            )
            held = rows.fetchall()
        return {(text, heading): ([numpy.frombuffer(own, dtype=numpy.float16)], within) for text, heading, own, within in held}

    def touch(self, path: str, modified: float) -> None:
        """Store another modification time of a file whose content is unchanged."""
        with self._write_transaction():
            self._db.execute("UPDATE files SET modified = ? WHERE path = ?", (modified, path))

    def remove(self, paths: Iterable[str]) -> None:
        with self._write_transaction():
            for path in paths:
                self._forget(path)
            self._count_version()

    def below(self, *paths: str | Path) -> list[str]:
        """Return the stored files that have these paths, or are in these folders."""
        named = {*map(str, paths), *[str(Path(path).expanduser().resolve()) for path in paths]}
        below = tuple([one.rstrip(os.sep) + os.sep for one in named])
        return [row.path for row in self.files() if row.path in named or row.path.startswith(below)]

    def _check_length(self, vectors: Any) -> None:
        row = self._db.execute("SELECT length(vector) / 2 FROM chunks LIMIT 1").fetchone()
        if row is not None and len(vectors) and len(vectors[0]) != row[0]:
            raise ConfigError.of(
                "search.vector_size",
                "{path} holds vectors of {row} dimensions, but the new ones have {count}. Use the same embedding model, "
                "or another file",
                path=self.path,
                row=row[0],
                count=len(vectors[0]),
            )

    def _forget(self, path: str) -> None:
        row = self._db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if row is not None:
            self._db.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM chunks WHERE file = ?)", row)
            self._db.execute("DELETE FROM chunks WHERE file = ?", row)
            self._db.execute("DELETE FROM files WHERE id = ?", row)
            self._count_up("removed")

    def _count_version(self) -> None:
        self._count_up("version")

    def _count_up(self, key: str) -> None:
        self._db.execute(
            "INSERT INTO meta VALUES (?, '1') ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1", (key,)
        )

    def is_empty(self) -> bool:
        with self._read_lock():
            return self._db.execute("SELECT 1 FROM chunks LIMIT 1").fetchone() is None

    def __len__(self) -> int:
        with self._read_lock():
            return int(self._db.execute("SELECT count(*) FROM chunks").fetchone()[0])

    def without_sentences(self, most: int) -> list[tuple[int, str]]:
        """Return chunks that an older kaname stored without vectors of their sentences, with their texts."""
        with self._read_lock():
            rows = self._db.execute("SELECT id, text FROM chunks WHERE sentences IS NULL ORDER BY id LIMIT ?", (most,))
            return rows.fetchall() if self._writable else []

    def add_sentences(self, vectors: dict[int, Any]) -> None:
        """Store the vectors of sentences for existing chunks."""
        with self._write_transaction():
            rows = [(pack_vectors(made), number) for number, made in vectors.items()]
            self._db.executemany("UPDATE chunks SET sentences = ? WHERE id = ?", rows)

    def around(self, number: int) -> list[StoredChunk]:
        """Return a chunk with the one before and the one after it, if they are under the same heading and on the same page."""
        with self._read_lock():
            rows = self._db.execute(
                "SELECT c.id, f.path, c.number, c.text, c.heading, c.place FROM chunks a JOIN chunks c ON c.file = a.file "
                "AND c.number BETWEEN a.number - 1 AND a.number + 1 AND c.heading = a.heading JOIN files f ON f.id = c.file "
                "WHERE a.id = ? ORDER BY c.number",
                (number,),
            )
            near = [StoredChunk(*row) for row in rows]
        page = next((page_of(one.place) for one in near if one.id == number), "")
        return [one for one in near if page_of(one.place) == page]

    def chunk_id(self, path: str, number: int) -> int | None:
        """Return the id of a file's chunk by its number, or None."""
        with self._read_lock():
            row = self._db.execute(
                "SELECT c.id FROM chunks c JOIN files f ON f.id = c.file WHERE f.path = ? AND c.number = ?", (path, number)
            ).fetchone()
            return int(row[0]) if row else None

    def same_name(self, path: str) -> list[str]:
        """Return the paths of all files that have the same name."""
        with self._read_lock():
            version = self._meta("version")
            if version != self._listed:
                self._names, self._listed = {}, version
                for (other,) in self._db.execute("SELECT path FROM files ORDER BY path"):
                    self._names.setdefault(_name(other), []).append(other)
            return self._names.get(_name(path), [])


def _bytes(sentences: Any) -> bytes:
    return sentences if isinstance(sentences, bytes) else pack_vectors(sentences)


def _name(path: str) -> str:
    """Return a file's name with composed (NFC) letters."""
    return unicodedata.normalize("NFC", Path(path).name)
