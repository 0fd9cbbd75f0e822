"""Bytes as text: UTF-8 if it nearly is, else the reading that looks most like something a person wrote."""

from __future__ import annotations

import re
from contextlib import suppress

from ...core.language import say


class Unreadable(Exception):
    """Why a file gives no text."""


_LOOKED_AT = 4_096  # bytes, for whether it is text at all
_RUNS = 5_000  # of letters beyond ASCII, for which encoding it is
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x19\x1c-\x1f\x7f]")
_BEYOND = re.compile(r"[^\x00-\x7f]+")
_NAMES = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252"}
_NAMES |= {"shift_jis": "cp932", "shift-jis": "cp932", "x-sjis": "cp932", "sjis": "cp932"}
_SIGNS = frozenset("°±×÷−℃′″→←↑↓○●◎□■△▲▽▼◇◆☆★※…‥§¶≦≧∞￥￠￡①②③④⑤")  # that Japanese texts are full of
_USUAL = frozenset("£€°±½¼¾§©®™«»¿¡·“”„‘’–—…•²³µ×÷ºª\xa0")


def decoded(data: bytes, declared: str = "") -> str:
    """`declared`: the encoding that it names itself, often wrongly."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if wide := _utf16(data):
        return wide
    _refuse_binary(data)
    if b"\x1b$" in data:
        return data.decode("iso2022_jp", "replace")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    if declared and not declared.lower().startswith("utf"):
        with suppress(LookupError, ValueError):
            return data.decode(_NAMES.get(declared.lower(), declared))
    return _nearly_utf8(data) or _likeliest(data)


def _utf16(data: bytes) -> str:
    """Without a mark at its beginning: every second byte of what is ASCII is zero, and Japanese has kana."""
    seen = data[:_LOOKED_AT]
    zeros = seen[1::2].count(0), seen[::2].count(0)
    if len(data) % 2 or not any(zeros):
        return ""
    for encoding, expected in zip(("utf-16-le", "utf-16-be"), zeros, strict=True):
        with suppress(UnicodeDecodeError):
            text = seen.decode(encoding, "strict" if len(seen) < _LOOKED_AT else "ignore") if expected == max(zeros) else ""
            odd = sum(1 for char in text if (ord(char) < 32 and char not in "\t\n\r\f") or 0xE000 <= ord(char) < 0xF900)
            foreign = sum(1 for char in text if not _expected(char))
            kana = sum(1 for char in text if "\u3000" <= char <= "\u30ff")
            if text and not odd and foreign * 10 < len(text) and max(expected * 5, kana * 10) >= len(text):
                return data.decode(encoding, "replace")
    return ""


def _expected(char: str) -> bool:
    """A letter of Latin, Greek, Cyrillic or Japanese, or a usual sign."""
    code = ord(char)
    return code < 0x530 or 0x2000 <= code < 0x2700 or 0x3000 <= code < 0x3130 or 0x4E00 <= code < 0xA000 or code >= 0xFF00


def _refuse_binary(data: bytes) -> None:
    seen = data[:_LOOKED_AT]
    if len(_CONTROL.findall(seen)) * 50 > len(seen) or b"\0\0" in seen:
        raise Unreadable(say("it is no text, but something for programs (binary)", "テキストではなくバイナリーです"))


def _nearly_utf8(data: bytes) -> str:
    """A bad byte among many good letters, or an end that is cut off, does not make it another encoding."""
    text = data.decode("utf-8-sig", "replace")
    bad = text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    good = sum(map(len, _BEYOND.findall(text))) - bad
    cut = False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as problem:
        cut = problem.reason == "unexpected end of data" and good > 0
    return text if cut or (good and bad * 4 <= good) else ""


def _likeliest(data: bytes) -> str:
    readings = [data.decode(encoding, "replace") for encoding in ("cp932", "euc_jp")]
    scored = [(_japanese(text), text) for text in readings]
    latin = data.decode("cp1252", "replace")
    scored.append((_western(latin), latin))
    return max(scored, key=lambda one: one[0])[1]


def _japanese(text: str) -> float:
    """From 1, like Japanese, down below 0: half-width kana and single rare letters come from a wrong reading."""
    total = count = 0.0
    for number, run in enumerate(_BEYOND.finditer(text)):
        if number == _RUNS:
            break
        around = text[max(0, run.start() - 1) : run.start()] + text[run.end() : run.end() + 1]
        total += _run_of_japanese(run[0], any(char.isalpha() for char in around))
        count += len(run[0])
    return total / count if count else 0.0


def _run_of_japanese(run: str, latin_beside: bool) -> float:
    half = sum(1 for char in run if "\uff61" <= char <= "\uff9f")
    kana = sum(1 for char in run if "\u3000" <= char <= "\u30ff" or "\uff01" <= char <= "\uff5e" or char in _SIGNS)
    kanji = [char for char in run if "\u4e00" <= char <= "\u9fff"]
    rare = sum(1 for char in kanji if not _common(char))
    odd = sum(1 for char in run if char == "\ufffd" or "\ue000" <= char <= "\uf8ff")
    other = len(run) - half - kana - len(kanji) - odd
    alone = not kana and len(kanji) < 2 and latin_beside
    score = kana + 0.5 * other - 3.0 * odd
    score += half * (0.3 if half > 3 and half == len(run) else -1.0)
    return score + (-0.5 * len(kanji) - rare if alone else 0.9 * (len(kanji) - rare) + 0.2 * rare)


def _common(kanji: str) -> bool:
    """Of the first level of JIS, where those are that people use."""
    with suppress(UnicodeEncodeError):
        return kanji.encode("euc_jp")[0] < 0xD0
    return False


def _western(text: str) -> float:
    """From 1 down: letters with accents stand alone among plain ones, and signs alone."""
    total = count = 0.0
    for number, run in enumerate(_BEYOND.finditer(text)):
        if number == _RUNS:
            break
        before, after = text[max(0, run.start() - 1) : run.start()], text[run.end() : run.end() + 1]
        count += len(run[0])
        for char in run[0]:
            if char == "\ufffd":
                total -= 3.0
            elif char in _USUAL:
                total += 0.7 if len(run[0]) < 4 else -0.7
            elif not char.isalpha() or len(run[0]) > 2:
                total -= 0.5
            elif before.islower() and char.isupper():
                total -= 0.7
            else:
                total += 1.0 if (before + after).isalpha() else 0.8 if before.isalpha() or after.isalpha() else 0.3
    return total / count if count else 0.0
