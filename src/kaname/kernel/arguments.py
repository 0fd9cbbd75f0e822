"""Read the arguments of a call as its tool receives them: parsed, repaired, typed, with defaults.

Policies, questions and conditions see these arguments, not the text that the model sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.errors import BadArguments, ToolNotFoundError
from ..core.messages import ToolCall
from ..core.record import replace
from ..core.values import read_json
from .bases import ActionBase, optional
from .ports import Action


class Incoming(NamedTuple):
    """A call on its way to its tool: as the model sent it, as policies see it, and the arguments that the tool receives."""

    sent: ToolCall
    seen: Mapping[str, Any]
    prepared: Any


class IncomingCall:
    """One call in all the forms that policies gave it: another tool in its place, other arguments.

    `requested`: the tool that was asked for. `approved`: the arguments that a person has approved, by the key of the question.
    """

    def __init__(self, requested: str = "") -> None:
        self.requested = requested
        self.approved: dict[str, Any] = {}
        self.last: ToolCall | None = None  # as it was read last
        self._forms: list[Incoming] = []

    def read_call(self, call: ToolCall, tool: Action) -> ToolCall:
        """Return the call as its tool would receive it; unchanged if it was read before. Raises `BadArguments`."""
        form = self.arrive(call, tool)
        self.last = call if form.seen is call.args else ToolCall(call.id, call.name, form.seen)
        return self.last

    def as_sent(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that were sent: the model's, or those that a policy replaced them with."""
        known = self._find_form(call)
        return call if known is None else replace(known.sent, name=call.name)

    def arrive(self, call: ToolCall, tool: Action) -> Incoming:
        """Return the call as it is recorded, as people see it, and the arguments that its tool receives.

        Raises `BadArguments`.
        """
        known = self._find_form(call)
        if known is not None and known.sent.name == call.name:
            return known
        form = receive(call if known is None else replace(known.sent, name=call.name), tool)
        self._forms.append(form)
        return form

    def _find_form(self, call: ToolCall) -> Incoming | None:
        found = None
        for form in self._forms:
            if form.seen is call.args and (found is None or form.sent.name == call.name):
                found = form
        return found


def read_unknown(call: ToolCall, tools: Mapping[str, Any]) -> ToolCall:
    """Parse the arguments of a call whose tool does not exist, because policies never see unparsed text.

    Raises `BadArguments`, with the tool's name and the nearest one, if the arguments are not an object.
    """
    args: Any = call.args
    if isinstance(args, str):
        try:
            args = read_json(args) if args.strip() else {}
        except ValueError:
            args = None
    if not isinstance(args, Mapping):
        raise BadArguments(str(ToolNotFoundError(call.name, tools)))
    return call if args is call.args else replace(call, args=args)


def receive(call: ToolCall, tool: Action) -> Incoming:
    """Check the arguments of a call. Raises `BadArguments`."""
    prepared = tool.prepare(call)
    return Incoming(call, shown_arguments(tool, prepared), prepared)


def shown_arguments(tool: Action, prepared: Any) -> Mapping[str, Any]:
    """Return the arguments that a tool received as JSON, with the defaults of its schema."""
    shown: Mapping[str, Any] | None = optional(tool, ActionBase, "shown")(prepared)
    if shown is not None:
        return shown
    known: Mapping[str, Any] = tool.parameters.get("properties") or {}
    if isinstance(prepared, str) and len(known) == 1:  # a tool of one text takes it under any name
        return dict.fromkeys(known, prepared)
    if not isinstance(prepared, Mapping):
        return {"input": str(prepared)}
    defaults = {name: one["default"] for name, one in known.items() if isinstance(one, Mapping) and "default" in one}
    return {**defaults, **prepared}
