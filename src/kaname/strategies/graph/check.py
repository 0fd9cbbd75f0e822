"""Check a graph before anything runs: names, circles, what expressions speak of, tasks that can never run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...core.errors import nearest
from ...core.notices import join_notices, notice
from .expression import BadExpression, Expression, expressions
from .task import ALWAYS, MARKS, ON_FAILURE, OWN, TOLD, Graph, Task


class Problem(NamedTuple):
    """`place`: the field of the task that is wrong."""

    task: str
    place: str
    text: str

    def __str__(self) -> str:
        return join_notices(": ", (self.task, self.text)) if self.task else self.text


def problems(graph: Graph, reserved: Sequence[str] = OWN) -> list[Problem]:
    """All mistakes that can be seen without the tools. `reserved`: names that no task may have."""
    return list(_problems(graph, reserved))


def _problems(graph: Graph, reserved: Sequence[str]) -> Iterator[Problem]:
    if not graph.tasks:
        yield Problem("", "steps", notice("workflow.empty", "the workflow has no steps"))
    known = graph.by_name
    seen: set[str] = set()
    for task in graph.tasks:
        if task.name in seen:
            yield Problem(task.name, "name", notice("workflow.name_twice", "the name is used twice"))
        seen.add(task.name)
        if not task.name.strip() or any(mark in task.name for mark in MARKS) or task.name in reserved:
            message = notice(
                "workflow.no_name",
                "{name!r} cannot be used as a name: it is empty, reserved, or contains one of {marks}",
                name=task.name,
                marks=" ".join(MARKS),
            )
            yield Problem(task.name, "name", message)
        yield from _wrong_links(task, known)
        yield from _wrong_words(task, graph, known)
    for one in expressions(graph.outputs):
        yield from [Problem("", "outputs", text) for text in _unknown(one, graph, known, ())]
    yield from _circle(graph, known)
    yield from _never(graph, known)


def _wrong_links(task: Task, known: Mapping[str, Task]) -> Iterator[Problem]:
    for name in task.after:
        if name == task.name:
            yield Problem(task.name, "depends_on", notice("workflow.waits_for_itself", "the step depends on itself"))
        elif name not in known:
            yield Problem(task.name, "depends_on", _no_task(name, known))
    if task.needs > len(task.after):
        message = notice(
            "workflow.needs_too_many",
            "{needs} tasks are needed, but depends_on lists only {count}",
            needs=task.needs,
            count=len(task.after),
        )
        yield Problem(task.name, "needs", message)
    if task.when == ON_FAILURE and not task.after:
        message = notice("workflow.nothing_to_fail", "on_failure: the step depends on no other step")
        yield Problem(task.name, "condition", message)


def _wrong_words(task: Task, graph: Graph, known: Mapping[str, Task]) -> Iterator[Problem]:
    own = ("item", "index") if task.each is not None else ()
    rounds = ("last", "round") if task.until is not None else ()
    places: list[tuple[str, object, tuple[str, ...]]] = [
        *[(f"args.{name}", value, (*own, *rounds)) for name, value in task.use.args.items()],
        ("for_each", task.each, ()),
        ("condition", task.when if isinstance(task.when, Expression) else None, ()),
        ("until", task.until, ("result", *own, *rounds)),
        ("fallback", task.fallback.args if task.fallback else None, own),
        ("undo", task.undo.args if task.undo else None, ("result", *own)),
    ]
    for place, value, more in places:
        for one in expressions(value):
            yield from [Problem(task.name, place, text) for text in _unknown(one, graph, known, more)]
            if place != "undo" and (task.name in one.names or ("steps", task.name) in one.paths()):
                message = notice("workflow.speaks_of_itself", "{text}: a step cannot use its own result", text=one.text)
                yield Problem(task.name, place, message)


def _no_task(name: str, known: Mapping[str, Task]) -> str:
    return notice("workflow.no_task", "there is no task {name!r}", name=name) + nearest(name, known)


def _unknown(expression: Expression, graph: Graph, known: Mapping[str, Task], more: tuple[str, ...]) -> Iterator[str]:
    said = f"{expression.text}: "
    there = {*known, *more, "steps", "params", *graph.params}
    for name in expression.names:
        if name in OWN and name not in there:
            yield said + notice("workflow.means_nothing", "{name!r} cannot be used here", name=name)
        elif name not in there:
            yield said + notice("workflow.no_such_name", "there is no {name!r}", name=name) + nearest(name, there)
    for path in expression.paths():
        match path:
            case "steps", name if name not in known:
                yield said + _no_task(name, known)
            case "steps", _, name if name not in TOLD:
                fields = ", ".join(TOLD)
                message = notice("workflow.no_field", "a step has no field {name!r} (fields: {there})", there=fields, name=name)
                yield said + message + nearest(name, TOLD)
            case "params", name if name not in graph.params:
                message = notice("workflow.no_parameter", "there is no parameter {name!r}", name=name)
                yield said + message + nearest(name, graph.params)
    if expression.constant:
        try:
            expression.value({})
        except BadExpression as problem:
            yield str(problem)


def _circle(graph: Graph, known: Mapping[str, Task]) -> Iterator[Problem]:
    """The first circle, as a path that one can follow."""
    links = {task.name: [name for name in graph.waits_for(task, known) if name in known] for task in graph.tasks}
    done: set[str] = set()
    for start in links:
        path, inside, stack = list[str](), set[str](), [(start, iter(links[start]))]
        if start in done:
            continue
        path.append(start)
        inside.add(start)
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                done.add(name)
                inside.discard(path.pop())
                stack.pop()
            elif following in inside and following != name:
                around = [*path[path.index(following) :], following]
                message = notice("workflow.circle", "circular dependency: {around}", around=" → ".join(reversed(around)))
                yield Problem(name, "depends_on", message)
                return
            elif following not in done and following not in inside:
                path.append(following)
                inside.add(following)
                stack.append((following, iter(links[following])))


def _never(graph: Graph, known: Mapping[str, Task]) -> Iterator[Problem]:
    """Tasks whose condition can never hold."""
    for task in graph.tasks:
        if isinstance(task.when, Expression) and task.when.constant:
            try:
                holds = task.when.value({})
            except BadExpression:
                continue
            if not holds:
                message = notice("workflow.never_runs", "this step can never run: {text} is always false", text=task.when.text)
                yield Problem(task.name, "condition", message)
        elif isinstance(task.when, str) and task.when not in ("", ALWAYS, ON_FAILURE):
            yield Problem(
                task.name, "condition", notice("workflow.no_condition", "{when!r} is not a condition", when=task.when)
            )
