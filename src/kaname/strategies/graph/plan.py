"""Plans that a model writes: read, checked against the tools, and made into a graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...core.notices import Notice, joined, notice
from ...core.people.visible import visible
from ...core.record import field, record, replace
from ...core.values import read_json
from .bounds import effect_word
from .check import problems
from .expression import BadExpression, template
from .task import Graph, Task, Use

_MOST_STEPS = 200


@record
class ExecutionStep:
    tool_name: str
    arguments: Mapping[str, Any] = field(factory=dict)
    expected_outcome: str | Mapping[str, Any] = ""  # in words, for the judge; or a JSON Schema, which is checked
    timeout: float | None = None
    name: str = ""
    depends_on: tuple[str, ...] = ()


@record
class ExecutionPlan:
    description: str
    steps: tuple[ExecutionStep, ...]
    parameters: Mapping[str, Any] = field(factory=dict)


class BadPlan(Exception):
    """What is wrong with a plan, in words for the model that wrote it."""


def read_plan(text: str) -> ExecutionPlan:
    try:
        held = read_json(text if text.lstrip()[:1] in ("{", "`") else text[text.find("{") : text.rfind("}") + 1])
    except ValueError as problem:
        raise BadPlan(
            notice("plan.unreadable", "the plan cannot be read ({problem}); write one JSON object", problem=str(problem))
        ) from None
    steps = held.get("steps") if isinstance(held, Mapping) else None
    if not isinstance(steps, list) or not all(isinstance(one, Mapping) for one in steps):
        raise BadPlan(notice("plan.shape", 'the plan is an object with "description" and "steps", a list of objects'))
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
        tuple([_step(one, number) for number, one in enumerate(steps, 1)]),
        held.get("parameters") or {},
    )


def _step(given: Mapping[str, Any], number: int) -> ExecutionStep:
    args, after = given.get("arguments", given.get("args")), given.get("depends_on")
    limit = given.get("timeout")
    return ExecutionStep(
        str(given.get("tool_name") or given.get("tool") or ""),
        args if isinstance(args, Mapping) else {},
        expected if isinstance(expected := given.get("expected_outcome"), Mapping) else str(expected or ""),
        float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0 else None,
        str(given.get("name") or f"step{number}"),
        tuple([str(one) for one in after]) if isinstance(after, list) else (after,) if isinstance(after, str) and after else (),
    )


def graph_of(plan: ExecutionPlan, misuse: Callable[[Use], Iterable[str]], is_pure: Callable[[str], bool]) -> Graph:
    """`BadPlan` with everything that is wrong. A tool with effects waits for all the steps before it, in the order in which the
    plan has them and their dependencies allow: that order is meant."""
    tasks, wrong = list[Task](), list[str]()
    for step in plan.steps:
        try:
            use = Use(step.tool_name, template(step.arguments, sole=True))
        except BadExpression as problem:
            wrong.append(f"{step.name}: " + str(problem))
            continue
        wrong += [f"{step.name}: " + one for one in misuse(use)]
        tasks.append(Task(step.name, use, after=step.depends_on, timeout=step.timeout))
    graph = Graph(plan.description or "plan", tuple(tasks), params=tuple(plan.parameters))
    graph = replace(graph, tasks=tuple(_in_order(graph, is_pure)))
    wrong += [str(one) for one in problems(graph, reserved=("steps", "params"))]  # a plan has no items and rounds
    if wrong:
        raise BadPlan(joined("\n", ["- " + one for one in dict.fromkeys(wrong)]))
    return graph


def _in_order(graph: Graph, is_pure: Callable[[str], bool]) -> list[Task]:
    """The tasks, each after what it waits for, else as they stand; those with effects after all before them."""
    known, placed, left = graph.by_name, dict[str, Task](), list(graph.tasks)
    while left:
        free = [task for task in left if all(name in placed or name not in known for name in graph.waits_for(task, known))]
        if not free:
            return [*placed.values(), *left]  # a circle, which the check tells
        task = free[0]
        left.remove(task)
        before = () if is_pure(task.use.tool) else tuple(placed)
        placed[task.name] = replace(task, after=tuple(dict.fromkeys([*task.after, *before])))
    return list(placed.values())


def told_plan(plan: ExecutionPlan, graph: Graph, effects: Mapping[str, str]) -> Notice:
    """Return the plan as a list that a person reads before it is carried out. `effects`: what the tools do to the world."""
    lines: list[str] = [visible(" ".join(plan.description.split()))]
    known = graph.by_name
    for number, step in enumerate(plan.steps, 1):
        line = visible(f"{number}. {step.name}: {step.tool_name}({json.dumps(step.arguments, ensure_ascii=False)})")
        if (effect := effects.get(step.tool_name, "pure")) != "pure":
            line = joined("", (f"{line} [", effect_word(effect), "]"))
        if waits := graph.waits_for(known[step.name], known):
            line = line + notice("plan.after", " (after {listed})", listed=visible(", ".join(waits)))
        lines.append(line)
    return joined("\n", lines)
