"""Write down what a user says: each policy of the agent decides how it is recorded."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import ConfigError
from ...core.messages import Message, Text, ToolResult
from ...core.notices import notice
from ...core.openai_shape import result_text
from ...core.record import replace
from ...kernel.ports import Policy
from ...kernel.threads import off_loop

_LONG = 1_000  # characters


async def write_down(message: Message, policies: Sequence[Policy]) -> Message:
    """Return a message as it is recorded. A long text is looked through in a thread, so that nobody waits for it."""
    return await off_loop(_received, message, policies) if len(message.text) > _LONG else _received(message, policies)


def _received(message: Message, policies: Sequence[Policy]) -> Message:
    calls, results = message.calls, [part for part in message.parts if isinstance(part, ToolResult)]
    told = Message(message.role, tuple([Text(result_text(one)) for one in results])) if results else message
    looked = told
    for policy in policies:
        looked = policy.received(looked)
        if not isinstance(looked, Message):
            raise ConfigError(
                notice(
                    "policy.received",
                    "{kind}.received() must return a Message, not {it!r}",
                    kind=type(policy).__name__,
                    it=looked,
                )
            )
    if looked is told:
        return message
    changed = [replace(one, output=looked.text, error=None, shown=None) for one in results]
    return Message(message.role, (*(changed or looked.parts), *(() if looked.calls else calls)))
