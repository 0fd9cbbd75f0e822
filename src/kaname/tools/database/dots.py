"""Reject PostgreSQL's call by a dot: `f.pg_read_file` is `pg_read_file(f)` where `f` has no such column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from ...core.errors import nearest
from .names import Known
from .plain import Missing, Refused

_FIELDS = frozenset({"key", "value", "ordinality"})  # of the rows that table functions make


def no_hidden_calls(tree: Any, known: Known, allowed: Collection[str]) -> None:
    """Before anything was rewritten. What is the name of a function has to be a column of every source of that name."""
    from sqlglot import exp

    for dot in tree.find_all(exp.Dot):
        if not isinstance(dot.expression, exp.Star):
            raise Refused("only a table's name may stand before a dot")
    columns = known.columns()
    sources = _sources(tree, known)
    for column in tree.find_all(exp.Column):
        if not column.table or isinstance(column.this, exp.Star):
            continue
        name = known.folded(column.this)
        harmless = name in columns | _FIELDS if known.calls is None else name not in known.calls or name in allowed
        if harmless and name not in known.own_functions:
            continue
        having = sources[known.folded(column.args["table"])]
        if not having or not all(has is not None and name in has for has in having):
            missing = f"there is no column {column.sql()!r}"
            raise Missing(missing + nearest(column.name, columns))


def _sources(tree: Any, known: Known) -> dict[str, list[set[str] | None]]:
    """By alias: the columns of each thing in the statement that has it; `None` for what is not known."""
    from sqlglot import exp

    found: dict[str, list[set[str] | None]] = defaultdict(list)
    for node in tree.find_all(exp.TableAlias):
        if node.this is None:
            continue
        renamed = {known.folded(column) for column in node.args.get("columns") or ()}
        found[known.folded(node.this)].append(renamed or _of(node.parent, known))
    for table in tree.find_all(exp.Table):
        if not table.alias and isinstance(table.this, exp.Identifier):
            found[known.folded(table.this)].append(_of(table, known))
    return found


def _of(source: Any, known: Known) -> set[str] | None:
    from sqlglot import exp

    if isinstance(source, exp.Subquery):
        return _projected(source.this, known)
    if isinstance(source, exp.CTE):
        return _defined(source, known)
    if isinstance(source, exp.Table) and all(isinstance(part, exp.Identifier) for part in source.parts):
        return _of_table(source, known)
    return None


def _of_table(table: Any, known: Known) -> set[str] | None:
    """What the table has, and every WITH of its name as well: whichever it means."""
    from sqlglot import exp

    parts = [known.folded(part) for part in table.parts]
    real = known.table(parts)
    meant = [] if real is None else [{column.name for column in real.columns}]
    for cte in table.root().find_all(exp.CTE) if len(parts) == 1 else ():
        if known.folded(cte.args["alias"].this) == parts[0]:
            columns = _defined(cte, known)
            if columns is None:
                return None
            meant.append(columns)
    return set.intersection(*meant) if meant else None


def _defined(cte: Any, known: Known) -> set[str] | None:
    renamed = {known.folded(column) for column in cte.args["alias"].args.get("columns") or ()}
    return renamed or _projected(cte.this, known)


def _projected(query: Any, known: Known) -> set[str] | None:
    from sqlglot import exp

    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    made = set()
    for one in query.expressions:
        named = one.args.get("alias") if isinstance(one, exp.Alias) else one.this if isinstance(one, exp.Column) else None
        if isinstance(named, exp.Identifier):
            made.add(known.folded(named))
    return made
