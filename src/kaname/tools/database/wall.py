"""The first wall: a real SQL parser looks at the statement before any database does.

One SELECT, over tables that are there, with functions that only calculate. Everything else is refused with its reason. A parser
can be fooled; the walls behind it are the engine's own.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Collection
from typing import Any

from ...core.errors import ConfigError, nearest
from ...core.language import say
from .functions import ANY_ENGINE, BY_ENGINE, REFUSED, SIZED, TABLE_FUNCTIONS

LONGEST = 10_000  # characters
_DEEPEST = 60  # brackets inside each other
_MOST_TOKENS = 4_000
_KEYWORDS = re.compile(
    r"^\s*(insert|update|delete|drop|alter|create|truncate|replace|merge|grant|revoke|pragma|attach|detach|copy|vacuum|set|"
    r"call|do|execute|prepare|begin|commit|explain|show|install|load|export|import|analyze|lock|listen|notify)\b",
    re.IGNORECASE,
)


class Refused(ValueError):
    """Why a statement is not run, in words for the model that wrote it."""


def check(
    sql: str, dialect: str, tables: Collection[str], functions: Collection[str] = (), columns: Collection[str] = ()
) -> str:
    """The statement, ready to be run; `Refused` if it must not be. `functions`: more that may be used. `columns`: of the
    tables, by which a column is told from a function in PostgreSQL's other way to call one."""
    text = _plain(sql)
    if found := _KEYWORDS.match(text):
        raise Refused(_only_select(found[1].upper()))
    tree = _parsed(text, dialect)
    _walk(tree, dialect, tables, {name.lower() for name in functions})
    if dialect == "postgres":
        _no_hidden_calls(tree, {name.lower() for name in columns})
    return text


def _plain(sql: str) -> str:
    if len(sql) > LONGEST:
        raise Refused(say(f"the statement is longer than {LONGEST:,} characters", f"SQL が {LONGEST:,} 文字を超えています"))
    text = sql.strip().removesuffix(";").rstrip()
    if not text:
        raise Refused(say("there is no statement", "SQL がありません"))
    odd = next(
        (char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\n\t\r"), ""
    )
    if odd:
        raise Refused(say(f"it contains the invisible character U+{ord(odd):04X}", f"見えない文字 U+{ord(odd):04X} があります"))
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise Refused(say(f"it is nested more than {_DEEPEST} levels deep", f"入れ子が {_DEEPEST} 段を超えています"))
    return text


def _parsed(text: str, dialect: str) -> Any:
    glot = _sqlglot()
    try:
        tokens = glot.tokenize(text, dialect=dialect)
        if len(tokens) > _MOST_TOKENS:
            raise Refused(say("it is too long", "長すぎます"))
        if any(token.comments for token in tokens):
            raise Refused(say("write it without comments", "コメントなしで書いてください"))
        trees = glot.parse(text, dialect=dialect)
    except (glot.errors.SqlglotError, RecursionError, ValueError) as problem:
        if isinstance(problem, Refused):
            raise
        told = re.sub(r"\x1b\[[0-9;]*m", "", str(problem)).split("\n")[0] or type(problem).__name__
        raise Refused(say(f"it cannot be read as SQL: {told[:200]}", f"SQL として読めません: {told[:200]}")) from None
    if len(trees) != 1 or trees[0] is None:
        raise Refused(say("write exactly one statement", "文は一つだけ書いてください"))
    return trees[0]


def _sqlglot() -> Any:
    try:
        import sqlglot
    except ImportError as problem:
        raise ConfigError(
            say("the database tool needs a parser: pip install 'kaname[database]'", "pip install 'kaname[database]' が必要です")
        ) from problem
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what is refused here anyway
    return sqlglot


def _only_select(what: str) -> str:
    return say(f"only SELECT is allowed, not {what}", f"SELECT だけが使えます ({what} は使えません)")


def _walk(tree: Any, dialect: str, tables: Collection[str], more: set[str]) -> None:
    from sqlglot import exp

    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        raise Refused(_only_select(type(tree).__name__.upper()))
    never: tuple[Any, ...] = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Pragma, exp.Set, exp.Drop, exp.Alter)
    never += (exp.TruncateTable, exp.Placeholder, exp.Parameter, exp.SessionParameter, exp.Describe, exp.Show, exp.Summarize)
    known = {name.lower() for name in tables}
    for node in tree.walk():
        if isinstance(node, never) and not isinstance(node, exp.Query):
            raise Refused(_only_select(type(node).__name__.upper()))
        if isinstance(node, exp.Table):
            _check_table(node, dialect, known, tables)
        elif isinstance(node, exp.Func) and not isinstance(node, exp.Connector | exp.Case | exp.Cast):
            _check_function(node, dialect, more)


