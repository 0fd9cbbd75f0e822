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

from ....core.errors import ConfigError
from ....core.install import install_command
from .latin_names import find_latin_names

_JAPANESE = regex.compile(r"[\p{Hiragana}\p{Katakana}\p{Han}]")
_PIECES = regex.compile(r"[^\n。]{0,5000}[\n。]?")  # the dictionary takes 49 KB at once
_HONORIFICS = frozenset(["さん", "さま", "様", "氏", "君", "くん", "ちゃん", "先生", "殿"])
_KANA = r"[\p{Katakana}ーｰﾞﾟ]"
_KATAKANA = regex.compile(rf"{_KANA}+")
_GIVEN = regex.compile(rf"\p{{Han}}{{1,3}}(?!\p{{Han}})|{_KANA}{{2,6}}(?!{_KANA})")  # what can follow a family name and a blank
_JOINTS = frozenset("・･＝=")  # between the words of a foreign name in Katakana


_NOUN = ("名詞", "普通名詞", "一般", "*")
_WHOLE_NAME = ("名詞", "固有名詞", "人名", "一般")


class _TaggedWord(NamedTuple):
    start: int
    end: int
    text: str
    tags: tuple[str, ...]  # the part of speech: 名詞, 固有名詞, 人名, 姓
    known: bool = True  # by the dictionary

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

    @property
    def is_katakana(self) -> bool:
        return _KATAKANA.fullmatch(self.text) is not None

    @property
    def may_begin(self) -> bool:
        """Whether a name may begin here."""
        return self.is_proper or (self.is_katakana and not self.known)


class FindNames:
    """A detector of names of people, for `Privacy(detectors=[find_names])`. It finds data of the kind `person`.

        Privacy({"person": "pseudonymise"}, detectors=[find_names])

    It needs the extra `names`. It finds Japanese names, foreign names in Katakana, and names in Latin letters that have a
    given name and a family name, or follow a title or a greeting. It does not find a given name alone in an English sentence.

    Args:
        text: The text to search.

    Returns:
        For each name, its start, its end, and the kind "person".
    """

    __name__ = "find_names"

    def __init__(self) -> None:
        self._lock = Lock()  # a tokenizer works on one text at a time

    def check(self) -> None:
        """Check that the packages are installed. Raises `ConfigError`."""
        missing = [name for name in ("sudachipy", "sudachidict_small", "faker") if find_spec(name) is None]
        if missing:
            raise ConfigError.of(
                "privacy.no_names",
                "find_names needs packages that are not installed ({missing}). Install them with: {how}",
                missing=", ".join(missing),
                how=install_command("names"),
            )

    def __call__(self, text: str) -> list[tuple[int, int, str]]:
        found = find_latin_names(text)
        if _JAPANESE.search(text) is not None:
            found += [(start, end, "person") for start, end in _japanese_names(self._words(text))]
        return found

    def _words(self, text: str) -> list[_TaggedWord]:
        """Return the words of a text with their parts of speech."""
        made = list[_TaggedWord]()
        for piece in _PIECES.finditer(text):
            if _JAPANESE.search(piece[0]) is not None:
                begins = piece.start()
                with self._lock:
                    for one in self._tokenize(piece[0]):
                        start, end, tags = begins + one.begin(), begins + one.end(), one.part_of_speech()
                        _add(made, _TaggedWord(start, end, one.surface(), tags, not one.is_oov()))
        return made

    @cached_property
    def _tokenize(self) -> Any:
        from sudachipy import Dictionary

        return Dictionary(dict="small").tokenizer().tokenize


def _add(words: list[_TaggedWord], word: _TaggedWord) -> None:
    """Add a word. Katakana without a gap is one word: a name if it begins with a family name and ends with a given name."""
    last = words[-1] if words else None
    if last is None or last.end != word.start or not (last.is_katakana and word.is_katakana):
        words.append(word)
        return
    whole = last.may_begin and word.is_name and not word.is_family_name
    common = not (last.may_begin or word.may_begin)  # a compound of ordinary words
    words[-1] = _TaggedWord(last.start, word.end, last.text + word.text, _WHOLE_NAME if whole else _NOUN, whole or common)


def _japanese_names(words: list[_TaggedWord]) -> Iterator[tuple[int, int]]:
    place = 0
    while place < len(words):
        begins = words[place].may_begin or (words[place].is_katakana and _is_joint(words, place + 1))
        last = _last_of_name(words, place) if begins else None
        if last is not None:
            yield words[place].start, words[last].end
        place = place + 1 if last is None else last + 1


def _last_of_name(words: list[_TaggedWord], place: int) -> int | None:
    """Return the last word of a name that begins here, or None.

    A name is a family name and a given name, a foreign name in Katakana, or any name with an honorific after it; a family name
    stands alone where no other noun belongs to it, as in the name of a bank.
    """
    word = words[place]
    last = max(_last_of_foreign(words, place), _last_of_given(words, place))
    following = words[last + 1] if last + 1 < len(words) else None
    if last > place or word.tags is _WHOLE_NAME or (following is not None and following.text in _HONORIFICS):
        return last
    joined = following is not None and following.is_noun and following.tags[1] != "数詞"
    return last if word.is_family_name and not joined and not (place and words[place - 1].is_proper) else None


def _last_of_foreign(words: list[_TaggedWord], place: int) -> int:
    """Return the last of the words in Katakana that are joined as in a foreign name, if one of them is a name."""
    last = place
    while _is_joint(words, last + 1):
        last += 2
    return last if any(word.is_name for word in words[place : last + 1]) else place


def _is_joint(words: list[_TaggedWord], place: int) -> bool:
    return place + 1 < len(words) and words[place].text in _JOINTS and words[place + 1].is_katakana


def _last_of_given(words: list[_TaggedWord], place: int) -> int:
    """Return the last word of the given name after a word, or the place of the word."""
    blank = place + 1 < len(words) and words[place + 1].tags[0] == "空白" and len(words[place + 1].text) == 1
    at = place + 1 + blank
    if at < len(words) and words[at].is_name and not words[at].is_family_name:
        return at
    if not blank or not words[place].is_family_name:
        return place
    text = "".join([word.text for word in words[at : at + 4]])
    given = _GIVEN.match(text)
    ends = [n for n in range(at, min(at + 4, len(words))) if given and words[n].end - words[at].start == given.end()]
    return ends[0] if ends else place


find_names = FindNames()
