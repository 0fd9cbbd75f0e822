"""Check a statement for DuckDB with DuckDB's own parser (`json_serialize_sql`)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from ..allowed import TABLE_FUNCTIONS
from ..engines.duckdb import SETTINGS
from ..statement import StatementRefused
from ..tables import KnownTables, small
from .tree import Definition, Names, walk

_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})


@cache
def _parser() -> Any:
    import duckdb

    return duckdb.connect(":memory:", config={**SETTINGS, "threads": "1"})


def check(sql: str, known: KnownTables) -> None:
    answer = json.loads(_parser().execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()[0])
    if answer["error"]:
        raise StatementRefused(_why(answer))
    if len(answer["statements"]) != 1:
        raise StatementRefused("write exactly one statement")
    for node, seen in walk(answer["statements"][0], "cte_map", _definitions):
        kind = str(node.get("type"))
        if kind.endswith("_NODE") and kind not in _QUERIES:
            raise StatementRefused(f"only SELECT is allowed, not {kind.partition('_')[0]}")
        if kind == "BASE_TABLE":
            _check_table(node, seen, known)
        elif kind == "SHOW_REF" and node.get("query") is None:
            _check_table(node, frozenset(), known)
        elif kind == "TABLE_FUNCTION" and small(node["function"]["function_name"]) not in TABLE_FUNCTIONS:
            raise StatementRefused(f"{node['function']['function_name']}() cannot be read from here")
        if "function_name" in node and not node.get("is_operator"):  # whatever its schema: x.lower() is lower(x)
            known.check_function(node["function_name"])


def _definitions(held: dict[str, Any]) -> list[Definition]:
    """Return the names of a WITH. Each sees those before it; the second part of a recursive one also sees itself."""
    made = []
    for place, one in enumerate(held["map"]):
        rest = dict(one["value"])
        query = rest.pop("query_node", None) or rest.pop("query")["node"]
        trees: list[tuple[Any, int]] = [(rest, place), (query, place)]
        if query["type"] == "RECURSIVE_CTE_NODE":
            first = {name: value for name, value in query.items() if name != "right"}
            trees = [(rest, place), (first, place), (query["right"], place + 1)]
        made.append(Definition(small(one["key"]), trees))
    return made


def _check_table(node: dict[str, Any], seen: Names, known: KnownTables) -> None:
    path = (node.get("qualified_name") or {}).get("path") or [node["catalog_name"], node["schema_name"], node["table_name"]]
    path = [part for part in path if part]
    if len(path) == 2 and known.find(*path) is None:  # the database's name, without a schema
        path = [path[0], "main", path[1]]
    known.check_table(path, seen)


def _why(answer: dict[str, Any]) -> str:
    told = str(answer["error_message"]).split("\n\nLINE")[0].split("\nLINE")[0]
    if answer["error_type"] == "parser":
        return f"it cannot be read as SQL: {told}"
    return "only SELECT is allowed; PIVOT only with its values: ON x IN (…)"
