"""Erase everything that is stored about a user. Interrupted at any moment, it can be repeated and finishes the work."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from ...core.encryption.conversion import replace_file
from ...core.encryption.database import open_database
from ...core.errors import ConfigError
from ...core.record import field, record, replace
from ...core.runs import EVALUATION_PREFIX, EVALUATIONS
from ...stores.default import path_beside
from ...stores.erasing import Erased, Footprint, erase, find_user
from ...stores.sqlite.erasure import erase_user_from, vacuum
from ...stores.sqlite.journal import SqliteJournal
from ..files import MemoryFiles
from ..store import Memories
from .places import DataPlaces
from .recording import record_erasure

_TIMEOUT = 10.0  # seconds to wait for other processes
_EVALUATION = re.compile(EVALUATION_PREFIX + r"[\w.-]+")  # its id, and the name of its folder
_MEMORIES = ("memories", "chunks", "files", "learned", "begun", "notes", "meta", "sqlite_sequence")


@record
class Erasure:
    """What was erased.

    `journal`: see `Erased`. `memories`: memories of the user, and those of agents and the project that came from the user's
    runs. `caches`: entries of the caches, which are emptied whole. `traces`: lines of trace files. `pending`: files in which
    deleted text can still be read, because another process uses them, each with the reason: stop it, and erase again.
    """

    user: str
    journal: Erased = field(factory=Erased)
    memories: int = 0
    caches: int = 0
    traces: int = 0
    pending: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        held = {name: value for name, value in self.journal._asdict().items() if name not in ("pending", "copies")}
        rest = {"memories": self.memories, "caches": self.caches, "traces": self.traces}
        return {"user": self.user, **held, "copies": list(self.journal.copies), **rest, "pending": dict(self.pending)}


async def erase_user(user: str, places: DataPlaces | None = None) -> Erasure:
    """Erase what is stored about a user: runs with titles and snapshots, memories, caches, account names, trace lines, and the
    copies that `journal.backup` made. With encryption, the user's key is destroyed: other copies cannot be read any more. A
    journal in a database keeps deleted rows until its server vacuums, and the backups of that server are not changed.

    Other people's runs stay. A run of the user that they continue from becomes a placeholder.

    Args:
        user: The id of the user, as passed to the runs.
        places: Where to erase (default: the files of this program).

    Raises:
        RunBusy: A process executes a run of the user. Nothing was erased; stop the run first.
        EncryptionError: A key is missing or wrong.

    Example:
        await erase_user("ken", DataPlaces.below(".kaname"))
    """
    if not user:
        raise ConfigError.of("rights.no_user", "name the user: runs without a user belong to nobody")
    places = places or DataPlaces.below()
    if places.server:
        done = await _erase_from_server(user, places)
    elif places.journal is None or not await asyncio.to_thread(places.journal.exists):
        done = await asyncio.to_thread(_erase_files, user, places, Footprint())
    else:
        journal = SqliteJournal(places.journal)
        try:
            found = await journal.database.write(
                partial(find_user, journal.database, user)
            )  # the journal comes last: it knows which runs are meant
            done = await asyncio.to_thread(_erase_files, user, places, found)
            gone = await erase_user_from(journal, user)
        finally:
            await journal.close()
        done = replace(done, journal=gone, pending=(*done.pending, *gone.pending))
    await asyncio.to_thread(record_erasure, user, places.audit)
    return done


async def _erase_from_server(user: str, places: DataPlaces) -> Erasure:
    from ...stores.postgres.journal import PostgresJournal

    server = PostgresJournal(places.server)
    try:
        found = await server.database.write(partial(find_user, server.database, user))
        done = await asyncio.to_thread(_erase_files, user, places, found)
        return replace(done, journal=await server.database.write(partial(erase, server.database, user)))
    finally:
        await server.close()


def _erase_files(user: str, places: DataPlaces, found: Footprint) -> Erasure:
    pending: dict[str, str] = {}
    memories = caches = traces = 0
    if places.memory is not None and places.memory.is_dir():
        memories, left = _erase_memories(user, places.memory, found)
        pending |= left
    for path in places.caches:
        if path.exists():
            count, left = _empty(path, ("entries",))
            caches += count
            pending |= left
    for run in [one for one in found.runs if _EVALUATION.fullmatch(one)]:  # the folders in which its attempts were made
        shutil.rmtree(path_beside(places.journal or places.server, EVALUATIONS) / run, ignore_errors=True)
    for path in places.traces:
        traces += _erase_lines(path, user, found)
    return Erasure(user, Erased(), memories, caches, traces, tuple(pending.items()))


def _erase_memories(user: str, folder: Path, known: Footprint) -> tuple[int, dict[str, str]]:
    files, count, pending = MemoryFiles(folder), 0, dict[str, str]()
    for own in {files.path(("user", one), hidden) for one in (user, *known.tried) for hidden in (True, False)}:
        if own.exists():
            found, left = _empty(own, _MEMORIES)
            count += found
            pending |= left
            if not left:  # it is empty, and nobody uses it
                for ending in ("", "-wal", "-shm"):
                    own.with_name(own.name + ending).unlink(missing_ok=True)
    for path in [*folder.glob("agent-*.db"), *folder.glob("project.db")]:
        found, left = _erase_from_shared(path, user, known.runs, known.sessions)
        count += found
        pending |= left
    return count, pending


def _empty(path: Path, tables: Sequence[str]) -> tuple[int, dict[str, str]]:
    """Empty the tables of a file, and rewrite it. Return the number of rows of the first table.

    A process that uses the file can go on with it. If none does, the second value is empty, and the file can be removed.
    """
    with closing(open_database(path, timeout=_TIMEOUT)) as db:
        db.execute("PRAGMA secure_delete = ON")
        known = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables[0] not in known:
            return 0, {}
        (count,) = db.execute(f"SELECT count(*) FROM {tables[0]}").fetchone()
        db.execute("BEGIN IMMEDIATE")
        for table in tables:
            if table in known:
                db.execute(f"DELETE FROM {table}")
        if "words" in known:
            db.execute("DELETE FROM words")
            db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("COMMIT")
        pending = dict(vacuum(db, path))
        if not pending and "words" in known:  # a file of memories: it is removed if nobody uses it
            try:
                db.execute("PRAGMA busy_timeout = 200")
                db.execute("PRAGMA journal_mode = DELETE").fetchone()
            except sqlite3.OperationalError:
                pending = {str(path): "in use"}
        return count, pending


def _erase_from_shared(path: Path, user: str, runs: Sequence[str], sessions: Sequence[str]) -> tuple[int, dict[str, str]]:
    """Erase from the memories of an agent or the project what came from the user's runs and sessions."""
    wanted, ours = set(runs), set(sessions)
    with closing(open_database(path, timeout=_TIMEOUT)) as db:
        db.execute("PRAGMA secure_delete = ON")
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchone() is None:
            return 0, {}
        told = json.dumps(user, ensure_ascii=False)
        notes = db.execute("SELECT whose, value FROM notes").fetchall()
        ours |= {whose.partition("/")[2] for whose, value in notes if value == told}
        gone = sorted({whose for whose, _ in notes if whose.partition("/")[2] in ours})
        db.executemany("DELETE FROM notes WHERE whose = ?", [(whose,) for whose in gone])
        found = [number for number, run in db.execute("SELECT id, run FROM memories") if run in wanted]
        for table in ("learned", "begun"):
            db.executemany(f"DELETE FROM {table} WHERE run = ?", [(run,) for run in runs])
    if found:
        with closing(Memories(path)) as store:
            store.forget(found)
    if not found and not gone and not runs:
        return 0, {}
    with closing(open_database(path, timeout=_TIMEOUT)) as db:
        return len(found) + len(gone), dict(vacuum(db, path))


def _erase_lines(path: Path, user: str, found: Footprint) -> int:
    """Remove the lines about a user from a trace file and from those that it was renamed to. Return their number."""
    count, runs = 0, set(found.runs)
    words = [
        json.dumps(user, ensure_ascii=False).encode(),
        *[json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in found.texts],
    ]
    for file in [path, *sorted(path.parent.glob(f"{path.name}.*"))]:
        if not file.is_file() or not (file == path or file.suffix[1:].isdecimal()):
            continue
        lines = file.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if _run_of(line) not in runs and not any(word in line for word in words)]
        if len(kept) == len(lines):
            continue
        count += len(lines) - len(kept)
        new = file.with_name(f".{file.name}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as made:
            made.writelines(kept)
            made.flush()
            os.fsync(made.fileno())
        replace_file(file, new)
    return count


def _run_of(line: bytes) -> str:
    try:
        return str(json.loads(line).get("run", ""))
    except (ValueError, AttributeError):
        return ""
