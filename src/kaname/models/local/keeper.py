"""The process that keeps a model loaded: it starts the engine, reports where it is, and ends with the last user.

Every process that uses the model holds a connection open. A process that is killed loses it, whatever kills it.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from ...core.processes import alone_with, python_command

_LAST_WORDS = 2000  # bytes of the engine's errors


def main() -> None:
    opening = json.loads(sys.argv[2])
    engine = start_engine(opening["engine"], subprocess.PIPE)
    Keeper(opening, engine).run()
    os._exit(0)


def start_engine(opening: dict[str, Any], errors: int, **options: Any) -> subprocess.Popen[bytes]:
    command = python_command("kaname.models.local.engine")
    engine = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0, **options)
    assert engine.stdin is not None
    with suppress(BrokenPipeError):  # the missing answer says it
        engine.stdin.write(json.dumps(opening).encode() + b"\n")
    return engine


class Keeper:
    def __init__(self, opening: dict[str, Any], engine: subprocess.Popen[bytes]) -> None:
        self._lock, self._paths = opening["lock"], (opening["socket"], opening["engine"]["socket"])
        self._engine = engine
        self._listener = socket.socket(fileno=opening["listener"])
        self._users: set[socket.socket] = set()
        self._last: socket.socket | None = None
        self._answer: dict[str, Any] = {}
        self._errors = b""
        self._selector = selectors.DefaultSelector()
        for source, take in ((self._listener, self._accept), (engine.stdout, self._hear), (engine.stderr, self._note)):
            self._selector.register(source, selectors.EVENT_READ, take)  # type: ignore[arg-type]

    def run(self) -> None:
        began = False
        while self._engine.poll() is None:
            for key, _ in self._selector.select():
                key.data()
            began = began or bool(self._users)
            if began and not self._users and self._leave():
                return
        last = [line for line in self._errors.decode("utf-8", "replace").splitlines() if line.strip()]
        for user in self._users:
            self._say(user, {"ended": self._engine.returncode, "errors": last[-1][-300:] if last else ""})
        with alone_with(self._lock):
            self._remove()

    def _leave(self) -> bool:
        """End the engine, unless a user has come in the meantime."""
        with alone_with(self._lock):
            if any(key.fileobj is self._listener for key, _ in self._selector.select(0)):
                return False  # the next round takes it in
            self._engine.kill()
            self._engine.wait()
            self._remove()
            return True

    def _remove(self) -> None:
        for path in self._paths:
            with suppress(OSError):
                os.unlink(path)

    def _accept(self) -> None:
        user, _ = self._listener.accept()
        self._users.add(user)
        if self._last is not None:
            self._last.close()
            self._last = None
        self._selector.register(user, selectors.EVENT_READ, lambda: self._drop(user))
        if self._answer:
            self._say(user, self._answer)

    def _drop(self, user: socket.socket) -> None:
        """Forget a user. The last connection stays open until the engine has ended: `LocalServer.release` waits for that."""
        self._users.discard(user)
        self._selector.unregister(user)
        if self._users:
            user.close()
        else:
            self._last = user

    def _hear(self) -> None:
        """Take the engine's answer: where it is, or why it cannot load the model."""
        assert self._engine.stdout is not None
        line = self._engine.stdout.readline()
        if not line:
            self._selector.unregister(self._engine.stdout)
            self._engine.wait()
            return
        said = json.loads(line)
        for number, user in enumerate(self._users):
            self._say(user, {**said, "fresh": number == 0})
        self._answer = {**said, "fresh": False}

    def _note(self) -> None:
        assert self._engine.stderr is not None
        if heard := os.read(self._engine.stderr.fileno(), _LAST_WORDS):
            self._errors = (self._errors + heard)[-_LAST_WORDS:]
        else:
            self._selector.unregister(self._engine.stderr)

    def _say(self, user: socket.socket, said: dict[str, Any]) -> None:
        with suppress(OSError):  # it is gone, which `select` reports
            user.sendall(json.dumps(said).encode() + b"\n")
