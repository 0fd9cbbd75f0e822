"""Wrap a call in policies: the list is folded from the inside out, the first policy outermost."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from ..core.errors import BadArguments
from ..core.messages import NOTHING, Message, ToolCall, ToolResult, Usage
from .ports import Admission, ModelHandler, Policy, ToolHandler
from .view import RunView


async def let_in(question: Message) -> Usage:
    """Admit the question: no policy objects."""
    return NOTHING


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
