"""The drawing of the house: packages as boxes, one row for each layer, and arrows made from the imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from configparser import ConfigParser

from .counts import lines
from .source import DOCS, ROOT, imported, modules

DRAWING = DOCS / "internals" / "house.svg"
_WIDTH, _ROW, _BOX, _GAP, _MARGIN = 1040, 74, 40, 14, 20
_STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2328}.n{font-size:11px;fill:#59636e}"
    "rect{fill:#f6f8fa;stroke:#8c959f}path{fill:none;stroke:#0969da;stroke-opacity:.45}marker path{fill:#0969da;stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.n{fill:#9198a1}rect{fill:#151b23;stroke:#656c76}"
    "path{stroke:#4493f8}marker path{fill:#4493f8}}"
)


def layers() -> Sequence[Sequence[str]]:
    """Return the packages of each layer, the highest first, as import-linter knows them."""
    read = ConfigParser()
    read.read(ROOT / ".importlinter")
    rows = read["importlinter:contract:layers"]["layers"].split("\n")
    return [[name.strip() for name in row.replace(":", "|").split("|")] for row in rows if row.strip()]


def arrows() -> Mapping[str, set[str]]:
    """Return which packages each package imports, without those that it reaches through another one anyway."""
    known = {name for row in layers() for name in row}
    direct: dict[str, set[str]] = {name: set() for name in known}
    for module in modules():
        for _, target in imported(module):
            there = target.partition("/")[0]
            if module.package in known and there in known and there != module.package:
                direct[module.package].add(there)
    order = {name: number for number, row in enumerate(layers()) for name in row}
    down = {name: {one for one in targets if order[one] > order[name]} for name, targets in direct.items()}

    def reach(name: str) -> set[str]:
        return {name}.union(*[reach(one) for one in down[name]])

    return {name: {one for one in to if not any(one in reach(other) for other in to - {one})} for name, to in down.items()}


def draw() -> str:
    """Return the drawing as SVG, for light and dark pages."""
    rows = layers()
    places: dict[str, tuple[float, float, float]] = {}
    boxes = list[str]()
    for number, row in enumerate(rows):
        width = min(150.0, (_WIDTH - 2 * _MARGIN - _GAP * (len(row) - 1)) / len(row))
        left = (_WIDTH - width * len(row) - _GAP * (len(row) - 1)) / 2
        for place, name in enumerate(row):
            x, y = left + place * (width + _GAP), _MARGIN + number * _ROW
            places[name] = x, y, width
            middle = x + width / 2
            boxes.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_BOX}" rx="6"/>'
                f'<text x="{middle:.0f}" y="{y + 17}" text-anchor="middle">{name}</text>'
                f'<text class="n" x="{middle:.0f}" y="{y + 32}" text-anchor="middle">{lines(name):,} lines</text>'
            )
    lines_between = [
        _arrow(places[name], places[to]) for name in places for to in sorted(arrows()[name], key=lambda one: places[one])
    ]
    height = 2 * _MARGIN + (len(rows) - 1) * _ROW + _BOX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="The packages of kaname">'
    )
    marker = (
        '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker>'
    )
    return "\n".join([head, f"<style>{_STYLE}</style><defs>{marker}</defs>", *lines_between, *boxes, "</svg>"]) + "\n"


def _arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x, y, to_x, to_y = start[0] + start[2] / 2, start[1] + _BOX, end[0] + end[2] / 2, end[1] - 2
    bend = (to_y - y) / 2
    curve = f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"
    return f'<path d="{curve}" marker-end="url(#a)"/>'
