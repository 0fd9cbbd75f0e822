"""The ReAct runtime: a planner, tools, guardrails and a fallback, put together. It is a way to call the one loop."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...context.history import AgentState
from ...core.errors import ConfigError
from ...core.messages import Message, ModelRequest, Thinking, ToolCall, ToolResult, ToolSpec, Usage, user
from ...core.notices import notice
from ...core.openai_shape import from_openai
from ...core.record import record
from ...core.steps import AgentStep
from ...core.values import plain_text
from ...kernel.ports import Journal, Model
from ...kernel.scope import silent
from ...models.prompted.react.model import TextOnly
from ...models.registry import resolve
from ...policies.fallback import FallbackStrategy
from ...policies.guardrails.policy import Guardrails
from ...strategies.react import React
from ...strategies.stop import max_steps as steps_limit
from ...strategies.stop import no_repeats, per_tool
from ...tools.definition import TextTool
from ...tools.registry import ToolRegistry
from ..agent import Agent
from ..result import Result
from ..run import Run

_ASKED_AGAIN = 2
_REASONS = {"completed": "completed", "max_steps": "max_steps_reached", "degraded": "tool_failure_degraded"}


@record
class AgentResult:
    """`stopped_reason`: `completed`, `max_steps_reached`, `tool_failure_degraded`, `blocked`, or another stop's kind."""

    answer: str
    steps: list[AgentStep]
    tool_calls: int
    stopped_reason: str
    run_id: str = ""
    usage: Usage = Usage()


@record
class PlanResult:
    """An action with its input, or the final answer (then `action` is `None`)."""

    thought: str = ""
    action: str | None = None
    action_input: Any = None
    final_answer: str | None = None


class ReActPlanner:
    """Makes any model that can write text one that uses tools. `llm_provider`: a model, or the name of a provider."""

    def __init__(self, llm_provider: Model | str, model: str = "") -> None:
        named = f"{llm_provider}/{model}" if isinstance(llm_provider, str) and model else llm_provider
        self.model = TextOnly(resolve(named))

    async def plan(self, query: str, state: AgentState, available_tools: Iterable[Any] | ToolRegistry) -> PlanResult:
        """The next step, from the conversation and the steps so far. What cannot be read is asked for again, twice at most."""
        messages = [*_conversation(query, state), *_so_far(state)]
        tools = _specs(available_tools)
        for _ in range(_ASKED_AGAIN + 1):
            reply = await self.model.reply(ModelRequest(tuple(messages), tools, stream=False), silent)
            if not reply.problem:
                break
            messages += [reply.message, user(reply.note)]
        thought, text = reply.message.thinking, reply.message.text
        for call in reply.message.calls:
            return PlanResult(thought, call.name, _input_text(call))
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
    if isinstance(tools, ToolRegistry):
        return tuple([ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools.values()])
    listed = list(tools)
    named = [ToolSpec(tool, tool, TextTool.parameters) for tool in listed if isinstance(tool, str)]
    others = ToolRegistry([tool for tool in listed if not isinstance(tool, str)])
    return (*named, *(_specs(others) if others else ()))


def _input_text(call: ToolCall) -> str:
    """The input as the smallest tools take it: one text."""
    if isinstance(call.args, dict) and len(call.args) == 1:
        return plain_text(*call.args.values())
    return plain_text(call.args)


class AgentRuntime:
    """Check the input, plan, look the tool up, execute it with fallback, record the observation, again; check the output.

    `agent` is what does it: everything that an agent can do (resume, fork, sessions) is there.
    """

    def __init__(
        self,
        planner: ReActPlanner,
        tool_registry: ToolRegistry | Iterable[Any] = (),
        guardrails: Guardrails | None = None,
        fallback_strategy: FallbackStrategy | None = None,
        max_steps: int = 10,
        *,
        name: str = "agent",
        instructions: str = "",
        journal: Journal | str | Path | None = None,
    ) -> None:
        if not isinstance(planner, ReActPlanner):
            raise ConfigError(
                notice("react.planner", "planner is a ReActPlanner(llm_provider, model), not {planner!r}", planner=planner)
            )
        tools = tool_registry.values() if isinstance(tool_registry, ToolRegistry) else tool_registry
        self.agent = Agent(
            planner.model,
            list(tools),
            name=name,
            instructions=instructions,
            policies=(guardrails or Guardrails(), fallback_strategy or FallbackStrategy()),
            stops=[steps_limit(max_steps), no_repeats(None), per_tool(None)],
            strategy=React(concludes=False),  # the limit is the document's: not one call more
            journal=journal,
        )

    def stream(self, query: str, **options: Any) -> Run:
        """The same run, to be iterated for its chunks."""
        return self.agent.run(query, **options)

    async def run(self, query: str, **options: Any) -> AgentResult:
        return told(await self.agent.run(query, **options))


def told(result: Result) -> AgentResult:
    answer = plain_text(result.output or "")
    if result.stop.kind == "blocked":
        answer = result.stop.detail
    calls = sum(isinstance(part, ToolResult) for message in result.state.turn for part in message.parts)
    reason = _REASONS.get(result.stop.kind, result.stop.kind)
    return AgentResult(answer, list(result.steps), calls, reason, result.run_id, result.usage)
