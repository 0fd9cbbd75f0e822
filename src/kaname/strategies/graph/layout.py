"""Place the boxes and edges of a graph on paper: rows from top to bottom, and no edge behind a box.

An edge over several rows gets a place of its own in each row between, so that it passes between the boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ...core.record import field, mutable

_GAP_X, _GAP_Y, _EDGE = 24.0, 40.0, 10.0
_PORT = 14.0  # between edges that meet one side of a box
_ROUNDS = 6
_MOST_PLACES = 5_000  # of edges in the rows between; a graph that needs more is drawn with straight edges


class Box(NamedTuple):
    name: str
    after: tuple[str, ...]
    width: float
    height: float


class Place(NamedTuple):
    x: float
    y: float
    width: float
    height: float


class Layout(NamedTuple):
    """`edges`: a path for each, as SVG writes it, from a box to one that waits for it."""

    width: float
    height: float
    places: dict[str, Place]
    edges: tuple[str, ...]


@mutable
class _Node:
    """A box, or (without `box`) the place of an edge in a row."""

    width: float
    box: Box | None = None
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0
    up: list[_Node] = field(factory=list)
    down: list[_Node] = field(factory=list)

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@lru_cache(maxsize=64)
def layout(boxes: tuple[Box, ...]) -> Layout:
    """Place these boxes. An edge from a name that is not among them, or against the order of rows, is left out."""
    depth = _depths(boxes)
    rows: list[list[_Node]] = [[] for _ in range(1 + max(depth.values(), default=0))]
    nodes = {box.name: _Node(box.width, box) for box in boxes}
    for name, node in nodes.items():
        rows[depth[name]].append(node)
    ways = list(_ways(boxes, depth, nodes, rows))
    _settle(rows, 1 if len(ways) > _MOST_PLACES else _ROUNDS)
    height = _EDGE
    for row in rows:
        tall = max([node.box.height for node in row if node.box is not None], default=0.0)
        for node in row:
            node.y, node.height = height, tall
        height += tall + _GAP_Y
    every = [node for row in rows for node in row]
    left = min([node.x for node in every], default=0.0) - _EDGE
    for node in every:
        node.x -= left
    places = {name: Place(node.x, node.y, node.width, node.height) for name, node in nodes.items()}
    wide = max([place.x + place.width for place in places.values()], default=0.0)
    wide = max([wide, *[node.x for node in every]]) + _EDGE
    ports = _ports(nodes.values())
    return Layout(wide, height - _GAP_Y + _EDGE, places, tuple([_path(way, ports) for way in ways]))


def _depths(boxes: Sequence[Box]) -> dict[str, int]:
    """Return the row of each box: one below the lowest that it waits for. Boxes in a circle stand in the first."""
    known = {box.name for box in boxes}
    waits = {box.name: {name for name in box.after if name in known} for box in boxes}
    waiting: dict[str, list[str]] = {name: [] for name in known}
    for name, others in waits.items():
        for other in others:
            waiting[other].append(name)
    depth = dict.fromkeys(waits, 0)
    left = {name: len(others) for name, others in waits.items()}
    ready = [name for name, count in left.items() if not count]
    for name in ready:
        for one in waiting[name]:
            depth[one] = max(depth[one], depth[name] + 1)
            left[one] -= 1
            if not left[one]:
                ready.append(one)
    return {**dict.fromkeys(known - {*ready}, 0), **{name: depth[name] for name in ready}}


def _ways(
    boxes: Sequence[Box], depth: dict[str, int], nodes: dict[str, _Node], rows: list[list[_Node]]
) -> Iterable[list[_Node]]:
    edges = [(name, box.name) for box in boxes for name in box.after if name in nodes and depth[name] < depth[box.name]]
    straight = sum([depth[to] - depth[start] - 1 for start, to in edges]) > _MOST_PLACES
    for start, to in edges:
        between = [] if straight else [_Node(2.0) for _ in range(depth[start] + 1, depth[to])]
        for row, node in zip(rows[depth[start] + 1 :], between, strict=False):
            row.append(node)
        way = [nodes[start], *between, nodes[to]]
        for upper, lower in pairwise(way):
            upper.down.append(lower)
            lower.up.append(upper)
        yield way


def _settle(rows: list[list[_Node]], rounds: int) -> None:
    """Move every node towards its neighbours: those above, those below, and in the end both."""
    for row in rows:
        _spread(row, {id(node): float(place) for place, node in enumerate(row)})
    for _ in range(rounds):
        for row in rows:
            _approach(row, [node.up for node in row])
        for row in reversed(rows):
            _approach(row, [node.down for node in row])
    for row in rows:
        _approach(row, [[*node.up, *node.down] for node in row])


def _approach(row: list[_Node], near: list[list[_Node]]) -> None:
    wanted = [
        sum([one.middle for one in others]) / len(others) if others else node.middle
        for node, others in zip(row, near, strict=True)
    ]
    _spread(row, {id(node): want for node, want in zip(row, wanted, strict=True)})


def _spread(row: list[_Node], wanted: dict[int, float]) -> None:
    """Place a row in the order of where its nodes want to be, and as near to it as the others allow."""
    row.sort(key=lambda node: wanted[id(node)])
    left = float("-inf")
    for node in row:
        node.x = max(wanted[id(node)] - node.width / 2, left)
        left = node.x + node.width + _GAP_X
    aside = sum([wanted[id(node)] - node.middle for node in row]) / max(1, len(row))
    for node in row:
        node.x += aside


def _path(way: list[_Node], ports: dict[tuple[int, int], float]) -> str:
    first, last = way[0], way[-1]
    x, y = ports[id(first), id(way[1])], first.y + first.height
    path = f"M{x:.1f},{y:.1f}"
    for upper, lower in pairwise(way):
        to_x = ports[id(last), id(upper)] if lower is last else lower.middle
        half = (y + lower.y) / 2
        path += f"C{x:.1f},{half:.1f} {to_x:.1f},{half:.1f} {to_x:.1f},{lower.y:.1f}"
        x, y = to_x, lower.y
        if lower is not last:
            y += lower.height
            path += f"V{y:.1f}"
    return path


def _ports(nodes: Iterable[_Node]) -> dict[tuple[int, int], float]:
    """Return the point at which each edge meets a box. The edges of a side have the order of the boxes at their other ends."""
    found: dict[tuple[int, int], float] = {}
    for box in nodes:
        for side in (box.up, box.down):
            step = min(_PORT, 0.7 * box.width / max(1, len(side)))
            for place, other in enumerate(sorted(side, key=lambda node: node.middle)):
                found[id(box), id(other)] = box.middle + (place - (len(side) - 1) / 2) * step
    return found
