"""Tokenize for full-text search: every alphabet, without accents; pairs of letters for scripts without spaces."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise

from ...core.reading.lazy_regex import lazy_regex

_PAIRED = (  # Japanese and Chinese; Hangul; Thai, Lao, Burmese, Khmer
    "\u3040-\u30fa\u30fc-\u30ff\u3400-\u9fff\uf900-\ufaff々ー\U00020000-\U0003ffff"
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_SPACED = lazy_regex(rf"[^\W_{_PAIRED}]+(?:[._-][^\W_{_PAIRED}]+)*")
_RUN = lazy_regex(f"[{_PAIRED}]+")
_KANA = re.compile(r"[\u3040-\u30ffー]")
_SMALL = {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}  # which have no accent to lose
_JAPANESE = "です ます した して いる ある こと から まで ので など ない れる られ しま ませ って とい いう ため よう もの すか"
_ENDINGS = frozenset(_JAPANESE.split())
_WORDS = (
    "a an and are as at be by can could did do does for from had has have how i if in is it its may me my no not of on or "
    "our shall should so than that the their them there they this to us was we were what when where which who whom whose "
    "why will with would you your much many any am"
)
_OWNER = re.compile(r"['’]s\b")  # of `Tom's`, which would be a word of its own


def terms(text: str) -> list[str]:
    """Split a text into words, and Japanese into pairs of letters, except pairs of hiragana that many sentences end with."""
    text = "".join(map(_strip_accent, unicodedata.normalize("NFKC", text).casefold()))
    found = []
    for word in _SPACED.findall(text):
        found.append(_stem(word))
        if not word.isalnum():
            found += [_stem(part) for part in re.split(r"[._-]", word) if part]
    for run in _RUN.findall(text):
        found += [char for char in run if not _KANA.fullmatch(char)] if len(run) < 3 else []
        found += [a + b for a, b in pairwise(run) if a + b not in _ENDINGS]
    return found


@cache
def _strip_accent(char: str) -> str:
    """Remove the accent of a Latin, Greek or Cyrillic letter. Return "" for a combining mark, such as a vowel sign."""
    if char.isascii() or char in "\u3099\u309a":
        return char
    if unicodedata.category(char).startswith("M"):
        return ""
    if char < "\u0530" or "\u1e00" <= char <= "\u1fff":
        bare = "".join([one for one in unicodedata.normalize("NFKD", char) if not unicodedata.combining(one)])
        return _SMALL.get(bare, bare)
    return char


def _stem(word: str) -> str:
    """Cut off a plural or verb ending, so that different forms of a word are compared as equal. This is only approximate."""
    if len(word) < 4 or not word.isalpha():
        return word
    for ending, other in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + other
    return word.removesuffix("e") if len(word) > 4 else word


def query_terms(text: str) -> list[str]:
    """Return the terms of a question, each once, without the words that every question has."""
    return list(dict.fromkeys([term for term in terms(_OWNER.sub("", text)) if term not in _COMMON]))


_COMMON = frozenset(map(_stem, _WORDS.split()))
