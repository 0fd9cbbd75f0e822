"""Write down what a user says: each policy of the agent decides how it is recorded."""

from __future__ import annotations

from ...core.errors import ConfigError
from ...core.messages import Media, Message, Text, ToolResult
from ...core.notices import notice
from ...core.openai_shape import result_text
from ...core.record import replace
from ...kernel.ports import Recipe
from ...kernel.threads import off_loop

_LONG = 1_000  # characters


async def write_down(message: Message, recipe: Recipe) -> Message:
    """Return a message as it is recorded: its media checked and prepared for the agent's models.

    A long text is looked through in a thread, so that nobody waits for it.
    """
    if any(type(part) is Media for part in message.parts):
        from ...senses.entry import admit_message

        message = await admit_message(message, recipe.model)
    return await off_loop(_received, message, recipe) if len(message.text) > _LONG else _received(message, recipe)


def _received(message: Message, recipe: Recipe) -> Message:
    calls, results = message.calls, [part for part in message.parts if isinstance(part, ToolResult)]
    told = Message(message.role, tuple([Text(result_text(one)) for one in results])) if results else message
    looked = told
    for policy in recipe.policies:
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
