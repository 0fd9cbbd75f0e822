"""Several server processes on one address. A process that dies is started again; a signal ends all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from logging import getLogger
from socket import socket

from ..core.durations import backoff

SOCKET = "KANAME_SERVE_SOCKET"  # the file descriptor that a worker listens on, the id of its supervisor, and its number
_PATIENCE = 20.0  # seconds that the workers have to end after their tools
_LONGEST = 30.0  # seconds of the longest pause before a worker that keeps dying is restarted
log = getLogger("kaname.serve")


def inherited_socket() -> socket | None:
    """Return the socket that this process was started to serve; None if it is not a worker."""
    if not is_one_of_several():
        return None
    number, parent, _ = os.environ[SOCKET].split(":")
    threading.Thread(target=_end_with_parent, args=[int(parent)], daemon=True).start()
    return socket(fileno=int(number))


def is_one_of_several() -> bool:
    """Return True if the next request of a client may be handled by another process."""
    return bool(os.environ.get(SOCKET))


def process_number() -> str:
    """Return the number of this process among several, from 1; "" if it is the only one. A process that is started again for
    one that died has the same number."""
    return os.environ.get(SOCKET, "").rpartition(":")[2]


def _end_with_parent(parent: int) -> None:
    """End this process when its supervisor has ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


class WorkerProcesses:
    """Start worker processes and watch over them. `arguments`: the command line of this process, which the workers get, too."""

    def __init__(self, arguments: Sequence[str], taken: socket, count: int, grace: float) -> None:
        self._arguments, self._taken, self._grace = list(arguments), taken, grace
        self._running: list[tuple[subprocess.Popen[bytes], float, int]] = []  # process, start time, starts in a row; by number
        self._count, self._ended = count, False

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        self._running = [(self._start(one), time.monotonic(), 1) for one in range(self._count)]
        while not self._ended:
            time.sleep(0.1)
            self._running = [self._restart_if_dead(place, *one) for place, one in enumerate(self._running)]
        for worker, _, _ in self._running:
            worker.terminate()
        until = time.monotonic() + self._grace + _PATIENCE
        for worker, _, _ in self._running:
            try:
                worker.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
        return 0

    def _restart_if_dead(
        self, place: int, worker: subprocess.Popen[bytes], begun: float, starts: int
    ) -> tuple[subprocess.Popen[bytes], float, int]:
        if worker.poll() is None or self._ended:
            return worker, begun, starts
        lived = time.monotonic() - begun
        if lived < backoff(starts, 0.5, _LONGEST):  # it died at once: wait before the restart
            return worker, begun, starts
        log.warning("worker %d ended (%s); another is started", worker.pid, worker.returncode)
        return self._start(place), time.monotonic(), 1 if lived > _LONGEST else starts + 1

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        number = self._taken.fileno()
        environment = {**os.environ, SOCKET: f"{number}:{os.getpid()}:{place + 1}"}
        return subprocess.Popen([sys.executable, "-m", "kaname.cli.main", *self._arguments], env=environment, pass_fds=[number])

    def _end(self, number: int, frame: object) -> None:
        if self._ended:  # without waiting for tools
            for worker, _, _ in self._running:
                worker.terminate()
        self._ended = True
