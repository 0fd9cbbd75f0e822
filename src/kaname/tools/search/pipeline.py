"""`RAGPipeline`: documents in, passages out. Words and meaning are looked up side by side, and their scores are fused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.notices import notice
from ...core.project import state_path
from .chunk import chunked
from .cite import Hit, cited, hit
from .embed import Embeddings, checked, embeddings_for
from .folders import Looked
from .index import FileRow, Index
from .ingest import Added, Adding, Progress, of_text
from .rank import ranked, score
from .readers.base import Block
from .sentences import sentences

__all__ = ["Added", "Hit", "Progress", "RAGPipeline", "default_index"]
_AT_ONCE = 32  # chunks of an older index whose sentences are embedded together
_LONGEST_QUESTION = 2_000  # characters; the rest says nothing new


class RAGPipeline:
    """`index`: a file, by default in the user's data folder (`KANAME_DOCS`); with `new=False` it must be there already.

    `embeddings`: `local`, `openai/MODEL`, or an object with a name and `embed(texts)`; by default those that the index was made
    with, or `local`."""

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
        return self._index.path

    def close(self) -> None:
        self._index.close()

    def __len__(self) -> int:
        """In chunks."""
        return len(self._index)

    def files(self) -> list[FileRow]:
        return self._index.files()

    def some_paths(self, most: int) -> tuple[list[str], int]:
        """The first so many of its files, and how many there are."""
        return self._index.some_paths(most)

    def add(self, *paths: str | Path, progress: Progress | None = None, forget: bool = False) -> Added:
        """Files, and folders with all that is in them. What has not changed is passed over; what is gone is forgotten.

        What cannot be looked into is not gone, nor is what stood in a folder that is missing or completely empty now: that is a
        problem, and what is known is kept, unless `forget`. If embedding fails, what was added before stays."""
        looked = Looked({row.path for row in self._index.files()}, forget)
        looked.look([Path(os.path.realpath(Path(given).expanduser())) for given in paths])
        adding = Adding(self._index, self.embedded, progress, len(looked.files))
        for path in sorted(looked.files, key=_size):  # a huge one holds up nobody but itself
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
        """A text that is no file; how many chunks it became."""
        name, text = _writable(name), _writable(text)
        chunks = list(chunked([Block(part, "", "") for part in text.split("\n\n") if part.strip()]))
        row, vectors, within = of_text(name, text, chunks, self.embedded)
        self._index.put(row, chunks, vectors, within)
        return len(chunks)

    def remove(self, *paths: str | Path) -> list[str]:
        """Remove these files, and all files in these folders. Return the paths that were removed."""
        gone = self._index.below(*paths)
        self._index.remove(gone)
        return gone

    def cited(self, key: str) -> Hit:
        """The passage that a citation means: `[rules.md#3]`."""
        return cited(key, self._index)

    def search(self, query: str, top_k: int = 5) -> list[Hit]:
        """The passages that fit best: those that share words with the question, and those that mean the same."""
        query = _writable(query.strip()[:_LONGEST_QUESTION])
        if not query:
            raise ConfigError(notice("search.question_empty", "the question is empty"))
        if top_k < 1:
            raise ConfigError(notice("search.top_k", "top_k is a number from 1 up, not {top_k!r}", top_k=top_k))
        return self.found(query, self.embedded([query], zeros=True)[0], top_k)

    def found(self, query: str, vector: object, top_k: int) -> list[Hit]:
        scores, similar = self.scored(query, vector)
        hits: list[Hit] = []
        shown: set[int] = set()
        for number in ranked(scores):
            if number in shown:  # part of a better one
                continue
            passage = [one for one in self._index.around(number) if one.id not in shown]  # a neighbour of two is shown once
            shown |= {one.id for one in passage}
            hits += [hit(self._index, number, passage, scores[number], similar[number])] if passage else []
            if len(hits) == top_k:
                break
        return hits

    def scored(self, query: str, vector: object) -> tuple[dict[int, float], dict[int, float]]:
        """The scores of chunks, and their cosines."""
        found = score(self._index, query, vector)
        return found.score, found.cosine

    def renew(self, most: int | None = None) -> int:
        """Embed the sentences of chunks that an older kaname had stored without, at most so many (default: all).

        Returns how many chunks were renewed. If embedding fails, what was renewed before stays."""
        done = 0
        while most is None or done < most:
            old = self._index.without_sentences(_AT_ONCE if most is None else min(_AT_ONCE, most - done))
            if not old:
                break
            parts = {number: sentences(text) for number, text in old}
            flat = [one for several in parts.values() for one in several]
            made = iter(self.embedded(flat, zeros=True) if flat else ())
            self._index.add_sentences({number: [next(made) for _ in several] for number, several in parts.items()})
            done += len(old)
        return done

    def embedded(self, texts: list[str], *, zeros: bool = False) -> Any:
        return checked(self._embeddings.embed(texts), self._embeddings.name, len(texts), zeros=zeros)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # what is wrong with it is told when it is read
        return 0


def _writable(text: str) -> str:
    """Halves of letters, as broken JSON has them, cannot be stored."""
    return text.encode("utf-8", "replace").decode()


def default_index() -> Path:
    if given := os.environ.get("KANAME_DOCS"):
        return Path(given)
    return Path(state_path("docs.db"))
