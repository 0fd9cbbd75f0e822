"""PostgreSQL: one statement in a read-only transaction with a time limit; rows come as JSON that the server has cut to size."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from threading import Event, Timer
from typing import Any
from urllib.parse import unquote

from ...core.language import say
from .engine import ROW, Column, Limits, QueryFailed, Rows, Table, missing, out_of_time, read_rows

_COLUMNS = """
SELECT n.nspname, c.relname, obj_description(c.oid, 'pg_class'), a.attname, format_type(a.atttypid, a.atttypmod),
       col_description(c.oid, a.attnum),
       (SELECT s.most_common_vals::text::text[] FROM pg_stats s
        WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname
          AND a.atttypid IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype) AND s.n_distinct BETWEEN 1 AND 12)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname = ANY (current_schemas(false)) AND has_table_privilege(c.oid, 'SELECT')
ORDER BY c.relname, a.attnum
"""


class PostgresEngine:
    dialect = "postgres"

    def __init__(self, address: str) -> None:
        try:
            import psycopg  # noqa: F401
        except ImportError as problem:
            raise missing("psycopg", "postgres") from problem
        self._address = address

    def _open(self, limits: Limits) -> Any:
        import psycopg

        milliseconds = int(limits.seconds * 1000)
        options = (
            f"-c default_transaction_read_only=on -c statement_timeout={milliseconds} -c lock_timeout={milliseconds} "
            f"-c idle_in_transaction_session_timeout={milliseconds * 2} -c work_mem=32MB -c max_parallel_workers_per_gather=0"
        )
        try:
            return psycopg.connect(self._address, options=options, connect_timeout=10, application_name="kaname")
        except psycopg.OperationalError as problem:
            told = self._masked(_first_line(problem))
            raise QueryFailed(say(f"no connection: {told}", f"接続できません: {told}")) from None
        except psycopg.Error:
            raise QueryFailed(say("the address of the database cannot be read", "データベースのアドレスを読めません")) from None

    def _masked(self, text: str) -> str:
        """Without the password, as it is written in the address or as it is meant."""
        found = re.search(r"://[^:/@]*:([^@/]*)@", self._address)
        for secret in (found[1], unquote(found[1])) if found and found[1] else ():
            text = text.replace(secret, "***")
        return text

    def tables(self) -> list[Table]:
        import psycopg

        found: dict[str, tuple[list[Column], str, str]] = {}
        with self._open(Limits(0, 0, 10.0)) as connection:
            try:
                rows = connection.execute(_COLUMNS, ()).fetchall()
            except psycopg.Error as problem:
                raise QueryFailed(_first_line(problem)) from problem
        for schema, table, told, column, kind, comment, samples in rows:
            columns, _, _ = found.setdefault(table, ([], told or "", schema))
            columns.append(Column(column, kind, comment or "", tuple((samples or [])[:6])))
        return [Table(name, tuple(columns), told, schema) for name, (columns, told, schema) in found.items()]

    def run(self, sql: str, limits: Limits) -> Rows:
        import psycopg

        wrapped = (
            f"SELECT left(row_to_json({ROW})::text, {limits.characters + 1}) FROM (\n{sql}\n) {ROW} LIMIT {limits.rows + 1}"
        )
        connection = self._open(limits)
        connection.read_only = True
        hung_up = Event()
        alarm = Timer(limits.seconds + 0.5, _hang_up, [connection, hung_up])
        alarm.daemon = True
        alarm.start()
        try:  # with parameters, though none: then the server takes one statement and no more
            rows = connection.execute(wrapped.replace("%", "%%"), ()).fetchall()
        except psycopg.errors.QueryCanceled:
            raise out_of_time(limits) from None
        except (psycopg.Error, ValueError) as problem:
            if hung_up.is_set():
                raise out_of_time(limits) from None
            raise QueryFailed(_first_line(problem)) from problem
        finally:
            alarm.cancel()
            connection.close()
        return read_rows([text for (text,) in rows], limits)


def _hang_up(connection: Any, hung_up: Event) -> None:
    """Some functions of the server look at no clock. Nobody waits for them here; the server is rid of them when they end."""
    hung_up.set()
    with suppress(OSError, ValueError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    hint = next((line for line in lines if line.startswith("HINT:")), "")
    return f"{lines[0]} {hint}".strip()
