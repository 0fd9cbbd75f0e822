"""Measures that are read from the code: complexity, lengths, second ways, what ports leave open, what tests touch."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from .source import ROOT, TESTS, Function, functions, modules, nodes, own_nodes

COMPLEX, LONG = 15, 40
PORTS = ("ModelBase", "ActionBase", "ContextBase", "SinkBase", "StrategyBase", "StopRuleBase")
"""Classes whose members are all optional: a part that lacks one gets the default."""

_PRIVATE = re.compile(r"(?<!self)(?<!cls)(?<!\bos)(?<!\bsys)\._(?!replace\()[a-z]|\bimport (?:\w+, )*_[a-z]")
_MODULE_OF_PRIVATE = re.compile(r"[\"']kaname(?:\.\w+)*\._[a-z]")
_SENTENCE_END = re.compile(r"\(\?<=\[[^\]]*[.。]")
_VAGUE = re.compile(r"Returns? (?:what|why|how|who|whose|which|where|when)\b")
_ESTIMATES = re.compile(r"_?(tokens_of|tokens_in|(estimated?|count|approximate|guess)_tokens)")
_PARTICIPLES = {"told", "given", "found", "held"}


def complexity(function: Function) -> int:
    """Return the cyclomatic complexity of a function as radon counts it: 1, and 1 for each branch, loop, handler, `assert`,
    lambda, comprehension and condition of one; each further operand of `and` and `or` counts. Functions inside it do not."""
    return 1 + sum(_branches(node) for node in own_nodes(function))


def _branches(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.Assert() | ast.Lambda():
            return 1
        case ast.For() | ast.While() | ast.AsyncFor():
            return 1 + bool(node.orelse)
        case ast.Try() | ast.TryStar():
            return len(node.handlers) + bool(node.orelse)
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.Match():
            catches_all = any(isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None for case in node.cases)
            return max(0, len(node.cases) - catches_all)
    return 0


def length(function: Function) -> int:
    """Return the lines of a function without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    described = (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - described


def complex_functions() -> Iterator[str]:
    """Yield the functions whose complexity is over 15."""
    for module in modules():
        for function in functions(module.tree):
            if (count := complexity(function)) > COMPLEX:
                yield f"{module.name}:{function.lineno} {function.name} ({count})"


def long_functions() -> Iterator[str]:
    """Yield the functions that have more than 40 lines without their docstrings."""
    for module in modules():
        for function in functions(module.tree):
            if (count := length(function)) > LONG:
                yield f"{module.name}:{function.lineno} {function.name} ({count})"


def inner_imports() -> Iterator[str]:
    """Yield the imports of kaname's own modules that stand inside functions. Imports of heavy packages are not counted."""
    for module in modules():
        for function in functions(module.tree):
            for node in own_nodes(function):
                if isinstance(node, ast.ImportFrom) and node.level:
                    yield f"{module.name}:{node.lineno} {function.name}"


def optional_members() -> Iterator[str]:
    """Yield the members of ports that a part can leave out: those that the base classes give a default."""
    yield from _members_of(PORTS)


def policy_members() -> Iterator[str]:
    """Yield the members of `Policy`: its methods, and its attributes with defaults."""
    yield from _members_of(("Policy",))


def _members_of(names: Sequence[str]) -> Iterator[str]:
    for module in modules():
        if module.package == "kernel":
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and node.name in names:
                    yield from (f"{node.name}.{name}" for name in _members(node))


def _members(node: ast.ClassDef) -> Iterator[str]:
    for inner in node.body:
        targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target] if isinstance(inner, ast.AnnAssign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        names += [inner.name] if isinstance(inner, Function) else []
        yield from (name for name in names if not name.startswith("_"))


# Second ways: one function of each kind is enough.


def _calls(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _records_answer(function: Function, where: str) -> bool:
    """A function that makes an `Answered`; the contracts in `testing`, which need samples, do not count."""
    return (
        not where.startswith("testing/")
        and any(_calls(node) == "Answered" for node in own_nodes(function))
        and not any(
            isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name) and node.cls.id == "Answered"
            for node in own_nodes(function)
        )
    )


def _decides(function: Function, where: str) -> bool:
    """A function that asks policies for their demands; one that asks its own base class does not count."""
    return any(
        _calls(node) == "demand" and isinstance(node.func, ast.Attribute) and _calls(node.func.value) != "super"
        for node in own_nodes(function)
        if isinstance(node, ast.Call)
    )


def _compares_calls(function: Function, where: str) -> bool:
    """A function that compares the keys (`call_key`) or the arguments of two calls; the monitor of `testing` does not count."""
    return not where.startswith("testing/") and any(
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        and all(
            _calls(side) == "call_key" or (isinstance(side, ast.Attribute) and side.attr in ("args", "arguments", "received"))
            for side in (node.left, node.comparators[0])
        )
        for node in own_nodes(function)
    )


def _estimates_tokens(function: Function, where: str) -> bool:
    """A function that is named for it (`tokens_of`, `tokens_in`, `estimate_tokens`, `count_tokens` and the like), and does not
    call another of them."""
    return _ESTIMATES.fullmatch(function.name) is not None and not any(
        _ESTIMATES.fullmatch(_calls(node)) for node in own_nodes(function)
    )


def _backs_off(function: Function, where: str) -> bool:
    """A function that takes the minimum of a limit and a number that is doubled or raised to a power: `min(pause * 2, most)`,
    `min(most, first * growth**attempt)`."""
    return any(
        _calls(node) == "min" and isinstance(node, ast.Call) and any(_grows(one) for one in node.args)
        for node in own_nodes(function)
    )


def _grows(node: ast.AST) -> bool:
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.Pow):
        return not isinstance(node.right, ast.Constant)
    doubled = isinstance(node.op, ast.Mult) and any(
        isinstance(one, ast.Constant) and one.value in (2, 2.0) for one in (node.left, node.right)
    )
    return doubled or _grows(node.left) or _grows(node.right)


