"""The caller runs the tools: every call becomes a question, and the answer is its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.messages import ToolCall, ToolResult
from ..core.notices import notice
from ..kernel.ports import Policy, ToolHandler
from ..kernel.results import result_from_caller

if TYPE_CHECKING:
    from ..kernel.view import RunView


class HandOut(Policy):
    """Asks the caller for the result of every call."""

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        prompt = notice("external.result", "What is the result of {name}?", name=call.name)
        return result_from_caller(call, prompt, view.state.answers)
