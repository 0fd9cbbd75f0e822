"""Patterns over text that arrives in pieces: the `regex` library, its partial matches, and a time limit.

A partial match tells from where on the text may still become a match: only that is held back. A search that takes too long
counts as a match, so that no text can switch a guardrail off by being slow to judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import regex

from ....core.errors import ConfigError
from ....core.notices import notice
from .folded import folded_source

_SECONDS = 0.2  # for one search
_LONGEST = 10_000  # characters of a pattern
_CONTEXT = 100  # characters before an open match that a look-behind may see
_AHEAD = 100  # characters after a match that a look-ahead may ask for
_SAMPLES = ("", "a", "A", "1", " ", "あ", "\n", "a1", " a")


class Match(NamedTuple):
    start: int
    end: int
    pattern: str


class Pattern:
    """A compiled pattern. `whole`: it has to fit a text from its beginning to its end, and may fit the empty one.

    `source` is what is compiled in place of `pattern`, which remains its name.
    """

    def __init__(self, pattern: str, *, whole: bool = False, source: str | None = None) -> None:
        if not isinstance(pattern, str):
            raise ConfigError.of("guardrail.pattern_kind", "a pattern must be a string, not {pattern!r}", pattern=pattern)
        self.pattern, self._whole = pattern, whole
        self.source = pattern if source is None else source
        self.compiled = _compile(self.source)
        if not whole and any((found := self._find(text)) and found.end() == found.start() for text in _SAMPLES):
            matches_all = notice("guardrail.pattern_matches_all", "it matches an empty text, so it would match every text")
            raise _pattern_error(pattern, matches_all)

    @property
    def ahead(self) -> int:
        """Return the number of characters after a match that can still undo it."""
        if "(?=" in self.source or "(?!" in self.source:
            return _AHEAD
        return 2 if "$" in self.source or "\\" in self.source else 0  # `$` before the last line's end, `\b`, `\Z`

    def search(self, text: str) -> Match | None:
        """The first match. Too slow to tell: a match, but no fit for the whole."""
        try:
            found = self._find(text)
        except TimeoutError:
            return None if self._whole else Match(0, len(text), self.pattern)
        return None if found is None else Match(found.start(), found.end(), self.pattern)

    def _find(self, text: str) -> Any:
        find = self.compiled.fullmatch if self._whole else self.compiled.search
        return find(text, timeout=_SECONDS)


def in_both_forms(pattern: str) -> list[Pattern]:
    """Return the pattern, and the same with its literal characters folded where that is another one that can be used."""
    made = [Pattern(pattern)]
    if (source := folded_source(pattern)) != pattern:
        with suppress(ConfigError):
            made.append(Pattern(pattern, source=source))
    return made


class Scan:
    """`pending`: no match that may still come begins before it. After a match: `drop` it, and `feed` the rest."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._groups = _group_patterns(self._patterns)
        self._text, self._begins = "", 0  # the end of what has come, and its first character's place
        self.length = self.pending = 0

    def copy(self) -> Scan:
        """One that goes on from here by itself."""
        made = Scan(self._patterns)
        made._text, made._begins, made.length, made.pending = self._text, self._begins, self.length, self.pending
        return made

    def step_back(self) -> str:
        """Forget the last character, and return it."""
        last, self._text = self._text[-1:], self._text[:-1]
        self.length -= len(last)
        self.pending = min(self.pending, self.length)
        return last

    def feed(self, piece: str) -> Match | None:
        self._text += piece
        self.length += len(piece)
        return self._look(last=False)

    def end(self) -> Match | None:
        return self._look(last=True)

    def drop(self, pattern: str) -> None:
        """Look for it no more."""
        self._patterns = tuple([one for one in self._patterns if one.pattern != pattern])
        self._groups = _group_patterns(self._patterns)

    def _look(self, *, last: bool) -> Match | None:
        matches, pending = list[Match](), self.length
        for group in self._groups:
            place, found = self._search(group, last)
            matches += [] if found is None else [found]
            pending = min(pending, place)
        if matches:
            return min(matches)
        self.pending = pending
        cut = self.pending - _CONTEXT - self._begins
        if cut > _CONTEXT:
            self._text, self._begins = self._text[cut:], self._begins + cut
        return None

    def _search(self, group: _Group, last: bool) -> tuple[int, Match | None]:
        """Return the place from which a match may be open, and a match that is certain."""
        start = max(0, self.pending - self._begins)
        try:
            match = group.compiled.search(self._text, start, partial=not last, timeout=_SECONDS)
        except TimeoutError:
            return self.length, Match(self.pending, self.length, group.patterns[0].pattern)
        if match is None:
            return self.length, None
        place = self._begins + match.start()
        if match.partial or (not last and match.end() + group.ahead > len(self._text)):
            return place, None
        alone = group.patterns[0] if len(group.patterns) == 1 else None
        pattern = alone or next(one for one in group.patterns if one.compiled.match(self._text, match.start()))
        return place, Match(place, self._begins + match.end(), pattern.pattern)


class _Group(NamedTuple):
    """Patterns that are looked for at once: a thousand words cost one search."""

    compiled: Any
    patterns: tuple[Pattern, ...]
    ahead: int


@lru_cache(maxsize=256)
def _group_patterns(patterns: tuple[Pattern, ...]) -> tuple[_Group, ...]:
    words = tuple([one for one in patterns if not set(one.source) & set("\\()[]{}^$")])
    others = [_Group(one.compiled, (one,), one.ahead) for one in patterns if one not in words]
    if not words:
        return tuple(others)
    joined = regex.compile("|".join([f"(?:{one.source})" for one in words]))
    return (_Group(joined, words, 0), *others)


def _compile(pattern: str) -> Any:
    if len(pattern) > _LONGEST:
        raise _pattern_error(pattern, notice("guardrail.pattern_too_large", "it is too long"))
    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError) as problem:
        raise _pattern_error(pattern, str(problem) or type(problem).__name__) from problem


def _pattern_error(pattern: str, why: str) -> ConfigError:
    return ConfigError.of(
        "guardrail.bad_pattern", "the pattern {pattern!r} cannot be used: {why}", pattern=pattern[:100], why=why
    )
