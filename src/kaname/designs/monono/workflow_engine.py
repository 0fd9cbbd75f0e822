"""`WorkflowEngine`: run workflows from YAML or JSON, or from a plan, with the tools of a registry; report each step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...agent.agent import Agent
from ...core.errors import ConfigError, RunNotFound
from ...core.events import Opened
from ...kernel.ports import Journal
from ...run.input import as_list, as_tools
from ...run.run import Run
from ...stores.default import choose
from ...strategies.graph.plan import ExecutionPlan
from ...tools.passed import is_registry
from ...workflows.file import read_workflow
from ...workflows.workflow import Workflow
from .trace_logger import as_sink


class WorkflowEngine:
    """Runs workflows with the tools of a registry; a tool that is registered later is found by the next `load` or `run`.

    A definition is the path of a file, its text (YAML or JSON), the same as a dict, a list of steps, an `ExecutionPlan` of
    a planner, or a `Workflow` that `load` returned. Everything in it is checked before anything runs.

    Args:
        tool_registry: A `ToolRegistry`, or a list of tools. Methods that a subclass overrides are what is called.
        agents: Agents that steps can use by name: a dict, or a list.
        journal: Where runs are kept, as for `Agent`.
        trace_logger: A `TraceLogger`, or an object with `trace(event, data)`.
        **options: As for `Workflow`: `policies`, `stops`, `model`, `sinks`.

    Attributes: flows: The workflows that were loaded, by name. The model of `BaseAgent(workflow_engine=…)` can run them.
    """

    def __init__(
        self,
        tool_registry: Any = (),
        *,
        agents: Mapping[str, Agent[Any]] | Iterable[Agent[Any]] = (),
        journal: Journal | str | Path | None = None,
        trace_logger: Any = None,
        **options: Any,
    ) -> None:
        self.tool_registry = tool_registry if is_registry(tool_registry) else as_list(tool_registry)
        self.agents = dict(agents) if isinstance(agents, Mapping) else {agent.name: agent for agent in agents}
        self.journal = choose(journal)
        sinks = (*options.pop("sinks", ()), *(() if trace_logger is None else (as_sink(trace_logger),)))
        self._options = {**options, "journal": self.journal, "sinks": sinks}
        self.flows: dict[str, Workflow] = {}

    def load(self, definition: Any) -> Workflow:
        """Read and check a definition. Raises `ConfigError` with every mistake, each with its place."""
        if isinstance(definition, Workflow):
            flow = definition
        elif isinstance(definition, Path) or (isinstance(definition, str) and not _is_text(definition)):
            flow = self._read(Path(definition), None)
        else:
            flow = self._read(Path("workflow"), definition if isinstance(definition, str) else _text(definition))
        self.flows[flow.name] = flow
        return flow

    def run(self, definition: Any, params: Mapping[str, Any] | None = None, **options: Any) -> Run[Any]:
        """Run a workflow: `await` the result, or `async for` the chunks. `options` are those of `Agent.run`."""
        return self.load(definition).run(params, **options)

    async def resume(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Continue after a crash, a stop or a question, and return the result. `answers`: by the keys of `result.questions`.

        The definition is the file that the run was started from, or one that was loaded under its name.
        """
        return await (await self._of(run_id)).resume(run_id, answers, **options)

    async def status(self, run_id: str) -> dict[str, Any]:
        """Return the progress of a run: `workflow`, `status`, `progress` (0 to 1), and `steps`.

        Each of the `steps` has `status` (`waiting`, `running`, `done`, `failed`, `skipped` or `undone`), `output` and `error`.
        """
        flow = await self._of(run_id)
        (card,) = await self.journal.runs(run_id=run_id, limit=1)
        held = await flow.progress(run_id)
        done = held.settled / max(1, len(held.nodes))
        return {"workflow": flow.name, "status": card.status, "progress": done, "steps": held.told()}

    def _read(self, path: Path, text: str | None) -> Workflow:
        tools = list(as_tools(self.tool_registry, ()).values())
        return read_workflow(path, tools, Workflow, {**self._options, "agents": self.agents}, text=text)

    async def _of(self, run_id: str) -> Workflow:
        """Return the workflow of a run: one that was loaded, or read from the file that the run was started from."""
        async for event in self.journal.read(run_id):
            if event.agent in self.flows:
                return self.flows[event.agent]
            origin = event.body.recipe.get("origin") if isinstance(event.body, Opened) else None
            if isinstance(origin, Mapping) and "workflow" in origin:
                return self.load(Path(origin["workflow"]))
            raise ConfigError.of(
                "workflow.not_loaded",
                "run {run_id} belongs to the workflow {name!r}. Load its definition first: engine.load(…)",
                run_id=run_id,
                name=event.agent,
            )
        raise RunNotFound(run_id)


def _is_text(given: str) -> bool:
    return "\n" in given or given.lstrip().startswith("{")


def _text(definition: Any) -> str:
    """Write a definition that is not a text as one."""
    if isinstance(definition, ExecutionPlan):
        steps = [_step(one, number) for number, one in enumerate(definition.steps, 1)]
        held: Any = {"name": definition.description or "plan", "params": dict(definition.parameters), "steps": steps}
        definition = {"workflow": held}
    elif isinstance(definition, list | tuple):
        definition = {"workflow": {"steps": list(definition)}}
    if not isinstance(definition, Mapping):
        raise ConfigError.of(
            "workflow.definition", "{given!r:.100} is not a workflow: pass a path, a text, a dict or a plan", given=definition
        )
    try:
        return json.dumps(definition, ensure_ascii=False, indent=1)
    except (TypeError, ValueError) as problem:
        raise ConfigError.of(
            "workflow.no_json", "the definition cannot be written as JSON: {problem}", problem=problem
        ) from None


def _step(step: Any, number: int) -> dict[str, Any]:
    made = {"name": step.name or f"step{number}", "tool": step.tool_name, "args": dict(step.arguments)}
    made |= {"depends_on": list(step.depends_on)} if step.depends_on else {}
    return made | ({"timeout": step.timeout} if step.timeout else {})
