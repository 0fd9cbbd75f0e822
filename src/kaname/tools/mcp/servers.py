"""MCP servers of an agent: started and closed together, with their tools under unique names."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from logging import getLogger
from typing import Any

from ...core.errors import AgentConnectionError, BadArguments, InvalidState
from ...core.events import Effect
from ...core.messages import Message, ToolCall, ToolResult
from ...core.notices import join_notices, notice
from ...core.people.labels import LABELS_KEY
from ...kernel.bases import ActionBase, ToolOptions
from ...kernel.ports import ToolContext
from ...kernel.view import RunView
from ..arguments.prepare import fitting_arguments
from ..registry import ToolRegistry
from ..tool_search import SystemWords
from .config import Servers, entries, servers_by_name
from .questions import Elicit, Sample
from .resources import LibraryItem, get_prompt, library_tools, list_library, read_resource
from .server import McpServer

_GONE = (
    "Not available now, because the tool server did not start; if the task needs such a tool, say so instead of guessing. "
    "Missing servers:"
)
_LONGEST_WORDS = 4000  # characters of a server's instructions


class McpTool(ActionBase):
    """A tool of a server. Its effect follows the server's hints (read-only, idempotent); without a hint it is irreversible.

    It has no timeout: the server's clock limits a call, because a restart and a person's answer have their own time.
    """

    def __init__(self, server: McpServer, tool: Any, name: str) -> None:
        told = tool.description or tool.title or ""
        if is_name_lost(tool.name):
            told = f"{tool.name}: {told}" if told else tool.name
        self.name, self.description = name, told or name
        self.parameters: Mapping[str, Any] = tool.input_schema
        hints = tool.annotations
        self.effect: Effect = "irreversible"
        if hints is not None and (hints.read_only_hint or hints.idempotent_hint):
            self.effect = "pure" if hints.read_only_hint else "idempotent"
        self.options = ToolOptions(labels=labels_from(hints, tool.meta), server=(server.name, tool.name))
        self._server, self._tool, self._output = server, tool.name, tool.output_schema

    @property
    def identity(self) -> Any:
        """Return the address or the command of the server, and the server object itself, so that results are not cached."""
        entry = self._server.entry
        program = (entry.command, entry.args, entry.cwd, tuple(sorted(entry.env.items())))
        return (entry.url, *program, type(entry.server), [self._server])

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        args = fitting_arguments(call, self.name, self.parameters)
        try:
            json.dumps(args, ensure_ascii=False, allow_nan=False).encode()
        except ValueError as problem:  # a lone surrogate, or NaN
            raise BadArguments(f"the arguments of {self.name} cannot be sent as JSON: {problem}") from None
        return args

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        return await self._server.call(self._tool, prepared, context, self._output, self.effect == "pure")


def labels_from(hints: Any, meta: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the labels from a server that restrict a tool. A server cannot declare its own tools trusted."""
    told = (meta or {}).get(LABELS_KEY)
    told = told if isinstance(told, Mapping) else {}
    labels: dict[str, Any] = {"role": "acts"} if told.get("role") == "acts" else {}
    if told.get("private") is True:
        labels["private"] = True
    if (told and told.get("result") != "trusted") or (hints is not None and hints.open_world_hint is True):
        labels["result"] = "untrusted"
    return labels or None


