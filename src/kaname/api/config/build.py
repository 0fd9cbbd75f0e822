"""Build agents from `kaname.yaml` or the tiny agent's `config.yaml`, with the checks that a schema cannot express."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ...core.durations import seconds
from ...core.errors import AgentError, ConfigError, nearest
from ...core.notices import notice
from ...core.project import FOLDER
from ...core.record import field, record
from ...models.compatible import SERVERS
from ...models.registry import LITELLM, PROVIDERS, resolve, with_slash
from ...strategies.stop import cost, deadline, max_steps, no_repeats, per_tool
from ..memory.retention import Keep, lasting
from ..team.handoff import Named
from .load import Reading, check, mistaken
from .schema import SCHEMA

_SYNONYMS = {"claude": "anthropic"}
_RULES: dict[str, Any] = {
    "max_steps": max_steps,
    "cost": cost,
    "deadline": deadline,
    "no_repeats": no_repeats,
    "per_tool": per_tool,
}
_SERVED = {"model", "api_key", "base_url", "headers", "settings"}  # what a provider takes, unless it is one of these:
_TAKES = {
    "openai": _SERVED | {"tool_mode", "plan_first"},
    "local": {"model", "settings", "tool_mode", "plan_first", "threads", "context"},
    "scripted": {"model"},
    "replay": {"model"},
}
_KEYS = _SERVED | _TAKES["local"]
_LISTS = ("tools", "approve", "policies", "team")


@record
class AgentConfig:
    """One agent, checked. `parts()` are arguments of `Agent`."""

    name: str
    model: str = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    mcp_servers: Mapping[str, Any] = field(factory=dict)
    stops: Mapping[str, Any] = field(factory=dict)
    settings: Mapping[str, Any] = field(factory=dict)
    approve: tuple[str, ...] = ()
    guardrails: Mapping[str, Any] | None = None
    fallback: Mapping[str, Any] | None = None
    policies: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    memory: Literal["", "rules", "model", "nothing"] = ""
    compact: int = 0
    project: bool | str = False
    providers: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    trace: Mapping[str, Any] = field(factory=dict)
    journal: str = ""
    folder: str = "."
    reading: Reading | None = None

    def parts(self) -> dict[str, Any]:
        """All but its team. Tools, policies and model are made; all that is wrong is told at once, with its line."""
        from ...tools.loading import all_tools
        from .policies import policies_of
        from .traces import traces_of

        reading = self.reading or Reading()
        known, where = len(reading.mistakes), ("agents", self.name)
        folder = Path(self.folder)
        tools = all_tools(self.tools, folder, lambda number, told: reading.wrong((*where, "tools", str(number)), told))
        unloaded = len(reading.mistakes) > known
        policies = policies_of(self, None if unloaded else tools, lambda place, told: reading.wrong((*where, *place), told))
        model: Any = None
        try:
            model = self._model()
            if isinstance(model, str) and model.startswith(("local/", "scripted/")):
                model = resolve(model)  # is the file there?
        except (AgentError, TypeError) as problem:
            reading.wrong((*where, "model"), str(problem))
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
            "stops": [_RULES[name](limit) for name, limit in self.stops.items()] or None,
            "journal": self.journal_path or None,
            "policies": policies,
            "model": model,
        }

    def _context(self, wrong: Callable[[str, str], None]) -> tuple[Any, ...]:
        """What the model sees beside the conversation, and how much of that."""
        from ..memory.compact import Compact
        from ..memory.memory import Memory
        from ..memory.project import ProjectContext

        folder = Path(self.folder).resolve()
        makers: dict[str, Callable[[], Any]] = {
            "project": lambda: ProjectContext(folder / (self.project if isinstance(self.project, str) else ".")),
            "compact": lambda: Compact(self.compact),
            "memory": lambda: Memory(folder / FOLDER / "memory", learn=self.memory or None),
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
        """Where runs are recorded: as seen from the file; beside it, if it does not say."""
        if self.journal in ("memory", ":memory:"):
            return self.journal
        if not self.journal:
            return os.environ.get("KANAME_JOURNAL") or str(Path(self.folder).resolve() / FOLDER / "journal.db")
        return str(Path(self.folder) / Path(self.journal).expanduser())

    def _model(self) -> Any:
        """With the key and address that the file gives to its provider; files are looked for beside this one."""
        if not self.model:
            return None
        provider, _, rest = self.model.partition("/")
        if provider in ("local", "scripted") and rest:
            rest = str(Path(self.folder) / Path(rest).expanduser())
        given = {name: value for name, value in self.providers.get(provider, {}).items() if name != "model"}
        if not given:
            return f"{provider}/{rest}" if rest else self.model
        from ...models.registry import maker

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
        return {**agent.parts(), "team": Named(agent.team, self.parts) if agent.team else ()}

    @property
    def workflow_files(self) -> list[Path]:
        """The workflow files that are served with the agents."""
        folder = Path(self.files[-1]).resolve().parent if self.files else Path()
        return [folder / Path(name).expanduser() for name in self.value.get("workflows") or ()]

    @property
    def keep(self) -> Keep | None:
        """How long runs are kept; None if the files do not say."""
        return _keep(self.value)

    def check(self) -> None:
        """Beyond what the files say: do the tools, policies and models exist that they name? All mistakes are told at once."""
        told: list[str] = []
        for agent in self.agents.values():
            try:
                agent.parts()
            except ConfigError as problem:
                told += problem.mistakes or [str(problem)]
        if told:
            raise mistaken(list(dict.fromkeys(told)))


def load_config(*files: str | Path) -> Config:
    """Read and check; later files go over earlier ones. Every mistake is told, with file and line, before anything starts."""
    reading = Reading()
    for file in files:
        reading.read(Path(file))
    folder = str(Path(files[-1]).resolve().parent) if files else "."
    if not reading.mistakes or reading.value:
        _read_server_files(reading, Path(folder))
        _check(reading)
    if reading.mistakes:
        _look_for_tools(reading, Path(folder))  # it will not start: then all that is wrong is worth knowing
    reading.raise_all()
    return Config(_agents(reading, folder), tuple([str(file) for file in files]), reading.value)


def _read_server_files(reading: Reading, folder: Path) -> None:
    """In the place of the name of another MCP client's config file, the servers that it names."""
    agents = [(_mapping(agent), ("agents", name)) for name, agent in _mapping(_mapping(reading.value).get("agents")).items()]
    for held, where in [(_mapping(reading.value), ()), *agents]:
        file = held.get("mcp_servers")
        if isinstance(file, str) and isinstance(held, dict):
            from ...tools.mcp.config import servers_by_name

            try:
                held["mcp_servers"] = servers_by_name(folder / Path(file).expanduser())
            except ConfigError as problem:
                reading.wrong((*where, "mcp_servers"), str(problem))
                del held["mcp_servers"]


