"""Limits of the process: memory, files, and no network."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 1, 38


def hold_down(memory: int, *, writes: bool) -> dict[str, bool]:
    """Limit this process, and return which limits hold. Call it after the libraries are loaded.

    Args:
        memory: Bytes above what is in use now.
        writes: True if it may write files, for example a cache of fonts.
    """
    held = {"memory": False, "network": False}
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        held["network"] = libc.unshare(_NEW_NET) == 0 or libc.unshare(_NEW_USER | _NEW_NET) == 0
    if not held["network"]:
        sys.addaudithook(_refuse_network)
    try:
        import resource
    except ImportError:
        return held
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not writes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if used := memory_used():
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))
        held["memory"] = True
    return held


def _refuse_network(event: str, given: object) -> None:
    if event.startswith("socket."):
        raise PermissionError("this process has no network")


def memory_used() -> int:
    """Return the bytes of memory used for data, or 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
