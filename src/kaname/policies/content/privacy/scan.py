"""Find personal data in a text, or in a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from unicodedata import decimal

import regex

from ..guardrails.escapes import Spelt
from ..guardrails.folded import Folded, fold_text, is_plain
from .kinds import DataForm

_CONTEXT = 200  # characters before a match that a form may look at
_DIGIT = regex.compile(r"(?V1)[\p{Nd}--[0-9]]")  # of another script
_SECONDS = 1.0  # for one search in a short text; a search that takes longer counts as a match of the whole text
_CHARACTERS = 20_000  # of a long text, for which there is so much time again


class Found(NamedTuple):
    """Personal data in a text: where it is, and of which kind."""

    start: int
    end: int
    kind: str


Place = Callable[[int], int]


class Read(NamedTuple):
    """A reading of a text: what it says, and where each character of that is in the text."""

    text: str
    place: Place


Detector = Callable[[str], Iterable[tuple[int, int, str]]]
"""Takes a text and returns the places of personal data in it: start, end, kind. It is called once for each text."""


def find(text: str, forms: Sequence[DataForm], detectors: Sequence[Detector] = ()) -> list[Found]:
    """Return the personal data in a text, in order. Data that overlaps is one: its kind is that of the form listed first."""
    held = []
    for read, said, place in readings(text):
        held += [(Found(place(one.start), place(one.end), one.kind), rank) for one, rank in _matches(said, forms, 0, len(said))]
        for detect in detectors:
            spans = [Found(int(start), int(end), str(kind)) for start, end, kind in detect(read.text)]
            inside = [one for one in spans if 0 <= one.start < one.end <= len(read.text)]
            held += [(Found(read.place(one.start), read.place(one.end), one.kind), len(forms)) for one in inside]
    return join_overlaps(held)


def readings(text: str) -> Iterator[tuple[Read, str, Place]]:
    """Return the text and, if it has escapes (JSON in a text), what it says without them; each also folded.

    The last item of each reading says where a character of the folded text is in the text itself.
    """
    reads = [Read(text, _same)]
    if "\\" in text:
        spelt = Spelt()
        reads += [Read(said, spelt.place)] if (said := spelt.feed(text)) != text else []
    for read in reads:
        if is_plain(read.text):
            yield read, read.text, read.place
        else:
            seen = Folded(fold=fold_data)
            yield read, seen.feed(read.text) + seen.end(), partial(_place, seen, read)


def fold_data(text: str) -> str:
    """Return a text folded, with the digits of all scripts as ASCII."""
    return text if is_plain(text) else _DIGIT.sub(lambda match: str(decimal(match[0])), fold_text(text))


def _same(place: int) -> int:
    return place


def _place(seen: Folded, read: Read, said: int) -> int:
    return read.place(seen.place(said))


def join_overlaps(held: Iterable[tuple[Found, int]]) -> list[Found]:
    """Join data that overlaps. Each comes with its rank: the lowest one gives the kind."""
    made: list[tuple[Found, int]] = []
    for one, rank in sorted(held):
        if made and one.start < made[-1][0].end:
            last, best = made[-1]
            kind = last.kind if best <= rank else one.kind
            made[-1] = (Found(last.start, max(last.end, one.end), kind), min(best, rank))
        else:
            made.append((one, rank))
    return [one for one, _ in made]


def _matches(said: str, forms: Sequence[DataForm], start: int, upto: int) -> list[tuple[Found, int]]:
    """Return the matches that begin from `start` on and before `upto`, each with the number of its form."""
    held = []
    chars, lowered = set(said[start:]), said.lower()
    seconds = _SECONDS * (1 + len(said) / _CHARACTERS)
    for rank, (kind, pattern, check, firsts, words, near) in enumerate(forms):
        if (firsts and firsts.isdisjoint(chars)) or (words and not any(word in lowered for word in words)):
            continue
        try:
            for match in pattern.finditer(said, start, overlapped=True, timeout=seconds):
                if match.start() >= upto:
                    break
                first, last = match.span("value") if "value" in pattern.groupindex else match.span()
                if near is not None and near.search(said, max(0, first - _CONTEXT), first, timeout=_SECONDS) is None:
                    continue
                if check is None or check(said[first:last]):
                    held.append((Found(first, last, kind), rank))
        except TimeoutError:
            held.append((Found(start, upto, kind), rank))
    return held


class DataStream:
    """A text that arrives in pieces: `feed` returns the part that is certain, `end` the rest, with the data replaced.

    A part is certain when no form can match from there to the end of what has come. The text that was returned in all is the
    same as for the whole text at once, wherever it was cut.
    """

    def __init__(self, forms: Sequence[DataForm], replace: Callable[[str, str], str]) -> None:
        self._forms, self._replace = forms, replace
        self._folded = Folded(fold=fold_data)
        self._raw = ""  # what was not returned yet, as it came
        self._raw_begins = 0
        self._said, self._said_begins = "", 0  # the folded text, from a little before the first place that is not certain
        self._held: list[tuple[Found, int]] = []  # data that was found and not returned yet
        self._open = self._done = 0  # folded places: the first that is not certain, the first that was not returned

    def feed(self, piece: str) -> str:
        self._raw += piece
        self._said += self._folded.feed(piece)
        return self._return_upto(self._certain_upto())

    def end(self) -> str:
        self._said += self._folded.end()
        rest = self._return_upto(len(self._said))
        rest, self._raw = rest + self._raw, ""  # what is not shown, at the end of the text
        return rest

    def _certain_upto(self) -> int:
        """Return the first place from which a form may match up to the end of what has come, and beyond."""
        start, upto = self._open - self._said_begins, len(self._said)
        chars = set(self._said[start:])
        for form in self._forms:
            if not form.firsts or not form.firsts.isdisjoint(chars):
                upto = self._first_open(form.pattern, start, upto)
        return upto

    def _first_open(self, pattern: Any, start: int, upto: int) -> int:
        """Search quickly. A search prefers a complete match to one that is open before it, so look at each place before it."""
        try:
            while start < upto and (match := pattern.search(self._said, start, partial=True, timeout=_SECONDS)) is not None:
                if match.partial:
                    return min(upto, int(match.start()))
                for place in range(start, min(match.start() + 1, upto)):
                    if pattern.fullmatch(self._said, place, partial=True, timeout=_SECONDS) is not None:
                        return place
                start = match.start() + 1
        except TimeoutError:
            return start
        return upto

    def _return_upto(self, place: int) -> str:
        """Return the text that later characters cannot change: all before `place`, without data that reaches beyond it."""
        begins = self._said_begins
        start = self._open - begins
        for one, rank in _matches(self._said, self._forms, start, place) if start < place else ():
            self._held.append((Found(begins + one.start, begins + one.end, one.kind), rank))
        self._open = begins + place
        found = join_overlaps(self._held)
        cut = min([self._open, *[one.start for one in found if one.end > self._open]])
        self._held = [(one, rank) for one, rank in self._held if one.start >= cut]
        made = []
        for one in [one for one in found if one.end <= cut]:
            made += [self._take_upto(one.start), self._replace(one.kind, self._take_upto(one.end))]
        made.append(self._take_upto(cut))
        self._done = cut
        if (old := self._done - self._said_begins - _CONTEXT) > _CONTEXT:
            self._said, self._said_begins = self._said[old:], self._said_begins + old
        return "".join(made)

    def _take_upto(self, said: int) -> str:
        """Return the text as it came up to a folded place, from where the last one ended: nothing in between is lost."""
        size = max(0, self._folded.place(said) - self._raw_begins)
        taken, self._raw = self._raw[:size], self._raw[size:]
        self._raw_begins += len(taken)
        return taken
