"""Model servers on this machine: Ollama, LM Studio, llama.cpp. Find them and their models, to offer them."""

from __future__ import annotations

import json
import os
import re
from http.client import HTTPException
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

_USUAL = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
_PATIENCE = 1.0  # seconds for the connection
_DEADLINE = 2.0  # seconds for the whole answer
_MOST_BYTES = 1_000_000
_NO_CHAT = re.compile(r"embed|rerank|whisper|\btts\b|bge-|\be5-|gte-|minilm|clip|moderation|diffusion|speech", re.IGNORECASE)


class Nearby(NamedTuple):
    server: str
    address: str
    models: list[str]


class _StayHere(HTTPRedirectHandler):
    """Follow no redirects: a model server answers itself."""

    def redirect_request(self, *_: Any) -> None:
        return None


def nearby() -> list[Nearby]:
    """Return the servers that answer at once.

    `KANAME_NEARBY` names other ports ("name=port,…"); if it is empty, no server is asked.
    """
    wanted = os.environ.get("KANAME_NEARBY")
    places = _USUAL
    if wanted is not None:
        pairs = [part.partition("=") for part in wanted.split(",")]
        places = {name: int(port) for name, _, port in pairs if port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536}
    if not places:
        return []
    found: dict[str, Nearby | None] = dict.fromkeys(places)
    lookers = [
        Thread(target=_look_into, args=(found, name, f"http://127.0.0.1:{port}/v1"), daemon=True)
        for name, port in places.items()
    ]
    end = monotonic() + _DEADLINE
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join(max(0.0, end - monotonic()))  # servers that have not answered by then are ignored
    return [one for one in list(found.values()) if one is not None and one.models]


def _look_into(found: dict[str, Nearby | None], server: str, address: str) -> None:
    found[server] = _look(server, address)


def _look(server: str, address: str) -> Nearby | None:
    try:
        opener = build_opener(ProxyHandler({}), _StayHere)
        with opener.open(f"{address}/models", timeout=_PATIENCE) as answer:
            listed = json.loads(_read_all(answer))["data"]
        names = [str(model["id"]) for model in listed]
    except HTTPError as refused:
        refused.close()
        return None
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):  # no server, or another program
        return None
    return Nearby(server, address, [name for name in names if name.isprintable() and name and not _NO_CHAT.search(name)])


def _read_all(answer: Any) -> bytes:
    """Read the whole answer. Raise TimeoutError if it is too slow or too large for a model server."""
    end, held = monotonic() + _DEADLINE, b""
    while block := answer.read1(65536):
        held += block
        if monotonic() > end or len(held) > _MOST_BYTES:
            raise TimeoutError
    return held
