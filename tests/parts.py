"""What several tests use: small tools, readers of runs, a valid-history check, a journal that dies."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import pty
import select
import time
from collections.abc import Callable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any

import kaname
from kaname import MemoryJournal, ScriptedModel, call, tool
from kaname.core.events import Event
from kaname.core.messages import Message, ToolResult
from kaname.kernel.ports import Journal
from kaname.run.run import find_live
from tests import warm


class Later:
    """A large module that is imported with the first use of one of its names, and not in each process that collects the tests."""

    def __init__(self, name: str) -> None:
        self._place = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks whether it is a fixture
            raise AttributeError(name)
        return getattr(importlib.import_module(self._place), name)


SOURCE = str(Path(kaname.__file__).parents[1])
"""PYTHONPATH of a process with an environment of its own: it imports the kaname that is tested, also in a worktree."""


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="pure")
def fail(why: str = "no reason") -> str:
    """Fail."""
    raise ValueError(why)


def adding() -> ScriptedModel:
    return ScriptedModel([call("add", a=3, b=4), "the sum is 7"])


async def chunks(run: Any) -> list[Any]:
    return [chunk async for chunk in run]


async def facts(agent: Any, run_id: str) -> list[Event]:
    return [event async for event in agent.journal.read(run_id)]


async def kinds(agent: Any, run_id: str) -> list[str]:
    return [type(event.body).__name__ for event in await facts(agent, run_id)]


async def until(true: Callable[[], Any], seconds: float = 60.0, *, freeing: bool = False) -> Any:
    """Wait until a function, which may be a coroutine function, returns something true, and return that.

    `freeing`: it waits for an object to go. A thread that has just delivered a result holds its work for an instant longer, so
    what nobody holds is looked for each time."""
    async with asyncio.timeout(seconds):
        while True:
            found = true()
            if found := await found if isawaitable(found) else found:
                return found
            if freeing:
                gc.collect()
            await asyncio.sleep(0.1 if freeing else 0.005)  # looking for garbage takes a while, on a busy machine a long one


async def listening(journal: Journal, run_id: str) -> None:
    """Wait until a run listens for a request to stop, which only one that takes a while does."""
    await until(lambda: (work := find_live(journal, run_id)) is not None and work._listeners)


def has_heard(context: Any) -> bool:
    """Return True if the run of a tool's context has heard something that it has not taken up yet."""
    return bool(context.view.inbox)


def wait_until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait as `until` does, where there is no event loop."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def assert_valid_history(messages: Sequence[Message]) -> None:
    """As providers want it: every call is answered once, right after it, in order; no result without its call."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            (result,) = message.parts
            assert isinstance(result, ToolResult)
            assert waiting, f"a result without a call: {result}"
            assert waiting.pop(0) == result.call_id
        else:
            assert not waiting, f"unanswered: {waiting}"
            waiting = [c.id for c in message.calls]
            assert not seen & set(waiting), "a call id was used twice"
            seen |= set(waiting)
    assert not waiting, f"unanswered: {waiting}"


class Died(BaseException):
    """The process is gone, as far as a test inside one process can have it."""


class MortalJournal(MemoryJournal):
    """Dies at the appointed append, and stays dead until it is revived."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.after = False
        self.dead = False
        self.instead: Callable[[], None] | None = None  # what happens at the appointed append, if it is not death

    def revive(self, left: int | None = None, *, after: bool = False, instead: Callable[[], None] | None = None) -> None:
        self.left, self.after, self.dead, self.instead = left, after, False, instead
        for record in self._records.values():
            record.held = False  # its owner is dead

    async def append(self, events: Sequence[Event], epoch: int, **more: Any) -> None:
        if self.dead:
            raise Died
        if self.left is not None:
            self.left -= 1
            if self.left < 0 and self.instead is not None:
                self.left = None
                self.instead()
            elif self.left < 0:
                self.dead = True
                if self.after:
                    await super().append(events, epoch, **more)
                raise Died
        await super().append(events, epoch, **more)

    async def release(self, run_id: str, epoch: int) -> None:
        if not self.dead:
            await super().release(run_id, epoch)


def typed_into(
    command: list[str], environment: dict[str, str], folder: Path, feed: Any, seconds: float = 90, also: str = ""
) -> tuple[int, str]:
    """Run it in a terminal; type, or send a signal, whenever the words have appeared after those before. Its code, and what
    was shown. `also`: see `tests.warm.Popen`."""
    screen, theirs = pty.openpty()
    process = warm.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder, also=also, tty=True)
    os.close(theirs)
    shown, feed, until = "", list(feed), time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([screen], [], [], 0.1)[0]:
            try:
                shown += os.read(screen, 65536).decode()
            except OSError:
                break
        if feed and feed[0][0] in shown:
            time.sleep(0.2)
            _, given = feed.pop(0)
            os.write(screen, given.encode()) if isinstance(given, str) else process.send_signal(given)
    else:
        process.kill()
    os.close(screen)
    return process.wait(), shown
