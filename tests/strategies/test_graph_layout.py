"""Graphs on paper: whatever the graph, no edge runs behind a box, and every arrow points down into the box that waits."""

from __future__ import annotations

import random
import re

import pytest

from kaname.strategies.graph.layout import Box, layout

FAN = [("a", ()), *[(f"p{n}", ("a",)) for n in range(7)], ("z", (*[f"p{n}" for n in range(7)], "a"))]
LADDER = [(f"s{n}", tuple([f"s{m}" for m in range(n)])) for n in range(8)]
APART = [("a", ()), ("b", ()), ("c", ("nowhere",)), ("d", ("d",)), ("e", ("f",)), ("f", ("e",))]


def some_graph(seed):
    """A graph of up to 14 tasks, each after any of those before it."""
    chance = random.Random(seed)
    names = [f"{'作業' * chance.randint(0, 6)}{number}" for number in range(chance.randint(2, 14))]
    return [(name, tuple([one for one in names[:place] if chance.random() < 0.35])) for place, name in enumerate(names)]


def boxes(tasks, seed=0):
    chance = random.Random(seed)
    return tuple([Box(name, after, chance.choice((60.0, 130.0, 320.0)), chance.choice((46.0, 63.0))) for name, after in tasks])


def points(edge):
    """Points along a path of curves (C) and straight lines down (V)."""
    numbers = [float(one) for one in re.findall(r"-?\d+\.?\d*", edge.partition("C")[0])]
    x, y = numbers
    for kind, rest in re.findall(r"([CV])([^CVM]*)", edge):
        held = [float(one) for one in re.findall(r"-?\d+\.?\d*", rest)]
        for step in range(21):
            t = step / 20
            if kind == "V":
                yield x, y + (held[0] - y) * t
                continue
            yield tuple([
                (1 - t) ** 3 * start + 3 * (1 - t) ** 2 * t * one + 3 * (1 - t) * t**2 * two + t**3 * end
                for start, one, two, end in zip((x, y), held[:2], held[2:4], held[4:], strict=True)
            ])  # fmt: skip
        x, y = (x, held[0]) if kind == "V" else tuple(held[4:])


@pytest.mark.parametrize("tasks", [FAN, LADDER, APART, *[some_graph(seed) for seed in range(60)]])
def test_layout_has_no_edge_behind_a_box_and_no_box_on_another(tasks):
    drawn = layout(boxes(tasks))
    places = list(drawn.places.values())
    for number, one in enumerate(places):
        assert 0 <= one.x <= one.x + one.width <= drawn.width
        assert 0 <= one.y <= one.y + one.height <= drawn.height
        for other in places[number + 1 :]:
            beside = one.x + one.width < other.x or other.x + other.width < one.x
            assert beside or one.y + one.height < other.y or other.y + other.height < one.y
    for edge in drawn.edges:
        for x, y in points(edge):
            assert 0 <= x <= drawn.width
            inside = [box for box in places if box.x < x < box.x + box.width and box.y + 0.1 < y < box.y + box.height - 0.1]
            assert inside == [], f"{edge} is behind {inside}"


def test_layout_draws_every_edge_into_the_box_that_waits():
    drawn = layout(boxes(LADDER))
    assert len(drawn.edges) == 8 * 7 / 2
    tops = {round(place.y, 1) for place in drawn.places.values()}
    assert {list(points(edge))[-1][1] for edge in drawn.edges} <= tops


def test_layout_leaves_out_edges_of_unknown_names_and_circles():
    drawn = layout(boxes(APART))
    assert drawn.edges == ()
    assert set(drawn.places) == set("abcdef")


def test_layout_of_a_huge_graph_is_quick_and_whole():
    tasks = [(f"t{n}", tuple([f"t{m}" for m in range(max(0, n - 40), n)])) for n in range(150)]
    assert len(layout(boxes(tasks)).places) == 150
