"""The run as a sequence of steps that the caller pulls one by one. The same loop, advanced by hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import GenericAlias, TracebackType
from typing import Any, ClassVar, Literal, Self

from ...agent.agent import Agent
from ...core.calls import same_call
from ...core.errors import AgentError, BadArguments, ConfigError, InvalidState, ToolExecutionFailed, ToolNotFoundError
from ...core.events import RESULT, Stopped
from ...core.messages import NOTHING, ToolCall, ToolResult, Usage
from ...core.notices import notice
from ...core.record import record
from ...core.steps import CallModel, CallTools, Finish, Stop
from ...kernel.boundary import Border, Failure, attempt
from ...kernel.channel import Channel
from ...kernel.loop import advance
from ...kernel.perform import use
from ...kernel.scope import Scope
from ...policies.money.purchase import meter
from ...run.input import Input
from ...run.peers.unused import Refusing
from ...run.result import Result, stop_error
from ...strategies.termination import TerminateWithOutput, TerminationPolicy
from ...tools.to_json import to_result
from .configuration import AgentConfiguration, as_sequence
from .hand_out import HandedOutTools, Handing


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


@record
class LoopPhase:
    """The phase of a step sequence.

    Attributes:
        name: The name of the phase.
        retry_count: The number of answers that could not be decoded.

    | phase                       | tools are sent | the response schema is sent |
    |-----------------------------|----------------|-----------------------------|
    | `tool_use`                  | if there are   | if there are no tools       |
    | `final_output(retry_count)` | no             | yes                         |
    | `completed`                 | –              | –                           |
    """

    name: Literal["tool_use", "final_output", "completed"]
    retry_count: int = 0

    @classmethod
    def tool_use(cls) -> LoopPhase:
        return cls("tool_use")

    @classmethod
    def final_output(cls, retry_count: int = 0) -> LoopPhase:
        return cls("final_output", retry_count)

    @classmethod
    def completed(cls) -> LoopPhase:
        return cls("completed")


SequenceStep = ThinkingStep | ToolCallStep | ToolResultStep | FinalResponseStep


class AgentStepSequence(Refusing):
    """The run as steps: `async for step in sequence`, or `await sequence.next_step()` until it is `None`.

    Nothing runs ahead of the caller but the tools of the current turn. After leaving the `async for` early, pull on, or end
    the run with `aclose()`; `async with agent.steps(…) as sequence` does that by itself.

    Args:
        client: An agent, a model, or the name of a model.
        prompt: What the user says.
        tools: With a model: what it can call.
        configuration: The limits, and who runs the tools. By default those of `AgentConfiguration()` (10 steps, the same call
            twice, each tool 5 times); `stops` that an agent was given come before these.
        output: With a model: the type of the final response.
        termination_policy: Decides what each reply means, instead of `StandardTerminationPolicy`. The limits hold around it.
        session_id: The conversation that the run belongs to. It does not wait for other runs of it; later runs wait for it.
        user_id: The user.
        run_id: The id of the run. By default it is a new one.
        deps: What tools find in `ToolContext.deps`.
        options: With a model: anything else that `Agent` takes.
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # AgentStepSequence[Client, Output]
    _guard: asyncio.Task[None] | None = None  # ends the run that nobody pulls any more

    _unused: ClassVar[Mapping[str, str]] = {  # methods of the document's runner, and what to use instead
        "execute_tool": "AgentConfiguration(auto_execute_tools=False) with submit(), or a policy with tool()",
        "send_request": "a Model of your own, or a policy with model()",
        "decode_final_output": "output=, a type that pydantic validates",
        "add_final_output_request": "a termination policy: ContinueWithThinking(note)",
    }

    def __init__(
        self,
        client: Any,
        prompt: Input,
        tools: Iterable[Any] = (),
        configuration: AgentConfiguration | None = None,
        *,
        output: Any = None,
        termination_policy: TerminationPolicy | None = None,
        session_id: str | None = None,
        user_id: str = "",
        run_id: str | None = None,
        deps: Any = None,
        **options: Any,
    ) -> None:
        given = list(tools)
        if isinstance(client, Agent) and (given or output is not None or options):
            raise ConfigError.of(
                "sequence.agent", "an agent already has its tools, its output type and its options: pass a model instead"
            )
        agent = client if isinstance(client, Agent) else Agent(client, given, output=output, **options)
        opener = agent._opener(as_sequence(agent.recipe, configuration, termination_policy))
        request = agent._request(prompt, session_id, user_id, run_id, deps, "ahead")
        self.run_id = request.run_id
        self._begin, self._view, self._record = partial(agent._open_run, opener, request), agent._view, opener.answer
        self._stack = AsyncExitStack()
        self._scope: Scope | None = None
        self._queue: deque[SequenceStep] = deque()
        self._chosen: set[str] = set()  # the calls that the decision continues with
        self._called: set[str] = set()
        self._told: set[str] = set()
        self._ended = False
        self._pulling = asyncio.Lock()

    @property
    def phase(self) -> LoopPhase:
        """The phase: tools can be called, the final output is asked for, or the sequence is over."""
        if self._ended:
            return LoopPhase.completed()
        return LoopPhase.tool_use() if self._scope is None else _phase_of(self._scope)

    async def next_step(self) -> SequenceStep | None:
        """The next step; `None` when the run is over. Raises where the run cannot reach its answer."""
        async with self._pulling:
            if self._queue:
                return self._queue.popleft()
            if self._ended:
                return None
            try:
                return await self._pull(await self._open())
            except asyncio.CancelledError:
                await self.aclose()
                raise

    async def _pull(self, scope: Scope) -> SequenceStep | None:
        state = scope.state
        while state.stop is None:
            if state.waiting and not await self._record(scope, {}, ""):  # a question may have expired
                raise InvalidState(self._what_is_missing(scope))
            replies = len(state.replies)
            await advance(scope)
            if state.stop is not None:
                break
            if len(state.replies) > replies:
                reply = state.replies[-1].reply.message
                step = await attempt(scope.agent.strategy.next, state, passing=())
                if isinstance(step, CallTools) and reply.calls:
                    self._chosen = {call.id for call in step.calls}
                elif not isinstance(step, Finish | Failure):  # a failure is raised again where it is recorded
                    await scope.write_pending()
                    return ThinkingStep(reply.text)
            elif self._queue_tools(scope):
                return self._queue.popleft()
        return await self._end(scope, state.stop)

    def _queue_tools(self, scope: Scope) -> bool:
        """After the tools of a turn: call, result, call, result; or only the calls, when the caller runs them."""
        state = scope.state
        if not state.replies:  # the strategy has called tools by itself
            return False
        reply = state.replies[-1].reply.message
        handed = handing.calls if (handing := _handing(scope)) is not None else None
        for call in [call for call in reply.calls if call.id in self._chosen]:
            result = state.results.get(call.id)
            if handed is not None and result is None and f"{RESULT}{call.id}" not in state.questions:
                continue  # a policy has not decided over it yet
            if handed is not None:
                call = handed.get(call.id, call)  # a person may have changed it
            if call.id not in self._called:
                self._called.add(call.id)
                self._queue.append(ToolCallStep(call, reply.text or reply.thinking))
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
            raise stop_error(stop, self.run_id, scope.state)
        if scope.state.output is None and stop.kind != "degraded" and stop != Stop("completed"):
            return None  # ended at once, with nothing to hand over
        result = self._view(self.run_id, scope.state)
        decided = getattr(getattr(scope.agent.strategy, "termination", None), "decision", None)
        return FinalResponseStep(result.output, decided.text if isinstance(decided, TerminateWithOutput) else result.text)

    async def submit(self, call_id: str, output: Any = None, *, error: str | None = None) -> None:
        """The result of a call that the caller ran: any value, or a `ToolResult`."""
        result = to_result(output)
        error = result.error if error is None else error
        await self.answer(f"{RESULT}{call_id}", {"output": result.output} if error is None else {"error": error})

    async def answer(self, key: str, answer: Any, *, by: str = "") -> None:
        """Answer a question of the run.

        Args:
            key: The key of the question, as in `sequence.result.questions`.
            answer: The answer.
            by: The person who gives it.

        Raises:
            InvalidState: There is no such question, it has expired, this person cannot answer it, or the answer is unclear.
        """
        await self._record(await self._open(), {key: answer}, by)

    async def execute_tool(self, call: ToolCall) -> ToolResult:
        """Run one of the agent's tools by hand, if the agent's policies allow the call.

        A call that was handed out is run as it was handed out: its policies have decided. Every other call passes through them
        first.

        Raises:
            ToolNotFound: The agent has no such tool.
            ToolExecutionFailed: The tool failed, or a policy refused the call.
            InvalidState: A person must be asked first, or the call has other arguments than the one that was handed out.
        """
        scope = await self._open()
        tools, handing = scope.agent.tools, _handing(scope)
        handed = None if handing is None else handing.calls.get(call.id)
        tools = tools.tools if isinstance(tools, HandedOutTools) else tools
        if (tool := tools.get(call.name, None)) is None:
            raise ToolNotFoundError(call.name, tools)
        try:
            prepared = tool.prepare(call)
        except BadArguments as problem:
            raise ToolExecutionFailed(call.name, problem) from problem
        if call.id in scope.state.results or f"{RESULT}{call.id}" in scope.state.answers:
            raise InvalidState.of("sequence.has_result", "call {id!r} already has a result", id=call.id)
        if handed is None:
            result = await self._run_by_hand(scope, call)
        elif same_call(handed, call, tool):
            context = scope.tool_context(call.id, f"{self.run_id}:{call.id}", 1)
            acting = partial(attempt, tool.act, prepared, context, passing=())
            result, spent = await meter(call.name, acting, _reported_usage, scope)
            scope.charge(spent, call.id)  # recorded with the result that is submitted
        else:
            raise InvalidState.of(
                "sequence.other_call", "call {id!r} was handed out with other arguments: {name}", id=call.id, name=call.name
            )
        if isinstance(result, Failure):
            raise ToolExecutionFailed(call.name, result.error, str(result)) from result.error
        if result.is_error:
            raise ToolExecutionFailed(call.name, str(result.error))
        return result  # type: ignore[no-any-return]

    async def _run_by_hand(self, scope: Scope, call: ToolCall) -> Any:
        """Run a call that the model did not make, or that was not handed out, through the policies."""
        if scope.state.waiting:
            raise InvalidState(self._what_is_missing(scope))
        if (handing := _handing(scope)) is not None:
            handing.by_hand.add(call.id)
        with Border(passing=(AgentError,)) as border:
            await use(call, scope)
        if border.failure is not None:
            return border.failure
        if (result := scope.state.results.get(call.id)) is None:
            raise InvalidState(self._what_is_missing(scope))
        return result

    @property
    def result(self) -> Result:
        """The result of the run so far."""
        if self._scope is None:
            raise InvalidState.of("sequence.not_begun", "the sequence has not started yet")
        return self._view(self.run_id, self._scope.state)

    async def aclose(self) -> None:
        """End the run here. What was done stays recorded, and `agent.resume(sequence.run_id)` can go on with it."""
        self._ended = True
        if self._guard is not None:
            self._guard.cancel()
            await asyncio.shield(self._guard)

    async def _close(self) -> None:
        self._ended = True
        await self._stack.aclose()
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SequenceStep:
        step = await self.next_step()
        if step is None:
            raise StopAsyncIteration
        return step

    def __del__(self) -> None:
        if self._guard is not None and not self._ended and not (loop := self._guard.get_loop()).is_closed():
            loop.call_soon_threadsafe(self._guard.cancel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _open(self) -> Scope:
        if self._scope is None:
            async with AsyncExitStack() as stack:
                self._scope = await self._begin(Channel(), stack)
                self._stack = stack.pop_all()
            self._guard = asyncio.create_task(_guard_run(self._scope, self._stack))
            _guards.add(self._guard)  # the loop itself holds tasks only weakly
            self._guard.add_done_callback(_guards.discard)
            await asyncio.sleep(0)  # it begins
        return self._scope

    def _what_is_missing(self, scope: Scope) -> str:
        keys = ", ".join([key.removeprefix(RESULT) for key in scope.state.questions])
        return notice(
            "sequence.waiting",
            "the sequence is waiting for: {keys}. Pass results with submit(call_id, output), and answers with answer(key, …)",
            keys=keys,
        )


def _phase_of(scope: Scope) -> LoopPhase:
    """Return the phase that the next request to the model belongs to."""
    state = scope.state
    if state.stop is not None:
        return LoopPhase.completed()
    step = scope.agent.strategy.next(state)
    if not isinstance(step, CallModel) or step.schema is None:
        return LoopPhase.tool_use()
    tries = sum([one.step.schema is not None for one in state.replies])
    return LoopPhase.final_output(tries) if step.tools is False or tries else LoopPhase.tool_use()


def _reported_usage(result: Any) -> Usage:
    return result.usage if isinstance(result, ToolResult) else NOTHING


def _handing(scope: Scope) -> Handing | None:
    """Return the calls that were handed out, or None if kaname runs the tools."""
    tools = scope.root.tools
    return tools.handing if isinstance(tools, HandedOutTools) else None


_guards: set[asyncio.Task[None]] = set()


async def _guard_run(scope: Scope, stack: AsyncExitStack) -> None:
    """Wait until the sequence is closed, collected, or its event loop ends; then give the run an orderly end."""
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        if scope.state.stop is None:
            await scope.record(Stopped(Stop("cancelled", notice("run.abandoned", "the caller stopped before the last step"))))
        await stack.aclose()
