"""History window: the conversation cut to a length at whole exchanges, never a tool result without its call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import ConfigError
from ..core.messages import Message
from ..core.notices import notice
from ..core.openai_shape import from_openai, to_openai
from ..core.steps import AgentStep


def window(messages: Sequence[Message], limit: int) -> Sequence[Message]:
    """The last exchanges that fit into `limit` messages. An exchange begins with a user's message; the last one is kept
    whole even if it is longer. System messages at the head stay."""
    head = 0
    while head < len(messages) and messages[head].role == "system":
        head += 1
    if len(messages) <= limit:
        return messages
    starts = [place for place in range(head, len(messages)) if messages[place].role == "user"]
    starts = starts or [place for place in range(head, len(messages)) if messages[place].role != "tool"]
    room = limit - head
    keep = next((start for start in starts if len(messages) - start <= room), starts[-1] if starts else len(messages))
    return [*messages[:head], *messages[keep:]]


class AgentState:
    """The messages and steps of one conversation, for code that keeps them by hand."""

    def __init__(self, max_history: int = 50) -> None:
        if max_history < 1:
            raise ConfigError(
                notice("context.max_history", "max_history must be at least 1, not {max_history}", max_history=max_history)
            )
        self.max_history = max_history
        self._messages: list[Message] = []
        self._steps: list[AgentStep] = []

    def add_message(self, role: str, content: str, **more: Any) -> None:
        """`more`: `tool_calls`, `tool_call_id` and `name`, as in the OpenAI shapes."""
        self._messages.append(from_openai({"role": role, "content": content, **more}))
        self._messages = list(window(self._messages, self.max_history))

    def add_step(self, step: AgentStep) -> None:
        self._steps.append(step)
        del self._steps[: -self.max_history]

    def get_messages(self) -> list[dict[str, Any]]:
        return [to_openai(message) for message in self._messages]

    def get_steps(self) -> list[AgentStep]:
        return list(self._steps)

    def clear(self) -> None:
        self._messages.clear()
        self._steps.clear()
