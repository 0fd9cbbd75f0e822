"""Explain errors of PostgreSQL and the network: what they mean, and what the user can do."""

from __future__ import annotations

from ...core.errors import JournalError, JournalFull, JournalUnreachable
from ...core.notices import notice

_AWAY = ("08", "57P01", "57P02", "57P03", "53300", "25006", "40001", "40P01", "55P03")
READ_ONLY, TOO_MANY = "25006", "53300"


def code_of(problem: BaseException) -> str:
    """Return PostgreSQL's code of an error; "" for another kind of error."""
    return str(getattr(problem, "sqlstate", "") or "")


def is_temporary(problem: BaseException) -> bool:
    """Return True if the same statement can succeed later: the connection broke, the server restarts, or it is a replica."""
    import asyncpg

    if isinstance(problem, OSError | EOFError | asyncpg.InternalClientError):  # asyncpg's own, for a connection that is cut
        return True
    if isinstance(problem, asyncpg.InterfaceError):
        return not isinstance(problem, ValueError)  # a value that does not fit is not the network's fault
    return code_of(problem).startswith(_AWAY)


def explain(problem: BaseException, where: str, *, writes: bool = False) -> JournalError:
    """Return kaname's error for an error of PostgreSQL, with the remedy. `writes`: facts were to be written."""
    code = code_of(problem)
    if code in ("28P01", "28000"):
        return _cannot_use(where, notice("journal.pg_login", "the server rejected the user or the password"))
    if code == "3D000":
        why = notice("journal.pg_no_database", "the database does not exist. Create it with: createdb NAME")
        return _cannot_use(where, why)
    if code == "42501":
        why = notice(
            "journal.pg_rights",
            "the user lacks a permission ({problem}). The user needs CREATE on the database, or its own schema",
            problem=problem,
        )
        return _cannot_use(where, why)
    if code == READ_ONLY or type(problem).__name__ == "TargetServerAttributeNotMatched":
        why = notice("journal.pg_read_only", "the server is a read-only replica. Use the address of the primary server")
        return _cannot_use(where, why)
    if code == "53100":
        return JournalFull.of(
            "journal.pg_full",
            "no space is left on the server of the journal {where}. This fact was not written; all earlier facts are "
            "safe. Free some space there, then resume the run.",
            where=where,
        )
    if is_temporary(problem):
        return _unreachable(where, problem, writes)
    if code == "42704":  # options that are not ours are settings of the server
        return _cannot_use(
            where, notice("journal.pg_option", "the URL has an option that does not exist: {problem}", problem=problem)
        )
    what = f"{type(problem).__name__}: {problem}"
    return JournalError.of("journal.refused", "the journal {path} failed: {what}", path=where, what=what)


def _unreachable(where: str, problem: BaseException, writes: bool) -> JournalUnreachable:
    if code_of(problem) == TOO_MANY:
        why = notice("journal.pg_too_many", "it has no free connections; raise max_connections, or use a pooler")
    else:
        why = notice("journal.pg_says", "{problem}", problem=str(problem) or type(problem).__name__)
    if not writes:
        return JournalUnreachable.of("journal.away", "the journal {where} cannot be reached: {why}", where=where, why=why)
    return JournalUnreachable.of(
        "journal.unreachable",
        "the journal {where} cannot be reached: {why}. It is not known whether the last fact was written; all earlier "
        "facts are safe. Resume the run when the server is there again.",
        where=where,
        why=why,
    )


def _cannot_use(where: str, why: str) -> JournalError:
    return JournalError.of("journal.pg_cannot_use", "the journal {where} cannot be used: {why}.", where=where, why=why)


def too_old_server(where: str, version: str) -> JournalError:
    why = notice("journal.pg_version", "it is PostgreSQL {version}, and kaname needs 13 or later", version=version)
    return _cannot_use(where, why)
