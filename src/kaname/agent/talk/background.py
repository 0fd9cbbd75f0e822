"""`@tool(background=True)`: a tool that the model starts, and whose result it collects later."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from typing import Any

from ...core.codec import dump
from ...core.messages import ToolCall, ToolResult, user
from ...core.record import record
from ...core.state import State
from ...core.steps import CallTools, Finish, Step, Stop
from ...kernel.bases import StrategyBase
from ...kernel.channel import Channel
from ...kernel.ports import Action, Journal, Recipe, ToolContext
from ...kernel.scope import Scope
from ...policies.budget.meter import Meter
from ...policies.timeout import Deadline, Timeout
from ..actions import Doing
from ..child import Parent
from ..opening.opener import Opener
from ..opening.request import RunRequest
from ..recipe import describe
from ..result import result_of
from ..run import Run
from .tasks import TaskList, start_task

_CALL = "t1_0"


@record
class OneCall(StrategyBase):
    """A strategy that calls one tool with the arguments in the input of the run. Its result is the output."""

    tool: str

    def next(self, state: State) -> Step:
        result = state.results.get(_CALL)
        if result is None:
            asked = state.question
            return CallTools((ToolCall(_CALL, self.tool, json.loads(asked.text if asked else "{}")),))
        return Finish(Stop("failed", result.error or "") if result.is_error else Stop("completed"), result.output)


class ToolRun:
    """A tool as a child run: the arguments are its input. The call was judged by the policies of the agent that made it."""

    def __init__(self, tool: Action, name: str) -> None:
        inner: Any = copy(tool)
        inner.labels = {"role": "own"}
        self.name = name
        self.recipe = Recipe(name, OneCall(tool.name), None, {tool.name: inner}, (Deadline(), Timeout(), Meter()))

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Any, answers: Mapping[str, Any], parent: Parent
    ) -> Run[Any]:
        above = (parent.run_id, parent.call_id)
        request = RunRequest(
            run_id, (user(given),), "either", user=parent.user, parent=above, answers=answers, deps=parent.deps
        )
        opener = Opener(recipe, journal, parent.sinks, describe)
        return Run(run_id, partial(_open, opener, request), partial(result_of, typed=None), journal)


@asynccontextmanager
async def _open(opener: Opener, request: RunRequest, channel: Channel) -> AsyncIterator[Scope]:
    async with opener.open(request, channel) as scope:
        scope.deps = request.deps
        yield scope


class InBackground(Doing):
    """A tool whose calls start a run in the background and return at once."""

    listed = True

    def __init__(self, tool: Any) -> None:
        super().__init__(tool.name)
        self._tool = tool
        self.description, self.parameters, self.labels = tool.description, tool.parameters, tool.labels
        self.wanted_deps = tool.wanted_deps

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        shown: dict[str, Any] = self._tool.shown(self._tool.prepare(call))
        return shown

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        return await start_task(self.name, self.task_agent(self.name), dump(prepared), context)

    def task_agent(self, name: str) -> ToolRun:
        return ToolRun(self._tool, name)


def with_background(tools: Sequence[Any]) -> list[Any]:
    """Return the tools, those that work in the background wrapped, with the tool that keeps track of them."""
    return [*[InBackground(one) if getattr(one, "background", False) else one for one in tools], TaskList()]
