"""Cite a passage: `[rules.md#3]`, the shortest unique end of the path, and the number of the chunk."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

from ...core.errors import ConfigError
from ...core.notices import notice
from .index import Index, StoredChunk

_KEY = re.compile(r"(.+?)[ \t]*[#＃](\d+)\s*", re.DOTALL)


class Hit(NamedTuple):
    """A passage: the chunk that was found, with its neighbours.

    `score`: the similarity combined with the share of matching words; `similarity`: the cosine. `source`: the whole path;
    `name`: the shortest end of it that is unique; `found`: the text of the chunk itself."""

    text: str
    source: str
    heading: str
    place: str
    chunk: int
    score: float
    similarity: float
    name: str = ""
    found: str = ""

    @property
    def cite(self) -> str:
        """The citation, such as `[rules.md#3]`.

        It stays the same until the file changes, or another file of its name is added or removed."""
        return f"[{self.name or self.source}#{self.chunk}]"

    @property
    def citation(self) -> str:
        """The whole path with heading and place, for people: `/docs/rules.md#3 (Refunds, line 12)`."""
        return f"{self.source}#{self.chunk} ({', '.join([part for part in (self.heading, self.place) if part])})"


def hit(index: Index, number: int, passage: list[StoredChunk], score: float, similarity: float) -> Hit:
    found = next(one for one in passage if one.id == number)
    text = "\n".join([one.text for one in passage])
    name = short_name(found.path, index)
    return Hit(text, found.path, found.heading, found.place, found.number, score, similarity, name, found.text)


def short_name(path: str, index: Index) -> str:
    """Return the shortest end of the path that is unique in the index. README and index files keep their folder."""
    whole = _normalize(path)
    parts = whole.split("/")[1:]
    others = [_normalize(other) for other in index.same_name(path) if other != path]
    least = 2 if parts[-1].lower().startswith(("readme", "index")) else 1
    for count in range(least, len(parts)):
        end = "/".join(parts[-count:])
        if not any(other.endswith("/" + end) for other in others):
            return end
    return whole[0 if path.startswith("/") else 1 :]


def _normalize(path: str) -> str:
    """Return the path with slashes, a leading slash, and composed (NFC) letters: some file systems store accents separately."""
    return "/" + unicodedata.normalize("NFC", path.replace(os.sep, "/")).lstrip("/")


def find_cited(key: str, index: Index) -> Hit:
    """Return the passage that a citation names. Raises `ConfigError` if it is malformed or names no stored passage."""
    match = _KEY.fullmatch(_strip_brackets(key))
    if match is None:
        raise ConfigError.of("search.citation_form", "a citation must look like [rules.md#3], not {key!r}", key=key)
    path = document(match[1], index)
    number = index.chunk_id(path, int(match[2]))
    passage = index.around(number) if number is not None else []
    if number is None or not passage:
        raise ConfigError.of(
            "search.no_passage",
            "{paths} has no passage {found}; it may have changed since it was cited",
            paths=path,
            found=match[2],
        )
    return hit(index, number, passage, 0.0, 0.0)


def document(name: str, index: Index) -> str:
    """Return the path of the file that a name refers to: a whole path, or an end of one that is unique.

    A citation of one of its passages is accepted as well. Raises `ConfigError` if the name matches no file, or several."""
    paths = _paths_named(name, index)
    if not paths and (cites := _KEY.fullmatch(_strip_brackets(name))) is not None:
        paths = _match_paths(cites[1], index)
    if not paths:
        others = index.same_name(name)
        there = notice("search.there_is", "; files of that name: {names}", names=", ".join(others)) if others else ""
        raise ConfigError(notice("search.no_document", "{path} has no document {found}", found=name, path=index.path) + there)
    if len(paths) > 1:
        raise ConfigError.of(
            "search.which_one", "several documents match: {names}. Give the full path of one", names=", ".join(paths)
        )
    return paths[0]


def whole_document(name: str, index: Index) -> str:
    """Return the path of a file that is to be handled as a whole.

    Like `document`, but raises `ConfigError` for a citation of a single passage; the error names the passage's file."""
    path = document(name, index)
    if not _paths_named(name, index):
        raise ConfigError.of(
            "search.whole_file",
            "{name} is one passage of {path}, and only whole files can be removed. Use: {file}",
            name=name,
            path=path,
            file=short_name(path, index),
        )
    return path


def _strip_brackets(key: str) -> str:
    bare = key.strip()
    return bare[1:-1] if bare.startswith("[") and bare.endswith("]") else bare.removesuffix("]")


def _paths_named(name: str, index: Index) -> list[str]:
    return _match_paths(name, index) or _match_paths(name.strip().removeprefix("["), index)


def _match_paths(name: str, index: Index) -> list[str]:
    """Return the stored paths that are equal to this name, or, if there are none, those that end with it."""
    named = index.same_name(name)
    wanted = {_normalize(name), _normalize(str(Path(name).expanduser().resolve()))}
    return [path for path in named if _normalize(path) in wanted] or [
        path for path in named if _normalize(path).endswith(_normalize(name))
    ]
