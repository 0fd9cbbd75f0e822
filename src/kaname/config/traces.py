"""Make the sinks that `trace:` asks for. The agents of one file share them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..core.errors import AgentError, ConfigError
from ..kernel.ports import Sink


def traces_of(trace: Mapping[str, Any], folder: Path, wrong: Callable[[str, str], None]) -> tuple[Sink, ...]:
    made: list[Sink] = []
    for name, given in trace.items():
        try:
            made.append(_sink(name, json.dumps(given, sort_keys=True), str(folder.resolve())))
        except AgentError as problem:
            wrong(name, str(problem))
    return tuple(made)


@lru_cache(maxsize=64)
def _sink(name: str, given: str, folder: str) -> Sink:
    from ..sinks.log import Console, JsonLines
    from ..sinks.otel import OpenTelemetry

    said: Any = json.loads(given)
    if name == "console":
        return Console(**(said if isinstance(said, dict) else {"level": said}))
    if name == "file":
        options = dict(said) if isinstance(said, dict) else {"path": said}
        path = Path(folder) / Path(options.pop("path")).expanduser()
        return JsonLines(path, **options)
    return OpenTelemetry(**(said if isinstance(said, dict) else {"endpoint": said}))


def trace_from(words: str) -> Sink:
    """Return the sink that an option names: `console`, `console=debug`, `otel`, `otel=http://localhost:4318`, or a path."""
    name, _, value = words.partition("=")
    if name == "console":
        return _sink("console", json.dumps(value or "info"), ".")
    if name == "otel":
        return _sink("otel", json.dumps(value), ".")
    if "=" in words or "://" in words or not any(mark in words for mark in "./\\"):  # a word that is no path
        raise ConfigError.of("trace.place", "a trace must go to console, otel=URL or a file, not {words!r}", words=words)
    return _sink("file", json.dumps(words), str(Path.cwd()))
