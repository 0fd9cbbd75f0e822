"""Who is alive: every process that runs agents on a journal holds a lock on a file of its own.

The operating system drops the lock the moment the process dies, however it dies, so nobody has to guess from process ids
or wait for a lease to run out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from uuid import uuid4

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Owner:
    """This process, as others see it. `name` stands in the journal beside every run it executes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.process = os.getpid()
        self.name = f"{self.process}-{uuid4().hex[:12]}"
        self._folder = folder
        self._path = folder / self.name
        unlocked = folder / f".{self.name}"  # others pass over it: a file of its own name is always locked, or its owner dead
        self._descriptor = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
        _lock(self._descriptor)
        unlocked.rename(self._path)
        self.sweep()

    def is_alive(self, name: str) -> bool:
        """Whether that owner's process still holds its lock. The file of a dead one is removed."""
        path = self._folder / name
        if name == self.name:
            return True
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            _lock(descriptor)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        path.unlink(missing_ok=True)
        return False

    def sweep(self) -> None:
        """Clear away what dead processes left behind."""
        for path in self._folder.iterdir():
            if not path.name.startswith("."):
                self.is_alive(path.name)

    def close(self) -> None:
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)
