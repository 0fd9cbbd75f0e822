"""Configuration of one MCP server: the usual `mcpServers` form, or a server object in this process."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ...core.durations import seconds
from ...core.errors import ConfigError, nearest
from ...core.notices import Notice, notice
from ...core.record import field, record
from .client_files import servers_of_file

KNOWN = (
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "type",
    "transport",
    "timeout",
    "start_timeout",
    "required",
    "disabled",
    "library",
    "tools",
    "exclude_tools",
    "roots",
    "sampling",
    "auth",
    "protocol",
    "server",
)
_PROTOCOLS = ("auto", "legacy")
_AUTH = ("scopes", "client_id", "client_secret", "client_metadata_url", "callback_port", "grant", "issuer")
_GRANTS = ("browser", "client_credentials")
_TYPES = {"stdio": "command", "http": "url", "streamable-http": "url", "streamable_http": "url", "sse": "url"}
_PASSWORD = re.compile(r"(?<=://)([^/@\s]*?):([^/@\s]*)@")


Servers = Mapping[str, Any] | str | os.PathLike[str]
"""Servers by name, or the path of another MCP client's config file."""


@record
class Entry:
    """The configuration of a server: `command` with `args`, `url` with `headers`, or a `server` object. Times in seconds."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(factory=dict)
    server: Any = None
    timeout: float | None = 60.0
    start_timeout: float = 30.0
    required: bool = False
    library: bool = False  # its resources and prompts as tools for the model
    sse: bool = False  # the older way over HTTP
    tools: tuple[str, ...] | None = None  # those that are wanted, if not all
    exclude_tools: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()  # folders that are reported to the server
    sampling: bool = False  # it can ask the agent's model, at the agent's cost
    auth: Mapping[str, Any] | None = None  # OAuth, and what is known for it
    protocol: str = "auto"  # the newest that both know; "legacy": with a handshake, as before 2026-07-28

    @property
    def label(self) -> str:
        """The server's command, address or class for messages. Arguments may contain keys and are left out."""
        return self.command or without_password(self.url.partition("?")[0]) or type(self.server).__name__

    def admits(self, tool: str) -> bool:
        """Return True if the entry includes that tool of the server."""
        return (self.tools is None or tool in self.tools) and tool not in self.exclude_tools


def without_password(text: str) -> str:
    return _PASSWORD.sub(r"\1:***@", text)


def servers_by_name(servers: Servers) -> Mapping[str, Any]:
    """Return the servers by name, from a mapping or from the config file of another client."""
    if isinstance(servers, str | os.PathLike):
        return servers_of_file(servers, KNOWN)
    if not isinstance(servers, Mapping):
        raise ConfigError.of(
            "mcp.servers_kind",
            "mcp_servers must be a mapping of names to servers, or the path of another client's file, not {servers!r}",
            servers=servers,
        )
    inner = servers.get("mcpServers")
    return inner if len(servers) == 1 and isinstance(inner, Mapping) else servers


def entries(servers: Servers) -> list[Entry]:
    """Return the entries of all servers that are not disabled. Raises `ConfigError` if one is wrong."""
    read = [_entry(name, given) for name, given in servers_by_name(servers).items()]
    return [one for one in read if one is not None]


