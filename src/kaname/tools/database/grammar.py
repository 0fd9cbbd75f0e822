"""The parser: sqlglot's grammar of the engine, with calls kept as they are written. Functions that it knows it would translate,
and translations differ in small things: the type of a number, the name of a column."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

from ...core.errors import ConfigError
from ...core.notices import notice
from .plain import Refused

_MOST_TOKENS = 4_000
_UNITS = r"(?:year|month|week|day|hour|minute|second|quarter|decade|century|centurie|millennium|millisecond|microsecond)s?"
_SIMPLE = re.compile(r"'[+-]?[0-9]+(?:\.[0-9]+)? (?:year|month|week|day|hour|minute|second)s?'", re.IGNORECASE)
_OWN_GRAMMAR = {  # calls with words between their arguments
    "sqlite": ("CAST",),
    "postgres": ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM"),
    "duckdb": ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM"),
}


def parsed(text: str, dialect: str) -> tuple[Any, list[Any]]:
    """The one statement as a tree, and its tokens."""
    glot, grammar = _sqlglot(), _grammar(dialect)
    try:
        tokens = list(glot.tokenize(text, dialect=grammar))
        text = _said_otherwise(text, tokens, dialect)
        if len(tokens) > _MOST_TOKENS:
            raise Refused("it is too long")
        trees = glot.parse(text, dialect=grammar)
    except (glot.errors.SqlglotError, RecursionError, ValueError) as problem:
        if isinstance(problem, Refused):
            raise
        told = re.sub(r"\x1b\[[0-9;]*m", "", str(problem)).split("\n")[0] or type(problem).__name__
        raise Refused(f"it cannot be read as SQL: {told[:200]}") from None
    if len(trees) != 1 or trees[0] is None:
        raise Refused("write exactly one statement")
    _set_right(trees[0], dialect)
    return trees[0], tokens


def _said_otherwise(text: str, tokens: list[Any], dialect: str) -> str:
    """Two things that the parser would misread: INTERVAL '1 day 12:00' is more than a number and a unit; list(x)[1] no type."""
    made, place = [], 0
    for token, after, later in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        kind, following = token.token_type.name, after.token_type.name
        written = text[after.start : after.end + 1]
        if kind == "INTERVAL" and dialect == "sqlite":
            raise Refused('write a column of that name as "interval"')
        with_unit = later is not None and re.fullmatch(_UNITS, later.text, re.IGNORECASE) is not None
        if kind == "INTERVAL" and following == "STRING" and with_unit and not re.fullmatch(r"'[+-]?[0-9]+'", written):
            raise Refused("write INTERVAL '1.5 hours', with the unit in the text")
        if kind == "INTERVAL" and following == "STRING" and not with_unit and not _SIMPLE.fullmatch(written):
            made += [text[place : token.start], f"CAST({written} AS INTERVAL)"]
            place = after.end + 1
        elif dialect == "duckdb" and token.text.lower() == "list" and following == "L_PAREN" and text[token.start] != '"':
            made += [text[place : token.start], "array_agg"]
            place = token.end + 1
    return "".join([*made, text[place:]])


def _set_right(tree: Any, dialect: str) -> None:
    """What the grammar of calls in general takes for something else, or would write without its brackets."""
    from sqlglot import exp

    for no in list(tree.find_all(exp.Not)):  # x NOT IN (…) < y
        if isinstance(no.parent, exp.Binary | exp.In | exp.Between | exp.Cast) and not isinstance(no.parent, exp.Connector):
            if dialect == "sqlite" and no.arg_key == "expression":  # there it is (x = y) NOT IN (…)
                raise Refused("put brackets around the comparison")
            no.replace(exp.Paren(this=no.copy()))
    for join in tree.find_all(exp.Join) if dialect == "sqlite" else ():  # FROM a, b: CROSS would fix their order, for good
        if join.kind == "CROSS" and not join.args.get("on"):
            join.set("kind", "INNER")
            join.set("on", exp.true())
    for within in list(tree.find_all(exp.WithinGroup)) if dialect == "duckdb" else ():
        _as_quantile(within)

    for distinct in list(tree.find_all(exp.Distinct)):  # f(DISTINCT a, b) has two arguments, not one of two parts
        order = distinct.parent if isinstance(distinct.parent, exp.Order) else None
        call = distinct.parent if order is None else order.parent
        first, *others = distinct.expressions or [None]
        if others and isinstance(call, exp.Anonymous):
            distinct.set("expressions", [first])
            if order is not None:
                others[-1] = exp.Order(this=others[-1], expressions=order.expressions)
            call.set("expressions", [distinct, *others])
    for arrow in list(tree.find_all(exp.Lambda)) if dialect == "duckdb" else ():  # f(a -> 'x') looks into JSON
        if not arrow.args.get("colon") and isinstance(arrow.this, exp.Literal) and len(arrow.expressions) == 1:
            into = f"SELECT {generated(arrow.expressions[0], dialect)} -> {generated(arrow.this, dialect)}"
            arrow.replace(parsed(into, dialect)[0].expressions[0])


def _as_quantile(within: Any) -> None:
    """percentile_cont(0.5) WITHIN GROUP (ORDER BY x) is quantile_cont(x, 0.5)."""
    from sqlglot import exp

    call, order = within.this, within.args.get("expression")
    name = str(call.name).lower() if isinstance(call, exp.Anonymous) else ""
    by = order.expressions if isinstance(order, exp.Order) else []
    if name not in ("percentile_cont", "percentile_disc") or len(by) != 1 or by[0].args.get("desc"):
        raise not_plainly()
    inside = [by[0].this.copy(), *[one.copy() for one in call.expressions]]
    within.replace(exp.Anonymous(this=name.replace("percentile", "quantile"), expressions=inside))


def generated(tree: Any, dialect: str) -> str:
    glot = _sqlglot()
    try:
        return str(tree.sql(dialect, identify=True, comments=False, normalize_functions=False))
    except (glot.errors.SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError) as problem:
        raise not_plainly() from problem


def not_plainly() -> Refused:
    return Refused("it cannot be written plainly; write it in a simpler way")


@cache
def _grammar(dialect: str) -> Any:
    base = _sqlglot().Dialect.get_or_raise(dialect).__class__
    grammar = base.parser_class
    kept = {name: own for name, own in grammar.FUNCTION_PARSERS.items() if name in _OWN_GRAMMAR[dialect]}
    parser = type("Parser", (grammar,), {"FUNCTIONS": {}, "FUNCTION_PARSERS": kept})
    as_it_is = {"Parser": parser, "to_json_path": lambda self, path: path}  # x -> 'a.b' means the key a.b
    return type(f"Kaname{base.__name__}", (base,), as_it_is)


def _sqlglot() -> Any:
    try:
        import sqlglot
    except ImportError as problem:
        raise ConfigError(
            notice("database.parser_missing", "the database tool needs a parser: pip install 'kaname[database]'")
        ) from problem
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what is refused here anyway
    return sqlglot
