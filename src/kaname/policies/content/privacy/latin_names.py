"""Find names of people in Latin letters: a given name that a list knows, with the family name next to it.

The lists are those of Faker, for all languages, and are read when the first text with capitalised words is looked at. A given
name that several languages have may stand before a word that no list knows; a rare one only before a known family name. In
lower case both must be known, and neither an ordinary English word (also by Faker's list).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple
from unicodedata import normalize

import regex

_WORD = r"(?:\p{Lu}\.|\p{Lu}(?:\p{Latin}|\p{M})*+(?:['’\-]\p{Latin}++)*+)"
_BEGINS, _ENDS = r"(?<![\p{Latin}\p{Nd}_@./+\-])(?=\p{Latin})", r"(?![\p{Latin}\p{Nd}_@=]|[./-][\p{Latin}\p{Nd}])"
_RUN = regex.compile(rf"{_BEGINS}{_WORD}(?:[,.]? {_WORD})*{_ENDS}")
_SMALL = r"(?:\p{Latin}['’])?\p{Latin}(?:\p{Latin}|\p{M}){2,}+(?:['’\-]\p{Latin}++)*+"
_FIRST = regex.compile(rf"{_BEGINS}{_SMALL}(?= \p{{Latin}})")
_PAIR = regex.compile(rf"(?=\p{{Ll}}|{_SMALL} \p{{Ll}}){_SMALL} ({_SMALL}){_ENDS}")
_PIECE = regex.compile(_WORD)
_ROMAJI = regex.compile(r"(?i)(?:(?:[kstnhmrgzdbp]y?|[ywjf]|sh|ch|ts)?[aeiou]{1,2}|n)+")
_BEFORE_A_NAME = {"MR", "MRS", "MS", "MISS", "DR", "PROF", "SIR", "HI", "HELLO", "HEY", "DEAR"}
_OTHER_LETTERS = str.maketrans("øØłŁđĐ", "oOlLdD")  # which have no accent that could be taken off
_LONGEST = 4  # words of a name


class NameLists(NamedTuple):
    """Given and family names in capitals without accents. `common`: the given names that several languages have.

    `small_given` and `small_family`: those that are not also ordinary English words.
    """

    given: frozenset[str]
    common: frozenset[str]
    family: frozenset[str]
    small_given: frozenset[str]
    small_family: frozenset[str]


class _LatinWord(NamedTuple):
    start: int
    end: int
    text: str
    plain: str


def find_latin_names(text: str) -> list[tuple[int, int, str]]:
    """Return the places of names in a text."""
    found = [(start, end, "person") for run in _RUN.finditer(text) for start, end in _names_in(run[0], run.start())]
    return found + [(start, end, "person") for start, end in _small_names(text)]


def _small_names(text: str) -> Iterator[tuple[int, int]]:
    """Return the places of names in which a word is in lower case: a given name and a family name, both known."""
    for word in _FIRST.finditer(text):
        pair = _PAIR.match(text, word.start()) if _has(_lists().small_given, _plain(word[0])) else None
        if pair is not None and _has(_lists().small_family, _plain(pair[1])):
            yield pair.span()


def _names_in(run: str, begins: int) -> Iterator[tuple[int, int]]:
    words = [_LatinWord(one.start(), one.end(), one[0], _plain(one[0])) for one in _PIECE.finditer(run)]
    place, titled = 0, False
    while place < len(words):
        if words[place].plain in _BEFORE_A_NAME:
            place, titled = place + 1, True
            continue
        last = _last_after_title(run, words, place) if titled else _last_of_name(run, words, place)
        if last is not None:
            yield begins + words[place].start, begins + words[last].end
        place, titled = (place if last is None else last) + 1, False


def _last_after_title(run: str, words: list[_LatinWord], place: int) -> int | None:
    """Return the last word of the name that follows a title or a greeting: one known name is enough."""
    lists = _lists()
    if not _knows(lists.given, words[place]) and not _knows(lists.family, words[place]):
        return None
    for at in range(place + 1, min(len(words), place + _LONGEST)):
        if _gap(run, words, at) != " " or (words[at].text.isupper() and len(words[at].plain) > 1):
            return at - 1
    return min(len(words), place + _LONGEST) - 1


def _last_of_name(run: str, words: list[_LatinWord], place: int) -> int | None:
    """Return the last word of a name that begins here, or None."""
    lists, word = _lists(), words[place]
    if place + 1 >= len(words):
        return None
    following = words[place + 1]
    gap = _gap(run, words, place + 1)
    if gap == ", " and not word.text.isupper() and _knows(lists.family, word) and _knows(lists.given, following):
        return place + 1  # Novak, Lucia
    last = _last_after_given(run, words, place) if _knows(lists.given, word) else None
    if last is None and gap == " " and not word.text.isupper() and _is_romaji(word) and _is_romaji(following):
        last = place + 1 if _knows(lists.family, word) or _knows(lists.family, following) else None
    return last


def _last_after_given(run: str, words: list[_LatinWord], place: int) -> int | None:
    """Return the last family name among the words that follow a given name, or None."""
    lists, word, last = _lists(), words[place], None
    for at in range(place + 1, min(len(words), place + _LONGEST)):
        one = words[at]
        if _gap(run, words, at) != " ":
            break
        unknown = at == place + 1 and not word.text.isupper() and not one.text.isupper() and len(one.plain) > 3
        if len(one.plain) > 1 and (_knows(lists.family, one) or (unknown and _knows(lists.common, word))):
            last = at
    return last


def _gap(run: str, words: list[_LatinWord], place: int) -> str:
    return run[words[place - 1].end : words[place].start]


def _is_romaji(word: _LatinWord) -> bool:
    return len(word.text) > 2 and _ROMAJI.fullmatch(word.text) is not None


def _knows(names: frozenset[str], word: _LatinWord) -> bool:
    return _has(names, word.plain)


def _has(names: frozenset[str], plain: str) -> bool:
    return plain in names or ("-" in plain and any(part in names for part in plain.split("-")))


def _plain(word: str) -> str:
    if not word.isascii():
        word = normalize("NFKD", word.translate(_OTHER_LETTERS)).encode("ascii", "ignore").decode()
    return word.upper().strip(".")


def _listed(names: Iterable[object]) -> set[str]:
    """Return the names of a list in their plain form, without those that are too short or have other characters."""
    plain = {_plain(one) for one in names if isinstance(one, str) and len(one) > 2}
    return {one for one in plain if len(one) > 2 and one.replace("-", "").replace("'", "").isalpha()}


@lru_cache(maxsize=1)
def _lists() -> NameLists:
    from faker.providers import person
    from faker.providers.lorem.en_US import Provider as EnglishWords

    given: dict[str, set[str]] = {}
    family: set[str] = set()
    for module in iter_modules(person.__path__):
        provider = import_module(f"{person.__name__}.{module.name}").Provider
        for key in dir(provider):
            if "name" not in key or not isinstance(names := getattr(provider, key), tuple | list | dict):
                continue
            listed = _listed(names)
            if "first" in key:
                for one in listed:
                    given.setdefault(one, set()).add(module.name[:2])
            elif "last" in key:
                family |= listed
    common = [name for name, languages in given.items() if len(languages) > 1]
    ordinary = {word.upper() for word in EnglishWords.word_list}
    held = given.keys(), common, family, given.keys() - ordinary, family - ordinary
    return NameLists(*[frozenset(names) for names in held])
