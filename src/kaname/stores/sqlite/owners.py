"""Liveness: every process that executes runs of a journal holds a lock on a file of its own.

The operating system drops the lock the moment the process dies, however it dies. There is no need to guess from process ids or
to wait for a lease to run out.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from ...core.file_lock import lock_file

_alive: WeakSet[Owner] = WeakSet()


def _after_fork() -> None:
    """Close inherited lock files in a forked child: a lock lives as long as any process has the file open."""
    for owner in tuple(_alive):
        os.close(owner.descriptor)
    _alive.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Owner:
    """The identity of this process for other processes. The journal stores `name` with every run that it executes."""

    def __init__(self, folder: Path) -> None:
        self.process = os.getpid()
        self.name = f"{self.process}-{os.urandom(6).hex()}"
        self._folder, self._path = folder, folder / self.name
        self.works = False
        self.descriptor = self._locked_file()
        _alive.add(self)
        self.sweep()

    def _locked_file(self) -> int:
        """Create and lock the file of this owner. If another process deletes it before it is locked, create it again."""
        while True:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            except FileNotFoundError:  # the folder was removed in this very moment
                continue
            lock_file(descriptor, wait=True)  # `is_alive` in another process holds it for a moment
            if self._is_mine(descriptor):
                os.ftruncate(descriptor, self.works)
                return descriptor
            os.close(descriptor)

    def _is_mine(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def begin_work(self) -> None:
        """Say that this process is a worker: its file is not empty any more."""
        self.works = True
        os.ftruncate(self.descriptor, 1)

    def restore(self) -> None:
        """Create the file again if it was removed. Without it this process looks dead, and others take over its runs."""
        if not self._is_mine(self.descriptor):
            before, self.descriptor = self.descriptor, self._locked_file()
            os.close(before)

    def sweep(self) -> None:
        """Remove the files of dead processes."""
        for path in self._folder.iterdir():
            is_alive(path)

    def close(self) -> None:
        _alive.discard(self)
        os.close(self.descriptor)
        self._path.unlink(missing_ok=True)


def is_worker(path: Path) -> bool:
    """Return True if the owner of that file is alive and has begun to work."""
    try:
        return path.stat().st_size > 0 and is_alive(path)
    except FileNotFoundError:
        return False


def is_alive(path: Path) -> bool:
    """Return True if the owner of that file still holds its lock. The file of a dead owner is removed."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's: it cannot be checked
        return True
    try:
        lock_file(descriptor, shared=True)  # two processes that look at once do not take each other for the owner
    except OSError:
        return True
    else:
        with suppress(OSError):
            path.unlink()  # while it is locked: a process about to lock it notices that it is gone
    finally:
        os.close(descriptor)
    return False
