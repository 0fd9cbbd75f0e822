"""Explain errors of SQLite and the disk: what they mean, and what the user can do."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from ...core.errors import DiskFailed, JournalCorrupt, JournalError, JournalFull, JournalLocked
from ...core.notices import notice

_NEEDED = 256 * 1024  # bytes; SQLite grows its shared memory by 32 KB


def explain(problem: BaseException, path: Path) -> JournalError:
    """Return kaname's error for an error of SQLite, with the remedy."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return JournalFull.of(
            "journal.full",
            "no space is left for the journal {path}. This fact was not written; all earlier facts are safe. "
            "Free some space, then resume the run.",
            path=path,
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JournalLocked.of(
            "journal.locked",
            "the journal {path} is locked by another program. This fact was not written; all earlier facts are "
            "safe. Close the program that holds the file, then resume the run.",
            path=path,
        )
    name = getattr(problem, "sqlite_errorname", "")
    if (code == sqlite3.SQLITE_IOERR and _is_full(path)) or getattr(problem, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return JournalFull.of(
            "journal.full_unsure",
            "no space is left for the journal {path} ({what}). It is not known whether this fact was written; all earlier "
            "facts are safe. Free some space, then resume the run.",
            path=path,
            what=name or problem,
        )
    if code == sqlite3.SQLITE_IOERR:
        return DiskFailed.of(
            "journal.disk_failed",
            "the disk of the journal {path} failed ({problem}, {name}). It is not known whether this fact was "
            "written; all earlier facts are safe. Repair the disk, then resume the run.",
            path=path,
            problem=problem,
            name=name,
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return cannot_open(path, _obstacle(path) or str(problem))
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode to UTF-8" in str(problem):
        return JournalCorrupt.of(
            "journal.not_a_journal",
            "the journal {path} is damaged or not a journal ({problem}). Nothing was changed. Move the file away "
            'and start with a new one, or recover what can be read with: sqlite3 "{path}" .recover',
            path=path,
            problem=problem,
        )
    if isinstance(problem, OSError):
        return cannot_open(path, problem.strerror or str(problem))
    what = f"{type(problem).__name__}: {problem}"
    return JournalError.of("journal.refused", "the journal {path} failed: {what}", path=path, what=what)


def _is_full(path: Path) -> bool:
    """Return True if the disk has no room. SQLite reports that as an I/O error where it grows its shared memory, or syncs."""
    from shutil import disk_usage  # it loads three compressors

    with suppress(OSError):
        return disk_usage(path.parent).free < _NEEDED
    return False


def damage_error(path: Path, what: str) -> JournalCorrupt:
    """Return the error for data that differs from what was written."""
    return JournalCorrupt.of(
        "journal.damaged",
        "the journal {path} is damaged: {what}. Nothing was changed. Restore a backup, or fork the run from an earlier fact.",
        path=path,
        what=what,
    )


def _obstacle(path: Path) -> str:
    """Return the reason, as far as the file system shows it, that the file cannot be opened or written; "" if unknown."""
    if path.is_dir():
        return notice("journal.is_folder", "it is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        return notice("journal.file_read_only", "the file is not writable")
    if not os.access(path.parent, os.W_OK):
        return notice(
            "journal.folder_read_only",
            "{parent} is not writable, and SQLite stores files next to the journal",
            parent=path.parent,
        )
    return ""


def cannot_open(path: Path, why: str) -> JournalError:
    return JournalError.of(
        "journal.cannot_open",
        "the journal {path} cannot be opened: {why}. Choose another file with Agent(journal=…) or "
        'KANAME_JOURNAL, or use journal="memory" to store nothing.',
        path=path,
        why=why,
    )
