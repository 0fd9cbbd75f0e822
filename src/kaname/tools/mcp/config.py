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

_KNOWN = (
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
)
_TYPES = {"stdio": "command", "http": "url", "streamable-http": "url", "streamable_http": "url", "sse": "url"}
_PASSWORD = re.compile(r"(?<=://)([^/@\s]*?):([^/@\s]*)@")


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

    @property
    def told(self) -> str:
        """What it is, for messages. Arguments may hold keys, so only the command is named."""
        return self.command or without_password(self.url.partition("?")[0]) or type(self.server).__name__


def without_password(text: str) -> str:
    return _PASSWORD.sub(r"\1:***@", text)


def entries(servers: Mapping[str, Any]) -> list[Entry]:
    """The servers that are to be used; a disabled one is left out."""
    if not isinstance(servers, Mapping):
        raise ConfigError(f"mcp_servers is a mapping of names to servers, not {servers!r}")
    read = [_entry(name, given) for name, given in servers.items()]
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
        if key not in _KNOWN:
            raise _wrong(place, notice("mcp.unknown_key", "unknown key {key!r}", key=key) + nearest(str(key), _KNOWN))
    return None if _flag(given, "disabled", place) else _read(name, given, place)


def _read(name: str, given: Mapping[str, Any], place: str) -> Entry:
    command, url = _text(given, "command", place), _text(given, "url", place)
    if bool(command) == bool(url):
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
