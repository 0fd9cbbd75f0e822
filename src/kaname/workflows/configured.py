"""Workflow files with the agents and tools of a configuration: those that `workflows` in `kaname.yaml` names, or any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..agent.agent import Agent
from ..config.build import Config
from ..config.load import mistakes_error
from ..core.errors import ConfigError
from ..core.notices import notice
from ..kernel.ports import Journal, Policy
from .file import name_in
from .workflow import Workflow


def with_agents(
    path: str | Path,
    agents: Mapping[str, Agent[Any]],
    tools: Iterable[Any] = (),
    journal: Journal | str | None = None,
    policies: Iterable[Policy] = (),
) -> Workflow:
    """Read a workflow file. Its steps can use these agents, the agents' tools, and `tools`."""
    named = [*[tool for agent in agents.values() for tool in agent.tools.values()], *tools]
    known = {getattr(tool, "name", str(number)): tool for number, tool in enumerate(named)}
    return Workflow.from_file(path, known.values(), agents=agents, journal=journal, policies=policies)


def configured_workflows(
    config: Config, agents: Mapping[str, Agent[Any]], journal: Journal | str | None = None
) -> list[Workflow]:
    """Read the workflows that a configuration names. Raises `ConfigError` with all that is wrong with any of them."""
    made, wrong = list[Workflow](), list[str]()
    for path in config.workflow_files:
        try:
            flow = with_agents(path, agents, journal=journal, policies=config.permits())
        except ConfigError as problem:
            wrong += problem.mistakes or [str(problem)]
            continue
        if told := _check_name(flow, agents, made):
            wrong.append(f"{path}: " + told)
        made.append(flow)
    if wrong:
        raise mistakes_error(wrong)
    return made


def workflow_file(config: Config, name: str) -> Path | None:
    """Return the workflow file that a configuration names and whose workflow is called so, if no agent is."""
    files = () if name in config.agents else config.workflow_files
    return next((path for path in files if name_in(path) == name), None)


def _check_name(flow: Workflow, agents: Mapping[str, Any], others: Iterable[Workflow]) -> str:
    """Return what is wrong with a workflow's name: runs are found by the name of what made them."""
    if flow.name in agents:
        return notice(
            "workflow.name_of_agent", "an agent is also named {name!r}. Give one of them another name.", name=flow.name
        )
    same = next((other for other in others if other.name == flow.name), None)
    if same is None:
        return ""
    return notice(
        "workflow.name_of_workflow",
        "the workflow in {other} is also named {name!r}. Give one of them another name.",
        other=same.origin["workflow"],
        name=flow.name,
    )
