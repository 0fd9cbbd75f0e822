"""The process that runs llama.cpp. It ends when its standard input does.

It has an interpreter of its own, because llama.cpp holds the interpreter still while it loads a model.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from typing import Any
from urllib.parse import quote

from ...core.processes import end_with_parent

_PIECE = 32  # tokens that a CPU reads at once: a cancelled call ends after them. More are no faster there.
_CACHE = 512  # MiB of memory for conversations that other questions have displaced


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with answers
    os.umask(0o077)
    end_with_parent()
    opening = json.loads(sys.stdin.readline())
    import xllamacpp

    try:
        server = xllamacpp.Server(_parameters(xllamacpp, opening, key := secrets.token_urlsafe(24)))
    except (RuntimeError, ValueError, MemoryError) as problem:
        answer = {"failed": str(problem)}
    else:
        if opening["socket"]:
            os.chmod(opening["socket"], 0o600)
        unix = "http+unix://" + quote(opening["socket"], safe="")
        answer = {"address": unix if opening["socket"] else server.listening_address, "key": key}
    print(json.dumps(answer), file=out, flush=True)
    sys.stdin.read()
    os._exit(0)  # without llama.cpp's own end, which waits for the token that it computes


def _parameters(xllamacpp: Any, opening: dict[str, Any], key: str) -> Any:
    made = xllamacpp.CommonParams()
    made.model.path, made.n_ctx, made.n_parallel = opening["path"], opening["context"], 1
    made.hostnames, made.port = [opening["socket"] or "127.0.0.1"], 0
    made.api_keys, made.cors_origins, made.ui = [key], "http://127.0.0.1", False
    made.endpoint_slots, made.warmup, made.verbosity = False, False, 0
    made.slot_save_path, made.cache_ram_mib = opening["prefixes"], _CACHE
    if opening["threads"]:
        made.cpuparams.n_threads = made.cpuparams_batch.n_threads = opening["threads"]
    if all("CPU" in str(device["type"]) for device in xllamacpp.get_device_info()):
        made.n_batch = made.n_ubatch = _PIECE
        made.fit_params = False  # there is no memory of a graphics card to divide: it would read the file twice
    return made
