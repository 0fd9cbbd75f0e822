"""`@tool(background=True)`: a tool that the model starts, and whose result it collects later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from functools import partial
from typing import Any

from ..core.codec import dump
from ..core.errors import UnexpectedError
from ..core.events import ToolStarted
from ..core.messages import ToolCall, ToolResult, user
from ..core.record import field, record, replace
from ..core.state import State
from ..core.steps import CallTools, Finish, Step, Stop
from ..kernel.arguments import shown_arguments
from ..kernel.bases import StrategyBase, ToolOptions, options_of
from ..kernel.channel import Channel
from ..kernel.ports import Action, Journal, Recipe, ToolContext
from ..kernel.scope import Scope
from ..policies.failure.timeout import Deadline, Timeout
from ..policies.money.meter import Meter
from ..tools.definition import Doing
from .child import Parent
from .opener import Opener
from .recipe import describe
from .request import RunRequest
from .result import result_of
from .run import Run
from .tasks import TaskList, start_task

_CALL = "t1_0"


@record
class OneCall(StrategyBase):
    """A strategy that calls one tool, with the arguments that were sent to it. Its result is the output."""

    tool: str
    sent: Mapping[str, Any] | str = field(factory=dict)

    def next(self, state: State) -> Step:
        result = state.results.get(_CALL)
        if result is None:
            return CallTools((ToolCall(_CALL, self.tool, self.sent),))
        return Finish(Stop("failed", result.error or "") if result.is_error else Stop("completed"), result.output)


class ToolRun:
    """A tool as a child run. It makes the call that its parent has recorded; its input only shows the call to people.

    The call was judged, and counted, by the policies of the agent that made it.
    """

    def __init__(self, tool: Action, name: str) -> None:
        inner: Any = copy(tool)
        inner.options = replace(options_of(tool), labels={"role": "own"})
        self.name = name
        self.recipe = Recipe(name, OneCall(tool.name), None, {tool.name: inner}, (Deadline(), Timeout(), Meter()))

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Any, answers: Mapping[str, Any], parent: Parent
    ) -> Run[Any]:
        above = (parent.run_id, parent.call_id)
        options: dict[str, Any] = {
            "user": parent.user,
            "parent": above,
            "answers": answers,
            "by": parent.by,
            "deps": parent.deps,
        }
        request = RunRequest(run_id, (user(given),), "either", **options)
        counted = [one if (made := one.about.in_background) is None else made(one, run_id) for one in recipe.policies]
        opener = Opener(replace(recipe, policies=tuple(counted)), journal, parent.sinks, describe)
        return Run(run_id, partial(_open, opener, request), partial(result_of, typed=None), journal)


async def _open(opener: Opener, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
    assert request.parent is not None
    sent = await _sent_call(opener.journal, *request.parent)
    opener.recipe = replace(opener.recipe, strategy=OneCall(sent.name, sent.args))
    return await opener.open(request, channel, stack)


async def _sent_call(journal: Journal, run_id: str, call_id: str) -> ToolCall:
    """Return the call that a run has recorded when it started its tool, with the arguments as they were sent."""
    found: ToolCall | None = None
    async for event in journal.read(run_id):
        if isinstance(event.body, ToolStarted) and event.body.call.id == call_id:
            found = event.body.call
    if found is None:
        raise UnexpectedError(f"run {run_id} has not recorded that it started the call {call_id}")
    return found


class InBackground(Doing):
    """A tool whose calls start a run in the background and return at once."""

    def __init__(self, tool: Any) -> None:
        super().__init__(tool.name)
        self._tool = tool
        self.description, self.parameters = tool.description, tool.parameters
        self.options = ToolOptions(labels=options_of(tool).labels)
        self.wanted_deps, self.identity = tool.wanted_deps, (tool,)

    def prepare(self, call: ToolCall) -> Any:
        return self._tool.prepare(call)

    def shown(self, prepared: Any) -> Mapping[str, Any]:
        return shown_arguments(self._tool, prepared).args

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        """Start the task. It runs the call as it was sent, which is recorded; people are shown the arguments."""
        return await start_task(self.name, self.task_agent(self.name), dump(self.shown(prepared)), context)

    def task_agent(self, name: str) -> ToolRun:
        return ToolRun(self._tool, name)


def with_background(tools: Sequence[Any]) -> list[Any]:
    """Return the tools, those that work in the background wrapped, with the tool that keeps track of them."""
    return [*[InBackground(one) if options_of(one).background else one for one in tools], TaskList()]
