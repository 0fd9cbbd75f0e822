"""Expressions over a graph's data: comparisons, arithmetic, keys and places. No calls, nothing but the data, bounded work.

Python's own parser reads them; what is not in the lists below is refused when the graph is read.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...core.notices import join_notices, notice
from ...core.record import record
from ...core.values import plain_text

LONGEST = 1_000  # characters
_DEEPEST, _MOST_NODES = 40, 200
_LONGEST_TEXT = 1_000_000  # characters of what an expression makes
_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Is: lambda one, other: one is other,
    ast.IsNot: lambda one, other: one is not other,
}
_WORKED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_WORDS = {"true": True, "false": False, "null": None}
_HOLE = re.compile(r"\$\$\{|\$\{([^{}]*)\}")


class BadExpression(Exception):
    """An expression that cannot be read, or has no value."""


class Expression:
    """`names`: what it speaks of. `value(data)` is its value, or `BadExpression`.

    `sole`: a path that leads nowhere is tried again from inside what holds a single thing: `a[0]`, where `a` has but `rows`.
    """

    def __init__(self, text: str, *, sole: bool = False) -> None:
        self.text, self._sole = text.strip(), sole
        if len(self.text) > LONGEST:
            raise BadExpression(
                notice("expression.too_long", "an expression can have at most {most:,} characters", most=LONGEST)
            )
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            message = notice(
                "expression.unreadable",
                "{text!r} is not a valid expression: {why}",
                text=self.text,
                why=getattr(problem, "msg", problem),
            )
            raise BadExpression(message) from None
        nodes = list(ast.walk(self._tree))
        if len(nodes) > _MOST_NODES:
            raise BadExpression(notice("expression.text_too_long", "the expression {text!r}… is too long", text=self.text[:60]))
        _check_node(self._tree, 0)
        held = [node.id for node in nodes if isinstance(node, ast.Name)]
        self.names = tuple(dict.fromkeys([name for name in held if name not in _WORDS]))

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def as_text(self) -> str:
        """The expression as people read it, without needless parentheses."""
        return ast.unparse(self._tree)

    @property
    def constant(self) -> bool:
        return not self.names

    def paths(self) -> Iterator[tuple[str, ...]]:
        """`a.b["c"]` as `("a", "b", "c")`, and all that it begins with."""
        yield from [path for node in ast.walk(self._tree) if (path := _path(node))]

    def value(self, data: Mapping[str, Any]) -> Any:
        try:
            return _value(self._tree, data)
        except BadExpression as problem:
            inside = {name: _inner(data[name]) for name in self.names if name in data} if self._sole else {}
            if any(inside[name] is not data[name] for name in inside):
                return self.value(inside)
            raise BadExpression(join_notices(": ", (self.text, str(problem)))) from None
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as problem:
            raise BadExpression(join_notices(": ", (self.text, str(problem)))) from None


def _check_node(node: ast.AST, depth: int) -> None:
    if depth > _DEEPEST:
        raise BadExpression(notice("expression.too_deep", "the expression is nested too deeply"))
    match node:
        case ast.Constant(value=str() | int() | float() | bool() | None) | ast.Name():
            return
        case ast.Attribute(attr=name) if name.startswith("_"):
            raise BadExpression(
                notice("expression.no_key", "{name!r} cannot be used: a name must not begin with an underscore", name=name)
            )
        case ast.Attribute() | ast.Subscript() | ast.List() | ast.Tuple() | ast.BoolOp() | ast.IfExp():
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()):
            pass
        case ast.BinOp(op=op) if type(op) in _WORKED:
            pass
        case ast.Compare(ops=ops) if all(type(op) in _COMPARED for op in ops):
            pass
        case ast.Call():
            raise BadExpression(notice("expression.no_calls", "an expression cannot call functions"))
        case _:
            what = type(node).__name__
            raise BadExpression(notice("expression.no_part", "{what} is not allowed in an expression", what=what))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            _check_node(child, depth + 1)


def _apply_sign(op: ast.unaryop, value: Any) -> Any:
    if isinstance(op, ast.Not):
        return not value
    return -_number(value) if isinstance(op, ast.USub) else _number(value)


def _value(node: ast.AST, data: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS[name] if name in _WORDS else _look_up(data, name)
        case ast.Attribute(value=inner, attr=name):
            return _look_up(_value(inner, data), name)
        case ast.Subscript(value=inner, slice=key):
            return _look_up(_value(inner, data), _value(key, data))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, data) for item in items]
        case ast.BoolOp(op=op, values=values):
            return _either(isinstance(op, ast.Or), values, data)
        case ast.UnaryOp(op=op, operand=inner):
            return _apply_sign(op, _value(inner, data))
        case ast.BinOp(left=left, op=op, right=right):
            return _compute(op, _value(left, data), _value(right, data))
        case ast.IfExp(test=test, body=then, orelse=other):
            return _value(then if _value(test, data) else other, data)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _holds(_value(left, data), ops, others, data)
    raise AssertionError("it was allowed")


def _path(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=inner, attr=name) | ast.Subscript(value=inner, slice=ast.Constant(value=str(name))):
            return (*before, name) if (before := _path(inner)) else ()
    return ()


def _either(wanted: bool, values: list[ast.expr], data: Mapping[str, Any]) -> Any:
    for node in values:
        value = _value(node, data)
        if bool(value) is wanted:
            break
    return value


def _holds(left: Any, ops: list[ast.cmpop], others: list[ast.expr], data: Mapping[str, Any]) -> bool:
    for op, node in zip(ops, others, strict=True):
        right = _value(node, data)
        if not _COMPARED[type(op)](left, right):
            return False
        left = right
    return True


def _look_up(inside: Any, key: Any) -> Any:
    if isinstance(inside, Mapping):
        if key in inside:
            return inside[key]
        raise BadExpression(
            notice(
                "expression.no_entry",
                "there is no {key!r}; available: {listed}",
                key=key,
                listed=", ".join(map(str, list(inside)[:8])) or "none",
            )
        )
    if isinstance(inside, list | str) and isinstance(key, int) and not isinstance(key, bool):
        if -len(inside) <= key < len(inside):
            return inside[key]
        raise BadExpression(
            notice("expression.no_place", "index {key} is out of range (length {count})", key=key, count=len(inside))
        )
    raise BadExpression(
        notice("expression.no_attribute", "a value of type {kind} has no {key!r}", kind=type(inside).__name__, key=key)
    )


def _compute(op: ast.operator, left: Any, right: Any) -> Any:
    texts = isinstance(left, str) and isinstance(right, str)
    if isinstance(op, ast.Add) and (texts or (isinstance(left, list) and isinstance(right, list))):
        if len(left) + len(right) > _LONGEST_TEXT:
            raise BadExpression(notice("expression.value_too_long", "the value is too long"))
        return left + right
    return _WORKED[type(op)](_number(left), _number(right))


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadExpression(notice("expression.no_number", "{value!r:.60} is not a number", value=value))
    if isinstance(value, int) and value.bit_length() > 512:
        raise BadExpression(notice("expression.number_too_large", "the number is too large"))
    return value


@record
class TemplateText:
    """A text with holes: strings and expressions by turns. `sole`: what holds a single value is told as that value."""

    pieces: tuple[str | Expression, ...]
    sole: bool = False


def _pieces(text: str, sole: bool) -> list[str | Expression]:
    """Return the texts and expressions of a text with `${…}`, without empty texts."""
    pieces, place = list[str | Expression](), 0
    for hole in _HOLE.finditer(text):
        pieces += [text[place : hole.start()], "${" if hole[1] is None else Expression(hole[1], sole=sole)]
        place = hole.end()
    return [piece for piece in (*pieces, text[place:]) if piece != ""]


def template(value: Any, *, sole: bool = False) -> Any:
    """The value with an `Expression` or a `TemplateText` in the place of every text with `${…}`; `$${` is a plain `${`."""
    if isinstance(value, Mapping):
        return {str(name): template(one, sole=sole) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [template(one, sole=sole) for one in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    kept = _pieces(value, sole)
    if any(isinstance(piece, str) and "${" in piece and not value.count("$${") for piece in kept):
        raise BadExpression(notice("expression.not_closed", "'${{' has no closing '}}' in {text!r}", text=value[:60]))
    if len(kept) == 1 and isinstance(kept[0], Expression):
        return kept[0]
    return TemplateText(tuple(kept), sole) if any(isinstance(piece, Expression) for piece in kept) else "".join(map(str, kept))


def fill_template(value: Any, data: Mapping[str, Any]) -> Any:
    """Return the value of a template."""
    match value:
        case Expression():
            return value.value(data)
        case TemplateText(pieces, sole):
            told = [piece if isinstance(piece, str) else piece.value(data) for piece in pieces]
            return "".join([plain_text(_sole(one) if sole else one) for one in told])
        case Mapping():
            return {name: fill_template(one, data) for name, one in value.items()}
        case list() | tuple():
            return [fill_template(one, data) for one in value]
    return value


def _inner(value: Any) -> Any:
    """The only thing that it holds; itself, if it holds none or several."""
    if isinstance(value, Mapping | list) and len(value) == 1:
        return next(iter(value.values() if isinstance(value, Mapping) else value))
    return value


def _sole(value: Any) -> Any:
    """A table of one row and one column is the number that stands in it."""
    while (inner := _inner(value)) is not value:
        value = inner
    return value


def expressions(value: Any) -> Iterator[Expression]:
    """All that are in a template."""
    match value:
        case Expression():
            yield value
        case TemplateText(pieces, _):
            yield from [piece for piece in pieces if isinstance(piece, Expression)]
        case Mapping():
            for one in value.values():
                yield from expressions(one)
        case list() | tuple():
            for one in value:
                yield from expressions(one)
