"""DuckDB: opened read-only, without a way to files or networks, its configuration locked; the engine's own parser counts."""

from __future__ import annotations

from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread, Timer
from typing import Any

from ...core.errors import ConfigError
from ...core.language import say
from .engine import ROW, Column, Limits, QueryFailed, Rows, Table, missing, out_of_time, read_rows

_SETTINGS: dict[str, Any] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "memory_limit": "512MB",
    "threads": "2",
}


_COLUMNS = """
SELECT c.table_name, c.column_name, c.data_type, c.comment, t.comment, t.table_name IS NOT NULL
FROM duckdb_columns() c LEFT JOIN duckdb_tables() t ON t.table_oid = c.table_oid AND t.schema_name = c.schema_name
WHERE NOT c.internal AND c.schema_name = 'main' ORDER BY c.table_name, c.column_index
"""


class DuckEngine:
    dialect = "duckdb"

    def __init__(self, path: str | Path) -> None:
        try:
            import duckdb  # noqa: F401
        except ImportError as problem:
            raise missing("duckdb", "duckdb") from problem
        self._one_at_a_time = Lock()
        self._path = Path(path).expanduser()
        if not self._path.is_file():
            raise ConfigError(say(f"there is no database {self._path}", f"データベース {self._path} がありません"))

    def _open(self) -> Any:
        import duckdb

        try:
            connection = duckdb.connect(str(self._path), read_only=True, config=_SETTINGS)
            connection.execute("SET max_temp_directory_size = '0KB'")
            connection.execute("SET lock_configuration = true")
        except duckdb.Error as problem:
            raise QueryFailed(_told(problem)) from problem
        return connection

    def tables(self) -> list[Table]:
        import duckdb

        found: dict[str, tuple[list[Column], str]] = {}
        with self._one_at_a_time:
            connection = self._open()
            try:
                for table, column, kind, comment, told, is_table in connection.execute(_COLUMNS).fetchall():
                    columns, _ = found.setdefault(table, ([], told or ""))
                    samples = _samples(connection, table, column) if kind == "VARCHAR" and is_table else ()
                    columns.append(Column(column, kind, comment or "", samples))
            except duckdb.Error as problem:
                raise QueryFailed(_told(problem)) from problem
            finally:
                connection.close()
        return [Table(name, tuple(columns), told, "main") for name, (columns, told) in found.items()]

    def run(self, sql: str, limits: Limits) -> Rows:
        """In a thread of its own: some functions look at no clock, and then nobody waits for them here."""
        outcome: SimpleQueue[Rows | Exception] = SimpleQueue()
        Thread(target=lambda: outcome.put(self._run(sql, limits)), name="kaname-duckdb", daemon=True).start()
        try:
            found = outcome.get(timeout=limits.seconds + 1.0)
        except Empty:
            raise out_of_time(limits) from None
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self, sql: str, limits: Limits) -> Rows | Exception:
        if not self._one_at_a_time.acquire(timeout=limits.seconds):  # the engine shares what it opens within a process
            return out_of_time(limits)
        try:
            return self._run_alone(sql, limits)
        finally:
            self._one_at_a_time.release()

    def _run_alone(self, sql: str, limits: Limits) -> Rows | Exception:
        import duckdb

        try:
            connection = self._open()
        except QueryFailed as problem:
            return problem
        alarm = Timer(limits.seconds, connection.interrupt)
        alarm.daemon = True
        alarm.start()
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                return QueryFailed(say("only one SELECT is allowed", "SELECT 文一つだけが使えます"))
            cut = f"left(to_json({ROW})::VARCHAR, {limits.characters + 1})"
            rows = connection.execute(f"SELECT {cut} FROM (\n{sql}\n) {ROW} LIMIT {limits.rows + 1}").fetchall()
            return read_rows([text for (text,) in rows], limits)
        except QueryFailed as problem:
            return problem
        except duckdb.InterruptException:
            return out_of_time(limits)
        except (duckdb.Error, RuntimeError, ValueError, MemoryError) as problem:
            return QueryFailed(_told(problem))
        finally:
            alarm.cancel()
            connection.close()


def _samples(connection: Any, table: str, column: str) -> tuple[str, ...]:
    quoted = [name.replace('"', '""') for name in (column, table)]
    rows = connection.execute(
        f'SELECT DISTINCT "{quoted[0]}" FROM (SELECT "{quoted[0]}" FROM "{quoted[1]}" LIMIT 500) LIMIT 7'
    ).fetchall()
    return tuple([str(value) for (value,) in rows if value is not None])


def _told(problem: Exception) -> str:
    return str(problem).strip().split("\n\nLINE")[0].split("\nLINE")[0][:1_000]
