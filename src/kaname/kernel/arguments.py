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
    """A call on its way to its tool: as it was sent, the arguments that policies see, and what the tool is given."""

    sent: ToolCall
    seen: Mapping[str, Any]
    prepared: Any


class IncomingCall:
    """One call, in all the forms that policies have given to it: a stand-in of another name, other arguments."""

    def __init__(self) -> None:
        self._forms: list[Incoming] = []

    def read(self, call: ToolCall, tool: Action) -> ToolCall:
        """Return the call as its tool would receive it; unchanged if it was read before. Raises `BadArguments`."""
        known = self._known(call)
        if known is not None and known.sent.name == call.name:
            return call
        form = receive(call if known is None else replace(known.sent, name=call.name), tool)
        self._forms.append(form)
        return ToolCall(call.id, call.name, form.seen)

    def sent(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that were sent: the model's, or those that a policy has put in their place."""
        known = self._known(call)
        return call if known is None else replace(known.sent, name=call.name)

    def arrive(self, call: ToolCall, tool: Action) -> tuple[ToolCall, Any]:
        """Return the call as it is recorded, and what its tool is given. Raises `BadArguments`."""
        known = self._known(self.read(call, tool))
        assert known is not None
        return known.sent, known.prepared

    def _known(self, call: ToolCall) -> Incoming | None:
        found = None
        for form in self._forms:
            if form.seen is call.args and (found is None or form.sent.name == call.name):
                found = form
        return found


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
