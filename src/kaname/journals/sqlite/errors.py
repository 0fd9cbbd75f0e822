"""What SQLite's and the disk's errors mean to a user, and what to do about them."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ...core.errors import DiskFailed, JournalCorrupt, JournalError, JournalFull, JournalLocked
from ...core.notices import notice


def explain(problem: BaseException, path: Path) -> JournalError:
    """Our error for SQLite's, with what to do about it."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return JournalFull(
            notice(
                "journal.full",
                "no room left for the journal {path}: this fact was not written, everything before it is safe; "
                "make room, then resume the run",
                path=path,
            )
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JournalLocked(
            notice(
                "journal.locked",
                "the journal {path} stayed locked by another program; this fact was not written, everything "
                "before it is safe; close what holds the file, then resume the run",
                path=path,
            )
        )
    if code == sqlite3.SQLITE_IOERR:
        name = getattr(problem, "sqlite_errorname", "")
        return DiskFailed(
            notice(
                "journal.disk_failed",
                "the disk under the journal {path} failed ({problem}, {name}); whether this fact was written is "
                "not known, everything before it is safe; mend the disk, then resume the run",
                path=path,
                problem=problem,
                name=name,
            )
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return cannot_open(path, _obstacle(path) or str(problem))
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode to UTF-8" in str(problem):
        return JournalCorrupt(
            notice(
                "journal.not_a_journal",
                "the journal {path} is damaged or not a journal ({problem}); nothing was changed. Move it aside "
                'and start with a new file, or save what can be read with: sqlite3 "{path}" .recover',
                path=path,
                problem=problem,
            )
        )
    if isinstance(problem, OSError):
        return cannot_open(path, problem.strerror or str(problem))
    what = f"{type(problem).__name__}: {problem}"
    return JournalError(notice("journal.refused", "the journal {path} cannot take this: {what}", path=path, what=what))


def damaged(path: Path, what: str) -> JournalCorrupt:
    """What was read is not what was written."""
    return JournalCorrupt(
        notice(
            "journal.damaged",
            "the journal {path} is damaged: {what}. Nothing was changed; restore a backup, or fork it from an earlier fact",
            path=path,
            what=what,
        )
    )


def _obstacle(path: Path) -> str:
    """Why the file cannot be opened or written, as far as the file system says."""
    if path.is_dir():
        return notice("journal.is_folder", "it is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        return notice("journal.file_read_only", "the file may not be written")
    if not os.access(path.parent, os.W_OK):
        return notice(
            "journal.folder_read_only",
            "{parent} may not be written, and SQLite keeps files beside the journal",
            parent=path.parent,
        )
    return ""


def cannot_open(path: Path, why: str) -> JournalError:
    return JournalError(
        notice(
            "journal.cannot_open",
            "the journal {path} cannot be opened: {why}; choose another file with Agent(journal=…) or "
            'KANAME_JOURNAL, or journal="memory" to keep nothing',
            path=path,
            why=why,
        )
    )
