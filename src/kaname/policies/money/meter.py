"""`Meter`: next to every model and every tool. It reserves what a call can cost at most, and settles what it has cost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ...core.durations import backoff
from ...core.errors import AgentError, Halt, ModelError, Suspend
from ...core.messages import NOTHING, ModelReply, ModelRequest, ToolCall, ToolResult, Usage, user
from ...core.notices import notice
from ...core.record import replace
from ...core.steps import Stop
from ...kernel.bases import NO_OPTIONS, ModelBase, PolicyInfo, optional
from ...kernel.ports import ModelHandler, Policy, ToolHandler
from ...kernel.results import check_usage
from ...kernel.stores import Balance
from .budget import Account, refusal
from .estimate import Estimate, Measured, bound_input, remember
from .funds import PURSES, Bill, Funds, PaidLedger, RunLimits, calling, funds_of, limits_of
from .purchase import Purchase, excess, is_unpriced

if TYPE_CHECKING:
    from ...kernel.view import RunView

_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds between two looks at an account whose rest is reserved by other calls
NEARLY = user(notice("budget.nearly", "The budget for this task is nearly used up. Answer now with what you have."))
_numbers = count(1)
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()


class Meter(Policy):
    """Keeps model calls and tool calls within the run's limits. It is on by default.

    The output of a model call is bounded to what the limits still allow, so that no call exceeds them. A call that breaks off
    costs what its provider has told, or unknown, and counts with the highest possible cost. What a tool spends counts when it
    is spent: what it reports, the price that it declares, and the model calls of agents that run inside it.
    """

    place = "money"
    about = PolicyInfo(stands_alone=True)

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        if calling.get() is not None or limits_of(view).limits_money:
            return await _Call(request, funds_of(view), view).run(next)
        answered = False
        try:
            reply = await next(request)
            answered = True
            return reply
        finally:
            if not answered:
                view.charge(_cost_of_failure(request, view, None))

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        limits, tool, outer = limits_of(view), view.tools(call).get(call.name, None), calling.get()
        price: float = getattr(tool, "options", NO_OPTIONS).price
        may_cost = price > 0 or outer is not None or is_unpriced(call.name, view)  # else it is charged if it has cost something
        purchase = Purchase(view, call.name) if may_cost else None
        before = view.state.started.get(call.id) if purchase is not None or limits.calls else None
        refused = self._refusal(call, limits, view) if limits.calls else ""
        if refused or (purchase is not None and (refused := await purchase.reserve(price))):
            return ToolResult(error=refused, not_run=before is None, retryable=False)
        bill = Bill(view, call.id, outer, holds=price > 0)
        inside, result, own = calling.set(bill), None, NOTHING
        try:
            result = await next(call)
            if type(result) is ToolResult and result.usage is not NOTHING:
                metered = bill.usage + view.spent_by_children(call.id)
                own = excess(check_usage(result.usage, f"the tool {call.name!r}"), metered)
        finally:
            calling.reset(inside)
            bill.is_open = False
            if price and own == NOTHING and view.state.started.get(call.id) is not before:
                own = Usage(cost=price)
            if purchase is None and own is not NOTHING and limits.limits_money:
                purchase = Purchase(view, call.name)
            if purchase is not None:
                purchase.settle(own)
            if own is not NOTHING or bill.usage is not NOTHING:
                view.charge(bill.usage + own, call.id if result is not None else "")
        if type(result) is not ToolResult or result.usage is NOTHING:
            return result
        return replace(result, usage=NOTHING)  # it is on the bill

    def _refusal(self, call: ToolCall, limits: RunLimits, view: RunView) -> str:
        """Return the reason that the tool cannot be started again, or ""."""
        for limit in limits.calls:
            if not view.may_start(call, limit, view.state.spent.by_tool):
                return notice(
                    "rule.max_calls",
                    "the limit of calls to {name} is reached ({max_calls}); continue without it",
                    name=call.name,
                    max_calls=limit,
                )
        return ""


class _Call:
    """One model call under limits, or inside a tool."""

    def __init__(self, request: ModelRequest, funds: Funds, view: RunView) -> None:
        self.funds, self.view, self.accounts = funds, view, funds.accounts
        self.holder = f"{view.run_id}:{next(_numbers)}"
        model = request.model or view.agent.model
        tokens, self.measured = bound_input(request, model, view.scratch.get(Measured))
        self.estimate = Estimate(request, model, tokens, funds.longest_reply, funds.share)
        self.left: dict[str, float] = {}  # by unit, of the tightest account
        self.is_nested = funds.is_nested  # as a judge of the words that another call is writing: nobody can wait for it
        if self.estimate.most is None and funds.needs_price:
            raise Halt(Stop("budget", _no_size(self.estimate) if self.estimate.size_is_unknown else _no_price(self.estimate)))

    async def run(self, ask: ModelHandler) -> ModelReply:
        reply, output, sent = None, 0, False
        try:
            output = await self._reserve_of_rules() if self.funds.rules else 0
            if self.accounts:
                output = await self._reserve_of_accounts(output)
            sent, outer = True, calling.set(Bill(self.view, "", calling.get(), holds=self.funds.are_limited))
            try:
                said = await ask(self._prepare_request(output) if self.funds.are_limited else self.estimate.request)
            finally:
                calling.reset(outer)
            if not isinstance(said, ModelReply) or not isinstance(said.usage, Usage):
                return said  # the kernel says what is wrong with it
            usage = self._with_bound(said.usage, output) if output else said.usage
            reply = said if usage is said.usage else replace(said, usage=usage)
            return reply
        finally:
            if sent and not isinstance(sys.exception(), Suspend):
                self._settle(reply, output)
            else:  # it was not sent, or the run waits for a batch: nothing is spent yet
                self.funds.release(self.holder)

    def _settle(self, reply: ModelReply | None, output: int) -> None:
        """Charge the cost of a reply, or of a call that has failed with the exception that is being handled."""
        if reply is not None:
            usage = reply.usage
            self.view.scratch[Measured] = remember(self.measured, usage)
        else:
            usage = _cost_of_failure(self.estimate.request, self.view, self.estimate.cost(output) if output else None)
            if not any(bill.is_of(self.view) for bill in self.funds.bills):
                self.view.charge(usage)
        tokens = usage.total or (0 if usage is NOTHING else self.estimate.tokens(output))
        self.funds.settle(self.holder, usage, tokens, calls=1)
        for bill in self.funds.bills:
            bill.add(usage)

    def _prepare_request(self, output: int) -> ModelRequest:
        """Return the request with the bound on its reply, and once a hint if the money is nearly used up."""
        request = self.estimate.limit_request(output)
        if "told" not in self.view.scratch and self._is_nearly_used_up():
            self.view.scratch["told"] = True
            request = replace(request, messages=(*request.messages, NEARLY))
        return request

    def _is_nearly_used_up(self) -> bool:
        """Return True if after this call no further one can be made, as far as the last one tells."""
        replies = self.view.state.replies
        last = replies[-1].reply.usage if replies else NOTHING
        costs = (self.estimate.left, last.ceiling or 0.0, self.estimate.cost(self.estimate.least) or 0.0)
        tokens = (self.left.get("tokens"), last.total, self.estimate.tokens(self.estimate.least))
        near = [left is not None and left - used < max(used, 1.25 * needed) for left, used, needed in (costs, tokens) if used]
        return any(near) or self.left.get("calls", 2.0) < 2

    def _with_bound(self, usage: Usage, output: int) -> Usage:
        return usage if usage.cost is not None or not self.estimate.most else replace(usage, most=self.estimate.cost(output))

    async def _reserve_of_rules(self) -> int:
        """Reserve in the purses of the limits on money, and return how long the reply can be."""
        waits = 0
        while True:
            with PURSES:
                known = [left for left in self.funds.remainders() if left is not None]
                output = self.estimate.output_for(known, ())
                if output:
                    for _, purse, _ in self.funds.rules:
                        purse.reserved[self.holder] = self.estimate.cost(output) or 0.0
                    return output
                held = max([sum(purse.reserved.values()) for _, purse, _ in self.funds.rules])
            if self.is_nested or min(known) + held < (self.estimate.cost(self.estimate.least) or 0.0) or not held:
                message = notice(
                    "budget.too_little", "${left:.4f} is left of the limit, which buys no further reply", left=min(known)
                )
                raise Halt(Stop("budget", message))
            waits += 1
            await self._wait(waits)

    async def _reserve_of_accounts(self, longest: int) -> int:
        """Reserve in the accounts, and return how long the reply can be. While other calls hold the rest, wait."""
        short, waits = "" if self.is_nested else self._queued_for(), 0
        if not short:
            found, output = await self._try(longest)
            if output:
                return output
            if (hopeless := self._hopeless(found)) is not None:
                raise Halt(Stop("budget", refusal(*hopeless)))
            short = _shortage(found)[0].name
        async with _queue(short):
            while True:
                found, output = await self._try(longest)
                if output:
                    return output
                if (hopeless := self._hopeless(found)) is not None:
                    raise Halt(Stop("budget", refusal(*hopeless)))
                waits += 1
                await self._wait(waits, _shortage(found)[0])

    def _hopeless(self, found: Sequence[tuple[Account, Balance]]) -> tuple[Account, Balance, float] | None:
        """Return an account that cannot pay the call even if nothing of it were reserved, and what the call needs."""
        estimate = self.estimate
        needed = {"usd": estimate.cost(estimate.least) or 0.0, "tokens": float(estimate.tokens(estimate.least)), "calls": 1.0}
        for account, balance in found:
            need = needed[account.limit.unit]
            left = account.remainder(balance) if self.is_nested else account.limit.amount - balance.spent
            if left < need or left <= 0:
                return account, balance, need
        return None

    def _queued_for(self) -> str:
        """Return the account for which others are waiting already: this call waits behind them."""
        queues = _queues.get(asyncio.get_running_loop(), {})
        return next((one.name for one in self.accounts if one.name in queues and queues[one.name].locked()), "")

    async def _try(self, longest: int) -> tuple[list[tuple[Account, Balance]], int]:
        """Reserve in all ledgers. Return the accounts of the one that has too little, if there is one, and the output."""
        self.left, output = {}, longest
        for paid in self.funds.ledgers:
            found, output = await self._try_ledger(paid, output)
            if not output:
                for other in self.funds.ledgers[: self.funds.ledgers.index(paid)]:
                    other.ledger.settle(self.holder, {})
                return list(zip(paid.accounts, found, strict=True)), 0
        return [], output

    async def _try_ledger(self, paid: PaidLedger, longest: int) -> tuple[list[Balance], int]:
        output, (ledger, accounts) = 0, paid

        def divide(balances: Sequence[Balance]) -> list[float] | None:
            nonlocal output
            left = {
                unit: [one.remainder(b) for one, b in zip(accounts, balances, strict=True) if one.limit.unit == unit]
                for unit in _UNITS
            }
            self.left |= {unit: min([*lefts, self.left.get(unit, lefts[0])]) for unit, lefts in left.items() if lefts}
            output = (
                0 if min(left["calls"], default=1.0) < 1 else self.estimate.output_for(left["usd"], left["tokens"], longest)
            )
            amounts = {"usd": self.estimate.cost(output) or 0.0, "tokens": float(self.estimate.tokens(output)), "calls": 1.0}
            return [amounts[one.limit.unit] for one in accounts] if output else None

        try:
            found, _ = await ledger.reserve(self.holder, [one.name for one in accounts], divide)
        except asyncio.CancelledError:  # it may be carried out all the same
            ledger.settle(self.holder, {})
            raise
        return found, output

    async def _wait(self, times: int, account: Account | None = None) -> None:
        if times == 1:
            whose = "" if account is None else account.whose
            message = notice("budget.waiting", "waiting: other calls hold the rest of the budget ({whose})", whose=whose)
            self.view.tell({"status": "throttled", "reason": "budget", "seconds": None, "content": message})
        await asyncio.sleep(backoff(times, _PAUSE, _LONGEST_PAUSE, growth=1.5))


_UNITS = ("usd", "tokens", "calls")


def _shortage(found: Sequence[tuple[Account, Balance]]) -> tuple[Account, Balance]:
    """Return the account that has the least left, compared with its limit."""
    return min(found, key=lambda pair: pair[0].remainder(pair[1]) / (pair[0].limit.amount or 1.0))


def _queue(name: str) -> asyncio.Lock:
    return _queues.setdefault(asyncio.get_running_loop(), {}).setdefault(name, asyncio.Lock())


def _cost_of_failure(request: ModelRequest, view: RunView, most: float | None) -> Usage:
    """Return the cost of a call without a reply: nothing if the provider refused it, else unknown, and at most `most`."""
    error = sys.exception()
    if isinstance(error, ModelError) and error.usage is not None:
        return error.usage
    if isinstance(error, Suspend) or (isinstance(error, AgentError) and not isinstance(error, ModelError)):
        return NOTHING  # it was not sent
    model = request.model or view.agent.model
    free = optional(model, ModelBase, "most_expensive")(request, 1, 1) == 0
    return NOTHING if free else Usage(cost=None, most=most)


def _no_size(estimate: Estimate) -> str:
    return notice(
        "budget.no_size",
        "there is a limit on money, but how many tokens {model} counts in a sound, a film or a file is not known, so it was "
        'not called. Leave the limit out, or allow it: cost(…, unpriced=True), Budget(…, unpriced="allow")',
        model=estimate.model.name,
    )


def _no_price(estimate: Estimate) -> str:
    return notice(
        "budget.no_price",
        "there is a limit on money, but what a call of {model} can cost is not known, so it was not made. Set the price with "
        'Price(…) or KANAME_PRICES, or allow it: cost(…, unpriced=True), Budget(…, unpriced="allow")',
        model=estimate.model.name,
    )