class McpServers:
    """The MCP servers of an agent. Their tools are in the registry.

    `problems`: the servers that did not start, with the reason. The servers belong to one event loop at a time: that of the
    first run, until they are closed or that loop has ended."""

    def __init__(
        self, servers: Servers, registry: ToolRegistry, elicit: Elicit | None = None, sample: Sample | None = None
    ) -> None:
        given = servers_by_name(servers)
        self.servers = [McpServer(entry, self._rebuild, elicit, sample) for entry in entries(given)]
        self.problems: dict[str, str] = {}
        self._missing = len(given) - len(self.servers)
        self._told = SystemWords()
        self._registry = registry
        self._names, self._mine = Names(), list[str]()
        self._closed = False
        self._starting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._entering = threading.Lock()

    @property
    def complete(self) -> bool:
        """True if every server is running, so that all tools are known."""
        return not self.problems and not self._missing

    @property
    def missing_notice(self) -> str:
        """A notice for every reader of a run about the servers that did not start; empty if all did."""
        return join_notices("\n", [server.missing_notice for server in self.servers if server.name in self.problems])

    def names(self, server: str, tool: str) -> bool:
        """Return True if the configuration has that server and includes that tool. An empty `server` means any."""
        return not server or any(one.name == server and one.entry.admits(tool) for one in self.servers)

    async def start(self) -> None:
        """Start all servers that are not running, concurrently. Callers that arrive meanwhile wait for the same start.

        A server that fails is reported in `problems`, and the others can be used. Raises if it is `required`."""
        self._enter()
        self._closed = False
        if self._starting is None or self._starting.done():
            due = [server for server in self.servers if server.due]
            if not due:
                return
            self._starting = asyncio.ensure_future(self._start(due))
            self._starting.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        task = self._starting
        await asyncio.wait([task])
        if task.cancelled():
            raise InvalidState(_is_closed())
        task.result()

    async def _start(self, due: list[McpServer]) -> None:
        outcomes = await asyncio.gather(*[server.start() for server in due], return_exceptions=True)
        for server, outcome in zip(due, outcomes, strict=True):
            self.problems.pop(server.name, None)
            if isinstance(outcome, AgentConnectionError):
                self.problems[server.name] = str(outcome)
                getLogger("kaname").warning("%s", outcome)
        for server, outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, BaseException) and (server.entry.required or server.name not in self.problems):
                await asyncio.gather(*[one.close() for one in self.servers])
                raise outcome
        self._rebuild()

    def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        with self._entering:
            before, self._loop = self._loop, loop
            if before is None or before is loop:
                return
            if before.is_running():
                self._loop = before
                raise InvalidState.of(
                    "mcp.other_event_loop",
                    "the tool servers of this agent are in use in another event loop. Create one agent per thread, or "
                    "close this agent there first.",
                )
        self._starting = None
        for server in self.servers:
            server.forget()

    async def close(self) -> None:
        """Close all servers. From another event loop this only has an effect if the servers' loop has ended."""
        with self._entering:
            before = self._loop
            if before is not None and before is not asyncio.get_running_loop() and before.is_running():
                return
            self._loop, self._closed = None, True
        if before is not None and before is not asyncio.get_running_loop():
            for server in self.servers:
                server.forget()
        if self._starting is not None:
            self._starting.cancel()
        await asyncio.gather(*[server.close() for server in self.servers])

    def set_elicit(self, elicit: Elicit) -> None:
        """Set the callback for the servers' questions, unless the program has set one. Call this before the servers start."""
        for server in self.servers:
            server.set_elicit(elicit)

    async def instruct(self, messages: tuple[Message, ...], view: RunView) -> Sequence[Message]:
        """Add the servers' own instructions to the system message, and the names of the servers that did not start."""
        said = [(server.name, server.instructions) for server in self.servers if server.instructions and server.tools]
        told = [f"About the tools of the server {name!r}, it says:\n{_shorten(text)}" for name, text in said]
        if gone := ", ".join([repr(server.name) for server in self.servers if server.name in self.problems]):
            told.append(f"{_GONE} {gone}")
        words = "\n\n".join(told)
        return self._told.add(messages, words)

    async def library(self) -> list[LibraryItem]:
        """List the resources, templates and prompts of all servers."""
        return await list_library(await self._ready())

    async def read_resource(self, uri: str, server: str = "") -> ToolResult:
        """Read a resource. `server`: which one, if several have the same `uri`."""
        return await read_resource(await self._ready(), uri, server)

    async def get_prompt(self, name: str, server: str = "", /, **arguments: Any) -> str:
        """Return the text of a prompt. `server`: which one, if several have the same name."""
        return await get_prompt(await self._ready(), name, arguments, server)

    async def _ready(self) -> list[McpServer]:
        if self._closed:
            raise InvalidState(_is_closed())
        await self.start()
        return self.servers

    def _rebuild(self) -> None:
        offered: dict[tuple[str, str], tuple[McpServer, Any]] = {}
        for server in self.servers:
            for tool in server.tools:
                offered.setdefault((server.name, tool.name), (server, tool))
        own = set(self._registry) - self._registry.exchanged
        names = self._names.give(list(offered), own)
        actions: list[Any] = [McpTool(server, tool, names[key]) for key, (server, tool) in offered.items()]
        wanted = [server for server in self.servers if server.entry.library]
        actions += library_tools(wanted, lambda name: self._names.give_own(name, own))
        self._registry.exchange(self._mine, actions)
        self._mine = [action.name for action in actions]


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]} […]"


def _is_closed() -> str:
    return notice("mcp.agent_closed", "the agent and its tool servers are closed")


_LONGEST = 64  # what every provider takes: letters, digits, _ and -, at most so many
Key = tuple[str, str]
"""The names of a server and of its tool. The server is empty for kaname's own tools."""


class Names:
    """The names that were assigned. A name is never reassigned, so that an approval by name always means the same tool."""

    def __init__(self) -> None:
        self._given: dict[Key, str] = {}

    def give(self, wanted: Sequence[Key], own: Collection[str]) -> dict[Key, str]:
        """Assign a name to each tool. The agent's own tools, `own`, keep theirs.

        If several new tools have the same name, all of them get their server's name as a prefix. If the name is already
        taken, the new tool gets the prefix."""
        kept = {key: name for key, name in self._given.items() if name not in own}
        taken = {*own, *self._given.values()}
        fresh = [key for key in dict.fromkeys(wanted) if key not in kept]
        count = Counter([_safe_name(tool) for _, tool in fresh])
        for key in fresh:
            server, tool = key
            plain = _safe_name(tool)
            if not plain.strip("_-"):
                name = _add_number(f"{_server(server)}_tool", taken)
            elif plain not in taken and count[plain] == 1:
                name = plain
            else:
                name = _free(_add_prefix(_server(server), plain), taken)
            taken.add(name)
            kept[key] = name
        self._given |= kept
        return {key: kept[key] for key in dict.fromkeys(wanted)}

    def give_own(self, tool: str, own: Collection[str]) -> str:
        """Assign a name to a tool of kaname's: its own name, or with the prefix `mcp_` if that is taken."""
        key = ("", tool)
        if self._given.get(key, "") in ("", *own):
            taken = {*own, *[name for other, name in self._given.items() if other != key]}
            self._given[key] = tool if tool not in taken else _free(f"mcp_{tool}", taken)
        return self._given[key]


def is_name_lost(tool: str) -> bool:
    """Return True if the safe name omits parts of the tool's name, so that the description must contain it."""
    return not tool.isascii() or not _safe_name(tool).strip("_-")


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_LONGEST]


def _server(name: str) -> str:
    return _safe_name(name) if _safe_name(name).strip("_-") else "mcp"


def _add_prefix(server: str, tool: str) -> str:
    room = max(8, _LONGEST - 2 - len(tool))
    return f"{server[:room]}__{tool}"[:_LONGEST]


def _free(name: str, taken: Collection[str]) -> str:
    return name if name not in taken else _add_number(name, taken, 2)


def _add_number(name: str, taken: Collection[str], number: int = 1) -> str:
    while (made := f"{name[: _LONGEST - 6]}_{number}") in taken:
        number += 1
    return made
