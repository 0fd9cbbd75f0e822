"""Locate a program's files: next to its `kaname.yaml`, else in the user's state folder, apart from other programs' files.

And create SQLite files so that several processes can open them at once.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

FILE, FOLDER = "kaname.yaml", ".kaname"


def state_path(name: str) -> str:
    """Return the path of this program's file of that name."""
    folder = program_folder()
    if os.path.isfile(os.path.join(folder, FILE)):
        return os.path.join(folder, FOLDER, name)
    return path_without_project(name)


def default_state_folder() -> str:
    """Return the folder of this program's files."""
    return os.path.dirname(state_path(""))


def path_without_project(name: str) -> str:
    """Return the path that the file has, or had, without a `kaname.yaml`."""
    from hashlib import sha256

    folder = program_folder()
    label = "".join([char if char.isalnum() else "-" for char in os.path.basename(folder)])[:40]
    return os.path.join(user_state(), "programs", f"{label}-{sha256(os.fsencode(folder)).hexdigest()[:8]}", name)


def user_state() -> str:
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "kaname")


def program_folder() -> str:
    """Return the folder of the running script; for an installed program (`kaname`, `uvicorn`, …) the working directory."""
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    folder = os.path.dirname(os.path.realpath(script)) if script else ""
    ours = os.path.dirname(os.path.dirname(__file__))
    installed = [os.path.realpath(place) + os.sep for place in (sys.prefix, sys.base_prefix, ours)]
    if not folder or not os.path.isfile(script) or (folder + os.sep).startswith(tuple(installed)):
        try:
            return os.path.realpath(os.getcwd())
        except OSError:  # it was removed
            return os.sep
    return folder


def make_folder(path: str) -> None:
    """Create the folder for one of kaname's files. A folder next to source code is kept out of version control.

    Failures are ignored: opening the file reports them.
    """
    folder = os.path.dirname(path)
    if os.path.basename(folder) != FOLDER or os.path.isdir(folder):
        return
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
            file.write("*\n")


_creating = threading.Lock()  # held until the first descriptor of a new file is closed


def _after_fork() -> None:
    global _creating
    _creating = threading.Lock()  # the old one may be held by a thread that does not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def create_private(path: Path) -> None:
    """Create the file so that only its user can read it, from the first byte.

    Never open an existing file in addition to SQLite: closing any descriptor of it would drop every lock that this process
    holds on it, and the next process to exit would delete the write-ahead log in use here.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _creating, suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can: a file that was replaced stays replaced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_ahead(connection: sqlite3.Connection, patience: float) -> None:
    """Switch the file to WAL. SQLite does not wait by itself when two connections switch a new file at once."""
    import sqlite3  # slow to load
    import time

    until = time.monotonic() + patience
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.005)
