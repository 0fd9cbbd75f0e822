"""Where a statement reads from, rewritten: names of WITH to names that no table has, tables to their full and exact names.

If the engine finds names in another way than we do, it finds nothing there; never a table that was not to be seen."""

from __future__ import annotations

from typing import Any

from ...core.errors import nearest
from .functions import TABLE_FUNCTIONS
from .names import Known, small
from .plain import Missing, Refused

_OURS = "kaname_with_"


def rewrite(tree: Any, known: Known) -> None:
    from sqlglot import exp

    if known.dialect == "sqlite":
        _in_tables(tree)
    given = {id(cte): f"{_OURS}{number}" for number, cte in enumerate(tree.find_all(exp.CTE))}
    found = [(table, _definition(table, known)) for table in tree.find_all(exp.Table)]
    for table, cte in found:
        table.set("indexed", None)
        if cte is not None:
            _now_called(table, given[id(cte)], known)
        elif not isinstance(table.this, exp.Func):
            _made_full(table, known)
        elif _called(table.this) not in TABLE_FUNCTIONS[known.dialect]:
            name = _called(table.this)
            raise Refused(f"{name}() cannot be read from here")
    for cte in tree.find_all(exp.CTE):
        cte.args["alias"].set("this", exp.to_identifier(given[id(cte)], quoted=True))


def only_full_names(tree: Any, known: Known) -> None:
    """Of what was rewritten and read again: each table is one of ours, or a real one by its full and exact name."""
    from sqlglot import exp

    ours = {cte.alias for cte in tree.find_all(exp.CTE)}
    for name in ours:
        if not name.startswith(_OURS):
            raise Refused(f"there is no table {name!r}")
    full = {(table.catalog if known.dialect == "duckdb" else "", table.schema, table.name) for table in known.tables}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func):
            if _called(table.this) not in TABLE_FUNCTIONS[known.dialect]:
                raise Refused(f"{table.this.name}() cannot be read from here")
        elif (table.catalog, table.db, table.name) not in full and not (table.name in ours and len(table.parts) == 1):
            raise Refused(f"there is no table {table.name!r}")
    if known.dialect == "sqlite" and any(node.args.get("field") is not None for node in tree.find_all(exp.In)):
        raise Refused("after IN write a list or a SELECT in brackets")


def _called(function: Any) -> str:
    from sqlglot import exp

    if isinstance(function, exp.Anonymous):
        return small(str(function.name))
    return small(str(function.sql_name()))


def _in_tables(tree: Any) -> None:
    """SQLite's `x IN table` is `x IN (SELECT * FROM table)`."""
    from sqlglot import exp

    for node in list(tree.find_all(exp.In)):
        field = node.args.get("field")
        if field is None:
            continue
        if not isinstance(field, exp.Column):
            raise Refused("after IN write a list or a SELECT in brackets")
        table = exp.Table(this=field.this.copy(), db=field.args.get("table"), catalog=field.args.get("db"))
        node.set("field", None)
        node.set("query", exp.Subquery(this=exp.select("*").from_(table, copy=False)))


def _definition(table: Any, known: Known) -> Any:
    """The WITH that a bare name means: not from outside of its query, nor from inside itself unless it is recursive."""
    from sqlglot import exp

    if isinstance(table.this, exp.Func) or len(table.parts) != 1:
        return None
    name = known.folded(table.this)
    inside, above = table, table.parent
    while above is not None:
        if isinstance(above, exp.With):
            place = next(number for number, cte in enumerate(above.expressions) if cte is inside)
            seen = _seen_from(above, place, known.dialect)
        else:
            held = above.args.get("with_") or above.args.get("with")
            seen = held.expressions if held is not None and held is not inside else []
        for cte in seen:
            if known.folded(cte.args["alias"].this) == name:
                return cte
        inside, above = above, above.parent
    return None


def _seen_from(held: Any, place: int, dialect: str) -> list[Any]:
    """Of one WITH, from inside its definition number `place`."""
    if dialect == "sqlite" or (dialect == "postgres" and held.args.get("recursive")):
        return list(held.expressions)
    return list(held.expressions[: place + 1 if held.args.get("recursive") else place])


def _now_called(table: Any, name: str, known: Known) -> None:
    from sqlglot import exp

    alias = table.args.get("alias")
    if alias is None or alias.this is None:
        before = exp.to_identifier(known.folded(table.this) if known.dialect == "postgres" else table.name, quoted=True)
        if alias is None:
            table.set("alias", exp.TableAlias(this=before))
        else:
            alias.set("this", before)
    table.set("this", exp.to_identifier(name, quoted=True))


def _made_full(table: Any, known: Known) -> None:
    from sqlglot import exp

    parts = table.parts
    real = (
        known.table([known.folded(part) for part in parts]) if all(isinstance(part, exp.Identifier) for part in parts) else None
    )
    if real is None:
        written = ".".join([part.name for part in parts])
        raise Missing(f"there is no table {written!r}" + nearest(written, known.spelled()))
    table.set("this", exp.to_identifier(real.name, quoted=True))
    table.set("db", exp.to_identifier(real.schema, quoted=True) if real.schema else None)
    in_full = known.dialect == "duckdb" and bool(real.catalog)
    table.set("catalog", exp.to_identifier(real.catalog, quoted=True) if in_full else None)
    table.meta["real"] = real
