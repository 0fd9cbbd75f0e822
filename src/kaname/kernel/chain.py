"""Policies around a call: fold the list from the inside out, the first policy outermost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from .ports import ModelHandler, Policy, ToolHandler

if TYPE_CHECKING:
    from .scope import Scope


def around_model(policies: Sequence[Policy], core: ModelHandler, scope: Scope) -> ModelHandler:
    for policy in reversed(policies):
        if overrides(policy, "model"):
            core = partial(policy.model, next=core, scope=scope)
    return core


def around_tool(policies: Sequence[Policy], core: ToolHandler, scope: Scope) -> ToolHandler:
    for policy in reversed(policies):
        if overrides(policy, "tool"):
            core = partial(policy.tool, next=core, scope=scope)
    return core


def overrides(policy: Policy, method: str) -> bool:
    """Whether it has a method of its own, in its class or set on the object."""
    return getattr(getattr(policy, method), "__func__", None) is not getattr(Policy, method)
