"""`Cache`: repeat the replies of models and the results of pure tools instead of computing them again."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.codec import decode_body, encode_body
from ...core.durations import seconds, size_in_bytes
from ...core.errors import AgentError, ConfigError
from ...core.events import ModelReplied, ToolFinished
from ...core.messages import NOTHING, ModelReply, ModelRequest, Text, Thinking, ToolCall, ToolResult
from ...core.notices import notice
from ...core.project import state_path
from ...core.record import replace
from ...core.steps import CallModel
from ...kernel.bases import PolicyInfo
from ...kernel.ports import ModelHandler, Policy, ToolHandler
from ...kernel.threads import off_loop
from .flights import Flights
from .keys import is_answer_of, is_complete, is_sound, model_key, tool_key
from .store import CacheStore, is_busy

if TYPE_CHECKING:
    from pathlib import Path

    from ...kernel.view import RunView

FILE = "cache.db"
NOTE = "cached"  # the name of the fact that says that a reply or a result came from the cache


class _Made(NamedTuple):
    key: str
    body: Any  # a fact that holds the reply or the result


_made: ContextVar[list[_Made] | None] = ContextVar("made", default=None)
"""What was computed inside the policies around a call. It is stored once all of them have accepted it."""


def default_path() -> str:
    return state_path(FILE)


class Cache(Policy):
    """Cache model replies and results of pure tools by their exact content. It is off unless you add it.

    Wherever it is in the list of policies, the cache stands inside all others: guardrails judge a cached reply, and a person
    approves a cached call, as if it were new. A cached reply costs nothing, and a `cached` fact in the record says where it
    came from. Not cached: replies that were cut off, failed, or were blocked or changed by a policy; replies at a temperature
    above 0; calls of tools that are not declared `effect="pure"` or depend on more than their arguments.

    Args:
        models: Cache replies of models.
        tools: Cache results of tools.
        ttl: How long an entry is used (default one day): seconds, a text such as "1h", or None for no end.
        size: The largest size of the file's content (default 200 MB). The oldest entries are removed.
        path: The file (default `cache.db` next to the program's journal). Several processes can use one file.
        any_temperature: Also cache replies at a temperature above 0.
        clock: Returns the time in seconds, for tests.
    """

    about = PolicyInfo(stands_alone=True, replayed=False)
    place = "choice"

    def __init__(
        self,
        models: bool = True,
        tools: bool = True,
        ttl: float | str | None = "1d",
        size: int | str = "200MB",
        path: str | Path | None = None,
        *,
        any_temperature: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not models and not tools:
            raise ConfigError.of("cache.nothing", "Cache: set models or tools to True, or leave the cache out")
        self.models, self.tools, self.any_temperature = models, tools, any_temperature
        self.ttl, self.size = None if ttl is None else seconds(ttl), size_in_bytes(size)
        self.path = str(path) if path is not None else ""
        self.flights, self._clock = Flights(), clock
        self._store: CacheStore | None = None
        self._told = False
        self.about = replace(self.about, inner=CacheLookup(self))

    @property
    def store(self) -> CacheStore:
        if self._store is None:
            self._store = CacheStore(self.path or default_path(), self.size, self._clock)
        return self._store

    def close(self) -> None:
        """Close the file. It is opened again with the next use."""
        if self._store is not None:
            self._store.close()

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        reply: ModelReply = await self._work_and_store(
            next(request), view, lambda body, reply: body.reply.message == reply.message
        )
        return reply

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        result: ToolResult = await self._work_and_store(
            next(call), view, lambda body, result: body.result == replace(result, usage=NOTHING)
        )
        return result

    async def _work_and_store(self, work: Awaitable[Any], view: RunView, unchanged: Callable[[Any, Any], bool]) -> Any:
        """Do the work, and store what was computed in it if the policies in between have not changed it."""
        made: list[_Made] = []
        token = _made.set(made)
        try:
            outcome = await work
            if made and unchanged(made[-1].body, outcome):
                await self._put(made[-1], view)
            return outcome
        finally:
            _made.reset(token)
            for one in made:
                self.flights.release(one.key)

    async def find(self, key: str, view: RunView) -> tuple[Any, float] | None:
        """Return the stored fact and its age in seconds, or None. A file that cannot be used is reported once."""
        try:
            stored = self.store.get(key)
            if stored is None:
                return None
            kind, _, body = stored.value.partition(" ")
            return decode_body(kind, body), max(0.0, self._clock() - stored.made)
        except AgentError:  # the entry cannot be read, and is replaced
            return None
        except (sqlite3.Error, OSError) as problem:
            await self._tell(problem, view)
            return None

    async def _put(self, made: _Made, view: RunView) -> None:
        try:
            await off_loop(self.store.put, made.key, " ".join(encode_body(made.body)), self.ttl)
        except (sqlite3.Error, OSError) as problem:
            await self._tell(problem, view)

    async def _tell(self, problem: Exception, view: RunView) -> None:
        if self._told or is_busy(problem):
            return
        self._told = True
        message = notice(
            "cache.unusable",
            "the cache {path} cannot be used: {problem}. The run continues without it; delete the file to start a new cache",
            path=self.store.path,
            problem=problem,
        )
        await view.warn("cache", message)


class CacheLookup(Policy):
    """The inner part of `Cache`: looks a request up, or computes the reply once for all callers who wait for it."""

    about = PolicyInfo(stands_alone=True, replayed=False)
    place = "allowed"

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        cache, model = self._cache, request.model or view.agent.model
        key = model_key(request, view, any_temperature=cache.any_temperature) if cache.models else None
        if key is None:
            return await next(request)
        found = await cache.find(key, view)
        if found is None:

            def fits(reply: Any) -> bool:
                return isinstance(reply, ModelReply) and is_complete(reply) and is_answer_of(reply, model)

            landed = await cache.flights.share(key, lambda: next(request), fits)
            if not landed.shared:
                self._offer(key, ModelReplied(landed.value, CallModel()) if fits(landed.value) else None)
                reply: ModelReply = landed.value
                return reply
            found = ModelReplied(landed.value, CallModel()), 0.0
        kept: ModelReply = found[0].reply
        name = getattr(model, "name", type(model).__name__)
        saved = {"tokens": kept.usage.total, "cost": kept.usage.cost}
        await view.note(NOTE, {"kind": "model", "name": name, "age": round(found[1], 3), "saved": saved})
        if request.stream:
            emit = request.emit or view.emit
            for part in kept.message.parts:
                if isinstance(part, Text | Thinking) and part.text:
                    await emit(part.text, "text" if isinstance(part, Text) else "thinking")
        return replace(kept, usage=NOTHING)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        cache = self._cache
        key = tool_key(call, view) if cache.tools else None
        if key is None:
            return await next(call)
        if (refused := await view.decide(call)) is not None:
            return refused
        found = await cache.find(key, view)
        if found is None:
            landed = await cache.flights.share(key, lambda: next(call), _can_keep)
            result: ToolResult = landed.value
            if not landed.shared:
                self._offer(key, ToolFinished(replace(result, usage=NOTHING)) if _can_keep(result) else None)
                return result
            found = ToolFinished(result), 0.0
        await view.note(NOTE, {"kind": "tool", "name": call.name, "call_id": call.id, "age": round(found[1], 3)})
        return replace(found[0].result, usage=NOTHING, tool=call.name)

    def _offer(self, key: str, body: Any) -> None:
        """Leave what was computed to the outer part, which stores it."""
        made = _made.get()
        if body is not None and made is not None:
            made.append(_Made(key, body))
        else:
            self._cache.flights.release(key)


def _can_keep(result: Any) -> bool:
    return isinstance(result, ToolResult) and is_sound(result)