def _check_table(node: Any, dialect: str, known: set[str], tables: Collection[str]) -> None:
    from sqlglot import exp

    if isinstance(node.this, exp.Func):
        name = _function_name(node.this)
        if name not in TABLE_FUNCTIONS[dialect]:
            raise Refused(say(f"{name}() cannot be read from here", f"{name}() はここでは使えません"))
        return
    parts = [part.name for part in node.parts]
    if ".".join(parts).lower() in known or (len(parts) == 1 and _defined_here(node, parts[0].lower(), dialect)):
        return
    missing = say(f"there is no table {'.'.join(parts)!r}", f"テーブル {'.'.join(parts)!r} はありません")
    raise Refused(missing + nearest(".".join(parts), tables))


def _defined_here(node: Any, name: str, dialect: str) -> bool:
    """Whether the name is that of a WITH which can be seen from here: not from outside of its query, nor from inside itself,
    unless it is recursive. Otherwise it would be a way to any table of that name."""
    from sqlglot import exp

    inside, above = node, node.parent
    while above is not None:
        if isinstance(above, exp.With):
            names = [cte.alias.lower() for cte in above.expressions]
            place = next(number for number, cte in enumerate(above.expressions) if cte is inside)
            itself = bool(above.args.get("recursive")) or dialect == "sqlite"
            if name in names[: place + 1 if itself else place]:
                return True
        else:
            held = above.args.get("with_") or above.args.get("with")
            if held is not None and held is not inside and name in [cte.alias.lower() for cte in held.expressions]:
                return True
        inside, above = above, above.parent
    return False


def _no_hidden_calls(tree: Any, columns: set[str]) -> None:
    """`('x'::text).pg_read_file` and `items.leak` call functions in PostgreSQL: what stands after a dot has to be a column."""
    from sqlglot import exp

    named = {alias.alias.lower() for alias in tree.find_all(exp.Alias, exp.TableAlias, exp.Subquery) if alias.alias}
    for alias in tree.find_all(exp.TableAlias):
        named |= {column.name.lower() for column in alias.args.get("columns") or ()}
    for dot in tree.find_all(exp.Dot):
        if not isinstance(dot.expression, exp.Star):
            raise Refused(say("only a table's name may stand before a dot", "ドットの前に書けるのは表の名前だけです"))
    for column in tree.find_all(exp.Column):
        if column.table and not isinstance(column.this, exp.Star) and column.name.lower() not in columns | named | _FIELDS:
            missing = say(f"there is no column {column.sql()!r}", f"列 {column.sql()!r} はありません")
            raise Refused(missing + nearest(column.name, columns))


_FIELDS = {"key", "value", "ordinality"}  # of the rows that table functions make


def _function_name(node: Any) -> str:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc):
        return str(node.this).lower()
    return str(node.sql_name()).lower() if hasattr(node, "sql_name") else type(node).__name__.lower()


def _check_function(node: Any, dialect: str, more: set[str]) -> None:
    from sqlglot import exp

    name = _function_name(node)
    unknown = isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc)
    allowed = name in more or (not unknown and type(node).__name__ not in REFUSED)
    if not allowed and name not in ANY_ENGINE and name not in BY_ENGINE[dialect]:
        raise Refused(say(f"the function {name}() is not allowed here", f"関数 {name}() は使えません"))
    largest = SIZED.get(name)
    if largest is None:
        return
    if node.find_ancestor(exp.Comprehension) or _inside_another(node):
        raise Refused(say(f"{name}() inside such another is not allowed", f"{name}() の入れ子は使えません"))
    for value in node.args.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, exp.Expression) and _asks_for(one) > largest:
                told = say(f"{one.sql()[:40]} is too much for {name}()", f"{name}() に {one.sql()[:40]} は大きすぎます")
                raise Refused(told)


def _inside_another(node: Any) -> bool:
    """Whether a function that makes much stands in the arguments of another: together they make too much."""
    from sqlglot import exp

    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if isinstance(above, exp.Func) and _function_name(above) in SIZED and above is not node:
            return True
        above = above.parent
    return False


def _asks_for(argument: Any) -> float:
    """All the numbers in it, multiplied: more than it can come to."""
    from sqlglot import exp

    product = 1.0
    for literal in argument.find_all(exp.Literal):
        product *= max(1.0, _size(str(literal.this), literal.is_string))
    return product


def _size(text: str, is_format: bool) -> float:
    """How much a number asks for; in a format, its largest one."""
    numbers = re.findall(r"\d+", text) if is_format else [text]
    try:
        return max([abs(float(number)) for number in numbers], default=0.0)
    except ValueError:
        return 0.0
