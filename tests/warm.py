"""Processes that begin warm. A parent that has imported the greater part of kaname forks them: a terminal costs 60 ms, not 220.

They are real processes, with a folder, an environment, pipes, signals and an exit code of their own. They end as Python ends, but
their modules are not taken apart: what these still have open is closed by the system, without a warning.
What they cannot show is what a new interpreter does at its start: which modules it imports, and how long that takes. Tests of
that, of a user's own start (`kaname init`), and of processes under a debugger of their system calls, start cold ones.

`Popen` and `run` are those of `subprocess` for `[sys.executable, …]`. Where the parent cannot be had, they start cold.
"""

from __future__ import annotations

import array
import atexit
import fcntl
import json
import os
import socket
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_FDS = slice(10, 16)  # of subprocess.Popen._execute_child: p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite
_parents: dict[tuple[str, str], Parent] = {}
possible = sys.platform == "linux" and hasattr(os, "pidfd_open")


class Parent:
    """The process that forks the others, one for each process of pytest. It ends with it. `also`: more modules to import."""

    def __init__(self, also: str, preload: str) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        first = os.environ.get("PYTHONPATH")  # scripts/mutations.py tries a copy of the package
        places = [*([first] if first else []), str(ROOT / "src"), str(ROOT)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        environment |= {"LD_PRELOAD": preload} if preload else {}
        command = [sys.executable, str(ROOT / "tests" / "warm_parent.py"), str(theirs.fileno()), also]
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, cwd="/")
        atexit.register(self.close)

    def close(self) -> None:
        """End the parent. Processes that it forked go on."""
        self.channel.close()
        self.process.wait(60)

    def start(self, order: dict[str, Any], streams: list[int]) -> tuple[int, socket.socket]:
        """Start a process with these streams. Return its number, and where its status will be told."""
        told, theirs = socket.socketpair()
        with theirs:
            fds = array.array("i", [*streams, theirs.fileno()])
            self.channel.sendmsg([json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        try:
            return int.from_bytes(_exactly(told, 4), "big"), told
        except BaseException:
            told.close()
            raise


def _exactly(told: socket.socket, size: int) -> bytes:
    held = b""
    while len(held) < size:
        more = told.recv(size - len(held))
        if not more:
            raise OSError("the warm parent is gone")
        held += more
    return held


def _needs_a_start(args: list[Any], env: Any) -> bool:
    """True for options of the interpreter other than `-I`, and for a variable that only its start reads."""
    args = args[1:] if args[1] == "-I" else args
    return (str(args[1])[:1] == "-" and args[1] not in ("-c", "-m")) or "PYTHONHASHSEED" in env


def _take_the_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Popen(subprocess.Popen):
    """A `subprocess.Popen` that is forked from the warm parent.

    `also`: modules beside kaname that the parent has imported, with commas. `tty`: the standard input becomes its controlling terminal.
    """

    _told: socket.socket | None = None

    def __init__(self, args: Any, *, also: str = "", tty: bool = False, **more: Any) -> None:
        self._also, self._tty = also, tty
        super().__init__(args, **{**more, "start_new_session": tty or more.get("start_new_session", False)})

    def _execute_child(self, args: Any, *more: Any) -> None:
        (executable, preexec, close_fds, pass_fds, cwd, env), streams = more[:6], [args, *more][_FDS]
        env = os.environ if env is None else env
        plain = isinstance(args, list) and args[0] == sys.executable and not (preexec or pass_fds or executable)
        if not (possible and plain and close_fds) or _needs_a_start(args, env):
            more = (executable, _take_the_terminal, *more[2:]) if self._tty else more
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        kind = self._also, env.get("LD_PRELOAD", "")
        parent = _parents.get(kind)
        if parent is None or parent.process.poll() is not None:
            parent = _parents[kind] = Parent(*kind)
        order = {
            "argv": [os.fspath(arg) for arg in args[1:]],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": {name: os.fspath(value) for name, value in env.items()},
            "session": bool(more[20]),
            "tty": self._tty,
        }
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = streams
        given = [fd if fd >= 0 else standard for standard, fd in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid, self._told = parent.start(order, given)
        self._child_created = True
        null = getattr(self, "_devnull", None)
        for mine, fd in ((p2cwrite, p2cread), (c2pread, c2pwrite), (errread, errwrite)):
            if mine >= 0 and fd >= 0 and fd != null:
                os.close(fd)
        if null is not None:
            os.close(null)
        self._closed_child_pipe_fds = True

    def _internal_poll(self, _deadstate: Any = None, **more: Any) -> int | None:
        if self._told is None:
            return super()._internal_poll(_deadstate, **more)  # type: ignore[misc]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._told is None:
            return super()._try_wait(flags)  # type: ignore[misc]
        self._told.setblocking(not flags & os.WNOHANG)
        try:
            status = int.from_bytes(_exactly(self._told, 4), "big")
        except BlockingIOError:
            return 0, 0
        self._told.close()
        return self.pid, status


def run(
    command: list[Any],
    *,
    input: Any = None,
    capture_output: bool = False,
    check: bool = False,
    timeout: float | None = None,
    **more: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`, warm."""
    if input is not None:
        more["stdin"] = subprocess.PIPE
    if capture_output:
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **more) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
