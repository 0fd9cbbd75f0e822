"""Signals: treat SIGTERM and SIGHUP like the first Ctrl-C, so that the run ends in order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ending:
    """The signal that ends the program. `signal`: its number, or 0. A second signal works like a second Ctrl-C."""

    def __init__(self) -> None:
        self.signal = 0
        self.interrupt: Any = None  # what handles Ctrl-C, if Ctrl-C itself is ignored

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        if self.interrupt is not None and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            self.interrupt(signal.SIGINT, frame)
        else:
            signal.raise_signal(signal.SIGINT)  # the current handler of Ctrl-C handles it


def run_to_the_end(work: Callable[[Ending], Coroutine[Any, Any, int]]) -> int:
    """Run the work and return its exit code, or the code of the signal that ended it."""
    ending = Ending()
    before = {number: signal.signal(number, ending.handle) for number in _SIGNALS if _is_ours(number)}
    if before and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a script has started the program with `&`
        work = _ignoring_ctrl_c(work)
    try:
        code = asyncio.run(work(ending))
    except (KeyboardInterrupt, asyncio.CancelledError):
        if not ending.signal:
            raise
        code = 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + ending.signal if ending.signal else code


def _ignoring_ctrl_c(work: Callable[[Ending], Coroutine[Any, Any, int]]) -> Callable[[Ending], Coroutine[Any, Any, int]]:
    """Let asyncio make its handler of Ctrl-C, use it for the other signals, and ignore Ctrl-C itself."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def ignoring(ending: Ending) -> int:
        ending.interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        return await work(ending)

    return ignoring


def _is_ours(number: int) -> bool:
    """Return True if the signal can be handled here: only in the main thread, and not if it is ignored (`nohup`)."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(number) == signal.SIG_DFL
