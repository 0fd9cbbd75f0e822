"""Open an index file: check that it belongs to kaname before writing, open it read-only if necessary, and explain errors."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...core.encryption.database import open_database
from ...core.errors import ConfigError
from ...core.install import this_command
from ...core.notices import notice
from ...core.project import make_folder

_FORM = 1  # of the tables
_OURS = 0x6B6E6D65  # the application_id of our SQLite files; older indexes have none
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, modified REAL, size INTEGER, digest TEXT, chunks INTEGER, problem TEXT);
CREATE TABLE IF NOT EXISTS chunks (
    id INTEGER PRIMARY KEY, file INTEGER, number INTEGER, text TEXT, heading TEXT, place TEXT, vector BLOB,
    sentences BLOB, turn INTEGER);
CREATE INDEX IF NOT EXISTS in_order ON chunks (file, number);
CREATE INDEX IF NOT EXISTS without_sentences ON chunks (id) WHERE sentences IS NULL;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (terms, tokenize="unicode61 remove_diacritics 2 tokenchars '._-'");
CREATE VIRTUAL TABLE IF NOT EXISTS vocabulary USING fts5vocab (words, row);
PRAGMA application_id = {_OURS};
PRAGMA user_version = {_FORM};
"""
_NEW = {"sentences": "BLOB", "turn": "INTEGER"}  # columns of chunks, since indexes of the first kaname
_TABLES = {"meta", "files", "chunks", "words"}


def open_index(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the file, and create it if it does not exist. Returns the connection, and True if it is writable."""
    if path.exists() and not path.is_file():
        raise ConfigError.of("search.no_file", "{path} is not a file, so it cannot be used as an index", path=path)
    if path.exists() and not _may_write(path):
        return _open_read_only(path), False
    if not path.exists():
        _make_room(path)
    db = open_database(path, timeout=30.0)
    try:
        check(db, path)
        if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        names = "SELECT count(*) FROM sqlite_master WHERE name IN ('in_order', 'without_sentences')"
        if db.execute(names).fetchone()[0] < 2:  # it is new, or of an older kaname
            _add_columns(db)
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT")
        return db, True
    except sqlite3.OperationalError as problem:
        db.close()
        if problem.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise
        return _open_read_only(path), False
    except (ConfigError, sqlite3.DatabaseError):
        db.close()
        raise


def _add_columns(db: sqlite3.Connection) -> None:
    """Add the columns that an index of an older kaname lacks. They stay empty until its texts are read again."""
    made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chunks'").fetchone() is not None
    for name, kind in _NEW.items() if made and not has_sentences(db) else ():
        try:
            db.execute(f"ALTER TABLE chunks ADD COLUMN {name} {kind}")
        except sqlite3.OperationalError:
            if not has_sentences(db):  # another process was not first
                raise


def has_sentences(db: sqlite3.Connection) -> bool:
    """Return True if the index has all columns. An older index that is read-only lacks some."""
    known = {row[1] for row in db.execute("PRAGMA table_info(chunks)")}
    return set(_NEW) <= known


def _make_room(path: Path) -> None:
    reason: str = notice("search.folder_read_only", "{parent} is read-only", parent=path.parent)
    try:
        make_folder(str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        usable = _may_write(path.parent)
    except OSError as problem:
        usable, reason = False, str(problem)
    if not usable:
        raise ConfigError.of("search.cannot_create", "{path} cannot be created: {reason}", path=path, reason=reason)


def no_index(path: str | Path) -> ConfigError:
    return ConfigError.of(
        "search.index_missing",
        "index {path} was not found. Create it with: {kaname} docs add FOLDER --index {path}",
        path=path,
        kaname=this_command(),
    )


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def check(db: sqlite3.Connection, path: Path) -> None:
    """Raise `ConfigError` if the file belongs to another program or to a newer kaname, so that nothing is written to it."""
    owner, form = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if owner not in (0, _OURS) or (owner == 0 and tables and not tables >= _TABLES):
        raise ConfigError.of(
            "search.foreign_database",
            "{path} is a database of another program, not an index. Nothing was written; choose another file",
            path=path,
        )
    if form > _FORM and (owner == _OURS or tables >= _TABLES):
        raise ConfigError.of(
            "search.index_too_new",
            "{path} was created by a newer version of kaname (format {form}). Update kaname, or use another file",
            path=path,
            form=form,
        )


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Open a file that cannot be written, without creating files next to it."""
    for how in ("mode=ro", "immutable=1"):  # the second where SQLite cannot keep its notes
        db = open_database(path, mode=how)
        usable = False
        try:
            check(db, path)
            usable = db.execute("SELECT count(*) FROM meta").fetchone() is not None
        except sqlite3.OperationalError:
            continue
        finally:
            if not usable:
                db.close()
        return db
    raise sqlite3.DatabaseError(notice("search.unreadable", "it cannot be read"))


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn SQLite errors about a damaged or locked file into a `ConfigError` that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CORRUPT:
            raise ConfigError.of(
                "search.index_damaged",
                "{path} is damaged ({problem}). Delete it and add the documents again",
                path=path,
                problem=problem,
            ) from problem
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise ConfigError.of(
                "search.cannot_use", "{path} cannot be used: {problem}", path=path, problem=problem
            ) from problem
        raise
