"""Ask a person before some calls. The run is parked, not held: any process can take it up with the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..core.errors import Suspend
from ..core.messages import ToolCall, ToolResult
from ..core.notices import notice
from ..core.record import replace
from ..core.values import plain_text
from ..kernel.ports import Action, Policy, ToolHandler
from .names import known_tools, objector

if TYPE_CHECKING:
    from ..kernel.view import RunView


_YES = frozenset({"yes", "y", "ok", "okay", "approve", "approved", "allow", "true", "はい", "許可", "承認"})
_NO = frozenset({"no", "n", "deny", "denied", "false", "", "いいえ", "拒否", "却下"})


class Approve(Policy):
    """`Approve("pay", "delete")`, or `Approve(when=lambda call: …)`; with neither, every call is asked about.

    Answers: "yes" or True; "no", False or a text with the reason; {"args": {…}} to run it with other arguments.
    """

    def __init__(self, *tools: str, when: Callable[[ToolCall], bool] | None = None) -> None:
        self._tools, self._when = frozenset(_flat(tools)), when

    def _wanted(self, call: ToolCall) -> bool:
        if self._when is not None:
            return self._when(call)
        return not self._tools or call.name in self._tools

    def check(self, tools: Mapping[str, Action]) -> None:
        """A name that is no tool's guards nothing."""
        if self._when is None:
            known_tools("Approve", self._tools, tools)

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        return not self._wanted(call)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        key = f"approve:{call.id}"
        answers = view.state.answers
        if key not in answers:
            if not self._wanted(call):
                return await next(call)
            asked = f"{call.name}({plain_text(call.args)})"
            raise Suspend(key, notice("approve.run", "Run {asked}?", asked=asked), ("yes", "no"))
        match answers[key]:
            case True:
                return await next(call)
            case str(word) if word.strip().lower() in _YES:
                return await next(call)
            case {"args": dict(args)}:
                changed = replace(call, args=args)
                if why := objector(changed, self, view, by_a_person=True):  # they have seen the model's call, not this one
                    return ToolResult(error=f"{call.name} was not run with the changed arguments: {why}")
                return await next(changed)
            case str(reason) if reason.strip().lower() not in _NO:
                return ToolResult(error=f"the user did not allow this call: {reason}")
            case False | str():
                return ToolResult(error="the user did not allow this call")
            case other:
                return ToolResult(error=f"not run: the answer {other!r} is neither yes, nor no, nor {{'args': …}}")


def _flat(tools: Iterable[str]) -> Iterable[str]:
    for tool in tools:
        yield from ([tool] if isinstance(tool, str) else tool)
