"""Decide by Cedar policies, through `cedarpy`. The policies are parsed once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.install import install_command
from ...core.notices import notice
from ...core.values import read_json
from ..money.budget import Verdict
from .rules import HAND_OVER, USE, PermitRequest, no_rule

_KINDS = {USE: "Tool", HAND_OVER: "Agent"}
_LARGEST = 2**63


class CedarRules:
    """Cedar policies as rules of a `Permit`.

    The principal is `User::"ann"`, a member of `Role::"clerk"` for each role; without a user, `Agent::"desk"`. The action is
    `Action::"use"` of a `Tool`, `Action::"hand_over"` to an `Agent`, or another action on `Data`. The context has `agent`,
    `path` (a list of agents) and `args`. Numbers with a fraction are decimals. An evaluation error refuses the request.
    """

    def __init__(self, path: Path, entities: Any = None) -> None:
        try:
            import cedarpy
        except ImportError as missing:
            raise ConfigError.of(
                "permit.no_cedar", "cedarpy is not installed. Install it with: {how}", how=install_command("cedar")
            ) from missing
        self._cedar = cedarpy
        try:
            text = path.read_text(encoding="utf-8")
            given = read_json(Path(entities).read_text(encoding="utf-8")) if isinstance(entities, str | Path) else entities
            self._policies = cedarpy.PolicySet.from_str(text)
            self._entities = cedarpy.Entities.from_json_str(json.dumps(given or []))
            self._known = {(one["uid"]["type"], one["uid"]["id"]) for one in given or []}
        except (OSError, ValueError, TypeError, KeyError) as problem:
            raise ConfigError.of(
                "permit.cedar", "the Cedar policies in {path} cannot be used: {problem}", path=path, problem=problem
            ) from problem
        self.uses_path = "path" in text
        self.text = json.dumps([text, given])

    def denied_tools(self) -> set[str]:
        return set()

    def judge(self, request: PermitRequest) -> Verdict:
        """Decide over a request, with the reason."""
        if request.resource is None or not (request.user or request.agent) or (request.user and request.roles is None):
            return Verdict(False, no_rule(request))
        principal = {"type": "User", "id": request.user} if request.user else {"type": "Agent", "id": request.agent}
        try:
            said = self._cedar.is_authorized(
                {
                    "principal": principal,
                    "action": {"type": "Action", "id": request.action},
                    "resource": {"type": _KINDS.get(request.action, "Data"), "id": request.resource},
                    "context": _context(request),
                },
                self._policies,
                self._with_roles(principal, request.roles or frozenset()),
            )
        except (ValueError, TypeError) as problem:
            return Verdict(False, _cannot(str(problem)))
        if said.diagnostics.errors:
            return Verdict(False, _cannot(str(said.diagnostics.errors[0])))
        named = said.diagnostics.id_annotations_by_reason
        rules = ", ".join([named.get(one) or one for one in said.diagnostics.reasons])
        if said.allowed:
            return Verdict(True, notice("permit.allowed", "the rule {rule!r} allows it", rule=rules))
        denied = notice("permit.denied", "not permitted: the rule {rule!r} denies it", rule=rules)
        return Verdict(False, denied if rules else no_rule(request))

    def _with_roles(self, principal: Mapping[str, str], roles: frozenset[str]) -> Any:
        """Return the entities with the principal. One that the program has described stays as it is."""
        if (principal["type"], principal["id"]) in self._known:
            return self._entities
        parents = [{"type": "Role", "id": role} for role in sorted(roles)]
        return self._entities.with_added_json_str(json.dumps([{"uid": principal, "attrs": {}, "parents": parents}]))


def _context(request: PermitRequest) -> dict[str, Any]:
    path = {} if request.path is None else {"path": list(request.path)}
    return {"agent": request.agent, "args": _value(request.args or {}), **path}


def _value(value: Any) -> Any:
    """Return an argument as Cedar knows it, without nulls. Raises `ValueError` for what Cedar cannot express."""
    if isinstance(value, Mapping):
        if {"__entity", "__extn"} & {*value}:
            raise ValueError("an argument has a key that Cedar reserves")
        return {str(key): _value(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_value(one) for one in value if one is not None]
    if isinstance(value, str | bool) or (isinstance(value, int) and -_LARGEST <= value < _LARGEST):
        return value
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 9e14 and value == round(value, 4):
        return {"__extn": {"fn": "decimal", "arg": f"{Decimal(repr(value)):.4f}"}}
    raise ValueError(f"Cedar cannot express the value {value!r:.100}")


def _cannot(problem: str) -> str:
    return notice("permit.cedar_error", "not permitted: the policies cannot be evaluated: {problem}", problem=problem)
