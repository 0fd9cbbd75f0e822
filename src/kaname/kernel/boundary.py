"""Boundary to foreign code: the one place where any exception is caught."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from logging import getLogger
from traceback import extract_tb
from types import TracebackType
from typing import Any, Self

from ..core.errors import AgentError, Signal
from ..core.values import shorten

_LONGEST = 10_000
_OURS = __file__.rpartition("kernel")[0]
_PYTHON = asyncio.__file__.rpartition("asyncio")[0]  # the folder of the standard library
_INSTALLED = frozenset(("site-packages", "dist-packages"))
Kinds = tuple[type[BaseException], ...]


class Failure:
    """An exception that foreign code raised."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        text = "(its message cannot be shown)"
        with Border():
            text = self.error.public if isinstance(self.error, AgentError) else str(self.error)
        return shorten(f"{type(self.error).__name__}: {text}" if text else type(self.error).__name__, _LONGEST)

    @property
    def kind(self) -> str:
        """Return the type of the error and its place, without its message."""
        return f"{type(self.error).__name__} ({self.place})"

    @property
    def place(self) -> str:
        """Return the innermost line of the user's own code; without one, of a package, and then of Python or kaname."""
        frames = extract_tb(self.error.__traceback__)
        last = max(enumerate(frames), key=lambda one: (_nearness(one[1].filename), one[0]))[1]
        return f"{last.filename}:{last.lineno}"


def _nearness(file: str) -> int:
    """Return the rank of a file in a traceback: 2 for the user's own, 1 for packages and typed code, 0 for others."""
    if file.startswith((_OURS, "<frozen ")):
        return 0
    if file.startswith("<") or not _INSTALLED.isdisjoint(file.replace("\\", "/").split("/")):
        return 1
    return 0 if file.startswith(_PYTHON) else 2


def log_failure(tool: str, failure: Failure, run_id: str = "") -> None:
    """Log the error that a tool has raised, with the line of its code. Models and remote callers see only its message."""
    if not isinstance(failure.error, AgentError):
        where = f"{failure.place}, run {run_id}" if run_id else failure.place
        getLogger("kaname").warning("the tool %s raised %s (at %s)", tool, failure, where)


class Border:
    """Catch everything that is raised inside `with Border() as border: …`, and keep it in `border.failure`.

    The types in `passing` are raised as usual. So is a cancellation, unless this task was not cancelled: then the foreign code
    raised it itself, and it is a failure.
    """

    __slots__ = ("caught", "failure", "passing")

    def __init__(self, passing: Kinds = (), caught: Kinds = (Exception, Signal)) -> None:
        self.passing, self.caught = passing, caught
        self.failure: Failure | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.failure = None if error is None else failure_of(error, self.passing, self.caught)
        return self.failure is not None


def failure_of(error: BaseException, passing: Kinds, caught: Kinds = (Exception, Signal)) -> Failure | None:
    """Return an error as a failure, or None if a border lets it pass and it has to be raised again."""
    if isinstance(error, passing):
        return None
    if (inner := _signal_in(error)) is not None and isinstance(inner, passing):
        raise inner from error
    if not isinstance(error, caught) and not (isinstance(error, asyncio.CancelledError) and _was_not_cancelled()):
        return None
    return Failure(error)


def _signal_in(error: BaseException) -> Signal | None:
    """Return the first signal of a group. Parallel tasks raise a group, and the question in it must be asked."""
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        if (found := inner if isinstance(inner, Signal) else _signal_in(inner)) is not None:
            return found
    return None


def _was_not_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


async def attempt(
    work: Callable[..., Any], *args: Any, passing: Kinds = (AgentError, Signal), caught: Kinds = (Exception, Signal)
) -> Any:
    """Run foreign code. Return a `Failure` for everything it raises, except for the types in `passing`, which are raised."""
    try:
        value = work(*args)
        return await value if isawaitable(value) else value
    except BaseException as error:
        if failure := failure_of(error, passing, caught):
            return failure
        raise
