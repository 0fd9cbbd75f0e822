"""The rules of the house that no linter knows: lengths, one broad `except`, and every requirement with its test.

python scripts/house.py            the rules
python scripts/house.py files      makes docs/internals/files.md: every file with the first sentence of its docstring
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "kaname"
LISTED = ROOT / "docs" / "internals" / "files.md"
FILE_LINES, FUNCTION_LINES, LOOP_LINES, FLAT_FILES = 400, 60, 60, 16
# A forked child reports whatever ends it; the product's own is kernel/boundary.py.
CATCH_ALL = {"testing/crash_worker.py", "testing/crash_lanes.py"}


def lengths() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(SOURCE).as_posix()
        if (lines := text.count("\n")) > FILE_LINES:
            yield f"{name}: {lines} lines, the limit is {FILE_LINES}"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                long = (node.end_lineno or 0) - node.lineno + 1
                if long > FUNCTION_LINES:
                    yield f"{name}: {node.name} has {long} lines, the limit is {FUNCTION_LINES}"
    if (lines := (SOURCE / "kernel" / "loop.py").read_text().count("\n")) > LOOP_LINES:
        yield f"kernel/loop.py: {lines} lines do not fit on one screen of {LOOP_LINES}"


def crowds() -> Iterator[str]:
    for folder in sorted({path.parent for path in SOURCE.rglob("*.py")}):
        flat = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        if len(flat) > FLAT_FILES:
            yield f"{folder.relative_to(SOURCE)}: {len(flat)} files side by side, the limit is {FLAT_FILES}"


def broad_excepts() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = "" if node.type is None else ast.unparse(node.type)
            reraises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in node.body)
            if caught in ("", "Exception", "BaseException") and not reraises and name not in CATCH_ALL:
                yield f"{name}:{node.lineno}: a broad except; other people's errors are caught in kernel/boundary.py"


def foreign_imports() -> Iterator[str]:
    """`core` and `kernel` import the standard library only; `typing_extensions` is for type checkers."""
    for path in sorted([*(SOURCE / "core").glob("*.py"), *(SOURCE / "kernel").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for name in names:
                if name.partition(".")[0] not in {*sys.stdlib_module_names, "typing_extensions"}:
                    yield f"{path.relative_to(SOURCE)} imports {name}, which is not in the standard library"


def cycles() -> Iterator[str]:
    """No module imports itself by a detour, not even for type checkers or inside functions; but the kernel's core may."""
    graph = {path: set(_imported(path)) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}
    together = {SOURCE / "kernel" / name for name in ("ports.py", "scope.py", "view.py")}
    for path in together:
        graph[path] -= together
    done: set[Path] = set()

    def walk(path: Path, trail: tuple[Path, ...]) -> Iterator[str]:
        if path in trail:
            names = [step.relative_to(SOURCE).as_posix() for step in trail[trail.index(path) :]]
            yield f"import cycle: {' -> '.join([*names, names[0]])}"
        elif path not in done:
            for target in sorted(graph.get(path, ())):
                yield from walk(target, (*trail, path))
            done.add(path)

    for path in sorted(graph):
        yield from walk(path, ())


def _imported(path: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = path.parent
            for _ in range(node.level - 1):
                home = home.parent
            target = home / (node.module or "").replace(".", "/")
            places = [target.with_suffix(".py")] if node.module else []
            places += [target / f"{alias.name}.py" for alias in node.names]
            yield from (place for place in places if place.exists())


def requirements() -> Iterator[str]:
    known: dict[str, object] = {}
    exec((ROOT / "tests" / "designs" / "requirements.py").read_text(encoding="utf-8"), known)
    numbers, still_open = set(known["REQUIREMENTS"]), set(known["OPEN"])  # type: ignore[call-overload]
    partly: dict[str, str] = known["PARTLY"]  # type: ignore[assignment]
    shown: set[str] = set()
    for path in sorted((ROOT / "tests" / "designs").glob("test_*.py")):
        for mark in re.findall(r"@pytest\.mark\.requirement\(([^)]*)\)", path.read_text(encoding="utf-8")):
            named = re.findall(r"[A-E]\d+", mark)
            for number in set(named) - numbers:
                yield f"{path.name} names {number}, which is no requirement"
            shown |= set(named)
    for number in sorted(numbers - shown - still_open):
        yield f"requirement {number} has no test and is not listed as open"
    for number in sorted(still_open & shown):
        yield f"requirement {number} has a test and is still listed as open"
    for number in sorted(set(partly) - shown):
        yield f"{number} is listed as partly shown and has no test"
    for number in sorted(still_open - numbers):
        yield f"{number} is listed as open and is no requirement"
    print(f"requirements: {len(shown & numbers)} shown by tests, {len(still_open)} open, {len(numbers)} in all")
    for number, missing in sorted(partly.items()):
        print(f"  {number} in part; to come: {missing}")


def files() -> str:
    """Every file of the package and what its docstring says first, room by room."""
    lines = ["# Every file, and what it is for", "", "Made by `python scripts/house.py files` from the files themselves."]
    room = ""
    for path in sorted(SOURCE.rglob("*.py"), key=lambda one: (one.parent.relative_to(SOURCE).as_posix(), one.name)):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first = " ".join(told.split("\n\n")[0].split())
        folder = path.parent.relative_to(SOURCE).as_posix()
        if folder == "." or path.name == "__init__.py":
            continue
        if folder != room:
            room = folder
            lines += ["", f"## {folder}", "", "| file | |", "|---|---|"]
        lines.append(f"| `{path.name}` | {first.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def files_are_listed() -> Iterator[str]:
    if LISTED.read_text(encoding="utf-8") != files():
        yield "docs/internals/files.md is not what the files say: python scripts/house.py files"


def main() -> int:
    if sys.argv[1:] == ["files"]:
        LISTED.write_text(files(), encoding="utf-8")
        return 0
    broken = [*lengths(), *crowds(), *broad_excepts(), *foreign_imports(), *cycles(), *files_are_listed(), *requirements()]
    for line in broken:
        print(f"  {line}")
    print(f"house: {'in order' if not broken else f'{len(broken)} rules broken'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
