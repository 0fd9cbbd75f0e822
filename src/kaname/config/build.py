"""Build agents from `kaname.yaml` or the tiny agent's `config.yaml`, with the checks that a schema cannot express."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..core.errors import AgentError, ConfigError, nearest
from ..core.notices import notice
from ..core.project import FOLDER
from ..core.record import field, record
from ..kernel.ports import Policy
from ..memory.retention import Keep
from ..models.registry import resolve
from ..run.handoffs.handoff import Named
from ..stores.places import is_file
from .checks import RULES, SYNONYMS, check_all, is_place, keep_of, mapping
from .encryption import apply_encryption
from .llm import LLM_SETTINGS, LLMConfig
from .load import Reading, mistakes_error

_LISTS = ("tools", "approve", "equals", "policies", "team")
_READ_ELSEWHERE = ("keep", "approvers_see")


@record
class AgentConfig:
    """One agent, checked. `parts()` are arguments of `Agent`."""

    name: str
    model: Any = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    mcp_servers: Mapping[str, Any] = field(factory=dict)
    stops: Mapping[str, Any] = field(factory=dict)
    settings: Mapping[str, Any] = field(factory=dict)
    approve: tuple[str, ...] = ()
    approval: Mapping[str, Any] = field(factory=dict)
    guardrails: Mapping[str, Any] | None = None
    flow: Mapping[str, Any] | str | None = None
    privacy: Mapping[str, Any] | bool = False
    fallback: Mapping[str, Any] | None = None
    cache: Mapping[str, Any] | bool = False
    equals: tuple[list[str], ...] = ()
    limits: Mapping[str, Any] = field(factory=dict)
    permissions: Mapping[str, Any] | None = None
    alone: bool = False  # the only agent of the file
    policies: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    background: bool = False
    memory: Literal["", "rules", "model", "nothing"] = ""
    lessons: Literal["", "off", "suggest", "apply"] = ""
    compact: int = 0
    todo: bool = False
    results: Mapping[str, Any] | bool = False
    tool_search: Mapping[str, Any] | None = None
    project: bool | str = False
    providers: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    trace: Mapping[str, Any] = field(factory=dict)
    journal: str = ""
    folder: str = "."
    builtin: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    reading: Reading | None = None

    def parts(self) -> dict[str, Any]:
        """All but its team. Tools, policies and model are made; all that is wrong is told at once, with its line."""
        from ..tools.finding.arrange import ToolSearch
        from ..tools.loading import all_tools
        from .policies import policies_of
        from .traces import traces_of

        reading = self.reading or Reading()
        known, where = len(reading.mistakes), ("agents", self.name)
        folder = Path(self.folder)
        wrong = partial(_wrong_tool, reading, (*where, "tools"))
        tools = all_tools(self.tools, folder, wrong, self.builtin)
        unloaded = len(reading.mistakes) > known
        policies = policies_of(self, None if unloaded else tools, lambda place, told: reading.wrong((*where, *place), told))
        model: Any = None
        try:
            model = self._models(self.model)
        except (AgentError, TypeError) as problem:
            reading.wrong((*where, "model"), str(problem))
        try:
            tools = tools if self.tool_search is None else [*tools, ToolSearch(**self.tool_search)]
        except AgentError as problem:
            reading.wrong((*where, "tool_search"), str(problem))
        context = self._context(lambda name, told: reading.wrong((*where, name), told))
        sinks = traces_of(self.trace, folder, lambda name, told: reading.wrong(("trace", name), told))
        reading.raise_all(known)
        return {
            "context": context,
            "sinks": sinks,
            "name": self.name,
            "instructions": self.instructions,
            "tools": tools,
            "settings": self.settings,
            "mcp_servers": self.mcp_servers or None,
            "stops": [RULES[name](limit) for name, limit in self.stops.items()] or None,
            "journal": self.journal_path or None,
            "policies": policies,
            "model": model,
        }

    def _context(self, wrong: Callable[[str, str], None]) -> tuple[Any, ...]:
        """Build the context parts: project files, compaction, memory, lessons."""
        from ..memory.compact import Compact
        from ..memory.lessons.part import Lessons
        from ..memory.memory import Memory
        from ..memory.project import ProjectContext
        from ..memory.results.part import LargeResults
        from ..memory.todo import Todo

        folder = Path(self.folder).resolve()
        makers: dict[str, Callable[[], Any]] = {
            "project": lambda: ProjectContext(folder / (self.project if isinstance(self.project, str) else ".")),
            "compact": lambda: Compact(self.compact),
            "results": lambda: LargeResults(**(self.results if isinstance(self.results, Mapping) else {})),
            "todo": Todo,
            "memory": lambda: Memory(folder / FOLDER / "memory", learn=self.memory or None),
            "lessons": lambda: Lessons(self.lessons or "off"),
        }
        parts: list[Any] = []
        for name in [name for name in makers if getattr(self, name)]:
            try:
                parts.append(makers[name]())
            except AgentError as problem:
                wrong(name, str(problem))
        return tuple(parts)

    @property
    def journal_path(self) -> str:
        """Return the path of the journal, relative to the file; by default one next to the file. A URL stays as it is."""
        if self.journal and not is_file(self.journal):
            return self.journal
        if not self.journal:
            return os.environ.get("KANAME_JOURNAL") or str(Path(self.folder).resolve() / FOLDER / "journal.db")
        return str(Path(self.folder) / Path(self.journal).expanduser())

    @property
    def cache_path(self) -> str:
        """Return the path of the cache, relative to the file; by default one next to the file."""
        given = self.cache.get("path") if isinstance(self.cache, Mapping) else None
        folder = Path(self.folder).resolve()
        return str(folder / Path(given).expanduser() if given else folder / FOLDER / "cache.db")

    def _models(self, named: Any) -> Any:
        """Return the model, or the list of models. What is wrong with the later ones of a list is told now, too."""
        if isinstance(named, list | tuple):
            return [resolve(one) if isinstance(one, str) else one for one in map(self._models, named)]
        own = {name: value for name, value in named.items() if name != "model"} if isinstance(named, Mapping) else {}
        model = self._model(named["model"] if isinstance(named, Mapping) else named, own)
        if isinstance(model, str) and model.startswith(("local/", "scripted/")):
            return resolve(model)  # is the file there?
        return model

    def _model(self, named: str, own: Mapping[str, Any]) -> Any:
        """Return the model with the key and address of its provider in the file. Paths are relative to the file.

        `own`: what the file says for this model alone.
        """
        if not named:
            return None
        if is_place(named):
            from ..tools.loading import object_from

            found = object_from(named, Path(self.folder))
            return resolve(found() if isinstance(found, type) else found)
        provider, _, rest = named.partition("/")
        if provider in ("local", "scripted") and rest:
            rest = str(Path(self.folder) / Path(rest).expanduser())
        shared = {name: value for name, value in self.providers.get(provider, {}).items() if name != "model"}
        given = {**shared, **own}
        if not given:
            return f"{provider}/{rest}" if rest else named
        from ..models.registry import maker

        return maker(provider)(*([rest] if rest else []), **given)


@record
class Config:
    """All that the files say. The first agent is the one that is meant where none is named."""

    agents: Mapping[str, AgentConfig]
    files: tuple[str, ...] = ()
    value: Mapping[str, Any] = field(factory=dict)

    def agent(self, name: str | None = None) -> AgentConfig:
        if name is None:
            return next(iter(self.agents.values()))
        if name not in self.agents:
            raise ConfigError(notice("config.no_agent", "there is no agent {name!r}", name=name) + nearest(name, self.agents))
        return self.agents[name]

    def parts(self, name: str | None = None) -> dict[str, Any]:
        """The arguments of `Agent` for an agent of the files."""
        agent = self.agent(name)
        return {**agent.parts(), "team": Named(agent.team, self.parts, agent.background) if agent.team else ()}

    @property
    def llm(self) -> LLMConfig | None:
        """The short form; None for a file without it."""
        return LLMConfig(**self.value["llm"]) if self.value.get("llm") else None

    @property
    def mcp_servers(self) -> Mapping[str, Any]:
        """The tool servers that all agents share, by name."""
        return self.value.get("mcp_servers") or {}

    @property
    def workflow_files(self) -> list[Path]:
        """The workflow files that are served with the agents."""
        folder = Path(self.files[-1]).resolve().parent if self.files else Path()
        return [folder / Path(name).expanduser() for name in self.value.get("workflows") or ()]

    def permits(self) -> tuple[Policy, ...]:
        """Return the permissions of the files as a policy, for workflows. Agents have them among their parts."""
        from .policies import permit_of

        given = self.value.get("permissions")
        return () if given is None else (permit_of(Path(self.agent().folder), False, **given),)

    @property
    def keep(self) -> Keep | None:
        """Return how long runs are kept, or None if the files do not say."""
        return keep_of(self.value)

    def check(self) -> None:
        """Check that the tools, policies and models that the files name exist. Raises `ConfigError` with all mistakes."""
        told: list[str] = []
        for agent in self.agents.values():
            try:
                agent.parts()
            except ConfigError as problem:
                told += problem.mistakes or [str(problem)]
        if told:
            raise mistakes_error(list(dict.fromkeys(told)))


def load_config(*files: str | Path) -> Config:
    """Read and check configuration files. Later files override earlier ones.

    Raises:
        ConfigError: It lists every mistake, with file and line.
    """
    reading = Reading()
    for file in files:
        reading.read(Path(file))
    folder = str(Path(files[-1]).resolve().parent) if files else "."
    if not reading.mistakes or reading.value:
        _read_server_files(reading, Path(folder))
        named = mapping(reading.value).get("permissions")
        if isinstance(named, str):
            reading.include("permissions", Path(folder) / Path(named).expanduser())
        check_all(reading)
    if reading.mistakes:
        _look_for_tools(reading, Path(folder))  # it will not start: then all that is wrong is worth knowing
    reading.raise_all()
    made = Config(_agents(reading, folder), tuple([str(file) for file in files]), reading.value)
    if encryption := reading.value.get("encryption"):
        agents = made.agents.values()
        apply_encryption(encryption, Path(folder), [one.journal_path for one in agents], [one.cache_path for one in agents])
    return made


def config_of(value: Mapping[str, Any]) -> Config:
    """Check what would stand in a file, made in code. Every mistake is reported at once, as `load_config` does."""
    reading = Reading()
    reading.value = dict(value)
    check_all(reading)
    reading.raise_all()
    return Config(_agents(reading, "."), (), reading.value)


def _read_server_files(reading: Reading, folder: Path) -> None:
    """Replace the name of another MCP client's configuration file by the servers in it."""
    agents = [(mapping(agent), ("agents", name)) for name, agent in mapping(mapping(reading.value).get("agents")).items()]
    for held, where in [(mapping(reading.value), ()), *agents]:
        file = held.get("mcp_servers")
        if isinstance(file, str) and isinstance(held, dict):
            from ..tools.mcp.config import servers_by_name

            try:
                held["mcp_servers"] = servers_by_name(folder / Path(file).expanduser())
            except ConfigError as problem:
                reading.wrong((*where, "mcp_servers"), str(problem))
                del held["mcp_servers"]


