"""Start the processes on first use, send them work, and kill them when a task is cancelled or takes too long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ...core.errors import AgentError
from ...core.processes import environment, python_command
from ...core.turns import Places
from ...kernel.view import current_view
from . import frames

Progress = Callable[[float, float], None]
"""Called with what is done and how much there is, in seconds of sound or frames."""

_STARTING = 120.0  # seconds to load the libraries on a busy machine
_AT_ONCE = 2  # processes for one kind of work
_IDLE = 60.0  # seconds after which an unused process is ended
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")


class SenseError(AgentError):
    """A file that cannot be read, heard or shown, and why. The model can be told."""


class SenseTimeout(SenseError):
    """The work took longer than allowed. Its process was ended."""


class WorkLimits(NamedTuple):
    """What one piece of work may use: seconds, and bytes of memory above what its libraries need."""

    seconds: float = 60.0
    memory: int = 256_000_000


DECODING, COMPUTING = WorkLimits(30.0, 900_000_000), WorkLimits(600.0, 2_500_000_000)


class WorkProcess:
    """One process, for one kind of work. It does one task at a time."""

    def __init__(self, work: str, limits: WorkLimits, opening: dict[str, Any]) -> None:
        self._work, self._limits, self._opening = work, limits, opening
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.TimerHandle | None = None
        self.held: dict[str, bool] = {}  # which limits the system keeps

    async def do(
        self,
        task: str,
        blocks: Sequence[bytes] = (),
        *,
        seconds: float | None = None,
        progress: Progress | None = None,
        **data: Any,
    ) -> tuple[Any, list[bytes]]:
        """Do a task, and return its answer. If this is cancelled, the process is killed at once.

        Raises:
            SenseError: The file cannot be used.
            SenseTimeout: It takes longer than `seconds` (default: the limit of this kind of work).
        """
        async with self._turn:
            if self._ending is not None:
                self._ending.cancel()
            patience = self._limits.seconds if seconds is None else seconds
            answer: dict[str, Any] = {"last": True}
            try:
                process = await self._start()
                async with asyncio.timeout(patience):
                    answer, made = await self._exchange(process, {"task": task, **data}, blocks, progress)
            except TimeoutError:
                raise SenseTimeout.of(
                    "senses.too_slow", "the file takes longer than {seconds:g} s. Its process was ended.", seconds=patience
                ) from None
            except (asyncio.IncompleteReadError, ConnectionError, frames.BadFrame):
                raise SenseError.of(
                    "senses.process_ended", "the process that decodes the file has ended: the file asks for too much memory"
                ) from None
            finally:
                if answer.get("last"):  # also after a cancellation
                    await self._kill()
                else:
                    self._ending = asyncio.get_running_loop().call_later(_IDLE, self._end)
        if "refused" in answer:
            raise SenseError.of("senses.refused", "the file cannot be used: {why}", why=answer["refused"])
        return answer["ok"], made

    async def _start(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await _close_with_loop()
        self._process = process = await asyncio.create_subprocess_exec(
            *python_command("kaname.senses.process.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**environment(names=["MPLCONFIGDIR"]), **_THREADS},
            start_new_session=True,
        )
        opening = {"work": self._work, "memory": self._limits.memory, **self._opening}
        async with asyncio.timeout(_STARTING):
            said, _ = await self._exchange(process, opening, (), None)
        self.held = said.get("ready", {})
        return process

    async def _exchange(
        self, process: asyncio.subprocess.Process, data: dict[str, Any], blocks: Sequence[bytes], progress: Progress | None
    ) -> tuple[dict[str, Any], list[bytes]]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines(frames.pack(data, blocks))
        await process.stdin.drain()
        while True:
            length, count = frames.sizes(await process.stdout.readexactly(frames.HEAD_BYTES))
            said, lengths = frames.parse(await process.stdout.readexactly(length), count)
            made = [await process.stdout.readexactly(one) for one in lengths]
            if "progress" not in said:
                return said, made
            if progress is not None:
                progress(*said["progress"])

    async def _kill(self) -> None:
        if (process := self._end()) is not None:
            with suppress(asyncio.CancelledError):
                await process.wait()

    def _end(self) -> asyncio.subprocess.Process | None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        return process

    async def close(self) -> None:
        async with self._turn:
            await self._kill()


class WorkProcesses:
    """The processes for one kind of work: one for each user who waits for it, and two in all. Users take turns at them."""

    def __init__(self, work: str, limits: WorkLimits, opening: dict[str, Any]) -> None:
        self._make = partial(WorkProcess, work, limits, opening)
        self._places, self._all, self._free = Places(_AT_ONCE, 1), list[WorkProcess](), list[WorkProcess]()

    async def do(self, task: str, blocks: Sequence[bytes] = (), *, user: str = "", **more: Any) -> tuple[Any, list[bytes]]:
        """Do a task in a process: see `WorkProcess.do`. `user`: for whom it is (default: the user of the run in this task)."""
        view = current_view.get()()
        whose = user or ("" if view is None else view.state.user)
        async with self._places.take(f"user {whose}"):
            if not self._free:
                self._all.append(self._make())
                self._free.append(self._all[-1])
            process = self._free.pop()
            try:
                return await process.do(task, blocks, **more)
            finally:
                self._free.append(process)

    def limits(self) -> dict[str, bool]:
        """Return the limits by name, each with True if the system keeps it."""
        return self._all[0].held if self._all else {}

    async def close(self) -> None:
        for one in self._all:
            await one.close()


_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, WorkProcesses]] = WeakKeyDictionary()
_keepers: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncIterator[None]] = WeakKeyDictionary()


def worker(work: str, limits: WorkLimits = DECODING, **opening: Any) -> WorkProcesses:
    """Return the processes for a kind of work in this event loop."""
    mine = _workers.setdefault(asyncio.get_running_loop(), {})
    key = (work, limits, json.dumps(opening, sort_keys=True))
    if key not in mine:
        mine[key] = WorkProcesses(work, limits, opening)
    return mine[key]


async def _close_with_loop() -> None:
    """End the processes when the event loop ends: it closes open generators then."""
    loop = asyncio.get_running_loop()
    if loop not in _keepers:
        _keepers[loop] = keeper = _keep_open()
        await anext(keeper)


async def _keep_open() -> AsyncIterator[None]:
    try:
        yield
    finally:
        await close_workers()


async def close_workers() -> None:
    """End the processes of this event loop. They start again on the next use."""
    for one in _workers.pop(asyncio.get_running_loop(), {}).values():
        await one.close()
