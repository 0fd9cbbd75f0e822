"""Build the policies that a file names: cache, guardrails, flow, privacy, approval, equal tools, fallback, and your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isclass
from pathlib import Path
from typing import Any, Protocol

from ..core.errors import AgentError, nearest
from ..core.notices import notice
from ..kernel.ports import Policy
from ..tools.loading import object_from
from ..tools.registry import as_action


class PolicySettings(Protocol):
    """The part of an agent's configuration that its policies are made from."""

    @property
    def folder(self) -> str: ...
    @property
    def policies(self) -> tuple[str, ...]: ...
    @property
    def guardrails(self) -> Mapping[str, Any] | None: ...
    @property
    def flow(self) -> Mapping[str, Any] | str | None: ...
    @property
    def privacy(self) -> Mapping[str, Any] | bool: ...
    @property
    def approve(self) -> tuple[str, ...]: ...
    @property
    def approval(self) -> Mapping[str, Any]: ...
    @property
    def fallback(self) -> Mapping[str, Any] | None: ...
    @property
    def cache(self) -> Mapping[str, Any] | bool: ...
    @property
    def cache_path(self) -> str: ...
    @property
    def equals(self) -> tuple[list[str], ...]: ...
    @property
    def limits(self) -> Mapping[str, Any]: ...
    @property
    def permissions(self) -> Mapping[str, Any] | None: ...
    @property
    def alone(self) -> bool: ...
    @property
    def mcp_servers(self) -> Mapping[str, Any]: ...


Wrong = Callable[[tuple[str, ...], str], None]


def policies_of(agent: PolicySettings, tools: list[Any] | None, wrong: Wrong) -> tuple[Policy, ...]:
    """Outermost first: one's own, guardrails, approval, equal tools, fallback. Cache and permissions find their places by
    themselves."""
    folder = Path(agent.folder)
    made: list[Policy] = _cache(agent, wrong)
    if agent.permissions is not None:
        permit = _try(lambda: permit_of(folder, agent.alone, **(agent.permissions or {})), ("permissions",), wrong)
        made += [permit] if permit is not None else []
    for number, place in enumerate(agent.policies):
        found = _try(lambda place=place: object_from(place, folder), ("policies", str(number)), wrong)  # type: ignore[misc]
        policy = _try(found, ("policies", str(number)), wrong) if isclass(found) else found
        if isinstance(policy, Policy):
            made.append(policy)
        elif policy is not None:
            told = notice("config.no_policy", "{place} is not a policy: derive it from kaname.Policy", place=place)
            wrong(("policies", str(number)), told)
    if agent.guardrails is not None:
        _check_names(
            agent, tools, [name for name in agent.guardrails.get("tools") or {} if name != "*"], ("guardrails", "tools"), wrong
        )
        made += _guardrails(agent.guardrails, folder, wrong)
    if agent.flow is not None:
        made += _flow(agent, tools, wrong)
    if agent.privacy is not False:
        made += _privacy({} if agent.privacy is True else agent.privacy, folder, wrong)
    made += _approve(agent, tools, wrong)
    for number, names in enumerate(agent.equals):
        from ..policies.failure.equals import Equals

        _check_names(agent, tools, names, ("equals", str(number)), wrong)
        equals = _try(lambda names=names: Equals(*names), ("equals", str(number)), wrong)  # type: ignore[misc]
        made += [equals] if equals is not None else []
    if agent.fallback is not None:
        from ..policies.failure.tool_fallback import FallbackStrategy

        given = dict(agent.fallback)
        stand_ins = given.pop("tools", None) or {}
        _check_names(agent, tools, [*stand_ins, *stand_ins.values()], ("fallback", "tools"), wrong)
        strategy = _try(lambda: FallbackStrategy(fallback=stand_ins, **given), ("fallback",), wrong)
        made += [strategy] if strategy is not None else []
    if (spending := agent.limits.get("budget")) is not None:
        _check_names(agent, tools, spending.get("tools") or (), ("limits", "budget", "tools"), wrong)
        budget = _try(lambda: _budget(**spending), ("limits", "budget"), wrong)
        made += [budget] if budget is not None else []
    return (*made, *pacing_of(agent.limits, wrong))


def _approve(agent: PolicySettings, tools: list[Any] | None, wrong: Wrong) -> list[Policy]:
    if not agent.approve:
        if agent.approval:
            told = notice("config.approval", "approval says how the tools under approve are asked about, but none is there")
            wrong(("approval",), told)
        return []
    from ..policies.permission.approve import Approve

    _check_names(agent, tools, agent.approve, ("approve",), wrong)
    made = _try(lambda: Approve(*agent.approve, **agent.approval), ("approval",), wrong)
    return [made] if made is not None else []


