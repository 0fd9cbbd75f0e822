"""Tasks that are not tools: agents and other workflows; timeouts of tasks, and pauses before retries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ..core.durations import backoff
from ..core.events import Effect
from ..core.messages import ToolCall, ToolResult
from ..core.record import replace
from ..core.values import plain_text
from ..kernel.arguments import shown_arguments
from ..kernel.bases import options_of
from ..kernel.ports import Action, Policy, ToolContext, ToolHandler
from ..kernel.view import RunView
from ..policies.failure.timeout import run_with_timeout
from ..strategies.graph.task import MARKS, Graph, Task
from ..tools.definition import Doing


class RunAgent(Doing):
    """Runs an agent with `input`. The output of the task is its answer."""

    parameters: Mapping[str, Any] = {"type": "object", "properties": {"input": {}}, "required": ["input"]}

    def __init__(self, name: str, agent: Any) -> None:
        super().__init__(name)
        self.made_from = agent

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        return _outcome(await context.run_child(self.made_from, plain_text(prepared["input"])))


class RunWorkflow(Doing):
    """Runs another workflow, with its parameters as arguments."""

    def __init__(self, name: str, workflow: Any) -> None:
        super().__init__(name)
        self.made_from = workflow
        self.parameters = workflow.parameters

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        return _outcome(await context.run_child(self.made_from, prepared))


class Undo(Doing):
    """Undoes a call of a compensable tool with the tool's own undo (`@tool.undoes`) and the same arguments."""

    effect: Effect = "idempotent"  # it may be called more than once

    def __init__(self, tool: Action) -> None:
        super().__init__(undo_name(tool.name))
        self._tool, self.parameters = tool, tool.parameters

    def prepare(self, call: ToolCall) -> Any:
        return self._tool.prepare(call)

    def shown(self, prepared: Any) -> Mapping[str, Any]:
        return shown_arguments(self._tool, prepared).args

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        undo = options_of(self._tool).undo
        assert undo is not None
        key = context.idempotency_key.removesuffix("~")  # of the call that is undone: by it the tool may find what it did
        done = replace(context, call_id=context.call_id.removesuffix("~"), idempotency_key=key)
        return await undo(prepared, done) or ToolResult("undone")


def undo_name(tool: str) -> str:
    return f"undo:{tool}"


def _outcome(result: Any) -> ToolResult:
    if result.stop.kind in ("completed", "degraded"):
        return ToolResult(result.recorded)
    return ToolResult(error=result.stop.summary)


class TaskLimits(Policy):
    """Enforces the timeouts of tasks, and pauses before retries."""

    def __init__(self, graph: Graph) -> None:
        self._tasks = graph.by_name

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        task, attempt = self._task(call.id)
        if task is None:
            return await next(call)
        if pause := backoff(attempt - 1, task.retry_delay or 0.0):
            await asyncio.sleep(pause)
        if task.timeout is None or task.person:
            return await next(call)
        tool = view.tools(call).get(call.name, None)
        return await run_with_timeout(task.timeout, next(call), "" if tool is None else tool.effect)

    def _task(self, call_id: str) -> tuple[Task | None, int]:
        """Return the task of a call, and the number of the attempt."""
        end = min([place for mark in MARKS if (place := call_id.find(mark)) >= 0], default=len(call_id))
        tried = call_id.partition("#")[2].rstrip(MARKS)
        return self._tasks.get(call_id[:end]), int(tried) if tried.isdecimal() else 1
