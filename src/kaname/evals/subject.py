"""The agent under evaluation: one for all attempts, or one that is made for the folder of each attempt."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from ..agent.agent import Agent
from ..core.codec import digest, dump
from ..core.errors import ConfigError
from ..core.runs import EVALUATION, EVALUATIONS
from ..kernel.bases import ContextBase, bound_of, optional
from ..kernel.identity import describe_model, describe_tool
from ..kernel.ports import Journal, Recipe
from ..memory.lessons.book import LessonBook
from ..memory.lessons.part import Lessons
from ..run.input import Input
from ..run.recipe import describe
from ..stores.default import choose, path_beside
from .case import Case, without_address


class Subject:
    """The agent under evaluation.

    Attributes: agent: The agent for all attempts; of a function, one for its description. description: What it is, for the
    journal. version: A fingerprint that changes with everything that kaname knows of the agent: its instructions, model,
    tools with their code, settings, limits and policies, and the files of the workspace.
    """

    def __init__(self, given: Any, agent: Agent[Any] | None, journal: Journal | None, files: Path | None) -> None:
        self._make: Callable[[Path], Any] | None = given if agent is None else None
        self._as_input: Callable[[Any], Input] | None = getattr(given, "as_input", None)
        self._files, self._made = files, list[Agent[Any]]()
        self._temporary = tempfile.TemporaryDirectory()
        sample = Path(self._temporary.name) / "sample"
        if agent is None:
            self._fill(sample)
        self.agent = self._build(sample) if agent is None else copy(agent)  # whose journal is changed
        self.journal = self.agent.journal = journal or self._journal_of_all()
        self.description: Mapping[str, Any] = {}
        self.version = ""

    def _journal_of_all(self) -> Journal:
        """Return the journal of the agent; the default one if the agent has its own in the folder that it was made for."""
        own = self.agent.journal
        place = Path(getattr(own, "path", "") or ".").resolve()
        return choose(None) if place.is_relative_to(Path(self._temporary.name).resolve()) else own

    async def describe(self) -> None:
        """Find out what the agent is. Tool servers are started: their tools are a part of it."""
        if self.agent.servers is not None:
            await self.agent.servers.start()
        self.description = describe(self.agent.recipe)
        others = [_version(one) for one in getattr(self.agent, "alternatives", ())]
        told = dump([_version(self.agent.recipe), _contents(self._files), *others, *await self._lessons()])
        self.version = digest(told.replace(self._temporary.name, ""))

    async def _lessons(self) -> list[str]:
        """Return the lessons that every user's runs are told: with others, it is another agent."""
        modes = [part.mode for part in self.agent.recipe.context if isinstance(part, Lessons) and part.identity == ""]
        known = await LessonBook(self.journal).of(self.agent.name, EVALUATION) if modes else []
        return sorted([str(one.advice) for one in known if any(one.is_told(mode) for mode in modes)])

    def input_of(self, case: Case) -> Input:
        """Return the input of a case. For a workflow it is its parameters, checked and with defaults."""
        return case.input if self._as_input is None else self._as_input(case.input)

    @classmethod
    def of(cls, given: Any, journal: Journal | None = None, files: Path | None = None) -> Subject:
        agent = as_agent(given)
        if agent is None and not callable(given):
            raise ConfigError.of(
                "eval.subject",
                "an evaluation expects an Agent, a Workflow, or a function that takes a folder and returns an agent, "
                "not {given!r:.100}",
                given=given,
            )
        return cls(given, agent, journal, files)

    @property
    def is_shared(self) -> bool:
        """Return True if one agent makes all attempts."""
        return self._make is None

    @property
    def about(self) -> dict[str, Any]:
        return {"agent": self.agent.name, "model": self.description["model"]}

    def folder(self, job: str, key: str) -> Path | None:
        """Return the folder of an attempt, with the files of the evaluation; None if the agent needs none."""
        if self._make is None:
            return None
        place = self._root / job / (key if key.replace(".", "").isalnum() else digest(key))
        if not place.exists():
            part = place.with_name(f"{place.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            self._fill(part)
            part.rename(place)  # a crash leaves the whole folder, or none
        return place

    def agent_for(self, folder: Path | None) -> Agent[Any]:
        return self.agent if folder is None else self._build(folder)

    async def close(self) -> None:
        for agent in self._made:
            await agent.close()
        self._temporary.cleanup()

    @property
    def _root(self) -> Path:
        """Return a folder next to the journal, or a temporary one for a journal in memory."""
        return path_beside(self.journal, EVALUATIONS) if self.journal.stores.place else Path(self._temporary.name)

    def _fill(self, folder: Path) -> None:
        """Make a folder with the files of the evaluation."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir() if self._files is None else shutil.copytree(self._files, folder)

    def _build(self, folder: Path) -> Agent[Any]:
        assert self._make is not None
        agent = as_agent(self._make(folder))
        if agent is None:
            raise ConfigError.of("eval.made_no_agent", "the function that makes the agent returned something else")
        if self._made:  # the first one is the sample, whose journal is that of all
            agent.journal = self.journal
        self._made.append(agent)
        return agent


def as_agent(given: Any) -> Agent[Any] | None:
    """Return an agent, or the agent of a workflow or an orchestrator; None for anything else."""
    found = given if isinstance(given, Agent) else getattr(given, "agent", None)
    return found if isinstance(found, Agent) else None


def _version(recipe: Recipe) -> list[Any]:
    tools = {tool.name: describe_tool(tool) for tool in recipe.tools.values()}
    model = [] if recipe.model is None else describe_model(recipe.model)
    limits = [[bound.kind, str(bound.most)] for bound in map(bound_of, recipe.stops)]
    parts = [type(one).__qualname__ for one in (*recipe.policies, *recipe.context)]
    parts += [message for one in recipe.context if (message := str(optional(one, ContextBase, "identity")))]
    settings: Mapping[str, Any] = recipe.settings
    own = [describe(recipe), tools, model, limits, parts, without_address(repr(settings))]
    return [*own, {name: _version(one) for name, one in recipe.team.items() if name != recipe.name}]


def _contents(folder: Path | None) -> list[Any]:
    if folder is None:
        return []
    found = sorted([path for path in folder.rglob("*") if path.is_file()])
    return [[path.relative_to(folder).as_posix(), digest(path.read_bytes().hex())] for path in found]
