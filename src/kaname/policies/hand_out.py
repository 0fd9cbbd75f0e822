"""The caller runs the tools: every call becomes a question, and the answer is its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import Suspend
from ..core.messages import ToolCall, ToolResult
from ..core.notices import notice
from ..kernel.ports import Policy, ToolHandler

if TYPE_CHECKING:
    from ..kernel.view import RunView


class HandOut(Policy):
    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        key = f"result:{call.id}"
        if key not in view.state.answers:
            raise Suspend(key, notice("external.result", "The result of {name}?", name=call.name), about=call)
        match view.state.answers[key]:
            case {"error": str(error)}:
                return ToolResult(error=error)
            case {"output": output}:
                return ToolResult(output)
            case other:
                return ToolResult(other)
