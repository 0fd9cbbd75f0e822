"""Processes of kaname's own: the command that starts one of its modules in a new Python, and one at a time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .file_lock import lock_file

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "XDG_CACHE_HOME", "KANAME_CACHE", "LD_LIBRARY_PATH", "SYSTEMROOT")
_DEATH_SIGNAL = 1  # the number of the option, for `prctl`
_KILL = 9


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that calls `main()` of a module in a new Python, which imports from the same folders as this one.

    The arguments are `sys.argv[2:]` there.
    """
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"
    paths = [entry if os.path.isabs(entry) else os.path.join(os.getcwd(), entry) for entry in sys.path]
    return [sys.executable, "-I", "-c", start, json.dumps(paths), *arguments]


def environment(*prefixes: str, names: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment for a child process, without keys: usual names, `names`, and those with one of the prefixes."""
    wanted = {*_PASSED_ON, *names}
    return {name: text for name, text in os.environ.items() if name in wanted or (prefixes and name.startswith(prefixes))}


def end_with_parent() -> None:
    """Ask the system to kill this process when the thread that started it ends. Only Linux can."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, _KILL, 0, 0, 0)


@contextmanager
def alone_with(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of a file. Another process waits until it is free."""
    with open(path, "w") as lock:
        lock_file(lock.fileno(), wait=True)
        yield
