"""Label the result's columns as the engine would have for the statement as it was written."""

from __future__ import annotations

from typing import Any

from .names import small

_ENDS = {
    "FROM",
    "WHERE",
    "GROUP_BY",
    "HAVING",
    "ORDER_BY",
    "LIMIT",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "WINDOW",
    "OFFSET",
    "FETCH",
}
_AFTER_CALLS = {"OVER", "FILTER", "WITHIN"}


def label(tree: Any, text: str, tokens: list[Any], dialect: str) -> None:
    """SQLite names a column by how it is written, PostgreSQL by its function; the function may be written otherwise now."""
    from sqlglot import exp

    first = tree
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    if dialect == "duckdb" or not isinstance(first, exp.Select) or (first is not tree and text.startswith("(")):
        return
    written = _written(tokens)
    if len(written) != len(first.expressions):
        return
    made = []
    for one, mine in zip(first.expressions, written, strict=True):
        name = "" if _has_name(one) else _name(mine, text, dialect)
        if dialect == "postgres" and isinstance(one, exp.Pow | exp.Sqrt | exp.Cbrt):  # signs, which are calls now
            name = "?column?"
        made.append(exp.alias_(one, name, quoted=True, copy=False) if name else one)
    first.set("expressions", made)


def _has_name(node: Any) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Alias | exp.Column | exp.Star | exp.Aliases | exp.Dot) or bool(node.find(exp.Star) is node)


def _written(tokens: list[Any]) -> list[list[Any]]:
    """The tokens of each column of the first SELECT that stands in no brackets."""
    depth, inside = 0, False
    made: list[list[Any]] = [[]]
    before = ""
    for token in tokens:
        kind, before_this = token.token_type.name, before
        before = kind
        if depth == 0 and kind in _ENDS and inside and before_this != "DISTINCT":
            break
        if inside and depth == 0 and kind == "COMMA":
            made.append([])
        elif inside and not (made == [[]] and kind in ("DISTINCT", "ALL")):
            made[-1].append(token)
        depth += (kind in ("L_PAREN", "L_BRACKET", "L_BRACE")) - (kind in ("R_PAREN", "R_BRACKET", "R_BRACE"))
        inside = inside or (depth == 0 and kind == "SELECT")
    return made


def _name(tokens: list[Any], text: str, dialect: str) -> str:
    if not tokens:
        return ""
    if dialect == "sqlite":
        return text[tokens[0].start : tokens[-1].end + 1]
    if len(tokens) < 3 or tokens[1].token_type.name != "L_PAREN" or not tokens[0].text.isidentifier():
        return ""
    depth = 0
    for place, token in enumerate(tokens[1:], start=1):
        depth += (token.token_type.name == "L_PAREN") - (token.token_type.name == "R_PAREN")
        if depth == 0:
            after = tokens[place + 1].text.upper() if place + 1 < len(tokens) else "OVER"
            name = small(tokens[0].text)
            return name if after in _AFTER_CALLS and name not in ("cast", "trim", "values", "not", "case") else ""
    return ""
