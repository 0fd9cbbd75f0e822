"""`ReadMedia`: pictures and sounds that tools return become text for models that cannot see or hear them."""

from __future__ import annotations

from ..core.messages import ToolCall, ToolResult
from ..core.record import replace
from ..kernel.bases import ModelBase, optional
from ..kernel.ports import Policy, ToolHandler
from ..kernel.view import RunView


class ReadMedia(Policy):
    """Add the text of media to the results of tools. kaname adds it to agents whose model reads only text."""

    depth = 1
    stands_alone = True

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        return True

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        result = await next(call)
        if not result.media or all(one.text for one in result.media):
            return result
        from .entry import takes, text_of

        model = view.agent.model
        told = [
            one if one.text or not one.data or takes(model, one.mime) else replace(one, text=await text_of(one))
            for one in result.media
        ]
        return replace(result, media=tuple(told))


def is_blind(model: object) -> bool:
    """Return True if it is known that the model takes no pictures."""
    taken = optional(model, ModelBase, "takes")
    return taken is not None and not any(one.startswith("image") for one in taken)
