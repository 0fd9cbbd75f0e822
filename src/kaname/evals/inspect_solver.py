"""kaname agents as solvers of inspect_ai, for its benchmarks, scorers and log viewer. The package is imported on first use."""

from __future__ import annotations

from typing import Any

from ..agent.agent import Agent
from ..core.errors import ConfigError
from ..core.install import install_command
from .subject import as_agent


def as_solver(agent: Any) -> Any:
    """Return a solver of inspect_ai that runs the agent: `Task(dataset, solver=as_solver(agent), scorer=match())`.

    Each sample is a run in the agent's journal. Its id, how it ended and its tool calls are in the metadata of the sample.
    inspect_ai needs a model of its own, which is not called: pass `model="mockllm/model"`.

    Raises:
        ConfigError: If inspect_ai is not installed, or `agent` is not an agent.
    """
    try:
        from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage
        from inspect_ai.solver import solver
    except ImportError as problem:
        command = install_command("inspect")
        raise ConfigError.of(
            "eval.no_inspect", "inspect_ai is not installed. Install it with: {command}", command=command
        ) from problem
    found = as_agent(agent)
    if found is None:
        raise ConfigError.of("eval.no_solver", "as_solver() expects an Agent or a Workflow, not {given!r:.100}", given=agent)
    made: Agent[Any] = found

    def kaname_agent() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            given = state.input
            said = given if isinstance(given, str) else [{"role": one.role, "content": one.text} for one in given]
            result = await made.run(said)
            model, usage = result.models[-1] if result.models else made.name, result.usage
            state.output = ModelOutput.from_content(model, result.text)
            state.output.usage = ModelUsage(input_tokens=usage.input, output_tokens=usage.output, total_tokens=usage.total)
            state.messages.append(ChatMessageAssistant(content=result.text))
            calls = [one["function"]["name"] for one in result.tool_calls]
            data = {"run_id": result.run_id, "stop": result.stop.kind, "calls": calls, "cost": usage.cost}
            state.metadata = {**(state.metadata or {}), "kaname": data}
            state.completed = True
            return state

        return solve

    register: Any = solver
    return register(kaname_agent)()
