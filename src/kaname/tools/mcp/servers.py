"""All the servers of an agent: started together, their tools under names that are unique, closed together."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Any

from ...core.errors import AgentConnectionError
from ...core.events import Effect
from ...core.messages import ToolCall, ToolResult
from ...kernel.ports import Repair, ToolContext
from ..arguments import fitting_arguments
from ..registry import ToolRegistry
from .entry import entries
from .library import Held, get_prompt, held_by, library_tools, read_resource
from .search import MOST_SHOWN, FindTools, UseTool
from .server import Elicit, McpServer


class McpTool:
    """A tool of a server. What the server says of it (read-only, idempotent) is believed; without a word it is irreversible."""

    undo: Repair | None = None
    reconcile: Repair | None = None

    def __init__(self, server: McpServer, tool: Any, name: str) -> None:
        self.name, self.description = name, tool.description or tool.title or name
        self.parameters: Mapping[str, Any] = tool.input_schema
        self.timeout = server.entry.timeout
        hints = tool.annotations
        self.effect: Effect = "irreversible"
        if hints is not None and (hints.read_only_hint or hints.idempotent_hint):
            self.effect = "pure" if hints.read_only_hint else "idempotent"
        self._server, self._tool = server, tool.name

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        return fitting_arguments(call, self.name, self.parameters)

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        return await self._server.call(self._tool, prepared, context.progress)


class McpServers:
    """`problems`: the servers that did not start, and why. The tools of the others are in the registry."""

    def __init__(
        self, servers: Mapping[str, Any], registry: ToolRegistry, changed: Callable[[], None], elicit: Elicit | None = None
    ) -> None:
        self.servers = [McpServer(entry, self._rebuild, elicit) for entry in entries(servers)]
        self.problems: dict[str, str] = {}
        self._registry, self._changed = registry, changed
        self._mine: list[str] = []
        self._started: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """All at once. One that fails is reported by its name, and the rest works; unless it is `required`."""
        if self._started is asyncio.get_running_loop():
            return
        outcomes = await asyncio.gather(*[server.start() for server in self.servers], return_exceptions=True)
        self.problems = {}
        for server, outcome in zip(self.servers, outcomes, strict=True):
            if isinstance(outcome, AgentConnectionError) and not server.entry.required:
                self.problems[server.name] = str(outcome)
                getLogger("kaname").warning("%s", outcome)
            elif isinstance(outcome, BaseException):
                await self.close()
                raise outcome
        self._started = asyncio.get_running_loop()
        self._rebuild()

    async def close(self) -> None:
        self._started = None
        await asyncio.gather(*[server.close() for server in self.servers])

    async def library(self) -> list[Held]:
        """Resources, templates and prompts of all servers."""
        return await held_by(self.servers)

    async def read_resource(self, uri: str) -> ToolResult:
        return await read_resource(self.servers, uri)

    async def get_prompt(self, name: str, /, **arguments: Any) -> str:
        return await get_prompt(self.servers, name, arguments)

    def _rebuild(self) -> None:
        offered = [(server, tool) for server in self.servers for tool in server.tools]
        count = Counter([tool.name for _, tool in offered])
        own = set(self._registry) - set(self._mine)
        made: dict[str, McpTool] = {}
        for server, tool in offered:
            name = tool.name if count[tool.name] == 1 and tool.name not in own else f"{server.name}__{tool.name}"
            made.setdefault(_fitting(name, made), McpTool(server, tool, _fitting(name, made)))
        actions: list[Any] = list(made.values())
        if len(own) + len(made) > MOST_SHOWN:
            actions = [FindTools(made), UseTool(made)]
        actions += library_tools(self.servers)
        self._registry.exchange(self._mine, actions)
        self._mine = [action.name for action in actions]
        self._changed()


def _fitting(name: str, taken: Mapping[str, Any]) -> str:
    """What every provider takes as a name: letters, digits, _ and -, at most 64 of them, and none twice."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
    number = 2
    fitting = plain
    while fitting in taken:
        fitting = f"{plain[:60]}_{number}"
        number += 1
    return fitting
