"""The protocols that come with packages of their own: MCP and A2A."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from starlette.routing import BaseRoute, Match, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from ..service import Service


def optional_protocols(service: Service, mcp: bool | None, a2a: bool | None) -> list[BaseRoute]:
    """The protocols that come with packages of their own."""
    from importlib.util import find_spec

    found: list[BaseRoute] = []
    if mcp or (mcp is None and find_spec("fastmcp") is not None):
        from .mcp import Lazy

        lazy = Lazy(service)
        found += [Route("/mcp", lazy), Mount("/mcp", app=lazy)]
    if a2a or (a2a is None and find_spec("a2a") is not None):
        found.append(Later(("/a2a/", "/.well-known/agent-card.json"), lambda: _a2a(service)))
    return found


def _a2a(service: Service) -> list[BaseRoute]:
    from .a2a import routes

    return routes(service)


class Later(BaseRoute):
    """Routes that are made on the first request to one of them: the package of a protocol may take long to import."""

    def __init__(self, places: tuple[str, ...], make: Callable[[], list[BaseRoute]]) -> None:
        self._places, self._make = places, make

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        ours = scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")).startswith(self._places)
        return (Match.FULL, {}) if ours else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    @cached_property
    def _router(self) -> Router:
        return Router(self._make(), redirect_slashes=False)
