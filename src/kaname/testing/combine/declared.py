"""Read the declared rules of an agent: what the monitor must know about its tools and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.messages import ToolCall
from ...kernel.bases import options_of
from ...policies.permission.approve import Approve
from ...policies.permission.flow.policy import Flow
from .rules import ApprovalRule, DeclaredRules, ToolFacts

OWN_TOOLS = frozenset({"transfer_to_agent", "delegate_to_agent", "tasks", "find_tools", "use_tool"})


def rules_of(agent: Any) -> DeclaredRules:
    """Return the rules that an agent and the members of its team declare.

    Limits on money, guardrails and permissions are not read: what they refuse is refused, and the monitor asks nothing of it.
    """
    rules = DeclaredRules(head=agent.name)
    modes: set[str] = set()
    members = [] if agent.team is None else list(agent.team.members)
    for one in (agent, *members):
        for name, tool in one.tools.items():
            if name not in OWN_TOOLS:
                rules.tools[name] = _facts(name, tool)
        for policy in one.recipe.policies:
            if isinstance(policy, Approve):
                rules.approvals.append(_approval(policy, one.name))
            elif isinstance(policy, Flow):
                modes.add(str(policy.mode))
    outside = any(tool.outside for tool in rules.tools.values())
    acts = any(tool.acts for tool in rules.tools.values())
    rules.flow = (
        "everything" if "everything" in modes else "strict" if "strict" in modes or (not modes and outside and acts) else ""
    )
    return rules


def _facts(name: str, tool: Any) -> ToolFacts:
    labels = options_of(tool).labels
    effect = str(getattr(tool, "effect", "irreversible"))
    properties = dict(tool.parameters.get("properties", {}))
    defaults = {key: value["default"] for key, value in properties.items() if isinstance(value, Mapping) and "default" in value}
    hidden = {
        key for key, value in properties.items() if isinstance(value, Mapping) and value.get("format") in ("password", "binary")
    }
    role = getattr(labels, "role", None) or ("reads" if effect == "pure" else "acts")
    return ToolFacts(name, effect, defaults, frozenset(hidden), role == "acts", bool(getattr(labels, "reads_others", False)))


def _approval(policy: Any, agent: str) -> ApprovalRule:
    def read(name: str, default: Any) -> Any:
        return getattr(policy, name, getattr(policy, f"_{name}", default))

    when = read("when", None)
    asks = None if when is None else lambda args: bool(when(ToolCall("", "", args)))
    tools = frozenset(read("tools", ()))
    return ApprovalRule(tools, read("by", ""), read("expires", None) is not None, read("then", "refuse"), asks, agent)