def as_entry(name: Any, given: Any) -> Mapping[str, Any]:
    """Return a server as it would stand in a file, however it was given; an object as `server`. Raises `ConfigError`."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigError.of("mcp.bad_name", "mcp_servers: {name!r} is not a valid name for a server", name=name)
    place = f"mcp_servers.{name}"
    if isinstance(given, str) and given.strip():
        return {"url": given} if "://" in given else dict(zip(("command", "args"), _split(given, place), strict=True))
    if given is None or isinstance(given, str | bytes | int | float | list | tuple | set):
        raise _wrong(
            place,
            notice(
                "mcp.server_form",
                "a server must be {{'command': …}}, {{'url': …}} or a server object, not {given!r}",
                given=given,
            ),
        )
    return given if isinstance(given, Mapping) else {"server": given}


def _entry(name: Any, given: Any) -> Entry | None:
    given, place = as_entry(name, given), f"mcp_servers.{name}"
    for key in given:
        if key not in KNOWN:
            raise _wrong(place, notice("mcp.unknown_key", "unknown key {key!r}", key=key) + nearest(str(key), KNOWN))
    return None if _flag(given, "disabled", place) else _read(name, given, place)


def _read(name: str, given: Mapping[str, Any], place: str) -> Entry:
    command, url = _text(given, "command", place), _text(given, "url", place)
    if [bool(command), bool(url), given.get("server") is not None].count(True) != 1:
        raise _wrong(place, notice("mcp.command_or_url", "set exactly one of command and url"))
    if url and not url.startswith(("http://", "https://")):
        told = without_password(url)
        raise _wrong(place, notice("mcp.url_begins", "url must begin with http:// or https://, not {url!r}", url=told))
    if not isinstance(given.get("args") or [], list | tuple):
        raise ConfigError.of("mcp.args_kind", "{place}.args must be a list", place=place)
    cwd = given.get("cwd")
    if cwd is not None and not isinstance(cwd, str | os.PathLike):
        raise ConfigError.of("mcp.cwd_kind", "{place}.cwd must be the path of a folder, not {cwd!r}", place=place, cwd=cwd)
    timeout = given.get("timeout", 60.0)
    return Entry(
        name,
        command=command,
        args=tuple([str(arg) for arg in given.get("args") or []]),
        env=_texts(given, "env", place),
        cwd=None if cwd is None else os.fspath(cwd),
        url=url,
        headers=_texts(given, "headers", place),
        timeout=None if timeout is None else _seconds(timeout, f"{place}.timeout"),
        start_timeout=_seconds(given.get("start_timeout", 30.0), f"{place}.start_timeout"),
        required=_flag(given, "required", place),
        library=_flag(given, "library", place),
        sse=_kind(given, "command" if command else "url", place) == "sse",
        tools=None if given.get("tools") is None else _names(given, "tools", place),
        exclude_tools=_names(given, "exclude_tools", place),
        roots=_names(given, "roots", place),
        sampling=_flag(given, "sampling", place),
        auth=_auth(given.get("auth"), bool(url), f"{place}.auth"),
        server=given.get("server"),
        protocol=_protocol(given.get("protocol", "auto"), place),
    )


def _kind(given: Mapping[str, Any], form: str, place: str) -> str:
    kind = given.get("type", given.get("transport"))
    if kind is None:
        return ""
    if kind not in _TYPES:
        raise _wrong(place, notice("mcp.unknown_type", "unknown type {kind!r}", kind=kind) + nearest(str(kind), _TYPES))
    if _TYPES[kind] != form:
        raise _wrong(
            place,
            notice("mcp.type_goes_with", "type {kind} needs {needed}, not {form}", kind=kind, needed=_TYPES[kind], form=form),
        )
    return str(kind)


def _split(line: str, place: str) -> tuple[str, list[str]]:
    try:
        command, *args = shlex.split(line)
    except ValueError as problem:
        raise _wrong(
            place, notice("mcp.no_command", "{line!r} is not a valid command: {problem}", line=line, problem=problem)
        ) from problem
    return command, args


def _text(given: Mapping[str, Any], key: str, place: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if key == "command" and isinstance(value, os.PathLike):
        return str(value)
    if not isinstance(value, str):
        raise ConfigError.of(
            "mcp.text_kind", "{place}.{key} must be a string, not {value!r}", place=place, key=key, value=value
        )
    return value.strip()


def _texts(given: Mapping[str, Any], key: str, place: str) -> dict[str, str]:
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError.of(
            "mcp.mapping_kind", "{place}.{key} must be a mapping such as {{NAME: value}}", place=place, key=key
        )
    for name, one in value.items():
        if not isinstance(one, str | int | float):
            raise ConfigError.of(
                "mcp.entry_kind",
                "{place}.{key}.{name} must be a string or a number, not {one!r}",
                place=place,
                key=key,
                name=name,
                one=one,
            )
    return {str(name): str(one) for name, one in value.items()}


def _names(given: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    value = given.get(key)
    listed = [] if value is None else value
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise ConfigError.of(
            "mcp.names_kind", "{place}.{key} must be a list of strings, not {value!r}", place=place, key=key, value=value
        )
    return tuple(listed)


def _auth(value: Any, over_http: bool, place: str) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if value != "oauth" and not isinstance(value, Mapping):
        raise _wrong(
            place,
            notice(
                "mcp.auth_kind",
                "must be 'oauth' or a mapping with {known}; put an API key into headers",
                known=", ".join(_AUTH),
            ),
        )
    if not over_http:
        raise _wrong(place, notice("mcp.auth_needs_url", "works only with url; pass keys to a program with env"))
    held: Mapping[str, Any] = {} if value == "oauth" else value
    for key in held:
        if key not in _AUTH:
            raise _wrong(place, notice("mcp.unknown_key", "unknown key {key!r}", key=key) + nearest(str(key), _AUTH))
    grant = held.get("grant", "browser")
    if grant not in _GRANTS or (grant == "client_credentials" and not (held.get("client_id") and held.get("client_secret"))):
        raise _wrong(
            place, notice("mcp.auth_grant", "grant must be browser, or client_credentials with client_id and client_secret")
        )
    return held


def _protocol(value: Any, place: str) -> str:
    if value not in _PROTOCOLS:
        raise _wrong(place, notice("mcp.protocol_kind", "protocol must be auto or legacy, not {value!r}", value=value))
    return str(value)


def _flag(given: Mapping[str, Any], key: str, place: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError.of(
            "mcp.flag_kind", "{place}.{key} must be true or false, not {value!r}", place=place, key=key, value=value
        )
    return value


def _seconds(value: Any, place: str) -> float:
    try:
        return seconds(value)
    except ConfigError as problem:
        raise ConfigError(f"{place}: " + str(problem)) from problem


def _wrong(place: str, what: Notice) -> ConfigError:
    return ConfigError(f"{place}: " + what)
