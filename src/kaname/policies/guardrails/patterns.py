"""Regular expressions that cannot hang, for text that arrives in pieces.

A pattern becomes a machine of states (Thompson). All its threads take each character once, so that the time is linear in the
text whatever the pattern says; and the oldest thread that is still alive tells from where on the text may yet turn out to be a
match. What such a machine cannot do (back references, look-arounds longer than a character) is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from ...core.language import say
from .letters import EDGE, Edge, Test, at_edge, char_test, same

_MOST_STATES = 700
_REMEMBERED = 4_096  # answers a state keeps about characters


class Match(NamedTuple):
    start: int
    end: int
    pattern: str


class _State:
    """One of: take a character (`test`), go on at an `edge`, or `split`. The last state of all is the match."""

    __slots__ = ("edge", "known", "only", "out", "test")

    def __init__(
        self, out: list[int], test: Test | None = None, edge: Edge | None = None, only: frozenset[str] | None = None
    ) -> None:
        self.out, self.test, self.edge = out, test, edge
        self.only = only  # the characters that it takes, where they are few
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

    def __init__(self, pattern: str, *, whole: bool = False) -> None:
        """`whole`: it has to fit a text from its beginning to its end, and may fit the empty one."""
        if not isinstance(pattern, str):
            raise ConfigError(say(f"a pattern is a text, not {pattern!r}", f"パターンは文字列です: {pattern!r}"))
        self.pattern, self._whole = pattern, whole
        try:
            tree = _parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise _refused(pattern, str(problem)) from problem
        self.states: list[_State] = []
        self._parts = 0
        self._entries: dict[tuple[str, str], tuple[bool, tuple[int, ...]]] = {}
        edges = [(sre.AT, sre.AT_BEGINNING_STRING), (sre.AT, sre.AT_END_STRING)] if whole else []
        try:
            self._first = self._build([*edges[:1], *tree, *edges[1:]], tree.state.flags, self._add(_State([])))
        except RecursionError as problem:
            raise _refused(pattern, say("nested too deeply", "入れ子が深すぎます")) from problem
        reached = self._reached()
        self._begins = [self.states[at] for at in reached if self.states[at].test is not None]
        self.may_be_empty = 0 in reached
        known = [state.only for state in self._begins]
        few = [one for one in known if one is not None]
        self.begins_with = None if self.may_be_empty or len(few) < len(known) else frozenset[str]().union(*few)
        if self.may_be_empty and not whole:
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
        return found, ready if char != EDGE else {}

    def may_begin(self, char: str) -> bool:
        """Whether a match could begin with this character, whatever stands around it."""
        return self.may_be_empty or any(state.takes(char) for state in self._begins)

    def _reached(self) -> set[int]:
        """The states that can be reached without taking a character, if all conditions hold."""
        seen, todo = set[int](), [self._first]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += self.states[at].out if self.states[at].test is None else []
        return seen

    def search(self, text: str) -> Match | None:
        """The first match to end, from its earliest beginning."""
        from .scan import Scan

        scan = Scan([self])
        return scan.feed(text) or scan.end()

    # From the tree to states, built from the end: every part knows where it goes on

    def _add(self, state: _State) -> int:
        self._check_size()
        self.states.append(state)
        return len(self.states) - 1

    def _build(self, items: Iterable[tuple[Any, Any]], flags: int, then: int) -> int:
        self._parts += 1
        self._check_size()
        for kind, value in reversed(list(items)):
            then = self._part(kind, value, flags, then)
        return then

    def _check_size(self) -> None:
        if self._parts + len(self.states) > _MOST_STATES:
            raise _refused(self.pattern, say("it is too large", "大きすぎます"))

    def _part(self, kind: Any, value: Any, flags: int, then: int) -> int:
        match kind:
            case sre.LITERAL:
                only = same(chr(value), flags)
                return self._add(_State([then], test=only.__contains__, only=only))
            case sre.NOT_LITERAL | sre.ANY | sre.IN:
                return self._add(_State([then], test=char_test(kind, value, flags)))
            case sre.SUBPATTERN:
                _, added, removed, inner = value
                return self._build(inner, (flags | added) & ~removed, then)
            case sre.BRANCH:
                return self._add(_State([self._build(branch, flags, then) for branch in value[1]]))
            case sre.MAX_REPEAT | sre.MIN_REPEAT:
                return self._repeat(value, flags, then)
            case sre.AT if (
                value is sre.AT_END and not flags & re.MULTILINE and not self._whole
            ):  # also before a line's end that ends the text
                end = self._add(_State([then], edge=at_edge(value, flags)))
                return self._add(_State([end, self._add(_State([end], test=lambda char: char == "\n"))]))
            case sre.AT:
                return self._add(_State([then], edge=at_edge(value, flags)))
            case sre.ASSERT | sre.ASSERT_NOT:
                return self._around(kind, value, flags, then)
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

    def _around(self, kind: Any, value: Any, flags: int, then: int) -> int:
        """`(?=x)`, `(?!x)`, `(?<=x)`, `(?<!x)` for one character x, for `^`, `$` and the like, or for alternatives of these."""
        behind, inner = value[0] < 0, list(value[1])
        conditions = [self._single(branch, flags, behind) for branch in (inner[0][1][1] if _is_branch(inner) else [inner])]

        def one_holds(before: str, after: str) -> bool:
            return any(holds(before, after) for holds in conditions)

        if kind is sre.ASSERT_NOT:
            return self._add(_State([then], edge=lambda before, after: not one_holds(before, after)))
        found = self._add(_State([then], edge=one_holds))
        ends = [(sre.AT, sre.AT_END)] if _has_end(inner) and not flags & re.MULTILINE else []
        return self._add(_State([found, self._build(ends, flags, then)])) if ends else found

    def _single(self, items: Iterable[tuple[Any, Any]], flags: int, behind: bool) -> Edge:
        one = list(items)
        if len(one) == 1:
            kind, value = one[0]
            if kind is sre.SUBPATTERN:
                return self._single(value[3], (flags | value[1]) & ~value[2], behind)
            if kind is sre.AT:
                return at_edge(value, flags)
            if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
                return _beside(char_test(kind, value, flags), behind)
        raise _refused(
            self.pattern,
            say("a look-around can be one character long, no more", "先読み・後読みは 1 文字だけ使えます"),
        )


def _beside(test: Test, behind: bool) -> Edge:
    def holds(before: str, after: str) -> bool:
        char = before if behind else after
        return char != EDGE and test(char)

    return holds


def _has_end(items: Iterable[tuple[Any, Any]]) -> bool:
    """Whether `$` is in it, which also stands before the line's end that ends a text."""
    return any(
        (kind is sre.AT and value is sre.AT_END)
        or (kind is sre.BRANCH and any(_has_end(branch) for branch in value[1]))
        or (kind is sre.SUBPATTERN and _has_end(value[3]))
        for kind, value in items
    )


def _is_branch(items: list[tuple[Any, Any]]) -> bool:
    return len(items) == 1 and items[0][0] is sre.BRANCH


def _refused(pattern: str, why: str) -> ConfigError:
    return ConfigError(
        say(f"the pattern {pattern[:100]!r} cannot be used: {why}", f"パターン {pattern[:100]!r} は使えません: {why}")
    )
