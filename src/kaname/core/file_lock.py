"""Lock files between processes. The operating system releases a lock as soon as the file is closed or its process ends."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt

    def lock_file(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def lock_file(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
        """Lock an open file.

        Args:
            descriptor: The open file.
            wait: Wait until no other process has locked it. By default raise `OSError` at once.
            shared: Allow other shared locks at the same time (not on Windows).
        """
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
