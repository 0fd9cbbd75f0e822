"""`Meter`: innermost around every model call. It reserves what the call can cost at most, and settles what it has cost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...core.errors import AgentError, Halt, ModelError, Suspend
from ...core.messages import NOTHING, ModelReply, ModelRequest, Usage, user
from ...core.notices import notice
from ...core.record import replace
from ...core.steps import Stop
from ...kernel.bases import ModelBase, StopRuleBase, optional
from ...kernel.ports import Balance, ModelHandler, Policy
from .budget import Account, Budget, ledger_of, refusal
from .estimate import Estimate
from .purse import Purse, purse_of
from .size import Measured, bound_input, remember

if TYPE_CHECKING:
    from ...kernel.view import RunView

_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds between two looks at an account whose rest is reserved by other calls
NEARLY = user(notice("budget.nearly", "The budget for this task is nearly used up. Answer now with what you have."))
_REPLYS_SHARE = 0.8
_numbers = count(1)
_calling: ContextVar[str] = ContextVar("_calling", default="")  # the run whose call is under way in this task
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()


class RunLimits:
    """The limits of one run: the accounts of its budgets, and its rules on money with the purse of each."""

    def __init__(self, view: RunView) -> None:
        self.agent = view.agent
        self.budgets = [policy for policy in view.policies() if isinstance(policy, Budget) and any(policy.limits.values())]
        rules = [rule for rule in view.stops if _limits_money(rule)]
        judged = any(hasattr(policy, "output_checks") and policy.output_checks for policy in view.policies())
        self.share = _REPLYS_SHARE if judged else 1.0  # the rest is for those who judge the reply while it is written
        self.rules: list[tuple[Any, Purse]] = [
            (rule, optional(rule, StopRuleBase, "purse") or purse_of(view)) for rule in rules
        ]
        self._accounts: tuple[int, list[Account]] = (-1, [])

    def accounts(self, view: RunView) -> list[Account]:
        """Return the accounts, each once: a child run may have the same budget as its parent."""
        minute = int(time()) // 60  # no period begins within one
        if self._accounts[0] != minute:
            self._accounts = minute, self._find_accounts(view)
        return self._accounts[1]

    def _find_accounts(self, view: RunView) -> list[Account]:
        found: dict[str, Account] = {}
        for account in [one for budget in self.budgets for one in budget.accounts(view)]:
            known = found.get(account.name)
            if known is None or account.limit.amount < known.limit.amount:
                found[account.name] = account
        return list(found.values())

    def needs_price(self, view: RunView) -> bool:
        """Return True if a limit on money allows no model whose price is unknown."""
        strict = [budget for budget in self.budgets if not budget.allows_unpriced]
        money = any(account.limit.unit == "usd" for budget in strict for account in budget.accounts(view))
        return money or any(not optional(rule, StopRuleBase, "allows_unpriced") for rule, _ in self.rules)

    @property
    def longest_reply(self) -> int:
        return min([budget.longest_reply for budget in self.budgets], default=16_384)


def _limits_money(rule: Any) -> bool:
    written = optional(rule, StopRuleBase, "root") or rule
    return optional(rule, StopRuleBase, "kind") == "budget" and optional(written, StopRuleBase, "limit") is not None


class Meter(Policy):
    """Keeps model calls within the run's limits on money and its budgets. It is on by default.

    The output of a call is bounded to what the limits still allow, so that no call exceeds them. A call that breaks off costs
    what its provider has told, or unknown, and counts with the highest possible cost.
    """

    depth = 6
    stands_alone = True

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        limits: RunLimits | None = view.scratch.get(Meter)
        if limits is None or limits.agent is not view.agent:
            limits = view.scratch[Meter] = RunLimits(view)
        if not limits.budgets and not limits.rules:
            answered = False
            try:
                reply = await next(request)
                answered = True
                return reply
            finally:
                if not answered:
                    view.charge(_cost_of_failure(request, view, None))
        return await _Call(request, limits, view).run(next)


class _Call:
    """One model call under limits."""

    def __init__(self, request: ModelRequest, limits: RunLimits, view: RunView) -> None:
        self.limits, self.view, self.accounts = limits, view, limits.accounts(view)
        self.holder = f"{view.run_id}:{next(_numbers)}"
        model = request.model or view.agent.model
        tokens, self.measured = bound_input(request, model, view.scratch.get(Measured))
        self.estimate = Estimate(request, model, tokens, limits.longest_reply, limits.share)
        self.left: dict[str, float] = {}  # by unit, of the tightest account
        self.is_nested = bool(_calling.get())  # a judge of the words that another call is writing: nobody can wait for it
        if self.estimate.most is None and limits.needs_price(view):
            raise Halt(Stop("budget", _no_size(self.estimate) if self.estimate.size_is_unknown else _no_price(self.estimate)))

    async def run(self, ask: ModelHandler) -> ModelReply:
        reply, output, sent, purses = None, 0, False, [purse for _, purse in self.limits.rules]
        ledger = ledger_of(self.view.journal) if self.accounts else None
        try:
            output = await self._reserve_of_rules()
            if ledger is not None:
                output = await self._reserve_of_accounts(output)
            sent, outer = True, _calling.set(self.view.run_id)
            try:
                said = await ask(self._prepare_request(output))
            finally:
                _calling.reset(outer)
            if not isinstance(said, ModelReply) or not isinstance(said.usage, Usage):
                return said  # the kernel says what is wrong with it
            usage = self._with_bound(said.usage, output)
            reply = said if usage is said.usage else replace(said, usage=usage)
            return reply
        finally:
            usage = NOTHING
            sent = sent and not isinstance(sys.exception(), Suspend)  # the run waits for a batch: nothing is spent yet
            if reply is not None:
                usage = reply.usage
                self.view.scratch[Measured] = remember(self.measured, usage)
            elif sent:
                usage = _cost_of_failure(self.estimate.request, self.view, self.estimate.cost(output))
                self.view.charge(usage)
            for purse in purses:
                purse.reserved.pop(self.holder, None)
            for purse in {id(purse): purse for purse in purses}.values():
                purse.spent += usage.ceiling or 0.0
            if ledger is not None:
                ledger.settle(self.holder, self._charges(usage, output) if sent else {})

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

    def _charges(self, usage: Usage, output: int) -> dict[str, float]:
        """Return what the call is charged to each account: what it has cost, or the highest possible cost."""
        tokens = usage.total or (0 if usage is NOTHING else self.estimate.tokens(output))
        amounts = {"usd": usage.ceiling or 0.0, "tokens": float(tokens), "calls": 1.0}
        charges = {account.name: amounts[account.limit.unit] for account in self.accounts}
        if usage.ceiling is None:  # told beside what is known, and not as nothing
            money = [account.name for account in self.accounts if account.limit.unit == "usd"]
            charges |= {name.replace("\x1fusd\x1f", "\x1funpriced\x1f"): 1.0 for name in money}
        return charges

    async def _reserve_of_rules(self) -> int:
        """Reserve in the purses of the run's own limits, and return how long the reply can be."""
        pause = _PAUSE
        while True:
            left = [purse.remainder(rule, self.view.state) for rule, purse in self.limits.rules]
            known = [one for one in left if one is not None]
            output = self.estimate.output_for(known, ())
            if output:
                for _, purse in self.limits.rules:
                    purse.reserved[self.holder] = self.estimate.cost(output) or 0.0
                return output
            held = max([sum(purse.reserved.values()) for _, purse in self.limits.rules])
            if self.is_nested or min(known) + held < (self.estimate.cost(self.estimate.least) or 0.0) or not held:
                told = notice(
                    "budget.too_little", "${left:.4f} is left of the limit, which buys no further reply", left=min(known)
                )
                raise Halt(Stop("budget", told))
            pause = await self._wait(pause)

    async def _reserve_of_accounts(self, longest: int) -> int:
        """Reserve in the accounts, and return how long the reply can be. While other calls hold the rest, wait."""
        short, pause = "" if self.is_nested else self._queued_for(), _PAUSE
        if not short:
            found, output = await self._try(longest)
            if output:
                return output
            if (hopeless := self._hopeless(found)) is not None:
                raise Halt(Stop("budget", refusal(*hopeless)))
            short = self._shortage(found)[0].name
        async with _queue(short):
            while True:
                found, output = await self._try(longest)
                if output:
                    return output
                if (hopeless := self._hopeless(found)) is not None:
                    raise Halt(Stop("budget", refusal(*hopeless)))
                pause = await self._wait(pause, self._shortage(found)[0])

    def _hopeless(self, found: Sequence[Balance]) -> tuple[Account, Balance, float] | None:
        """Return an account that cannot pay the call even if nothing of it were reserved, and what the call needs."""
        estimate = self.estimate
        needed = {"usd": estimate.cost(estimate.least) or 0.0, "tokens": float(estimate.tokens(estimate.least)), "calls": 1.0}
        for account, balance in zip(self.accounts, found, strict=True):
            need = needed[account.limit.unit]
            left = account.remainder(balance) if self.is_nested else account.limit.amount - balance.spent
            if left < need or left <= 0:
                return account, balance, need
        return None

    def _queued_for(self) -> str:
        """Return the account for which others are waiting already: this call waits behind them."""
        queues = _queues.get(asyncio.get_running_loop(), {})
        return next((one.name for one in self.accounts if one.name in queues and queues[one.name].locked()), "")

    async def _try(self, longest: int) -> tuple[list[Balance], int]:
        output = 0

        def divide(balances: Sequence[Balance]) -> list[float] | None:
            nonlocal output
            left = {
                unit: [one.remainder(b) for one, b in zip(self.accounts, balances, strict=True) if one.limit.unit == unit]
                for unit in _UNITS
            }
            self.left = {unit: min(lefts) for unit, lefts in left.items() if lefts}
            output = (
                0 if min(left["calls"], default=1.0) < 1 else self.estimate.output_for(left["usd"], left["tokens"], longest)
            )
            amounts = {"usd": self.estimate.cost(output) or 0.0, "tokens": float(self.estimate.tokens(output)), "calls": 1.0}
            return [amounts[one.limit.unit] for one in self.accounts] if output else None

        ledger = ledger_of(self.view.journal)
        try:
            found, _ = await ledger.reserve(self.holder, [one.name for one in self.accounts], divide)
        except asyncio.CancelledError:  # it may be carried out all the same
            ledger.settle(self.holder, {})
            raise
        return found, output

    def _shortage(self, found: Sequence[Balance]) -> tuple[Account, Balance]:
        """Return the account that has the least left, compared with its limit."""
        pairs = list(zip(self.accounts, found, strict=True))
        return min(pairs, key=lambda pair: pair[0].remainder(pair[1]) / (pair[0].limit.amount or 1.0))

    async def _wait(self, pause: float, account: Account | None = None) -> float:
        if pause == _PAUSE:
            whose = "" if account is None else account.whose
            told = notice("budget.waiting", "waiting: other calls hold the rest of the budget ({whose})", whose=whose)
            self.view.tell({"status": "throttled", "reason": "budget", "seconds": None, "content": told})
        await asyncio.sleep(pause)
        return min(_LONGEST_PAUSE, pause * 1.5)


_UNITS = ("usd", "tokens", "calls")


def _queue(name: str) -> asyncio.Lock:
    return _queues.setdefault(asyncio.get_running_loop(), {}).setdefault(name, asyncio.Lock())


def _cost_of_failure(request: ModelRequest, view: RunView, most: float | None) -> Usage:
    """Return what a call has cost that gave no reply: nothing if the provider refused it, else unknown, at most `most`."""
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
