"""Streams of MONONO's chunks: collect one into a reply, and have an object of one's own take work over."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from functools import partial
from inspect import isawaitable
from time import time
from typing import Any

from ...core.chunks import Chunk
from ...core.errors import AgentError, ConfigError
from ...core.messages import NOTHING, Usage
from ...core.record import record
from ...core.values import plain_text


@record
class Reply:
    """The outcome of a stream, read like a message in the OpenAI shapes."""

    role: str = "assistant"
    content: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    usage: Usage = NOTHING


class Collected(AsyncIterator[Chunk]):
    """A stream of chunks: iterate it, or await it for the `Reply` that the chunks come to. Awaiting raises what went wrong."""

    def __init__(self, stream: Callable[[Collected], AsyncIterator[Chunk]]) -> None:
        self._chunks = stream(self)
        self._texts: list[str] = []
        self._calls: list[Mapping[str, Any]] = []
        self._usage, self._problem = NOTHING, ""
        self.result: Any = None  # in the place of the reply, if the stream knows better
        self.error: BaseException | None = None

    async def __anext__(self) -> Chunk:
        chunk = await anext(self._chunks)
        kind, data = chunk["type"], chunk["data"]
        if kind == "delta":
            self._texts.append(data["content"])
        elif kind == "tool_call":
            self._calls.append({"id": data["id"], "type": "function", "function": data["function"]})
        elif kind == "usage":
            self._usage += Usage(data["prompt_tokens"], data["completion_tokens"], cost=data.get("cost"))
        elif kind == "error" and "tool_call_id" not in data:
            self._problem = data["message"]
        return chunk

    def __await__(self) -> Generator[Any, None, Any]:
        return self._drain().__await__()

    async def _drain(self) -> Any:
        async for _ in self:
            pass
        if self.error is None and self.result is not None:
            return self.result
        if self.error is not None or self._problem:
            raise self.error or AgentError(self._problem)
        return Reply("assistant", "".join(self._texts), tuple(self._calls), self._usage)


class Foreign:
    """An object of the user's own that work is handed over to: its `stream` is called, or its `run` if it has none.

    They yield chunks or texts, or return a text, a message or a result.
    """

    def __init__(self, target: Any) -> None:
        self.name = getattr(target, "name", None)
        self._work: Any = getattr(target, "stream", None) or getattr(target, "run", None)
        if not isinstance(self.name, str) or not callable(self._work):
            raise ConfigError.of(
                "monono.target",
                "cannot hand over to {it!r:.100}: it needs a name, and a method stream(messages) or run(messages)",
                it=target,
            )

    def run(self, messages: Any, **options: Any) -> Collected:
        return Collected(partial(self._chunks, messages, {name: one for name, one in options.items() if one is not None}))

    async def _chunks(self, messages: Any, options: Mapping[str, Any], collected: Collected) -> AsyncGenerator[Chunk, None]:
        given, seq = self._work(messages, **options), 0
        if hasattr(given, "__aiter__"):
            async for one in given:
                seq += 1
                chunk: Any = {"type": "delta", "data": {"content": one}} if isinstance(one, str) else one
                yield one if isinstance(one, Chunk) else Chunk(time(), str(self.name), chunk["type"], chunk["data"], seq)
            collected.result = await given if isawaitable(given) else None
            return
        collected.result = result = await given if isawaitable(given) else given
        said = result.get("content", "") if isinstance(result, Mapping) else getattr(result, "content", result)
        yield Chunk(time(), str(self.name), "delta", {"content": plain_text(said)}, 1)
