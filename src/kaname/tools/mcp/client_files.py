"""Read the config files of other MCP clients: convert their wrappers, key names and variables to entries of kaname."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError

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
_READ_APART = frozenset(("enabled", "env_vars", "env_http_headers", "bearer_token_env_var"))
_STRING = r'("(?:\\.|[^"\\])*")'
_COMMENT = re.compile(_STRING + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])")
_VARIABLE = re.compile(r"\$\{(?:(env|input):)?([^}:]+)(?::-([^}]*))?\}")
_SHORT = re.compile(r"\$([A-Z_][A-Z0-9_]*)|(?<!\$)\{env:(\w+)\}")  # Gemini's and opencode's way
_MILLISECONDS = 1000.0  # a time limit from here on is not in seconds


def servers_of_file(path: str | os.PathLike[str], known: Sequence[str]) -> dict[str, Any]:
    """Return the servers in the file of Claude, Cursor, VS Code, Gemini, Codex and others, in the form of `mcp_servers`.

    `known`: the keys that an entry of kaname can have. Raises `ConfigError` if the file cannot be read or has no usable
    server entry."""
    file = Path(path).expanduser()
    try:
        text = file.read_text("utf-8-sig")
        held = _toml(text) if file.suffix == ".toml" else _json_with_comments(text)
    except OSError as problem:
        raise ConfigError.of("mcp.file_unread", "{file} cannot be read: {problem}", file=file, problem=problem) from problem
    except ValueError as problem:
        raise ConfigError.of(
            "mcp.file_form", "{file} is not valid JSON or TOML: {problem}", file=file, problem=problem
        ) from problem
    servers = unwrap_servers(held)
    if not servers:
        raise ConfigError.of("mcp.file_without_servers", "{file} has no servers under mcpServers or servers", file=file)
    made, problems = dict[str, Any](), list[str]()
    for name, given in servers.items():
        if given.get("disabled") is True or given.get("enabled") is False:
            continue
        try:
            made[name] = _to_entry(given, known, f"{file}: {name}", file)
        except ConfigError as problem:  # one wrong entry must not disable the others
            getLogger("kaname").warning("%s; it is left out", problem)
            problems.append(str(problem))
    if problems and not made:
        raise ConfigError("\n".join(problems))
    return made


def unwrap_servers(held: Any) -> dict[str, Any]:
    """Return the servers within the wrappers that clients put around them. Other keys next to them are left out."""
    while isinstance(held, Mapping):
        inner = [held[name] for name in _WRAPPERS if isinstance(held.get(name), Mapping) and not _is_server(held[name])]
        if not inner:
            return {name: one for name, one in held.items() if _is_server(one)}
        held = inner[0]
    return {}


def _is_server(given: Any) -> bool:
    return isinstance(given, Mapping) and any(key in given for key in ("command", "url", "serverUrl", "httpUrl"))


def _json_with_comments(text: str) -> Any:
    for unwanted in (_COMMENT, _LAST_COMMA):
        text = unwanted.sub(lambda match: match[1] or "", text)
    return json.loads(text)


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _command_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command with its arguments, if they stand together in the file."""
    match entry.get("command"):
        case Mapping() as command:  # Zed's older form
            return {"command": command.get("path", ""), "args": command.get("args", []), "env": command.get("env", {})}
        case [program, *arguments]:
            return {"command": program, "args": [*arguments, *entry.get("args", [])]}
    return {}


def _environment_of(given: Mapping[str, Any], own: Any) -> Any:
    """Return the environment of the server: the variables that it shares with kaname, and its own."""
    if isinstance(own, Mapping):  # JSON's true is "true" to a program
        own = {name: str(one).lower() if isinstance(one, bool) else one for name, one in own.items()}
    return {**{name: os.environ[name] for name in given.get("env_vars") or () if name in os.environ}, **own}


def _headers_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers whose values stand in environment variables."""
    headers = {header: f"${{{variable}}}" for header, variable in (given.get("env_http_headers") or {}).items()}
    if token := given.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    return headers


def _to_entry(given: Mapping[str, Any], known: Sequence[str], place: str, file: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for key, value in given.items():
        name = _RENAMED.get(key, key)
        if name == "oauth" and isinstance(value, Mapping):
            entry["auth"] = "oauth" if value.get("enabled", True) else None
        elif name in known and name != "auth":
            entry[name] = _fill_variables(value, place, file)
        elif name not in _OF_THE_CLIENT | _READ_APART:
            getLogger("kaname").warning("%s: %r says nothing to kaname and is left out", place, key)
    entry |= _command_of(entry)
    if entry.get("type") in _TYPES:
        entry["type"] = _TYPES[entry["type"]]
    entry["env"] = _environment_of(given, entry.get("env", {}))
    entry["headers"] = {**entry.get("headers", {}), **_fill_variables(_headers_of(given), place, file)}
    for limit in ("timeout", "start_timeout"):
        if isinstance(entry.get(limit), int | float) and entry[limit] >= _MILLISECONDS:
            entry[limit] = entry[limit] / 1000
    return entry


def _fill_variables(value: Any, place: str, file: Path) -> Any:
    """Fill in `${VAR}`, `${env:VAR}`, `${VAR:-default}` and the editors' own variables."""
    if isinstance(value, Mapping):
        return {name: _fill_variables(one, place, file) for name, one in value.items()}
    if isinstance(value, list):
        return [_fill_variables(one, place, file) for one in value]
    if not isinstance(value, str):
        return value
    folder = file.resolve().parent
    project = folder.parent if folder.name.startswith(".") else folder
    known = {
        "workspaceFolder": str(project),
        "workspaceFolderBasename": project.name,
        "userHome": str(Path.home()),
        "pathSeparator": os.sep,
        "/": os.sep,
    }

    def fill(found: re.Match[str]) -> str:
        kind, name, default = found.groups()
        if kind is None and name in known:
            return known[name]
        if kind == "input":
            raise ConfigError.of(
                "mcp.file_input",
                "{place}: {variable} is a value that another client asks its user for. Replace it with "
                "${{env:NAME}}, or add the server to mcp_servers.",
                place=place,
                variable=found[0],
            )
        if name not in os.environ and default is None:
            raise ConfigError.of(
                "mcp.file_variable",
                "{place}: the environment variable {name} is not set ({variable})",
                place=place,
                name=name,
                variable=found[0],
            )
        return os.environ.get(name, default or "")

    value = _SHORT.sub(lambda found: f"${{{found[1] or found[2]}}}", value)
    return _VARIABLE.sub(fill, value)