SECOND_WAYS: dict[str, Callable[[Function, str], bool]] = {
    "functions that record an answer": _records_answer,
    "functions that ask policies for demands": _decides,
    "functions that compare two calls": _compares_calls,
    "functions that estimate tokens": _estimates_tokens,
    "functions that double a pause": _backs_off,
}


def second_ways(kind: str) -> Iterator[str]:
    counts = SECOND_WAYS[kind]
    for module in modules():
        yield from (f"{module.name}:{one.lineno} {one.name}" for one in functions(module.tree) if counts(one, module.name))


def file_locks() -> Iterator[str]:
    """Yield the modules that lock files: with `flock`, `lockf` or `msvcrt.locking`."""
    for module in modules():
        if any(_calls(node) in ("flock", "lockf", "locking") for node in nodes(module.tree)):
            yield module.name


def sentence_splitters() -> Iterator[str]:
    """Yield the regular expressions that cut a text after the end of a sentence: 。 or . in a class that must stand before."""
    for module in modules():
        for node in nodes(module.tree):
            if _calls(node) in ("compile", "split") and _SENTENCE_END.search(ast.unparse(node)):
                yield f"{module.name}:{node.lineno}"


def vague_docstrings() -> Iterator[str]:
    """Yield the docstrings that begin with "Return what", "why", "how", "who" and the like."""
    for module in modules():
        for node in functions(module.tree):
            if _VAGUE.match(ast.get_docstring(node) or ""):
                yield f"{module.name}:{node.lineno} {node.name}"


def participle_names() -> Iterator[str]:
    """Yield the assignments to local names and the parameters that are called `told`, `given`, `found` or `held`."""
    for module in modules():
        for node in nodes(module.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _PARTICIPLES:
                yield f"{module.name}:{node.lineno} {node.id}"
            elif isinstance(node, ast.arg) and node.arg in _PARTICIPLES:
                yield f"{module.name}:{node.lineno} {node.arg}"


def private_in_tests() -> Iterator[str]:
    """Yield the lines of tests that use a private name (`x._name`, `import _name`), but not of `self`, `cls`, `os`, `sys`, nor
    the public `_replace` of named tuples."""
    for path in sorted(TESTS.rglob("*.py")):
        if path.name != "test_house.py":
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if _PRIVATE.search(line) or _MODULE_OF_PRIVATE.search(line):
                    yield f"{path.relative_to(ROOT)}:{number}"


def lines(package: str = "") -> int:
    """Return the lines of Python of a package, or of all."""
    return sum(module.text.count("\n") for module in modules() if not package or module.package == package)


def described_parameters(names: Sequence[str] = ()) -> tuple[int, int, list[str]]:
    """Return how many parameters of public classes and functions are described in their docstrings, how many there are, and
    those that are not. A parameter is described if the docstring names it in front of a colon or in backticks.

    Args:
        names: Only those of these names; default: all of `kaname.__all__`.
    """
    import kaname

    total, missing = 0, list[str]()
    for name in names or kaname.__all__:
        thing = getattr(kaname, name)
        if inspect.isclass(thing) and issubclass(thing, BaseException | Enum):  # nobody calls an `Enum` with parameters
            continue
        text = _texts(thing)
        for parameter in _parameters(thing):
            total += 1
            if not re.search(rf"(?:^|[\s,*(]){re.escape(parameter)}(?:, [\w, ]+)?:|`{re.escape(parameter)}\b", text):
                missing.append(f"{name}({parameter})")
    return total - len(missing), total, missing


def _texts(thing: Any) -> str:
    if not inspect.isclass(thing):
        return inspect.getdoc(thing) or ""
    return "\n".join([one.__doc__ or "" for one in (thing, thing.__init__)])


def _parameters(thing: Any) -> list[str]:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):  # a type alias or an object of a C extension
        return []
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in signature.parameters.values() if one.kind not in various and not one.name.startswith("_")]
