"""A real model in this process, without a key: llama.cpp (`xllamacpp`) with a GGUF file.

`local` is Qwen2.5-Coder-1.5B-Instruct, `local/PATH.gguf` any other.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import threading
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ...core.codec import dump
from ...core.durations import seconds
from ...core.errors import ConfigError
from ...core.install import install_command, this_command
from ...core.messages import ModelReply, ModelRequest, user
from ...core.notices import notice
from ...core.record import replace
from ...kernel.bases import ModelBase, ModelInfo
from ...kernel.ports import Emit
from ..http.client import Timeouts
from ..http.provider import Joiner
from ..media import seen_by
from ..prices import Price
from ..prompted.modes import ignored_settings
from ..providers.openai import OpenAI, ToolMode
from . import prefix, weights
from .prefix import Prefix

_SLOW = Timeouts(connect=10.0, first_byte=1800.0, between=600.0)  # a long prompt takes minutes on a small machine
_CAREFUL = {"temperature": 0.0, "max_tokens": 1024}
_PATIENCE = 1800.0  # seconds: a small machine reads and writes slowly
_IDLE = 0.5  # of a core that other programs use
_FEW = 4  # cores, of which each is taken as a whole one
_FREE = Price(0.0, 0.0)
_READ_ONLY = {"max_tokens": 1, "stream": False}
_VALUES = ("enum", "const", "default", "examples")  # what stands there is no schema
_NAMED = {"properties", "$defs", "definitions", "patternProperties"}  # schemas by name
_COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}  # as `core.codec.dump` writes


class _Plan(NamedTuple):
    path: str
    context: int
    threads: int


_running: dict[_Plan, tuple[Any, str]] = {}  # servers and their keys; a model of gigabytes is loaded once a process
_starting = threading.Lock()


class Local(ModelBase):
    """A model that runs in this process.

    Args:
        path: A GGUF file (default: the weights that `kaname models pull` downloaded).
        context: The longest prompt, in tokens (default 8192).
        threads: The number of threads (default `KANAME_THREADS`, else the free cores of the host; 0 for llama.cpp's choice).
        settings: Settings for every request.
        tool_mode: How the model calls tools; see `OpenAI`.
        plan_first: Write a short plan before the first call (default).
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        context: int = 8192,
        threads: int | None = None,
        settings: Mapping[str, Any] | None = None,
        tool_mode: ToolMode = "constrained",
        plan_first: bool = True,
    ) -> None:
        needs_llama()
        if tool_mode not in get_args(ToolMode):
            modes = ", ".join(get_args(ToolMode))
            raise ConfigError.of(
                "model.tool_mode", "tool_mode must be one of {modes}, not {tool_mode!r}", modes=modes, tool_mode=tool_mode
            )
        found = _weights() if path is None else _model_file(Path(path).expanduser())
        _whole("context", context, 1)
        chosen = _threads() if threads is None else _whole("threads", threads, 0)
        self._plan = _Plan(str(found.resolve()), context, chosen)
        self.model, self.name = found.stem, f"local/{found.stem}"
        self.settings = {**_CAREFUL, **(settings or {})}
        self.tool_mode: ToolMode = tool_mode
        self.plan_first = plan_first
        limit = self.settings.get("timeout")
        self.about = ModelInfo(
            served=self.model,
            api="local",
            settings=self.settings,
            tool_mode=tool_mode,
            patience=_PATIENCE if limit is None else seconds(limit),
            takes=(),  # it reads only text
            identity=f"{found.resolve()} {found.stat().st_mtime_ns} {context} {tool_mode} {plan_first}",
        )
        self._served: OpenAI | None = None
        self._key = ""  # of the server that this one speaks to

    def __repr__(self) -> str:
        return f"<Local {self._plan.path}>"

    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float:
        """Return 0: the model runs on this machine."""
        return 0.0

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        running = _running.get(self._plan)
        if self._served is None or running is None or running[1] != self._key:
            if running is None:
                await emit(notice("local.loading", "loading the model {name}", name=self.model), "progress")
            address, self._key = await asyncio.to_thread(_address, self._plan)
            if running is None:
                await emit(notice("local.loaded", "the model is loaded and is reading the question"), "progress")
            self._served = _Served(
                self.model,
                base_url=address + "/v1",
                api_key=self._key,
                settings=self.settings,
                timeouts=_SLOW,
                price=_FREE,
                tool_mode=self.tool_mode,
                plan_first=self.plan_first,
            )
            self._served.runs = f"{self._plan.path} {self._plan.context} {os.stat(self._plan.path).st_mtime_ns}"
        return await self._served.reply(seen_by(request, ()), emit)

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that `tool_mode` leaves out of the requests."""
        return ignored_settings({**self.settings, **settings}, self.tool_mode)

    async def close(self) -> None:
        """Close the connections of this event loop. The model stays loaded, until `unload` or the end of the process."""
        if self._served is not None:
            await self._served.close()

    async def unload(self) -> None:
        """Free the memory. Do not call it during a request; the next request loads the model again."""
        await self.close()
        self._served = None
        await asyncio.to_thread(_unload, self._plan)


class _Served(OpenAI):
    provider = "local"
    runs = ""  # which weights the server runs, and with how much context

    async def exchange(self, request: ModelRequest, emit: Emit) -> tuple[Joiner, bool]:
        address = self._url.removesuffix("/v1/chat/completions")
        if prefix.is_wanted(address, request):
            alone = replace(request, messages=(request.messages[0], user("")), tools=(), schema=None, settings=_READ_ONLY)
            state = Prefix(self._http, address, self._headers_with_trace(), self.who, self.runs)
            await state.prepare(request.messages[0].text, self.body(alone))
        return await super().exchange(request, emit)

    def body(self, request: ModelRequest) -> bytes:
        """Return the request, with JSON constrained to one spelling: spaces cost time, and a uniform one is cached."""
        own = {*self.settings, *request.settings} & {"grammar", "response_format"}
        if request.schema is not None and not own:
            grammar = {"grammar": compact_grammar(request.schema)}
            request = replace(request, schema=None, settings={**request.settings, **grammar})
        return super().body(request)


def compact_grammar(schema: Mapping[str, Any]) -> str:
    """Return the grammar of JSON without spaces that fits the schema, for llama.cpp with or without llguidance."""
    import xllamacpp

    grammar: str = xllamacpp.json_schema_to_grammar(dump({**_close_objects(schema), "x-guidance": _COMPACT}))
    return re.sub(r"(?m)^space ::= .*$", 'space ::= ""', grammar)


def _close_objects(schema: Any) -> Any:
    """Return the schema with closed objects: no properties but the named ones, unless it says otherwise.

    JSON Schema allows others by default; a small model then invents them until its last token.
    """
    if isinstance(schema, list):
        return [_close_objects(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {}
    for key, held in schema.items():
        if key in _NAMED and isinstance(held, Mapping):
            made[key] = {name: _close_objects(one) for name, one in held.items()}
        else:
            made[key] = held if key in _VALUES else _close_objects(held)
    return made if "properties" not in made else {"additionalProperties": False, **made}


def needs_llama() -> None:
    if find_spec("xllamacpp") is None:
        raise ConfigError.of(
            "local.llama_missing", "the local model needs llama.cpp. Install it with: {how}", how=install_command("local")
        )


def _weights() -> Path:
    found = weights.find_weights()
    if found is None:
        raise ConfigError.of(
            "local.not_fetched",
            "the local model is not downloaded yet. Download it (1.1 GB, once) with: {kaname} models pull",
            kaname=this_command(),
        )
    if not weights.is_sound(found):
        raise ConfigError.of(
            "local.file_damaged",
            "the model file {found} is damaged. Download it again with: {kaname} models pull --again",
            found=found,
            kaname=this_command(),
        )
    return found


def _model_file(path: Path) -> Path:
    """Return the path, if the file begins as a model does. llama.cpp's own errors say little."""
    if not path.is_file():
        raise ConfigError.of("local.no_file", "model file {path} was not found", path=path)
    try:
        with path.open("rb") as file:
            begins = file.read(4)
    except OSError as problem:
        raise ConfigError.of("local.unreadable", "{path} cannot be read: {problem}", path=path, problem=problem) from problem
    if begins != b"GGUF":
        raise ConfigError.of(
            "local.not_gguf",
            "{path} is not a model file for llama.cpp: it does not begin with GGUF",
            path=path,
        )
    return path


