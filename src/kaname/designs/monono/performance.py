"""`PerformanceOptimizer` and `CacheManager`: compute once and use again, and choose among tools that do the same."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable, iscoroutine
from logging import getLogger
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from ...core.codec import decode_body, dump, encode_body
from ...core.durations import seconds, size_in_bytes
from ...core.errors import ConfigError
from ...core.messages import ToolCall
from ...core.notices import notice
from ...core.project import state_path
from ...core.record import replace
from ...kernel.boundary import Failure, attempt
from ...kernel.chain import overrides
from ...kernel.ports import Journal, Policy
from ...kernel.threads import off_loop, runs_on_loop
from ...policies.failure.equals import Equals
from ...policies.failure.figures import LEAST, ToolFigures, choose, past_figures
from ...policies.reuse.cache import Cache
from ...policies.reuse.flights import Flights
from ...policies.reuse.keys import value_key
from ...policies.reuse.store import CacheStore, is_busy
from ...tools.tool_search import matching_words
from .checks import check_method

if TYPE_CHECKING:
    from ...kernel.view import RunView

_TIMES = ("seconds", "latency", "speed", "response_time")  # seconds per call, under the names that people give them
_RATES = ("success", "success_rate", "accuracy", "reliability")  # from 0 to 1


class CacheManager:
    """Values by key, in a SQLite file that several processes can use.

    Values must be JSON. A computation runs once, however many callers wait for it in this process. To cache replies of models
    and results of tools, use `Agent(policies=[Cache()])`.

    Args:
        max_size: The largest size of the file's content (default 1 GB). Values that were not used for the longest time are
            removed.
        default_ttl: Seconds, or a text such as "1h", for which a value is used (default one hour); None for no end.
        path: The file (default `values.db` next to the program's journal).
    """

    def __init__(
        self, max_size: int | str = "1GB", default_ttl: float | str | None = 3600, path: str | Path | None = None
    ) -> None:
        self.max_size, self.default_ttl = size_in_bytes(max_size), None if default_ttl is None else seconds(default_ttl)
        self.store = CacheStore(path or state_path("values.db"), self.max_size)
        self._on_loops, self._in_threads = Flights(), Flights()  # apart: a plain function must not wait for its own loop
        self._told = False

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value, or the default if there is none or its time is over."""
        stored = self._stored(key)
        return default if stored is None else json.loads(stored)

    def set(self, key: str, value: Any, ttl: float | str | None = None) -> None:
        """Store a value for `ttl` seconds (default: `default_ttl`). Raises `ConfigError` if it is not JSON."""
        self._store(key, value, ttl)

    def delete(self, key: str) -> None:
        self.store.remove(value_key(key))

    def clear(self) -> None:
        self.store.clear()

    def close(self) -> None:
        """Close the file. It is opened again with the next use."""
        self.store.close()

    def get_or_set(self, key: str, computation_function: Callable[[], Any], ttl: float | str | None = None) -> Any:
        """Return the stored value, or compute and store it.

        Args:
            key: The key.
            computation_function: Called without arguments if there is no value. If it is async, await what this returns.
            ttl: Seconds for which the value is used (default: `default_ttl`).
        """
        if runs_on_loop(computation_function):
            return self._get_or_set(key, computation_function, ttl)
        if (stored := self._stored(key)) is None:
            stored, shared = self._in_threads.share_now(
                key, lambda: self._stored(key) or self._store(key, _computed(key, computation_function), ttl, first=True)
            )
            if not shared:
                self._in_threads.release(key)
        return json.loads(stored)

    async def _get_or_set(self, key: str, compute: Callable[[], Awaitable[Any]], ttl: float | str | None) -> Any:
        async def made() -> str:
            return self._stored(key) or self._store(key, await compute(), ttl, first=True)

        if (stored := self._stored(key)) is None:
            stored, shared = await self._on_loops.share(key, made, lambda _: True)
            if not shared:
                self._on_loops.release(key)
        return json.loads(stored)

    def _stored(self, key: str) -> str | None:
        found = self._try(self.store.get, value_key(key))
        return None if found is None else found.value

    def _store(self, key: str, value: Any, ttl: float | str | None, *, first: bool = False) -> str:
        """Store a value, and return its JSON. `first`: return that of another process if it was first."""
        try:
            text = dump(value)
        except (TypeError, ValueError, RecursionError) as problem:
            raise ConfigError.of(
                "cache.not_json", "the value of {key!r} cannot be cached: {problem}", key=key, problem=problem
            ) from problem
        if first and (stored := self._stored(key)) is not None:
            return stored
        self._try(self.store.put, value_key(key), text, self.default_ttl if ttl is None else seconds(ttl))
        return text

    def _try(self, what: Callable[..., Any], *args: Any) -> Any:
        """Use the file. If it cannot be used, there is no value in it; that is logged once."""
        try:
            return what(*args)
        except (sqlite3.Error, OSError) as problem:
            if not self._told and not is_busy(problem):
                self._told = True
                getLogger("kaname").warning("the cache %s cannot be used: %s", self.store.path, problem)
            return None


def _computed(key: str, compute: Callable[[], Any]) -> Any:
    value = compute()
    if isawaitable(value):
        if iscoroutine(value):
            value.close()
        raise ConfigError.of(
            "cache.awaitable",
            "the computation of {key!r} returned a coroutine. Pass the async function itself, and await the result",
            key=key,
        )
    return value


class PerformanceOptimizer:
    """Caches results, and chooses among tools that do the same.

    Pass it to an agent with `BaseAgent(performance_optimizer=…)` or `Agent(…, policies=optimizer.policies)`: replies of models
    and results of pure tools are cached in the file of the `cache_manager`, and `optimize_tool_selection` chooses among equals.

    Args:
        cache_manager: A `CacheManager` (default: one of 1 GB, whose values are used for an hour).
        equals: Groups of names of tools that do the same: `[("search_a", "search_b")]`. When the model calls one of a group,
            the one runs that `optimize_tool_selection` returns.
    """

    reason = ""  # why the last selection was made
    equals: Sequence[Sequence[str]] = ()
    _past: Mapping[str, ToolFigures] = {}

    def __init__(self, cache_manager: CacheManager | None = None, *, equals: Iterable[Sequence[str]] = ()) -> None:
        self.cache_manager = cache_manager or CacheManager(max_size="1GB", default_ttl=3600)
        self.equals = tuple(equals)

    @property
    def policies(self) -> list[Policy]:
        """Return the policies for an agent. Raises `ConfigError` if a run cannot use what a subclass has set or overridden."""
        check_method(self, "optimize_tool_selection", "task_description", "available_tools_with_metadata")
        check_method(self, "get_or_set_cache", "cache_key", "computation_function")
        cache = self.cache_manager
        if overrides(self, "get_or_set_cache", PerformanceOptimizer) or type(cache) is not CacheManager:
            stored: Cache = _OwnCache(self)
        else:
            stored = Cache(ttl=cache.default_ttl, size=cache.max_size, path=cache.store.path)
        return [stored, *[_Selected(self, names) for names in self.equals]]

    async def learn_from(self, journal: Journal, tools: Iterable[str]) -> None:
        """Read how these tools did in the last runs of a journal. Metadata goes over it."""
        self._past = {**self._past, **await past_figures(journal, tools)}

    def optimize_tool_selection(
        self, task_description: str, available_tools_with_metadata: Mapping[str, Any] | Iterable[Mapping[str, Any]]
    ) -> str:
        """Return the name of the tool that is best for the task. `reason` says why it was chosen.

        Tools whose name and description share few words with the task are left out. The others are compared by success, then
        by cost, then by time, as `Equals` does. If nothing is known to be better, the tool that comes first is returned.

        Args:
            task_description: What is to be done.
            available_tools_with_metadata: By name, or in a list of mappings with `name`: `description`, `success_rate` (from 0
                to 1), `cost` (US dollars per call), `latency` (seconds), and `calls`, on how many calls the numbers are
                based. All of them can be left out.
        """
        tools = _by_name(available_tools_with_metadata)
        scores = {name: matching_words(task_description, name, _description(about)) for name, about in tools.items()}
        fitting = [name for name in tools if scores[name] >= max(scores.values()) / 2]
        priced = any(_number(_metadata(tools[name]), "cost") is not None for name in fitting)
        unknown = None if priced else 0.0  # a cost that no tool has is no difference between them
        figures = {name: known for name in fitting if (known := self._figures(name, tools[name], unknown)) is not None}
        best, self.reason = choose(fitting[0], fitting[1:], figures)
        return best

    def get_or_set_cache(self, cache_key: str, computation_function: Callable[[], Any], ttl: float | str | None = None) -> Any:
        """Return the cached value, or compute and store it. If the function is async, await what this returns."""
        return self.cache_manager.get_or_set(cache_key, computation_function, ttl)

    def _figures(self, name: str, about: Any, unknown: float | None) -> ToolFigures | None:
        """Return the figures of a tool from its metadata. Values that the metadata does not have come from past runs."""
        told, past = _metadata(about), self._past.get(name)
        success, cost, time = _number(told, *_RATES), _number(told, "cost"), _number(told, *_TIMES)
        if past is None and success is cost is time is None:
            return None
        if past is None:
            calls = _number(told, "calls")
            known = ToolFigures(LEAST if calls is None else int(calls), 1.0 if success is None else success, time, cost)
            return known if cost is not None else replace(known, cost=unknown)
        return ToolFigures(
            past.calls,
            past.success if success is None else success,
            past.seconds if time is None else time,
            past.cost if cost is None else cost,
        )


class _OwnCache(Cache):
    """A cache of runs whose entries are kept by a `get_or_set_cache` of the user's own, as texts."""

    def __init__(self, optimizer: PerformanceOptimizer) -> None:
        super().__init__()
        self._optimizer = optimizer

    async def find(self, key: str, view: RunView) -> tuple[Any, float] | None:
        """Return the stored fact and its age in seconds. There is none if the method asks for the computation."""
        entry: tuple[Any, float] | None = await self._attempt(self._read, key, view=view)
        return entry

    async def _read(self, key: str) -> tuple[Any, float] | None:
        try:
            text = await off_loop(self._optimizer.get_or_set_cache, key, _raise_absent)
        except _Absent:
            return None
        made, kind, body = text.split(" ", 2)
        return decode_body(kind, body), max(0.0, time() - float(made))

    async def _put(self, made: Any, view: RunView) -> None:
        text = " ".join((str(time()), *encode_body(made.body)))
        await self._attempt(off_loop, self._optimizer.get_or_set_cache, made.key, lambda: text, view=view)

    async def _attempt(self, work: Callable[..., Any], *arguments: Any, view: RunView) -> Any:
        """Use the method. If it fails, the run continues without it, and says so once."""
        outcome = await attempt(work, *arguments, passing=())
        if not isinstance(outcome, Failure):
            return outcome
        if not self._told:
            self._told = True
            method = f"{type(self._optimizer).__name__}.get_or_set_cache"
            await view.warn(
                "cache",
                notice(
                    "monono.own_cache",
                    "{method} failed: {problem}. The run continues without it",
                    method=method,
                    problem=str(outcome),
                ),
            )
        return None


class _Absent(Exception):
    """There is no stored value."""


def _raise_absent() -> str:
    raise _Absent


class _Selected(Equals):
    """Asks `optimize_tool_selection` of an optimizer which of some equal tools runs."""

    def __init__(self, optimizer: PerformanceOptimizer, names: Sequence[str]) -> None:
        super().__init__(*names)
        self._optimizer = optimizer

    def _choose(self, call: ToolCall, others: Sequence[str], view: RunView) -> tuple[str, str]:
        question, tools = view.state.question, view.tools(call)
        about = {name: {"description": tools[name].description, **self._figures_of(name)} for name in (call.name, *others)}
        best = self._optimizer.optimize_tool_selection("" if question is None else question.text, about)
        return (best, self._optimizer.reason) if best in about else (call.name, "")

    def _figures_of(self, name: str) -> dict[str, Any]:
        past = self._figures.get(name)
        data = {} if past is None else {"success_rate": past.success, "cost": past.cost, "latency": past.seconds}
        return {**data, **({} if past is None else {"calls": past.calls})}


def _by_name(given: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    tools = given if isinstance(given, Mapping) else {one["name"]: one for one in given if "name" in one}
    if not tools:
        raise ConfigError.of(
            "monono.no_tools",
            'available_tools_with_metadata must name at least one tool, such as {{"search": {{"cost": 0.01}}}}',
        )
    return dict(tools)


def _metadata(about: Any) -> Mapping[str, Any]:
    return about if isinstance(about, Mapping) else {}


def _description(about: Any) -> str:
    return str(about.get("description") or "") if isinstance(about, Mapping) else str(getattr(about, "description", ""))


def _number(told: Mapping[str, Any], *names: str) -> float | None:
    found = next((told[name] for name in names if name in told), None)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
