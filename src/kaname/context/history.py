"""`AgentState`: a conversation that your own code keeps. It is cut at whole exchanges, never between a call and its result."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from ..core.errors import ConfigError
from ..core.messages import Message
from ..core.openai_shape import from_openai, to_openai
from ..core.steps import AgentStep
from .window import Window


class AgentState:
    """The messages and steps of one conversation, for code that keeps them itself.

    Args:
        max_history: The number of messages and of steps to keep (default 50). Older ones are dropped.

    Raises:
        ConfigError: If `max_history` is less than 1.
    """

    def __init__(self, max_history: int = 50) -> None:
        if max_history < 1:
            raise ConfigError.of(
                "context.max_history", "max_history must be at least 1, not {max_history}", max_history=max_history
            )
        self.max_history = max_history
        self._messages: list[Message] = []
        self._steps: list[AgentStep] = []

    def add_message(self, role: str, content: str, **more: Any) -> None:
        """Add a message, and drop the oldest ones beyond the limit.

        Args:
            role: `system`, `user`, `assistant` or `tool`.
            content: The text.
            more: `tool_calls`, `tool_call_id` and `name`, as in the OpenAI shape.
        """
        self._messages.append(from_openai({"role": role, "content": content, **more}))
        self._messages = self._cut_history(self._messages)

    def _cut_history(self, messages: list[Message]) -> list[Message]:
        """Return the last exchanges that fit; of one that is too long, the question and the last steps.

        Only a call with its results can exceed the limit.
        """
        head = len(list(takewhile(lambda message: message.role == "system", messages)))
        room = max(1, self.max_history - head)
        kept = list(Window(room).cut(messages))
        plain = kept[-1].role != "tool" and not kept[-1].calls
        return [*kept[:head], *kept[head:][-room:]] if plain else kept

    def add_step(self, step: AgentStep) -> None:
        """Add a step, and drop the oldest ones beyond the limit."""
        self._steps.append(step)
        del self._steps[: -self.max_history]

    def get_messages(self) -> list[dict[str, Any]]:
        """Return the messages in the OpenAI shape."""
        return [to_openai(message) for message in self._messages]

    def get_steps(self) -> list[AgentStep]:
        """Return the steps, oldest first."""
        return list(self._steps)

    def clear(self) -> None:
        """Remove all messages and steps."""
        self._messages.clear()
        self._steps.clear()
