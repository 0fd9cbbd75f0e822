"""Workflow files with the agents and tools of a configuration: those that `workflows` in `kaname.yaml` names, or any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..agent.agent import Agent
from ..config.build import Config
from ..config.load import mistakes_error
from ..core.errors import ConfigError, nearest
from ..core.notices import notice
from ..kernel.ports import Journal, Policy
from ..stores.default import choose
from .file import name_in
from .workflow import Workflow

T = TypeVar("T")


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


def configured_parts(config: Config, journal: Journal | str | Path | None = None) -> list[Agent[Any] | Workflow]:
    """Return the agents and workflows of a configuration, with their schedules. All of them use one journal."""
    shared = choose(journal or config.agent().journal_path or None)
    agents = {name: Agent.from_config(config, agent=name, journal=shared) for name in config.agents}
    parts: dict[str, Agent[Any] | Workflow] = {**agents}
    parts |= {flow.name: flow for flow in configured_workflows(config, agents, shared)}
    for part in parts.values():
        (part.agent if isinstance(part, Workflow) else part).schedules = {}  # the file says which there are
    for name, given in (config.value.get("schedules") or {}).items():
        how = dict(given)
        user_input, target = how.pop("input"), find_target(parts, f"schedules.{name}", how.pop("agent", ""))
        if isinstance(target, Workflow):
            user_input, target = target.as_input(user_input), target.agent
        target.schedule(name, user_input, **how)
    return list(parts.values())


def find_target(parts: Mapping[str, T], where: str, name: str) -> T:
    """Return the agent or workflow that a schedule or a webhook names, by default the first. Raises `ConfigError`."""
    if name and name not in parts:
        message = notice("config.no_target", "{where}: there is no agent or workflow {name!r}", where=where, name=name)
        raise ConfigError(message + nearest(name, parts))
    return parts[name or next(iter(parts))]


def workflow_file(config: Config, name: str) -> Path | None:
    """Return the workflow file that a configuration names and whose workflow is called so, if no agent is."""
    files = () if name in config.agents else config.workflow_files
    return next((path for path in files if name_in(path) == name), None)


def _check_name(flow: Workflow, agents: Mapping[str, Any], others: Iterable[Workflow]) -> str:
    """Return the problem with a workflow's name, or "". Names must be unique, because runs are found by them."""
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
