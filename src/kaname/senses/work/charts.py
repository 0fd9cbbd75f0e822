"""Draw charts and diagrams with matplotlib."""

from __future__ import annotations

import io
from typing import Any

from ..process.child import Job, Refused

_MOST_POINTS, _MOST_NODES = 20_000, 60


def load(opening: dict[str, Any]) -> None:
    import logging

    import matplotlib

    matplotlib.use("Agg")
    logging.disable(logging.WARNING)
    import matplotlib.pyplot

    if opening.get("font"):
        from matplotlib import font_manager

        font_manager.fontManager.addfont(opening["font"])
        matplotlib.rcParams["font.family"] = [font_manager.FontProperties(fname=opening["font"]).get_name(), "DejaVu Sans"]


def draw(job: Job) -> tuple[dict[str, Any], list[bytes]]:
    """Return a chart or diagram as PNG."""
    from matplotlib import pyplot

    data = job.data
    figure, axes = pyplot.subplots(figsize=(8, 5), dpi=110)
    try:
        if data["kind"] == "diagram":
            _diagram(axes, data)
        else:
            _chart(axes, data)
        if data.get("title"):
            axes.set_title(str(data["title"])[:200])
        out = io.BytesIO()
        figure.savefig(out, format="png", bbox_inches="tight")
        return {}, [out.getvalue()]
    finally:
        pyplot.close(figure)


def _chart(axes: Any, data: dict[str, Any]) -> None:
    series, labels, kind = data["series"], data.get("labels") or [], data["kind"]
    if not series or sum(len(values) for values in series.values()) > _MOST_POINTS:
        raise Refused(f"a chart needs between 1 and {_MOST_POINTS:,} numbers")
    if labels and any(len(values) != len(labels) for values in series.values()) and kind != "histogram":
        raise Refused("each series needs as many numbers as there are labels")
    for number, (name, values) in enumerate(series.items()):
        _draw_series(axes, kind, name, values, labels, number, 0.8 / len(series))
    if kind == "bar" and labels:
        axes.set_xticks([at + 0.4 - 0.4 / len(series) for at in range(len(labels))], labels)
    if kind != "pie":
        axes.set_xlabel(str(data.get("x_label", "")))
        axes.set_ylabel(str(data.get("y_label", "")))
        if len(series) > 1:
            axes.legend()


def _draw_series(axes: Any, kind: str, name: str, values: list[float], labels: list[Any], number: int, width: float) -> None:
    """Draw one series. `number`: its place among them; `width`: of its bars."""
    places = labels or list(range(len(values)))
    match kind:
        case "line":
            axes.plot(places, values, marker="o", label=name)
        case "scatter":
            axes.scatter(places, values, label=name)
        case "bar":
            axes.bar([at + number * width for at in range(len(values))], values, width, label=name)
        case "histogram":
            axes.hist(values, bins=min(50, max(5, len(values) // 5)), alpha=0.7, label=name)
        case "pie":
            axes.pie(values, labels=labels or None, autopct="%1.0f%%")
        case other:
            raise Refused(f"there is no chart of the kind {other!r}")


def _diagram(axes: Any, data: dict[str, Any]) -> None:
    """Draw boxes in layers, from the top down, with arrows between them."""
    edges = [(str(one[0]), str(one[1]), str(one[2]) if len(one) > 2 else "") for one in data["edges"]]
    nodes = list(dict.fromkeys([*map(str, data.get("nodes") or ()), *[name for edge in edges for name in edge[:2]]]))
    if not nodes or len(nodes) > _MOST_NODES:
        raise Refused(f"a diagram needs between 1 and {_MOST_NODES} boxes")
    rows = _rows(nodes, edges)
    place = {name: ((at + 0.5) / len(row), -float(down)) for down, row in enumerate(rows) for at, name in enumerate(row)}
    for start, end, label in edges:
        axes.annotate("", place[end], place[start], arrowprops={"arrowstyle": "->", "shrinkA": 18, "shrinkB": 18})
        if label:
            middle = [(a + b) / 2 for a, b in zip(place[start], place[end], strict=True)]
            axes.text(*middle, label, fontsize=8, ha="center", color="0.3")
    for name, (x, y) in place.items():
        axes.text(x, y, name, ha="center", va="center", bbox={"boxstyle": "round,pad=0.5", "fc": "white", "ec": "0.3"})
    axes.set_xlim(0, 1)
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    axes.axis("off")


def _rows(nodes: list[str], edges: list[tuple[str, str, str]]) -> list[list[str]]:
    """Return the boxes in rows: each stands below those whose arrows lead to it."""
    level = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for start, end, _label in edges:
            level[end] = max(level[end], min(level[start] + 1, len(nodes) - 1)) if start != end else level[end]
    rows = [[name for name in nodes if level[name] == at] for at in range(max(level.values()) + 1)]
    return [row for row in rows if row]
