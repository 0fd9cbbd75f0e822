"""Check a statement for PostgreSQL with PostgreSQL's own parser (libpg_query, from the package `postgast`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ....core.errors import nearest
from ..allowed import FUNCTIONS, TYPES, words
from ..statement import Missing, StatementRefused
from ..tables import KnownTables
from .tree import Definition, walk

# What a SELECT may be made of. Anything else is refused: other statements, locks, parameters, XML
_NODES = words(
    """
    Node ParseResult RawStmt SelectStmt ResTarget ColumnRef A_Const A_Star String Integer Float Boolean BitString List A_Expr
    BoolExpr NullTest BooleanTest CaseExpr CaseWhen CoalesceExpr MinMaxExpr SubLink RowExpr A_ArrayExpr A_Indices
    A_Indirection TypeCast TypeName CollateClause FuncCall NamedArgExpr SQLValueFunction SetToDefault WindowDef SortBy
    GroupingSet GroupingFunc RangeVar RangeSubselect RangeFunction RangeTableSample JoinExpr Alias WithClause
    CommonTableExpr CTESearchClause CTECycleClause ColumnDef JsonTable JsonTableColumn JsonTablePathSpec JsonValueExpr
    JsonFormat JsonReturning JsonOutput JsonBehavior JsonFuncExpr JsonKeyValue JsonObjectConstructor
    JsonArrayConstructor JsonArrayQueryConstructor JsonObjectAgg JsonArrayAgg JsonAggConstructor JsonIsPredicate
    JsonArgument JsonParseExpr JsonScalarExpr JsonSerializeExpr
    """
)


def check(sql: str, known: KnownTables) -> None:
    statements = _parse(sql)
    if len(statements) != 1:
        raise StatementRefused("write exactly one statement")
    for node, seen in walk(statements, "withClause", _definitions):
        if "intoClause" in node:
            raise StatementRefused("only SELECT is allowed, not INTO")
        if "typeName" in node:
            _check_type(node["typeName"], known)
        for kind in node:
            if kind[0].isupper():  # objects say what they are by a name; fields begin with small letters
                if kind not in _NODES:
                    raise StatementRefused(f"only SELECT is allowed, not {kind.removesuffix('Stmt').upper()}")
                if kind == "RangeVar":
                    named = node[kind]
                    known.check_table((named.get("catalogname", ""), named.get("schemaname", ""), named["relname"]), seen)
                elif judge := _JUDGES.get(kind):
                    judge(node[kind], known)


def _parse(sql: str) -> list[Any]:
    """Parse to JSON. The messages of postgast would limit the nesting to a hundred levels."""
    library, errors = import_module("postgast.native").lib, import_module("postgast.errors")
    result = library.pg_query_parse(sql.encode())
    try:
        errors.check_error(result)
        return list(json.loads(result.parse_tree).get("stmts", []))
    except errors.PgQueryError as problem:
        raise StatementRefused(f"it cannot be read as SQL: {problem}") from None
    finally:
        library.pg_query_free_parse_result(result)


def _definitions(held: dict[str, Any]) -> list[Definition]:
    """Return the names of a WITH. Each sees those before it; in a recursive WITH, all."""
    found = [one["CommonTableExpr"] for one in held["ctes"]]
    every = held.get("recursive", False)
    return [Definition(one["ctename"], [(one, len(found) if every else place)]) for place, one in enumerate(found)]


def _names(parts: list[Any]) -> list[str]:
    return [part.get("String", {}).get("sval", "") for part in parts]


def _check_dots(names: list[str], known: KnownTables) -> None:
    """Refuse names after a dot that are calls: `f.pg_read_file` is `pg_read_file(f)` if `f` has no such column."""
    columns = known.columns()
    for name in names:
        if name in known.calls - FUNCTIONS["postgres"] - TYPES - columns:
            raise Missing(f"there is no column {name!r}" + nearest(name, columns))


def _check_function(node: Any, known: KnownTables) -> None:
    *schema, name = _names(node["funcname"])
    if schema not in ([], ["pg_catalog"]):  # the parser adds pg_catalog if a keyword stands for a function
        raise StatementRefused(f"write {name}() without a schema")
    known.check_function(name)


def _check_type(node: Any, known: KnownTables) -> None:
    *schema, name = _names(node["names"])
    own = not schema and name in known.types
    if not own and (schema not in ([], ["pg_catalog"]) or name.removeprefix("_") not in TYPES):
        raise StatementRefused(f"a cast to {name} is not allowed here")


def _check_value(node: Any, known: KnownTables) -> None:
    if "DATE" not in node["op"] and "TIME" not in node["op"]:
        raise StatementRefused("who is asking is not told")


_JUDGES: dict[str, Callable[[Any, KnownTables], None]] = {
    "ColumnRef": lambda node, known: _check_dots(_names(node["fields"])[1:], known),
    "A_Indirection": lambda node, known: _check_dots(_names(node["indirection"]), known),
    "FuncCall": _check_function,
    "TypeName": _check_type,
    "SQLValueFunction": _check_value,
}
