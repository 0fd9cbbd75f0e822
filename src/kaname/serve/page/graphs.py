"""Draw the graphs of workflows and plans for the page: every task with its place, every edge as a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.events import Event, ModelReplied, Opened
from ...core.people.columns import width
from ...strategies.graph.layout import Box, layout
from ...strategies.graph.plan import BadPlan, graph_of, read_plan
from ...strategies.graph.strategy import GraphStrategy
from ...strategies.orchestrate import Orchestrate

_LINE, _COLUMN, _PADDING = 17, 7.0, 12  # in pixels
_MOST = 44  # columns of a line; what is longer is cut off
_STATUS = 14  # columns for the state of a task, in the reader's language
_MOST_EDGES = 2_000  # beyond that, nobody could read it
_MORE = 4  # columns that a translated condition may take beyond the English one


def drawn(tasks: Any) -> dict[str, Any] | None:
    """Return the tasks with their places, the edges, and the size of it all; `None` if there are no tasks or too many edges."""
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
    """Find the graph that a fact brings: a workflow's first fact, or a reply that is a plan."""

    def __init__(self) -> None:
        self._plans = False

    def take(self, event: Event) -> dict[str, Any] | None:
        body = event.body
        if isinstance(body, Opened):
            self._plans = body.recipe.get("strategy") == Orchestrate.__name__
            return drawn(body.recipe.get("graph"))
        return drawn(_planned(body.reply.message.text)) if self._plans and isinstance(body, ModelReplied) else None


def _planned(text: str) -> list[dict[str, Any]] | None:
    try:
        return GraphStrategy(graph_of(read_plan(text), lambda use: (), lambda tool: True)).drawn
    except BadPlan:
        return None
