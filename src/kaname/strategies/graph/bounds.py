"""Bounds of a graph, computed before anything runs: calls, time, and what it does to the world."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.notices import Notice, join_notices, notice
from ...core.people.visible import visible
from ...core.record import record
from ...kernel.bases import options_of
from ...kernel.ports import Action
from .task import Graph, Task


@record
class Bounds:
    """`calls` and `seconds` are `None` where there is no bound: a list of unknown length, a task without a time limit.

    `named`: seconds by the time limits that the tasks themselves name. `effects`: by the name of a task, what it does.
    """

    calls: int | None
    seconds: float | None
    named: float
    effects: Mapping[str, str]

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> Notice:
        calls, time = (
            notice("bounds.no_calls", "an unknown number of calls"),
            notice("bounds.no_time", "no time limit of its own"),
        )
        if self.calls is not None:
            plural = "s" * (self.calls != 1)
            calls = notice("bounds.calls", "at most {calls} call{plural}", calls=self.calls, plural=plural)
        if self.seconds is not None:
            time = notice("bounds.time", "at most {seconds:g} s", seconds=self.seconds)
        done = join_notices(", ", [visible(name) + (" (" + effect_word(effect) + ")") for name, effect in self.effects.items()])
        does = (
            notice("bounds.effects", "makes changes: {done}", done=done) if done else notice("bounds.pure", "changes nothing")
        )
        return notice("bounds.all", "{calls}, {time}; {does}", calls=calls, time=time, does=does)


_EFFECTS = {
    "idempotent": notice("effect.idempotent", "idempotent"),
    "compensable": notice("effect.compensable", "compensable"),
    "irreversible": notice("effect.irreversible", "irreversible"),
}


def effect_word(effect: str) -> str:
    """Return an effect's name, for people."""
    return _EFFECTS.get(effect, effect)


def bounds_of(graph: Graph, tools: Mapping[str, Action]) -> Bounds:
    known = graph.by_name
    whole: dict[str, float | None] = {}
    named: dict[str, float] = {}
    for task in [task for row in graph.levels() for task in row]:
        waits = [name for name in graph.waits_for(task, known) if name in whole]
        own, before = _seconds(task, tools), [whole[name] for name in waits]
        longest = [one for one in before if one is not None]
        whole[task.name] = None if own is None or len(longest) < len(before) else own + max(longest, default=0.0)
        named[task.name] = (task.timeout or 0.0) + max([named[name] for name in waits], default=0.0)
    calls = [_calls(task) for task in graph.tasks]
    ends = list(whole.values())
    return Bounds(
        None if None in calls else sum([one or 0 for one in calls]),
        None if None in ends else max([one or 0.0 for one in ends], default=0.0),
        max(named.values(), default=0.0),
        {task.name: tools[task.use.tool].effect for task in graph.tasks if _changes(task, tools)},
    )


def _calls(task: Task) -> int | None:
    if task.each is not None and not isinstance(task.each, list):
        return None
    items = 1 if task.each is None else len(task.each)
    return int(items * task.rounds * (1 + task.retries) + (task.fallback is not None))


def _seconds(task: Task, tools: Mapping[str, Action]) -> float | None:
    """Return the longest time of one task, with all its tries and rounds. The time of a person is not counted."""
    uses = [task.use, *([task.fallback] if task.fallback is not None else [])]
    limits = [task.timeout or options_of(tools.get(use.tool)).timeout for use in uses]
    if task.person or task.each is not None or None in limits:
        return None
    tried = task.rounds * ((1 + task.retries) * (limits[0] or 0.0) + task.retries * task.retry_delay)
    return tried + sum([one or 0.0 for one in limits[1:]])


def _changes(task: Task, tools: Mapping[str, Action]) -> bool:
    return task.use.tool in tools and tools[task.use.tool].effect != "pure" and not task.person