def permit_of(folder: Path, alone: bool, **given: Any) -> Policy:
    """Return the policy that keeps the permissions of a file. `alone`: only one agent has them."""
    from ..policies.permission.permit import Permit

    files = {key: folder / Path(given[key]).expanduser() for key in ("cedar", "entities") if given.get(key)}
    permit = Permit(given.get("rules"), roles=given.get("roles"), resources=given.get("resources"), **files)
    permit.checks_names = alone  # else a rule can be about a tool of another agent
    return permit


def _budget(**given: Any) -> Policy:
    from ..policies.money.budget import Budget

    return Budget(**given)


def pacing_of(limits: Mapping[str, Any], wrong: Wrong) -> list[Policy]:
    """Return the policies that make work wait: for the machine, and for the rate limits."""
    from ..policies.pace.machine import Machine
    from ..policies.pace.policy import Pace

    machine, rates = limits.get("machine"), {name: limits[name] for name in ("requests", "tokens", "at_once") if name in limits}
    made = [
        _try(lambda: Machine(**machine), ("limits", "machine"), wrong) if machine is not None else None,
        _try(lambda: Pace(**rates), ("limits",), wrong) if rates else None,
    ]
    return [policy for policy in made if policy is not None]


def _cache(agent: PolicySettings, wrong: Wrong) -> list[Policy]:
    if agent.cache is False:
        return []
    from ..policies.reuse.cache import Cache

    given = {} if agent.cache is True else dict(agent.cache)
    made = _try(lambda: Cache(**{**given, "path": agent.cache_path}), ("cache",), wrong)
    return [made] if made is not None else []


def _guardrails(given: Mapping[str, Any], folder: Path, wrong: Wrong) -> list[Policy]:
    from ..policies.content.guardrails.policy import Guardrails
    from ..policies.content.guardrails.tool_rules import ToolRule

    parts = dict(given)
    for side in ("input_checks", "output_checks", "result_checks"):
        parts[side] = _functions(parts.get(side), folder, ("guardrails", side), wrong)
    rules = parts.pop("tools", None) or {}
    made = _try(
        lambda: Guardrails(**parts, tools=[ToolRule(name, **(rule or {})) for name, rule in rules.items()]),
        ("guardrails",),
        wrong,
    )
    return [made] if made is not None else []


def _flow(agent: PolicySettings, tools: list[Any] | None, wrong: Wrong) -> list[Policy]:
    from ..policies.permission.flow.policy import Flow

    given: dict[str, Any] = {"mode": agent.flow} if isinstance(agent.flow, str) else dict(agent.flow or {})
    _check_names(agent, tools, given.get("labels") or (), ("flow", "labels"), wrong)
    made = _try(lambda: Flow(**given), ("flow",), wrong)
    return [made] if made is not None else []


def _privacy(given: Mapping[str, Any], folder: Path, wrong: Wrong) -> list[Policy]:
    from ..policies.content.privacy.policy import Privacy

    parts = {**given, "detectors": _functions(given.get("detectors"), folder, ("privacy", "detectors"), wrong)}
    made = _try(lambda: Privacy(**parts), ("privacy",), wrong)
    return [made] if made is not None else []


def _functions(places: Any, folder: Path, where: tuple[str, ...], wrong: Wrong) -> list[Any]:
    """Return the functions that a file names. What cannot be found is reported."""
    found = [
        _try(lambda place=place: object_from(place, folder), (*where, str(number)), wrong)  # type: ignore[misc]
        for number, place in enumerate(places or ())
    ]
    return [one for one in found if one is not None]


def _try(make: Callable[[], Any], where: tuple[str, ...], wrong: Wrong) -> Any:
    try:
        return make()
    except (AgentError, TypeError) as problem:
        wrong(where, str(problem))
        return None


def _check_names(agent: PolicySettings, tools: list[Any] | None, names: Any, where: tuple[str, ...], wrong: Wrong) -> None:
    """A name that is no tool's guards nothing. Of the tools of servers nothing is known before they start,
    nor of tools that could not be loaded."""
    if agent.mcp_servers or tools is None:
        return
    known = [as_action(tool).name for tool in tools]
    for name in names:
        if name not in known:
            wrong(where, notice("config.no_tool", "there is no tool {name!r}", name=name) + nearest(name, known))
