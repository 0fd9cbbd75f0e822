"""PostgreSQL: one statement in a read-only transaction with a time limit. The server returns rows as JSON, cut to size."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from ....core.errors import ConfigError
from ....core.notices import notice
from ..tables import Column, Table
from .base import ROW, QueryFailed, QueryLimits, Rows, out_of_time, read_rows, require

_COLUMNS = """
SELECT n.nspname, c.relname, obj_description(c.oid, 'pg_class'), a.attname, format_type(a.atttypid, a.atttypmod),
       col_description(c.oid, a.attnum),
       (SELECT s.most_common_vals::text::text[] FROM pg_stats s
        WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname
          AND a.atttypid IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype) AND s.n_distinct BETWEEN 1 AND 12),
       current_database(), pg_table_is_visible(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname = ANY (current_schemas(false)) AND n.nspname !~ '^(pg_|information_schema$)'
  AND has_column_privilege(c.oid, a.attnum, 'SELECT')
ORDER BY array_position(current_schemas(false), n.nspname), c.relname, a.attnum
"""
# Functions with arguments that do more than calculate or are not the server's own; types that reveal names
_CALLS = """
SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.pronargs > 0 AND (p.provolatile <> 'i' OR n.nspname <> 'pg_catalog')
UNION SELECT t.typname FROM pg_type t WHERE t.typname ~ '^(reg|pg_|xml)'
"""
_TYPES = """
SELECT t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE t.typtype IN ('e', 'd') AND n.nspname = ANY (current_schemas(false))
"""
_POWER = """
SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper
    OR pg_has_role(oid, 'pg_read_server_files', 'USAGE') OR pg_has_role(oid, 'pg_write_server_files', 'USAGE')
    OR pg_has_role(oid, 'pg_execute_server_program', 'USAGE'))
"""


class PostgresEngine:
    dialect = "postgres"

    def __init__(self, address: str, *, allow_superuser: bool = False) -> None:
        require("psycopg", "postgres")
        require("postgast", "postgres")
        self.address, self._allow_superuser = address, allow_superuser
        self.names: dict[str, frozenset[str]] = {}  # functions after a dot and types of users, as of the last look

    def load(self) -> None:
        import_module("postgast")
        import_module("psycopg")

    def _open(self, limits: QueryLimits) -> Any:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        milliseconds = int(limits.seconds * 1000)
        ours = (
            f"-c default_transaction_read_only=on -c statement_timeout={milliseconds} -c lock_timeout={milliseconds} "
            f"-c idle_in_transaction_session_timeout={milliseconds * 2} -c work_mem=32MB -c max_parallel_workers_per_gather=0 "
            "-c standard_conforming_strings=on"
        )
        try:
            theirs = conninfo_to_dict(self.address)
            given: dict[str, Any] = {"application_name": "kaname", "connect_timeout": 10, **theirs}
            given["options"] = f"{theirs.get('options') or ''} {ours}".strip()  # of two settings the last one counts
            return psycopg.connect(**given)
        except psycopg.OperationalError as problem:
            told = self._mask_password(_first_line(problem))
            raise QueryFailed(f"no connection: {told}") from None
        except psycopg.Error:
            raise QueryFailed("the address of the database cannot be read") from None

    def _mask_password(self, text: str) -> str:
        """Replace the password, encoded or decoded, by `***`."""
        match = re.search(r"://[^:/]*:(.*)@", self.address)  # an @ in a password should be %40, and is not always
        parts = [match[1], unquote(match[1]), *match[1].split("@")] if match else []
        for secret in sorted([part for part in parts if part], key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def tables(self) -> list[Table]:
        found: dict[tuple[str, str], tuple[list[Column], str, str, bool]] = {}
        powerful, rows, calls, types = self._select(_POWER, _COLUMNS, _CALLS, _TYPES)
        if powerful and not self._allow_superuser:
            raise ConfigError(_too_powerful(powerful[0][0]))
        self.names = {"calls": frozenset([name for (name,) in calls]), "types": frozenset([name for (name,) in types])}
        for schema, table, told, column, kind, comment, samples, catalog, bare in rows:
            columns, *_ = found.setdefault((schema, table), ([], told or "", catalog, bare))
            columns.append(Column(column, kind, comment or "", tuple((samples or [])[:6])))
        return [
            Table(name, tuple(columns), told, schema, catalog, bare)
            for (schema, name), (columns, told, catalog, bare) in found.items()
        ]

    def _select(self, *questions: str) -> list[list[Any]]:
        import psycopg

        with self._open(QueryLimits(0, 0, 10.0)) as connection:
            try:
                return [connection.execute(question, ()).fetchall() for question in questions]
            except psycopg.Error as problem:
                raise QueryFailed(_first_line(problem)) from problem

    def run(self, sql: str, limits: QueryLimits) -> Rows:
        import psycopg

        wrapped = (
            f"SELECT left(row_to_json({ROW})::text, {limits.characters + 1}) FROM (\n{sql}\n) {ROW} LIMIT {limits.rows + 1}"
        )
        connection = self._open(limits)
        connection.read_only = True
        try:  # with parameters, though none: then the server takes one statement and no more
            rows = connection.execute(wrapped.replace("%", "%%"), ()).fetchall()
        except psycopg.errors.QueryCanceled:
            raise out_of_time(limits) from None
        except (psycopg.Error, ValueError) as problem:
            raise QueryFailed(_first_line(problem)) from problem
        finally:
            connection.close()
        return read_rows([text for (text,) in rows], limits)


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    hint = next((line for line in lines if line.startswith("HINT:")), "")
    return f"{lines[0]} {hint}".strip()


def _too_powerful(role: str) -> str:
    return notice(
        "database.superuser",
        "the role {role!r} can read files of the server, or all tables: give the database tool a role that can "
        "only read the tables it needs, or pass allow_superuser=True",
        role=role,
    )
