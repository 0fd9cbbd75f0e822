"""Ask a server which protocol it speaks, but not for long: an old one may say nothing at all to what it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError

PROBE = 10.0  # seconds: a busy server of the newest kind must not be taken for an old one


async def within(seconds: float, ask: Callable[[str], Awaitable[Any]], version: str) -> Any:
    """Too late is as good as no: it is then greeted in the old way."""
    try:
        async with asyncio.timeout(seconds):
            return await ask(version)
    except TimeoutError:
        raise MCPError(mcp_types.REQUEST_TIMEOUT, f"no answer to {version} within {seconds:g} s") from None
