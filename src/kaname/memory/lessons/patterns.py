"""Group runs: failures by their cause, tasks by their kind, and for each kind the tools and their order that succeed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ...core.record import record
from ...tools.search.tokenize import query_terms, terms
from .history import Cause, PastRun

_ALIKE = 0.25  # of the words of two tasks: by trial with English and Japanese tasks
_RARE = 0.3  # what a word counts that every question has, or that one task alone has: a name, a number
_EXAMPLES = 3


@record
class FailureGroup:
    """Runs of one user that failed for the same cause, with the same tool. The newest is the last."""

    cause: Cause
    tool: str
    user: str
    runs: tuple[PastRun, ...]

    def to_json(self) -> dict[str, Any]:
        shown = [{"run": one.run_id, "task": one.task[:200], "note": one.note[:200]} for one in self.runs[::-1][:_EXAMPLES]]
        return {"cause": self.cause, "tool": self.tool, "user": self.user, "runs": len(self.runs), "examples": shown}


@record
class SuccessPattern:
    """A kind of task, named by an example, and one way to do it: the tools in their order.

    `good`, `runs`: how many of the runs that did it in this way went well, and how many did.
    """

    kind: str
    tools: tuple[str, ...]
    good: int
    runs: int
    examples: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__match_args__}


def group_failures(runs: Iterable[PastRun]) -> list[FailureGroup]:
    """Return the failed runs in groups, the largest first. Each is in exactly one."""
    groups: dict[tuple[Cause, str, str], list[PastRun]] = defaultdict(list)
    for one in runs:
        if one.cause:
            groups[one.cause, one.tool, one.user].append(one)
    return sorted([FailureGroup(*key, tuple(held)) for key, held in groups.items()], key=lambda one: -len(one.runs))


def find_patterns(runs: Iterable[PastRun], least: int = 2) -> list[SuccessPattern]:
    """Return the order of tools that did each kind of task, the most frequent kind first, the best way of each first.

    Ways with fewer than `least` successes are left out.
    """
    asked = [one for one in runs if one.task]
    found = list[tuple[int, SuccessPattern]]()
    for kind in group_tasks([one.task for one in asked]):
        ways: dict[tuple[str, ...], list[PastRun]] = defaultdict(list)
        for place in kind:
            ways[asked[place].tools].append(asked[place])
        for tools, held in ways.items():
            good = [one.run_id for one in held if not one.cause]
            if len(good) >= least:
                made = SuccessPattern(asked[kind[0]].task[:80], tools, len(good), len(held), tuple(good[-_EXAMPLES:]))
                found.append((len(kind), made))
    return [one for _, one in sorted(found, key=lambda each: (-each[0], each[1].kind, -each[1].good / each[1].runs))]


def group_tasks(tasks: Sequence[str]) -> list[list[int]]:
    """Group tasks of a kind by their words, in English and Japanese. Return the places of each group; its first is typical."""
    words = [frozenset(terms(task)) for task in tasks]
    counts = Counter([word for one in {*words} for word in one])
    telling = {word for task in tasks for word in query_terms(task) if counts[word] > 1}
    groups = list[list[int]]()
    for place, own in enumerate(words):
        near = [(_likeness(own, words[group[0]], telling), group) for group in groups]
        best = max(near, key=lambda one: one[0], default=(0.0, []))
        best[1].append(place) if best[0] >= _ALIKE else groups.append([place])
    return groups


def is_same_kind(one: str, other: str) -> bool:
    return len(group_tasks([one, other])) == 1


def _likeness(one: frozenset[str], other: frozenset[str], telling: set[str]) -> float:
    shared, every = [sum([1.0 if word in telling else _RARE for word in words]) for words in (one & other, one | other)]
    return shared / every if every else 1.0


def telling_words(these: Iterable[str], others: Iterable[str], most: int = 6) -> tuple[str, ...]:
    """Return for each kind of these tasks the words that most of them have, and few of the others, with spaces between them.

    Nothing is returned if a kind has no such words: then nothing tells these tasks apart.
    """
    mine, rest = [task for task in these if task], [frozenset(terms(task)) for task in others if task]
    around, found = Counter(chain.from_iterable(rest)), list[str]()
    for kind in group_tasks(mine):
        counts = Counter([word for place in kind for word in frozenset(terms(mine[place]))])
        share = {word: count / len(kind) - around[word] / max(1, len(rest)) for word, count in counts.items()}
        fitting = [word for word in share if counts[word] * 2 > len(kind) and share[word] > 0.5]
        found.append(" ".join(sorted(fitting, key=lambda word: (-share[word], word))[:most]))
    return tuple(found) if all(found) else ()
