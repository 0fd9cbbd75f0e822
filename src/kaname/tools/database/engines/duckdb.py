"""DuckDB: opened read-only, without access to files or networks, and with a locked configuration."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Timer
from typing import Any

from ....core.errors import ConfigError
from ..tables import Column, Table
from .base import ROW, QueryFailed, QueryLimits, Rows, out_of_time, read_rows, require, too_large

SETTINGS: dict[str, Any] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_directory": "",
    "max_temp_directory_size": "0KB",
    "memory_limit": "512MB",
    "threads": "2",
    "lock_configuration": "true",
}
_MOST_SAMPLED = 200  # columns
_SAMPLES = 7  # values of a column
_LONGEST_SAMPLE = 100  # characters; samples longer than 30 are not shown
_COLUMNS = """
SELECT c.table_name, c.column_name, c.data_type, c.comment, t.comment, t.table_name IS NOT NULL, c.database_name
FROM duckdb_columns() c LEFT JOIN duckdb_tables() t ON t.table_oid = c.table_oid AND t.schema_name = c.schema_name
WHERE NOT c.internal AND c.schema_name = 'main' AND c.database_name = current_database()
ORDER BY c.table_name, c.column_index
"""


class DuckEngine:
    dialect = "duckdb"

    def __init__(self, path: str | Path) -> None:
        require("duckdb", "duckdb")
        self._path = Path(path).expanduser().absolute()
        self.address = f"duckdb:///{self._path}"
        if not self._path.is_file():
            raise ConfigError.of("database.no_file", "database file {path} was not found", path=self._path)

    def load(self) -> None:
        import duckdb  # noqa: F401

    def _open(self) -> Any:
        import duckdb

        try:
            return duckdb.connect(str(self._path), read_only=True, config=SETTINGS)
        except duckdb.Error as problem:
            raise QueryFailed(_message(problem)) from problem

    def tables(self) -> list[Table]:
        import duckdb

        found: dict[str, tuple[list[Column], str, str]] = {}
        connection = self._open()
        try:
            rows = connection.execute(_COLUMNS).fetchall()
            texts = [(row[0], row[1]) for row in rows if row[2] == "VARCHAR" and row[5]][:_MOST_SAMPLED]
            samples: dict[tuple[str, str], tuple[str, ...]] = {}
            for table, of_table in groupby(texts, itemgetter(0)):
                samples |= _samples(connection, table, [column for _, column in of_table])
            for table, column, kind, comment, told, _, catalog in rows:
                columns, _, _ = found.setdefault(table, ([], told or "", catalog))
                columns.append(Column(column, kind, comment or "", samples.get((table, column), ())))
        except duckdb.Error as problem:
            raise QueryFailed(_message(problem)) from problem
        finally:
            connection.close()
        return [Table(name, tuple(columns), told, "main", catalog) for name, (columns, told, catalog) in found.items()]

    def run(self, sql: str, limits: QueryLimits) -> Rows:
        import duckdb

        connection = self._open()
        alarm = Timer(limits.seconds, connection.interrupt)
        alarm.daemon = True
        try:
            alarm.start()
            cut = f"left(to_json({ROW})::VARCHAR, {limits.characters + 1})"
            inner = _with_hex(connection, sql)
            rows = connection.execute(f"SELECT {cut} FROM (\n{inner}\n) {ROW} LIMIT {limits.rows + 1}").fetchall()
        except duckdb.InterruptException:
            raise out_of_time(limits) from None
        except duckdb.OutOfMemoryException:
            raise too_large() from None
        except (duckdb.Error, RuntimeError, ValueError) as problem:
            raise QueryFailed(_message(problem)) from problem
        finally:
            alarm.cancel()
            connection.close()
        return read_rows([text for (text,) in rows], limits)


def _with_hex(connection: Any, sql: str) -> str:
    """Convert bytes to the form of PostgreSQL, because DuckDB writes them to JSON in its own form."""
    described = connection.execute(f"DESCRIBE (\n{sql}\n)").fetchall()
    times = Counter([row[0].lower() for row in described])
    mine = [row[0].replace('"', '""') for row in described if row[1] == "BLOB" and times[row[0].lower()] == 1]
    if not mine:
        return sql
    shown = ", ".join([f"""'\\x' || lower(hex("{name}")) AS "{name}\"""" for name in mine])
    return f"SELECT * REPLACE ({shown}) FROM (\n{sql}\n)"


def _samples(connection: Any, table: str, columns: list[str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the first different values of each column, in one query. Long values are cut: only their length matters."""
    shown = ", ".join([f"left({_quote(column)}, {_LONGEST_SAMPLE})" for column in columns])
    rows = connection.execute(f"SELECT {shown} FROM {_quote(table)} LIMIT 500").fetchall()
    values = [dict.fromkeys([value for value in held if value is not None]) for held in zip(*rows, strict=True)]
    return {(table, column): tuple(held)[:_SAMPLES] for column, held in zip(columns, values, strict=False)}


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _message(problem: Exception) -> str:
    return str(problem).strip().split("\n\nLINE")[0].split("\nLINE")[0][:1_000]
