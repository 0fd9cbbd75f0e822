"""Detect the encoding of bytes: UTF-8 if it nearly fits, else the encoding whose result looks most like written text."""

from __future__ import annotations

import re
from contextlib import suppress

from ....core.notices import notice


class Unreadable(Exception):
    """The reason why no text can be read from a file."""


_LOOKED_AT = 4_096  # bytes, for whether it is text at all
_RUNS = 5_000  # of letters beyond ASCII, for which encoding it is
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x19\x1c-\x1f\x7f]")
_LONG = re.compile(rb"[\xe0-\xef][\x80-\xbf]{2}")
_BEYOND = re.compile(r"[^\x00-\x7f]+")
_NAMES = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252"}
_NAMES |= {"shift_jis": "cp932", "shift-jis": "cp932", "x-sjis": "cp932", "sjis": "cp932"}
_SIGNS = frozenset("°±×÷−℃′″→←↑↓○●◎□■△▲▽▼◇◆☆★※…‥§¶≦≧∞￥￠￡①②③④⑤")  # that Japanese texts are full of
_HALF_WIDTH, _ODD = re.compile("[\uff61-\uff9f]"), re.compile("[\ufffd\ue000-\uf8ff]")
_UNPRINTED = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\ue000-\uf8ff]")
_KANA_OR_SIGN = re.compile(f"[\u3000-\u30ff\uff01-\uff5e{''.join(_SIGNS)}]")
_USUAL = frozenset("£€°±½¼¾§©®™«»¿¡·“”„‘’–—…•²³µ×÷ºª\xa0")
_INSIDE = frozenset("’‘·–—…-\xa0")  # also between letters
_FEW = 4  # letters, which say little about the encoding
_PLAUSIBLE, _POSSIBLE = 0.4, 0.1  # scores of many letters and of some
_JUDGED = 20_000


