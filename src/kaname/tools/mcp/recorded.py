"""Stand for a tool of a server that is not started, in a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import BadArguments, ReplayDiverged
from ...core.events import Asked, Effect, Event, ToolFinished, ToolStarted
from ...core.messages import ToolCall, ToolResult
from ...kernel.bases import ActionBase, ToolOptions
from ...kernel.ports import ToolContext
from ..arguments.prepare import read_arguments
from ..function import check_effect


class RecordedServerTool(ActionBase):
    """Stand for a tool of a server that is not started: take what the record says it took, and give the recorded result.

    `more`: its effect and its labels; empty in an older record.
    """

    description = ""
    parameters: Mapping[str, Any] = {"type": "object", "additionalProperties": True}  # which ones it takes is not recorded

    def __init__(self, name: str, events: Sequence[Event], served_by: tuple[str, str], more: Sequence[Any]) -> None:
        self.name = name
        started = [e.body for e in events if isinstance(e.body, ToolStarted) and e.body.call.name == name]
        effect, labels = more if len(more) == 2 else ("irreversible", None)
        self.options = ToolOptions(labels=labels, server=served_by)
        self.effect: Effect = started[0].effect if started else check_effect(name, effect)
        asked = [e.body.about for e in events if isinstance(e.body, Asked)]
        self._received = {call.id: call.args for call in asked if call is not None and isinstance(call.args, Mapping)}
        results = [e.body.result for e in events if isinstance(e.body, ToolFinished)]
        self._unfit = {one.call_id: one.error for one in results if (one.error or "").startswith(f"the arguments of {name} ")}

    def prepare(self, call: ToolCall) -> Any:
        if call.id in self._unfit:
            raise BadArguments(self._unfit[call.id])
        return self._received.get(call.id) or read_arguments(call)

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        raise ReplayDiverged.of(
            "replay.server", "{name} is a tool of a tool server, and a replay does not start tool servers", name=self.name
        )