def _look_for_tools(reading: Reading, folder: Path) -> None:
    from ..tools.loading import all_tools

    for name, agent in mapping(mapping(reading.value).get("agents")).items():
        places = mapping(agent).get("tools")
        named = [place for place in places if isinstance(place, str)] if isinstance(places, list) else []
        all_tools(named, folder, partial(_wrong_tool, reading, ("agents", name, "tools")))


def _wrong_tool(reading: Reading, where: tuple[str, ...], number: int, told: str) -> None:
    reading.wrong((*where, str(number)), told)


def _agents(reading: Reading, folder: str) -> dict[str, AgentConfig]:
    value = reading.value
    shared = {"journal": value.get("journal", ""), "trace": value.get("trace") or {}, "folder": folder, "reading": reading}
    shared["limits"], shared["permissions"] = value.get("limits") or {}, value.get("permissions")
    shared["builtin"] = {name: value[name] for name in ("search", "database", "senses") if value.get(name)}
    shared["alone"] = len(value.get("agents") or {}) + bool(value.get("llm")) == 1
    servers, models = value.get("mcp_servers") or {}, value.get("models") or {}
    models = {SYNONYMS.get(name, name): block for name, block in models.items()}
    made = {}
    for name, agent in (value.get("agents") or {}).items():
        given = {key: held for key, held in (agent or {}).items() if key not in _READ_ELSEWHERE}
        for listed in _LISTS:
            given[listed] = tuple(given.get(listed) or ())
        own = given.get("mcp_servers") or {}
        given["mcp_servers"] = {one: servers[one] for one in own} if isinstance(own, list) else {**servers, **own}
        made[name] = AgentConfig(name, **{**shared, **given}, providers=models)
    if value.get("llm"):
        llm = value["llm"]
        provider = llm["provider"]
        ours, block = SYNONYMS.get(provider, provider), llm[provider]
        model = f"{ours}/{block['model']}" if block.get("model") else ours
        settings = {name: llm.get(name, usual) for name, usual in LLM_SETTINGS.items() if name not in block.get("settings", {})}
        settings = {name: value for name, value in settings.items() if value is not None}
        whole = {"mcp_servers": servers, "providers": {ours: block}, "settings": settings, **shared}
        made.setdefault("agent", AgentConfig("agent", model, **whole))
    return made
