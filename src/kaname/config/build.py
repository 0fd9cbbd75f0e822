"""Read and check `kaname.yaml`, or the tiny agent's `config.yaml`, and build the agents of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.notices import notice
from ..core.project import FOLDER
from ..core.record import field, record
from ..kernel.ports import Policy
from ..memory.retention import Keep
from ..models.registry import maker, resolve
from ..run.handoffs.handoff import Named
from ..stores.places import is_file
from ..tools.loading import all_tools, object_from
from ..tools.registry import as_action
from . import makers
from .encryption import apply_encryption
from .keys import PARTS, SYNONYMS, TABLE, check_block, is_place
from .llm import LLM_SETTINGS, LLMConfig
from .load import Reading, check, mistakes_error

_SHARED = ("limits", "permissions", "journal", "trace")  # keys of the file that hold for each agent
_BUILTIN = ("search", "database", "senses")  # options of kaname's own tools


@record
class AgentConfig:
    """One agent, checked.

    Args:
        name: Its name in the file.
        value: Its keys, with the keys of the file that hold for all agents.
        folder: The folder of the file. Paths are relative to it.
        alone: Whether it is the only agent of the file.
        providers: Keys and addresses by provider.
        builtin: Options of kaname's own tools by name.
        reading: The file, for the lines of mistakes.
    """

    name: str
    value: Mapping[str, Any] = field(factory=dict)
    folder: str = "."
    alone: bool = False
    providers: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    builtin: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    reading: Reading | None = None

    @property
    def model(self) -> Any:
        """Return the model as the file names it, or ""."""
        return self.value.get("model", "")

    @property
    def instructions(self) -> str:
        """Return the system prompt, or ""."""
        return self.value.get("instructions") or ""

    @property
    def mcp_servers(self) -> Mapping[str, Any]:
        """Return the tool servers of the agent by name."""
        return self.value.get("mcp_servers") or {}

    def with_keys(self, providers: Mapping[str, Mapping[str, Any]] | None = None, **keys: Any) -> AgentConfig:
        """Return this agent with other values of some keys."""
        others = (self.folder, self.alone, self.providers if providers is None else providers, self.builtin, self.reading)
        return AgentConfig(self.name, {**self.value, **keys}, *others)

    def _make_parts(self, making: makers.Making) -> dict[str, list[Any]]:
        """Return the parts that keys of the table make, by the parameter of `Agent` that takes them."""
        made: dict[str, list[Any]] = {"tools": [], "policies": [], "context": [], "stops": []}
        for name, (parameter, make_part) in PARTS.items():
            value = self.value.get(name)
            if value or isinstance(value, Mapping):  # {} means: with its defaults
                made[parameter] += making.make(make_part, name)
        if self.value.get("approval") and not self.value.get("approve"):
            message = notice("config.approval", "approval says how the tools under approve are asked about, but none is there")
            making.wrong(("approval",), message)
        return made

    def parts(self) -> dict[str, Any]:
        """Return the arguments of `Agent`, except the team. Raises `ConfigError` with all mistakes, each with its line."""
        reading = self.reading or Reading()
        before, where, folder = len(reading.mistakes), ("agents", self.name), Path(self.folder)

        def wrong(place: tuple[str, ...], message: str) -> None:
            reading.wrong((*where, *place), message)

        tools = all_tools(self.value.get("tools") or (), folder, lambda n, text: wrong(("tools", str(n)), text), self.builtin)
        known = not self.mcp_servers and len(reading.mistakes) == before
        names = frozenset([as_action(tool).name for tool in tools]) if known else None
        making = makers.Making(folder, self.value, names, self.alone, self.cache_path, wrong)
        made = self._make_parts(making)
        model = making.attempt(lambda: self._models(self.model), "model")
        sinks = makers.sinks(self.value.get("trace") or {}, folder, lambda name, text: reading.wrong(("trace", name), text))
        reading.raise_all(before)
        return {
            "name": self.name,
            "instructions": self.instructions,
            "settings": self.value.get("settings") or {},
            "mcp_servers": self.mcp_servers or None,
            "journal": self.journal_path or None,
            "model": model,
            "sinks": tuple(sinks),
            "tools": [*tools, *made["tools"]],
            "policies": tuple(made["policies"]),
            "context": tuple(made["context"]),
            "stops": made["stops"] or None,
        }

    @property
    def journal_path(self) -> str:
        """Return the path of the journal, relative to the file; by default one next to the file. A URL stays as it is."""
        named = self.value.get("journal") or ""
        if named and not is_file(named):
            return str(named)
        if not named:
            return os.environ.get("KANAME_JOURNAL") or str(Path(self.folder).resolve() / FOLDER / "journal.db")
        return str(Path(self.folder) / Path(named).expanduser())

    @property
    def cache_path(self) -> str:
        """Return the path of the cache, relative to the file; by default one next to the file."""
        named = mapping(self.value.get("cache")).get("path")
        folder = Path(self.folder).resolve()
        return str(folder / Path(named).expanduser() if named else folder / FOLDER / "cache.db")

    def _models(self, named: Any) -> Any:
        """Return the model, or the list of models. Mistakes in the later ones of a list are raised now, too."""
        if isinstance(named, list | tuple):
            return [resolve(one) if isinstance(one, str) else one for one in map(self._models, named)]
        own = {name: value for name, value in named.items() if name != "model"} if isinstance(named, Mapping) else {}
        model = self._model(named["model"] if isinstance(named, Mapping) else named, own)
        if isinstance(model, str) and model.startswith(("local/", "scripted/")):
            return resolve(model)  # is the file there?
        return model

    def _model(self, named: str, own: Mapping[str, Any]) -> Any:
        """Return a model with the key and address of its provider. `own`: what the file says for this model alone."""
        if not named:
            return None
        if is_place(named):
            loaded = object_from(named, Path(self.folder))
            return resolve(loaded() if isinstance(loaded, type) else loaded)
        provider, _, rest = named.partition("/")
        if provider in ("local", "scripted") and rest:
            rest = str(Path(self.folder) / Path(rest).expanduser())
        shared = {name: value for name, value in self.providers.get(provider, {}).items() if name != "model"}
        if not shared and not own:
            return f"{provider}/{rest}" if rest else named

        return maker(provider)(*([rest] if rest else []), **{**shared, **own})


@record
class Config:
    """The contents of configuration files, checked.

    Args:
        agents: The agents by name. The first is used where none is named.
        files: The files.
        value: All keys, as the files have them.
    """

    agents: Mapping[str, AgentConfig]
    files: tuple[str, ...] = ()
    value: Mapping[str, Any] = field(factory=dict)

    def agent(self, name: str | None = None) -> AgentConfig:
        """Return an agent by its name, or the first. Raises `ConfigError` if there is none."""
        if name is None:
            return next(iter(self.agents.values()))
        if name not in self.agents:
            raise ConfigError(notice("config.no_agent", "there is no agent {name!r}", name=name) + nearest(name, self.agents))
        return self.agents[name]

    def parts(self, name: str | None = None) -> dict[str, Any]:
        """Return the arguments of `Agent` for an agent of the files, by default the first."""
        agent = self.agent(name)
        team = tuple(agent.value.get("team") or ())
        return {**agent.parts(), "team": Named(team, self.parts, agent.value.get("background", False)) if team else ()}

    @property
    def llm(self) -> LLMConfig | None:
        """Return the short form, or None for a file without it."""
        return LLMConfig(**self.value["llm"]) if self.value.get("llm") else None

    @property
    def mcp_servers(self) -> Mapping[str, Any]:
        """Return the tool servers that all agents share, by name."""
        return self.value.get("mcp_servers") or {}

    @property
    def workflow_files(self) -> list[Path]:
        """Return the workflow files that are served with the agents."""
        folder = Path(self.files[-1]).resolve().parent if self.files else Path()
        return [folder / Path(name).expanduser() for name in self.value.get("workflows") or ()]

    def permits(self) -> tuple[Policy, ...]:
        """Return the permissions of the files as a policy, for workflows. Agents have them among their parts."""
        value = self.value.get("permissions")
        return () if value is None else (makers.permit_of(Path(self.agent().folder), False, **value),)

    @property
    def keep(self) -> Keep | None:
        """Return the retention of runs, or None if the files do not set one."""
        own = {name: mapping(agent).get("keep") for name, agent in mapping(self.value.get("agents")).items()}
        kept = self.value.get("keep")
        return Keep.from_config(kept, own) if kept is not None or any(one is not None for one in own.values()) else None

    def check(self) -> None:
        """Check that the tools, policies and models that the files name exist. Raises `ConfigError` with all mistakes."""
        mistakes: list[str] = []
        for agent in self.agents.values():
            try:
                agent.parts()
            except ConfigError as problem:
                mistakes += problem.mistakes or [str(problem)]
        if mistakes:
            raise mistakes_error(list(dict.fromkeys(mistakes)))


def load_config(*files: str | Path) -> Config:
    """Read and check configuration files. Later files override earlier ones.

    Raises:
        ConfigError: It lists every mistake, with file and line.
    """
    reading = Reading()
    for file in files:
        reading.read(Path(file))
    folder = Path(files[-1]).resolve().parent if files else Path()
    if not reading.mistakes or reading.value:
        _read_server_files(reading, folder)
        named = mapping(reading.value).get("permissions")
        if isinstance(named, str):
            reading.include("permissions", folder / Path(named).expanduser())
        _check_all(reading)
    if reading.mistakes:
        _look_for_tools(reading, folder)  # it will not start: then all that is wrong is worth knowing
    reading.raise_all()
    made = Config(_agents(reading, str(folder)), tuple([str(file) for file in files]), reading.value)
    if encryption := reading.value.get("encryption"):
        agents = made.agents.values()
        apply_encryption(encryption, folder, [one.journal_path for one in agents], [one.cache_path for one in agents])
    return made


def config_of(value: Mapping[str, Any]) -> Config:
    """Check what would stand in a file, made in code. Every mistake is reported at once, as `load_config` does."""
    reading = Reading()
    reading.value = dict(value)
    _check_all(reading)
    reading.raise_all()
    return Config(_agents(reading, "."), (), reading.value)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, or an empty one."""
    return value if isinstance(value, dict) else {}


