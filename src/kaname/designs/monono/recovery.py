"""`ErrorRecoveryManager` of MONONO 3.11: a `ToolFallback` whose tries, stand-ins and breakers `handle_failure` decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ...core.durations import backoff
from ...core.errors import BadArguments, ConfigError, ModelDenied, ModelError, ModelUnavailable, UnexpectedError
from ...core.messages import ModelReply, ModelRequest, ToolCall, ToolResult
from ...core.notices import notice
from ...core.record import replace
from ...kernel.bases import PolicyInfo
from ...kernel.boundary import Failure
from ...kernel.ports import Action, ModelHandler, Policy, ToolHandler
from ...models.registry import PROVIDERS
from ...policies.failure.breaker import Breaker, Limits
from ...policies.failure.retry import Retry
from ...policies.failure.tool_fallback import FallbackStrategy, RecoveryStep
from ...policies.names import known_tools
from .checks import AMOUNT, POSITIVE, Fits, check_each, check_method

if TYPE_CHECKING:
    from ...kernel.view import RunView

T = TypeVar("T")
_PAUSE = 30.0  # seconds that a breaker stays open before one call is tried
_USUAL = {"max_attempts": 3, "delay": 1}
_BOOL: Fits = (lambda given: isinstance(given, bool), "True or False")


class ErrorRecoveryManager(FallbackStrategy):
    """Recovers from failing tools and models. Pass it to an agent: `Agent(…, policies=[ErrorRecoveryManager(…)])`.

    It takes the place of `Retry`: a model call that failed is tried again as `handle_failure` says, if that makes sense.

    A subclass can override `handle_failure`, and can set the three dicts in an `__init__` of its own.

    Args:
        retry_policies: `{"default": {"max_attempts": 3, "delay": 1}}`: how often a call is tried, and the seconds before the
            second try, doubled for each further one. Calls with effects are not repeated blindly.
        fallback_strategies: The tool to try when another has failed: `{"tool_A_failure": "try_tool_B"}`, or plain names.
        circuit_breakers: `{"tool_A": {"failure_threshold": 5}}`: a tool, or the provider of a model (`"openai"`), that has
            failed so often in a row is not called for 30 seconds; then one call finds out whether it works again. `is_open`
            shows its state.

    Raises:
        ConfigError: A key or the name of a tool is unknown, or a value cannot be used.
    """

    retry_policies: Mapping[str, Mapping[str, Any]]
    fallback_strategies: Mapping[str, str]
    circuit_breakers: dict[str, dict[str, Any]]
    _breakers: dict[str, Breaker]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Set the defaults here: the `__init__` of a subclass need not call ours."""
        self = super().__new__(cls)
        FallbackStrategy.__init__(self)
        self.retry_policies, self.fallback_strategies, self.circuit_breakers = {"default": _USUAL}, {}, {}
        self._breakers = {}
        return self

    def __init__(
        self,
        retry_policies: Mapping[str, Mapping[str, Any]] | None = None,
        fallback_strategies: Mapping[str, str] | None = None,
        circuit_breakers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.retry_policies = retry_policies or self.retry_policies
        self.fallback_strategies = fallback_strategies or {}
        self.circuit_breakers = {**(circuit_breakers or {})}  # type: ignore[dict-item]
        self._read()

    def _read(self) -> None:
        """Read the three dicts: check them, and make the breakers that are missing."""
        check_each("retry_policies", self.retry_policies, {"max_attempts": POSITIVE, "delay": AMOUNT})
        check_each("circuit_breakers", self.circuit_breakers, {"is_open": _BOOL, "failure_threshold": POSITIVE})
        usual = {"is_open": False, "failure_threshold": 5}
        self.circuit_breakers = {name: {**usual, **one} for name, one in self.circuit_breakers.items()}
        stand_ins = {name.removesuffix("_failure"): to.removeprefix("try_") for name, to in self.fallback_strategies.items()}
        self.fallback = FallbackStrategy(fallback=stand_ins).fallback
        for name, one in self.circuit_breakers.items():
            if name not in self._breakers:
                breaker = self._breakers[name] = Breaker(Limits(one["failure_threshold"], float("inf"), _PAUSE))
                if one["is_open"]:
                    breaker.leave(breaker.enter() or 0, ModelDenied(name))

    def check(self, tools: Mapping[str, Action]) -> None:
        self._read()
        super().check(tools)
        known_tools("retry_policies", {*self.retry_policies} - {"default", *PROVIDERS}, tools)
        known_tools("circuit_breakers", {*self.circuit_breakers} - {*PROVIDERS}, tools)
        check_method(self, "handle_failure", "error", "context_of_failure")

    @property
    def about(self) -> PolicyInfo:  # type: ignore[override]
        return PolicyInfo(inner=self._retries)

    @cached_property
    def _retries(self) -> Policy:
        """Return the policy that retries model calls, in place of the default `Retry`."""
        return ModelRecovery(self)

    def handle_failure(self, error: BaseException | str, context_of_failure: Mapping[str, Any]) -> RecoveryStep | None:
        """Return the next step after a failure, or None to report the failure. Runs call this after every failed try.

        Args:
            error: The exception, or its text.
            context_of_failure: `tool` (or `tool_name`), or `service`, the provider of a model; `attempt`, which is 1 for the
                first try; and `can_retry`, which is False if the call must not be repeated, because it may have taken effect.
        """
        keys = ("tool", "tool_name", "service")
        name = str(next((context_of_failure[key] for key in keys if key in context_of_failure), ""))
        attempt, can_retry = int(context_of_failure.get("attempt", 1)), context_of_failure.get("can_retry", True)
        why = error if isinstance(error, str) else str(Failure(error))
        policy = {**_USUAL, **self.retry_policies.get(name, self.retry_policies.get("default", {}))}
        if can_retry and not self._rests(name) and attempt < policy["max_attempts"] and _may_pass(error):
            return RecoveryStep("retry", why, wait=backoff(attempt, float(policy["delay"]), self._longest))
        if other := self.fallback.get(name, ""):
            return RecoveryStep("fallback", why, tool=other)
        message = notice("recovery.report", "{name} failed: {why}. Check its input, or try again later.", name=name, why=why)
        return RecoveryStep("report", message)

    def _recover(self, name: str, attempt: int, error: str, can_retry: bool) -> RecoveryStep:
        return self.ask(error, {"tool": name, "attempt": attempt, "can_retry": can_retry})

    def ask(self, error: BaseException | str, context_of_failure: Mapping[str, Any]) -> RecoveryStep:
        """Call `handle_failure`, and check what it returns."""
        step = self.handle_failure(error, context_of_failure)
        if step is not None and not isinstance(step, RecoveryStep):
            kind = type(self).__name__
            raise UnexpectedError(f"{kind}.handle_failure returned {step!r:.100}; expected a RecoveryStep or None")
        return step or RecoveryStep("report")

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        one, tried = call, {call.name}
        while self._rests(one.name):
            resting = _resting(one.name)
            step = self._recover(one.name, 1, str(resting.error), False)
            one = replace(call, name=step.tool)
            if step.action != "fallback" or step.tool in tried or self._may_not_stand_in(one, set(), view):
                return resting
            tried.add(step.tool)
        return await super().tool(one, partial(self._call_tool, next), view)

    async def _call_tool(self, next: ToolHandler, call: ToolCall) -> ToolResult:
        result = await self.through_breaker(call.name, partial(next, call), _as_outcome)
        return _resting(call.name) if result is None else result

    async def through_breaker(
        self, name: str, work: Callable[[], Awaitable[T]], judge: Callable[[T], ModelError | bool | None]
    ) -> T | None:
        """Do the work of a tool or a service, and count how it went. Return None, without doing it, if the breaker is open."""
        if (breaker := self._breakers.get(name)) is None:
            return await work()
        if (ticket := breaker.enter()) is None:
            return None
        outcome: ModelError | bool | None = None
        try:
            result = await work()
            outcome = judge(result)
            return result
        except ModelError as error:
            outcome = error
            raise
        finally:
            breaker.leave(ticket, outcome)
            self.circuit_breakers[name]["is_open"] = self._rests(name)

    def _rests(self, name: str) -> bool:
        return name in self._breakers and self._breakers[name].rest > 0


class ModelRecovery(Retry):
    """Tries model calls again as an `ErrorRecoveryManager` says, and keeps to its breaker of the provider."""

    def __init__(self, manager: ErrorRecoveryManager) -> None:
        super().__init__()
        self._manager = manager

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        return await super().model(request, partial(self._call, next, _service(request, view)), view)

    async def _call(self, next: ModelHandler, service: str, request: ModelRequest) -> ModelReply:
        reply = await self._manager.through_breaker(service, partial(next, request), lambda _: True)
        if reply is None:
            raise ModelUnavailable(_told_open(service))
        return reply

    def wait_before_retry(
        self, error: ModelError, attempt: int, can_retry: bool, request: ModelRequest, view: RunView
    ) -> float | None:
        context = {"service": _service(request, view), "attempt": attempt, "can_retry": can_retry}
        step = self._manager.ask(error, context)
        return max(step.wait, error.retry_after or 0.0) if step.action == "retry" else None

    def _announce(self, error: ModelError, wait: float, attempt: int) -> str:
        return notice(
            "recovery.again",
            "{error}; retrying in {wait:.1f} s (try {attempt})",
            error=error.public,
            wait=wait,
            attempt=attempt,
        )


def _service(request: ModelRequest, view: RunView) -> str:
    model: Any = request.model or view.agent.model
    return str(getattr(model, "name", "")).partition("/")[0]


def _told_open(name: str) -> str:
    return notice("recovery.open", "{name} has failed too often and is not called for now", name=name)


def _resting(name: str) -> ToolResult:
    return ToolResult(error=_told_open(name), not_run=True, retryable=False)


def _as_outcome(result: ToolResult) -> ModelError | bool | None:
    """Return the outcome of a call for its tool's breaker: True, the error, or None if the tool was not run."""
    return None if result.not_run else ModelUnavailable(str(result.error)) if result.is_error else True


def _may_pass(error: BaseException | str) -> bool:
    """Return True if the same call may succeed later."""
    return error.retryable if isinstance(error, ModelError) else not isinstance(error, BadArguments | ConfigError | TypeError)
