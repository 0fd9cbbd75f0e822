"""Regular expressions that cannot hang, for text that arrives in pieces.

A pattern becomes a machine of states (Thompson). All its threads take each character once, so that the time is linear in the
text whatever the pattern says; and the oldest thread that is still alive tells from where on the text may yet turn out to be a
match. What such a machine cannot do (back references, look-arounds longer than a character) is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from ..core.errors import ConfigError
from ..core.language import say

_MOST_STATES = 700
_REMEMBERED = 4_096  # answers a state keeps about characters
_EDGE = ""  # the character before the first and after the last

Test = Callable[[str], bool]
Edge = Callable[[str, str], bool]


class Match(NamedTuple):
    start: int
    end: int
    pattern: str


class _State:
    """One of: take a character (`test`), go on at an `edge`, or `split`. The last state of all is the match."""

    __slots__ = ("edge", "known", "out", "test")

    def __init__(self, out: list[int], test: Test | None = None, edge: Edge | None = None) -> None:
        self.out, self.test, self.edge = out, test, edge
        self.known: dict[str, bool] = {}

    def takes(self, char: str) -> bool:
        answer = self.known.get(char)
        if answer is None:
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            assert self.test is not None
            answer = self.known[char] = self.test(char)
        return answer


class Pattern:
    """A compiled pattern, in the syntax of Python's `re`."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        try:
            tree = _parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise _refused(pattern, str(problem)) from problem
        self.states: list[_State] = []
        self._parts = 0
        self._entries: dict[tuple[str, str], tuple[bool, tuple[int, ...]]] = {}
        try:
            self._first = self._build(list(tree), tree.state.flags, self._add(_State([])))
        except RecursionError as problem:
            raise _refused(pattern, say("nested too deeply", "入れ子が深すぎます")) from problem
        if self.closed({self._first: 0}, None, None)[0] is not None:
            raise _refused(pattern, say("it matches the empty text, so everything", "空の文字列に一致してしまいます"))

    def entry(self, before: str, char: str) -> tuple[bool, tuple[int, ...]]:
        """A match that begins here: whether it is one at once, and where its threads stand after the character."""
        known = self._entries.get((before, char))
        if known is None:
            if len(self._entries) >= _REMEMBERED:
                self._entries.clear()
            found, ready = self.closed({self._first: 0}, before, char)
            after = tuple({self.states[at].out[0] for at in ready if self.states[at].takes(char)})
            known = self._entries[before, char] = (found is not None, after)
        return known

    def closed(self, waiting: Mapping[int, int], before: str | None, char: str | None) -> tuple[int | None, dict[int, int]]:
        """The states that take a character, reached from the waiting ones; and the earliest beginning of a match.

        Without the characters on both sides, no condition holds."""
        states, found = self.states, None
        ready: dict[int, int] = {}
        seen: dict[int, int] = {}
        todo = [*waiting.items()]
        while todo:
            at, start = todo.pop()
            if seen.get(at, start + 1) <= start:
                continue
            seen[at] = start
            state = states[at]
            if at == 0:
                found = start if found is None else min(found, start)
            elif state.test is not None:
                ready[at] = start
            elif state.edge is None or (before is not None and char is not None and state.edge(before, char)):
                todo += [(target, start) for target in state.out]
        return found, ready if char != _EDGE else {}

    def may_begin(self, char: str) -> bool:
        """Whether a match could begin with this character, whatever stands around it."""
        seen, todo = set(), [self._first]
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            state = self.states[at]
            if at == 0 or (state.test is not None and state.takes(char)):
                return True
            todo += state.out if state.test is None else []
        return False

    def search(self, text: str) -> Match | None:
        """The first match to end, from its earliest beginning."""
        scan = Scan([self])
        return scan.feed(text) or scan.end()

    # From the tree to states, built from the end: every part knows where it goes on

    def _add(self, state: _State) -> int:
        self.states.append(state)
        return len(self.states) - 1

    def _build(self, items: Iterable[tuple[Any, Any]], flags: int, then: int) -> int:
        self._parts += 1
        if self._parts + len(self.states) > _MOST_STATES:
            raise _refused(self.pattern, say("it is too large", "大きすぎます"))
        for kind, value in reversed(list(items)):
            then = self._part(kind, value, flags, then)
        return then

    def _part(self, kind: Any, value: Any, flags: int, then: int) -> int:
        match kind:
            case sre.LITERAL | sre.NOT_LITERAL | sre.ANY | sre.IN:
                return self._add(_State([then], test=_char_test(kind, value, flags)))
            case sre.SUBPATTERN:
                _, added, removed, inner = value
                return self._build(inner, (flags | added) & ~removed, then)
            case sre.BRANCH:
                return self._add(_State([self._build(branch, flags, then) for branch in value[1]]))
            case sre.MAX_REPEAT | sre.MIN_REPEAT:
                return self._repeat(value, flags, then)
            case sre.AT if value is sre.AT_END and not flags & re.MULTILINE:  # also before a line's end that ends the text
                end = self._add(_State([then], edge=_at(value, flags)))
                return self._add(_State([end, self._add(_State([end], test=lambda char: char == "\n"))]))
            case sre.AT:
                return self._add(_State([then], edge=_at(value, flags)))
            case sre.ASSERT | sre.ASSERT_NOT:
                return self._add(_State([then], edge=self._around(kind, value, flags)))
        raise _refused(self.pattern, say(f"{str(kind).lower()} is not possible here", f"{str(kind).lower()} は使えません"))

    def _repeat(self, value: Any, flags: int, then: int) -> int:
        least, most, inner = value
        if most is sre.MAXREPEAT:
            loop = self._add(_State([]))
            self.states[loop].out = [self._build(inner, flags, loop), then]
            then = loop
        else:
            for _ in range(most - least):
                then = self._add(_State([self._build(inner, flags, then), then]))
        for _ in range(least):
            then = self._build(inner, flags, then)
        return then

    def _around(self, kind: Any, value: Any, flags: int) -> Edge:
        """`(?=x)`, `(?!x)`, `(?<=x)`, `(?<!x)` for one character x, or for alternatives of one character."""
        behind, inner = value[0] < 0, list(value[1])
        wanted = kind is sre.ASSERT
        tests = [self._single(branch, flags) for branch in (inner[0][1][1] if _is_branch(inner) else [inner])]
        at_edge = any(test is None for test in tests)

        def holds(before: str, after: str) -> bool:
            char = before if behind else after
            found = at_edge if char == _EDGE else any(test is not None and test(char) for test in tests)
            return found is wanted

        return holds

    def _single(self, items: Iterable[tuple[Any, Any]], flags: int) -> Test | None:
        """The test of one character; `None` for `^`, `$` and the like, which stand for the edge of the text."""
        one = list(items)
        if len(one) == 1:
            kind, value = one[0]
            if kind is sre.SUBPATTERN:
                return self._single(value[3], (flags | value[1]) & ~value[2])
            if kind is sre.AT and value in _TEXT_EDGES:
                return None
            if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
                return _char_test(kind, value, flags)
        raise _refused(
            self.pattern,
            say("a look-around can be one character long, no more", "先読み・後読みは 1 文字だけ使えます"),
        )


