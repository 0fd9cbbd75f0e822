"""`TraceLogger`: log what an agent does to the console, to a file and to OpenTelemetry, and what a program adds to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable, signature
from pathlib import Path
from time import time
from typing import Any

from ...core.errors import ConfigError
from ...core.events import Event
from ...kernel.chain import can_call
from ...kernel.ports import Sink
from ...sinks.log import LEVELS, Console, JsonLines, Level, Lines, format_time, level_error, line_of
from ...sinks.otel import OpenTelemetry


class TraceLogger(Lines):
    """A trace of an agent's runs: start and end, tool calls, handoffs, questions, warnings and errors.

    Pass it to `Agent(sinks=[logger])` or `BaseAgent(trace_logger=logger)`. Every line goes through `trace`: override it to send
    the lines elsewhere. It can be a coroutine function.

    Args:
        level: The lowest level that is logged: "debug" (every fact), "info" (the default), "warning" or "error".
        console: Write lines to standard error (default), or a `Console` of your own. False writes nothing there.
        file: A path for JSON lines, or a `JsonLines` of your own.
        otel: The endpoint of an OTLP receiver ("" reads the usual environment variables), or an `OpenTelemetry`.
        content: Also log what was said, and what tools got and returned. The default is False.
    """

    def __init__(
        self,
        level: Level = "info",
        *,
        console: bool | Console = True,
        file: str | Path | JsonLines | None = None,
        otel: str | OpenTelemetry | None = None,
        content: bool = False,
    ) -> None:
        super().__init__(level, content)
        self.level = level
        written: list[Lines] = []
        if console is not False:
            written.append(Console() if console is True else console)
        if file is not None:
            written.append(file if isinstance(file, JsonLines) else JsonLines(file))
        self._outputs = tuple(written)
        self._otel = OpenTelemetry(otel, content=content) if isinstance(otel, str) else otel
        self._calls = _make_caller(self.trace)
        self.wants = ("children",) if self._otel is None else ("children", "trace")

    def trace(self, event: str, data: Mapping[str, Any] | None = None, level: Level = "info") -> Any:
        """Log one event. An agent calls it for every fact of its runs, with `level` among the `data`.

        Args:
            event: What happened, such as "ToolStarted", or a name of your own.
            data: Details, written as they are.
            level: The level, unless `data` names one. What is below the logger's own level is not written.
        """
        line = {"time": format_time(time()), "level": level, "event": event, **(data or {})}
        if line["level"] not in LEVELS:
            raise level_error(line["level"])
        if LEVELS.index(line["level"]) >= self._least:
            self.write(line)

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line to the console and to the file."""
        for output in self._outputs:
            output.write(line)

    def __call__(self, event: Event) -> Any:
        if self._otel is not None:
            self._otel(event)
        lines = [line_of(one, self._content) for one in self.due(event)]
        started = [self._calls(line.pop("event"), line) for line in lines]
        waiting = [one for one in started if isawaitable(one)]
        return _all_of(waiting) if waiting else None

    def recall(self, facts: Sequence[Event]) -> None:
        """Take in what a run did before it was resumed here."""
        if self._otel is not None:
            self._otel.recall(facts)

    def flush(self) -> None:
        """Send what OpenTelemetry still holds."""
        if self._otel is not None:
            self._otel.flush()

    def close(self) -> None:
        """Close the file, and send what is left."""
        for output in [one for one in self._outputs if isinstance(one, JsonLines)]:
            output.close()
        if self._otel is not None:
            self._otel.close()


class _GivenLogger(TraceLogger):
    """An object of the user's own that has only `trace(event, data)`."""

    def __init__(self, given: Any) -> None:
        self.trace = given.trace  # type: ignore[method-assign]
        super().__init__(console=False, content=True)


def as_sink(trace_logger: Any) -> Sink:
    """Return a trace logger as an agent's sink: itself if it is one, else around its `trace(event, data)`."""
    if callable(trace_logger):
        return trace_logger  # type: ignore[no-any-return]
    if callable(getattr(trace_logger, "trace", None)):
        return _GivenLogger(trace_logger)
    raise ConfigError.of(
        "trace.logger", "{given!r:.100} is not a trace logger: it has no method trace(event, data)", given=trace_logger
    )


def _make_caller(trace: Callable[..., Any]) -> Callable[[str, dict[str, Any]], Any]:
    """Return a function that calls `trace(event, data)`, or `trace(event, **data)` if that is what its signature takes."""
    if can_call(trace, "", {}):
        return trace
    if can_call(trace, "", level="", run_id=""):
        return lambda event, data: trace(event, **data)
    form = signature(trace)
    raise ConfigError.of(
        "trace.signature", "the trace logger's method trace{form} cannot be called as trace(event, data)", form=form
    )


async def _all_of(waiting: Sequence[Awaitable[Any]]) -> None:
    for one in waiting:
        await one
