"""The user's words: which values and which tools they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

from ....core.sentences import sentence_ends
from ...content.guardrails.folded import fold_text
from .dates import Moments, moments_in
from .mood import UserSentence, ask_for, sentences_in
from .numbers import numbers_in

_NEGATED = re.compile(
    r"\b(?:not|never|without|except|neither|nor|cannot)\b|n['’]t\b|\bno\b(?!\s*[.:#\d])"
    r"|ない|なく|ません|ずに|以外|除[いきく]|禁止|やめ|なし",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|「[^」]*」|『[^』]*』")
_POLITE = re.compile(r"(?<=[てで])(?:くれ|もらえ|いただけ|頂け)(?:ない|ません)(?=か|の?\?|でしょうか)")  # 送ってくれない?
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_JOINTS = "@.-+/\\=&%?#~_'"  # they join two pieces to one name, if both sides stand close to them
_AFTER = ("さん", "ちゃん", "くん", "に", "を", "へ", "と", "が", "は", "の", "で", "も", "や", "から", "まで", "より", "って")
_BEFORE = "にをへとがはのでもや"
_TITLES = ("様", "氏", "君", "殿", "先生", "部長", "課長", "社長", "宛")
_EXACT = re.compile(r"[\d./\\_]")  # in names like this, the case of a letter may matter
_ADDRESS = re.compile(  # of a page or a host
    r"(?P<scheme>https://)?(?P<place>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::\d+)?(?P<path>/?[?#]\S+|/[^\s?#]*[?#]\S+|/[^\s?#]*[^\s?#/])?)/?"
)
_FILE = re.compile(r"\.(?:zip|mov|md|py|sh|rs|pl|ps|ml|cc|so|\d+)$", re.IGNORECASE)  # files and versions end so, and some hosts
_NAMES = re.compile(
    r"[\"“「『']([^\"”」』'\n]{2,60})[\"”」』']"
    r"|([A-ZÀ-Þ][0-9A-Za-zÀ-ɏ'’-]*(?:\s+[A-ZÀ-Þ][0-9A-Za-zÀ-ɏ'’-]*)*)"
    r"|([一-鿿々]{2,})|([ァ-ヶー]{2,})|([0-9A-Za-z.+_-]+@[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)+)"
)


class UserWords:
    """What the user has said. Sentences with a negation are left out: they name what is not wanted."""

    def __init__(self, texts: Iterable[str], now: float) -> None:
        self._texts, self._now = tuple(texts), now
        self._told = [fold_text(sentence) for text in self._texts for sentence in _sentences(text)]
        said = [" ".join(sentence.split()) for sentence in self._told]
        self._text = "\n".join([sentence for sentence in said if not _is_negated(sentence)])
        self._lower = self._text.lower()
        self._negated = "\n".join([sentence.lower() for sentence in said if _is_negated(sentence)])

    @cached_property
    def _wishes(self) -> list[UserSentence]:
        """Return the sentences that can ask for something, without what they quote."""
        told = [sentence for sentence in self._told if not _is_negated(sentence)]
        return [one for sentence in told for one in sentences_in(_QUOTED.sub('""', sentence))]

    @cached_property
    def _moments(self) -> Moments:
        return moments_in(self._text, self._now)

    @cached_property
    def _numbers(self) -> set[float]:
        return numbers_in(self._moments.rest)

    @cached_property
    def names(self) -> list[str]:
        """Return possible names in the user's words: quoted, capitalized, in kanji or katakana, or addresses."""
        found = [next(filter(None, one)) for one in _NAMES.findall(self._text)]
        return list(dict.fromkeys([_without_title(name) for name in found]))

    def has(self, value: Any) -> bool:
        """Return True if the user has named this value: as whole words, a number or a date."""
        if isinstance(value, bool):
            return False
        if isinstance(value, int | float):
            return float(value) in self._numbers
        text = " ".join(str(value).split())
        if fold_text(text) != text:  # an unusual spelling is somebody else's
            return False
        if _NUMBER.fullmatch(text) and not (text.startswith("0") and text.isdigit()):
            return float(text.replace(",", "")) in self._numbers
        moment = self._moments.has(text)
        return self._stands(text) if moment is None else moment

    def _stands(self, text: str) -> bool:
        if len(text) < 2 and not _is_kanji(text):
            return False
        if match := _ADDRESS.fullmatch(text):
            exact = bool(match["path"]) or not match["scheme"]
            return any(self._stands_as(one, exact=exact) for one in _spellings(match))
        return self._stands_as(text, exact=_EXACT.search(text) is not None and "@" not in text)

    def _stands_as(self, text: str, *, exact: bool) -> bool:
        return stands_in(text, self._text) if exact else stands_in(text.lower(), self._lower)

    def call_for(self, verbs: Iterable[str]) -> bool:
        """Return True if a sentence requests one of these verbs, and none of them stands beside a negation."""
        verbs = [verb.lower() for verb in verbs if verb]
        return ask_for(self._wishes, verbs) and not any(_verb_pattern(verb).search(self._negated) for verb in verbs)

    def requests_for(self, verbs: Iterable[str]) -> UserWords | None:
        """Return the messages that request one of these verbs and those that ask for nothing; None if no message does.

        What the user names in a message that asks only for something else is not meant for this request.
        """
        verbs = [*verbs]
        if not self.call_for(verbs):
            return None
        if len(self._texts) == 1:
            return self
        messages = [UserWords([text], self._now) for text in self._texts]
        meant = [one for one in messages if one.call_for(verbs) or not any(wish.asks_something for wish in one._wishes)]
        return self if len(meant) == len(messages) else UserWords([text for one in meant for text in one._texts], self._now)


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text. What is quoted stays whole."""
    quoted = [found.span() for found in _QUOTED.finditer(text)]
    ends = [end for _, end in sentence_ends(text, wrapped=True)]
    cuts = [0, *[end for end in ends if not any(start < end < stop for start, stop in quoted)], len(text)]
    return [text[start:stop] for start, stop in pairwise(cuts)]


def _is_negated(sentence: str) -> bool:
    """Return True if a sentence says what is not wanted. A word in a quotation or a polite question does not."""
    return bool(_NEGATED.search(_POLITE.sub(" ", _QUOTED.sub(" ", sentence))))


def stands_in(value: str, text: str) -> bool:
    """Return True if a value stands in a text as whole words."""
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if _ends_at(text, at, -1) and (_ends_at(text, end, 1) or text.startswith((*_TITLES, *_AFTER), end)):
            return True
        at = text.find(value, at + 1)
    return False


def _ends_at(text: str, place: int, step: int) -> bool:
    """Return True if a word ends at the boundary before `place`, seen from inside in the direction of `step`."""
    inside, outside = (place, place - 1) if step < 0 else (place - 1, place)
    if not 0 <= outside < len(text):
        return True
    edge, near, far = text[inside], text[outside], text[outside + step : outside + step + 1] if outside + step >= 0 else ""
    if near == " " and edge.isalnum() and far.isdigit() and _has_digit(text, inside):  # one number in groups
        return False
    if near in _JOINTS and not (near == "'" and step > 0):
        return not _is_latin(far)
    if edge in "/\\" and _is_latin(near):  # a folder, and what is in it
        return False
    if near in ",:" and edge.isdigit():
        return not far.isdigit()
    if _is_hiragana(edge) and (_is_hiragana(near) or _is_kanji(near)):  # a particle may stand there
        return step < 0 and near in _BEFORE
    return not any(same(edge) and same(near) for same in (_is_latin, _is_kanji, _is_katakana))


def _has_digit(text: str, place: int) -> bool:
    """Return True if the word at a place has a digit."""
    start, end = text.rfind(" ", 0, place) + 1, text.find(" ", place)
    return any(char.isdigit() for char in text[start : end if end >= 0 else None])


def _spellings(address: re.Match[str]) -> list[str]:
    """Return the spellings of the address of a page or a host: with or without https:// and a slash at its end."""
    place, path = address["place"], address["path"] or ""
    if _FILE.search(place) and not path:
        return [address[0]]
    return [
        f"{scheme}{place}{slash}"
        for scheme in ("", "https://")
        for slash in (("",) if "?" in path or "#" in path else ("", "/"))
    ]


