"""Answer questions about the schema itself from the visible tables, in the same way for every engine.

`SHOW TABLES`, `DESCRIBE items` and `PRAGMA table_info(items)` are read here. A SELECT over `sqlite_master`,
`information_schema` and the like runs in an in-memory SQLite, in which these contain the visible tables only."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from time import monotonic

from ...core.errors import nearest
from .allowed import FUNCTIONS
from .engines.base import QueryFailed, QueryLimits, Rows, unique
from .statement import QUOTES, Missing
from .tables import KnownTables, Table, small

_NAME = r"[`\"'\[]?([\w.$]+)[`\"'\]]?"
_LISTED = re.compile(r"show\s+(?:full\s+)?tables|pragma\s+(?:main\.)?table_list|\.tables|\\dt?", re.IGNORECASE)
_DESCRIBED = re.compile(
    rf"(?:(?:describe|desc)(?:\s+table)?|show\s+(?:full\s+)?(?:columns|fields)\s+(?:from|in)|\.schema|\\d)\s+{_NAME}"
    rf"|pragma\s+(?:main\.)?table_x?info\s*\(\s*{_NAME}\s*\)",
    re.IGNORECASE,
)
_TABLES = {  # the names of catalogues, and the table that replaces each
    r"(?:main\.)?sqlite_(?:master|schema)": "catalogue_master",
    r"information_schema\s*\.\s*tables": "catalogue_tables",
    r"information_schema\s*\.\s*columns": "catalogue_columns",
    r"(?:pg_catalog\s*\.\s*)?pg_tables": "catalogue_pg_tables",
    r"duckdb_tables\s*\(\s*\)": "catalogue_pg_tables",
    r"duckdb_columns\s*\(\s*\)": "catalogue_columns",
    r"pragma_table_list(?:\s*\(\s*\))?": "catalogue_tables",
}
_KNOWN = re.compile(
    "|".join([rf"(?P<{table}_{n}>\b{name}(?!\w))" for n, (name, table) in enumerate(_TABLES.items())]), re.IGNORECASE
)
_PRAGMA = re.compile(rf"\bpragma_table_x?info\s*\(\s*{_NAME}\s*\)", re.IGNORECASE)
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def is_about_schema(sql: str, known: KnownTables) -> bool:
    return bool(_LISTED.fullmatch(sql) or _DESCRIBED.fullmatch(sql)) or _rewrite(sql, known) is not None


def answer(sql: str, known: KnownTables, limits: QueryLimits) -> Rows:
    """Return the rows that answer a question about the schema."""
    if _LISTED.fullmatch(sql):
        return Rows(
            [{"name": name, "columns": len(t.columns)} for name, t in zip(known.table_names(), known.tables, strict=True)],
            False,
        )
    if match := _DESCRIBED.fullmatch(sql):
        return _columns_of(match[1] or match[2], known)
    return _run(_rewrite(sql, known) or sql, known, limits)


def _columns_of(name: str, known: KnownTables) -> Rows:
    table = known.find(*name.split("."))
    if table is None:
        raise Missing(f"there is no table {name!r}" + nearest(name, known.table_names()))
    return Rows([{"name": column.name, "type": column.kind, "comment": column.comment} for column in table.columns], False)


def _rewrite(sql: str, known: KnownTables) -> str | None:
    """Replace the names of catalogues by those of our tables. Quoted text is kept. Returns None if no catalogue is named."""
    pieces, place, found = list[str](), 0, False
    for quoted in re.finditer(rf"{_PRAGMA.pattern}|{QUOTES[known.dialect]}", sql, re.DOTALL | re.IGNORECASE):
        plain, changed = _KNOWN.subn(_stand_in, sql[place : quoted.start()])
        pieces.append(plain)
        found = found or bool(changed)
        if (named := _PRAGMA.fullmatch(quoted[0])) is not None:
            found = True
            text = small(named[1]).replace("'", "''")
            pieces.append(f"(SELECT * FROM catalogue_info WHERE lower(of_table) = '{text}')")
        else:
            pieces.append(quoted[0])
        place = quoted.end()
    plain, changed = _KNOWN.subn(_stand_in, sql[place:])
    return "".join([*pieces, plain]) if found or changed else None


def _stand_in(found: re.Match[str]) -> str:
    return str(found.lastgroup).rpartition("_")[0]


def _run(sql: str, known: KnownTables, limits: QueryLimits) -> Rows:
    connection = _build_catalogue(known.tables)
    end = monotonic() + limits.seconds
    connection.set_progress_handler(lambda: int(monotonic() > end), 2_000)
    connection.set_authorizer(_authorize)
    try:
        cursor = connection.execute(sql)
        names = unique([column[0] for column in cursor.description or ()])
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(limits.rows + 1)]
    except (sqlite3.Error, sqlite3.Warning) as problem:
        told = re.sub(r"catalogue_\w+", "the catalogue", str(problem))
        raise QueryFailed(
            f"{told}; of the catalogues only names, columns and types are known here: try SHOW TABLES"
        ) from problem
    finally:
        connection.close()
    return Rows(rows[: limits.rows], len(rows) > limits.rows)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    if action == sqlite3.SQLITE_READ and small(first or "").startswith("sqlite_"):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and small(second or "") not in FUNCTIONS["sqlite"] | {"like", "glob"}:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _build_catalogue(tables: Sequence[Table]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
    connection.executescript(
        """
        CREATE TABLE catalogue_master (type, name, tbl_name, rootpage, sql);
        CREATE TABLE catalogue_tables (table_catalog, table_schema, table_name, table_type, name, schema, type);
        CREATE TABLE catalogue_pg_tables (schemaname, tablename, schema_name, table_name, column_count);
        CREATE TABLE catalogue_columns (table_catalog, table_schema, table_name, column_name, ordinal_position, column_default,
            is_nullable, data_type, schema_name);
        CREATE TABLE catalogue_info (cid, name, type, "notnull", dflt_value, pk, of_table);
        """
    )
    for table in tables:
        made = ", ".join([f"{column.name} {column.kind}".strip() for column in table.columns])
        schema, of = table.schema or "main", table.name
        connection.execute("INSERT INTO catalogue_master VALUES ('table', ?, ?, 0, ?)", (of, of, f"CREATE TABLE {of} ({made})"))
        row = (table.catalog, schema, of, "BASE TABLE", of, schema, "table")
        connection.execute("INSERT INTO catalogue_tables VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute(
            "INSERT INTO catalogue_pg_tables VALUES (?, ?, ?, ?, ?)", (schema, of, schema, of, len(table.columns))
        )
        for place, column in enumerate(table.columns):
            told = (table.catalog, schema, of, column.name, place + 1, None, None, column.kind, schema)
            connection.execute("INSERT INTO catalogue_columns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", told)
            connection.execute(
                "INSERT INTO catalogue_info VALUES (?, ?, ?, NULL, NULL, NULL, ?)", (place, column.name, column.kind, of)
            )
    return connection
