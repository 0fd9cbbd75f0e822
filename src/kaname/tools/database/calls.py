"""Allow-list of calls: only functions that calculate, and none asked for more than it should produce."""

from __future__ import annotations

import re
from typing import Any

from .functions import ANY_ENGINE, BY_ENGINE, LISTS, MOST_MADE, MOST_ROWS, REFUSED, SIZED
from .names import Known, small
from .plain import Refused

_WIDTHS = re.compile(r"%[-+ 0#,!'$\d]*?(\d+)?(?:\.(\d+))?[a-zA-Z%]|\{[^}]*?(\d*)(?:\.(\d+))?[^}\d]*\}")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def allowed(known: Known) -> frozenset[str]:
    return known.functions | ANY_ENGINE | BY_ENGINE[known.dialect]


def check_calls(tree: Any, known: Known, text: str) -> None:
    """`text`: what the tree was read from, for the names as they were written."""
    from sqlglot import exp

    names = allowed(known)
    for node in tree.find_all(exp.Func):
        if isinstance(node, exp.Connector | exp.Case | exp.Cast):
            continue
        name, written = function_name(node), _written(node, text)
        unknown = isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc)
        if name not in names and (unknown or type(node).__name__ in REFUSED):
            raise Refused(f"the function {written}() is not allowed here")
        if name in known.own_functions and name not in known.functions:
            told = f"{written}() is also a function of this database's own"
            raise Refused(told + '; allow it with functions=["…"]')
        if unknown:
            if not _PLAIN.fullmatch(name):
                raise Refused(f"the function {written}() is not allowed here")
            node.set("this", name)  # also if it was written in quotes
        _check_size(node, name, written, known.dialect)


def function_name(node: Any) -> str:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc):
        return small(str(node.name))
    return small(str(node.sql_name()))


def _written(node: Any, text: str) -> str:
    start, end = node.meta.get("start"), node.meta.get("end")
    shown = text[start : end + 1] if isinstance(start, int) and isinstance(end, int) else ""
    return shown if small(shown.strip('"')) == function_name(node) else function_name(node)


def _check_size(node: Any, name: str, written: str, dialect: str) -> None:
    from sqlglot import exp

    if name not in SIZED and name not in LISTS:
        return
    if node.find_ancestor(exp.Comprehension) or _inside_another(node):
        raise Refused(f"{written}() inside such another is not allowed")
    arguments = _arguments(node)
    if name in LISTS:
        _check_rows(node, written, arguments, as_list=dialect == "duckdb" and not isinstance(node.parent, exp.Table))
    elif name in ("printf", "format"):
        if dialect != "sqlite":  # which has a limit of its own for every text
            _check_format(written, arguments)
    elif len(arguments) > SIZED[name]:
        asked = _most(arguments[SIZED[name]])
        if asked is None:
            told = f"say with a number how much {written}() is to make: 20, or least(…, 20)"
            raise Refused(told)
        if asked > MOST_MADE:
            raise Refused(_too_much(arguments[SIZED[name]], written))


def _too_much(argument: Any, written: str) -> str:
    shown = argument.sql()[:40]
    return f"{shown} is too much for {written}()"


def _arguments(node: Any) -> list[Any]:
    from sqlglot import exp

    made: list[Any] = []
    for key in node.arg_types:
        value = node.args.get(key)
        if key == "this" and not isinstance(value, exp.Expression):
            continue
        made += value if isinstance(value, list) else [value] if isinstance(value, exp.Expression) else []
    return made


def _inside_another(node: Any) -> bool:
    """Whether a function that makes much stands in the arguments of another: together they make too much."""
    from sqlglot import exp

    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if isinstance(above, exp.Func) and function_name(above) in SIZED:
            return True
        above = above.parent
    return False


def _most(argument: Any) -> float | None:
    """All the numbers in it, multiplied: more than it can come to. `None` if it depends on the data."""
    from sqlglot import exp

    if isinstance(argument, exp.Anonymous) and function_name(argument) in ("least", "min") and len(argument.expressions) > 1:
        bounds = [_most(one) for one in argument.expressions]
        return min([bound for bound in bounds if bound is not None], default=None)
    if argument.find(exp.Column, exp.Query) or any(not isinstance(one, exp.Array) for one in argument.find_all(exp.Func)):
        return None
    product = 1.0
    for literal in argument.find_all(exp.Literal):
        product *= max(1.0, _number(str(literal.this)))
    return product


def _number(text: str) -> float:
    try:
        return abs(float(text))
    except ValueError:
        return 0.0


def _check_format(written: str, arguments: list[Any]) -> None:
    from sqlglot import exp

    if not arguments:
        return
    form = arguments[0]
    if not isinstance(form, exp.Literal) or "*" in form.this:
        told = f"write the format of {written}() as a text, without *"
        raise Refused(told)
    if re.search(r"\{[^}]*\{", str(form.this).replace("{{", "")):  # a width that is another argument
        raise Refused(_too_much(form, written))
    widths = [int(digits) for found in _WIDTHS.findall(str(form.this)) for digits in found if digits]
    if max([*widths, 0]) > MOST_MADE:
        raise Refused(_too_much(form, written))


def _check_rows(node: Any, written: str, arguments: list[Any], *, as_list: bool) -> None:
    """How many rows, if it can be known. As a list they are all made at once: then it has to be known."""
    from sqlglot import exp

    numbers = [_literal(one) for one in arguments]
    if None not in numbers:
        first, last = (0.0, numbers[0] or 0.0) if len(numbers) == 1 else (numbers[0] or 0.0, numbers[1] or 0.0)
        step = abs(numbers[2] or 0.0) if len(numbers) > 2 else 1.0
        if abs(last - first) / (step or 1.0) > MOST_ROWS:
            raise Refused(_too_much(node, written))
        return
    dates = all(isinstance(one, exp.Cast | exp.Interval | exp.CurrentDate) and not one.find(exp.Column) for one in arguments)
    if as_list and not dates:
        told = f"{written}() makes a list: write its numbers out, or read FROM {written}(…)"
        raise Refused(told)


def _literal(node: Any) -> float | None:
    from sqlglot import exp

    if isinstance(node, exp.Neg):
        inner = _literal(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Paren):
        return _literal(node.this)
    if not isinstance(node, exp.Literal) or node.is_string:
        return _most(node) if isinstance(node, exp.Mul | exp.Add | exp.Sub | exp.Pow) else None
    return float(str(node.this)) if re.fullmatch(r"[\d.]+(?:[eE][+-]?\d+)?", str(node.this)) else None