def _is_branch(items: list[tuple[Any, Any]]) -> bool:
    return len(items) == 1 and items[0][0] is sre.BRANCH


_TEXT_EDGES = (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING, sre.AT_END, sre.AT_END_STRING)


def _refused(pattern: str, why: str) -> ConfigError:
    return ConfigError(
        say(f"the pattern {pattern[:100]!r} cannot be used: {why}", f"パターン {pattern[:100]!r} は使えません: {why}")
    )


def _char_test(kind: Any, value: Any, flags: int) -> Test:
    fold = bool(flags & re.IGNORECASE)
    if kind is sre.ANY:
        every = bool(flags & re.DOTALL)
        return lambda char: every or char != "\n"
    if kind is sre.IN:
        return _class_test(value, flags, fold)
    inside = kind is sre.LITERAL
    if not fold:
        wanted = chr(value)
        return lambda char: (char == wanted) is inside
    forms = set(_cases(chr(value)))
    return lambda char: (not forms.isdisjoint(_cases(char))) is inside


def _cases(char: str) -> tuple[str, ...]:
    return (char, char.lower(), char.upper(), char.swapcase(), char.casefold())


def _class_test(items: list[tuple[Any, Any]], flags: int, fold: bool) -> Test:
    inside = items[0][0] is not sre.NEGATE
    tests = [_class_item(kind, value, flags) for kind, value in items if kind is not sre.NEGATE]

    def test(char: str) -> bool:
        spellings = _cases(char) if fold else (char,)
        return any(len(one) == 1 and check(one) for check in tests for one in spellings) is inside

    return test


