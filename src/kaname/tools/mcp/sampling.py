"""Sampling: a server asks the agent's model, if its entry allows it. Each question is a child run of the call it belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.errors import AgentError
from ...core.messages import Media, Message, Text
from ...core.record import record
from ...kernel.ports import ToolContext

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
