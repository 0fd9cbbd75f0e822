"""The arguments of a call as its tool receives them: parsed, mended, typed, with defaults.

Policies, questions and conditions see these, and not the text that the model sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from ..core.messages import ToolCall
from ..core.record import replace
from .ports import Action, Shows


class Incoming(NamedTuple):
    """A call on its way to its tool: as the model sent it, the arguments that policies see, and what the tool is given."""

    sent: ToolCall
    seen: Mapping[str, Any]
    prepared: Any


def receive(call: ToolCall, tool: Action) -> Incoming:
    """Check the arguments of a call. Raises `BadArguments`."""
    prepared = tool.prepare(call)
    return Incoming(call, shown_arguments(tool, prepared), prepared)


def shown_arguments(tool: Action, prepared: Any) -> Mapping[str, Any]:
    """Return what a tool was given as JSON, with the defaults of its schema."""
    if getattr(tool, "shown", None) is not None:  # `Shows`, without what isinstance costs at every call
        return cast(Shows, tool).shown(prepared)
    known: Mapping[str, Any] = tool.parameters.get("properties") or {}
    if isinstance(prepared, str) and len(known) == 1:  # a tool of one text takes it under any name
        return dict.fromkeys(known, prepared)
    if not isinstance(prepared, Mapping):
        return {"input": str(prepared)}
    defaults = {name: one["default"] for name, one in known.items() if isinstance(one, Mapping) and "default" in one}
    return {**defaults, **prepared}


def as_seen(incoming: Incoming) -> ToolCall:
    sent = incoming.sent
    return ToolCall(sent.id, sent.name, incoming.seen)


def as_sent(call: ToolCall, incoming: Incoming | None) -> ToolCall:
    """Undo `as_seen`, unless a policy has changed the arguments."""
    if incoming is None or call.args is not incoming.seen:
        return call
    return incoming.sent if call.name == incoming.sent.name else replace(incoming.sent, name=call.name)


def arrive(call: ToolCall, incoming: Incoming | None, tool: Action) -> tuple[ToolCall, Any]:
    """Return the call as it is recorded, and what its tool is given. Raises `BadArguments`.

    A call that no policy has changed is the one that the model sent; another tool that stands in gets the same arguments.
    """
    sent = as_sent(call, incoming)
    if incoming is not None and sent is incoming.sent:
        return sent, incoming.prepared
    return sent, tool.prepare(sent)
