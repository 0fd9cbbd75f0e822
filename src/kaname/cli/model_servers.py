"""Model servers on this machine: Ollama, LM Studio, llama.cpp. They are asked for their models, and offered."""

from __future__ import annotations

import json
import os
import re
from http.client import HTTPException
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

_USUAL = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
_PATIENCE = 0.5  # seconds for a sign of life
_DEADLINE = 1.0  # seconds for all of it
_MOST_BYTES = 1_000_000
_NO_CHAT = re.compile(r"embed|rerank|whisper|\btts\b|bge-|\be5-|gte-|minilm|clip|moderation|diffusion|speech", re.IGNORECASE)


class Nearby(NamedTuple):
    server: str
    address: str
    models: list[str]


class _StayHere(HTTPRedirectHandler):
    """A model server answers itself."""

    def redirect_request(self, *_: Any) -> None:
        return None


def nearby() -> list[Nearby]:
    """Those that answer at once. `KANAME_NEARBY` names other ports ("name=port,…"), or none (empty)."""
    wanted = os.environ.get("KANAME_NEARBY")
    places = _USUAL
    if wanted is not None:
        pairs = [part.partition("=") for part in wanted.split(",")]
        places = {name: int(port) for name, _, port in pairs if port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536}
    if not places:
        return []
    found: dict[str, Nearby | None] = dict.fromkeys(places)
    lookers = [
        Thread(target=_noted, args=(found, name, f"http://127.0.0.1:{port}/v1"), daemon=True) for name, port in places.items()
    ]
    end = monotonic() + _DEADLINE
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join(max(0.0, end - monotonic()))  # whoever is not ready by then is left alone
    return [one for one in list(found.values()) if one is not None and one.models]


def _noted(found: dict[str, Nearby | None], server: str, address: str) -> None:
    found[server] = _look(server, address)


def _look(server: str, address: str) -> Nearby | None:
    try:
        opener = build_opener(ProxyHandler({}), _StayHere)
        with opener.open(f"{address}/models", timeout=_PATIENCE) as answer:
            listed = json.loads(_all_of(answer))["data"]
        names = [str(model["id"]) for model in listed]
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):  # nobody there, or somebody else
        return None
    return Nearby(server, address, [name for name in names if name.isprintable() and name and not _NO_CHAT.search(name)])


def _all_of(answer: Any) -> bytes:
    """What comes within the time. A server that drips is none of ours."""
    end, held = monotonic() + _DEADLINE, b""
    while block := answer.read1(65536):
        held += block
        if monotonic() > end or len(held) > _MOST_BYTES:
            raise TimeoutError
    return held
