"""`Pace`: model calls wait for their turn, within your limits and those that the provider reports."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from ...core.errors import ConfigError, RateLimited
from ...core.messages import ModelReply, ModelRequest
from ...core.notices import Notice, notice
from ...core.tokens import tokens_of
from ...kernel.bases import PolicyInfo, model_info
from ...kernel.ports import ModelHandler, Policy
from .gate import OWN, Gate, PacedCall, ReportedRates, TooLong, gate_of
from .limits import PaceLimits, read_at_once, read_rate

if TYPE_CHECKING:
    from ...kernel.view import RunView

_A_REPLY = 500  # tokens, before the first reply of a run


class Pace(Policy):
    """Make model calls wait, so that rate limits hold. kaname adds it by default, with the limits that providers report.

    Args:
        requests: The maximum number of requests in any period, such as "60/min" (s, min, hour or day).
        tokens: The maximum number of input and output tokens in any period, such as "100k/min". kaname estimates the
            tokens of a call before it, and corrects the estimate with the usage that the provider reports.
        at_once: The maximum number of calls at the same time.
        longest_wait: Seconds (default 60). If the provider's own limits require a longer wait, the call raises `RateLimited`.

    The limits apply to each provider and key, for all runs in this process. Waiting calls are served in turn by user, then by
    session. A waiting run shows a `status` chunk, can be stopped, and its time counts towards the deadline.
    """

    about = PolicyInfo(stands_alone=True)
    place = "attempt"

    def __init__(
        self,
        requests: str | None = None,
        tokens: str | None = None,
        at_once: int | None = None,
        *,
        longest_wait: float = 60.0,
    ) -> None:
        self.limits = PaceLimits(read_rate(requests, "requests"), read_rate(tokens, "tokens"), read_at_once(at_once))
        if not isinstance(longest_wait, int | float) or isinstance(longest_wait, bool) or not longest_wait >= 0:
            raise ConfigError.of(
                "pace.longest_wait", "Pace: longest_wait must be 0 or more seconds, not {given!r}", given=longest_wait
            )
        self.longest_wait = float(longest_wait)
        self._gates: dict[int, tuple[Any, Gate, ReportedRates | None]] = {}  # by the id of the model, which is kept alive

    def can_execute(self, model: Any, tokens: int = 0) -> tuple[bool, str]:
        """Return True if a call of the model could be made now; otherwise False and the reason, with the wait if it is known.

        Args:
            model: The model, such as `agent.recipe.model`.
            tokens: The tokens that the call is expected to use.
        """
        gate, rates = self._gate(model)
        why, late = gate.reason(PacedCall(self.limits, rates, tokens))
        return not why, explain_wait(why, late) if why else ""

    def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> Coroutine[Any, Any, ModelReply]:
        model = request.model or view.agent.model
        gate, rates = self._gate(model)
        if not gate.limited and (rates is None or not rates.bounded):
            return _count(next(request), gate, rates)
        return self._in_turn(request, next, view, model, gate, rates)

    async def _in_turn(
        self, request: ModelRequest, next: ModelHandler, view: RunView, model: Any, gate: Gate, rates: ReportedRates | None
    ) -> ModelReply:
        """Make a call when the limits allow it."""
        patience = request.longest_wait
        if patience is None:  # if the model is not the agent's own, another one can answer at once
            patience = self.longest_wait if request.model is None else 0.0
        tokens = estimate_call(request, view) if ("tokens" in [kind for kind, _ in gate.windows]) else 0
        state, used = view.state, None
        call = PacedCall(self.limits, rates, tokens, state.user, state.session or view.run_id, patience)
        try:
            if not gate.enter(call):
                await self._wait(call, gate, model, view)
            reply = await next(request)
            used = reply.usage.total or None
            return reply
        finally:
            gate.leave(call, used)

    def _gate(self, model: Any) -> tuple[Gate, ReportedRates | None]:
        """Return the gate of a model's calls, and what its provider reports."""
        known = self._gates.get(id(model))
        if known is None:
            rates = model_info(model).rates
            known = self._gates[id(model)] = model, gate_of(model, rates), rates
            known[1].watch(self.limits)
        return known[1:]

    async def _wait(self, call: PacedCall, gate: Gate, model: Any, view: RunView) -> None:
        why, late = gate.reason(call)
        if why and why not in OWN and late > call.patience:
            raise _refusal(model, late)
        late = 0.0 if gate.waiting else late  # the time of the first in the queue, not of this call
        gate.join(call)
        if call.under_way:
            return
        view.tell({"status": "throttled", "reason": why, "seconds": late or None, "content": explain_wait(why, late)})
        try:
            await call.turn()
        except TooLong as problem:
            raise _refusal(model, problem.seconds) from None
        view.tell({"status": "throttled", "reason": "", "seconds": None, "content": ""})


async def _count(work: Awaitable[ModelReply], gate: Gate, rates: ReportedRates | None) -> ModelReply:
    """Make a call that does not have to wait. It counts nevertheless: its answer may report a limit."""
    if rates is not None:
        rates.begin()
    try:
        return await work
    finally:
        if rates is not None:
            rates.end()
        gate.pump()


def explain_wait(reason: str, late: float) -> Notice:
    """Return the text for readers of the run: the reason that a call waits, and how long."""
    match reason:
        case "at_once":
            return notice("pace.wait_at_once", "waiting until another call has finished (limit: calls at once)")
        case "busy":
            return notice("pace.wait_busy", "the provider was busy: waiting until another call has succeeded")
        case "requests" if late:
            return notice("pace.wait_requests", "waiting {late:.0f} s (limit: requests)", late=late)
        case "tokens" if late:
            return notice("pace.wait_tokens", "waiting {late:.0f} s (limit: tokens)", late=late)
        case _ if late:
            return notice("pace.wait_provider", "waiting {late:.0f} s (the provider's rate limit)", late=late)
        case _:
            return notice("pace.wait_turn", "waiting for other calls of the same provider")


def _refusal(model: Any, late: float) -> RateLimited:
    name = str(getattr(model, "name", type(model).__name__))
    message = notice(
        "pace.too_long", "{model}: the provider's rate limit allows no request for {late:.1f} s", model=name, late=late
    )
    error = RateLimited(message, provider=name.partition("/")[0], model=name.partition("/")[2], retry_after=late)
    error.was_sent = False
    return error


def estimate_call(request: ModelRequest, view: RunView) -> int:
    """Estimate the tokens of a call: what the last reply used, and what was added since."""
    replies = view.state.replies
    last = replies[-1].reply.usage if replies else None
    added = 0
    for message in reversed(request.messages):
        if message.role == "assistant" and last is not None and last.input:
            return last.input + 2 * last.output + added
        added += tokens_of(message)
    return added + _A_REPLY if last is None or not last.input else last.input + 2 * last.output + added
