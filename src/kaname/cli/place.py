"""Find what the command line means: the configuration, the program of `-a`, the journal. Agents are made in `agent.py`."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..stores.default import default_path
from ..stores.places import is_file, shown_place
from .last import remember
from .messages import config_error
from .terminal.screen import Screen

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..config.build import Config
    from ..designs.orchestrator.orchestrator import AgentOrchestrator
    from ..workflows.workflow import Workflow

FILES = ("kaname.yaml",)  # not `config.yaml`, which other programs use: pass that one with --config


def config_for(args: argparse.Namespace) -> Config | None:
    """Return the configuration: `--config`, or `kaname.yaml` in this folder; None without both."""
    files = args.config or [name for name in FILES if os.path.isfile(name)][:1]
    if not files:
        return None
    from ..config.build import load_config

    return load_config(*files)


def programs_own(args: argparse.Namespace) -> Agent | Workflow | AgentOrchestrator | None:
    """Return the object that `-a` names by its place in a program (`desk.py:desk`, `package.module:name`), or None."""
    place = args.agent or ""
    if ":" not in place:
        return None
    from ..designs.orchestrator.orchestrator import agent_behind
    from ..tools.loading import object_from

    found = object_from(place, Path(getattr(args, "folder", None) or Path.cwd()))
    if isinstance(found, list | tuple) and found:  # a list of agents to serve: use the first
        found = found[0]
    if (agent := agent_behind(found)) is None:
        raise config_error(
            f"{place} is {found!r:.100}, not an Agent, a Workflow or an AgentOrchestrator",
            f"{place} は Agent、Workflow、AgentOrchestrator のどれでもありません: {found!r:.100}",
        )
    remember(args, agent.journal)
    return found  # type: ignore[no-any-return]


def programs_agent(args: argparse.Namespace) -> Agent | None:
    """Return the agent of a program: its agent, or the agent behind its workflow or orchestrator."""
    made: Any = programs_own(args)
    return getattr(made, "agent", made)  # type: ignore[no-any-return]


def programs_workflow(args: argparse.Namespace) -> Workflow | None:
    """Return the workflow of a program, or None if `-a` names something else."""
    if (made := programs_own(args)) is None:
        return None
    from ..workflows.workflow import Workflow

    return made if isinstance(made, Workflow) else None


def agent_name(args: argparse.Namespace) -> str:
    """Return the name of the agent whose runs are meant; empty for all agents."""
    made = programs_agent(args)
    return args.agent or "" if made is None else made.name


def journal_for(args: argparse.Namespace) -> str | None:
    """Return the path of the journal that the options or the configuration name, or None."""
    if args.journal:
        return str(args.journal)
    if (made := programs_agent(args)) is not None:
        return made.journal.stores.place or None
    if (config := config_for(args)) is None:
        return None
    from ..workflows.configured import workflow_file

    flow = workflow_file(config, args.agent) if args.agent else None
    return config.agent(None if flow else args.agent).journal_path or None


def journal_place(args: argparse.Namespace) -> str:
    """Return the path of the journal: from the options, the configuration, the environment, or the default."""
    return journal_for(args) or os.environ.get("KANAME_JOURNAL") or default_path()


def names_program(args: argparse.Namespace) -> bool:
    """Return True if `-a` names an agent of a program, as `FILE.py:NAME`."""
    return ":" in (args.agent or "")


def place_options(args: argparse.Namespace) -> str:
    """Return the options that a printed command needs to find this journal, and the agent of a program, again."""
    place = journal_for(args)
    plain = argparse.Namespace(journal=None, config=None, agent=None)
    usual = journal_place(plain)
    same = place is None or place == usual or (is_file(place) and os.path.realpath(place) == os.path.realpath(usual))
    whose = f" -a {shlex.quote(args.agent)}" if names_program(args) else ""
    return whose if same else f"{whose} --journal {shlex.quote(shown_place(str(place)))}"


def note_place(args: argparse.Namespace, screen: Screen) -> None:
    """Say which journal was read, after a command that found nothing there, and how to name another."""
    place = shown_place(journal_place(args))
    screen.tell(
        f"looked in {place}; for another journal: -a FILE.py:NAME, -c FILE or --journal FILE",
        f"調べたジャーナル: {place}。別のジャーナルは -a FILE.py:名前、-c FILE、--journal FILE で指定できます",
    )


def is_resumable(recipe: Mapping[str, Any]) -> bool:
    """Return True if the command line started a run, or served it, so that it knows how to make its agent again."""
    origin = recipe.get("origin")
    return isinstance(origin, Mapping) and "folder" in origin and ("program" not in origin or "agent" in origin)
