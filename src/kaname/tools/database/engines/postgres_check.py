"""Judge a statement for PostgreSQL by its own parser: libpg_query, through postgast."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ....core.errors import nearest
from ..allowed import TYPES, words
from ..statement import Missing, Refused
from ..tables import Known

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


def check(sql: str, known: Known) -> None:
    """`Refused` unless it is one SELECT over known tables, with functions that calculate."""
    postgast = import_module("postgast")  # not by `import`: its stubs are nothing that mypy can read
    try:
        tree = postgast.parse(sql)
    except postgast.PgQueryError as problem:
        raise Refused(f"it cannot be read as SQL: {problem}") from None
    if len(tree.stmts) != 1:
        raise Refused("write exactly one statement")
    nodes = [(node.DESCRIPTOR.name, node) for _, node in postgast.walk(tree)]
    named = {node.ctename for kind, node in nodes if kind == "CommonTableExpr"}
    for name in named:
        known.check_named(name)
    for kind, node in nodes:
        if kind not in _NODES:
            raise Refused(f"only SELECT is allowed, not {kind.removesuffix('Stmt').upper()}")
        if kind == "RangeVar":
            known.check_table((node.catalogname, node.schemaname, node.relname), named)
        elif kind in ("ColumnRef", "A_Indirection"):
            _check_dots([part.string.sval for part in (node.fields if kind == "ColumnRef" else node.indirection)], kind, known)
        elif judge := _JUDGES.get(kind):
            judge(node, known)


def _check_dots(names: list[str], kind: str, known: Known) -> None:
    """`f.pg_read_file` is `pg_read_file(f)` where `f` has no such column."""
    columns = known.columns()
    for name in names[1:] if kind == "ColumnRef" else names:
        if name in known.own_functions - known.functions or (name in known.calls and name not in columns):
            raise Missing(f"there is no column {'.'.join(names)!r}" + nearest(name, columns))


def _check_function(node: Any, known: Known) -> None:
    *schema, name = _parts(node.funcname)
    if schema not in ([], ["pg_catalog"]):  # the parser writes the server's own so, where a word stands for a function
        raise Refused(f"write {name}() without a schema")
    known.check_function(name)


def _check_type(node: Any, known: Known) -> None:
    *schema, name = _parts(node.names)
    if name and name not in TYPES | known.types and not (schema == ["pg_catalog"] and name.removeprefix("_") in TYPES):
        raise Refused(f"a cast to {name} is not allowed here")


def _check_operator(node: Any, known: Known) -> None:
    *schema, name = _parts(node.name)
    if schema:
        raise Refused("write the operator without OPERATOR()")
    _check_own({">=", "<="} if "BETWEEN" in _choice(node, "kind") else {name}, known)


def _check_own(operators: set[str], known: Known) -> None:
    if own := operators & known.own_operators:
        raise Refused(f"{', '.join(sorted(own))} is an operator of this database's own")


def _check_case(node: Any, known: Known) -> None:
    _check_own({"="} if node.HasField("arg") else set(), known)


def _check_join(node: Any, known: Known) -> None:
    _check_own({"="} if node.is_natural or node.using_clause else set(), known)


def _check_value(node: Any, known: Known) -> None:
    if "DATE" not in _choice(node, "op") and "TIME" not in _choice(node, "op"):
        raise Refused("who is asking is not told")


def _parts(names: Any) -> list[str]:
    return [part.string.sval for part in names]


def _choice(node: Any, field: str) -> str:
    """The name of the value of a field that has some to choose from."""
    return str(node.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[getattr(node, field)].name)


_JUDGES: dict[str, Callable[[Any, Known], None]] = {
    "FuncCall": _check_function,
    "TypeName": _check_type,
    "A_Expr": _check_operator,
    "CaseExpr": _check_case,
    "JoinExpr": _check_join,
    "SQLValueFunction": _check_value,
}
