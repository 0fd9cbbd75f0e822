"""Cite a passage: `[rules.md#3]`, the shortest unique end of the path, and the number of the chunk."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

from ...core.errors import ConfigError
from ...core.notices import notice
from .index import Index, Stored

_KEY = re.compile(r"(.+?)[ \t]*[#＃](\d+)\s*", re.DOTALL)


class Hit(NamedTuple):
    """A passage: the chunk that was found, with its neighbours. `similarity`: the cosine; `score`: with the words that fit.

    `source` is the whole path, `name` as much of it as tells it apart; `found` the chunk itself."""

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
        """The same in every run, until the file has changed or another one of its name is added or removed."""
        return f"[{self.name or self.source}#{self.chunk}]"

    @property
    def citation(self) -> str:
        return f"{self.source}#{self.chunk} ({', '.join([part for part in (self.heading, self.place) if part])})"


def hit(index: Index, number: int, passage: list[Stored], score: float, similarity: float) -> Hit:
    found = next(one for one in passage if one.id == number)
    text = "\n".join([one.text for one in passage])
    name = short_name(found.path, index)
    return Hit(text, found.path, found.heading, found.place, found.number, score, similarity, name, found.text)


def short_name(path: str, index: Index) -> str:
    """A README says more with its folder."""
    whole = _normal(path)
    parts = whole.split("/")[1:]
    others = [_normal(other) for other in index.same_name(path) if other != path]
    least = 2 if parts[-1].lower().startswith(("readme", "index")) else 1
    for count in range(least, len(parts)):
        end = "/".join(parts[-count:])
        if not any(other.endswith("/" + end) for other in others):
            return end
    return whole[0 if path.startswith("/") else 1 :]


def _normal(path: str) -> str:
    """With slashes, one before it too, and letters as they are typed: file systems may keep their dots apart."""
    return "/" + unicodedata.normalize("NFC", path.replace(os.sep, "/")).lstrip("/")


def cited(key: str, index: Index) -> Hit:
    """The passage that a citation means."""
    found = _KEY.fullmatch(_bare(key))
    if found is None:
        raise ConfigError(notice("search.citation_form", "a citation is like [rules.md#3], not {key!r}", key=key))
    path = document(found[1], index)
    number = index.numbered(path, int(found[2]))
    passage = index.around(number) if number is not None else []
    if number is None or not passage:
        raise ConfigError(
            notice(
                "search.no_passage",
                "{paths} has no passage {found}; it may have changed since it was cited",
                paths=path,
                found=found[2],
            )
        )
    return hit(index, number, passage, 0.0, 0.0)


def document(name: str, index: Index) -> str:
    """Return the path of the file that a name means: a whole path, or as much of its end as tells it apart.

    A citation of one of its passages names it as well. Raises `ConfigError` if the name fits no file, or several.
    """
    paths = _named(name, index)
    if not paths and (cites := _KEY.fullmatch(_bare(name))) is not None:
        paths = _meant(cites[1], index)
    if not paths:
        others = index.same_name(name)
        there = notice("search.there_is", "; there is {names}", names=", ".join(others)) if others else ""
        raise ConfigError(notice("search.no_document", "no document {found} in {path}", found=name, path=index.path) + there)
    if len(paths) > 1:
        raise ConfigError(notice("search.which_one", "which one: {names}?", names=", ".join(paths)))
    return paths[0]


def whole_document(name: str, index: Index) -> str:
    """The same, for something that is done to a whole file: a citation of one passage is refused, with the name of its file."""
    path = document(name, index)
    if not _named(name, index):
        raise ConfigError(
            notice(
                "search.whole_file",
                "{name} is one passage of {path}; only whole files can be removed: {file}",
                name=name,
                path=path,
                file=short_name(path, index),
            )
        )
    return path


def _bare(key: str) -> str:
    """Without the brackets around it."""
    bare = key.strip()
    return bare[1:-1] if bare.startswith("[") and bare.endswith("]") else bare.removesuffix("]")


def _named(name: str, index: Index) -> list[str]:
    return _meant(name, index) or _meant(name.strip().removeprefix("["), index)


def _meant(name: str, index: Index) -> list[str]:
    """A whole path, or the end of one."""
    named = index.same_name(name)
    wanted = {_normal(name), _normal(str(Path(name).expanduser().resolve()))}
    return [path for path in named if _normal(path) in wanted] or [
        path for path in named if _normal(path).endswith(_normal(name))
    ]