def _read_server_files(reading: Reading, folder: Path) -> None:
    """Replace the name of another MCP client's configuration file by the servers in it."""
    agents = [(mapping(agent), ("agents", name)) for name, agent in mapping(mapping(reading.value).get("agents")).items()]
    for block, where in [(mapping(reading.value), ()), *agents]:
        file = block.get("mcp_servers")
        if isinstance(file, str) and isinstance(block, dict):
            from ..tools.mcp.config import servers_by_name

            try:
                block["mcp_servers"] = servers_by_name(folder / Path(file).expanduser())
            except ConfigError as problem:
                reading.wrong((*where, "mcp_servers"), str(problem))
                del block["mcp_servers"]


def _look_for_tools(reading: Reading, folder: Path) -> None:
    for name, agent in mapping(mapping(reading.value).get("agents")).items():
        places = mapping(agent).get("tools")
        named = [place for place in places if isinstance(place, str)] if isinstance(places, list) else []
        all_tools(named, folder, lambda n, text, name=name: reading.wrong(("agents", name, "tools", str(n)), text))  # type: ignore[misc]


def _agents(reading: Reading, folder: str) -> dict[str, AgentConfig]:
    value = reading.value
    shared = {name: value[name] for name in _SHARED if name in value}
    servers, agents, llm = mapping(value.get("mcp_servers")), mapping(value.get("agents")), value.get("llm")
    providers = {SYNONYMS.get(name, name): block for name, block in mapping(value.get("models")).items()}
    builtin = {name: value[name] for name in _BUILTIN if value.get(name)}
    alone = len(agents) + bool(llm) == 1
    make = partial(AgentConfig, folder=folder, alone=alone, builtin=builtin, reading=reading)
    made = {}
    for name, agent in agents.items():
        own = mapping(agent).get("mcp_servers") or {}
        used = {one: servers[one] for one in own} if isinstance(own, list) else {**servers, **own}
        made[name] = make(name, {**shared, **mapping(agent), "mcp_servers": used}, providers=providers)
    if llm:
        provider, keys = _short_form(llm)
        block = llm[llm["provider"]]
        made.setdefault("agent", make("agent", {**shared, **keys, "mcp_servers": servers}, providers={provider: block}))
    return made


