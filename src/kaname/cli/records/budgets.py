"""`kaname budgets`: what was spent of the budgets, and what is left."""

from __future__ import annotations

import argparse

from ...kernel.ports import Journal, Policy
from ...policies.money.budget import ledger_of
from ...policies.money.overview import AccountInfo, overview
from ..messages import say
from ..place import config_for, programs_agent
from ..terminal.screen import Screen
from .reading import on_journal, print_list

_SCOPES = {
    "run": "実行",
    "session": "セッション",
    "user": "ユーザー",
    "agent": "エージェント",
    "total": "全体",
    "tool": "ツール",
}


def main(args: argparse.Namespace) -> int:
    return on_journal(args, _main)


async def _main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    limits = [limit for policy in _policies(args) for limit in policy.about.limits]
    found = await overview(ledger_of(journal), limits, past=args.all)
    empty = say("nothing was spent of a budget yet", "予算はまだ使われていません")
    return print_list(args, screen, [one.as_json() for one in found], map(_line, found), empty)


def _policies(args: argparse.Namespace) -> tuple[Policy, ...]:
    """Return the policies of the agent that is meant, for its limits."""
    if (made := programs_agent(args)) is not None:
        return made.recipe.policies
    config = config_for(args)
    return () if config is None else tuple(config.parts(args.agent or None)["policies"])


def _line(one: AccountInfo) -> str:
    whose = f" {one.whose}" if one.whose else ""
    period = f" ({one.window})" if one.window else ""
    spent, limit = _amount(one.spent, one.unit), "" if one.limit is None else f" / {_amount(one.limit, one.unit)}"
    held = (
        say(f", {_amount(one.reserved, one.unit)} reserved", f"、予約 {_amount(one.reserved, one.unit)}")
        if one.reserved
        else ""
    )
    return f"{say(one.scope, _SCOPES[one.scope])}{whose}{period}: {spent}{limit}{held}"


def _amount(amount: float, unit: str) -> str:
    if unit == "usd":
        return f"${amount:.4f}"
    words = {"tokens": "トークン", "calls": "回", "unpriced": "回 (費用は不明)"}
    return f"{amount:,.0f} {say('calls of unknown cost' if unit == 'unpriced' else unit, words[unit])}"
