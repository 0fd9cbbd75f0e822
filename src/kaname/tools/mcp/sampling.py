"""Sampling: a server asks the agent's model, where its entry allows it. Each question is a child of the call it belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.errors import AgentError
from ...core.messages import Media, Message, Text
from ...core.notices import notice
from ...core.record import record
from ...kernel.ports import ToolContext

_MOST = 10  # questions of one call


@record
class Question:
    """What the server wants to know of the model."""

    name: str  # of the child run that answers it
    instructions: str
    message: Message
    max_tokens: int
    temperature: float | None


Sample = Callable[[ToolContext, Question], Awaitable[tuple[str, str]]]
"""`await sample(context, question)`: the model's text and its name. What it costs counts for the run of that call."""


class Samples:
    """Asks on behalf of the call under way, the latest where several are: the protocol does not say which one it was."""

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

    async def asked(self, messages: Sequence[Any], params: Any, context: Any) -> Any:
        """The handler of FastMCP's client; what it raises is the server's error."""
        from mcp_types import CreateMessageResult, TextContent

        if not self._calls:
            raise AgentError(notice("sampling.no_call", "the model can be asked while a tool is being called, and none is"))
        call = self._calls[-1]
        number = self._asked[call.call_id] = self._asked.get(call.call_id, 0) + 1
        if number > _MOST:
            raise AgentError(notice("sampling.too_often", "the model is asked at most {most} times in a call", most=_MOST))
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
    """One message; several as a transcript, for they are the server's words and not this agent's history."""
    parts: list[Any] = []
    for message in messages:
        who = f"{message.role}: " if len(messages) > 1 else ""
        for block in message.content if isinstance(message.content, list) else [message.content]:
            if block.type in ("image", "audio"):
                parts.append(Media(block.mime_type, block.data))
            else:
                parts.append(Text(f"{who}{getattr(block, 'text', f'[{block.type}]')}"))
    return Message("user", tuple(parts))
