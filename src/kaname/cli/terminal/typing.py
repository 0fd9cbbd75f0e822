"""Read lines that a user types while the agent works."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from ...core.errors import AgentError
from ..messages import translate
from .screen import Screen

URGENT = ("!", "！")
Say = Callable[[str, bool], Awaitable[bool]]


def is_typed() -> bool:
    """Return True if a person can type while the agent works: in a terminal, and not from a pipe."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() and sys.platform != "win32"


@contextmanager
def hear_lines(screen: Screen, tell: Say) -> Iterator[None]:
    """Pass each line that is typed meanwhile to `tell`. A line that begins with "!" is urgent."""
    if not is_typed():
        yield
        return
    loop, place, tasks, rest = asyncio.get_running_loop(), sys.stdin.fileno(), set[asyncio.Task[None]](), [b""]

    def read() -> None:
        data = os.read(place, 4096)
        *lines, rest[0] = (rest[0] + data).split(b"\n")
        for line in lines:
            if text := line.decode("utf-8", "replace").strip():
                tasks.add(asyncio.ensure_future(_pass_on(text, screen, tell)))
        if not data:  # the terminal was closed
            loop.remove_reader(place)

    loop.add_reader(place, read)
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            loop.remove_reader(place)


async def _pass_on(text: str, screen: Screen, tell: Say) -> None:
    urgent = text.startswith(URGENT)
    try:
        seen = await tell(text.lstrip("".join(URGENT)).strip() if urgent else text, urgent)
    except AgentError as problem:
        screen.note(translate(problem), "red")
        return
    if not seen:
        message = "too late for this answer: the next one takes it into account"
        screen.tell(message, "この回答には間に合いません。次の回答で考慮します")
