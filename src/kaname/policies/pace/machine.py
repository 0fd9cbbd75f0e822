"""`Machine`: new work waits while this machine is busy. It reads CPU and memory with psutil, GPUs with nvidia-ml-py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...core.durations import is_number
from ...core.errors import ConfigError
from ...core.install import install_command
from ...core.messages import ModelReply, ModelRequest, ToolCall, ToolResult
from ...core.notices import Notice, notice
from ...kernel.ports import ModelHandler, Policy, ToolHandler

if TYPE_CHECKING:
    from ...kernel.view import RunView

_EVERY = 1.0  # seconds between two readings
_PACKAGES = {"cpu": "psutil", "memory": "psutil", "gpu": "pynvml"}
Reading = Mapping[str, float]


class Machine(Policy):
    """Make new model and tool calls wait while the machine is busy. Calls that are under way continue.

    Args:
        cpu: Per cent of all cores above which new calls wait.
        memory: Per cent of the memory.
        gpu: Per cent of the busiest NVIDIA GPU, by computation or memory.
        priority: Calls with a higher priority go first (default 0). Of equal ones, the first goes first.
        read: Returns the current load by name, instead of psutil.

    The load is read at most once a second. When it has fallen, one waiting call starts; with every further second below the
    limits twice as many. A run that waits can be stopped, and its time counts towards the deadline.
    """

    def __init__(
        self,
        cpu: float | None = None,
        memory: float | None = None,
        gpu: float | None = None,
        *,
        priority: int = 0,
        read: Callable[[], Reading] | None = None,
    ) -> None:
        given = {"cpu": cpu, "memory": memory, "gpu": gpu}
        self.limits = {name: limit for name, limit in given.items() if limit is not None}
        self.priority = priority
        for name, limit in self.limits.items():
            if not is_number(limit, 0, 100) or limit == 0:
                raise ConfigError.of(
                    "machine.percent",
                    "Machine: {name} must be a percentage up to 100, not {limit!r}",
                    name=name,
                    limit=limit,
                )
        if not self.limits:
            raise ConfigError.of("machine.nothing", "Machine: set at least one of cpu, memory and gpu")
        if read is None:
            _check_packages(self.limits)
        self._watch = _shared_watch() if read is None else Watch(read)

    def can_execute(self) -> tuple[bool, str]:
        """Return True if new work could start now; otherwise False and the reason."""
        over = self._watch.over(self.limits)
        return not over, _explain(*over) if over else ""

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        await self._wait(view)
        return await next(request)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        await self._wait(view)
        return await next(call)

    async def _wait(self, view: RunView) -> None:
        over = self._watch.over(self.limits)
        if not over and not self._watch.has_waiters:
            return
        if over:
            view.tell({"status": "throttled", "reason": over[0], "seconds": None, "content": _explain(*over)})
        await self._watch.wait(self.limits, self.priority)
        view.tell({"status": "throttled", "reason": "", "seconds": None, "content": ""})


class Watch:
    """The load of the machine, read at most once a second, and the calls that wait for it to fall."""

    def __init__(self, read: Callable[[], Reading], clock: Callable[[], float] = monotonic, every: float = _EVERY) -> None:
        self._read, self._clock, self._every = read, clock, every
        self._load: Reading = {}
        self._read_at = float("-inf")
        self._numbers = count()
        self._waiting: dict[asyncio.AbstractEventLoop, list[tuple[int, int, Mapping[str, float], asyncio.Future[None]]]] = {}
        self._tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting)

    def over(self, limits: Mapping[str, float]) -> tuple[str, float, float] | None:
        """Return the first limit that the load exceeds, with the load and the limit."""
        now = self._clock()
        if now - self._read_at >= self._every:
            self._load, self._read_at = self._read(), now
        for name, limit in limits.items():
            if (load := self._load.get(name, 0.0)) > limit:
                return name, load, limit
        return None

    async def wait(self, limits: Mapping[str, float], priority: int) -> None:
        """Wait until the load is under the limits and no call with a higher priority waits."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (-priority, next(self._numbers), limits, future)
        self._waiting.setdefault(loop, []).append(entry)
        if loop not in self._tasks:
            self._tasks[loop] = loop.create_task(self._watch_load(loop))
        try:
            await future
        finally:
            entries = self._waiting.get(loop, [])
            with suppress(ValueError):
                entries.remove(entry)
            if not entries:
                self._waiting.pop(loop, None)

    async def _watch_load(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let calls through after each reading that allows it. The task ends when no call waits."""
        batch = 1
        try:
            while entries := sorted(self._waiting.get(loop, ()), key=lambda entry: entry[:2]):
                started = [entry for entry in entries[:batch] if self.over(entry[2]) is None]
                for entry in started:
                    if not entry[3].done():
                        entry[3].set_result(None)
                batch = batch * 2 if started else 1
                await asyncio.sleep(self._every if len(started) < len(entries) else 0)
        finally:
            self._tasks.pop(loop, None)


def _check_packages(limits: Mapping[str, float]) -> None:
    """Raise `ConfigError` if the load cannot be read here."""
    for name in limits:
        if find_spec(_PACKAGES[name]) is None:
            how = install_command("machine")
            raise ConfigError.of(
                "machine.package", "Machine({name}=…) needs a package that is not installed: {how}", name=name, how=how
            )
    if "gpu" in limits and _gpu() is None:
        raise ConfigError.of("machine.no_gpu", "Machine(gpu=…): no NVIDIA GPU was found on this machine")


@cache
def _shared_watch() -> Watch:
    """Return the watch that all policies of the process share."""
    read_load()  # the first reading of the CPU is always 0
    return Watch(read_load)


def read_load() -> Reading:
    """Return the load of this machine in per cent: CPU since the last reading, memory, and the busiest GPU if there is one."""
    psutil: Any = import_module("psutil") if find_spec("psutil") else None
    load = {} if psutil is None else {"cpu": psutil.cpu_percent(), "memory": psutil.virtual_memory().percent}
    if (gpu := _gpu()) is not None:
        load["gpu"] = gpu()
    return load


@cache
def _gpu() -> Callable[[], float] | None:
    """Return a function that reads the load of the busiest NVIDIA GPU, or None if there is no GPU."""
    if find_spec("pynvml") is None:
        return None
    nvml: Any = import_module("pynvml")
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None

    def read() -> float:
        loads = [0.0]
        for handle in handles:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            loads += [float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu), 100.0 * memory.used / memory.total]
        return max(loads)

    return read if handles else None


def _explain(name: str, load: float, limit: float) -> Notice:
    return notice(
        "machine.busy", "waiting: {name} is at {load:.0f} % (limit {limit:g} %)", name=name.upper(), load=load, limit=limit
    )
