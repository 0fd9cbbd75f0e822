"""A real model on this machine, without a key: llama.cpp (`xllamacpp`) with a GGUF file, in a process of its own.

`local` is Qwen2.5-Coder-1.5B-Instruct, `local/PATH.gguf` any other.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from ...core.codec import dump
from ...core.durations import seconds
from ...core.errors import ConfigError, ModelUnreachable, ReplyGarbled
from ...core.install import install_command, this_command
from ...core.messages import ModelReply, ModelRequest, user
from ...core.notices import notice
from ...core.record import replace
from ...kernel.bases import ModelBase, ModelInfo
from ...kernel.ports import Emit
from ..http.client import Timeouts
from ..http.keys import keys_are_needed
from ..http.provider import Joiner
from ..media import seen_by
from ..prices import Price
from ..prompted.modes import ignored_settings
from ..providers.openai import OpenAI, ToolMode
from . import prefix, weights
from .prefix import Prefix
from .server import LocalServer, Plan, connect, find_server, release

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
_SHOWN_EVERY = 5.0  # seconds between two reports while the model is loaded
_REPORT = 2.0  # seconds in which the end of the process is reported after its connections have broken
_ATTEMPTS = 3  # the process may end with its last user while this one comes


class Local(ModelBase):
    """A model that runs on this machine, in a process that all programs of this user share.

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
        self.plan = Plan(str(found.resolve()), context, chosen)
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
            identity=f"{found.resolve()} {_modification_time(found)} {context} {tool_mode} {plan_first}",
        )
        self._served: OpenAI | None = None
        self._key = ""  # of the server that this one speaks to

    def __repr__(self) -> str:
        return f"<Local {self.plan.path}>"

    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float:
        """Return 0: the model runs on this machine."""
        return 0.0

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        server = await self._load(emit)
        address, key = server.news["address"], server.news["key"]
        if self._served is None or self._key != key:
            self._key = key
            self._served = _Served(
                self.model,
                base_url=f"{address}/v1",
                api_key=key,
                settings=self.settings,
                timeouts=_SLOW,
                price=_FREE,
                tool_mode=self.tool_mode,
                plan_first=self.plan_first,
            )
            if not server.news.get("fresh", True):
                prefix.leave_alone(address)
            self._served.runs = f"{self.plan.path} {self.plan.context} {os.stat(self.plan.path).st_mtime_ns}"
        try:
            return await self._served.reply(seen_by(request, ()), emit)
        except (ModelUnreachable, ReplyGarbled) as problem:
            await server.wait_for(lambda it: it.ended, _REPORT)
            if not server.ended:
                raise
            raise self._crashed(server) from problem

    async def _load(self, emit: Emit) -> LocalServer:
        """Return the server when the model is loaded. Until then, report that it is loading, and for how long."""
        if not _modification_time(Path(self.plan.path)):
            raise _not_downloaded()
        loop = asyncio.get_running_loop()
        began, waited = loop.time(), False
        for _ in range(_ATTEMPTS):
            server = await self._connect()
            while not server.news and not server.ended:
                seconds = f" ({loop.time() - began:.0f} s)" if waited else ""
                await emit(notice("local.loading", "loading the local model {name}", name=self.model) + seconds, "progress")
                waited = True
                await server.wait_for(lambda it: it.news or it.ended, _SHOWN_EVERY)
            if server.news:
                break
        if "failed" in server.news:
            await asyncio.to_thread(release, self.plan)
            raise ConfigError(_not_loaded(self.plan.path, server.news["failed"]))
        if server.ended:
            raise self._crashed(server)
        if waited:
            await emit(notice("local.loaded", "the model is loaded and is reading the question"), "progress")
        return server

    async def _connect(self) -> LocalServer:
        if (server := find_server(self.plan)) is not None:
            return server
        try:
            return await asyncio.to_thread(connect, self.plan, _free_cores)
        except OSError as problem:
            raise ModelUnreachable.of(
                "local.no_process", "the process of the local model cannot be started: {problem}", problem=problem
            ) from problem

    def _crashed(self, server: LocalServer) -> ModelUnreachable:
        """Return the error for an engine that has ended. It can be retried."""
        return ModelUnreachable.of(
            "local.ended",
            "the process of the local model {name} has ended{why}. The next call starts a new one",
            name=self.model,
            why=server.why_ended(),
        )

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that `tool_mode` leaves out of the requests."""
        return ignored_settings({**self.settings, **settings}, self.tool_mode)

    async def close(self) -> None:
        """Close the connections of this event loop. The model stays loaded until `unload`, or until this process ends."""
        if self._served is not None:
            await self._served.close()

    async def unload(self) -> None:
        """Free the memory, unless another process uses the model. Do not call it during a request; the next one loads again."""
        await self.close()
        self._served = None
        await asyncio.to_thread(release, self.plan)


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
    found = weights.folder() / weights.FILE
    if not found.is_file():
        if keys_are_needed():
            raise _not_downloaded()
        return found
    if not weights.is_sound(found):
        raise ConfigError.of(
            "local.file_damaged",
            "the model file {found} is damaged. Download it again with: {kaname} models pull --again",
            found=found,
            kaname=this_command(),
        )
    return found


def _not_downloaded() -> ConfigError:
    return ConfigError.of(
        "local.not_fetched",
        "the local model is not downloaded yet. Download it (1.1 GB, once) with: {kaname} models pull",
        kaname=this_command(),
    )


def _modification_time(path: Path) -> int:
    """Return the time of the last change of a file in nanoseconds; 0 if the file does not exist."""
    return path.stat().st_mtime_ns if path.is_file() else 0


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


def _threads() -> int | None:
    """Return the number that `KANAME_THREADS` gives, or None: it is decided when the model is loaded."""
    given = os.environ.get("KANAME_THREADS", "").strip()
    if not given:
        return None
    return _whole("KANAME_THREADS", int(given) if given.isascii() and given.isdecimal() else given, 0)


def _free_cores() -> int:
    """Return the number of free cores of the host: threads that wait for busy cores gain nothing.

    0 (llama.cpp's choice) on an idle host.
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
