"""Captions as SubRip (SRT) or WebVTT."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from ..core.errors import ConfigError
from .results import Sentence

_WIDTH, _LONGEST = 42, 6.0  # characters of a line, seconds of a caption


def captions(sentences: Iterable[Sentence], form: str = "srt") -> str:
    """Return the sentences as captions. `form`: "srt" or "vtt"."""
    if form not in ("srt", "vtt"):
        raise ConfigError.of("senses.caption_form", 'captions are written as "srt" or "vtt", not {form!r}', form=form)
    blocks = []
    for number, one in enumerate((piece for sentence in sentences for piece in _pieces(sentence)), 1):
        words = f"{one.speaker}: {one.text}" if one.speaker else one.text
        words = words.replace("-->", "→")
        if form == "vtt":
            words = words.replace("&", "&amp;").replace("<", "&lt;")
        lines = "\n".join(_wrap(words))
        start, end = [_clock(second, "," if form == "srt" else ".") for second in (one.start, max(one.end, one.start + 0.2))]
        blocks.append(f"{number}\n{start} --> {end}\n{lines}\n")
    return ("WEBVTT\n\n" if form == "vtt" else "") + "\n".join(blocks)


def _pieces(sentence: Sentence) -> Iterator[Sentence]:
    """Split a long sentence, with its time divided by the number of characters."""
    text, seconds = sentence.text, sentence.end - sentence.start
    count = max(1, -(-len(_wrap(text)) // 2), round(seconds / _LONGEST))
    if count == 1:
        yield sentence
        return
    lines = _wrap(text, max(10, -(-len(text) // count)))
    at = sentence.start
    for line in lines:
        lasts = seconds * len(line) / max(1, sum(map(len, lines)))
        yield Sentence(at, at + lasts, line, sentence.speaker)
        at += lasts


def _wrap(text: str, width: int = _WIDTH) -> list[str]:
    """Break lines at spaces, or anywhere in a text without spaces."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _clock(seconds: float, point: str) -> str:
    whole = round(max(0.0, seconds) * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"
