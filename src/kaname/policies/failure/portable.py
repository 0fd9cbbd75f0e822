"""Prepare a request for another model: leave out what only the model that made it, or was configured for it, understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.messages import Message, ModelReply, Provided, Thinking
from ...core.record import replace
from ...kernel.bases import ModelBase, model_info, optional

MARK = "kaname"  # the provider of the part that says which model wrote a message
_PORTABLE = frozenset(
    {
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "user", "timeout"),
        *("tool_choice", "parallel_tool_calls", "reasoning_effort", "verbosity", "response_format"),
        *("frequency_penalty", "presence_penalty"),
    }
)
"""Settings of chat completions, which every adapter translates or reports as ignored."""
_RENAMED = {"max_output_tokens": "max_completion_tokens", "stop_sequences": "stop"}
_OWN_TOOLS = "tools"  # tools that the provider runs itself


def signed(reply: ModelReply, name: str) -> ModelReply:
    """Return the reply with the name of the model that wrote it, in the reply and in its message."""
    message = reply.message
    marked = Message(message.role, (Provided(MARK, {"model": name}), *message.parts))
    return replace(reply, model=name, message=marked)


def author_of(message: Message) -> str:
    """Return the name of the model that wrote a message; "" if the message does not say it."""
    first = message.parts[0] if message.parts else None
    return str(first.data.get("model", "")) if type(first) is Provided and first.provider == MARK else ""


def without_seals(messages: tuple[Message, ...], name: str | None) -> tuple[Message, ...]:
    """Return the messages without the sealed parts that other models than `name` wrote; of any model, if it is None.

    Sealed parts are signed or encrypted reasoning, and calls of the provider's own tools. A message without a known author is
    kept as it is, unless `name` is None.
    """
    said = [message for message in messages if message.role == "assistant"]
    if name is None:
        foreign = said
    else:
        mark = {"model": name}  # at every step for every message: most need no call
        others = [one for one in said if one.parts and type(one.parts[0]) is Provided and one.parts[0].data != mark]
        foreign = [message for message in others if author_of(message) not in ("", name)]
    opened = {id(message): made for message in foreign if (made := _open(message)) is not message}
    return tuple([opened.get(id(message), message) for message in messages]) if opened else messages


def _open(message: Message) -> Message:
    kept = [part for part in message.parts if type(part) is not Provided or part.provider == MARK]
    parts = tuple([Thinking(part.text) if type(part) is Thinking and part.signature else part for part in kept])
    return message if parts == message.parts else Message(message.role, parts)


def settings_for(model: Any, first: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the agent's settings, which are written for its `first` model, as another model can take them.

    A model of the same API gets all, but another provider's own tools; a model of another API gets those that have a
    counterpart there.
    """
    if model is first or not settings:
        return settings
    if model_info(model).api == model_info(first).api:
        same = _provider(model) == _provider(first)
        return settings if same else {name: value for name, value in settings.items() if name != _OWN_TOOLS}
    named = {_RENAMED.get(name, name): value for name, value in settings.items()}
    return {name: value for name, value in named.items() if name in _PORTABLE and _is_portable(name, value)}


def left_out(model: Any, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that a model does not get."""
    ignored = optional(model, ModelBase, "ignores")(now)
    return sorted({*[name for name in before if _RENAMED.get(name, name) not in now], *ignored})


def _is_portable(name: str, value: Any) -> bool:
    """Return False for a choice of a tool in the form of one API."""
    return name != "tool_choice" or isinstance(value, str) or (isinstance(value, Mapping) and "function" in value)


def _provider(model: Any) -> str:
    return str(getattr(model, "name", "")).partition("/")[0]
