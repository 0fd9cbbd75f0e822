"""`Budget`: limits on money, tokens and calls per run, session, user, agent, and for everybody together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.durations import is_whole
from ...core.errors import ConfigError, Released, Suspend
from ...core.events import Event, ToolFinished
from ...core.messages import ToolCall, ToolResult
from ...core.notices import notice
from ...core.record import replace
from ...kernel.bases import PolicyInfo
from ...kernel.ports import Action, Journal, Policy, ToolHandler
from ...kernel.stores import Balance, Ledger
from .limits import Limit, read_limits

if TYPE_CHECKING:
    from ...kernel.view import RunView

_SCOPES = ("run", "session", "user", "agent", "total")


class Account(NamedTuple):
    """One account of the ledger, and the limit that holds for it."""

    name: str
    limit: Limit
    whose: str
    renewal: str = ""

    def remainder(self, balance: Balance) -> float:
        """Return the remaining amount, rounded to a billionth of a dollar, so that rounding errors of sums do not count."""
        return round(self.limit.amount - balance.spent - balance.reserved, 9)


class Verdict(NamedTuple):
    """Tells whether a call is allowed, and if not, why. It is true or false like its first part."""

    allowed: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.allowed


class _UsedUp(Policy):
    """In a replay, refuses the calls for which other runs had left nothing of a budget."""

    place = "money"

    def __init__(self, facts: Sequence[Event]) -> None:
        results = [fact.body.result for fact in facts if isinstance(fact.body, ToolFinished)]
        self._results = {one.call_id: one for one in results if one.not_run and _is_used_up(one.error)}

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        return self._results.get(call.id) or await next(call)


class Budget(Policy):
    """Limits what an agent spends. The accounts are in the journal's store, and shared by all processes that use it.

        Budget(user="$5/day", agent=["$50/month", "1000 calls/day"], tools={"web_search": "100 calls/day"})

    Args:
        run: The limit of each run, with its children: an amount such as "$0.50", "100k tokens" or "20 calls", optionally with
            a period (`/hour`, `/day`, `/month`), or a list of them. A call is a model call.
        session: The limit of each session of a user with an agent.
        user: The limit of each user, over all agents.
        agent: The limit of the agent, over all users.
        total: The limit of everything that this journal records.
        tools: Limits of the calls of single tools, by their names.
        unpriced: "refuse" to stop before a model whose price is unknown is called, if there is a limit on money; "allow" to
            call it and count its tokens and calls only.
        longest_reply: Tokens that are reserved for a reply, and the longest reply that is allowed, if the settings have no
            `max_tokens` (default 16,384).
        zone: The time zone in which days and months begin (default UTC).
    """

    def __init__(
        self,
        *,
        run: Any = None,
        session: Any = None,
        user: Any = None,
        agent: Any = None,
        total: Any = None,
        tools: Mapping[str, Any] | None = None,
        unpriced: str = "refuse",
        longest_reply: int = 16_384,
        zone: tzinfo | str = UTC,
    ) -> None:
        if tools is not None and not isinstance(tools, Mapping):
            raise ConfigError.of(
                "budget.tools_mapping", 'Budget(tools=…) is a mapping: {{"search": "100 calls/day"}}, not {it!r}', it=tools
            )
        given = zip(_SCOPES, (run, session, user, agent, total), strict=True)
        self.limits = {scope: read_limits(one, f"Budget({scope}=…)") for scope, one in given}
        self.tools = {name: read_limits(one, f"Budget(tools={{{name!r}: …}})") for name, one in (tools or {}).items()}
        self.allows_unpriced, self.longest_reply, self.zone = unpriced == "allow", longest_reply, _read_zone(zone)
        named = {**self.limits, **{f"tool {name}": limits for name, limits in self.tools.items()}}
        levels = tuple([(level, limit) for level, limits in named.items() for limit in limits])
        self.about = replace(self.about, limits=levels)
        self._fixed: tuple[Account, ...] | None = None
        self._counted_in = ""  # a run whose own call was counted in another
        self._check_options(unpriced, longest_reply)

    def _check_options(self, unpriced: str, longest_reply: int) -> None:
        """Raise `ConfigError` for a value that no budget can have."""
        if unpriced not in ("refuse", "allow"):
            raise ConfigError.of("budget.unpriced", 'unpriced must be "refuse" or "allow", not {it!r}', it=unpriced)
        if not is_whole(longest_reply, 1):
            raise ConfigError.of(
                "budget.longest_reply", "longest_reply must be a number of tokens, not {it!r}", it=longest_reply
            )
        if any(limit.unit != "calls" for limits in self.tools.values() for limit in limits):
            raise ConfigError.of("budget.tools", 'Budget(tools=…) limits calls: write {{"search": "100 calls/day"}}')
        if not any(self.limits.values()) and not self.tools:
            raise ConfigError.of("budget.empty", 'a Budget needs a limit, such as Budget(user="$5/day")')

    place = "money"  # each try counts, and nothing is counted before it is allowed
    about = PolicyInfo(repeat=_UsedUp, in_background=lambda budget, run_id: budget.counted_in(run_id))

    def check(self, tools: Mapping[str, Action]) -> None:
        for name in self.tools:
            if name not in tools:
                raise ConfigError.of("budget.no_tool", "Budget limits {name!r}, but the agent has no such tool", name=name)

    def for_child(self, view: RunView) -> Budget:
        """Return the budget as it holds for a child run: what the child spends is the parent's."""
        child = object.__new__(Budget)
        child.__dict__ |= self.__dict__
        child._fixed = tuple(self.accounts(view))
        return child

    def counted_in(self, run_id: str) -> Budget:
        """Return the budget for a run that works on a call in the background: the run that made the call has counted it."""
        child = object.__new__(type(self))
        child.__dict__ |= self.__dict__
        child._counted_in = run_id
        return child

    def accounts(self, view: RunView) -> Sequence[Account]:
        """Return the accounts that a model call of the run is charged to."""
        if self._fixed is not None:
            return self._fixed
        state = view.state
        return self.accounts_of(run=view.run_id, session=state.session, user=state.user, agent=view.root.name)

    def accounts_of(self, *, run: str = "", session: str = "", user: str = "", agent: str = "") -> list[Account]:
        """Return the accounts of somebody at this time."""
        threads = "/".join([session, agent, user]) if session else ""
        whose = {"run": run, "session": threads, "user": user, "agent": agent, "total": ""}
        found = []
        for scope, limits in self.limits.items():
            if whose[scope] or scope in ("user", "total"):  # people without a name share one account
                found += [self._account(scope, whose[scope], limit) for limit in limits]
        return found

    def _account(self, scope: str, whose: str, limit: Limit) -> Account:
        window = limit.window(time.time(), self.zone)
        shown = f"{scope} {whose}" if whose else scope
        name = "\x1f".join([scope, whose.replace("\x1f", "␟"), limit.unit, limit.period, window])
        return Account(name, limit, shown, limit.renewal(time.time(), self.zone))

    async def can_execute(self, journal: Any, tool: str = "", *, cost: float = 0.0, tokens: int = 0, **who: str) -> Verdict:
        """Tell whether a call is allowed now, without making it.

        Args:
            journal: The agent's journal.
            tool: The tool; without it, a model call is meant.
            cost: What the call can cost at most, in US dollars.
            tokens: How many tokens it can have at most.
            who: `run`, `session`, `user` and `agent`, as far as they are known.
        """
        accounts = self._tool_accounts(tool) if tool else self.accounts_of(**who)
        names = [account.name for account in accounts]
        found, _ = await ledger_of(journal).reserve("", names, lambda balances: None)
        needed = {"usd": cost, "tokens": float(tokens), "calls": 1.0}
        for account, balance in zip(accounts, found, strict=True):
            left = account.remainder(balance)
            if left <= 0 or left < needed[account.limit.unit]:
                return Verdict(False, refusal(account, balance, needed[account.limit.unit]))
        return Verdict(True)

    def _tool_accounts(self, tool: str) -> list[Account]:
        return [self._account("tool", tool, limit) for limit in self.tools.get(tool, ())]

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        if call.name not in self.tools or view.run_id == self._counted_in:
            return await next(call)
        accounts, ledger = self._tool_accounts(call.name), ledger_of(view.journal)
        names, holder = [account.name for account in accounts], f"{view.run_id}:{call.id}"

        def one_each(balances: Sequence[Balance]) -> list[float] | None:
            left = [account.remainder(balance) for account, balance in zip(accounts, balances, strict=True)]
            return [1.0] * len(left) if min(left) >= 1 else None

        found, reserved = await ledger.reserve(holder, names, one_each)
        if not reserved:
            short = [pair for pair in zip(accounts, found, strict=True) if pair[0].remainder(pair[1]) < 1]
            return ToolResult(error=refusal(*short[0], 1.0), not_run=call.id not in view.state.started, retryable=False)
        result: ToolResult | None = None
        paused = False
        try:
            result = await next(call)
            return result
        except (Suspend, Released):  # the call is made again when the run is resumed, and counted then
            paused = True
            raise
        finally:
            ran = call.id in view.state.started and not paused if result is None else not result.not_run
            ledger.settle(holder, dict.fromkeys(names, float(ran)))


