"""Wrap a call in policies: the list is folded from the inside out, the first policy outermost."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from ..core.errors import BadArguments
from ..core.messages import NOTHING, Message, ToolCall, ToolResult, Usage
from .ports import Admission, ModelHandler, Policy, StopRule, ToolHandler
from .view import RunView


async def let_in(question: Message) -> Usage:
    """Admit the question: no policy objects."""
    return NOTHING


def joined(root: Sequence[Policy], member: Sequence[Policy]) -> tuple[Policy, ...]:
    """Return what stands around a member's calls after a hand-over: the root's policies, then its own.

    A default is there once a run, and not at all if it is to stand alone and the root or the member wrote one of its class.
    """
    both = {id(policy): policy for policy in (*root, *member)}.values()
    written = [policy for policy in both if not policy.default_place]
    nearest = {type(policy): policy for policy in written if policy.stands_alone}
    kept = [policy for policy in written if nearest.get(type(policy), policy) is policy]
    defaults = {type(policy): policy for policy in both if policy.default_place}.values()
    missing = [one for one in defaults if not (one.stands_alone and any(isinstance(other, type(one)) for other in kept))]
    outer = [policy for policy in missing if policy.default_place == "outermost"]
    inner = [policy for policy in missing if policy.default_place == "innermost"]
    return (*outer, *kept, *inner)


def joined_rules(root: Sequence[StopRule], member: Sequence[StopRule]) -> tuple[StopRule, ...]:
    """Return the stop rules for a member's steps: all that were written, and one default of each kind that was not."""
    both = (*root, *member)
    written = [rule for rule in both if not getattr(rule, "is_default", False)]
    kinds = {getattr(rule, "kind", "") for rule in written}
    missing = {rule.kind: rule for rule in both if getattr(rule, "is_default", False) and rule.kind not in kinds}  # type: ignore[attr-defined]
    return (*missing.values(), *written)


def around_question(policies: Sequence[Policy], view: RunView) -> Admission:
    return _folded("admit", policies, let_in, view)  # type: ignore[no-any-return]


def around_model(policies: Sequence[Policy], core: ModelHandler, view: RunView) -> ModelHandler:
    return _folded("model", policies, core, view)  # type: ignore[no-any-return]


def around_tool(policies: Sequence[Policy], core: ToolHandler, view: RunView) -> ToolHandler:
    return _folded("tool", policies, core, view)  # type: ignore[no-any-return]


def _folded(joint: str, policies: Sequence[Policy], core: Any, view: RunView) -> Any:
    around = _around_call if joint == "tool" else _around
    for policy in reversed(policies):
        if overrides(policy, joint):
            core = around(getattr(policy, joint), core, view)
    return core


def _around(wrap: Any, core: Any, view: RunView) -> Any:
    return lambda given: wrap(given, core, view)


def _around_call(wrap: Any, core: Any, view: RunView) -> Any:
    """Show the policy what the tool would receive now: one further out may have changed the call. Arguments that do not fit go
    no further."""

    def handle(call: ToolCall) -> Awaitable[ToolResult]:
        try:
            seen = view.as_received(call)
        except BadArguments as problem:
            return _refused(str(problem))
        return wrap(seen, core, view)  # type: ignore[no-any-return]

    return handle


async def _refused(problem: str) -> ToolResult:
    return ToolResult(error=problem, not_run=True)


def overrides(policy: Policy, method: str) -> bool:
    """Whether it has a method of its own, in its class or set on the object."""
    return getattr(getattr(policy, method), "__func__", None) is not getattr(Policy, method)
