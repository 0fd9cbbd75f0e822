"""Patterns over one text that comes in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from .letters import EDGE
from .patterns import Match, Pattern

_REMEMBERED = 4_096  # characters


class Patterns(tuple[Pattern, ...]):
    """Some patterns, and which of them may begin with a character: of a thousand words only a few do."""

    _words: dict[str, tuple[int, ...]]  # those that are known by their first character
    _others: tuple[int, ...]
    known: dict[str, tuple[int, ...]]  # what has been asked for

    def __new__(cls, patterns: Iterable[Pattern] = ()) -> Self:
        made = super().__new__(cls, patterns)
        words: dict[str, list[int]] = {}
        for number, pattern in enumerate(made):
            for char in pattern.begins_with or ():
                words.setdefault(char, []).append(number)
        made._words = {char: tuple(numbers) for char, numbers in words.items()}
        made._others = tuple([number for number, pattern in enumerate(made) if pattern.begins_with is None])
        made.known = {}
        return made

    def begins(self, char: str) -> tuple[int, ...]:
        if len(self.known) >= _REMEMBERED:
            self.known.clear()
        others = tuple([number for number in self._others if self[number].may_begin(char)])
        found = self.known[char] = (*self._words.get(char, ()), *others)
        return found


class Scan:
    """`pending` is where the oldest match may have begun that is still open. After a match: `drop` it, and `feed` the rest."""

    def __init__(self, patterns: Patterns | Iterable[Pattern]) -> None:
        self._patterns = patterns if isinstance(patterns, Patterns) else Patterns(patterns)
        self._runs: dict[int, _Run] = {}  # those with an open thread
        self._dropped: set[int] = set()
        self._also: list[Match] = []  # found at the same place as the last one
        self.length = 0
        self._before = EDGE

    def copy(self) -> Scan:
        """One that goes on from here by itself."""
        made = Scan(self._patterns)
        made._runs = {number: run.copy() for number, run in self._runs.items()}
        made._dropped, made._also = set(self._dropped), list(self._also)
        made.length, made._before = self.length, self._before
        return made

    def feed(self, piece: str) -> Match | None:
        if self._also:
            return self._also.pop(0)
        patterns, skipped = self._patterns, 0
        known = patterns.known
        for place, char in enumerate(piece):
            fresh = known.get(char)
            if fresh is None:
                fresh = patterns.begins(char)
            if not fresh and not self._runs:  # most characters of most texts
                skipped += 1
                continue
            if skipped:
                self.length += skipped
                self._before, skipped = piece[place - 1], 0
            if (found := self._step(char, fresh)) is not None:
                return found
        if skipped:
            self.length += skipped
            self._before = piece[-1]
        return None

    def drop(self, pattern: str) -> None:
        """Look for it no more."""
        self._dropped |= {number for number, one in enumerate(self._patterns) if one.pattern == pattern}
        self._runs = {number: run for number, run in self._runs.items() if number not in self._dropped}
        self._also = [found for found in self._also if found.pattern != pattern]

    def end(self) -> Match | None:
        if self._also:
            return self._also.pop(0)
        return self._step(EDGE, tuple([number for number, one in enumerate(self._patterns) if one.may_be_empty]))

    def _step(self, char: str, fresh: tuple[int, ...]) -> Match | None:
        runs, found = self._runs, list[Match]()
        for number in fresh:
            if number not in runs and number not in self._dropped:
                runs[number] = _Run(self._patterns[number])
        for number, run in [*runs.items()]:
            start = run.step(self._before, char, self.length)
            if start is not None:
                found.append(Match(start, self.length, run.pattern.pattern))
            if not run.waiting:
                del runs[number]
        self._before = char
        self.length += len(char)
        if len(found) > 1:
            found.sort()
        self._also = found[1:]
        return found[0] if found else None

    @property
    def pending(self) -> int:
        """Everything before this place is decided: no match that may still come begins there."""
        return min([start for run in self._runs.values() for start in run.oldest()], default=self.length)


class _Run:
    """The threads of one pattern: for every state that waits for its next character, the earliest beginning."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.waiting: dict[int, int] = {}

    def copy(self) -> _Run:
        made = _Run(self.pattern)
        made.waiting = dict(self.waiting)
        return made

    def oldest(self) -> Iterator[int]:
        if self.waiting:
            yield min(self.waiting.values())

    def step(self, before: str, char: str, place: int) -> int | None:
        """Take a character, now that both sides of this place are known; the beginning of a match that ends here."""
        states = self.pattern.states
        matched, entering = self.pattern.entry(before, char)
        if not self.waiting:
            if matched:
                return place
            self.waiting = dict.fromkeys(entering, place) if entering else {}
            return None
        found, ready = self.pattern.closed(self.waiting, before, char)
        if matched and found is None:
            found = place
        if found is not None:
            return found
        after: dict[int, int] = dict.fromkeys(entering, place)
        for at, start in ready.items():
            if states[at].takes(char):
                target = states[at].out[0]
                after[target] = min(start, after.get(target, start))
        self.waiting = after
        return None
