"""The parts of a ReAct runtime that a user has written, as the one loop calls them: planner, registry, guardrails, fallback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any

from ...context.history import AgentState
from ...core.errors import ConfigError, UnexpectedError
from ...core.messages import (
    NOTHING,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from ...core.notices import notice
from ...core.openai_shape import result_text
from ...core.record import record
from ...core.steps import AgentStep
from ...kernel.ports import Emit, ModelHandler, Policy, ToolHandler
from ...kernel.view import RunView
from ...models.prompted.react.arguments import arguments_for
from ...policies.content.guardrails.policy import Guardrails
from ...policies.content.guardrails.verdicts import GuardrailResult
from ...policies.failure.tool_fallback import FallbackStrategy, one_text
from ...tools.database.tool import refuse_comments

_UNKNOWN = Usage(cost=None)
_asked: ContextVar[Message | None] = ContextVar("asked", default=None)
_spent: ContextVar[list[Usage] | None] = ContextVar("spent", default=None)


@record
class PlanResult:
    """The next step of a plan: an action with its input, or the final answer.

    Attributes:
        thought: The reason for the step, or "".
        action: The name of the tool to call; None if this is the final answer.
        action_input: The input of the tool.
        final_answer: The answer; None if a tool is to be called.
    """

    thought: str = ""
    action: str | None = None
    action_input: Any = None
    final_answer: str | None = None


class ToolNames(list[str]):
    """The names of the tools, as a planner gets them; `specs` is what else is known of them."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self.specs = tuple(sorted(specs, key=lambda spec: spec.name))
        super().__init__([spec.name for spec in self.specs])


def count_usage(usage: Usage) -> None:
    """Count what a planner has spent for the run that asked it."""
    if (spent := _spent.get()) is not None:
        spent.append(usage)


class Around(Policy):
    """What design A's runtime adds around its calls: SQL comments are refused, and a planner is told the question."""

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        token = _asked.set(view.state.question)
        try:
            return await next(request)
        finally:
            _asked.reset(token)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        token = refuse_comments.set(True)
        try:
            return await next(call)
        finally:
            refuse_comments.reset(token)


class PlannedModel:
    """A planner with a `plan` of its own, as a model: one plan is one reply.

    What it spends is counted as far as `ReActPlanner.plan` made the calls; of others nobody knows the cost.
    """

    def __init__(self, planner: Any) -> None:
        self._planner = planner
        inner = getattr(planner, "model", None)
        self.name = str(getattr(inner, "name", inner or type(planner).__name__))

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        spent: list[Usage] = []
        token = _spent.set(spent)
        try:
            query, state = _situation(request.messages)
            plan = self._planner.plan(query, state, ToolNames(request.tools))
            plan = await plan if isawaitable(plan) else plan
        finally:
            _spent.reset(token)
        if not all(hasattr(plan, name) for name in PlanResult.__match_args__):
            kind = type(self._planner).__name__
            raise UnexpectedError(f"{kind}.plan returned {repr(plan)[:100]}; expected a PlanResult")
        usage = sum(spent, NOTHING) if spent else _UNKNOWN
        parts: list[Part] = [Thinking(str(plan.thought))] if plan.thought else []
        if plan.thought:
            await emit(str(plan.thought), "thinking")
        if plan.action:
            call = ToolCall("", str(plan.action), _arguments(plan.action, plan.action_input, request.tools))
            return ModelReply(Message("assistant", (*parts, call)), "tool_use", usage)
        if plan.final_answer is None:
            message = "the plan had neither an action nor a final answer"
            return ModelReply(Message("assistant", tuple(parts)), "end_turn", usage, problem=message)
        await emit(str(plan.final_answer))
        return ModelReply(Message("assistant", (*parts, Text(str(plan.final_answer)))), "end_turn", usage)

    async def close(self) -> None:
        if (close := getattr(getattr(self._planner, "model", None), "close", None)) is not None:
            await close()


def _arguments(name: str, given: Any, tools: Iterable[ToolSpec]) -> Mapping[str, Any] | str:
    if isinstance(given, Mapping):
        return given
    schema = next((spec.parameters for spec in tools if spec.name == name), None)
    return arguments_for("" if given is None else str(given), schema)


def _situation(messages: tuple[Message, ...]) -> tuple[str, AgentState]:
    """Return the question, and the state as the document's planner reads it: the conversation up to it, and the steps since.

    It is made from the records for every step. What a planner adds to it is not there the next time."""
    question = _asked.get()
    last = {one is question: at for at, one in enumerate(messages) if one is question or one.role == "user"}
    place = last.get(True, last.get(False, 0))  # a part of the context may have changed it
    state = AgentState()
    for message in messages[: place + 1]:
        if message.role != "tool" and message.text:
            state.add_message(message.role, message.text)
    results = {part.call_id: part for one in messages[place:] for part in one.parts if isinstance(part, ToolResult)}
    for message in messages[place:]:
        for call in message.calls:
            seen = result_text(results[call.id]) if call.id in results else None
            state.add_step(AgentStep(message.thinking or message.text, call.name, one_text(call.args), seen))
    return messages[place].text if messages else "", state


def as_guardrails(given: Any) -> Guardrails:
    """Return guardrails, or a form of an object that has their two methods. Its thoughts are judged if it has a third."""
    if isinstance(given, Guardrails):
        return given
    if not callable(getattr(given, "check_input", None)) or not callable(getattr(given, "check_output", None)):
        raise _part_error("guardrails", "check_input and check_output", given)
    made: Any = Guardrails(None, None)
    made.check_input, made.check_output = given.check_input, given.check_output
    made.check_thought = getattr(given, "check_thought", lambda text: GuardrailResult())
    return made  # type: ignore[no-any-return]


def as_fallback(given: Any) -> FallbackStrategy:
    """Return a fallback strategy, or a form of an object that has its method."""
    if isinstance(given, FallbackStrategy):
        return given
    if not callable(getattr(given, "execute_with_fallback", None)):
        raise _part_error("fallback_strategy", "async execute_with_fallback", given)
    made: Any = FallbackStrategy()
    made.execute_with_fallback = given.execute_with_fallback
    return made  # type: ignore[no-any-return]


def _part_error(name: str, methods: str, given: Any) -> ConfigError:
    message = notice(
        "react.part",
        "{name} needs the methods {methods}, which {given!r} does not have",
        name=name,
        methods=methods,
        given=given,
    )
    return ConfigError(message)
