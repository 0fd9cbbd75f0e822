"""This process's hold on a loaded model: connect to the keeper that this user has for it, or start one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...core.processes import alone_with, environment, python_command
from . import prefix
from .keeper import start_engine

_LONGEST = 100  # bytes of a socket's path: the systems allow 104 or 108
_ENDING = 10.0  # seconds
_FOR_LLAMA = ("CUDA_", "GGML_", "GPU_", "HIP_", "HSA_", "LLAMA_", "OMP_", "ROCR_", "VK_")  # of the environment


class Plan(NamedTuple):
    """What is loaded. `threads` None: as many as the host has free when it is loaded."""

    path: str
    context: int
    threads: int | None


HELD: dict[tuple[int, Plan], LocalServer] = {}  # by process, because a fork inherits them
_holding = threading.Lock()


def find_server(plan: Plan) -> LocalServer | None:
    """Return this process's hold on the model, if it has one."""
    server = HELD.get((os.getpid(), plan))
    return None if server is None or server.ended else server


def connect(plan: Plan, free_cores: Callable[[], int]) -> LocalServer:
    """Return this process's hold on the model. It is one for all event loops, and loads the model if nobody else has."""
    with _holding:
        server = find_server(plan)
        if server is None:
            server = HELD[os.getpid(), plan] = _take(plan, free_cores)
        return server


def release(plan: Plan) -> None:
    """Give the model up, and wait until it has ended if nobody else uses it."""
    with _holding:
        server = HELD.pop((os.getpid(), plan), None)
    if server is not None:
        server.release()


class LocalServer:
    """A connection to the keeper. The model stays loaded until `release`, or until this process ends.

    Args:
        lines: Where the keeper's answers come from.
        let_go: Tells the keeper that this process needs the model no longer.
        process: The process that this one has started, if it has.
        ends: What is to be closed when the keeper is gone.

    `news` holds what the keeper has said: `address`, `key` and `fresh` of the server, or `failed`, or `ended`.
    """

    def __init__(
        self, lines: IO[bytes], let_go: Callable[[], None], process: subprocess.Popen[bytes] | None, *ends: Any
    ) -> None:
        self.news: dict[str, Any] = {}
        self._closed = False
        self._lines, self._let_go, self._process, self._ends = lines, let_go, process, ends
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._over = threading.Event()
        threading.Thread(target=self._listen, name="kaname-local", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Return True if the engine has ended, or nobody can say."""
        return self._closed or "ended" in self.news

    def why_ended(self) -> str:
        """Return the signal or the exit code, with the last line of llama.cpp's errors, or "" if nothing is known."""
        code, errors = self.news.get("ended"), self.news.get("errors", "")
        if code is None:
            return ""
        cause = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return f" ({cause}: {errors})" if errors else f" ({cause})"

    async def wait_for(self, happened: Callable[[LocalServer], object], seconds: float) -> None:
        """Wait until it has happened, or for so many seconds."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.append(mine)
        try:
            async with asyncio.timeout(seconds):
                while not happened(self):
                    await mine[1].wait()
                    mine[1].clear()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.remove(mine)

    def release(self) -> None:
        with suppress(OSError):
            self._let_go()
        self._over.wait(_ENDING)

    def _listen(self) -> None:
        with suppress(OSError, ValueError):
            for line in self._lines:
                self._tell(json.loads(line))
        self._closed = True
        for end in (self._lines, *self._ends):
            end.close()
        if "address" in self.news:
            prefix.forget(self.news["address"])
        self._over.set()
        self._tell({})
        if self._process is not None:
            self._process.wait()  # no zombie is left; a keeper that has other users lives on

    def _tell(self, news: dict[str, Any]) -> None:
        with self._lock:
            self.news |= news
            for loop, event in self._waiting:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(event.set)


def _take(plan: Plan, free_cores: Callable[[], int]) -> LocalServer:
    place = runtime_folder()
    base = "" if place is None else str(place / _name(plan))
    if not base or len(os.fsencode(base)) > _LONGEST:
        return _start_alone(plan, free_cores)
    connection = _connect(f"{base}.sock")
    if connection is not None:
        return _over(connection, None)
    with alone_with(f"{base}.lock"):
        connection, process = _connect(f"{base}.sock"), None
        if connection is None:
            threads = free_cores() if plan.threads is None else plan.threads
            connection, process = _start_keeper(base, plan, threads)
    return _over(connection, process)


def _over(connection: socket.socket, process: subprocess.Popen[bytes] | None) -> LocalServer:
    return LocalServer(connection.makefile("rb"), lambda: connection.shutdown(socket.SHUT_WR), process, connection)


def _connect(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _start_keeper(base: str, plan: Plan, threads: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the keeper with a socket that listens already and has its first user: if that is killed, the keeper sees it."""
    path, served = f"{base}.sock", f"{base}.http.sock"
    for left in (path, served):  # by a keeper that was killed
        Path(left).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(64)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        opening = {
            "listener": listener.fileno(),
            "socket": path,
            "lock": f"{base}.lock",
            "engine": _for_engine(plan, threads, served),
        }
        try:
            process = subprocess.Popen(
                python_command("kaname.models.local.keeper", json.dumps(opening)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                env=environment(*_FOR_LLAMA),
                cwd="/",
                start_new_session=True,  # a Ctrl-C in our terminal is not meant for it
            )
        except BaseException:
            connection.close()
            raise
    return connection, process


def _start_alone(plan: Plan, free_cores: Callable[[], int]) -> LocalServer:
    """Start an engine for this process only, over pipes: where there are no sockets in files, or no place for them."""
    apart = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x200}  # CREATE_NEW_PROCESS_GROUP
    threads = free_cores() if plan.threads is None else plan.threads
    engine = start_engine(_for_engine(plan, threads, ""), subprocess.DEVNULL, env=environment(*_FOR_LLAMA), **apart)
    assert engine.stdout is not None
    return LocalServer(engine.stdout, engine.kill, engine, engine.stdin)


def _for_engine(plan: Plan, threads: int, served: str) -> dict[str, Any]:
    return {**plan._asdict(), "threads": threads, "socket": served, "prefixes": prefix.writable_folder()}


def _name(plan: Plan) -> str:
    """Return a name that changes with everything that what is loaded depends on."""
    file = os.stat(plan.path)
    versions = (version("kaname"), version("xllamacpp"), str(prefix.folder()))
    return "llama-" + sha256(repr((plan, file.st_mtime_ns, file.st_size, versions)).encode()).hexdigest()[:16]


def runtime_folder() -> Path | None:
    """Return a folder that only this user can enter, or None if there is none or the system has no sockets in files."""
    if not hasattr(socket, "AF_UNIX") or os.name != "posix":
        return None
    own = os.environ.get("XDG_RUNTIME_DIR")
    for place in (Path(own or "/nonexistent", "kaname"), Path(tempfile.gettempdir(), f"kaname-{os.getuid()}")):
        with suppress(OSError):
            if place.parent.is_dir():
                place.mkdir(mode=0o700, exist_ok=True)
                seen = place.lstat()
                private = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
                if private and os.access(place, os.W_OK):
                    return place
    return None