def _is_latin(char: str) -> bool:
    """Return True for letters and digits of scripts that put spaces between words."""
    return bool(char) and char.isalnum() and not (_is_kanji(char) or _is_katakana(char) or _is_hiragana(char))


def _is_kanji(char: str) -> bool:
    return len(char) == 1 and ("一" <= char <= "鿿" or char == "々")


def _is_hiragana(char: str) -> bool:
    return len(char) == 1 and "ぁ" <= char <= "ゖ"


def _is_katakana(char: str) -> bool:
    return len(char) == 1 and ("ァ" <= char <= "ヺ" or char == "ー")


def _without_title(name: str) -> str:
    for title in _TITLES:
        if name.endswith(title) and len(name) > len(title):
            return name.removesuffix(title)
    return name


def _verb_pattern(verb: str) -> re.Pattern[str]:
    """Return a pattern for a verb and its regular forms. In Japanese it is the stem, anywhere."""
    if not verb.isascii():
        return re.compile(re.escape(verb))
    stem = re.escape(verb.removesuffix("e")) if verb.endswith("e") else re.escape(verb)
    last = re.escape(verb[-1])
    forms = rf"{re.escape(verb)}(?:s|es|d|ed|ing)?|{stem}(?:ing|ed)|{re.escape(verb)}{last}(?:ing|ed)"
    return re.compile(rf"\b(?:{forms})\b")


def leaves(value: Any) -> list[Any]:
    """Return the texts, numbers and truth values in an argument."""
    return [one for _, one in named_leaves("", value)]


def named_leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the texts, numbers and truth values in an argument, with their names. What is empty is nobody's.

    The keys of an object are values, too.
    """
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield name, key
            yield from named_leaves(f"{name}.{key}", one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from named_leaves(name, one)
    elif value is not None and value != "":
        yield name, value
