"""Providers that speak OpenAI's chat completions: their addresses, their keys, and their differences from OpenAI.

`compatible.json` lists them. The addresses and the names of the keys are those that LiteLLM 1.106 uses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.record import field, record


@record
class ProviderServer:
    """The address of a provider, and its differences from OpenAI.

    Attributes: address: The base address. keys: Environment variables that may hold the key; the first that is set counts.
    quirks: Features that the server does not support, by the names in `providers/quirks.py`. renamed: Settings that have
    another name there. more: Fields to add to every request, such as OpenRouter's `usage`: it then says what a reply cost.
    prefix: The beginning of a model's name there, if the user left it out.
    """

    address: str
    keys: tuple[str, ...]
    quirks: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(factory=dict)
    more: Mapping[str, Any] = field(factory=dict)
    prefix: str = ""

    @property
    def variable(self) -> str:
        """Return the environment variable of the key: the first that is set, or the first to set."""
        return next((name for name in self.keys if os.environ.get(name)), self.keys[0])

    @property
    def key(self) -> str:
        """Return the key from the environment, or ""."""
        return os.environ.get(self.variable, "")

    @property
    def base_url(self) -> str:
        """Return the address from the environment (`GROQ_BASE_URL`, or LiteLLM's `GROQ_API_BASE`), or the provider's own."""
        stem = self.keys[0].removesuffix("_API_KEY")
        return os.environ.get(f"{stem}_BASE_URL") or os.environ.get(f"{stem}_API_BASE") or self.address


def _server(address: str, keys: list[str], quirks: list[str] | None = None, **row: Any) -> ProviderServer:
    return ProviderServer(address, tuple(keys), tuple(quirks or ()), **row)


_ROWS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SERVERS = {name: _server(**row) for name, row in _ROWS.items()}


def with_keys() -> dict[str, ProviderServer]:
    """Return the providers whose key is set in the environment; of two names of one provider, the first."""
    found: dict[str, ProviderServer] = {}
    for name, server in SERVERS.items():
        if server.key and not any(server.address == other.address for other in found.values()):
            found[name] = server
    return found
