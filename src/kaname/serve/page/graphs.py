"""Draw the graphs of workflows and plans for the page: every task with its place, every edge as a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.events import Event, ModelReplied, Opened, ToolFinished
from ...core.people.columns import width
from ...strategies.graph.layout import Box, layout
from ...strategies.graph.plan import BadPlan, graph_of, plan_from, read_plan
from ...strategies.graph.strategy import GraphStrategy
from ...strategies.orchestrate import PLANNER, Orchestrate

_LINE, _COLUMN, _PADDING = 17, 7.0, 12  # in pixels
_MOST = 44  # columns of a line; a longer one is cut off
_STATUS = 14  # columns for the state of a task, in the reader's language
_MOST_EDGES = 2_000  # a drawing with more edges cannot be read
_MORE = 4  # columns that a translated condition may take beyond the English one


def draw_graph(tasks: Any) -> dict[str, Any] | None:
    """Return the tasks with their places, the edges, and the size of the drawing; None without tasks or with too many edges."""
    if not isinstance(tasks, Sequence) or not all(_is_task(task) for task in tasks):
        return None
    if sum([len(task["after"]) for task in tasks]) > _MOST_EDGES:
        return None
    placed = layout(tuple([Box(task["name"], tuple(task["after"]), *_size(task)) for task in tasks]))
    told = [{**task, **dict(zip("xywh", placed.places[task["name"]], strict=True))} for task in tasks]
    return {"tasks": told, "edges": placed.edges, "width": placed.width, "height": placed.height}


def _is_task(task: Any) -> bool:
    texts = [task.get("name"), task.get("tool"), *task.get("after", [None])] if isinstance(task, Mapping) else [None]
    return all(isinstance(text, str) for text in texts)


def _size(task: Mapping[str, Any]) -> tuple[float, float]:
    conditions = [str(one.get("text", "")) for one in task.get("conditions", ())]
    lines = [width(task["name"]) + 2, width(task["tool"]) + _STATUS, *[width(one) + _MORE for one in conditions]]
    return 2 * _PADDING + _COLUMN * min(_MOST, max(lines)), _PADDING + _LINE * len(lines)


class Graphs:
    """Find the graph in a fact: in the first fact of a workflow, or in a reply or the result of a planner that is a plan."""

    def __init__(self) -> None:
        self._plans = False

    def take(self, event: Event) -> dict[str, Any] | None:
        body = event.body
        if isinstance(body, Opened):
            self._plans = str(body.recipe.get("strategy")).startswith(Orchestrate.__name__)
            return draw_graph(body.recipe.get("graph"))
        if not self._plans:
            return None
        if isinstance(body, ToolFinished) and body.result.name == PLANNER and isinstance(body.result.output, Mapping):
            return draw_graph(_tasks_of_plan(body.result.output.get("plan")))
        return draw_graph(_tasks_of_plan(body.reply.message.text)) if isinstance(body, ModelReplied) else None


def _tasks_of_plan(written: Any) -> list[dict[str, Any]] | None:
    try:
        plan = read_plan(written) if isinstance(written, str) else plan_from(written)
        return GraphStrategy(graph_of(plan, lambda use: (), lambda tool: True)).info.graph
    except BadPlan:
        return None
