"""Draw a graph: for the terminal, as Mermaid, as SVG. With progress, the state of every task by shape and word.

`told` puts the words of a drawing into the reader's language.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from ..core.notices import Notice, join_notices, notice
from ..core.people.columns import width
from ..strategies.graph.expression import Expression
from ..strategies.graph.layout import Box, Place, layout
from ..strategies.graph.progress import Progress
from ..strategies.graph.task import Graph, Task, conditions

_SIGNS = {"waiting": "○", "running": "◐", "done": "●", "failed": "✗", "skipped": "–", "undone": "↶"}
_FILLS = {"waiting": "#fff", "running": "#fff4d6", "done": "#e6f4ea", "failed": "#fde7e7", "skipped": "#eee", "undone": "#eee"}
_HIGH = 44
Told = Callable[[Notice], str]


def terminal(graph: Graph, progress: Progress | None = None, told: Told = str) -> str:
    """A line a task, in an order in which it could be done, with what it waits for."""
    known, lines = graph.by_name, [graph.name]
    for row in graph.levels():
        for task in row:
            waits = ", ".join(graph.waits_for(task, known))
            lines.append(f"  {_sign(task, progress)}{task.name}: {told(_does(task))}" + (f"  ← {waits}" if waits else ""))
    return "\n".join(lines)


def mermaid(graph: Graph, progress: Progress | None = None, told: Told = str) -> str:
    known = graph.by_name
    ids = {task.name: f"t{number}" for number, task in enumerate(graph.tasks)}
    lines = ["flowchart TD"]
    for task in graph.tasks:
        label = f"{_quote(_sign(task, progress) + task.name)}<br/>{_quote(told(_does(task)))}"
        shape = ("{{", "}}") if task.person else ("[", "]")
        lines.append(f'    {ids[task.name]}{shape[0]}"{label}"{shape[1]}')
    for task in graph.tasks:
        condition = _condition(task)
        label = f'|"{_quote(condition)}"|' if condition else ""
        lines += [f"    {ids[name]} -->{label} {ids[task.name]}" for name in graph.waits_for(task, known) if name in ids]
    return "\n".join(lines)


def svg(graph: Graph, progress: Progress | None = None, told: Told = str) -> str:
    known = graph.by_name
    placed = layout(tuple([Box(task.name, graph.waits_for(task, known), _wide(task, told), _HIGH) for task in graph.tasks]))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{placed.width:.0f}" height="{placed.height:.0f}" '
        f'font-family="sans-serif" font-size="13"><title>{escape(graph.name)}</title>',
        '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0,0 L8,4 L0,8 z" '
        'fill="#888"/></marker></defs>',
    ]
    lines += [f'<path d="{edge}" fill="none" stroke="#888" marker-end="url(#a)"/>' for edge in placed.edges]
    for task in graph.tasks:
        lines += _box(task, placed.places[task.name], progress, told)
    return "\n".join([*lines, "</svg>"])


def _box(task: Task, place: Place, progress: Progress | None, told: Told) -> list[str]:
    x, y, wide, _ = place
    status = progress.nodes[task.name].status if progress is not None else "waiting"
    dashed = ' stroke-dasharray="5 3"' if task.person or _condition(task) else ""
    size = f'x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{_HIGH}" rx="6"'
    return [
        f'<rect {size} fill="{_FILLS[status]}" stroke="#444"{dashed}/>',
        f'<text x="{x + wide / 2:.0f}" y="{y + 18:.0f}" text-anchor="middle" font-weight="bold">'
        f"{escape(_sign(task, progress) + task.name)}</text>",
        f'<text x="{x + wide / 2:.0f}" y="{y + 35:.0f}" text-anchor="middle" fill="#555">{escape(told(_does(task)))}</text>',
    ]


def _quote(text: str) -> str:
    """Quote a text for Mermaid."""
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _does(task: Task) -> Notice:
    message = notice("workflow.asks", "asks a person") if task.person else task.use.tool
    return join_notices("", (message, " (", join_notices(", ", words), ")") if (words := conditions(task)) else (message,))


def _condition(task: Task) -> str:
    return task.when.as_text if isinstance(task.when, Expression) else task.when


def _sign(task: Task, progress: Progress | None) -> str:
    return "" if progress is None else f"{_SIGNS[progress.nodes[task.name].status]} "


def _wide(task: Task, told: Told) -> float:
    """Room for the longer of its two lines; letters of East Asia are twice as wide."""
    lines = (f"● {task.name}", told(_does(task)))
    return 30 + 7.5 * max(map(width, lines))