def _look_for_tools(reading: Reading, folder: Path) -> None:
    from ...tools.loading import all_tools

    for name, agent in _mapping(_mapping(reading.value).get("agents")).items():
        places = _mapping(agent).get("tools")
        named = [place for place in places if isinstance(place, str)] if isinstance(places, list) else []
        all_tools(named, folder, partial(_wrong_tool, reading, ("agents", name, "tools")))


def _wrong_tool(reading: Reading, where: tuple[str, ...], number: int, told: str) -> None:
    reading.wrong((*where, str(number)), told)


def _check(reading: Reading) -> None:
    value = reading.value
    check(value, SCHEMA, (), reading.wrong)
    if not isinstance(value, dict):
        return
    if not value.get("agents") and not value.get("llm"):
        reading.wrong((), notice("config.no_agents", "there is neither 'agents' nor 'llm'"))
    shared = _mapping(value.get("mcp_servers"))
    _check_servers(shared, ("mcp_servers",), reading)
    for name, agent in _mapping(value.get("agents")).items():
        _check_agent(_mapping(agent), ("agents", name), shared, reading)
        others = [other for other in value["agents"] if other != name]
        named = _mapping(agent).get("team")
        for number, member in enumerate(named if isinstance(named, list) else []):
            if member not in others:
                told = notice("config.no_member", "there is no other agent {member!r}", member=member) + nearest(
                    str(member), others
                )
                reading.wrong(("agents", name, "team", str(number)), told)
    for name, block in _mapping(value.get("models")).items():
        _check_model(f"{_SYNONYMS.get(name, name)}/x", ("models", name), reading)
        _check_block(name, _mapping(block), ("models", name), reading)
    _check_llm(_mapping(value.get("llm")), reading)
    _check_keep(value.get("keep"), (), reading)


def _check_agent(agent: Mapping[str, Any], where: tuple[str, ...], shared: Mapping[str, Any], reading: Reading) -> None:
    _check_model(agent.get("model"), (*where, "model"), reading)
    _check_keep(agent.get("keep"), where, reading)
    for name, limit in _mapping(agent.get("stops")).items():
        if name in _RULES and not (isinstance(limit, str) and name not in ("cost", "deadline")):
            _tried(_RULES[name], limit, (*where, "stops", name), reading)
    servers = agent.get("mcp_servers")
    if isinstance(servers, list):
        for number, name in enumerate(servers):
            if isinstance(name, str) and name not in shared:
                told = notice("config.no_server", "there is no server {name!r}", name=name) + nearest(name, shared)
                reading.wrong((*where, "mcp_servers", str(number)), told)
    else:
        _check_servers(_mapping(servers), (*where, "mcp_servers"), reading)


