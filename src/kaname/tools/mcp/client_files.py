"""Config files of other MCP clients: their wrappers, their names for the same things, their variables, as entries of ours."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.notices import notice

_WRAPPERS = ("mcpServers", "mcp_servers", "servers", "context_servers", "mcp")
_RENAMED = {
    "serverUrl": "url",
    "httpUrl": "url",
    "environment": "env",
    "http_headers": "headers",
    "includeTools": "tools",
    "enabled_tools": "tools",
    "excludeTools": "exclude_tools",
    "disabledTools": "exclude_tools",
    "disabled_tools": "exclude_tools",
    "startup_timeout_sec": "start_timeout",
    "tool_timeout_sec": "timeout",
}
_TYPES = {"local": "stdio", "remote": "http", "streamableHttp": "http", "streamable": "http"}
_OF_THE_CLIENT = frozenset(
    ("autoApprove", "alwaysAllow", "trust", "description", "name", "icon", "gallery", "version", "source", "$schema", "dev")
)  # how that client asks and shows: our own approvals hold here
_STRING = r'("(?:\\.|[^"\\])*")'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])")
_VARIABLE = re.compile(r"\$\{(?:(env|input):)?([^}:]+)(?::-([^}]*))?\}")
_MILLISECONDS = 1000.0  # a time limit from here on is not in seconds


def servers_of_file(path: str | os.PathLike[str], known: Sequence[str]) -> dict[str, Any]:
    """The servers that the file of Claude, Cursor, VS Code, Gemini, Codex, … names, in the form of `mcp_servers`.

    `known`: the keys that an entry of ours may have."""
    file = Path(path).expanduser()
    try:
        text = file.read_text("utf-8-sig")
        held = _toml(text) if file.suffix == ".toml" else _json_with_comments(text)
    except OSError as problem:
        raise ConfigError(
            notice("mcp.file_unread", "{file} cannot be read: {problem}", file=file, problem=problem)
        ) from problem
    except ValueError as problem:
        raise ConfigError(
            notice("mcp.file_form", "{file} is not in the form of its kind: {problem}", file=file, problem=problem)
        ) from problem
    servers = unwrapped(held)
    if not isinstance(servers, Mapping):
        raise ConfigError(notice("mcp.file_without_servers", "{file} names no servers (mcpServers, servers)", file=file))
    return {name: _ours(given, known, f"{file}: {name}", file) for name, given in servers.items()}


def unwrapped(held: Any) -> Any:
    """The mapping of servers, out of the wrappers that clients put around it."""
    while isinstance(held, Mapping):
        inner = [held[name] for name in _WRAPPERS if isinstance(held.get(name), Mapping) and not _is_server(held[name])]
        if not inner:
            return held if all(_is_server(one) for one in held.values()) else None
        held = inner[0]
    return None


def _is_server(given: Any) -> bool:
    return isinstance(given, Mapping) and any(key in given for key in ("command", "url", "serverUrl", "httpUrl"))


def _json_with_comments(text: str) -> Any:
    for unwanted in (_COMMENT, _LAST_COMMA):
        text = unwanted.sub(lambda found: found[1] or "", text)
    return json.loads(text)


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _ours(given: Mapping[str, Any], known: Sequence[str], place: str, file: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for key, value in given.items():
        name = _RENAMED.get(key, key)
        if name == "enabled":
            entry["disabled"] = value is False
        elif name in known:
            entry[name] = _filled_in(value, place, file)
        elif name not in _OF_THE_CLIENT:
            getLogger("kaname").warning("%s: %r says nothing to kaname and is left out", place, key)
    command = entry.get("command")
    if isinstance(command, Mapping):  # Zed's older form
        entry |= {"command": command.get("path", ""), "args": command.get("args", []), "env": command.get("env", {})}
    elif isinstance(command, list) and command:
        entry |= {"command": command[0], "args": [*command[1:], *entry.get("args", [])]}
    if entry.get("type") in _TYPES:
        entry["type"] = _TYPES[entry["type"]]
    for limit in ("timeout", "start_timeout"):
        if isinstance(entry.get(limit), int | float) and entry[limit] >= _MILLISECONDS:
            entry[limit] = entry[limit] / 1000
    return entry


def _filled_in(value: Any, place: str, file: Path) -> Any:
    """With `${VAR}`, `${env:VAR}`, `${VAR:-default}` and the editors' own variables filled in."""
    if isinstance(value, Mapping):
        return {name: _filled_in(one, place, file) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled_in(one, place, file) for one in value]
    if not isinstance(value, str):
        return value
    folder = file.resolve().parent
    project = folder.parent if folder.name.startswith(".") else folder
    known = {"workspaceFolder": str(project), "userHome": str(Path.home()), "pathSeparator": os.sep, "/": os.sep}

    def filled(found: re.Match[str]) -> str:
        kind, name, default = found.groups()
        if kind is None and name in known:
            return known[name]
        if kind == "input":
            raise ConfigError(
                notice(
                    "mcp.file_input",
                    "{place}: {variable} is asked for by another client; write ${{env:NAME}} there, or the server into "
                    "mcp_servers",
                    place=place,
                    variable=found[0],
                )
            )
        if name not in os.environ and default is None:
            raise ConfigError(
                notice(
                    "mcp.file_variable",
                    "{place}: the environment has no {name}, which {variable} wants",
                    place=place,
                    name=name,
                    variable=found[0],
                )
            )
        return os.environ.get(name, default or "")

    return _VARIABLE.sub(filled, value)
