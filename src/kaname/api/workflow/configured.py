"""Workflow files with the agents and tools of a configuration: those that `workflows` in `kaname.yaml` names, or any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...kernel.ports import Journal
from ..agent import Agent
from ..config.build import Config
from ..config.load import mistaken
from .workflow import Workflow


def with_agents(
    path: str | Path, agents: Mapping[str, Agent[Any]], tools: Iterable[Any] = (), journal: Journal | str | None = None
) -> Workflow:
    """Read a workflow file. Its steps can use these agents, the agents' tools, and `tools`."""
    named = [*[tool for agent in agents.values() for tool in agent.tools.values()], *tools]
    known = {getattr(tool, "name", str(number)): tool for number, tool in enumerate(named)}
    return Workflow.from_file(path, known.values(), agents=agents, journal=journal)


def configured_workflows(
    config: Config, agents: Mapping[str, Agent[Any]], journal: Journal | str | None = None
) -> list[Workflow]:
    """Read the workflows that a configuration names. Raises `ConfigError` with all that is wrong with any of them."""
    made, wrong = list[Workflow](), list[str]()
    for path in config.workflow_files:
        try:
            made.append(with_agents(path, agents, journal=journal))
        except ConfigError as problem:
            wrong += problem.mistakes or [str(problem)]
    if wrong:
        raise mistaken(wrong)
    return made
