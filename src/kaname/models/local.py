"""A real model in this process, without a key: llama.cpp (`xllamacpp`) with a GGUF file.

`local` is Qwen2.5-Coder-1.5B-Instruct, `local/PATH.gguf` any other.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError
from ..core.language import say
from ..core.messages import ModelReply, ModelRequest
from ..kernel.ports import Emit
from . import weights
from .http import Timeouts
from .openai import OpenAI, ToolMode
from .prices import Price

_SLOW = Timeouts(connect=10.0, first_byte=1800.0, between=600.0)  # a long prompt takes minutes on a small machine
_CAREFUL = {"temperature": 0.0, "max_tokens": 1024}
_FREE = Price(0.0, 0.0)


class _Plan(NamedTuple):
    path: str
    context: int
    threads: int


_running: dict[_Plan, tuple[Any, str]] = {}  # servers and their keys; a model of gigabytes is loaded once a process
_starting = threading.Lock()


class Local:
    """`path`: any GGUF file; without one, the weights that `kaname models pull` fetched.

    `threads`: how many to compute with (`KANAME_THREADS`; llama.cpp's choice if 0). `context`: the longest prompt, in tokens.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        context: int = 8192,
        threads: int | None = None,
        settings: Mapping[str, Any] | None = None,
        tool_mode: ToolMode = "constrained",
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise ConfigError(
                say(
                    "the local model needs llama.cpp: pip install 'kaname[local]'",
                    "ローカルモデルには llama.cpp が必要です: pip install 'kaname[local]'",
                )
            )
        found = Path(path).expanduser() if path is not None else weights.present()
        if found is None:
            raise ConfigError(
                say(
                    "the local model is not here yet: `kaname models pull` fetches it (1.1 GB, once)",
                    "ローカルモデルがまだありません。`kaname models pull` で取得できます (1.1 GB、一度だけ)",
                )
            )
        if not found.is_file():
            raise ConfigError(say(f"there is no model file {found}", f"モデルのファイル {found} がありません"))
        chosen = int(os.environ.get("KANAME_THREADS", "0") or 0) if threads is None else threads
        self._plan = _Plan(str(found.resolve()), context, chosen)
        self.model, self.name = found.stem, f"local/{found.stem}"
        self.settings = {**_CAREFUL, **(settings or {})}
        self._tool_mode: ToolMode = tool_mode
        self._served: OpenAI | None = None

    def __repr__(self) -> str:
        return f"<Local {self._plan.path}>"

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        if self._served is None:
            address, key = await asyncio.to_thread(_address, self._plan)
            self._served = _Served(
                self.model,
                base_url=address + "/v1",
                api_key=key,
                settings=self.settings,
                timeouts=_SLOW,
                price=_FREE,
                tool_mode=self._tool_mode,
            )
        return await self._served.reply(request, emit)

    async def close(self) -> None:
        """Close the connections of this event loop. The model stays loaded as long as the process lives."""
        if self._served is not None:
            await self._served.close()


class _Served(OpenAI):
    provider = "local"


def _address(plan: _Plan) -> tuple[str, str]:
    """Load the model, if that is not done yet. The server listens on 127.0.0.1 only, and wants a key that nobody else has."""
    with _starting:
        if plan not in _running:
            import xllamacpp

            key = secrets.token_urlsafe(24)
            wanted = xllamacpp.CommonParams()
            wanted.model.path = plan.path
            wanted.n_ctx, wanted.n_parallel = plan.context, 1
            wanted.hostnames, wanted.port = ["127.0.0.1"], 0
            wanted.api_keys, wanted.cors_origins, wanted.ui = [key], "http://127.0.0.1", False
            wanted.endpoint_slots, wanted.warmup, wanted.verbosity = False, False, -1
            if plan.threads:
                wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = plan.threads
            try:
                server = xllamacpp.Server(wanted)
            except (RuntimeError, ValueError) as problem:
                raise ConfigError(
                    say(
                        f"llama.cpp cannot load {plan.path}: {problem}", f"llama.cpp が {plan.path} を読み込めません: {problem}"
                    )
                ) from problem
            _running[plan] = (server, key)
        server, key = _running[plan]
        return server.listening_address, key