def decode(data: bytes, declared: str = "") -> str:
    """Decode bytes of unknown encoding.

    `declared` is the encoding that the file itself names, which is often wrong. Raises `Unreadable` if the data is binary or no
    encoding is plausible."""
    if data[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return data.decode("utf-32", "replace")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if wide := _decode_utf32(data) or _decode_utf16(data):
        return wide
    _refuse_binary(data)
    if b"\x1b$" in data:
        return data.decode("iso2022_jp", "replace")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    if declared and not declared.lower().startswith("utf"):
        with suppress(LookupError, ValueError):
            return data.decode(_NAMES.get(declared.lower(), declared))
    return _decode_lines(data) or _decode_nearly_utf8(data) or _decode_likeliest(data)


def _decode_utf16(data: bytes) -> str:
    """Decode UTF-16 without a byte order mark, recognized by zero bytes (ASCII) or kana. Returns "" if it is not UTF-16."""
    seen = data[:_LOOKED_AT]
    zeros = seen[1::2].count(0), seen[::2].count(0)
    if len(data) % 2 or not (any(zeros) or _not_utf8(data)):
        return ""
    many, first = (10, "\u3000") if any(zeros) else (3, "\u3041")  # without any ASCII there must be more kana
    for encoding, expected in zip(("utf-16-le", "utf-16-be"), zeros, strict=True):
        with suppress(UnicodeDecodeError):
            text = seen.decode(encoding, "strict" if len(seen) < _LOOKED_AT else "ignore") if expected == max(zeros) else ""
            odd, foreign = len(_UNPRINTED.findall(text)), len(text) - sum(map(_is_expected, text))
            kana = sum(first <= char <= "\u30ff" for char in text)
            odd += 0 if any(zeros) else _count_rare(text)
            if text and not odd and foreign * 10 < len(text) and max(expected * 5, kana * many) >= len(text):
                return data.decode(encoding, "replace")
    return ""


def _decode_utf32(data: bytes) -> str:
    """Decode UTF-32 without a byte order mark, recognized by the zero upper half of each letter. Returns "" if it is not."""
    for encoding, upper in (("utf-32-le", (2, 3)), ("utf-32-be", (0, 1))):
        if len(data) % 4 == 0 and data and not any(any(data[place::4]) for place in upper):
            with suppress(UnicodeDecodeError):
                text = data.decode(encoding)
                return "" if "\0" in text else text
    return ""


def _not_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def _is_expected(char: str) -> bool:
    """Return True for a letter of Latin, Greek, Cyrillic or Japanese, and for a usual sign."""
    code = ord(char)
    return code < 0x530 or 0x2000 <= code < 0x2700 or 0x3000 <= code < 0x3130 or 0x4E00 <= code < 0xA000 or code >= 0xFF00


def _refuse_binary(data: bytes) -> None:
    seen = data[:_LOOKED_AT]
    if len(_CONTROL.findall(seen)) * 50 > len(seen) or b"\0\0" in seen:
        raise Unreadable(notice("search.binary", "it is a binary file, not text"))


def _decode_nearly_utf8(data: bytes) -> str:
    """Decode UTF-8 with a few bad bytes among many good letters, or with a truncated end. Returns "" if there are too many."""
    text = data.decode("utf-8-sig", "replace")
    bad = text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    good = sum(map(len, _BEYOND.findall(text))) - bad
    cut = False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as problem:
        cut = problem.reason == "unexpected end of data" and good > 0
    return text if cut or (good and bad * 4 <= good) else ""


def _decode_lines(data: bytes) -> str:
    """Decode a file that was joined from several: some lines are UTF-8 and others have another encoding. Returns "" if not."""
    lines = data.split(b"\n")
    bad = {place for place, line in enumerate(lines) if not line.isascii() and _not_utf8(line)}
    good = [line for place, line in enumerate(lines) if not line.isascii() and place not in bad]
    sure = any(len(_LONG.findall(line)) > 1 for line in good)  # two bytes are UTF-8 by chance
    if not good or not (sure or len(good) * 4 >= len(bad)):
        return ""
    other = sorted([place for place in bad if not _decode_nearly_utf8(lines[place])])
    if not other:
        return ""
    read = dict(zip(other, _decode_likeliest(b"\n".join([lines[place] for place in other])).split("\n"), strict=True))
    return "\n".join([read.get(place) or line.decode("utf-8", "replace") for place, line in enumerate(lines)]).lstrip("\ufeff")


def _decode_likeliest(data: bytes) -> str:
    """Decode with the encoding of the best score. Raises `Unreadable` if even that result is implausible."""
    readings = {encoding: data.decode(encoding, "replace") for encoding in ("cp932", "euc_jp", "cp1252")}
    scores = {name: (_score_western if name == "cp1252" else _score_japanese)(text) for name, text in readings.items()}
    best = max(scores, key=lambda name: scores[name])
    beyond = "".join(_BEYOND.findall(readings[best][:_JUDGED]))
    least = _PLAUSIBLE if len(beyond) >= 2 * _FEW else _POSSIBLE if len(beyond) >= _FEW else -9.0
    without_kana = not any("\u3041" <= char <= "\u30fe" for char in beyond)
    korean = best == "euc_jp" and without_kana and sum(map(_is_kanji, beyond)) >= 3 * _FEW  # or Chinese, or Russian
    if scores[best] < least or korean:
        raise Unreadable(notice("search.encoding_unclear", "its encoding could not be detected; save it as UTF-8"))
    return readings[best]


def _is_kanji(char: str) -> bool:
    return "\u4e00" <= char <= "\u9fff"


def _score_japanese(text: str) -> float:
    """Score how much a text looks like Japanese, from 1 to below 0. Half-width kana and single rare letters lower the score."""
    total = count = 0.0
    beyond = "".join(_BEYOND.findall(text[:_JUDGED]))
    if len(beyond) >= 2 * _FEW and all("\uff61" <= char <= "\uff9f" for char in beyond):
        return _PLAUSIBLE  # a list of names, as banks have them
    for number, run in enumerate(_BEYOND.finditer(text)):
        if number == _RUNS:
            break
        around = text[max(0, run.start() - 1) : run.start()] + text[run.end() : run.end() + 1]
        total += _score_japanese_run(run[0], any(char.isalpha() for char in around))
        count += len(run[0])
    return total / count if count else 0.0


def _score_japanese_run(run: str, latin_beside: bool) -> float:
    half, kana, odd = [len(letters.findall(run)) for letters in (_HALF_WIDTH, _KANA_OR_SIGN, _ODD)]
    kanji, rare = sum(map(_is_kanji, run)), _count_rare(run)
    other = len(run) - half - kana - kanji - odd
    alone = not kana and kanji < 2 and latin_beside
    score = kana + 0.5 * other - 3.0 * odd
    score += half * (0.3 if half > 3 and half == len(run) else -1.0)
    return score + (-0.5 * kanji - rare if alone else 0.9 * (kanji - rare) + 0.2 * rare)


def _count_rare(text: str) -> int:
    kanji = list(filter(_is_kanji, text))
    return len(kanji) - sum(map(_is_common, kanji))


def _is_common(kanji: str) -> bool:
    """Return True for a kanji of the first level of JIS, which contains the common ones."""
    with suppress(UnicodeEncodeError):
        return kanji.encode("euc_jp")[0] < 0xD0
    return False


def _score_western(text: str) -> float:
    """Score how much a text looks like a Western language, at most 1: accented letters and signs stand between plain ones."""
    total = count = 0.0
    for number, run in enumerate(_BEYOND.finditer(text)):
        if number == _RUNS:
            break
        before, after = text[max(0, run.start() - 1) : run.start()], text[run.end() : run.end() + 1]
        count += len(run[0])
        for char in run[0]:
            if char == "\ufffd":
                total -= 3.0
            elif char in _USUAL and char not in _INSIDE and before.isalpha() and after.isalpha():
                total -= 0.7
            elif char in _USUAL:
                total += 0.7 if len(run[0]) < 4 else -0.7
            elif not char.isalpha() or len(run[0]) > 2:
                total -= 0.5
            elif before.islower() and char.isupper():
                total -= 0.7
            else:
                total += 1.0 if (before + after).isalpha() else 0.8 if before.isalpha() or after.isalpha() else 0.3
    return total / count if count else 0.0
