"""Limits of the process: memory, no network, and only the files of Python and of the system."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from ...core.processes import end_with_parent

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES = 38
_RULESET, _RULE, _RESTRICT, _GET_VERSION = 444, 445, 446, 1  # the calls of Landlock have the same numbers everywhere
_FILE_RIGHTS = (0, 13, 14, 15, 15)  # by the version of Landlock: how many it knows; from the fifth on 16
_READ = 0b1100  # files and folders
_memory: int | None = None


def hold_down(memory: int, *, writes: bool) -> dict[str, bool]:
    """Limit this process, and return which limits hold. Call it after the libraries are loaded.

    Args:
        memory: Bytes above what is in use now.
        writes: True if it may read and write all files, for example a cache of fonts.
    """
    held = {"memory": False, "network": False, "files": False}
    used = memory_used()
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        end_with_parent()
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        held["network"] = libc.unshare(_NEW_NET) == 0 or libc.unshare(_NEW_USER | _NEW_NET) == 0
        held["files"] = not writes and _keep_from_files(libc)
    if not held["network"]:
        sys.addaudithook(_refuse_network)
    try:
        import resource
    except ImportError:
        return held
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not writes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if used:
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))
        held["memory"] = True
    return held


def _keep_from_files(libc: ctypes.CDLL) -> bool:
    """Leave only the right to read Python's and the system's libraries, and none to execute, write or connect (Landlock)."""
    version = libc.syscall(_RULESET, None, 0, _GET_VERSION)
    if version < 1:
        return False
    rights = (1 << (_FILE_RIGHTS[version] if version < len(_FILE_RIGHTS) else 16)) - 1
    asked = struct.pack("QQQ", rights, 3, 3)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]  # files, TCP, signals and sockets
    rules = libc.syscall(_RULESET, asked, len(asked), 0)
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    packages = [one for one in sys.path if one.endswith(("-packages", ".zip"))]
    for place in {
        own,
        sys.prefix,
        sys.base_prefix,
        "/usr/lib",
        "/usr/share",
        "/lib",
        "/lib64",
        "/sys/devices/system/cpu",
        *packages,
    }:
        try:
            folder = os.open(place, os.O_PATH)
        except OSError:
            continue
        libc.syscall(_RULE, rules, 1, struct.pack("=Qi", _READ, folder), 0)
        os.close(folder)
    return bool(libc.syscall(_RESTRICT, rules, 0) == 0)


def _refuse_network(event: str, given: object) -> None:
    if event.startswith("socket."):
        raise PermissionError("this process has no network")


def memory_used() -> int:
    """Return the bytes of memory used for data, or 0 if the system does not report it."""
    global _memory
    try:
        _memory = os.open("/proc/self/statm", os.O_RDONLY) if _memory is None else _memory  # it cannot be opened later on
        return int(os.pread(_memory, 200, 0).split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
