"""`RAGPipeline`: add documents, and search them by words and by meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.project import state_path
from .chunk import chunk_blocks, sentences
from .cite import Hit, find_cited, hit
from .embed import Embeddings, check_vectors, embeddings_for
from .index import FileRow, Index
from .ingest import Added, Adding, FolderScan, Progress, embed_text
from .rank import rank, score
from .readers.base import Block

__all__ = ["Added", "Hit", "Progress", "RAGPipeline", "default_index"]
_AT_ONCE = 32  # chunks of an older index whose sentences are embedded together
_LONGEST_QUESTION = 2_000  # characters; the rest says nothing new
_SHARED = 0.25  # what all of a question's words count, where a cosine counts 1
_USUAL = 0.75  # how much the usual cosine of a question counts against its best


class RAGPipeline:
    """An index of documents that can be searched by words and by meaning.

    Args:
        index: The index file. Default: `KANAME_DOCS`, or `docs.db` in the project's or the user's state folder.
        embeddings: `local`, `openai/MODEL`, or an object with `name` and `embed(texts)`. Default: those that the index was
            made with, or `local`.
        new: Create the file if it does not exist. With `new=False`, a missing file raises `ConfigError`.
    """

    def __init__(
        self, index: str | Path | Index | None = None, *, embeddings: Embeddings | str | None = None, new: bool = True
    ) -> None:
        named = None if embeddings is None else embeddings_for(embeddings)
        self._index = index if isinstance(index, Index) else Index(default_index() if index is None else index, new=new)
        try:
            self._embeddings = embeddings_for(None, self._index.made_with) if named is None else named
            self._index.use(self._embeddings.name)
        except ConfigError:
            self._index.close()
            raise

    @property
    def path(self) -> Path:
        """The index file."""
        return self._index.path

    def close(self) -> None:
        """Close the index file."""
        self._index.close()

    def __len__(self) -> int:
        """The number of chunks."""
        return len(self._index)

    def files(self) -> list[FileRow]:
        """List the files in the index, with their size, number of chunks and problem."""
        return self._index.files()

    def some_paths(self, most: int) -> tuple[list[str], int]:
        """Return the first `most` files, and the number of all files."""
        return self._index.some_paths(most)

    def add(self, *paths: str | Path, progress: Progress | None = None, forget: bool = False) -> Added:
        """Add files, and folders with everything in them. Unchanged files are skipped; files that were deleted are removed.

        If a folder cannot be read, is missing or is completely empty, its files are kept and a problem is reported. If
        embedding fails, the files that were added before stay.

        Args:
            paths: Files and folders.
            progress: Called with the number of files done, the number of all files, and the current file.
            forget: Also remove the files of folders that are missing or empty.

        Returns:
            The paths that were added, unchanged and removed, the problems by path, and the endings that were skipped.
        """
        looked = FolderScan({row.path for row in self._index.files()}, forget)
        looked.look([Path(os.path.realpath(Path(given).expanduser())) for given in paths])
        adding = Adding(self._index, self.embed, progress, len(looked.files))
        for path in sorted(looked.files, key=_size):  # small files first: a huge one delays no other
            adding.take(path)
        adding.finish()
        self.renew()
        adding.done.problems.update(looked.problems)
        adding.done.passed.update(looked.passed)
        adding.done.removed.extend(dict.fromkeys(looked.gone))
        if looked.gone:
            self._index.remove(adding.done.removed)
        if progress is not None:
            progress(len(looked.files), len(looked.files), "")
        return adding.done

    def add_text(self, name: str, text: str) -> int:
        """Add a text that is not a file, under this name. Returns the number of its chunks."""
        name, text = _writable(name), _writable(text)
        chunks = list(chunk_blocks([Block(part, "", "") for part in text.split("\n\n") if part.strip()]))
        row, vectors, within = embed_text(name, text, chunks, self.embed)
        self._index.put(row, chunks, vectors, within)
        return len(chunks)

    def remove(self, *paths: str | Path) -> list[str]:
        """Remove these files, and all files in these folders. Return the paths that were removed."""
        gone = self._index.below(*paths)
        self._index.remove(gone)
        return gone

    def cited(self, key: str) -> Hit:
        """Return the passage that a citation such as `[rules.md#3]` names. Raises `ConfigError` if there is no such passage."""
        return find_cited(key, self._index)

    def search(self, query: str, top_k: int = 5, *, least: float = 0.0, apart: float = 0.0) -> list[Hit]:
        """Return the passages that fit best: those that share words with the question, and those with a similar meaning.

        Args:
            query: The question.
            top_k: The largest number of passages. Default: 5.
            least: Leave out passages that are less near to the question; see `near`.
            apart: Return nothing unless the nearest passage stands out by this much; see `margin`.

        Raises:
            ConfigError: The question is empty, or `top_k` is less than 1.
        """
        query = _writable(query.strip()[:_LONGEST_QUESTION])
        if not query:
            raise ConfigError.of("search.question_empty", "the question is empty")
        if top_k < 1:
            raise ConfigError.of("search.top_k", "top_k must be at least 1, not {top_k!r}", top_k=top_k)
        return self.search_vector(query, self.embed([query], zeros=True)[0], top_k, least, apart)

    def search_vector(self, query: str, vector: object, top_k: int, least: float = 0.0, apart: float = 0.0) -> list[Hit]:
        """Search as `search` does, with a question that is already embedded."""
        scores, similar = self.score(query, vector)
        near = self.near(query, similar) if least or apart else {}
        if apart and self.margin(near, vector) < apart:
            return []
        scores = {number: one for number, one in scores.items() if near[number] >= least} if least else scores
        hits: list[Hit] = []
        shown: set[int] = set()
        for number in rank(scores):
            if number in shown:  # part of a better one
                continue
            passage = [one for one in self._index.around(number) if one.id not in shown]  # a neighbour of two is shown once
            shown |= {one.id for one in passage}
            hits += [hit(self._index, number, passage, scores[number], similar[number])] if passage else []
            if len(hits) == top_k:
                break
        return hits

    def score(self, query: str, vector: object) -> tuple[dict[int, float], dict[int, float]]:
        """Return the scores of the candidate chunks, and their cosines."""
        return score(self._index, query, vector, lambda text: self.embed([text], zeros=True)[0])

    def near(self, query: str, similar: dict[int, float]) -> dict[int, float]:
        """Return the nearness of chunks to a question: the cosine, and part of the share of the question's words.

        It does not depend on other chunks. Scores do, and serve only for ranking.
        """
        shares = self._index.sharing_words_with(query)
        return {number: cosine + _SHARED * shares.get(number, 0.0) for number, cosine in similar.items()}

    def margin(self, near: dict[int, float], vector: object) -> float:
        """Return the difference between the nearness of the nearest chunk and the question's usual nearness to a chunk."""
        return max(near.values(), default=0.0) - _USUAL * self._index.usual(vector)

    def renew(self, most: int | None = None) -> int:
        """Embed the sentences of chunks that an older kaname stored without them.

        Args:
            most: The largest number of chunks. Default: all.

        Returns:
            The number of renewed chunks. If embedding fails, those that were renewed before stay.
        """
        done = 0
        while most is None or done < most:
            old = self._index.without_sentences(_AT_ONCE if most is None else min(_AT_ONCE, most - done))
            if not old:
                break
            parts = {number: sentences(text) for number, text in old}
            flat = [one for several in parts.values() for one in several]
            made = iter(self.embed(flat, zeros=True) if flat else ())
            self._index.add_sentences({number: [next(made) for _ in several] for number, several in parts.items()})
            done += len(old)
        return done

    def embed(self, texts: list[str], *, zeros: bool = False) -> Any:
        """Embed texts with the pipeline's embeddings. `zeros`: accept vectors that are zero."""
        return check_vectors(self._embeddings.embed(texts), self._embeddings.name, len(texts), zeros=zeros)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the problem is reported when the file is read
        return 0


def _writable(text: str) -> str:
    """Replace lone surrogates, which broken JSON can contain: they cannot be stored."""
    return text.encode("utf-8", "replace").decode()


def default_index() -> Path:
    """Return the program's index file: `KANAME_DOCS`, or `docs.db` in the project's or the user's state folder."""
    if given := os.environ.get("KANAME_DOCS"):
        return Path(given)
    return Path(state_path("docs.db"))
