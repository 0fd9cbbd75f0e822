"""Handle SIGTERM and SIGHUP like the first Ctrl-C: the run ends in order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ending:
    """`signal`: which one came, 0 if none. A second one is what a second Ctrl-C is."""

    def __init__(self) -> None:
        self.signal = 0

    def told(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.raise_signal(signal.SIGINT)  # whoever would hear a Ctrl-C now, hears this


def to_the_end(work: Callable[[Ending], Coroutine[Any, Any, int]]) -> int:
    """Run it; the exit code is its own, or the one that tells of the signal."""
    ending = Ending()
    before = {number: signal.signal(number, ending.told) for number in _SIGNALS if _is_ours(number)}
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


def _is_ours(number: int) -> bool:
    """One that is ignored (`nohup`) stays ignored; and only the main thread may hear of any."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(number) == signal.SIG_DFL
