"""Decide whether two calls are equal. Repeats, plans, approvals, the outbox, caches and checks all use this one rule."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from .errors import BadArguments
from .messages import ToolCall
from .values import identity, read_json


class Receiver(Protocol):
    """A tool, as far as it is needed to read the arguments of a call."""

    @property
    def parameters(self) -> Mapping[str, Any]: ...
    def prepare(self, call: ToolCall) -> Any: ...


def call_key(call: ToolCall, tool: Receiver | None = None) -> Hashable:
    """Return a key that is equal for calls of the same tool with equal arguments.

    The order of keys does not matter, and numbers are compared by value: 100 equals 100.0, but not True. Pass the calls as the
    model sent them, never as people are shown them: secrets look alike there. Compare only keys that were made with the same
    tool.

    Args:
        call: The call as the model sent it.
        tool: The tool that the call would use. With it, the arguments are compared as the tool receives them: typed, repaired,
            and with defaults filled in. Without it, or if the tool does not accept them, they are compared as they were sent.
    """
    try:
        args = call.args if tool is None and not isinstance(call.args, str) else _read_arguments(call, tool)
        return (call.name, identity(args))
    except RecursionError:  # nested too deeply to be compared: equal to no other call
        return (call.name, call.args if isinstance(call.args, str) else object())


def same_call(one: ToolCall, other: ToolCall, tool: Receiver | None = None) -> bool:
    """Return True if two calls are equal. See `call_key`."""
    return one.name == other.name and call_key(one, tool) == call_key(other, tool)


def _read_arguments(call: ToolCall, tool: Receiver | None) -> Any:
    return _sent(call) if tool is None else _received(call, tool)


def _sent(call: ToolCall) -> Any:
    args: Any = call.args
    if isinstance(args, str):
        with suppress(ValueError):
            return read_json(args) if args.strip() else {}
    return args


def _received(call: ToolCall, tool: Receiver) -> Any:
    """Return the arguments that the tool receives, without defaults that are made anew for every call, such as a time."""
    sent = _sent(call)
    try:
        prepared, again = tool.prepare(call), tool.prepare(call)
    except BadArguments:
        return sent
    if not isinstance(prepared, Mapping):
        return prepared
    known: Mapping[str, Any] = tool.parameters.get("properties") or {}
    received = {name: one["default"] for name, one in known.items() if isinstance(one, Mapping) and "default" in one}
    received |= prepared
    for name in [name for name in prepared if identity(prepared[name]) != identity(again.get(name))]:
        if not isinstance(sent, Mapping) or not sent.keys() <= received.keys():
            return sent  # some names were repaired, so it is unknown which of the arguments this one was
        del received[name]
        received |= {name: sent[name]} if name in sent else {}
    return received
