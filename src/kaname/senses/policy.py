"""`ReadMedia`: pictures and sounds that tools return become text for models that cannot see or hear them."""

from __future__ import annotations

from ..core.messages import ToolCall, ToolResult
from ..core.record import replace
from ..core.values import plain_text
from ..kernel.bases import PolicyInfo, model_info
from ..kernel.ports import Policy, ToolHandler
from ..kernel.view import RunView


class ReadMedia(Policy):
    """Add the text of media to the results of tools. kaname adds it to agents whose model reads only text.

    It stands nearer to the tool than your policies, so that they check the text.
    """

    place = "allowed"
    about = PolicyInfo(stands_alone=True)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        result = await next(call)
        if not result.media:
            return result
        from .entry import explain, takes

        told = [await explain(one) for one in result.media if one.data and not takes(view.agent.model, one.mime)]
        if not told:
            return result
        said = [] if result.output is None else [plain_text(result.output)]
        return replace(result, output="".join([*said, *told]))


def is_blind(model: object) -> bool:
    """Return True if it is known that the model takes no pictures."""
    taken = model_info(model).takes
    return taken is not None and not any(one.startswith("image") for one in taken)
