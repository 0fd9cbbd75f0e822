"""`SecurityManager` of MONONO 3.13: personal data and permissions, on `Privacy` and `Permit`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ...core.errors import UnexpectedError
from ...core.messages import Message, ModelReply, ModelRequest, Part, Text, Thinking, ToolCall, ToolResult
from ...core.notices import notice
from ...core.record import replace
from ...kernel.chain import can_call, overrides
from ...kernel.ports import ModelHandler, Policy, ToolHandler
from ...policies.content.privacy.leaving import Leaving
from ...policies.content.privacy.policy import Privacy
from ...policies.content.privacy.scan import Detector
from ...policies.content.privacy.values import mask, sanitize_data
from ...policies.money.budget import Verdict
from ...policies.permission.permit import Permit, Roles
from ...run.input import check_argument
from ...stores.audit.log import AuditLog
from .checks import check_method, refusal
from .security_parts import Audited, EncryptionHandler

if TYPE_CHECKING:
    from ...kernel.view import RunView

_PARTS = {"encryption_handler": EncryptionHandler, "audit_logger": AuditLog}
_NAMES = {"encryption_handler": "EncryptionHandler", "audit_logger": "AuditLogger"}
_LIST = "an object with is_allowed(user_identity, action, resource_id)"


class SecurityManager:
    """Cleans data of personal data and keys, and checks permissions. Attach it with `Agent(…, policies=security.policies)`.

        security = SecurityManager([{"role": "clerk", "tool": "pay"}], roles={"ann": ["clerk"]}, kinds={"email": "mask"})

    A subclass can override `check_permissions` and `sanitize_data`: both hold in runs, in addition to the rules. It can set
    `access_control` in an `__init__` of its own, to an `AccessControlList` or an object with
    `is_allowed(user_identity, action, resource_id)`; and `encryption_handler` and `audit_logger`.

    Args:
        rules: Permission rules, as for `Permit`. Without rules, `check_permissions` refuses everything and runs are not
            restricted.
        roles: The roles of users, as for `Permit`.
        resources: The data that calls read, by tool, as for `Permit`.
        kinds: The treatment of each kind of personal data in runs, as for `Privacy` (default: pseudonyms, and keys are masked).
        patterns: Regular expressions for further kinds, by their name.
        detectors: Functions that find further data, such as `find_names`.

        encryption_handler: An `EncryptionHandler`: the files of kaname are encrypted from its creation on.
        audit_logger: An `AuditLogger`, which records every tool call of a run, also those that are refused.

    Attributes: access_control: The `Permit`, or None without rules. policies: What an agent needs to enforce all of it.

    Raises:
        ConfigError: A rule, a kind or a pattern cannot be used.
    """

    access_control: Any = None
    encryption_handler: EncryptionHandler | None = None
    audit_logger: AuditLog | None = None
    patterns: Mapping[str, str] = {}
    _detectors: Sequence[Detector] = ()
    _kinds: Mapping[str, Any] | None = None
    _resources: Mapping[str, str] | None = None

    def __init__(
        self,
        rules: Iterable[Any] | None = None,
        *,
        roles: Roles | None = None,
        resources: Mapping[str, str] | None = None,
        kinds: Mapping[str, Any] | None = None,
        patterns: Mapping[str, str] | None = None,
        detectors: Sequence[Detector] = (),
        encryption_handler: EncryptionHandler | None = None,
        audit_logger: AuditLog | None = None,
    ) -> None:
        self.encryption_handler, self.audit_logger = encryption_handler, audit_logger
        self.access_control = None if rules is None else Permit(rules, roles=roles, resources=resources)
        self.patterns, self._detectors = dict(patterns or {}), (detectors,) if callable(detectors) else tuple(detectors)
        self._kinds, self._resources = kinds, resources
        self._privacy()

    def _privacy(self) -> Privacy:
        return Privacy(self._kinds, patterns=self.patterns, detectors=self._detectors)

    @cached_property
    def policies(self) -> list[Policy]:
        """Return the policies for an agent. Raises `ConfigError` if a run cannot use what a subclass has set or overridden."""
        for name, kind in _PARTS.items():
            if (part := getattr(self, name)) is not None:
                check_argument(isinstance(part, kind), name, f"one of kaname.designs ({_NAMES[name]})", part)
        check_method(self, "check_permissions", "user_identity", "action", "resource_id")
        check_method(self, "sanitize_data", "data", "pii_patterns")
        rules = isinstance(self.access_control, Permit)
        if self.access_control is not None and not rules:
            check_argument(hasattr(self.access_control, "is_allowed"), "access_control", _LIST, self.access_control)
            check_method(self.access_control, "is_allowed", "user_identity", "action", "resource_id")
        made: list[Policy] = [self.access_control] if rules else []
        if overrides(self, "check_permissions", SecurityManager) or (self.access_control is not None and not rules):
            made.append(OwnPermissions(self, self._resources))
        if overrides(self, "sanitize_data", SecurityManager):
            made.append(OwnCleaning(self))
        return [*made, self._privacy(), *([] if self.audit_logger is None else [Audited(self.audit_logger)])]

    def sanitize_data(self, data: Any, pii_patterns: Mapping[str, str] | Sequence[str] | None = None) -> Any:
        """Return data with the personal data in it masked: `"a@b.example"` becomes `"[email]"`.

        Args:
            data: A text, or any JSON value. It is not changed.
            pii_patterns: What to look for: names of kinds, or regular expressions by their name. By default all kinds that
                kaname knows, and the patterns and detectors of this manager. In runs it is `patterns`, which means the same.

        Raises:
            ConfigError: A name or a pattern cannot be used.
        """
        if pii_patterns is not None and pii_patterns is not self.patterns:
            return sanitize_data(data, pii_patterns)
        cleaned = sanitize_data(data, self.patterns) if self.patterns else data
        return sanitize_data(cleaned, detectors=self._detectors)

    def check_permissions(
        self, user_identity: Any, action: str, resource_id: str, *, arguments: Mapping[str, Any] | None = None
    ) -> Verdict:
        """Say whether an action is permitted. The verdict is true or false, and has a `reason`.

        Args:
            user_identity: The user's id, or a mapping with some of `user`, `roles`, `agent` and `path`.
            action: "use" for a tool, "hand_over" for an agent, or an action on data such as "read".
            resource_id: The name of the tool or of the agent, or the id of the data.
            arguments: The arguments of the tool. Without them, a rule with conditions allows nothing.
        """
        if isinstance(self.access_control, Permit):
            return self.access_control.check_permissions(user_identity, action, resource_id, arguments=arguments)
        if self.access_control is None:
            return Verdict(False, notice("security.no_rules", "not permitted: the SecurityManager has no rules"))
        why = refusal(self.access_control, "is_allowed", user_identity, action, resource_id)
        return Verdict(not why, why)


class OwnPermissions(Permit):
    """Asks `check_permissions` of a manager about every tool call and handoff."""

    def __init__(self, manager: SecurityManager, resources: Mapping[str, str] | None) -> None:
        super().__init__([{"tool": "*"}], resources=resources)  # `verdict` decides instead
        self._manager = manager

    def verdict(self, call: ToolCall, view: RunView) -> Verdict:
        args = call.args if isinstance(call.args, Mapping) else {}
        named = {"arguments": args} if can_call(self._manager.check_permissions, "", "", "", arguments=args) else {}
        for action, resource in self._asks(call.name, args):
            if resource is None:  # the arguments do not say which data the call reads
                return Verdict(False, notice("monono.refused", "{kind} does not allow it", kind=type(self._manager).__name__))
            if why := refusal(self._manager, "check_permissions", view.state.user, action, resource, **named):
                return Verdict(False, why)
        return Verdict(True)


class OwnCleaning(Policy):
    """Has `sanitize_data` of a manager clean messages, results of tools and replies before anybody sees them."""

    place = Privacy.place

    def __init__(self, manager: SecurityManager) -> None:
        self._manager = manager

    def received(self, message: Message) -> Message:
        return Message(message.role, tuple([self._clean_part(part) for part in message.parts]))

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        nothing, emit = partial(asyncio.sleep, 0), request.emit or view.emit
        leaving = Leaving((), mask, None, whole=True, is_blocked=bool, record=nothing, emit=emit)
        reply = await next(replace(request, emit=leaving.take))
        said = reply.message
        made = [part if isinstance(part, ToolCall) else self._clean_part(part) for part in said.parts]
        reply = replace(reply, message=Message(said.role, tuple(made)))
        await leaving.finish(reply.message.thinking, reply.message.text)
        return reply

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        result = await next(call)
        return replace(result, **{name: self._clean(getattr(result, name)) for name in ("output", "error", "shown")})

    def for_child(self, view: RunView) -> Policy:
        return self

    def _clean_part(self, part: Part) -> Part:
        match part:
            case Text(text):
                return replace(part, text=self._clean(text))
            case Thinking(text):
                cleaned = self._clean(text)
                return part if cleaned == text else Thinking(cleaned)  # the signature was for another text
            case ToolCall(args=args):  # of an earlier conversation
                return replace(part, args=self._clean(args))
        return part

    def _clean(self, value: Any) -> Any:
        if value is None:
            return None
        cleaned = self._manager.sanitize_data(value, self._manager.patterns)
        if isinstance(cleaned, str) if isinstance(value, str) else cleaned is not None:
            return cleaned
        kinds = type(self._manager).__name__, type(cleaned).__name__
        raise UnexpectedError("{}.sanitize_data returned {}; expected the cleaned data".format(*kinds))
