"""Tasks of a graph: what each does, what it waits for, and what becomes of the rest when it fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ...core.notices import Notice, notice
from ...core.record import field, record
from .expression import Expression, expressions

OnFailure = Literal["stop", "skip", "continue", "compensate"]
MARKS = "[]@#~?"  # of places, rounds, tries, undoings and stand-ins, in the ids of a task's calls
ALWAYS, ON_FAILURE = "always", "on_failure"
TOLD = ("status", "output", "error")  # of `steps.NAME`
OWN = ("item", "index", "last", "round", "result", "steps", "params")  # names that mean something in every expression


@record
class Use:
    """A tool and its arguments, in which there may be expressions."""

    tool: str
    args: Mapping[str, Any] = field(factory=dict)


@record
class Task:
    """`after`: what it waits for, beside what its expressions speak of. `when`: `always` (whatever became of those),
    `on_failure` (one of them failed), or an expression; without it, all of them have to be done. `needs`: how many of `after`;
    what only its expressions speak of has to be done whatever `needs` says.

    `each`: once for each item of a list, all at once. `until`: again, until this holds of its `result`, at most `rounds` times.
    `on_failure`: end the run (`stop`), leave out what waits for it (`skip`), go on without (`continue`), or undo what was done
    and end (`compensate`). `fallback` is tried in its place first. `undo` takes back what it did. `alone`: beside nothing else.
    """

    name: str
    use: Use
    after: tuple[str, ...] = ()
    when: Expression | str = ""
    needs: int = 0  # 0: all
    each: Any = None
    until: Expression | None = None
    rounds: int = 1
    retries: int = 0
    retry_delay: float = 0.0
    timeout: float | None = None
    on_failure: OnFailure = "stop"
    fallback: Use | None = None
    undo: Use | None = None
    alone: bool = False
    person: bool = False  # a question, put when nothing else is left to do

    def expressions(self) -> Iterator[Expression]:
        """All of them, but for those of the undoing, which happens in the end."""
        yield from expressions([self.use.args, self.each, self.fallback.args if self.fallback else {}])
        yield from [one for one in (self.when, self.until) if isinstance(one, Expression)]


@record
class Graph:
    """`outputs`: what comes of it, as a template; without it, the outputs of the tasks that nothing waits for."""

    name: str
    tasks: tuple[Task, ...]
    max_parallel: int = 16
    outputs: Any = None
    params: tuple[str, ...] = ()
    description: str = ""

    @property
    def by_name(self) -> dict[str, Task]:
        return {task.name: task for task in self.tasks}

    def waits_for(self, task: Task, known: Mapping[str, Task]) -> tuple[str, ...]:
        """Return the tasks that it names in `after` and in its expressions."""
        spoken = [name for one in task.expressions() for name in _named_tasks(one) if name in known and name != task.name]
        return tuple(dict.fromkeys([*task.after, *spoken]))

    def levels(self) -> list[list[Task]]:
        """Tasks by the longest way to them."""
        known = self.by_name
        left = {task.name: [name for name in self.waits_for(task, known) if name in known] for task in self.tasks}
        depth: dict[str, int] = {}
        while left:
            ready = [name for name, others in left.items() if all(other in depth for other in others)]
            if not ready:
                break  # a circle, which the check tells
            for name in ready:
                depth[name] = 1 + max([depth[other] for other in left.pop(name)], default=-1)
        rows: list[list[Task]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
        for task in self.tasks:
            if task.name in depth:
                rows[depth[task.name]].append(task)
        return rows


def uses_results(call_id: str, graph: Graph) -> bool:
    """Return True if the arguments of a task's call, or the items it is made for, come from results of other tasks. `call_id`
    begins with the name of the task."""
    name = next((call_id[:place] for place, letter in enumerate(call_id) if letter in MARKS), call_id)
    task = graph.by_name.get(name)
    if task is None:
        return True  # unknown
    found = expressions([task.use.args, task.each, task.fallback.args if task.fallback else {}])
    return any(name in graph.by_name for one in found for name in _named_tasks(one))


def conditions(task: Task) -> list[Notice]:
    """Return the conditions and repetitions of a task as texts for people."""
    told = []
    if task.when == ON_FAILURE:
        told.append(notice("graph.on_failure", "on failure"))
    elif task.when == ALWAYS:
        told.append(notice("workflow.always", "always"))
    elif isinstance(task.when, Expression):
        told.append(notice("workflow.if", "if {condition}", condition=task.when.as_text))
    if task.needs:
        told.append(notice("workflow.needs", "after {count} of its dependencies", count=task.needs))
    if task.each is not None:
        items = [one.as_text for one in expressions(task.each)]
        told.append(notice("workflow.each", "for each of {items}", items=", ".join(items) or "…"))
    if task.until is not None:
        told.append(notice("graph.until", "until {condition}", condition=task.until.as_text))
    return told


def _named_tasks(expression: Expression) -> Iterator[str]:
    """The tasks an expression may mean: its names, and `steps.NAME`, `steps["NAME"]`."""
    yield from expression.names
    for path in expression.paths():
        if path[0] == "steps" and len(path) > 1:
            yield path[1]
