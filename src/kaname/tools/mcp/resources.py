"""Resources and prompts of MCP servers, for the caller and, if configured, for the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from logging import DEBUG, WARNING, getLogger
from typing import Any

from ...core.errors import AgentConnectionError, nearest
from ...core.messages import ToolResult
from ...core.notices import notice
from ...core.record import record
from ...kernel.boundary import Failure, attempt
from ..definition import DefinedTool
from .results import contents
from .server import McpServer

_LISTINGS = (
    ("resources", "list_resources", "resource"),
    ("resources", "list_resource_templates", "template"),
    ("prompts", "list_prompts", "prompt"),
)


@record
class LibraryItem:
    """A resource (`uri`), a template for resources (`uri`), or a prompt (`arguments`: their names)."""

    server: str
    kind: str
    name: str
    uri: str = ""
    description: str = ""
    arguments: tuple[str, ...] = ()


async def list_library(servers: Sequence[McpServer]) -> list[LibraryItem]:
    """List the items of all servers. A server that fails is logged and contributes nothing."""
    return [one for held in await asyncio.gather(*[_list_items(server) for server in servers]) for one in held]


async def _list_items(server: McpServer) -> list[LibraryItem]:
    found: list[LibraryItem] = []
    for feature, listing, kind in _LISTINGS:
        if getattr(server.capabilities, feature, None) is None:
            continue
        listed = await attempt(server.ask, listing, passing=())
        if isinstance(listed, Failure):  # one kind that it does not have says nothing of the others
            getLogger("kaname").log(DEBUG if kind == "template" else WARNING, "%s", listed.error)
            continue
        found += [_entry(server.name, kind, one) for one in listed]
    return found


def _entry(server: str, kind: str, one: Any) -> LibraryItem:
    address = str(getattr(one, "uri", None) or getattr(one, "uri_template", None) or "")
    wanted = tuple([argument.name for argument in getattr(one, "arguments", None) or ()])
    return LibraryItem(server, kind, one.name, address, one.description or "", wanted)


async def read_resource(servers: Sequence[McpServer], uri: str, server: str = "") -> ToolResult:
    """Read a resource from the named server, or from the first server that has it."""
    outcome = await _first(servers, "resources", server, "read_resource", uri)
    if isinstance(outcome, str):
        return ToolResult(error=f"{uri} cannot be read: {outcome}")
    pieces = [contents(one) for one in outcome]
    media = tuple([picture for _, picture in pieces if picture is not None])
    return ToolResult("\n".join([text for text, _ in pieces]), media=media)


async def get_prompt(servers: Sequence[McpServer], name: str, arguments: Mapping[str, Any], server: str = "") -> str:
    """Return the text of a prompt with its arguments filled in. Messages of several roles are marked with their role.

    Raises `AgentConnectionError` if no server returns the prompt."""
    outcome = await _first(servers, "prompts", server, "get_prompt", name, dict(arguments))
    if isinstance(outcome, str):
        raise AgentConnectionError.of(
            "mcp.prompt_failed", "the prompt {name!r} is not available: {outcome}", name=name, outcome=outcome
        )
    said = [(message.role, _text(message.content)) for message in outcome.messages]
    mixed = any(role != "user" for role, _ in said)
    return "\n\n".join([f"{role}: {text}" if mixed else text for role, text in said])


def _text(content: Any) -> str:
    return str(getattr(content, "text", "") or getattr(getattr(content, "resource", None), "text", ""))


async def _first(servers: Sequence[McpServer], feature: str, wanted: str, method: str, *args: Any) -> Any:
    """Return the first successful answer, or the reason for the failure as a string."""
    able = [one for one in servers if getattr(one.capabilities, feature, None) is not None]
    asked = [one for one in able if wanted in ("", one.name)]
    if wanted and not asked:
        return notice(
            "mcp.server_without_feature", "no tool server named {wanted!r} provides {feature}", wanted=wanted, feature=feature
        ) + nearest(wanted, [one.name for one in able])
    why: str = notice("mcp.no_feature", "no tool server provides {feature}", feature=feature)
    for server in asked:
        outcome = await attempt(server.ask, method, *args, passing=())
        if not isinstance(outcome, Failure):
            return outcome
        why = str(outcome.error)
    return why


def library_tools(servers: Sequence[McpServer], named: Callable[[str], str]) -> list[DefinedTool]:
    """Make four tools with which the model can list and read the resources and prompts of servers with `library: true`."""
    if not servers:
        return []

    async def resources() -> list[dict[str, Any]]:
        return [
            {"server": one.server, "kind": one.kind, "name": one.name, "uri": one.uri, "description": one.description}
            for one in await list_library(servers)
            if one.kind != "prompt"
        ]

    async def read(uri: str, server: str = "") -> ToolResult:
        return await read_resource(servers, uri, server)

    async def prompts() -> list[dict[str, Any]]:
        return [
            {"server": one.server, "name": one.name, "arguments": [*one.arguments], "description": one.description}
            for one in await list_library(servers)
            if one.kind == "prompt"
        ]

    async def use(name: str, arguments: Mapping[str, Any] | None = None, server: str = "") -> ToolResult:
        try:
            return ToolResult(await get_prompt(servers, name, arguments or {}, server))
        except AgentConnectionError as problem:
            return ToolResult(error=str(problem))

    where = {"server": {"type": "string", "description": "which server, where two have the same"}}
    text = {"type": "string"}
    made: Any = (
        ("list_resources", "What there is to read.", {}, [], resources),
        ("read_resource", "Read one of the resources.", {"uri": text, **where}, ["uri"], read),
        ("list_prompts", "Which prepared instructions there are.", {}, [], prompts),
        ("get_prompt", "One of the prepared instructions.", {"name": text, "arguments": _ANY, **where}, ["name"], use),
    )
    return [
        DefinedTool({"name": named(name), "description": told, "parameters": _object(fields, needed), **_PURE, "execute": work})
        for name, told, fields, needed, work in made
    ]


_ANY: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
_PURE: dict[str, Any] = {"effect": "pure"}


def _object(fields: Mapping[str, Any], needed: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(needed)}
