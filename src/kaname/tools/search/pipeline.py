"""`RAGPipeline`: documents in, passages out. Words and meaning are looked up side by side, and their scores are fused."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from ...core.language import say
from ...kernel.boundary import Border
from .blocks import READERS, Unreadable, read_blocks
from .chunks import Chunk, chunked
from .embedding import Embeddings, embeddings_for
from .index import FileRow, Index, Stored

_WORDS_COUNT = 0.35  # beside a cosine; by trial, see benchmarks/README.md
_LOOKED_AT = 50
_BATCH = 32
Progress = Callable[[int, int, str], None]
"""`progress(done, all, file)`, in files."""


class Hit(NamedTuple):
    """A passage: the chunk that was found, with its neighbours. `similarity`: the cosine; `score`: with the words that fit."""

    text: str
    source: str
    heading: str
    place: str
    chunk: int
    score: float
    similarity: float

    @property
    def citation(self) -> str:
        return f"{self.source}#{self.chunk} ({', '.join([part for part in (self.heading, self.place) if part])})"


class Added(NamedTuple):
    added: list[str]
    unchanged: list[str]
    removed: list[str]
    problems: dict[str, str]


class RAGPipeline:
    """`index`: a file, by default in the user's data folder (`KANAME_DOCS`).

    `embeddings`: `local`, `openai/MODEL`, or an object with a name and `embed(texts)`."""

    def __init__(self, index: str | Path | None = None, *, embeddings: Embeddings | str | None = None) -> None:
        self._embeddings = embeddings_for(embeddings)
        self._index = Index(default_index() if index is None else index, self._embeddings.name)

    @property
    def path(self) -> Path:
        return self._index.path

    def close(self) -> None:
        self._index.close()

    def __len__(self) -> int:
        """In chunks."""
        return len(self._index)

    def files(self) -> list[FileRow]:
        return self._index.files()

    def add(self, *paths: str | Path, progress: Progress | None = None) -> Added:
        """Files, and folders with all that is in them. What has not changed is passed over; what is gone is forgotten."""
        wanted = [path for given in paths for path in _found(Path(given).expanduser().resolve())]
        known = {row.path: row for row in self._index.files()}
        done = Added([], [], [], {})
        for number, path in enumerate(wanted, 1):
            if progress is not None:
                progress(number - 1, len(wanted), str(path))
            self._take(path, known.get(str(path)), done)
        folders = [str(Path(given).expanduser().resolve()) + os.sep for given in paths]
        there = set(map(str, wanted))
        done.removed.extend([path for path in known if path.startswith(tuple(folders)) and path not in there])
        if done.removed:
            self._index.remove(done.removed)
        if progress is not None:
            progress(len(wanted), len(wanted), "")
        return done

    def add_text(self, name: str, text: str) -> int:
        """A text that is no file; how many chunks it became."""
        from .blocks import Block

        chunks = list(chunked([Block(part, "", "") for part in text.split("\n\n") if part.strip()]))
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        self._index.put(FileRow(name, 0.0, len(text), digest, len(chunks), ""), chunks, self._vectors(chunks))
        return len(chunks)

    def remove(self, *paths: str | Path) -> None:
        resolved = [str(Path(path).expanduser().resolve()) for path in paths]
        inside = [row.path for row in self._index.files() if row.path.startswith(tuple([one + os.sep for one in resolved]))]
        self._index.remove([*resolved, *map(str, paths), *inside])

    def search(self, query: str, top_k: int = 5) -> list[Hit]:
        """The passages that fit best: those that share words with the question, and those that mean the same."""
        if not query.strip():
            raise ConfigError(say("the question is empty", "質問が空です"))
        return self.found(query, self._embedded([query])[0], top_k)

    def found(self, query: str, vector: object, top_k: int) -> list[Hit]:
        """Scores are added, not ranks: a word that is found by chance must not weigh as much as one that is meant."""
        words = self._index.by_words(query, _LOOKED_AT)
        similar = self._index.by_vector(vector, _LOOKED_AT, words)
        scores = {number: cosine + _WORDS_COUNT * words.get(number, 0.0) for number, cosine in similar.items()}
        hits: list[Hit] = []
        shown: set[int] = set()
        for number in sorted(scores, key=lambda number: (-scores[number], number)):
            if number in shown:  # part of a better one
                continue
            passage = self._index.around(number)
            shown |= {one.id for one in passage}
            hits += [_hit(number, passage, scores[number], similar[number])] if passage else []
            if len(hits) == top_k:
                break
        return hits

    def _take(self, path: Path, known: FileRow | None, done: Added) -> None:
        with Border() as border:  # a file may be anything: what its reader stumbles over is told, and the others are read
            self._take_file(path, known, done)
        if border.failure is not None:
            done.problems[str(path)] = str(border.failure)

    def _take_file(self, path: Path, known: FileRow | None, done: Added) -> None:
        status = path.stat()
        if known is not None and (known.modified, known.size) == (status.st_mtime, status.st_size) and not known.problem:
            done.unchanged.append(str(path))
            return
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if status.st_size < 10**9 else ""
        if known is not None and known.digest == digest and not known.problem:
            done.unchanged.append(str(path))
            return
        problem = ""
        try:
            chunks = list(chunked(read_blocks(path)))
            if not chunks:
                problem = say("there is no text in it", "テキストがありません")
        except Unreadable as trouble:
            chunks, problem = [], str(trouble)
        row = FileRow(str(path), status.st_mtime, status.st_size, digest, len(chunks), problem)
        self._index.put(row, chunks, self._vectors(chunks))
        if problem:
            done.problems[str(path)] = problem
        else:
            done.added.append(str(path))

    def _vectors(self, chunks: list[Chunk]) -> list[object]:
        """Of the headings and the text: what a passage is about often stands above it."""
        texts = [f"{chunk.heading}\n{chunk.text}" if chunk.heading else chunk.text for chunk in chunks]
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        return [vector for batch in batches for vector in self._embedded(batch)]

    def _embedded(self, texts: list[str]) -> Any:
        """Of length one, so that their products are cosines."""
        import numpy

        made = numpy.asarray(self._embeddings.embed(texts), dtype=numpy.float32)
        return made / numpy.maximum(numpy.linalg.norm(made, axis=1, keepdims=True), 1e-12)


def _hit(number: int, passage: list[Stored], score: float, similarity: float) -> Hit:
    found = next(one for one in passage if one.id == number)
    text = "\n".join([one.text for one in passage])
    return Hit(text, found.path, found.heading, found.place, found.number, score, similarity)


def _found(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for folder, folders, files in os.walk(path):
            folders[:] = sorted([name for name in folders if not name.startswith(".") and name != "node_modules"])
            inside = [Path(folder, name) for name in sorted(files) if not name.startswith((".", "~$"))]
            yield from [one for one in inside if one.suffix.lower() in READERS and one.is_file()]
    else:
        raise ConfigError(say(f"there is no {path}", f"{path} がありません"))


def default_index() -> Path:
    if given := os.environ.get("KANAME_DOCS"):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(data, "kaname", "docs.db")
