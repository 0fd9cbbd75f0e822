"""One server as it is written down: the usual `mcpServers` form, or a server object in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.durations import seconds
from ...core.errors import ConfigError, nearest
from ...core.language import say
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
    library: bool = False  # its resources as tools for the model

    @property
    def told(self) -> str:
        """What it is, for messages. Arguments may hold keys, so only the command is named."""
        return self.command or self.url.partition("?")[0] or type(self.server).__name__


def entries(servers: Mapping[str, Any]) -> list[Entry]:
    if not isinstance(servers, Mapping):
        raise ConfigError(f"mcp_servers is a mapping of names to servers, not {servers!r}")
    read = [_entry(name, given) for name, given in servers.items()]
    return [one for one in read if one is not None]


def _entry(name: str, given: Any) -> Entry | None:
    if not isinstance(given, Mapping):
        if isinstance(given, str):
            return Entry(name, url=given) if "://" in given else Entry(name, command=given)
        return Entry(name, server=given)
    place = f"mcp_servers.{name}"
    for key in given:
        if key not in _KNOWN:
            raise ConfigError(
                say(f"{place}: unknown key {key!r}", f"{place}: {key!r} という項目はありません") + nearest(str(key), _KNOWN)
            )
    if given.get("disabled"):
        return None
    if bool(given.get("command")) == bool(given.get("url")):
        raise ConfigError(say(f"{place}: give either command or url", f"{place}: command か url のどちらか一方が必要です"))
    if not isinstance(given.get("args", []), list | tuple):
        raise ConfigError(say(f"{place}.args is a list", f"{place}.args はリストです"))
    return Entry(
        name,
        command=str(given.get("command") or ""),
        args=tuple([str(arg) for arg in given.get("args", [])]),
        env={str(key): str(value) for key, value in (given.get("env") or {}).items()},
        cwd=given.get("cwd"),
        url=str(given.get("url") or ""),
        headers={str(key): str(value) for key, value in (given.get("headers") or {}).items()},
        timeout=None if given.get("timeout", 60.0) is None else seconds(given.get("timeout", 60.0)),
        start_timeout=seconds(given.get("start_timeout", 30.0)),
        required=bool(given.get("required", False)),
        library=bool(given.get("library", False)),
    )
