"""`ResourceManager` of MONONO 3.9: quotas, budget and machine, asked before every model and tool call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import ConfigError, Halt
from ...core.messages import NOTHING, ModelReply, ModelRequest, ToolCall, ToolResult
from ...core.notices import notice
from ...core.steps import Stop
from ...kernel.ports import ModelHandler, Policy, ToolHandler
from ...policies.budget.budget import Budget, Verdict
from ...policies.pace.machine import read_load

if TYPE_CHECKING:
    from ...kernel.view import RunView

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(%|[kmgt]?i?b?)", re.IGNORECASE)
_TIMES = {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}


class ResourceManager(Policy):
    """Checks quotas, money and the machine. Pass it to an agent: `Agent(…, policies=[ResourceManager(…)])`.

    Args:
        api_quotas: The calls that are allowed, by the name of a provider or a tool: `{"openai": {"limit": 1000, "used": 0}}`.
        compute_resources: `cpu_limit`, the load in per cent above which nothing new is started, and `memory_limit`, the most
            that a call can require.
        cost_tracking: `budget` and `spent` in US dollars. The budget is also an account of the agent's journal (`Budget`), so
            that it holds for runs at the same time and in several processes.
    """

    def __init__(
        self,
        api_quotas: Mapping[str, Any] | None = None,
        compute_resources: Mapping[str, Any] | None = None,
        cost_tracking: Mapping[str, Any] | None = None,
    ) -> None:
        quotas = {"openai": {"limit": 1000}} if api_quotas is None else api_quotas
        for name, quota in quotas.items():
            if not isinstance(quota, Mapping) or not isinstance(quota.get("limit"), int):
                told = notice(
                    "resources.quotas", 'a quota is {{"limit": 1000}}, not {quota!r} ({name})', quota=quota, name=name
                )
                raise ConfigError(told)
        self.api_quotas = {name: {"used": 0, **quota} for name, quota in quotas.items()}
        self.compute_resources = dict(
            {"cpu_limit": "80%", "memory_limit": "4GB"} if compute_resources is None else compute_resources
        )
        self.cost_tracking: dict[str, Any] = {"budget": 10.0, "spent": 0.0, **(cost_tracking or {})}
        for limit in self.compute_resources.values():
            _read_size(limit)
        left = _number(self.cost_tracking["budget"], "budget") - _number(self.cost_tracking["spent"], "spent")
        self.inner = Budget(total=max(0.0, left))

    def can_execute(
        self, tool_name: str, estimated_cost: float | None = 0.0, required_resources: Mapping[str, Any] | None = None
    ) -> Verdict:
        """Tell whether a call is allowed now. The answer is true or false, and `reason` says why not.

        Args:
            tool_name: The tool, or the provider of a model.
            estimated_cost: In US dollars. None means unknown, which is refused.
            required_resources: Such as `{"memory": "2GB"}`.
        """
        found = (self.check_quotas(tool_name), self.check_budget(estimated_cost), self.check_compute(required_resources or {}))
        return next((one for one in found if not one), Verdict(True))

    def check_quotas(self, tool_name: str) -> Verdict:
        quota = self.api_quotas.get(tool_name)
        if quota is None or quota["used"] < quota["limit"]:
            return Verdict(True)
        told = notice(
            "resources.quota", "the quota of {limit} calls of {name} is used up", limit=quota["limit"], name=tool_name
        )
        return Verdict(False, told)

    def check_budget(self, estimated_cost: float | None) -> Verdict:
        left = self.cost_tracking["budget"] - self.cost_tracking["spent"]
        if estimated_cost is None or not estimated_cost >= 0:
            return Verdict(False, notice("resources.unknown", "what the call would cost is not known"))
        if left > 0 and estimated_cost <= left:
            return Verdict(True)
        told = notice(
            "resources.budget",
            "${left:.4f} of the budget is left, and the call may cost ${cost:.4f}",
            left=left,
            cost=estimated_cost,
        )
        return Verdict(False, told)

    def check_compute(self, required_resources: Mapping[str, Any]) -> Verdict:
        limits, load = self.compute_resources, read_load()
        most, wanted = limits.get("memory_limit"), required_resources.get("memory")
        if wanted is not None and most is not None and _read_size(wanted) > _read_size(most):
            told = notice("resources.memory", "the call requires {wanted}; the limit is {most}", wanted=wanted, most=most)
            return Verdict(False, told)
        for name in ("cpu", "gpu"):
            limit = limits.get(f"{name}_limit")
            if limit is not None and name in load and load[name] > _read_size(limit):
                told = notice(
                    "resources.load",
                    "the {name} load is {load:.0f} %; the limit is {limit}",
                    name=name,
                    load=load[name],
                    limit=limit,
                )
                return Verdict(False, told)
        return Verdict(True)

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        return bool(self.can_execute(call.name))

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        model = request.model or view.agent.model
        provider = "" if model is None else str(model.name).partition("/")[0]
        verdict = self.can_execute(provider)
        if not verdict:
            raise Halt(Stop("budget", verdict.reason))
        self._use(provider)
        before, usage = view.unbilled, NOTHING
        try:
            reply = await next(request)
            usage = reply.usage
            return reply
        finally:  # a call that broke off has its cost, too
            broken = (view.unbilled.ceiling or 0.0) - (before.ceiling or 0.0)
            self.cost_tracking["spent"] += (usage.ceiling or 0.0) + max(0.0, broken)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        verdict = self.can_execute(call.name)
        if not verdict:
            return ToolResult(error=verdict.reason, not_run=True, retryable=False)
        self._use(call.name)
        result = await next(call)
        self.cost_tracking["spent"] += result.usage.ceiling or 0.0
        return result

    def _use(self, name: str) -> None:
        if name in self.api_quotas:
            self.api_quotas[name]["used"] += 1


def _number(given: Any, name: str) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < float("inf"):
        return float(given)
    raise ConfigError(
        notice("resources.number", "cost_tracking: {name} must be a number of dollars, not {given!r}", name=name, given=given)
    )


def _read_size(given: Any) -> float:
    """Return "80%" as 80 and "4GB" as bytes. Raises `ConfigError`."""
    found = _SIZE.fullmatch(str(given).strip())
    if found is None:
        raise ConfigError(notice("resources.size", '{given!r} is no percentage and no size; write "80%" or "4GB"', given=given))
    unit = found[2].lower().rstrip("b").rstrip("i")
    return float(found[1]) * _TIMES.get(unit, 1.0)
