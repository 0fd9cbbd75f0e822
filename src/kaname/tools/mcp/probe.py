"""Ask a server for its protocol version, with a short timeout: an old server may not answer a request that it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError

PROBE = 10.0  # seconds: a busy server of the newest kind must not be taken for an old one


async def ask_within(seconds: float, ask: Callable[[str], Awaitable[Any]], version: str) -> Any:
    """Ask with a timeout. A late answer counts as a refusal, so that the client falls back to the older handshake."""
    try:
        async with asyncio.timeout(seconds):
            return await ask(version)
    except TimeoutError:
        raise MCPError(mcp_types.REQUEST_TIMEOUT, f"no answer to {version} within {seconds:g} s") from None
