"""Roles of a team: who may do what, and who is good at what. They decide who gets a task, and say why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ...core.errors import ConfigError
from ...core.record import record


@record
class Role:
    """`good_at`: in words, such as "prices, taxes and sums". `may`: what it is allowed to do, by names of your own, such as
    "publish"; a task that needs one of them goes to nobody else."""

    good_at: str = ""
    may: tuple[str, ...] = ()


class Choice(NamedTuple):
    """`name`: who gets the task, or nobody (empty). `reason`: why, for people and for the record."""

    name: str
    reason: str
    shared: Mapping[str, tuple[str, ...]]


def choose(task: str, roles: Mapping[str, Role], needs: str = "") -> Choice:
    """Choose the agent that is allowed to do the task and whose role shares the most words with it; rare words
    count more. No model is asked."""
    allowed = {name: role for name, role in roles.items() if not needs or needs in role.may}
    if not allowed:
        return Choice("", f"nobody may {needs}", {})
    shared, scores = _compare(task, allowed)
    best = max(scores, key=lambda name: scores[name])
    equal = [name for name, score in scores.items() if score == scores[best]]
    if len(allowed) == 1 and needs:
        return Choice(best, f"nobody else may {needs}", shared)
    if not scores[best]:
        return Choice("", "the task fits nobody's role: say who", shared)
    if len(equal) > 1:
        return Choice("", f"the task fits {', '.join(equal)} alike: say who", shared)
    good = f"it is good at {', '.join(shared[best])}"
    return Choice(best, f"it may {needs}; {good}" if needs else good, shared)


def _compare(task: str, roles: Mapping[str, Role]) -> tuple[dict[str, tuple[str, ...]], dict[str, float]]:
    """Return the words that each role shares with the task, and the sum of their weights."""
    from ...tools.search.tokenize import query_terms, terms  # its patterns take a while to be made

    words, wanted = {name: set(terms(role.good_at)) for name, role in roles.items()}, query_terms(task)
    shared = {name: tuple([term for term in wanted if term in own]) for name, own in words.items()}
    counts = {term: sum([term in own for own in words.values()]) for term in wanted}
    weight = {term: math.log(1 + len(words) / count) for term, count in counts.items() if count}
    return shared, {name: sum([weight[term] for term in both]) for name, both in shared.items()}


def check_roles(roles: Mapping[str, Role], names: list[str]) -> None:
    for name, role in roles.items():
        right = isinstance(role, Role) and isinstance(role.good_at, str) and isinstance(role.may, tuple | list)
        if name not in names or not right:
            raise ConfigError.of(
                "team.role",
                "roles must map the names of members ({names}) to Role('words', may=('right',)): {name!r} does not fit",
                names=names,
                name=name,
            )
