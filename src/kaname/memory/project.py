"""`ProjectContext`: what a project tells its agents. `AGENTS.md`, and skills: folders with a `SKILL.md`, read when needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError
from ..core.messages import Message, system
from ..core.values import shorten
from ..kernel.threads import off_loop
from ..kernel.view import RunView
from ..tools.function import tool

GUIDE, SKILL = ("AGENTS.md", "CLAUDE.md"), "SKILL.md"
SKILLS = ("skills", ".agents/skills", ".claude/skills")
_LONGEST = 20_000  # characters of a guide or a skill
_MOST = 50  # skills
_NAMED, _DESCRIBED = 64, 300  # characters


class Skill(NamedTuple):
    name: str
    description: str
    folder: Path


class ProjectContext:
    """`folder`: the project's. The guide is told with every turn, and as it was then in a replay; of skills the names and what
    they are for, until the model reads one with `read_skill`. Files of a skill are read in its folder, and nowhere else.

    `guide`, `skills`: other files and folders than the usual ones."""

    def __init__(self, folder: str | Path = ".", *, guide: str = "", skills: Sequence[str] = SKILLS) -> None:
        self.folder = Path(folder).expanduser().resolve()
        if not self.folder.is_dir():
            raise ConfigError.of("project.no_folder", "{folder} is not a folder", folder=self.folder)
        self._guides, self._skills = (guide,) if guide else GUIDE, (skills,) if isinstance(skills, str) else tuple(skills)
        if guide and not (self.folder / guide).is_file():
            raise ConfigError.of("project.no_guide", "{guide} was not found in {folder}", guide=guide, folder=self.folder)

    @cached_property
    def tools(self) -> tuple[Any, ...]:
        @tool(effect="pure")
        def read_skill(name: str, file: str = "") -> str:
            """Read how to do something, before you do it: a skill by its name.

            Args:
                name: the name of the skill
                file: another file of the skill, if it names one
            """
            return self.read(name, file)

        return (read_skill,) if any((self.folder / place).is_dir() for place in self._skills) else ()

    def guide(self) -> str:
        """Return the text of the project's guide for agents, or "" if there is none."""
        found = next((path for name in self._guides if (path := self.folder / name).is_file()), None)
        if found is not None and not found.resolve().is_relative_to(self.folder):  # as a foreign repository may have it
            raise ConfigError.of("project.elsewhere", "{path} points outside the project, so it was not read", path=found)
        return "" if found is None else shorten(_text(found), _LONGEST)

    def skills(self) -> list[Skill]:
        return list(self._find_skills())[:_MOST]

    def _find_skills(self) -> Iterator[Skill]:
        seen: set[str] = set()
        for place in self._skills:
            folder = self.folder / place
            for path in sorted(folder.glob(f"*/{SKILL}")) if folder.is_dir() else ():
                inside = path.is_file() and path.resolve().is_relative_to(path.parent.resolve())
                skill = _skill(path) if inside else None
                if skill is not None and skill.name not in seen:
                    seen.add(skill.name)
                    yield skill

    def read(self, name: str, file: str = "") -> str:
        known = {skill.name: skill for skill in self.skills()}
        if name not in known:
            raise ConfigError.of(
                "project.no_skill",
                "there is no skill {name!r}; available: {known}",
                name=name,
                known=", ".join(known) or "none",
            )
        folder = known[name].folder.resolve()
        path = Path(os.path.realpath(folder / (file or SKILL)))
        if not path.is_relative_to(folder) or not path.is_file():
            raise ConfigError.of("project.no_skill_file", "the skill {name} has no file {file!r}", name=name, file=file)
        return shorten(_text(path), _LONGEST)

    async def __call__(self, messages: Sequence[Message], view: RunView) -> Sequence[Message]:
        said = await view.recall(f"project:{view.agent.name}:{view.place(self)}", lambda: off_loop(self.told), turn=True)
        if not said:
            return messages
        head = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
        before = "\n\n".join([*[message.text for message in messages[:head]], str(said)])
        return [system(before), *messages[head:]]

    def told(self) -> str:
        listed = "\n".join([f"- {skill.name}: {skill.description}" for skill in self.skills()])
        skills = f"Skills (call read_skill before you do what one is for):\n{listed}" if listed else ""
        return "\n\n".join([part for part in (self.guide(), skills) if part])


def _skill(path: Path) -> Skill:
    """Its head is YAML between two lines of dashes: `name`, `description`. What is no YAML is read line by line."""
    import yaml

    text = _text(path)
    head = text.split("\n---", 1)[0].removeprefix("---") if text.startswith("---") else ""
    try:
        told = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError, RecursionError):  # `description: use it: when needed`
        lines = [line.partition(":") for line in head.splitlines()]
        told = {name.strip(): value.strip().strip("\"'") for name, _, value in lines}
    told = told if isinstance(told, dict) else {}
    name = " ".join(str(told.get("name") or path.parent.name).split())[:_NAMED]
    return Skill(name, " ".join(str(told.get("description") or "").split())[:_DESCRIBED], path.parent)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace").strip()
    except OSError as problem:
        raise ConfigError.of("project.unreadable", "{path} cannot be read: {problem}", path=path, problem=problem) from problem
