"""Find names in a question and in a call: words that are quoted, capitalised, or written in katakana."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ...core.sentences import begins_sentence

_QUOTED = re.compile(
    r"(?<!\w)'([^'\n]{2,60})'(?!\w)|\"([^\"\n]{2,60})\"|‘([^’\n]{2,60})’|“([^”\n]{2,60})”|「([^」\n]{1,60})」|『([^』\n]{1,60})』"
)
_CAPITALISED = re.compile(r"\b[A-Z][a-z]\w*(?:[ -][A-Z][a-z]\w*)*")
_KATAKANA = re.compile(r"[ァ-ヺ][ァ-ヺー・]{2,}")
_WORD = re.compile(r"[^\W\d_]{3,}|[぀-ヿ㐀-鿿]+")


def quoted_names(text: str) -> list[str]:
    return [str(next(filter(None, found.groups()))) for found in _QUOTED.finditer(text)]


def named_in(question: str) -> list[str]:
    """Return the names of a question, each once."""
    return list(dict.fromkeys([*quoted_names(question), *_capitalised_names(question), *_KATAKANA.findall(question)]))


def _capitalised_names(text: str) -> Iterator[str]:
    """Yield capitalised words in a row. The first word of a sentence does not count."""
    for found in _CAPITALISED.finditer(text):
        name = found[0]
        if begins_sentence(text, found.start()):
            _, _, name = name.partition(" ")
        if name:
            yield name


class KnownNames:
    """Texts in which names are looked up, ignoring case."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = "\n".join(texts).casefold()

    def has(self, name: str) -> bool:
        """Return True if the name, or one of its words, is in the texts."""
        words = _words(name)
        return not words or any(word in self._text for word in words)

    def has_all(self, name: str) -> bool:
        """Return True if every word of the name is in the texts."""
        return all(word in self._text for word in _words(name))

    def unknown(self, args: Any) -> str:
        """Return the first name in the arguments of a call that is not in the texts: a literal, or capitalised words."""
        for text in _texts(args):
            literals = [literal.strip("%_ ") for literal in quoted_names(text) if not self.has_all(literal)]
            others = [found[0] for found in _CAPITALISED.finditer(text) if not self.has(found[0])]
            if literals or others:
                return (literals or others)[0]
        return ""


def _words(name: str) -> list[str]:
    return _WORD.findall(name.casefold())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for held in value.values():
            yield from _texts(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _texts(held)
