"""`Window`: show the model only the end of a long conversation, within a number of messages and tokens.

A call and its results stay together, and so does the user's last message with everything after it, if there is room: of a long
turn the oldest steps are left out. Messages that are left out stay in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..core.errors import ConfigError
from ..core.messages import Message
from ..core.tokens import tokens_of
from ..kernel.bases import ContextBase

if TYPE_CHECKING:
    from ..kernel.view import RunView


class Window(ContextBase):
    """A limit on the conversation that the model sees. Pass at least one of the two.

    Args:
        messages: The maximum number of messages, in addition to the instructions.
        tokens: The maximum number of tokens, estimated a little too high, in addition to the instructions.

    Raises:
        ConfigError: If both are missing, or one is less than 1.
    """

    order = -1  # before parts that add something to the conversation

    def __init__(self, messages: int | None = None, tokens: int | None = None) -> None:
        if messages is None and tokens is None:
            raise ConfigError.of(
                "context.window", "Window needs a number of messages, of tokens, or both: Window(messages=40, tokens=8000)"
            )
        if (messages is not None and messages < 1) or (tokens is not None and tokens < 1):
            raise ConfigError.of("context.window_numbers", "messages and tokens must be at least 1")
        self._messages, self._tokens = messages, tokens

    async def __call__(self, messages: Sequence[Message], view: RunView) -> Sequence[Message]:
        state = view.state
        return self.cut(messages, len(messages) - (len(state.messages) - state.turn_start))

    def cut(self, messages: Sequence[Message], asked: int | None = None) -> Sequence[Message]:
        """Return the messages that fit.

        Args:
            messages: The conversation.
            asked: The index of the user's question. By default it is the last user message.
        """
        head = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
        last = _find_question(messages, head, asked)
        room = _Room(self._messages, self._tokens)
        if last < len(messages):
            room.take(messages[last : last + 1])
        start = len(messages)
        for place in steps_from_end(messages, last + 1):
            if not room.take(messages[place:start]) and start < len(messages):  # the last step is there in any case
                return [*messages[:head], *messages[last : last + 1], *messages[start:]]
            start = place
        start = begun = last
        for place in steps_from_end(messages[:last], head):
            if not room.take(messages[place:start]):
                break
            start = place
            begun = place if messages[place].role == "user" else begun  # a conversation begins with the user
        return messages if begun == head else [*messages[:head], *messages[begun:]]


def _find_question(messages: Sequence[Message], head: int, asked: int | None) -> int:
    """Return the index of the user's question, or `head` if there is none."""
    last = next((place for place in range(len(messages) - 1, head - 1, -1) if messages[place].role == "user"), head)
    if asked is not None and head <= asked < last and messages[asked].role == "user":
        return asked  # what stands after it under his name are notes of ours
    return last


class _Room:
    """The messages and tokens that are left of a window."""

    def __init__(self, messages: int | None, tokens: int | None) -> None:
        self._messages, self._tokens = messages, tokens

    def take(self, messages: Sequence[Message]) -> bool:
        if self._messages is not None:
            self._messages -= len(messages)
        if self._tokens is not None:
            self._tokens -= sum([tokens_of(message) for message in messages])
        return (self._messages is None or self._messages >= 0) and (self._tokens is None or self._tokens >= 0)


def steps_from_end(messages: Sequence[Message], first: int) -> Iterator[int]:
    """Yield the index at which each step begins, from the end: a message, or a reply with calls and their results."""
    place = len(messages)
    while place > first:
        place -= 1
        while place > first and messages[place].role == "tool":
            place -= 1
        yield place
