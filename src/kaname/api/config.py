"""Agents in a file: `kaname.yaml`, and the `config.yaml` of the tiny agent's design. `Agent(load_config("config.yaml"))`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.durations import seconds
from ..core.errors import AgentError, ConfigError, nearest
from ..core.language import say
from ..core.record import field, record
from ..models.names import LITELLM, PROVIDERS
from ..strategies.stop import cost, deadline, max_steps, no_repeats, per_tool
from .config_file import Reading, check

_TEXT: dict[str, Any] = {"type": "string"}
_OPEN: dict[str, Any] = {"type": "object"}
_SERVERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "command": _TEXT,
            "args": {"type": "array", "items": {"type": ["string", "number"]}},
            "env": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
            "cwd": _TEXT,
            "url": _TEXT,
            "headers": {"type": "object", "additionalProperties": _TEXT},
            "type": _TEXT,
            "transport": _TEXT,
            "timeout": {"type": ["string", "number", "null"]},
            "start_timeout": {"type": ["string", "number"]},
            "required": {"type": "boolean"},
            "disabled": {"type": "boolean"},
            "library": {"type": "boolean"},
        },
    },
}
_PROVIDER: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "model": _TEXT,
        "api_key": _TEXT,
        "base_url": _TEXT,
        "headers": _OPEN,
        "settings": _OPEN,
        "tool_mode": _TEXT,
    },
}
_STOPS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "max_steps": {"type": "integer"},
        "cost": {"type": ["string", "number"]},
        "deadline": {"type": ["string", "number"]},
        "no_repeats": {"type": ["integer", "null"]},
        "per_tool": {"type": ["integer", "null"]},
    },
}
_AGENT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "model": _TEXT,
        "instructions": _TEXT,
        "tools": {"type": "array", "items": _TEXT},
        "mcp_servers": _SERVERS,
        "stops": _STOPS,
        "settings": _OPEN,
        "approve": {"type": "array", "items": _TEXT},
    },
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "kaname.yaml",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "agents": {"type": "object", "additionalProperties": _AGENT},
        "models": {"type": "object", "additionalProperties": _PROVIDER},
        "llm": {
            "type": "object",
            "required": ["provider"],
            "properties": {"provider": _TEXT},
            "additionalProperties": _PROVIDER,
        },
        "mcp_servers": _SERVERS,
        "journal": _TEXT,
    },
}
_SYNONYMS = {"claude": "anthropic"}
_RULES: dict[str, Any] = {
    "max_steps": max_steps,
    "cost": cost,
    "deadline": deadline,
    "no_repeats": no_repeats,
    "per_tool": per_tool,
}


@record
class AgentConfig:
    """One agent, checked. `parts()` are the arguments of `Agent`."""

    name: str
    model: str = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    mcp_servers: Mapping[str, Any] = field(factory=dict)
    stops: Mapping[str, Any] = field(factory=dict)
    settings: Mapping[str, Any] = field(factory=dict)
    approve: tuple[str, ...] = ()
    providers: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    journal: str = ""
    folder: str = "."

    def parts(self) -> dict[str, Any]:
        from ..tools.loading import tools_from

        parts: dict[str, Any] = {
            "name": self.name,
            "instructions": self.instructions,
            "tools": [tool for place in self.tools for tool in tools_from(place, Path(self.folder))],
            "settings": self.settings,
            "mcp_servers": self.mcp_servers or None,
            "stops": [_RULES[name](limit) for name, limit in self.stops.items()] or None,
            "journal": self.journal or None,
        }
        if self.approve:
            from ..policies.approve import Approve

            parts["policies"] = [Approve(*self.approve)]
        return {**parts, "model": self._model()}

    def _model(self) -> Any:
        """With the key and address that the file gives to its provider."""
        if not self.model:
            return None
        provider, _, rest = self.model.partition("/")
        given = {name: value for name, value in self.providers.get(provider, {}).items() if name != "model"}
        if not given:
            return self.model
        from ..models.names import maker

        return maker(provider)(rest, **given)


@record
class Config:
    """All that the files say. The first agent is the one that is meant where none is named."""

    agents: Mapping[str, AgentConfig]
    files: tuple[str, ...] = ()

    def agent(self, name: str | None = None) -> AgentConfig:
        if name is None:
            return next(iter(self.agents.values()))
        if name not in self.agents:
            raise ConfigError(
                say(f"no agent {name!r}", f"{name!r} というエージェントはありません") + nearest(name, self.agents)
            )
        return self.agents[name]


def load_config(*files: str | Path) -> Config:
    """Read and check; later files go over earlier ones. Every mistake is told, with file and line, before anything starts."""
    reading = Reading()
    for file in files:
        reading.read(Path(file))
    if not reading.mistakes or reading.value:
        _check(reading)
    reading.raise_all()
    folder = str(Path(files[-1]).resolve().parent) if files else "."
    return Config(_agents(reading.value, folder), tuple([str(file) for file in files]))


def _check(reading: Reading) -> None:
    value = reading.value
    check(value, SCHEMA, (), reading.wrong)
    if not isinstance(value, dict):
        return
    if not value.get("agents") and not value.get("llm"):
        reading.wrong((), say("there is neither 'agents' nor 'llm'", "'agents' も 'llm' もありません"))
    for name, agent in _mapping(value.get("agents")).items():
        agent = _mapping(agent)
        _check_model(agent.get("model"), ("agents", name, "model"), reading)
        _check_stops(_mapping(agent.get("stops")), ("agents", name, "stops"), reading)
        _check_servers(_mapping(agent.get("mcp_servers")), ("agents", name, "mcp_servers"), reading)
    _check_servers(_mapping(value.get("mcp_servers")), ("mcp_servers",), reading)
    llm = _mapping(value.get("llm"))
    provider = llm.get("provider")
    if isinstance(provider, str):
        _check_model(f"{_SYNONYMS.get(provider, provider)}/x", ("llm", "provider"), reading)
        if provider not in llm:
            reading.wrong(
                ("llm",),
                say(f"there is no block {provider!r} for the provider", f"プロバイダー {provider!r} の設定がありません"),
            )
        elif not _mapping(llm[provider]).get("model"):
            reading.wrong(("llm", provider), say("'model' is missing", "'model' がありません"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _check_model(model: Any, where: tuple[str, ...], reading: Reading) -> None:
    if not isinstance(model, str) or model in ("", "local"):
        return
    provider, slash, rest = model.partition("/")
    known = {*PROVIDERS, *LITELLM}
    if not slash or not rest:
        reading.wrong(
            where, say(f"a model is written provider/model, not {model!r}", f"モデルは provider/model の形です: {model!r}")
        )
    elif provider not in known:
        reading.wrong(
            where, say(f"no provider {provider!r}", f"プロバイダー {provider!r} はありません") + nearest(provider, known)
        )


def _check_stops(stops: Mapping[str, Any], where: tuple[str, ...], reading: Reading) -> None:
    for name, limit in stops.items():
        if name in ("cost", "deadline") and isinstance(limit, str | int | float):
            try:
                _RULES[name](limit)
            except (AgentError, ValueError, TypeError) as problem:
                reading.wrong((*where, name), str(problem))


def _check_servers(servers: Mapping[str, Any], where: tuple[str, ...], reading: Reading) -> None:
    for name, server in servers.items():
        server = _mapping(server)
        if bool(server.get("command")) == bool(server.get("url")):
            reading.wrong((*where, name), say("give either command or url", "command か url のどちらか一方が必要です"))
        for key in ("timeout", "start_timeout"):
            if isinstance(server.get(key), str):
                try:
                    seconds(server[key])
                except (AgentError, ValueError) as problem:
                    reading.wrong((*where, name, key), str(problem))


def _agents(value: Mapping[str, Any], folder: str) -> dict[str, AgentConfig]:
    shared = {"journal": value.get("journal", ""), "folder": folder}
    servers, models = value.get("mcp_servers") or {}, value.get("models") or {}
    made = {}
    for name, agent in (value.get("agents") or {}).items():
        given = dict(agent or {})
        for listed in ("tools", "approve"):
            given[listed] = tuple(given.get(listed) or ())
        given["mcp_servers"] = {**servers, **(given.get("mcp_servers") or {})}
        made[name] = AgentConfig(name, **{**shared, **given}, providers=models)
    if value.get("llm"):
        llm = value["llm"]
        provider = llm["provider"]
        ours, block = _SYNONYMS.get(provider, provider), llm[provider]
        model = f"{ours}/{block['model']}"
        made.setdefault("agent", AgentConfig("agent", model, mcp_servers=servers, providers={ours: block}, **shared))
    return made
