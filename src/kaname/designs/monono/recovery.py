"""`ErrorRecoveryManager` of MONONO 3.11: retries, stand-ins and circuit breakers for tools, and words for the user."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from ...core.errors import BadArguments, ConfigError, ModelError
from ...core.messages import ToolCall, ToolResult
from ...core.notices import notice
from ...core.record import record
from ...kernel.boundary import Failure
from ...kernel.ports import ToolHandler
from ...policies.fallback import FallbackStrategy

if TYPE_CHECKING:
    from ...kernel.view import RunView

_tool_at_work: ContextVar[str] = ContextVar("_tool_at_work", default="")
_PAUSE = 30.0  # seconds that a breaker stays open before one call is tried


@record
class RecoveryStep:
    """What to do about a failure: retry after `wait` seconds, use `tool` instead, or report `message` to the user."""

    action: Literal["retry", "fallback", "report"]
    message: str
    wait: float = 0.0
    tool: str = ""


class ErrorRecoveryManager(FallbackStrategy):
    """Recovers from failing tools. Pass it to an agent: `Agent(…, policies=[ErrorRecoveryManager(…)])`.

    Args:
        retry_policies: `{"default": {"max_attempts": 3, "delay": 1}}`: how often a call is tried, and the seconds before the
            second try, doubled for each further one. Calls with effects are not repeated blindly.
        fallback_strategies: The tool to try when another has failed: `{"tool_A_failure": "try_tool_B"}`, or plain names.
        circuit_breakers: `{"service_X": {"failure_threshold": 5}}`: a tool that has failed so often in a row is not called for
            30 seconds; then one call finds out whether it works again. `is_open` tells its state.
    """

    def __init__(
        self,
        retry_policies: Mapping[str, Mapping[str, Any]] | None = None,
        fallback_strategies: Mapping[str, str] | None = None,
        circuit_breakers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.retry_policies = dict(retry_policies or {"default": {"max_attempts": 3, "delay": 1}})
        self.fallback_strategies = dict(fallback_strategies or {})
        breakers = (circuit_breakers or {}).items()
        self.circuit_breakers = {name: {"is_open": False, "failure_threshold": 5, **one} for name, one in breakers}
        self._failed: dict[str, int] = {}
        self._opened: dict[str, float] = {}
        usual = self.retry_policies.get("default", {})
        attempts = usual.get("max_attempts", 3)
        if any(
            not isinstance(one.get("max_attempts", 1), int) or one.get("max_attempts", 1) < 1
            for one in self.retry_policies.values()
        ):
            raise ConfigError(
                notice("recovery.attempts", "max_attempts must be an integer of at least 1, not {it!r}", it=attempts)
            )
        stand_ins = {name.removesuffix("_failure"): to.removeprefix("try_") for name, to in self.fallback_strategies.items()}
        super().__init__(attempts - 1, stand_ins, backoff=usual.get("delay", 1))

    def handle_failure(self, error: BaseException | str, context_of_failure: Mapping[str, Any]) -> RecoveryStep:
        """Return what to do about a failure, and count it for the breaker.

        Args:
            error: The exception, or its text.
            context_of_failure: `tool` (or `tool_name`, `service`), and `attempt`, which is 1 for the first try.
        """
        keys = ("tool", "tool_name", "service")
        name = str(next((context_of_failure[key] for key in keys if key in context_of_failure), ""))
        attempt = int(context_of_failure.get("attempt", 1))
        why = error if isinstance(error, str) else str(Failure(error))
        self._count(name, failed=True)
        policy = self.retry_policies.get(name, self.retry_policies.get("default", {}))
        if not self._rests(name) and attempt < policy.get("max_attempts", 1) and _may_pass(error):
            wait = float(policy.get("delay", 1)) * 2 ** (attempt - 1)
            told = notice(
                "recovery.retry", "{name} failed ({why}); it is tried again in {wait:g} s", name=name, why=why, wait=wait
            )
            return RecoveryStep("retry", told, wait=wait)
        if name in self.fallback:
            other = self.fallback[name]
            told = notice(
                "recovery.fallback", "{name} failed ({why}); {other} is used instead", name=name, why=why, other=other
            )
            return RecoveryStep("fallback", told, tool=other)
        told = notice("recovery.report", "{name} failed: {why}. Check its input, or try again later.", name=name, why=why)
        return RecoveryStep("report", told)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        if self._rests(call.name):
            resting = notice("recovery.open", "{name} has failed too often and is not called for now", name=call.name)
            return ToolResult(error=resting, not_run=True, retryable=False)
        at_work = _tool_at_work.set(call.name)
        try:
            result = await super().tool(call, next, view)
        finally:
            _tool_at_work.reset(at_work)
        self._count(call.name, failed=result.is_error and not result.not_run)
        return result

    @property
    def max_retries(self) -> int:
        """Return how often the tool that is at work is tried again."""
        policy = self.retry_policies.get(_tool_at_work.get(), self.retry_policies.get("default", {}))
        return int(policy.get("max_attempts", 3)) - 1

    @max_retries.setter
    def max_retries(self, retries: int) -> None:
        """Ignore what the base class sets: each tool has its policy."""

    def _rests(self, name: str) -> bool:
        breaker = self.circuit_breakers.get(name)
        if breaker is None or not breaker["is_open"]:
            return False
        if monotonic() - self._opened.setdefault(name, monotonic()) < _PAUSE:
            return True
        self._opened[name] = monotonic()  # this one finds out; the next waits for it
        return False

    def _count(self, name: str, *, failed: bool) -> None:
        if (breaker := self.circuit_breakers.get(name)) is None:
            return
        self._failed[name] = self._failed.get(name, 0) + 1 if failed else 0
        breaker["is_open"] = failed and (breaker["is_open"] or self._failed[name] >= breaker["failure_threshold"])
        if breaker["is_open"]:
            self._opened[name] = monotonic()


def _may_pass(error: BaseException | str) -> bool:
    """Return True if the same call may succeed later."""
    return error.retryable if isinstance(error, ModelError) else not isinstance(error, BadArguments | ConfigError | TypeError)
