"""Liveness: every process that runs agents on a journal holds a lock on a file of its own.

The operating system drops the lock the moment the process dies, however it dies, so nobody has to guess from process ids
or wait for a lease to run out.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4
from weakref import WeakSet

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def _probe(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # it waits: who only looks whether it is free holds it for a moment

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
        self.process = os.getpid()
        self.name = f"{self.process}-{uuid4().hex[:12]}"
        self._folder, self._path = folder, folder / self.name
        self.descriptor = self._locked_file()
        _alive.add(self)
        self.sweep()

    def _locked_file(self) -> int:
        """The file of this owner, locked. One that was swept away between its making and its locking is made again."""
        while True:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            except FileNotFoundError:  # the folder was removed in this very moment
                continue
            _lock(descriptor)
            if self._is_mine(descriptor):
                return descriptor
            os.close(descriptor)

    def _is_mine(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def restore(self) -> None:
        """Make the file again if somebody removed it; without it this process looks dead, and others take its runs over."""
        if not self._is_mine(self.descriptor):
            before, self.descriptor = self.descriptor, self._locked_file()
            os.close(before)

    def sweep(self) -> None:
        """Clear away what dead processes left behind."""
        for path in self._folder.iterdir():
            is_alive(path)

    def close(self) -> None:
        _alive.discard(self)
        os.close(self.descriptor)
        self._path.unlink(missing_ok=True)


def is_alive(path: Path) -> bool:
    """Whether the owner with that file still holds its lock. The file of a dead one is removed."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError:  # another person's: nobody here can know
        return True
    try:
        _probe(descriptor)
    except OSError:
        return True
    else:
        with suppress(OSError):
            path.unlink()  # while it is held: who is about to lock it sees that it is gone
    finally:
        os.close(descriptor)
    return False