def _short_form(llm: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the provider of the short form, and the keys of the agent that it describes."""
    provider, block = SYNONYMS.get(llm["provider"], llm["provider"]), llm[llm["provider"]]
    usual = {name: llm.get(name, default) for name, default in LLM_SETTINGS.items()}
    settings = {name: one for name, one in usual.items() if one is not None and name not in block.get("settings", {})}
    return provider, {"model": f"{provider}/{block['model']}" if block.get("model") else provider, "settings": settings}


def _check_all(reading: Reading) -> None:
    """Check the rows of the table, and what depends on several keys."""
    value = reading.value
    check(value, TABLE, (), reading.wrong)
    if not isinstance(value, dict):
        return
    if not value.get("agents") and not value.get("llm"):
        reading.wrong((), notice("config.no_agents", "no agent is defined: add 'agents' or 'llm'"))
    servers, agents = mapping(value.get("mcp_servers")), mapping(value.get("agents"))
    for name, agent in agents.items():
        others = [other for other in agents if other != name]
        own = mapping(agent)
        for where, server in _strange(own.get("mcp_servers"), servers, ("agents", name, "mcp_servers")):
            message = notice("config.no_server", "there is no server {name!r}", name=server)
            reading.wrong(where, message + nearest(server, servers))
        for where, member in _strange(own.get("team"), others, ("agents", name, "team")):
            message = notice("config.no_member", "there is no other agent {member!r}", member=member)
            reading.wrong(where, message + nearest(member, others))
        if own.get("background") and not own.get("team"):
            message = notice(
                "config.background", "background says that the team can work in the background, but there is no team"
            )
            reading.wrong(("agents", name, "background"), message)
    _check_llm(mapping(value.get("llm")), reading)
    for name in mapping(value.get("schedules")).keys() & mapping(value.get("triggers")).keys():
        reading.wrong(("triggers", name), notice("config.trigger_twice", "there is a schedule with the same name"))
    if isinstance(value.get("permissions"), dict):
        _check_permissions(value["permissions"], reading)


def _strange(names: Any, known: Iterable[str], where: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """Return the names of a list that are not known, with their places."""
    listed = enumerate(names if isinstance(names, list) else [])
    return [((*where, str(number)), name) for number, name in listed if isinstance(name, str) and name not in known]


def _check_llm(llm: Mapping[str, Any], reading: Reading) -> None:
    provider = llm.get("provider")
    if not isinstance(provider, str):
        return
    if provider not in llm:
        message = notice(
            "config.no_provider_block", "the block {provider!r} with the settings of the provider is missing", provider=provider
        )
        reading.wrong(("llm",), message)
        return
    if not mapping(llm[provider]).get("model") and provider != "local":
        reading.wrong(("llm", provider), notice("config.model_missing", "the required key 'model' is missing"))
    check_block(provider, mapping(llm[provider]), lambda where, text: reading.wrong(("llm", provider, *where), text))


def _check_permissions(value: Mapping[str, Any], reading: Reading) -> None:
    """Check each rule at its place, and then the whole. Cedar policies are checked when the agent is made."""
    from ..policies.permission.permit import Permit
    from ..policies.permission.rules import read_rule

    unfit: list[Any] = []
    check(value, TABLE["properties"]["permissions"], (), lambda *mistake: unfit.append(mistake))
    known, rules = len(reading.mistakes), value.get("rules")
    for number, rule in enumerate([] if unfit else rules or []):
        try:
            read_rule(rule, number + 1)
        except ConfigError as problem:
            reading.wrong(("permissions", "rules", str(number)), str(problem))
    if not unfit and len(reading.mistakes) == known and "cedar" not in value:
        try:
            Permit(rules, roles=value.get("roles"), resources=value.get("resources"))
        except ConfigError as problem:
            reading.wrong(("permissions",), str(problem))
