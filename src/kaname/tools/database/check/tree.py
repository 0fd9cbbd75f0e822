"""Walk a parsed statement, and track which names of WITH are visible where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Names = frozenset[str]


class Definition(NamedTuple):
    """A name of a WITH and the trees that define it, each with the number of names of that WITH that it can see."""

    name: str
    trees: list[tuple[Any, int]]


def walk(tree: Any, key: str, definitions: Callable[[Any], list[Definition]]) -> Iterator[tuple[dict[str, Any], Names]]:
    """Yield every object of the tree with the names of WITH that it can see. `key`: the key of an object's WITH."""
    waiting: list[tuple[Any, Names]] = [(tree, frozenset())]
    while waiting:
        one, seen = waiting.pop()
        if isinstance(one, list):
            waiting += [(item, seen) for item in one]
        elif isinstance(one, dict):
            yield one, seen
            found = definitions(one[key]) if key in one else []
            names = [definition.name for definition in found]
            waiting += [(tree, seen.union(names[:sees])) for definition in found for tree, sees in definition.trees]
            waiting += [(value, seen.union(names)) for name, value in one.items() if name != key]
