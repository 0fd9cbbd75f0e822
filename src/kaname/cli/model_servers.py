"""Model servers on this machine: Ollama, LM Studio, llama.cpp. Find them and their models, to offer them."""

from __future__ import annotations

import json
import os
import re
from threading import Thread
from time import monotonic
from typing import NamedTuple

from ..core.web import request

_USUAL = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
_PATIENCE = 1.0  # seconds for the connection
_DEADLINE = 2.0  # seconds for the whole answer
_MOST_BYTES = 1_000_000
_NO_CHAT = re.compile(r"embed|rerank|whisper|\btts\b|bge-|\be5-|gte-|minilm|clip|moderation|diffusion|speech", re.IGNORECASE)


class Nearby(NamedTuple):
    server: str
    address: str
    models: list[str]


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
        answer = request(f"{address}/models", timeout=_PATIENCE, longest=_DEADLINE, most=_MOST_BYTES, proxies=False)
        names = [str(model["id"]) for model in json.loads(answer.content)["data"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # no server, or another program
        return None
    return Nearby(server, address, [name for name in names if name.isprintable() and name and not _NO_CHAT.search(name)])
