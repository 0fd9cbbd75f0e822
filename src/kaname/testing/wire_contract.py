"""Contract of a model adapter that talks to a server, as tests against a real HTTP server.

class TestMyAdapter(WireContract):
    protocol = "openai"

    def make(self, url):
        return MyModel("any", base_url=url, api_key=self.key)
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Literal

from ..core import errors
from ..core.messages import Media, Message, ModelReply, ModelRequest, Text, ToolSpec, user
from ..core.record import replace
from ..kernel.bases import ModelBase, optional
from ..kernel.ports import Model
from .wire import Answer, WireServer, anthropic_reply, reply, responses_reply, status

SLICES = (0, 1, 7, 65536)
HTML = (("content-type", "text/html"),)
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
_OVERLOADED = {
    "openai": b'{"error": {"message": "Overloaded", "type": "overloaded_error"}}',
    "anthropic": b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
    "responses": b'{"type": "error", "code": "server_error", "message": "Overloaded"}',
}
_REPLIES: dict[str, Any] = {"openai": reply, "anthropic": anthropic_reply, "responses": responses_reply}
_CUT_SHORT = {"openai": {"finish": "length"}, "anthropic": {"stop": "max_tokens"}, "responses": {"stop": "max_output_tokens"}}

FAILURES: dict[str, tuple[Answer, type[errors.ModelError]]] = {
    "bad request": (status(400, "bad field"), errors.RequestRefused),
    "context length": (status(400, "prompt is too long: 9 tokens > 8 maximum context length"), errors.ContextTooLong),
    "denied": (status(401, "wrong key"), errors.ModelDenied),
    "forbidden": (status(403), errors.ModelDenied),
    "no such model": (status(404), errors.ModelNotFound),
    "too large": (status(413), errors.ContextTooLong),
    "slow down": (status(429, "slow down", retry_after=3), errors.RateLimited),
    "server error": (status(500), errors.ModelUnavailable),
    "not available": (status(503), errors.ModelUnavailable),
    "gateway page": (Answer(status=502, headers=HTML, body=b"<html>Bad gateway</html>"), errors.ModelUnavailable),
    "page instead of an answer": (Answer(headers=HTML, body=b"<html>"), errors.ReplyGarbled),
    "half a JSON": (Answer((b'{"choices": [{"del',)), errors.ReplyGarbled),
    "nothing": (Answer(()), errors.ReplyGarbled),
}


class WireContract(ABC):
    """Tests for a model adapter.

    `hidden`: failures (of `FAILURES`, "dropped", "unfinished", "overloaded") that the library of the adapter reports as other
    errors. `unseen`: failures that it does not notice, so that the adapter returns an answer.
    """

    protocol: Literal["openai", "anthropic", "responses"] = "openai"
    key = "sk-the-secret-of-the-test"
    hidden: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()

    @abstractmethod
    def make(self, url: str) -> Model:
        """Return the model under test, for a server at that URL (it ends in /v1), with the key `self.key`."""

    def answer(self, *said: Any, **more: Any) -> Answer:
        """Return an answer in the protocol under test."""
        answer: Answer = _REPLIES[self.protocol](*said, **more)
        return answer

    async def _ask(self, answer: Answer, request: ModelRequest | None = None) -> tuple[ModelReply, list[Any], WireServer]:
        shown: list[tuple[str, str]] = []

        async def emit(text: str, kind: str = "text", call_id: str = "") -> None:
            shown.append((kind, text))

        async with WireServer(lambda _: answer) as server:
            model = self.make(server.url)
            try:
                return await model.reply(request or ModelRequest((user("hi"),), (ADD,)), emit), shown, server
            finally:
                await optional(model, ModelBase, "close")()

    def test_the_same_reply_in_any_slices(self) -> None:
        said = self.answer("はい, 足します", [("add", {"a": 1}), ("add", {"a": "二"})], thinking="まず…")
        for size in SLICES:
            got, shown, server = asyncio.run(self._ask(replace(said, slice=size)))
            assert got.message.text == "はい, 足します"
            assert got.message.thinking == "まず…"
            assert [(call.name, call.args) for call in got.message.calls] == [("add", {"a": 1}), ("add", {"a": "二"})]
            assert got.stop_reason == "tool_use"
            assert (got.usage.input, got.usage.output, got.usage.cached) == (10, 5, 2)
            assert "".join([text for kind, text in shown if kind == "text"]) == "はい, 足します"
            assert "".join([text for kind, text in shown if kind == "thinking"]) == "まず…"
            assert len(server.requests) == 1

    def test_why_it_stopped(self) -> None:
        full = _CUT_SHORT[self.protocol]
        assert asyncio.run(self._ask(self.answer("hi")))[0].stop_reason == "end_turn"
        assert asyncio.run(self._ask(self.answer("hi", **full)))[0].stop_reason == "max_tokens"
        assert asyncio.run(self._ask(self.answer("", [("add", {"a": 1})])))[0].stop_reason == "tool_use"

    def test_settings_tools_and_media_are_sent(self) -> None:
        message = Message("user", (Text("見て"), Media("image/png", "aGk=")))
        wanted = ModelRequest((message,), (ADD,), settings={"temperature": 0.5})
        _, _, server = asyncio.run(self._ask(self.answer("ok"), wanted))
        (sent,) = server.requests
        assert sent["temperature"] == 0.5
        assert "add" in str(sent["tools"])
        said = str(sent.get("messages") or sent["input"])
        assert "aGk=" in said
        assert "見て" in said

    def test_every_failure_has_its_error_and_is_not_retried(self) -> None:
        no_end = {"finish": None, "done": False} if self.protocol == "openai" else {"done": False}
        failures: dict[str, tuple[Answer, type[errors.ModelError]]] = {
            **FAILURES,
            "overloaded": (Answer((_OVERLOADED[self.protocol],)), errors.ModelUnavailable),
            "dropped": (self.answer("a long answer", cut=100), errors.ModelUnreachable),
            "unfinished": (self.answer("half", **no_end), errors.ReplyGarbled),
        }
        for name, (answer, kind) in failures.items():
            if name in self.unseen:
                continue
            problem = asyncio.run(self._fails(name, answer))
            assert name in self.hidden or type(problem) is kind, f"{name}: {problem!r} and not {kind.__name__}"
            assert self.key not in f"{problem} {problem.said}", f"{name}: the key is in the message"
            if kind is errors.RateLimited:
                assert problem.retryable
                assert problem.retry_after == 3.0

    async def _fails(self, name: str, answer: Answer) -> errors.ModelError:
        async with WireServer(lambda _: answer) as server:
            model = self.make(server.url)
            try:
                await model.reply(ModelRequest((user("hi"),)), _quiet)
            except errors.ModelError as problem:
                assert len(server.requests) == 1, f"{name}: it was tried {len(server.requests)} times"
                return problem
            finally:
                await optional(model, ModelBase, "close")()
        raise AssertionError(f"{name}: taken for an answer")

    def test_nobody_there(self) -> None:
        async def go() -> None:
            async with WireServer([]) as server:
                url = server.url
            model = self.make(url)
            try:
                await model.reply(ModelRequest((user("hi"),)), _quiet)
            except errors.ModelUnreachable:
                return
            finally:
                await optional(model, ModelBase, "close")()
            raise AssertionError("a server that is not there gave an answer")

        asyncio.run(go())

    def test_a_cancelled_reply_closes_its_connection(self) -> None:
        async def go() -> None:
            begun = asyncio.Event()

            async def emit(text: str, kind: str = "text", call_id: str = "") -> None:
                begun.set()

            async with WireServer([self.answer("word " * 500, pieces=500, slice=200, pause=0.005)]) as server:
                model = self.make(server.url)
                task = asyncio.create_task(model.reply(ModelRequest((user("hi"),)), emit))
                await begun.wait()
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                for _ in range(200):
                    if server.closed_early:
                        break
                    await asyncio.sleep(0.02)
                assert server.closed_early == 1, "the server went on sending"
                await optional(model, ModelBase, "close")()

        asyncio.run(go())


async def _quiet(text: str, kind: str = "text", call_id: str = "") -> None:
    """Ignore the deltas."""
