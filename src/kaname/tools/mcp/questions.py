"""What a server asks: its user (elicitation), or the agent's model (sampling)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from logging import getLogger
from typing import Any, Literal

from ...core.errors import AgentError
from ...core.messages import Media, Message, Text
from ...core.notices import notice
from ...core.record import record
from ...kernel.boundary import Failure, attempt
from ...kernel.ports import ToolContext

Answer = Mapping[str, Any] | Literal["decline", "cancel"] | None
Elicit = Callable[[str, str, Mapping[str, Any]], Awaitable[Answer]]
"""`await elicit(server, question, schema)`: returns the answer as an object, `None` or "decline" to decline, or "cancel".

If the user has to open a page, the schema is `{"url": …}`, and the answer `{}` means that it will be opened."""


class Clock:
    """The time limits of the running calls. They are paused while a question is open."""

    def __init__(self) -> None:
        self._limits: dict[asyncio.Timeout, float] = {}
        self._asking = 0

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise `TimeoutError` when the time is up. The time starts to run when no question is open."""
        if seconds is None:
            yield
            return
        async with asyncio.timeout(None if self._asking else seconds) as limit:
            self._limits[limit] = seconds
            try:
                yield
            finally:
                del self._limits[limit]

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Pause the limits of all running calls."""
        now = asyncio.get_running_loop().time
        self._asking += 1
        if self._asking == 1:
            for limit in self._limits:
                self._limits[limit] = max(0.0, (limit.when() or now()) - now())
                limit.reschedule(None)
        try:
            yield
        finally:
            self._asking -= 1
            if self._asking == 0:
                for limit, left in self._limits.items():
                    limit.reschedule(now() + left)


class Questions:
    """Questions of one server, passed to `elicit`. They are cancelled when no call is left that they can belong to."""

    def __init__(self, server: str, elicit: Elicit | None, clock: Clock) -> None:
        self._server, self._elicit, self._clock = server, elicit, clock
        self._open: set[asyncio.Task[Any]] = set()

    async def ask(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        """Ask the user, as the elicitation handler of FastMCP's client."""
        from fastmcp.client.elicitation import ElicitResult

        assert self._elicit is not None  # it is not offered to the server otherwise
        address = getattr(params, "url", None)
        schema: Mapping[str, Any] = {"url": address} if address else getattr(params, "requested_schema", None) or {}
        task = asyncio.ensure_future(attempt(self._elicit, self._server, message, schema, passing=()))
        self._open.add(task)
        try:
            async with self._clock.pause():
                await asyncio.wait([task])
        finally:
            task.cancel()
            self._open.discard(task)
        answer = "cancel" if task.cancelled() else self._read_answer(task.result(), schema)
        if isinstance(answer, str):
            return ElicitResult(action=answer)  # type: ignore[arg-type]
        if address:
            return ElicitResult(action="accept")
        fields = (schema.get("properties") or {}).items()
        left_out = {name: held["default"] for name, held in fields if isinstance(held, Mapping) and "default" in held}
        return ElicitResult(action="accept", content={**left_out, **answer})

    def _read_answer(self, answer: Any, schema: Mapping[str, Any]) -> Any:
        if answer is None or answer == "decline":
            return "decline"
        if answer == "cancel" or isinstance(answer, Mapping):
            return answer
        fields = list(schema.get("properties") or ())
        if not isinstance(answer, Failure) and len(fields) == 1:  # its one value, bare
            return {fields[0]: answer}
        wrong = (
            str(answer)
            if isinstance(answer, Failure)
            else notice("mcp.elicit_returned", "it returned {answer!r:.80}", answer=answer)
        )
        getLogger("kaname").warning("elicit, asked by the tool server %s: %s; the question is cancelled", self._server, wrong)
        return "cancel"

    def call_off(self) -> None:
        for task in self._open:
            task.cancel()


_MOST = 10  # questions of one call


@record
class Question:
    """A server's question to the model."""

    name: str  # of the child run that answers it
    instructions: str
    message: Message
    max_tokens: int
    temperature: float | None


Sample = Callable[[ToolContext, Question], Awaitable[tuple[str, str]]]
"""`await sample(context, question)`: returns the model's text and its name. The cost counts for the run of that call."""


class Samples:
    """The questions of one server to the model.

    They are asked on behalf of the running call, or the latest if there are several: the protocol does not say which."""

    def __init__(self, server: str, sample: Sample) -> None:
        self._server, self._sample = server, sample
        self._calls: list[ToolContext] = []
        self._asked: dict[str, int] = {}  # by the calls under way

    @contextmanager
    def on_behalf_of(self, context: ToolContext) -> Iterator[None]:
        self._calls.append(context)
        try:
            yield
        finally:
            self._calls.remove(context)
            self._asked.pop(context.call_id, None)

    async def answer(self, messages: Sequence[Any], params: Any, context: Any) -> Any:
        """Answer a question, as the sampling handler of FastMCP's client. An exception is sent to the server as an error."""
        from mcp_types import CreateMessageResult, TextContent

        if not self._calls:
            raise AgentError.of(
                "sampling.no_call", "a tool server can use the model only during a tool call, and none is running"
            )
        call = self._calls[-1]
        number = self._asked[call.call_id] = self._asked.get(call.call_id, 0) + 1
        if number > _MOST:
            raise AgentError.of(
                "sampling.too_often", "a tool server can use the model at most {most} times in one tool call", most=_MOST
            )
        question = Question(
            f"{self._server}-asks-{number}",
            params.system_prompt or "",
            _message(messages),
            params.max_tokens,
            params.temperature,
        )
        text, model = await self._sample(call, question)
        return CreateMessageResult(role="assistant", model=model, content=TextContent(type="text", text=text))


def _message(messages: Sequence[Any]) -> Message:
    """Convert the server's messages to one message. Several become a transcript, since they are not this agent's history."""
    parts: list[Any] = []
    for message in messages:
        who = f"{message.role}: " if len(messages) > 1 else ""
        for block in message.content if isinstance(message.content, list) else [message.content]:
            if block.type in ("image", "audio"):
                parts.append(Media(block.mime_type, block.data))
            else:
                parts.append(Text(f"{who}{getattr(block, 'text', f'[{block.type}]')}"))
    return Message("user", tuple(parts))
