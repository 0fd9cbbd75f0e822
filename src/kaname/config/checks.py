"""The checks of a configuration that its schema cannot express. Every mistake is reported, with its place."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..core.durations import seconds
from ..core.errors import AgentError, ConfigError, nearest
from ..core.notices import notice
from ..memory.retention import Keep, keep_seconds
from ..models.compatible import SERVERS
from ..models.registry import LITELLM, PROVIDERS, with_slash
from ..policies.pace.limits import read_at_once, read_rate
from ..strategies.stop import cost, deadline, max_steps, no_repeats, per_tool
from .load import Reading, check
from .schema import SCHEMA

SYNONYMS = {"claude": "anthropic"}
RULES: dict[str, Any] = {
    "max_steps": max_steps,
    "cost": cost,
    "deadline": deadline,
    "no_repeats": no_repeats,
    "per_tool": per_tool,
}
_SERVED = {"model", "api_key", "base_url", "headers", "settings"}  # what a provider takes, unless it is one of these:
_TAKES = {
    "openai": _SERVED | {"tool_mode", "plan_first", "takes"},
    "anthropic": _SERVED | {"prompt_cache"},
    "local": {"model", "settings", "tool_mode", "plan_first", "threads", "context"},
    "scripted": {"model"},
    "replay": {"model"},
}
_KEYS = _SERVED | _TAKES["local"] | _TAKES["anthropic"]


def check_all(reading: Reading) -> None:
    value = reading.value
    check(value, SCHEMA, (), reading.wrong)
    if not isinstance(value, dict):
        return
    if not value.get("agents") and not value.get("llm"):
        reading.wrong((), notice("config.no_agents", "no agent is defined: add 'agents' or 'llm'"))
    shared = mapping(value.get("mcp_servers"))
    _check_servers(shared, ("mcp_servers",), reading)
    for name, agent in mapping(value.get("agents")).items():
        _check_agent(mapping(agent), ("agents", name), shared, reading)
        others = [other for other in value["agents"] if other != name]
        if mapping(agent).get("background") and not mapping(agent).get("team"):
            told = notice("config.background", "background says that the team can work in the background, but there is no team")
            reading.wrong(("agents", name, "background"), told)
        named = mapping(agent).get("team")
        for number, member in enumerate(named if isinstance(named, list) else []):
            if member not in others:
                told = notice("config.no_member", "there is no other agent {member!r}", member=member) + nearest(
                    str(member), others
                )
                reading.wrong(("agents", name, "team", str(number)), told)
    for name, block in mapping(value.get("models")).items():
        _check_model(f"{SYNONYMS.get(name, name)}/x", ("models", name), reading)
        _check_block(name, mapping(block), ("models", name), reading)
    _check_llm(mapping(value.get("llm")), reading)
    _check_limits(mapping(value.get("limits")), ("limits",), reading)
    _check_keep(value.get("keep"), (), reading)
    if value.get("encryption") is not None and len(mapping(value["encryption"])) != 1:
        reading.wrong(("encryption",), notice("config.encryption", "name either key_file or keyring"))
    _check_schedules(mapping(value.get("schedules")), mapping(value.get("triggers")), reading)
    if "permissions" in value and not isinstance(value["permissions"], str):
        _check_permissions(mapping(value["permissions"]), reading)


def _check_schedules(schedules: Mapping[str, Any], triggers: Mapping[str, Any], reading: Reading) -> None:
    """Check the names and times of schedules, and the names of webhooks: ids of their runs begin with them."""
    from ..agent.work.schedule import make_schedule

    for kind, given in (("schedules", schedules), ("triggers", triggers)):
        for name, held in given.items():
            block = mapping(held)
            every = block.get("every") if kind == "schedules" else "1h"
            try:
                make_schedule("", name, "", block.get("cron", ""), block.get("tz", "UTC"), every, block.get("at"), "one")
            except ConfigError as problem:
                reading.wrong((kind, name), str(problem))
    for name in schedules.keys() & triggers.keys():
        reading.wrong(("triggers", name), notice("config.trigger_twice", "there is a schedule with the same name"))


def _check_permissions(given: Mapping[str, Any], reading: Reading) -> None:
    """Check each rule at its place, and then the whole. Cedar policies are checked when the agent is made."""
    from ..policies.permission.permit import Permit
    from ..policies.permission.rules import read_rule

    unfit: list[Any] = []
    check(given, SCHEMA["properties"]["permissions"], (), lambda *mistake: unfit.append(mistake))
    known, rules = len(reading.mistakes), given.get("rules")
    for number, rule in enumerate([] if unfit else rules or []):
        try:
            read_rule(rule, number + 1)
        except ConfigError as problem:
            reading.wrong(("permissions", "rules", str(number)), str(problem))
    if not unfit and len(reading.mistakes) == known and "cedar" not in given:
        try:
            Permit(rules, roles=given.get("roles"), resources=given.get("resources"))
        except ConfigError as problem:
            reading.wrong(("permissions",), str(problem))


def _check_agent(agent: Mapping[str, Any], where: tuple[str, ...], shared: Mapping[str, Any], reading: Reading) -> None:
    _check_models(agent.get("model"), (*where, "model"), reading)
    _check_keep(agent.get("keep"), where, reading)
    _check_limits(mapping(agent.get("limits")), (*where, "limits"), reading)
    for name, limit in mapping(agent.get("stops")).items():
        if name in RULES and not (isinstance(limit, str) and name not in ("cost", "deadline")):
            _try(RULES[name], limit, (*where, "stops", name), reading)
    servers = agent.get("mcp_servers")
    if isinstance(servers, list):
        for number, name in enumerate(servers):
            if isinstance(name, str) and name not in shared:
                told = notice("config.no_server", "there is no server {name!r}", name=name) + nearest(name, shared)
                reading.wrong((*where, "mcp_servers", str(number)), told)
    else:
        _check_servers(mapping(servers), (*where, "mcp_servers"), reading)


def _check_limits(limits: Mapping[str, Any], where: tuple[str, ...], reading: Reading) -> None:
    for name in ("requests", "tokens"):
        _try(partial(read_rate, what=name), limits.get(name), (*where, name), reading)
    _try(read_at_once, limits.get("at_once"), (*where, "at_once"), reading)


def _check_llm(llm: Mapping[str, Any], reading: Reading) -> None:
    provider = llm.get("provider")
    if not isinstance(provider, str):
        return
    _check_model(f"{SYNONYMS.get(provider, provider)}/x", ("llm", "provider"), reading)
    if provider not in llm:
        told = notice(
            "config.no_provider_block", "the block {provider!r} with the settings of the provider is missing", provider=provider
        )
        reading.wrong(("llm",), told)
        return
    if not mapping(llm[provider]).get("model") and provider != "local":
        reading.wrong(("llm", provider), notice("config.model_missing", "the required key 'model' is missing"))
    _check_block(provider, mapping(llm[provider]), ("llm", provider), reading)


def _check_block(provider: str, block: Mapping[str, Any], where: tuple[str, ...], reading: Reading) -> None:
    """Keys that the file may have, but that this provider does not take."""
    name = SYNONYMS.get(provider, provider)
    taken = _TAKES.get("openai" if name in SERVERS else name, _SERVED)
    for key in block:
        if key in _KEYS and key not in taken:
            listed = ", ".join(sorted(taken))
            reading.wrong(
                (*where, key),
                notice(
                    "config.provider_options",
                    "{provider} does not support this key. Supported keys: {listed}",
                    provider=provider,
                    listed=listed,
                ),
            )


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def is_place(model: str) -> bool:
    """Return True for `FILE.py:name`: a model, or the class of one, in a Python file."""
    return model.partition(":")[0].endswith(".py")


def _check_models(given: Any, where: tuple[str, ...], reading: Reading) -> None:
    """A model, a mapping with a key or an address of its own, or a list of them."""
    if isinstance(given, list):
        if not given:
            reading.wrong(where, notice("model.empty_list", "a list of models must not be empty"))
        for number, one in enumerate(given):
            _check_models(one, (*where, str(number)), reading)
    elif isinstance(given, dict):
        _check_model(given.get("model"), (*where, "model"), reading)
        _check_block(str(given.get("model")).partition("/")[0], given, where, reading)
    else:
        _check_model(given, where, reading)


def _check_model(model: Any, where: tuple[str, ...], reading: Reading) -> None:
    if not isinstance(model, str) or model in ("", "local") or is_place(model):
        return
    provider, slash, rest = model.partition("/")
    known = {*PROVIDERS, *SERVERS, *LITELLM}
    if not slash or not rest or ":" in provider:
        told = notice("config.model_form", "write the model as provider/model, not {model!r}", model=model)
        reading.wrong(where, told + with_slash(model))
    elif provider not in known:
        reading.wrong(
            where, notice("config.no_provider", "unknown provider {provider!r}", provider=provider) + nearest(provider, known)
        )


def keep_of(value: Mapping[str, Any]) -> Keep | None:
    own = {name: mapping(agent).get("keep") for name, agent in mapping(value.get("agents")).items()}
    given = value.get("keep")
    return Keep.from_config(given, own) if given is not None or any(held is not None for held in own.values()) else None


def _check_keep(kept: Any, where: tuple[str, ...], reading: Reading) -> None:
    for name, given in kept.items() if isinstance(kept, dict) else [("", kept)]:
        _try(keep_seconds, given, (*where, "keep", name) if name else (*where, "keep"), reading)


def _try(make: Any, value: Any, where: tuple[str, ...], reading: Reading) -> None:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            make(value)
        except (AgentError, ValueError, TypeError) as problem:
            reading.wrong(where, str(problem))


def _check_servers(servers: Mapping[str, Any], where: tuple[str, ...], reading: Reading) -> None:
    for name, server in servers.items():
        server = mapping(server)
        if bool(server.get("command")) == bool(server.get("url")):
            reading.wrong((*where, name), notice("config.command_or_url", "set exactly one of command and url"))
        url = server.get("url")
        if isinstance(url, str) and url and not url.startswith(("http://", "https://")):
            told = notice("config.url_scheme", "the URL must start with http:// or https://, not {url!r}", url=url)
            reading.wrong((*where, name, "url"), told)
        for key in ("timeout", "start_timeout"):
            _try(seconds, server.get(key), (*where, name, key), reading)
