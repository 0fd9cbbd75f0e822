"""Model servers on this machine: Ollama, LM Studio, llama.cpp. They are asked for their models, and offered."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.request import ProxyHandler, build_opener

_USUAL = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
_PATIENCE = 0.5


class Nearby(NamedTuple):
    server: str
    address: str
    models: list[str]


def nearby() -> list[Nearby]:
    """Those that answer at once. `KANAME_NEARBY` names other ports ("name=port,…"), or none (empty)."""
    wanted = os.environ.get("KANAME_NEARBY")
    places = _USUAL
    if wanted is not None:
        places = {name: int(port) for name, _, port in (part.partition("=") for part in wanted.split(",")) if port.isdecimal()}
    if not places:
        return []
    with ThreadPoolExecutor(len(places)) as threads:
        found = threads.map(_look, places, [f"http://127.0.0.1:{port}/v1" for port in places.values()])
        return [one for one in found if one is not None and one.models]


def _look(server: str, address: str) -> Nearby | None:
    try:
        with build_opener(ProxyHandler({})).open(f"{address}/models", timeout=_PATIENCE) as answer:
            listed = json.load(answer)["data"]
        return Nearby(server, address, [str(model["id"]) for model in listed])
    except (OSError, ValueError, KeyError, TypeError):  # nobody there, or somebody else
        return None
