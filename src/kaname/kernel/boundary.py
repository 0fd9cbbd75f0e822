"""The border to other people's code: the one place where any exception is caught, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from traceback import extract_tb
from types import TracebackType
from typing import Any, Self

from ..core.errors import AgentError, Signal


class Failure:
    """An exception that foreign code raised."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if str(self.error) else type(self.error).__name__

    @property
    def place(self) -> str:
        """Where it was raised: the innermost line of code."""
        last = extract_tb(self.error.__traceback__)[-1]
        return f"{last.filename}:{last.lineno}"


class Border:
    """`with Border() as border: …` keeps what is raised inside in `border.failure`; the types in `passing` go on outwards."""

    __slots__ = ("caught", "failure", "passing")

    def __init__(self, passing: tuple[type[BaseException], ...] = (), caught: type[BaseException] = Exception) -> None:
        self.passing, self.caught = passing, caught
        self.failure: Failure | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None or not isinstance(error, self.caught) or isinstance(error, self.passing):
            return False
        self.failure = Failure(error)
        return True


async def attempt(work: Callable[..., Any], *args: Any, passing: tuple[type[Exception], ...] = (AgentError, Signal)) -> Any:
    """Run foreign code. What is meant for somebody further out passes; whatever else it raises comes back as a `Failure`."""
    with Border(passing) as border:
        value = work(*args)
        return await value if isawaitable(value) else value
    return border.failure
