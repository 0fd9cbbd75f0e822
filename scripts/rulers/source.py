"""The code of the package, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "kaname"
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """A file of the package: its place below src/kaname, its text, and its syntax tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """Return the outermost package of the file, or "" for a file that stands next to the packages."""
        return self.name.partition("/")[0] if "/" in self.name else ""


@cache
def modules(source: Path = SOURCE) -> Sequence[Module]:
    """Return all files of the package, sorted by name."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))]
    return [Module(path.relative_to(source).as_posix(), path, text, ast.parse(text)) for path, text in texts]


@cache
def nodes(tree: ast.Module) -> Sequence[ast.AST]:
    """Return all nodes of a syntax tree."""
    return list(ast.walk(tree))


@cache
def functions(tree: ast.Module) -> Sequence[Function]:
    """Return all functions and methods, nested ones among them."""
    return [node for node in nodes(tree) if isinstance(node, Function)]


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield what stands in the body of a function, without what stands in functions and classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def imported(module: Module, source: Path = SOURCE) -> Iterator[tuple[ast.ImportFrom, str]]:
    """Yield the relative imports of a file, each with the file of the package that it imports from."""
    for node in nodes(module.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = module.path.parents[node.level - 1]
            target = home / (node.module or "").replace(".", "/")
            places = [target.with_suffix(".py")] if node.module else []
            places += [target / f"{alias.name}.py" for alias in node.names]
            places += [target / "__init__.py"]
            first = next(iter([place for place in places[:-1] if place.exists()]), places[-1])
            for place in [place for place in places[:-1] if place.exists()] or [first]:
                if place.exists():
                    yield node, place.relative_to(source).as_posix()
