"""`ResourceManager` of MONONO 3.9: quotas and the machine, asked before every model and tool call, and money as a `Budget`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

from ...core.durations import size_in_bytes
from ...core.errors import ConfigError, Halt, did_you_mean
from ...core.messages import ModelReply, ModelRequest, ToolCall, ToolResult
from ...core.notices import notice
from ...core.steps import Stop
from ...kernel.bases import PolicyInfo
from ...kernel.boundary import Border
from ...kernel.ports import Action, ModelHandler, Policy, ToolHandler
from ...models.registry import PROVIDERS
from ...policies.money.budget import Budget, Verdict, ledger_of
from ...policies.money.estimate import Estimate, Measured, bound_input
from ...policies.pace.machine import Watch, read_load
from .checks import AMOUNT, COUNT, Fits, check_each, check_method, check_settings, refusal

if TYPE_CHECKING:
    from ...kernel.view import RunView

_ALIKE = 0.85  # how alike a misspelt name and the name that is meant are at least
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


def _percent(given: Any) -> float | None:
    match = _PERCENT.fullmatch(str(given))
    return None if match is None else float(match[1])


def _is_size(given: Any) -> bool:
    with Border():
        return size_in_bytes(given) > 0
    return False


_LOAD: Fits = (lambda given: _percent(given) is not None, 'a percentage such as "80%"')
_SIZE: Fits = (_is_size, 'a size such as "4GB"')
_MEMORY: Fits = (lambda given: _is_size(given) or _LOAD[0](given), 'a size such as "4GB", or a percentage such as "80%"')


class ResourceManager(Policy):
    """Checks quotas, money and the machine. Pass it to an agent: `Agent(…, policies=[ResourceManager(…)])`.

    A subclass can override `can_execute` and the three checks, and can set the three dicts in an `__init__` of its own.

    Args:
        api_quotas: The calls that are allowed, by the name of a provider or a tool: `{"openai": {"limit": 1000, "used": 0}}`.
            Every call counts, also retries, stand-ins, and those of agents below.
        compute_resources: `cpu_limit` and `gpu_limit`, the load in per cent above which nothing new is started, and
            `memory_limit`, the most that a call can require ("4GB"), or the load of the memory ("80%").
        cost_tracking: `budget` and `spent` in US dollars. The rest is a `Budget` of the agent's journal, which several runs and
            processes share.

    Raises:
        ConfigError: A key is unknown, or a limit cannot be used.
    """

    place = "money"  # as for `Budget`: each try counts
    api_quotas: dict[str, Any]
    compute_resources: dict[str, Any]
    cost_tracking: dict[str, Any]
    _lock: RLock
    _watch: Watch
    _opening: float

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Set the defaults here: the `__init__` of a subclass need not call ours."""
        self = super().__new__(cls)
        self.api_quotas = {"openai": {"limit": 1000, "used": 0}}
        self.compute_resources = {"cpu_limit": "80%", "memory_limit": "4GB"}
        self.cost_tracking = {"budget": 10.0, "spent": 0.0}
        self._lock, self._watch = RLock(), Watch(read_load)
        return self

    def __init__(
        self,
        api_quotas: Mapping[str, Any] | None = None,
        compute_resources: Mapping[str, Any] | None = None,
        cost_tracking: Mapping[str, Any] | None = None,
    ) -> None:
        given = {"api_quotas": api_quotas, "compute_resources": compute_resources, "cost_tracking": cost_tracking}
        vars(self).update({name: one for name, one in given.items() if one is not None})
        self._read()

    def _read(self) -> None:
        """Check the three dicts, and complete them."""
        check_each("api_quotas", self.api_quotas, {"limit": COUNT, "used": COUNT}, ["limit"])
        loads = {"cpu_limit": _LOAD, "gpu_limit": _LOAD, "memory_limit": _MEMORY}
        check_settings("compute_resources", self.compute_resources, loads)
        check_settings("cost_tracking", self.cost_tracking, {"budget": AMOUNT, "spent": AMOUNT})
        self.api_quotas = {name: {"used": 0, **quota} for name, quota in self.api_quotas.items()}
        self.cost_tracking = {"budget": 10.0, "spent": 0.0, **self.cost_tracking}

    def check(self, tools: Mapping[str, Action]) -> None:
        self._read()
        check_method(self, "can_execute", "tool_name", "estimated_cost", "required_resources")
        for name in [one for one in self.api_quotas if one not in tools and one not in PROVIDERS]:
            for close in get_close_matches(name, [*tools, *PROVIDERS], n=1, cutoff=_ALIKE):
                message = notice("resources.no_name", "api_quotas: there is no tool or provider named {name!r}", name=name)
                raise ConfigError(message + did_you_mean(close))

    @property
    def about(self) -> PolicyInfo:  # type: ignore[override]
        return PolicyInfo(inner=self._money)

    @cached_property
    def _money(self) -> Budget:
        """Return the money as an account of the journal."""
        self._read()
        self._opening = self.cost_tracking["spent"]
        return Budget(total=max(0.0, self._left))

    def for_child(self, view: RunView) -> Policy:
        return self

    def can_execute(
        self, tool_name: str, estimated_cost: float | None = 0.0, required_resources: Mapping[str, Any] | None = None
    ) -> Verdict:
        """Return whether a call is allowed now. The verdict is true or false, and has a `reason`.

        Args:
            tool_name: The tool, or the provider of a model.
            estimated_cost: The most that the call can cost, in US dollars. None means unknown, which is refused.
            required_resources: Such as `{"memory": "2GB", "cpu": "20%"}`. A load that is required must fit below the limit.
        """
        asked = {"check_quotas": tool_name, "check_budget": estimated_cost, "check_compute": required_resources or {}}
        why = next((why for name, given in asked.items() if (why := refusal(self, name, given))), "")
        return Verdict(not why, why)

    def check_quotas(self, tool_name: str) -> Verdict:
        quota = self.api_quotas.get(tool_name)
        if quota is None or quota["used"] < quota["limit"]:
            return Verdict(True)
        message = notice(
            "resources.quota", "the quota of {limit} calls of {name} is used up", limit=quota["limit"], name=tool_name
        )
        return Verdict(False, message)

    def check_budget(self, estimated_cost: float | None) -> Verdict:
        if estimated_cost is None or not estimated_cost >= 0:
            return Verdict(False, notice("resources.unknown", "what the call would cost is not known"))
        if (left := self._left) > 0 and estimated_cost <= left:
            return Verdict(True)
        message = notice(
            "resources.budget",
            "${left:.4f} of the budget is left, and the call may cost ${cost:.4f}",
            left=left,
            cost=estimated_cost,
        )
        return Verdict(False, message)

    def check_compute(self, required_resources: Mapping[str, Any]) -> Verdict:
        check_settings("required_resources", required_resources, {"memory": _SIZE, "cpu": _LOAD, "gpu": _LOAD})
        limits, most = self.compute_resources, self.compute_resources.get("memory_limit")
        wanted = required_resources.get("memory")
        if wanted is not None and _is_size(most) and size_in_bytes(wanted) > size_in_bytes(most):  # type: ignore[arg-type]
            message = notice("resources.memory", "the call requires {wanted}; the limit is {most}", wanted=wanted, most=most)
            return Verdict(False, message)
        loads = {
            (what := name.removesuffix("_limit")): load - (_percent(required_resources.get(what)) or 0.0)
            for name, one in limits.items()
            if (load := _percent(one)) is not None
        }
        if (over := self._watch.over(loads)) is None:
            return Verdict(True)
        name, load, limit = over
        message = notice(
            "resources.load", "the {name} load is {load:.0f} %; the limit is {limit:g} %", name=name, load=load, limit=limit
        )
        return Verdict(False, message)

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        model: Any = request.model or view.agent.model
        await self._read_spent(view)
        tokens, _ = bound_input(request, model, view.scratch.get(Measured))
        estimate = Estimate(request, model, tokens, self._money.longest_reply)
        cost = estimate.cost(estimate.output_for([self._left], ()) or estimate.least)
        if why := self._begin(str(getattr(model, "name", "")).partition("/")[0], cost):
            raise Halt(Stop("budget", why))
        reply = await next(request)
        await self._read_spent(view)
        return reply

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        await self._read_spent(view)
        if why := self._begin(call.name, 0.0):
            return ToolResult(error=why, not_run=call.id not in view.state.started, retryable=False)
        result: ToolResult | None = None
        try:
            result = await next(call)
        finally:
            ran = call.id in view.state.started if result is None else not result.not_run
            if not ran:
                self._count(call.name, -1)
        await self._read_spent(view)
        return result

    @property
    def _left(self) -> float:
        return float(self.cost_tracking["budget"] - self.cost_tracking["spent"])

    async def _read_spent(self, view: RunView) -> None:
        """Read what was spent from the account: other runs, processes and tools charge it too."""
        names = [account.name for account in self._money.accounts_of()]
        found, _ = await ledger_of(view.journal).reserve("", names, lambda balances: None)
        self.cost_tracking["spent"] = self._opening + found[0].spent

    def _begin(self, name: str, cost: float | None) -> str:
        """Ask and count in one step, so that calls at the same time do not use the same rest. Return why not, or ""."""
        with self._lock:
            if not (why := refusal(self, "can_execute", name, cost, {})):
                self._count(name, 1)
            return why

    def _count(self, name: str, calls: int) -> None:
        with self._lock:
            if (quota := self.api_quotas.get(name)) is not None:
                quota["used"] += calls