def _class_item(kind: Any, value: Any, flags: int) -> Test:
    if kind is sre.LITERAL:
        return lambda char: ord(char) == value
    if kind is sre.RANGE:
        low, high = value
        return lambda char: low <= ord(char) <= high
    return _category(value, flags)


def _category(value: Any, flags: int) -> Test:
    name = str(value).removeprefix("CATEGORY_")
    ascii_only = bool(flags & re.ASCII)
    if name.startswith("NOT_"):
        inner = _named(name.removeprefix("NOT_"), ascii_only)
        return lambda char: not inner(char)
    return _named(name, ascii_only)


def _named(name: str, ascii_only: bool) -> Test:
    known: dict[str, Test] = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": _is_word}
    test = known[name]
    return (lambda char: char.isascii() and test(char)) if ascii_only else test


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _at(value: Any, flags: int) -> Edge:
    word = _named("WORD", bool(flags & re.ASCII))

    def boundary(before: str, after: str) -> bool:
        return (before != _EDGE and word(before)) != (after != _EDGE and word(after))

    lines = bool(flags & re.MULTILINE)
    edges: dict[Any, Edge] = {
        sre.AT_BEGINNING: lambda before, after: before == _EDGE or (lines and before == "\n"),
        sre.AT_BEGINNING_STRING: lambda before, after: before == _EDGE,
        sre.AT_END: lambda before, after: after == _EDGE or (lines and after == "\n"),
        sre.AT_END_STRING: lambda before, after: after == _EDGE,
        sre.AT_BOUNDARY: boundary,
        sre.AT_NON_BOUNDARY: lambda before, after: not boundary(before, after),
    }
    return edges[value]


class Scan:
    """Patterns over one text that comes in pieces. `pending` is where the oldest match may have begun that is still open."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._runs = [_Run(pattern) for pattern in patterns]
        self.length = 0
        self._before = _EDGE
        self._dull: dict[str, bool] = {}  # characters that begin nothing, for the time when nothing is open

    def feed(self, piece: str) -> Match | None:
        dull, open_ = self._dull, any(run.waiting for run in self._runs)
        for char in piece:
            if not open_:
                skip = dull.get(char)
                if skip is None:
                    skip = self._is_dull(char)
                if skip:
                    self.length += 1
                    self._before = char
                    continue
            if (found := self._step(char)) is not None:
                return found
            open_ = any(run.waiting for run in self._runs)
        return None

    def _is_dull(self, char: str) -> bool:
        if len(self._dull) >= _REMEMBERED:
            self._dull.clear()
        self._dull[char] = not any(run.pattern.may_begin(char) for run in self._runs)
        return self._dull[char]

    def end(self) -> Match | None:
        return self._step(_EDGE)

    def _step(self, char: str) -> Match | None:
        found: Match | None = None
        for run in self._runs:
            start = run.step(self._before, char, self.length)
            if start is not None and (found is None or start < found.start):
                found = Match(start, self.length, run.pattern.pattern)
        self._before = char
        self.length += len(char)
        return found

    @property
    def pending(self) -> int:
        """Everything before this place is decided: no match that may still come begins there."""
        return min([start for run in self._runs for start in run.oldest()], default=self.length)


class _Run:
    """The threads of one pattern: for every state that waits for its next character, the earliest beginning."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.waiting: dict[int, int] = {}

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
