"""Plans that a model writes: read, checked against the tools, and made into a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from ...core.durations import seconds
from ...core.errors import ConfigError
from ...core.notices import Notice, join_notices, notice
from ...core.people.visible import shown_call, visible, visible_line
from ...core.record import field, mutable, replace
from ...core.values import read_json
from .bounds import effect_word
from .check import problems
from .expression import BadExpression, template
from .task import Graph, Task, Use

_MOST_STEPS = 200


@mutable
class ExecutionStep:
    """One tool call of a plan.

    Attributes:
        tool_name: The tool.
        arguments: The arguments of the call. They can use the outputs of other steps as `${step}`.
        expected_outcome: The expected output: a text for the model that evaluates it, or a JSON Schema, which is checked.
        timeout: The time after which the step fails: seconds, a text such as "30s", or a `timedelta`.
        name: The name of the step, by which others reference it.
        depends_on: The names of steps that must be done before this one.
    """

    tool_name: str = ""
    arguments: dict[str, Any] = field(factory=dict)
    expected_outcome: str | Mapping[str, Any] = ""
    timeout: float | str | timedelta | None = None
    name: str = ""
    depends_on: Sequence[str] = ()


@mutable
class ExecutionPlan:
    """A plan of tool calls.

    If no step names its dependencies, steps with effects, and the steps after them, are carried out in their order.

    Attributes:
        description: A sentence about the plan.
        steps: The steps.
        parameters: Values that the arguments of steps can use as `${name}` or `${parameters.name}`.
    """

    description: str = ""
    steps: list[ExecutionStep] = field(factory=list)
    parameters: dict[str, Any] = field(factory=dict)


class BadPlan(Exception):
    """A mistake in a plan, in words for the model that wrote it."""


def read_plan(text: str) -> ExecutionPlan:
    try:
        held = read_json(text if text.lstrip()[:1] in ("{", "`") else text[text.find("{") : text.rfind("}") + 1])
    except ValueError as problem:
        raise BadPlan(
            notice("plan.unreadable", "the plan cannot be read ({problem}); write one JSON object", problem=str(problem))
        ) from None
    return plan_from(held)


def plan_from(held: Any) -> ExecutionPlan:
    """Return the plan that a JSON object holds. Raises `BadPlan`."""
    steps = held.get("steps") if isinstance(held, Mapping) else None
    if not isinstance(steps, list) or not all(isinstance(one, Mapping) for one in steps):
        raise BadPlan(notice("plan.shape", 'the plan must be an object with "description" and "steps", a list of objects'))
    if len(steps) > _MOST_STEPS:
        raise BadPlan(
            notice(
                "plan.too_many_steps",
                "a plan has at most {most} steps; this one has {count}",
                most=_MOST_STEPS,
                count=len(steps),
            )
        )
    return ExecutionPlan(
        str(held.get("description", "")),
        [_step(one, number) for number, one in enumerate(steps, 1)],
        dict(given) if isinstance(given := held.get("parameters"), Mapping) else {},
    )


def _step(given: Mapping[str, Any], number: int) -> ExecutionStep:
    args, after = given.get("arguments", given.get("args")), given.get("depends_on")
    return ExecutionStep(
        str(given.get("tool_name") or given.get("tool") or ""),
        dict(args) if isinstance(args, Mapping) else {},
        expected if isinstance(expected := given.get("expected_outcome"), Mapping) else str(expected or ""),
        _limit(given.get("timeout"), number),
        str(given.get("name") or f"step{number}"),
        tuple([str(one) for one in after]) if isinstance(after, list) else (after,) if isinstance(after, str) and after else (),
    )


def _limit(given: Any, number: int) -> float | None:
    if not given:  # 0, "" and null: none
        return None
    try:
        return seconds(given)
    except ConfigError as problem:
        message = notice("plan.timeout", "- timeout of step {number}: {problem}", number=number, problem=str(problem))
        raise BadPlan(message) from None


def plan_as_json(plan: Any) -> dict[str, Any]:
    """Return a plan as JSON: an `ExecutionPlan`, or an object or a mapping with the same fields.

    Raises:
        AttributeError: A field that a plan needs is not there.
        TypeError: The steps are not a list.
    """
    if isinstance(plan, Mapping):
        return dict(plan)
    steps = [dict(one) if isinstance(one, Mapping) else _step_as_json(one) for one in plan.steps]
    told = {"description": str(getattr(plan, "description", "") or ""), "steps": steps}
    return {**told, "parameters": dict(getattr(plan, "parameters", None) or {})}


def _step_as_json(step: Any) -> dict[str, Any]:
    given = {name: getattr(step, name, None) for name in ("arguments", "expected_outcome", "name")}
    after, limit = getattr(step, "depends_on", None), getattr(step, "timeout", None)
    told = {"tool_name": step.tool_name, **{name: value for name, value in given.items() if value}}
    told |= {"depends_on": [after] if isinstance(after, str) else list(after)} if after else {}
    return told | ({"timeout": limit.total_seconds() if isinstance(limit, timedelta) else limit} if limit else {})


def values_of(plan: ExecutionPlan) -> dict[str, Any]:
    """Return the values, in addition to the results of other steps, that arguments of a plan's steps can reference."""
    return {"parameters": plan.parameters, **plan.parameters}