def _threads() -> int:
    given = os.environ.get("KANAME_THREADS", "").strip()
    if not given:
        return _free_cores()
    return _whole("KANAME_THREADS", int(given) if given.isascii() and given.isdecimal() else given, 0)


@cache
def _free_cores() -> int:
    """Return the number of free cores of the host: threads that wait for busy cores gain nothing.

    0 (llama.cpp's choice) on an idle host. Decided once per process: another number loads the model again.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return free_threads(cores, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0)


def free_threads(cores: int, load: float) -> int:
    """Return the number of threads for a host with so many cores and this load."""
    if load < _IDLE:
        return 0
    most = cores if cores <= _FEW else cores // 2  # half of many are the second threads of a core
    return max(1, min(most, round(cores - load)))


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
        raise ConfigError.of(
            "local.whole_number",
            "{name} must be an integer of at least {least}, not {value!r}",
            name=name,
            least=least,
            value=value,
        )
    return value


def _address(plan: _Plan) -> tuple[str, str]:
    """Load the model if necessary, and return its address and key. The server listens on 127.0.0.1 only."""
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
            wanted.slot_save_path = _prefix_folder()
            if plan.threads:
                wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = plan.threads
            try:
                server = xllamacpp.Server(wanted)
            except (RuntimeError, ValueError, MemoryError) as problem:
                raise ConfigError(_not_loaded(plan.path, problem)) from problem
            _running[plan] = (server, key)
        server, key = _running[plan]
        return server.listening_address, key


def _prefix_folder() -> str:
    """Return the folder in which the server can keep its state, or "" if nothing can be written."""
    try:
        prefix.folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return ""
    return f"{prefix.folder()}{os.sep}"


def _unload(plan: _Plan) -> None:
    with _starting:
        held = _running.pop(plan, None)  # the server ends with the last that holds it
        if held is not None:
            prefix.forget(held[0].listening_address)


def _not_loaded(path: str, problem: Exception) -> str:
    pull = notice("local.pull_again", ". Download it again with: {kaname} models pull --again", kaname=this_command())
    mend = pull if path.endswith(weights.FILE) else ""
    why = notice("local.not_loadable", "the file is damaged, its format is not supported, or it is too large for the memory")
    return notice(
        "local.cannot_load",
        "llama.cpp cannot load {path} ({problem}): {why}{mend}",
        path=path,
        problem=problem,
        why=why,
        mend=mend,
    )
