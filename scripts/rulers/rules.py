"""The rules of the house that no linter knows. Each function yields what is broken."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from .source import DOCS, ROOT, SOURCE, Function, functions, imported, modules, nodes

LISTED = DOCS / "internals" / "files.md"
LOOP_LINES = 60
CLIPPED_SHARE = 0.03  # of the docstrings
_CLIPPED = re.compile(
    r"(?:Of|What|Who|Whether|With|As|Where|Whose|Without|From|For|In|On|At|To|How|When|If|Until|Nothing|Nobody|That|This|It|They|So|But"
    r"|Because|By|After|Before|Only|Once|Whoever|Whatever|Than|Since|While)\b"
)
PARTICIPLE_SHARE = 0.01  # of the functions
_PARTICIPLE = re.compile(
    r"\w+(?:ed|ing|en)|told|found|said|heard|held|made|kept|left|sent|shown|begun|done|gone|known|seen|drawn|meant|lost|brought"
    r"|bought|caught|built|plain|unfit"
)
# Verbs and nouns that only look like participles, and the members that a port names (docs/internals/extend.md).
_NO_PARTICIPLE = {
    *(
        "bring",
        "embed",
        "feed",
        "heed",
        "len",
        "listen",
        "need",
        "open",
        "proceed",
        "reopen",
        "ring",
        "seed",
        "shorten",
        "string",
    ),
    *(
        "children",
        "ending",
        "heading",
        "mapping",
        "meaning",
        "meeting",
        "opening",
        "screen",
        "setting",
        "thinking",
        "token",
        "warning",
    ),
    *("drawn", "ended", "listed", "received", "shown"),
}
# A forked child reports whatever ends it; the product's own is kernel/boundary.py.
CATCH_ALL = {"testing/crash_worker.py", "testing/crash_lanes.py"}
TOGETHER = {f"kernel/{name}.py" for name in ("door", "ports", "scope", "view")}  # these import each other


def the_loop() -> Iterator[str]:
    if (lines := (SOURCE / "kernel" / "loop.py").read_text().count("\n")) > LOOP_LINES:
        yield f"kernel/loop.py: {lines} lines do not fit on one screen of {LOOP_LINES}"


def broad_excepts() -> Iterator[str]:
    for module in modules():
        for node in nodes(module.tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = "" if node.type is None else ast.unparse(node.type)
            reraises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in node.body)
            if caught in ("", "Exception", "BaseException") and not reraises and module.name not in CATCH_ALL:
                yield f"{module.name}:{node.lineno}: a broad except; other people's errors are caught in kernel/boundary.py"


def foreign_imports() -> Iterator[str]:
    """`core` and `kernel`, but for encryption, import the standard library only; `typing_extensions` is for type checkers."""
    for module in modules():
        if module.package not in ("core", "kernel") or module.name.startswith("core/encryption/"):
            continue
        for node in nodes(module.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for name in names:
                if name.partition(".")[0] not in {*sys.stdlib_module_names, "typing_extensions"}:
                    yield f"{module.name} imports {name}, which is not in the standard library"


def cycles() -> Iterator[str]:
    """No module imports itself by a detour, not even for type checkers or inside functions; but the kernel's core may."""
    graph = {module.name: {target for _, target in imported(module)} for module in modules()}
    graph = {name: targets for name, targets in graph.items() if not name.endswith("__init__.py")}
    for name in TOGETHER:
        graph[name] -= TOGETHER
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> Iterator[str]:
        if name in trail:
            yield f"import cycle: {' -> '.join([*trail[trail.index(name) :], name])}"
        elif name not in done:
            for target in sorted(graph.get(name, ())):
                yield from walk(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        yield from walk(name, ())


def requirements() -> Iterator[str]:
    known: dict[str, object] = {}
    exec((ROOT / "tests" / "designs" / "requirements.py").read_text(encoding="utf-8"), known)
    numbers, still_open = set(known["REQUIREMENTS"]), set(known["OPEN"])  # type: ignore[call-overload]
    partly: dict[str, str] = known["PARTLY"]  # type: ignore[assignment]
    shown: set[str] = set()
    for path in sorted((ROOT / "tests" / "designs").glob("test_*.py")):
        for mark in _marks(ast.parse(path.read_text(encoding="utf-8"))):
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


def _marks(tests: ast.Module) -> Iterator[str]:
    """Yield the marks of requirements, but not those of tests that only `scripts/test --all` runs."""
    for node in ast.walk(tests):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            given = [ast.unparse(one) for one in node.decorator_list]
            if "pytest.mark.nightly" not in given:
                yield from (one for one in given if one.startswith("pytest.mark.requirement("))


def words() -> Iterator[str]:
    """Yield too many docstrings that begin with neither a verb nor a noun, too many functions that are named by a bare
    participle (`told`, `checked`), and class names that exist twice."""
    total, clipped, classes = 0, 0, dict[str, list[str]]()
    named, participles = 0, list[str]()
    for module in modules(SOURCE):
        for node in nodes(module.tree):
            if isinstance(node, Function | ast.ClassDef | ast.Module):
                docstring = ast.get_docstring(node) or ""
                total, clipped = total + bool(docstring), clipped + bool(_CLIPPED.match(docstring))
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(module.name)
        for function in functions(module.tree):
            named += 1
            participles += [f"{module.name}:{function.lineno} {function.name}"] * is_participle(function.name)
    if clipped > total * CLIPPED_SHARE:
        yield f"{clipped} of {total} docstrings begin with neither a verb nor a noun; the limit is {CLIPPED_SHARE:.0%}"
    if len(participles) > named * PARTICIPLE_SHARE:
        yield (
            f"{len(participles)} of {named} functions are named by a bare participle; the limit is {PARTICIPLE_SHARE:.0%}. "
            f"Name what the function does (`check_plan`) or returns (`notice`):\n      " + "\n      ".join(participles)
        )
    for name, places in classes.items():
        if len(places) > 1:
            yield f"the class name {name} exists twice: {', '.join(places)}"


def is_participle(name: str) -> bool:
    """Return True if a function's name is one word, and that word is a participle. Python's own `__names__` are not counted."""
    word = name.strip("_")
    return (
        not name.startswith("__") and word not in _NO_PARTICIPLE and _PARTICIPLE.fullmatch(word) is not None and "_" not in word
    )


def mutations() -> Iterator[str]:
    """Yield requirements with too few deliberate faults, and faults that cannot be put into the code any more."""
    from mutations import faults, problems

    yield from problems(faults())


def list_files() -> str:
    """Return the page that lists every file of the package with the first sentence of its docstring, room by room."""
    lines = ["# Every file, and what it is for", "", "Made by `python scripts/house.py files` from the files themselves."]
    room = ""
    for module in sorted(modules(), key=lambda one: (one.path.parent.relative_to(SOURCE).as_posix(), one.path.name)):
        folder = module.path.parent.relative_to(SOURCE).as_posix()
        if folder == "." or module.path.name == "__init__.py":
            continue
        if folder != room:
            room = folder
            lines += ["", f"## {folder}", "", "| file | |", "|---|---|"]
        first = " ".join((ast.get_docstring(module.tree) or "").split("\n\n")[0].split())
        lines.append(f"| `{module.path.name}` | {first.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def files_are_listed() -> Iterator[str]:
    if LISTED.read_text(encoding="utf-8") != list_files():
        yield "docs/internals/files.md is not what the files say: python scripts/house.py files"
