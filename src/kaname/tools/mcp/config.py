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
"""Servers by name; or the path of a config file that another MCP client has."""


@record
class Entry:
    """`command` with `args`, or `url` with `headers`, or `server`: an object. Times in seconds."""

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
    roots: tuple[str, ...] = ()  # folders that the server is told of
    sampling: bool = False  # it may ask the agent's model, at the agent's cost
    auth: Mapping[str, Any] | None = None  # OAuth, and what is known for it
    protocol: str = "auto"  # the newest that both know; "legacy": with a handshake, as before 2026-07-28

    @property
    def told(self) -> str:
        """What it is, for messages. Arguments may hold keys, so only the command is named."""
        return self.command or without_password(self.url.partition("?")[0]) or type(self.server).__name__

    def admits(self, tool: str) -> bool:
        """Return whether that tool of the server is wanted."""
        return (self.tools is None or tool in self.tools) and tool not in self.exclude_tools


def without_password(text: str) -> str:
    return _PASSWORD.sub(r"\1:***@", text)


def servers_by_name(servers: Servers) -> Mapping[str, Any]:
    """As they are given in a mapping, or in the config file of another client."""
    if isinstance(servers, str | os.PathLike):
        return servers_of_file(servers, KNOWN)
    if not isinstance(servers, Mapping):
        raise ConfigError(
            notice(
                "mcp.servers_kind",
                "mcp_servers is a mapping of names to servers, or another client's file, not {servers!r}",
                servers=servers,
            )
        )
    inner = servers.get("mcpServers")
    return inner if len(servers) == 1 and isinstance(inner, Mapping) else servers


def entries(servers: Servers) -> list[Entry]:
    """The servers that are to be used; a disabled one is left out."""
    read = [_entry(name, given) for name, given in servers_by_name(servers).items()]
    return [one for one in read if one is not None]


def _entry(name: Any, given: Any) -> Entry | None:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(notice("mcp.bad_name", "mcp_servers: {name!r} is no name", name=name))
    place = f"mcp_servers.{name}"
    if isinstance(given, str) and given.strip():
        given = {"url": given} if "://" in given else dict(zip(("command", "args"), _split(given, place), strict=True))
    elif given is None or isinstance(given, str | bytes | int | float | list | tuple | set):
        raise _wrong(
            place,
            notice(
                "mcp.server_form", "a server is {{'command': …}}, {{'url': …}} or a server object, not {given!r}", given=given
            ),
        )
    if not isinstance(given, Mapping):
        return Entry(name, server=given)
    for key in given:
        if key not in KNOWN:
            raise _wrong(place, notice("mcp.unknown_key", "unknown key {key!r}", key=key) + nearest(str(key), KNOWN))
    return None if _flag(given, "disabled", place) else _read(name, given, place)


def _read(name: str, given: Mapping[str, Any], place: str) -> Entry:
    command, url = _text(given, "command", place), _text(given, "url", place)
    if [bool(command), bool(url), given.get("server") is not None].count(True) != 1:
        raise _wrong(place, notice("mcp.command_or_url", "give either command or url"))
    if url and not url.startswith(("http://", "https://")):
        told = without_password(url)
        raise _wrong(place, notice("mcp.url_begins", "url begins with http:// or https://, not {url!r}", url=told))
    if not isinstance(given.get("args") or [], list | tuple):
        raise ConfigError(notice("mcp.args_kind", "{place}.args is a list", place=place))
    cwd = given.get("cwd")
    if cwd is not None and not isinstance(cwd, str | os.PathLike):
        raise ConfigError(notice("mcp.cwd_kind", "{place}.cwd is a folder, not {cwd!r}", place=place, cwd=cwd))
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
            notice(
                "mcp.type_goes_with",
                "type {kind} goes with {needed}, not with {form}",
                kind=kind,
                needed=_TYPES[kind],
                form=form,
            ),
        )
    return str(kind)


def _split(line: str, place: str) -> tuple[str, list[str]]:
    try:
        command, *args = shlex.split(line)
    except ValueError as problem:
        raise _wrong(
            place, notice("mcp.no_command", "{line!r} is no command: {problem}", line=line, problem=problem)
        ) from problem
    return command, args


def _text(given: Mapping[str, Any], key: str, place: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if key == "command" and isinstance(value, os.PathLike):
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(notice("mcp.text_kind", "{place}.{key} is a text, not {value!r}", place=place, key=key, value=value))
    return value.strip()


def _texts(given: Mapping[str, Any], key: str, place: str) -> dict[str, str]:
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(notice("mcp.mapping_kind", "{place}.{key} is a mapping, like {{NAME: value}}", place=place, key=key))
    for name, one in value.items():
        if not isinstance(one, str | int | float):
            raise ConfigError(
                notice(
                    "mcp.entry_kind", "{place}.{key}.{name} is a text, not {one!r}", place=place, key=key, name=name, one=one
                )
            )
    return {str(name): str(one) for name, one in value.items()}


def _names(given: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    value = given.get(key)
    listed = [] if value is None else value
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise ConfigError(
            notice("mcp.names_kind", "{place}.{key} is a list of texts, not {value!r}", place=place, key=key, value=value)
        )
    return tuple(listed)


def _auth(value: Any, over_http: bool, place: str) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if value != "oauth" and not isinstance(value, Mapping):
        raise _wrong(
            place,
            notice("mcp.auth_kind", "'oauth', or a mapping with {known}; a key goes into headers", known=", ".join(_AUTH)),
        )
    if not over_http:
        raise _wrong(place, notice("mcp.auth_needs_url", "it goes with url: a program gets its keys by env"))
    held: Mapping[str, Any] = {} if value == "oauth" else value
    for key in held:
        if key not in _AUTH:
            raise _wrong(place, notice("mcp.unknown_key", "unknown key {key!r}", key=key) + nearest(str(key), _AUTH))
    grant = held.get("grant", "browser")
    if grant not in _GRANTS or (grant == "client_credentials" and not (held.get("client_id") and held.get("client_secret"))):
        raise _wrong(
            place, notice("mcp.auth_grant", "grant is browser, or client_credentials with client_id and client_secret")
        )
    return held


def _protocol(value: Any, place: str) -> str:
    if value not in _PROTOCOLS:
        raise _wrong(place, notice("mcp.protocol_kind", "protocol is auto or legacy, not {value!r}", value=value))
    return str(value)


def _flag(given: Mapping[str, Any], key: str, place: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(
            notice("mcp.flag_kind", "{place}.{key} is true or false, not {value!r}", place=place, key=key, value=value)
        )
    return value


def _seconds(value: Any, place: str) -> float:
    try:
        return seconds(value)
    except ConfigError as problem:
        raise ConfigError(f"{place}: " + str(problem)) from problem


def _wrong(place: str, what: Notice) -> ConfigError:
    return ConfigError(f"{place}: " + what)