def _check_llm(llm: Mapping[str, Any], reading: Reading) -> None:
    provider = llm.get("provider")
    if not isinstance(provider, str):
        return
    _check_model(f"{_SYNONYMS.get(provider, provider)}/x", ("llm", "provider"), reading)
    if provider not in llm:
        told = notice("config.no_provider_block", "there is no block {provider!r} for the provider", provider=provider)
        reading.wrong(("llm",), told)
        return
    if not _mapping(llm[provider]).get("model") and provider != "local":
        reading.wrong(("llm", provider), notice("config.model_missing", "'model' is missing"))
    _check_block(provider, _mapping(llm[provider]), ("llm", provider), reading)


def _check_block(provider: str, block: Mapping[str, Any], where: tuple[str, ...], reading: Reading) -> None:
    """Keys that the file may have, but that this provider does not take."""
    name = _SYNONYMS.get(provider, provider)
    taken = _TAKES.get("openai" if name in SERVERS else name, _SERVED)
    for key in block:
        if key in _KEYS and key not in taken:
            listed = ", ".join(sorted(taken))
            reading.wrong(
                (*where, key),
                notice("config.provider_options", "{provider} takes only {listed}", provider=provider, listed=listed),
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _check_model(model: Any, where: tuple[str, ...], reading: Reading) -> None:
    if not isinstance(model, str) or model in ("", "local"):
        return
    provider, slash, rest = model.partition("/")
    known = {*PROVIDERS, *SERVERS, *LITELLM}
    if not slash or not rest or ":" in provider:
        told = notice("config.model_form", "a model is written provider/model, not {model!r}", model=model)
        reading.wrong(where, told + with_slash(model))
    elif provider not in known:
        reading.wrong(
            where, notice("config.no_provider", "no provider {provider!r}", provider=provider) + nearest(provider, known)
        )


def _keep(value: Mapping[str, Any]) -> Keep | None:
    own = {name: _mapping(agent).get("keep") for name, agent in _mapping(value.get("agents")).items()}
    given = value.get("keep")
    return Keep.from_config(given, own) if given is not None or any(held is not None for held in own.values()) else None


def _check_keep(kept: Any, where: tuple[str, ...], reading: Reading) -> None:
    for name, given in kept.items() if isinstance(kept, dict) else [("", kept)]:
        _tried(lasting, given, (*where, "keep", name) if name else (*where, "keep"), reading)


def _tried(make: Any, value: Any, where: tuple[str, ...], reading: Reading) -> None:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            make(value)
        except (AgentError, ValueError, TypeError) as problem:
            reading.wrong(where, str(problem))


def _check_servers(servers: Mapping[str, Any], where: tuple[str, ...], reading: Reading) -> None:
    for name, server in servers.items():
        server = _mapping(server)
        if bool(server.get("command")) == bool(server.get("url")):
            reading.wrong((*where, name), notice("config.command_or_url", "give either command or url"))
        url = server.get("url")
        if isinstance(url, str) and url and not url.startswith(("http://", "https://")):
            told = notice("config.url_scheme", "an address begins with http:// or https://, not {url!r}", url=url)
            reading.wrong((*where, name, "url"), told)
        for key in ("timeout", "start_timeout"):
            _tried(seconds, server.get(key), (*where, name, key), reading)


def _agents(reading: Reading, folder: str) -> dict[str, AgentConfig]:
    value = reading.value
    shared = {"journal": value.get("journal", ""), "trace": value.get("trace") or {}, "folder": folder, "reading": reading}
    servers, models = value.get("mcp_servers") or {}, value.get("models") or {}
    models = {_SYNONYMS.get(name, name): block for name, block in models.items()}
    made = {}
    for name, agent in (value.get("agents") or {}).items():
        given = {key: held for key, held in (agent or {}).items() if key != "keep"}
        for listed in _LISTS:
            given[listed] = tuple(given.get(listed) or ())
        own = given.get("mcp_servers") or {}
        given["mcp_servers"] = {one: servers[one] for one in own} if isinstance(own, list) else {**servers, **own}
        made[name] = AgentConfig(name, **{**shared, **given}, providers=models)
    if value.get("llm"):
        llm = value["llm"]
        provider = llm["provider"]
        ours, block = _SYNONYMS.get(provider, provider), llm[provider]
        model = f"{ours}/{block['model']}" if block.get("model") else ours
        made.setdefault("agent", AgentConfig("agent", model, mcp_servers=servers, providers={ours: block}, **shared))
    return made
