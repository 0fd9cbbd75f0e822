"""The way in: everything that comes from outside passes `admit` before it is stored, queued, shown or sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import ConfigError, InvalidState
from ..core.events import Asked
from ..core.messages import (
    EARLIER,
    Media,
    Message,
    Part,
    Text,
    ToolResult,
    is_withheld,
    reason_of,
    said_by,
    user,
    withheld_form,
)
from ..core.reading.as_read import as_read, put_back
from ..core.record import record, replace
from ..core.values import plain_text
from ..kernel.chain import join_policies, policies_with
from ..kernel.ports import Policy, Recipe
from ..kernel.threads import off_loop

_LONG = 1_000  # characters


@record
class Origin:
    """Who said something, and who will read it.

    Args:
        user: The user of the run.
        by: The person who said it; "" for the user.
        agent: The agent at work, if it is a member of the team: its policies apply too, after those of the first agent.
    """

    user: str = ""
    by: str = ""
    agent: str = ""


async def admit(message: Message, recipe: Recipe, origin: Origin) -> Message:
    """Return a message from outside as it is recorded: with its origin, its media checked, and as the policies want it.

    Each policy of the agent that will read it sees it as text, with attached text files and results, and can change it
    (`Policy.received`). The parts keep their origin whatever a policy returns. A long text is looked through in a thread.
    """
    reader = recipe.team.get(origin.agent, recipe)
    policies = recipe.policies if reader is recipe else join_policies(recipe.policies, reader.policies)
    policies = recipe.memo.kept("received", policies, lambda: policies_with(policies, "received"))
    message = _mark(message, origin)
    if any(type(part) is Media for part in message.parts):
        from ..senses.entry import admit_message

        message = await admit_message(message, reader.model, origin.user)
    looked: Message = (
        await off_loop(_received, message, policies) if len(as_read(message).text) > _LONG else _received(message, policies)
    )
    return looked


async def admit_answer(answer: Any, recipe: Recipe, origin: Origin) -> Any:
    """Return an answer as it is recorded. Its words are a person's too.

    If they may not be recorded, each text of the answer is changed on its own; an answer that is still not accepted raises
    `InvalidState`.
    """
    message = await admit(user(answer if isinstance(answer, str) else plain_text(answer)), recipe, origin)
    if isinstance(answer, str):
        return message.text
    if message.text == plain_text(answer):
        return answer
    changed = answer if is_withheld(message) else await _change_texts(answer, recipe, origin)
    again = changed if changed is answer else (await admit(user(plain_text(changed)), recipe, origin)).text
    if changed is answer or again != plain_text(changed):
        raise InvalidState.of("run.input_refused", "the answer was not accepted: {text_}", text_=message.text)
    return changed


async def _change_texts(value: Any, recipe: Recipe, origin: Origin) -> Any:
    if isinstance(value, str):
        return (await admit(user(value), recipe, origin)).text
    if isinstance(value, Mapping):
        return {key: await _change_texts(one, recipe, origin) for key, one in value.items()}
    return [await _change_texts(one, recipe, origin) for one in value] if isinstance(value, list | tuple) else value


def words_of(answer: Any, asked: Asked | None) -> list[str]:
    """Return the texts of an answer that a person has written: not the options of the question."""
    if isinstance(answer, str):
        return [] if not answer.strip() or (asked is not None and answer in asked.options) else [answer]
    values = answer.values() if isinstance(answer, Mapping) else answer if isinstance(answer, list | tuple) else ()
    return [text for one in values for text in words_of(one, asked)]


def _mark(message: Message, origin: Origin) -> Message:
    """Return the message with the origin of its parts.

    What an assistant or a tool has said, by the word of a caller, is from outside. `recognise` takes the mark off messages
    that a run of this agent has made.
    """
    if message.role == "user":
        return said_by(message, origin.by, origin.user) if origin.by and origin.by != origin.user else message
    return message if message.role == "system" else Message(message.role, tuple(map(_from_outside, message.parts)))


def _from_outside(part: Part) -> Part:
    if isinstance(part, Text) and not part.source:
        return replace(part, source=EARLIER)
    return replace(part, source=part.source or EARLIER, untrusted=True) if isinstance(part, ToolResult) else part


def _received(message: Message, policies: Iterable[Policy]) -> Message:
    shown = looked = as_read(message)
    for policy in policies:
        looked = policy.received(looked)
        if not isinstance(looked, Message):
            raise ConfigError.of(
                "policy.received",
                "{kind}.received() must return a Message, not {it!r}",
                kind=type(policy).__name__,
                it=looked,
            )
    if looked is shown:
        return message
    said = Message(looked.role, tuple([part for part in looked.parts if type(part) is Text]))
    return (
        withheld_form(message, reason_of(said)) if is_withheld(said) and not is_withheld(shown) else put_back(message, looked)
    )
