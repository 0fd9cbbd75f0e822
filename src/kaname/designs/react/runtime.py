"""Design A, the ReAct runtime: a planner, tools, guardrails and a fallback, put together. It is a way to call the one loop."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...agent.agent import Agent
from ...context.history import AgentState
from ...core.errors import BadArguments, ConfigError, ModelError, ToolNotFoundError
from ...core.messages import Message, ModelRequest, Thinking, ToolCall, ToolResult, ToolSpec, Usage, user
from ...core.notices import notice
from ...core.openai_shape import from_openai
from ...core.record import record, replace
from ...core.steps import AgentStep
from ...core.values import plain_text
from ...kernel.arguments import receive
from ...kernel.chain import overrides
from ...kernel.ports import Journal, Model
from ...kernel.scope import silent
from ...models.prompted.react.model import TextOnly
from ...models.registry import resolve
from ...policies.content.guardrails.policy import Guardrails
from ...policies.failure.tool_fallback import FallbackStrategy, one_text
from ...run.result import Result
from ...run.run import Run
from ...strategies.react import React
from ...strategies.stop import max_steps as steps_limit
from ...strategies.stop import no_repeats, per_tool
from ...tools.definition import TextTool
from ...tools.registry import ToolRegistry
from .parts import Around, PlannedModel, PlanResult, ToolNames, as_fallback, as_guardrails, count_usage

LLMProvider = Model  # the document's name
_ASKED_AGAIN = 2
_REASONS = {"completed": "completed", "max_steps": "max_steps_reached", "degraded": "tool_failure_degraded"}
_WITHOUT_ANSWER = ("blocked", "incomplete", "failed")
_PARTS = ("planner", "tool_registry", "guardrails", "fallback_strategy", "max_steps")


@record
class AgentResult:
    """The result of `AgentRuntime.run`.

    Attributes:
        answer: The answer. If there is none, a sentence that says so.
        steps: The steps: thought, action, input and observation.
        tool_calls: The number of tool calls.
        stopped_reason: `completed`, `max_steps_reached`, `tool_failure_degraded`, `blocked`, or the kind of another stop, such
            as `incomplete` if the model's replies could not be read.
        run_id: The id of the run.
        usage: Tokens and cost of the run.
        detail: The details of `stopped_reason`.
    """

    answer: str
    steps: list[AgentStep]
    tool_calls: int
    stopped_reason: str
    run_id: str = ""
    usage: Usage = Usage()
    detail: str = ""


class ReActPlanner:
    """Plans with any model that can write text: its tool calls are read from its text.

    Args:
        llm_provider: A model, the name of a model, or the name of a provider.
        model: The name of the model, if `llm_provider` is the name of a provider.
    """

    def __init__(self, llm_provider: LLMProvider | str, model: str = "") -> None:
        named = f"{llm_provider}/{model}" if isinstance(llm_provider, str) and model else llm_provider
        self.model = TextOnly(resolve(named))

    async def plan(self, query: str, state: AgentState, available_tools: Iterable[Any] | ToolRegistry) -> PlanResult:
        """Return the next step, from the conversation and the steps so far.

        A reply that cannot be read is asked for again, twice at most. Raises `ModelError` after that.
        """
        messages = [*_conversation(query, state), *_so_far(state)]
        tools = _specs(available_tools)
        for _ in range(_ASKED_AGAIN + 1):
            reply = await self.model.reply(ModelRequest(tuple(messages), tools, stream=False), silent)
            count_usage(reply.usage)
            if not reply.problem:
                break
            messages += [reply.message, user(reply.note)]
        else:
            problem = notice(
                "stop.unreadable", "the model's replies could not be read, even after retries: {problem}", problem=reply.problem
            )
            raise ModelError(problem, model=self.model.name)
        thought, text = reply.message.thinking, reply.message.text
        for call in reply.message.calls:
            return PlanResult(thought, call.name, one_text(call.args))
        return PlanResult(thought, final_answer=text)


def _conversation(query: str, state: AgentState) -> list[Message]:
    said = [from_openai(message) for message in state.get_messages()]
    asked = bool(said) and said[-1].role == "user" and said[-1].text == query
    return said if asked else [*said, user(query)]


def _so_far(state: AgentState) -> Iterable[Message]:
    for number, step in enumerate(state.get_steps()):
        if step.action is not None:
            args = step.action_input if isinstance(step.action_input, dict | str) else plain_text(step.action_input)
            yield Message("assistant", (Thinking(step.thought or ""), ToolCall(f"s{number}", step.action, args)))
            yield Message("tool", (ToolResult(step.observation, call_id=f"s{number}", name=step.action),))


def _specs(tools: Iterable[Any] | ToolRegistry) -> tuple[ToolSpec, ...]:
    if isinstance(tools, ToolNames):
        return tools.specs
    if isinstance(tools, ToolRegistry):
        return tuple([ToolSpec(tool.name, tool.description, tool.parameters, tool.effect) for tool in tools.values()])
    listed = list(tools)
    named = [ToolSpec(tool, tool, TextTool.parameters) for tool in listed if isinstance(tool, str)]
    others = ToolRegistry([tool for tool in listed if not isinstance(tool, str)])
    return (*named, *(_specs(others) if others else ()))


class AgentRuntime:
    """Check the input, plan, look the tool up, execute it with fallback, record the observation, again; check the output.

    Each part can be the built-in one, a subclass, or an object with the same methods: `planner.plan`, `tool_registry.get`,
    `has` and `list_tools`, `guardrails.check_input` and `check_output`, `fallback_strategy.execute_with_fallback`. A tool
    that is registered later is found at once. `agent` is what runs: it can resume and fork runs, and has sessions.

    Args:
        planner: A `ReActPlanner`, or an object with `plan`.
        tool_registry: A `ToolRegistry`, or a list of tools.
        guardrails: Checks of the input and the output (default: `Guardrails()`).
        fallback_strategy: What to do about tools that fail (default: `FallbackStrategy()`).
        max_steps: The most steps (default: 10).
        name: The name of the agent.
        instructions: The system prompt.
        journal: Where runs are recorded, as for an `Agent`.

    Raises:
        ConfigError: A part does not have its methods.
    """

    def __init__(
        self,
        planner: Any,
        tool_registry: Any = (),
        guardrails: Any = None,
        fallback_strategy: Any = None,
        max_steps: int = 10,
        *,
        name: str = "agent",
        instructions: str = "",
        journal: Journal | str | Path | None = None,
    ) -> None:
        self.planner, self.tool_registry, self.max_steps = planner, tool_registry, max_steps
        self.guardrails, self.fallback_strategy = guardrails or Guardrails(), fallback_strategy or FallbackStrategy()
        self.agent = Agent(
            _model_of(planner),
            tool_registry,
            name=name,
            instructions=instructions,
            policies=(Around(), as_guardrails(self.guardrails), as_fallback(self.fallback_strategy)),
            stops=[steps_limit(max_steps), no_repeats(None), per_tool(None)],
            strategy=React(concludes=False),  # the limit is the document's: not one call more
            journal=journal,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PARTS and "agent" in self.__dict__:
            raise ConfigError.of("react.fixed", "{name} cannot be changed later: create another AgentRuntime", name=name)
        super().__setattr__(name, value)

    def stream(self, query: str, **options: Any) -> Run:
        """Begin the same run, to be iterated for its chunks."""
        return self.agent.run(query, **options)

    async def run(self, query: str, **options: Any) -> AgentResult:
        """Answer the query. `options`: those of `Agent.run`, such as `session_id`."""
        return _as_result(await self.agent.run(query, **options), self.agent.tools)


def _model_of(planner: Any) -> Model:
    """The planner's model, if only that is asked by its `plan`; else a model that asks the planner."""
    if isinstance(planner, ReActPlanner) and not overrides(planner, "plan", ReActPlanner):
        return planner.model
    if not callable(getattr(planner, "plan", None)):
        raise ConfigError.of(
            "react.planner",
            "planner must be a ReActPlanner(llm_provider, model), or have plan(query, state, available_tools), not {planner!r}",
            planner=planner,
        )
    return PlannedModel(planner)


def _as_result(result: Result, tools: ToolRegistry) -> AgentResult:
    answer = plain_text(result.output or "")
    if result.stop.kind in _WITHOUT_ANSWER and (result.stop.kind == "blocked" or not answer):
        answer = result.stop.detail
    begun: list[Any] = [*result.state.results.values(), *[started.call for started in result.state.started.values()]]
    calls = sum(call.name in tools for call in begun)
    reason = _REASONS.get(result.stop.kind, result.stop.kind)
    steps = [_as_the_tool_got_it(step, tools) for step in result.steps]
    return AgentResult(answer, steps, calls, reason, result.run_id, result.usage, result.stop.detail)


def _as_the_tool_got_it(step: AgentStep, tools: ToolRegistry) -> AgentStep:
    """The step with the input that its tool received: a text, for a tool that takes one, and where no tool received it."""
    if step.action is None:
        return step
    try:
        got = receive(ToolCall("", step.action, step.action_input), tools.get(step.action))
    except (BadArguments, ToolNotFoundError):
        return replace(step, action_input=one_text(step.action_input))
    return replace(step, action_input=got.received if isinstance(got.received, str) else dict(got.shown.args))
