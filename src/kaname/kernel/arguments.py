"""Read the arguments of a call as its tool receives them: parsed, repaired, typed, with defaults.

Policies, questions and conditions see these arguments, not the text that the model sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import BadArguments, ToolNotFoundError
from ..core.messages import ToolCall
from ..core.record import replace
from ..core.values import identity, read_json
from .bases import ActionBase, optional

if TYPE_CHECKING:
    from .ports import Action


class ShownArguments(NamedTuple):
    """The arguments of a call as policies and people see them: as JSON, with defaults, and with secrets masked.

    It is not a mapping, so that a type checker refuses to pass it to a tool.
    """

    args: Mapping[str, Any]


class Incoming(NamedTuple):
    """A call on its way to its tool: what was sent, what is shown of it, and the arguments that the tool receives."""

    sent: ToolCall
    shown: ShownArguments
    received: Any


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
        self.last = call if form.shown.args is call.args else ToolCall(call.id, call.name, form.shown.args)
        return self.last

    def as_sent(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that were sent: the model's, or those that a policy replaced them with.

        A policy changes what it is shown. The arguments that it leaves as they were shown stay as they were sent, because the
        shown form of a secret is not its value.
        """
        if (known := self._find_form(call)) is not None:
            return replace(known.sent, name=call.name)
        same = [form for form in self._forms if form.sent.name == call.name]
        return replace(call, args=keep_sent(call.args, same[-1])) if same else call

    def arrive(self, call: ToolCall, tool: Action) -> Incoming:
        """Return the call as it is recorded, as people see it, and the arguments that its tool receives.

        Raises `BadArguments`.
        """
        known = self._find_form(call)
        if known is not None and known.sent.name == call.name:
            return known
        form = receive(self.as_sent(call) if self._forms else call, tool)
        self._forms.append(form)
        return form

    def _find_form(self, call: ToolCall) -> Incoming | None:
        found = None
        for form in self._forms:
            if form.shown.args is call.args and (found is None or form.sent.name == call.name):
                found = form
        return found


def keep_sent(changed: Any, before: Incoming) -> Any:
    """Return changed arguments of a call, with every value that is still as it was shown replaced by the value that was sent.

    A default that is shown in another form than the tool receives is left out, and filled in again.
    """
    shown, sent, received = before.shown.args, before.sent.args, before.received
    if isinstance(sent, str):
        try:
            sent = read_json(sent) if sent.strip() else {}
        except ValueError:
            sent = {}
    if not isinstance(changed, Mapping) or not isinstance(sent, Mapping):
        return changed
    plain = {name for name in shown if isinstance(received, Mapping) and shown[name] is received.get(name)}
    default = {name: value if name in plain else _NONE for name, value in changed.items()}
    made = {name: _keep(value, shown.get(name, _NONE), sent.get(name, default[name])) for name, value in changed.items()}
    return {name: value for name, value in made.items() if value is not _NONE}


def apply_edits(sent: ToolCall, shown: ToolCall, args: Mapping[str, Any], now: Any = None) -> ToolCall:
    """Return the call with an approver's arguments. What is left as it was shown stays as it was sent, or as its default is.

    `now`: the arguments as they would be shown now. A default that is another one by now stays as it was shown.
    """
    given: Any = sent.args
    if isinstance(given, str):
        try:
            given = read_json(given)
        except ValueError:
            given = {}
    given, known, now = [one if isinstance(one, Mapping) else {} for one in (given, shown.args, now)]
    made = {name: _keep(value, known.get(name, _NONE), given.get(name, value)) for name, value in args.items()}
    defaults = [name for name in args if name not in given and name in known and name in now]
    for name in [one for one in defaults if identity(args[one]) == identity(known[one]) == identity(now[one])]:
        del made[name]
    return replace(sent, args=made)


_NONE: Any = object()


def _keep(changed: Any, shown: Any, sent: Any) -> Any:
    if shown is _NONE or identity(changed) == identity(shown):
        return changed if shown is _NONE else sent
    if isinstance(changed, Mapping) and isinstance(shown, Mapping) and isinstance(sent, Mapping):
        return {name: _keep(value, shown.get(name, _NONE), sent.get(name, value)) for name, value in changed.items()}
    lists = [one for one in (changed, shown, sent) if isinstance(one, list | tuple)]
    if len(lists) == 3 and len({len(one) for one in lists}) == 1:
        return [_keep(*one) for one in zip(*lists, strict=True)]
    return changed


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


def shown_arguments(tool: Action, prepared: Any) -> ShownArguments:
    """Return the arguments that a tool received as JSON, with the defaults of its schema."""
    shown: Mapping[str, Any] | None = optional(tool, ActionBase, "shown")(prepared)
    if shown is not None:
        return ShownArguments(shown)
    known: Mapping[str, Any] = tool.parameters.get("properties") or {}
    if isinstance(prepared, str) and len(known) == 1:  # a tool of one text takes it under any name
        return ShownArguments(dict.fromkeys(known, prepared))
    if not isinstance(prepared, Mapping):
        return ShownArguments({"input": str(prepared)})
    defaults = {name: one["default"] for name, one in known.items() if isinstance(one, Mapping) and "default" in one}
    return ShownArguments({**defaults, **prepared})
