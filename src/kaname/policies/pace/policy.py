"""`Pace`: model calls wait for their turn, within your limits and those that the provider reports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import ConfigError, RateLimited
from ...core.messages import Message, ModelReply, ModelRequest, Text, ToolCall, ToolResult
from ...core.notices import Notice, notice
from ...core.values import plain_text
from ...kernel.bases import ModelBase, optional
from ...kernel.ports import ModelHandler, Policy
from .gate import PaceLane, Ticket, TooLong, Waiter, lane_of
from .limits import PaceLimits, read_at_once, read_rate

if TYPE_CHECKING:
    from ...kernel.view import RunView

_A_REPLY = 500  # tokens, before the first reply of a run
_OWN = ("at_once", "requests", "tokens")


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

    stands_alone = True
    place = "attempt"

    def __init__(
        self,
        requests: str | None = None,
        tokens: str | None = None,
        at_once: int | None = None,
        *,
        longest_wait: float = 60.0,
    ) -> None:
        self.limits = PaceLimits(
            read_rate(requests, "requests"), read_rate(tokens, "tokens"), read_at_once(at_once), longest_wait
        )
        if not isinstance(longest_wait, int | float) or isinstance(longest_wait, bool) or not longest_wait >= 0:
            told = notice(
                "pace.longest_wait", "Pace: longest_wait must be 0 or more seconds, not {given!r}", given=longest_wait
            )
            raise ConfigError(told)
        self._limited = bool(requests or tokens or at_once)
        self._lanes: dict[int, tuple[Any, PaceLane]] = {}  # by the id of the model, which is kept alive

    def can_execute(self, model: Any, tokens: int = 0) -> tuple[bool, str]:
        """Return True if a call of the model could be made now; otherwise False and the reason, with the wait if it is known.

        Args:
            model: The model, such as `agent.recipe.model`.
            tokens: The tokens that the call is expected to use.
        """
        lane = self._lane(model)
        if lane is None:
            return True, ""
        with lane.gate.lock:
            why, late = lane.reason(tokens, lane.gate.clock())
        return not why, explain_wait(why, late) if why else ""

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        model = request.model or view.agent.model
        known = self._lanes.get(id(model))
        lane = self._lane(model) if known is None else known[1]
        if lane is None:
            return await next(request)
        rates, gate = lane.rates, lane.gate
        if not (gate.limited or rates.bounded):  # counted nevertheless: the first answer may report a limit
            sent = rates.begin(0)
            rates.sending(sent)
            try:
                return await next(request)
            finally:
                rates.end(sent)
                if gate.waiting:
                    gate.ring()
        tokens = estimate_tokens(request, view) if lane.tokens is not None or rates.counts_tokens else 0
        ticket, used = lane.enter(tokens) or await self._wait(lane, tokens, request, view), None
        try:
            ticket.use()
            reply = await next(request)
            used = reply.usage.total or None
            return reply
        finally:
            ticket.close(used)

    def _lane(self, model: Any) -> PaceLane | None:
        """Return the lane of a model's calls, or None if nothing can hold them up."""
        known = self._lanes.get(id(model))
        if known is not None:
            return known[1]
        rates = optional(model, ModelBase, "rates")
        if rates is None and not self._limited:
            return None
        lane = lane_of(model, rates, self.limits)
        self._lanes[id(model)] = model, lane
        return lane

    async def _wait(self, lane: PaceLane, tokens: int, request: ModelRequest, view: RunView) -> Ticket:
        with lane.gate.lock:
            why, late = lane.reason(tokens, lane.gate.clock())
            late = 0.0 if lane.queue else late  # the time of the first in the queue, not of this call
        patience = request.longest_wait
        if patience is None and request.model is not None:  # another model can answer at once
            patience = 0.0
        if why in _OWN or not why:
            patience = None
        elif patience is not None and patience <= late:
            raise _refusal(request.model or view.agent.model, late)
        waiter = Waiter(view.state.user, view.state.session or view.run_id, tokens)
        lane.join(waiter)
        if waiter.ticket is not None:
            return waiter.ticket
        view.tell({"status": "throttled", "reason": why, "seconds": late or None, "content": explain_wait(why, late)})
        try:
            async with asyncio.timeout(patience):
                ticket = await waiter.future
        except (TooLong, TimeoutError) as problem:
            lane.leave(waiter)
            raise _refusal(request.model or view.agent.model, getattr(problem, "seconds", 0.0)) from None
        except BaseException:
            lane.leave(waiter)
            raise
        view.tell({"status": "throttled", "reason": "", "seconds": None, "content": ""})
        return ticket


def explain_wait(reason: str, late: float) -> Notice:
    """Return why a call waits, and how long, for the reader of the run."""
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
    if late:
        told = notice(
            "pace.too_long", "{model}: the provider's rate limit allows no request for {late:.1f} s", model=name, late=late
        )
    else:
        told = notice("pace.busy", "{model}: the provider was busy, and another call finds out whether it still is", model=name)
    held = RateLimited(told, provider=name.partition("/")[0], model=name.partition("/")[2], retry_after=late or None)
    held.was_sent = False
    return held


def estimate_tokens(request: ModelRequest, view: RunView) -> int:
    """Estimate the tokens of a call: what the last reply used, and what was added since."""
    messages: Sequence[Message] = request.messages
    replies = view.state.replies
    last = replies[-1].reply.usage if replies else None
    if last is None or not last.input:
        return sum([_size(message) for message in messages]) + _A_REPLY
    added = 0
    for message in reversed(messages):
        if message.role == "assistant":
            break
        added += _size(message)
    return last.input + 2 * last.output + added


def _size(message: Message) -> int:
    """Estimate the tokens of a message: four bytes are about one token, a part of another kind about a thousand."""
    count = 0
    for part in message.parts:
        match part:
            case Text(text):
                count += len(text.encode("utf-8", "replace"))
            case ToolResult():
                count += len(part.error or (plain_text(part.output) if part.shown is None else part.shown))
            case ToolCall(_, name, args):
                count += len(name) + len(plain_text(args))
            case _:
                count += 4000
    return count // 4 + 4
