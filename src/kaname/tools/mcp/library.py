"""What servers have besides tools: resources to read and prompts to use, for the caller and, on request, for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import AgentConnectionError
from ...core.messages import ToolResult
from ...core.record import record
from ...kernel.boundary import Failure, attempt
from ..definition import DefinedTool
from .results import contents
from .server import McpServer, reason


@record
class Held:
    """A resource (`uri`, or a template for one) or a prompt (`arguments`: what it wants)."""

    server: str
    kind: str
    name: str
    uri: str = ""
    description: str = ""
    arguments: tuple[str, ...] = ()


async def held_by(servers: Sequence[McpServer]) -> list[Held]:
    """All that the servers offer; one that cannot be asked offers nothing."""
    found: list[Held] = []
    for server in servers:
        for feature, listing, kind in (
            ("resources", "list_resources", "resource"),
            ("resources", "list_resource_templates", "template"),
            ("prompts", "list_prompts", "prompt"),
        ):
            if getattr(server.capabilities, feature, None) is None:
                continue
            listed = await attempt(_listed, server, listing, passing=())
            found += [] if isinstance(listed, Failure) else [_held(server.name, kind, one) for one in listed]
    return found


async def _listed(server: McpServer, listing: str) -> Any:
    return await getattr(await server.client(), listing)()


def _held(server: str, kind: str, one: Any) -> Held:
    address = str(getattr(one, "uri", None) or getattr(one, "uri_template", None) or "")
    wanted = tuple([argument.name for argument in getattr(one, "arguments", None) or ()])
    return Held(server, kind, one.name, address, one.description or "", wanted)


async def read_resource(servers: Sequence[McpServer], uri: str) -> ToolResult:
    """From the first server that has it."""
    why = "no tool server has resources"
    for server in servers:
        if getattr(server.capabilities, "resources", None) is None:
            continue
        outcome = await attempt(_read, server, uri, passing=())
        if not isinstance(outcome, Failure):
            pieces = [contents(one) for one in outcome]
            media = tuple([picture for _, picture in pieces if picture is not None])
            return ToolResult("\n".join([text for text, _ in pieces]), media=media)
        why = reason(outcome.error)
    return ToolResult(error=f"{uri} cannot be read: {why}")


async def _read(server: McpServer, uri: str) -> Any:
    return await (await server.client()).read_resource(uri)


async def get_prompt(servers: Sequence[McpServer], name: str, arguments: Mapping[str, Any]) -> str:
    """The text of a prompt, with its blanks filled in."""
    why = "no tool server has prompts"
    for server in servers:
        if getattr(server.capabilities, "prompts", None) is None:
            continue
        outcome = await attempt(_prompt, server, name, dict(arguments), passing=())
        if not isinstance(outcome, Failure):
            return "\n\n".join([getattr(message.content, "text", "") for message in outcome.messages])
        why = reason(outcome.error)
    raise AgentConnectionError(f"the prompt {name!r} cannot be had: {why}")


async def _prompt(server: McpServer, name: str, arguments: dict[str, Any]) -> Any:
    return await (await server.client()).get_prompt(name, arguments)


def library_tools(servers: Sequence[McpServer]) -> list[DefinedTool]:
    """Two tools, for the servers whose entry says `library: true`."""
    wanted = [server for server in servers if server.entry.library]
    if not wanted:
        return []

    async def look() -> list[dict[str, Any]]:
        return [
            {"kind": one.kind, "name": one.name, "uri": one.uri, "description": one.description}
            for one in await held_by(wanted)
            if one.kind != "prompt"
        ]

    async def read(uri: str) -> ToolResult:
        return await read_resource(wanted, uri)

    address = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
    nothing = {"type": "object", "properties": {}}
    named = (("list_resources", "What there is to read.", nothing, look), ("read_resource", "Read one of them.", address, read))
    return [
        DefinedTool({"name": name, "description": told, "parameters": schema, "effect": "pure", "execute": work})
        for name, told, schema, work in named
    ]