def graph_of(plan: ExecutionPlan, misuse: Callable[[Use], Iterable[str]], is_pure: Callable[[str], bool]) -> Graph:
    """`BadPlan` with everything that is wrong. A tool with effects waits for all the steps before it, in the order in which the
    plan has them and their dependencies allow: that order is meant. Where no step names its dependencies, the order is all
    that there is: then a step also waits for those with effects before it."""
    tasks, wrong = list[Task](), list[str]()
    for step in plan.steps:
        try:
            use = Use(step.tool_name, template(step.arguments, sole=True))
        except BadExpression as problem:
            wrong.append(f"{step.name}: " + str(problem))
            continue
        wrong += [f"{step.name}: " + one for one in misuse(use)]
        limit = cast("float | None", step.timeout)  # as it was read
        tasks.append(Task(step.name, use, after=tuple(step.depends_on), timeout=limit))
    graph = Graph(plan.description or "plan", tuple(tasks), params=tuple(values_of(plan)))
    graph = replace(graph, tasks=tuple(_in_order(graph, is_pure)))
    wrong += [str(one) for one in problems(graph, reserved=("steps", "params"))]  # a plan has no items and rounds
    if wrong:
        raise BadPlan(join_notices("\n", ["- " + one for one in dict.fromkeys(wrong)]))
    return graph


def _in_order(graph: Graph, is_pure: Callable[[str], bool]) -> list[Task]:
    """The tasks, each after what it waits for, else as they stand; those with effects after all before them."""
    known, placed, left = graph.by_name, dict[str, Task](), list(graph.tasks)
    ordered = not any(task.after for task in left)
    while left:
        free = [task for task in left if all(name in placed or name not in known for name in graph.waits_for(task, known))]
        if not free:
            return [*placed.values(), *left]  # a circle, which the check tells
        task = free[0]
        left.remove(task)
        before = [name for name, one in placed.items() if not is_pure(task.use.tool) or (ordered and not is_pure(one.use.tool))]
        placed[task.name] = replace(task, after=tuple(dict.fromkeys([*task.after, *before])))
    return list(placed.values())


def told_plan(plan: ExecutionPlan, graph: Graph, effects: Mapping[str, str]) -> Notice:
    """Return the plan as a list that a person reads before it is carried out. `effects`: what the tools do to the world."""
    lines: list[str] = [visible(" ".join(plan.description.split()))]
    known = graph.by_name
    for number, step in enumerate(plan.steps, 1):
        line = f"{number}. {visible_line(step.name)}: {shown_call(step.tool_name, step.arguments)}"
        if (effect := effects.get(step.tool_name, "pure")) != "pure":
            line = join_notices("", (f"{line} [", effect_word(effect), "]"))
        if waits := graph.waits_for(known[step.name], known):
            line = line + notice("plan.after", " (after {listed})", listed=visible_line(", ".join(waits)))
        lines.append(line)
    return join_notices("\n", lines)
