"""Who is alive: every process that runs agents on a journal holds a lock on a file of its own.

The operating system drops the lock the moment the process dies, however it dies, so nobody has to guess from process ids
or wait for a lease to run out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from uuid import uuid4
from weakref import WeakSet

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    _probe = _lock
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _probe(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two who look at once do not take each other for the owner


_alive: WeakSet[Owner] = WeakSet()


def _after_fork() -> None:
    """A lock lives as long as anybody holds the file open: a child must not keep its parent alive."""
    for owner in tuple(_alive):
        os.close(owner.descriptor)
    _alive.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Owner:
    """This process, as others see it. `name` stands in the journal beside every run it executes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.process = os.getpid()
        self.name = f"{self.process}-{uuid4().hex[:12]}"
        self._folder = folder
        self._path = folder / self.name
        unlocked = folder / f".{self.name}"  # others pass over it: a file of its own name is always locked, or its owner dead
        self.descriptor = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
        _lock(self.descriptor)
        unlocked.rename(self._path)
        _alive.add(self)
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
            _probe(descriptor)
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
        _alive.discard(self)
        os.close(self.descriptor)
        self._path.unlink(missing_ok=True)
