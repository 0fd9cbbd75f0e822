"""`find_names`: find names of people, in Japanese by a dictionary of words and in Latin letters by lists of names.

It needs the extra `names`. Nothing is downloaded, and the dictionary is loaded when the first Japanese text is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

import regex

from ...core.errors import ConfigError
from ...core.install import install_command
from ...core.notices import notice
from .latin_names import find_latin_names

_JAPANESE = regex.compile(r"[\p{Hiragana}\p{Katakana}\p{Han}]")
_SENTENCES = regex.compile(r"[^\n。]{0,5000}[\n。]?")  # the dictionary takes 49 KB at once
_HONORIFICS = frozenset(["さん", "さま", "様", "氏", "君", "くん", "ちゃん", "先生", "殿"])
_LONGEST_GIVEN = 3  # characters of a word that can be a given name after a family name and a blank


class _TaggedWord(NamedTuple):
    start: int
    end: int
    text: str
    tags: tuple[str, ...]  # the part of speech: 名詞, 固有名詞, 人名, 姓

    @property
    def is_noun(self) -> bool:
        return self.tags[0] == "名詞"

    @property
    def is_proper(self) -> bool:
        return self.tags[1] == "固有名詞"

    @property
    def is_name(self) -> bool:
        return self.tags[2] == "人名"

    @property
    def is_family_name(self) -> bool:
        return self.tags[3] == "姓"


class FindNames:
    """A detector of names of people, for `Privacy(detectors=[find_names])`. It finds data of the kind `person`.

        Privacy({"person": "pseudonymise"}, detectors=[find_names])

    It needs the extra `names`. Found are Japanese names, and names in Latin letters that have a given name and a family name,
    or follow a title or a greeting. A given name alone in an English sentence is not found.
    """

    __name__ = "find_names"

    def __init__(self) -> None:
        self._lock = Lock()  # a tokenizer works on one text at a time

    def check(self) -> None:
        """Check that the packages are installed. Raises `ConfigError`."""
        missing = [name for name in ("sudachipy", "sudachidict_small", "faker") if find_spec(name) is None]
        if missing:
            raise ConfigError(
                notice(
                    "privacy.no_names",
                    "find_names needs packages that are not installed ({missing}). Install them with: {how}",
                    missing=", ".join(missing),
                    how=install_command("names"),
                )
            )

    def __call__(self, text: str) -> list[tuple[int, int, str]]:
        found = find_latin_names(text)
        if _JAPANESE.search(text) is not None:
            found += [(start, end, "person") for start, end in _japanese_names(self._words(text))]
        return found

    def _words(self, text: str) -> list[_TaggedWord]:
        """Return the words of a text with their parts of speech."""
        made = []
        for piece in _SENTENCES.finditer(text):
            if _JAPANESE.search(piece[0]) is not None:
                with self._lock:
                    words = [(one.begin(), one.end(), one.surface(), one.part_of_speech()) for one in self._tokenize(piece[0])]
                begins = piece.start()
                made += [_TaggedWord(begins + start, begins + end, said, tags) for start, end, said, tags in words]
        return made

    @cached_property
    def _tokenize(self) -> Any:
        from sudachipy import Dictionary

        return Dictionary(dict="small").tokenizer().tokenize


def _japanese_names(words: list[_TaggedWord]) -> Iterator[tuple[int, int]]:
    place = 0
    while place < len(words):
        last = _last_of_name(words, place) if words[place].is_proper else None
        if last is not None:
            yield words[place].start, words[last].end
        place = place + 1 if last is None else last + 1


def _last_of_name(words: list[_TaggedWord], place: int) -> int | None:
    """Return the last word of a name that begins here, or None.

    A name is a family name and a given name, or any name with an honorific after it; a family name stands alone where no other
    noun belongs to it, as in the name of a bank.
    """
    word, last = words[place], place
    blank = place + 1 < len(words) and words[place + 1].tags[0] == "空白" and len(words[place + 1].text) == 1
    if (at := place + 1 + blank) < len(words):
        given = words[at]
        fits = blank and given.is_noun and len(given.text) <= _LONGEST_GIVEN and _JAPANESE.search(given.text) is not None
        if (given.is_name and not given.is_family_name) or (fits and word.is_family_name):
            last = at
    following = words[last + 1] if last + 1 < len(words) else None
    if last > place or (following is not None and following.text in _HONORIFICS):
        return last
    joined = following is not None and following.is_noun and following.tags[1] != "数詞"
    return last if word.is_family_name and not joined and not (place and words[place - 1].is_proper) else None


find_names = FindNames()
