"""The run as a sequence of steps that the caller pulls one by one. The same loop, advanced by hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self

from ...core.errors import BadArguments, ConfigError, InvalidState, ToolExecutionFailed, ToolNotFoundError
from ...core.events import Answered, Stopped
from ...core.messages import ToolCall, ToolResult
from ...core.notices import notice
from ...core.record import record, replace
from ...core.state import State
from ...core.steps import Finish, Stop
from ...kernel.boundary import Failure, attempt
from ...kernel.channel import Channel
from ...kernel.loop import advance, decide
from ...kernel.ports import Recipe
from ...kernel.scope import Scope
from ...policies.hand_out import HandOut
from ...strategies.react import React
from ...strategies.stop import Rule, max_steps, no_repeats, per_tool
from ...tools.to_json import to_result
from ..result import Result, stop_error


@record
class ThinkingStep:
    text: str
    kind: Literal["thinking"] = "thinking"


@record
class ToolCallStep:
    call: ToolCall
    thought: str = ""
    kind: Literal["tool_call"] = "tool_call"


@record
class ToolResultStep:
    call: ToolCall
    result: ToolResult
    kind: Literal["tool_result"] = "tool_result"


@record
class FinalResponseStep:
    output: Any
    text: str
    kind: Literal["final_response"] = "final_response"


SequenceStep = ThinkingStep | ToolCallStep | ToolResultStep | FinalResponseStep


@record
class AgentConfiguration:
    """With `auto_execute_tools=False` the caller runs the tools and hands their results in with `submit`."""

    max_steps: int = 10
    auto_execute_tools: bool = True
    max_duplicate_tool_calls: int = 2
    max_tool_calls_per_tool: int | None = 5

    def applied_to(self, recipe: Recipe) -> Recipe:
        limits = (
            max_steps(self.max_steps),
            no_repeats(self.max_duplicate_tool_calls),
            per_tool(self.max_tool_calls_per_tool),
        )
        kinds = {rule.kind for rule in limits}
        others = [rule for rule in recipe.stops if not (isinstance(rule, Rule) and rule.kind in kinds)]
        policies = recipe.policies if self.auto_execute_tools else (HandOut(), *recipe.policies)
        return recipe.altered(stops=(*limits, *others), policies=policies)


def as_sequence(recipe: Recipe, configuration: AgentConfiguration | None) -> Recipe:
    """The recipe with that configuration. A sequence ends at its limits: nobody has asked for a step beyond them."""
    if configuration is not None and not isinstance(configuration, AgentConfiguration):
        raise ConfigError(
            notice(
                "sequence.configuration",
                "configuration is an AgentConfiguration, not {configuration!r}",
                configuration=configuration,
            )
        )
    made = recipe if configuration is None else configuration.applied_to(recipe)
    return made.altered(strategy=replace(made.strategy, concludes=False)) if isinstance(made.strategy, React) else made


class AgentStepSequence:
    """`async for step in sequence`, or `await sequence.next_step()` until it is `None`.

    Nothing runs ahead of the caller but the tools of the current turn. After leaving the `async for` early, pull on, or end
    the run with `aclose()`; `async with agent.steps(…) as sequence` does that by itself.
    """

    def __init__(
        self,
        run_id: str,
        begin: Callable[[Channel], AbstractAsyncContextManager[Scope]],
        view: Callable[[str, State], Result],
    ) -> None:
        self.run_id = run_id
        self._begin, self._view = begin, view
        self._stack = AsyncExitStack()
        self._scope: Scope | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[SequenceStep] = deque()
        self._called: set[str] = set()
        self._told: set[str] = set()
        self._ended = False
        self._pulling = asyncio.Lock()

    async def next_step(self) -> SequenceStep | None:
        """The next step; `None` when the run is over. Raises where the run cannot reach its answer."""
        async with self._pulling:
            if self._queue:
                return self._queue.popleft()
            if self._ended:
                return None
            try:
                return await self._pull(await self._opened())
            except asyncio.CancelledError:
                await self.aclose()
                raise

    async def _pull(self, scope: Scope) -> SequenceStep | None:
        state = scope.state
        while True:
            if state.waiting:
                raise InvalidState(self._what_is_missing(scope))
            replies = len(state.replies)
            await advance(scope)
            if state.stop is not None:
                return await self._end(scope, state.stop)
            if len(state.replies) > replies:
                reply = state.replies[-1].reply.message
                if not reply.calls and not isinstance(decide(scope), Finish):
                    await scope.settle()
                    return ThinkingStep(reply.text)
            elif self._queue_tools(scope):
                return self._queue.popleft()

    def _queue_tools(self, scope: Scope) -> bool:
        """After the tools of a turn: call, result, call, result; or only the calls, when the caller runs them."""
        state = scope.state
        if not state.replies:  # the strategy has called tools by itself
            return False
        reply = state.replies[-1].reply.message
        for call in reply.calls:
            if call.id not in self._called:
                self._called.add(call.id)
                self._queue.append(ToolCallStep(call, reply.text or reply.thinking))
            result = state.results.get(call.id)
            if result is not None and call.id not in self._told:
                self._told.add(call.id)
                self._queue.append(ToolResultStep(call, result))
        return bool(self._queue)

    async def _end(self, scope: Scope, stop: Stop) -> SequenceStep | None:
        await self._close()
        if scope.failure is not None:
            scope.failure.run_id = self.run_id
            raise scope.failure
        if stop.kind in ("max_steps", "undecodable", "blocked"):
            raise stop_error(stop, self.run_id)
        if stop.kind != "degraded" and (stop.kind != "completed" or stop.detail):  # ended at once, with nothing to hand over
            return None
        result = self._view(self.run_id, scope.state)
        return FinalResponseStep(result.output, result.text)

    async def submit(self, call_id: str, output: Any = None, *, error: str | None = None) -> None:
        """The result of a call that the caller ran: any value, or a `ToolResult`."""
        result = to_result(output)
        error = result.error if error is None else error
        await self.answer(f"result:{call_id}", {"output": result.output} if error is None else {"error": error})

    async def answer(self, key: str, answer: Any) -> None:
        scope = await self._opened()
        if key not in scope.state.questions:
            raise InvalidState(
                notice(
                    "sequence.not_open",
                    "nothing waits for {key!r}; open: {listed}",
                    key=key,
                    listed=", ".join(scope.state.questions) or "nothing",
                )
            )
        await scope.record(Answered(key, answer))

    async def execute_tool(self, call: ToolCall) -> ToolResult:
        """Run one of the agent's tools by hand. Raises `ToolNotFound` or `ToolExecutionFailed`."""
        scope = await self._opened()
        tools = scope.agent.tools
        if (tool := tools.get(call.name, None)) is None:
            raise ToolNotFoundError(call.name, tools)
        context = scope.context(call.id, f"{self.run_id}:{call.id}", 1)
        try:
            result = await attempt(tool.act, tool.prepare(call), context, passing=())
        except BadArguments as problem:
            raise ToolExecutionFailed(f"{call.name}: " + str(problem)) from problem
        if isinstance(result, Failure):
            raise ToolExecutionFailed(f"{call.name}: " + str(result)) from result.error
        if result.is_error:
            raise ToolExecutionFailed(f"{call.name}: " + str(result.error))
        return result  # type: ignore[no-any-return]

    @property
    def result(self) -> Result:
        """What the run came to so far."""
        if self._scope is None:
            raise InvalidState(notice("sequence.not_begun", "the sequence has not begun"))
        return self._view(self.run_id, self._scope.state)

    async def aclose(self) -> None:
        """End the run here. What was done stays recorded, and `agent.resume(sequence.run_id)` can go on with it."""
        if not self._ended:
            self._ended = True
            await _finish(self._scope, self._stack)

    async def _close(self) -> None:
        self._ended = True
        await self._stack.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SequenceStep:
        step = await self.next_step()
        if step is None:
            raise StopAsyncIteration
        return step

    def __del__(self) -> None:
        if self._loop is not None and not self._ended and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_abandon, self._loop, self._scope, self._stack)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _opened(self) -> Scope:
        if self._scope is None:
            self._loop = asyncio.get_running_loop()
            self._scope = await self._stack.enter_async_context(self._begin(Channel()))
        return self._scope

    def _what_is_missing(self, scope: Scope) -> str:
        keys = ", ".join([key.removeprefix("result:") for key in scope.state.questions])
        return notice(
            "sequence.waiting",
            "the sequence waits for: {keys}; hand results in with submit(call_id, output), answers with answer(key, …)",
            keys=keys,
        )


async def _finish(scope: Scope | None, stack: AsyncExitStack) -> None:
    """An orderly end for a run that nobody pulls any more."""
    if scope is not None and scope.state.stop is None:
        await scope.record(Stopped(Stop("cancelled", notice("run.abandoned", "the caller stopped pulling"))))
    await stack.aclose()


_abandoned: set[asyncio.Task[None]] = set()


def _abandon(loop: asyncio.AbstractEventLoop, scope: Scope | None, stack: AsyncExitStack) -> None:
    task = loop.create_task(_finish(scope, stack))
    _abandoned.add(task)  # the loop itself holds tasks only weakly
    task.add_done_callback(_abandoned.discard)