def ledger_of(journal: Journal) -> Ledger:
    """Return the ledger of a journal. Raises `ConfigError` if it has none."""
    if (ledger := journal.stores.ledger) is not None:
        return ledger
    raise ConfigError.of(
        "budget.no_ledger", "a Budget needs a journal that keeps accounts; {kind} does not", kind=type(journal).__name__
    )


def refusal(account: Account, balance: Balance, needed: float) -> str:
    """Say that an account does not have enough left for a call that needs so much."""
    left, limit = max(0.0, account.remainder(balance)), account.limit
    message = notice("budget.used_up", "the budget of {limit} ({whose}) is used up", limit=str(limit), whose=account.whose)
    if left and limit.unit != "calls":
        message = notice(
            "budget.short",
            "{left} is left of the budget of {limit} ({whose}), and the call can take {needed}. Bound its reply with "
            "max_tokens, or shorten the conversation",
            left=limit.show(left),
            limit=str(limit),
            whose=account.whose,
            needed=limit.show(needed),
        )
    return message + notice("budget.renewed", "; it is renewed at {when}", when=account.renewal) if account.renewal else message


def _is_used_up(told: str | None) -> bool:
    """Return True for a text that `refusal` has made."""
    parts = [told, *getattr(told, "values", {}).get("parts", ())]
    return any(getattr(one, "code", "") in ("budget.used_up", "budget.short") for one in parts)


def _read_zone(zone: tzinfo | str) -> tzinfo:
    if isinstance(zone, tzinfo):
        return zone
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError) as problem:
        raise ConfigError.of("budget.zone", "there is no time zone {zone!r}", zone=zone) from problem
