"""The rules of the house that no linter knows: lengths, names, one broad `except`, requirements with tests, translated docs.

python scripts/house.py            the rules
python scripts/house.py files      makes docs/internals/files.md: every file with the first sentence of its docstring
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "kaname"
DOCS = ROOT / "docs"
LISTED = DOCS / "internals" / "files.md"
ONLY_ENGLISH = {"benchmarks.md", "synonyms.md"}
FILE_LINES, FUNCTION_LINES, LOOP_LINES, FLAT_FILES = 400, 60, 60, 18
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
    *("children", "ending", "heading", "mapping", "meaning", "screen", "setting", "thinking", "token", "warning"),
    *("drawn", "ended", "listed", "received", "shown"),
}
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


def the_loop() -> Iterator[str]:
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
    together = {SOURCE / "kernel" / name for name in ("door.py", "ports.py", "scope.py", "view.py")}
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


def words() -> Iterator[str]:
    """Yield too many docstrings that begin with neither a verb nor a noun, too many functions that are named by a bare
    participle (`told`, `checked`), and class names that exist twice."""
    total, clipped, classes = 0, 0, dict[str, list[str]]()
    functions, participles = 0, list[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                told = ast.get_docstring(node) or ""
                total, clipped = total + bool(told), clipped + bool(_CLIPPED.match(told))
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                participles += [f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"] * is_participle(node.name)
    if clipped > total * CLIPPED_SHARE:
        yield f"{clipped} of {total} docstrings begin with neither a verb nor a noun; the limit is {CLIPPED_SHARE:.0%}"
    if len(participles) > functions * PARTICIPLE_SHARE:
        yield (
            f"{len(participles)} of {functions} functions are named by a bare participle; the limit is {PARTICIPLE_SHARE:.0%}. "
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


_FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_NAME = re.compile(r"--[a-z][\w-]+|[A-Za-z_]\w*(?=\s*[(=:])")
_SPAN = re.compile(r"`([A-Za-z_/.-][\w./-]*)(?:\(…?\))?`")


def translations() -> Iterator[str]:
    """A page in docs/ja has what its page in docs has: headings, options, names, and code but for its texts and comments."""
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("designs/*.md")]):
        name = page.relative_to(DOCS).as_posix()
        other = DOCS / "ja" / name
        if name in ONLY_ENGLISH:
            continue
        if not other.exists():
            yield f"docs/ja/{name} is missing: translate docs/{name}, or add it to ONLY_ENGLISH in scripts/house.py"
            continue
        english, nihongo = page.read_text(encoding="utf-8"), other.read_text(encoding="utf-8")
        for here, there, one, two in (
            (f"docs/{name}", f"docs/ja/{name}", english, nihongo),
            (f"docs/ja/{name}", f"docs/{name}", nihongo, english),
        ):
            missing = sorted({name for name in _names(one) if name not in two})
            if missing:
                yield f"{there} does not name {', '.join(missing)}, which {here} has"
        yield from _structure(name, english, nihongo)


def _structure(page: str, english: str, nihongo: str) -> Iterator[str]:
    heads = [re.findall(r"^(#+) (.*)$", _FENCE.sub("", text), re.MULTILINE) for text in (english, nihongo)]
    if [level for level, _ in heads[0]] != [level for level, _ in heads[1]]:
        told = ["; ".join([f"{level} {title}" for level, title in one]) for one in heads]
        yield f"docs/ja/{page} has other headings than docs/{page}:\n      {told[1]}\n      {told[0]}"
    codes = [
        [(language, _code_names(language, code)) for language, code in _FENCE.findall(text)] for text in (english, nihongo)
    ]
    if len(codes[0]) != len(codes[1]):
        yield f"docs/ja/{page} has {len(codes[1])} code blocks, docs/{page} has {len(codes[0])}"
        return
    for number, (one, two) in enumerate(zip(*codes, strict=True), 1):
        if one != two:
            differ = ", ".join(sorted(one[1] ^ two[1])) or f"```{one[0]} and ```{two[0]}"
            yield f"code block {number} of docs/ja/{page} differs from that of docs/{page}: {differ}"


def _names(text: str) -> set[str]:
    """Options, and what stands in backticks and is one word; a word in capitals is a place holder."""
    return {
        *re.findall(r"(?<![\w-])--[a-z][a-z-]+", text),
        *[one for one in _SPAN.findall(_FENCE.sub("", text)) if not one.isupper()],
    }


def _code_names(language: str, code: str) -> frozenset[str]:
    """Without texts and comments, which are translated: what is called, set and passed; outside Python how lines begin, too."""
    plain = "\n".join([re.sub(r"(^|\s)# .*", "", line) for line in _STRING.sub('""', code).splitlines()])
    begins = [] if language == "python" else [line.split()[0] for line in plain.splitlines() if line.strip()]
    words = [*_NAME.findall(plain), *[word for word in begins if word.isascii()]]
    return frozenset([word for word in words if not iskeyword(word)])


def main() -> int:
    if sys.argv[1:] == ["files"]:
        LISTED.write_text(files(), encoding="utf-8")
        return 0
    for line in [*lengths(), *crowds()]:  # rulers to think about, not gates: see HOUSE.md
        print(f"  (advice) {line}")
    broken = [
        *the_loop(),
        *broad_excepts(),
        *foreign_imports(),
        *cycles(),
        *files_are_listed(),
        *translations(),
        *requirements(),
        *mutations(),
        *words(),
    ]
    for line in broken:
        print(f"  {line}")
    print(f"house: {'in order' if not broken else f'{len(broken)} rules broken'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
