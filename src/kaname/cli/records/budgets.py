"""`kaname budgets`: what was spent of the budgets, and what is left."""

from __future__ import annotations

import argparse
import json

from ...kernel.ports import Policy
from ...policies.money.budget import ledger_of
from ...policies.money.overview import AccountInfo, overview
from ...stores.default import choose
from ..agent import config_for, journal_for, note_place, programs_agent
from ..last import take_last
from ..main import DONE
from ..messages import say
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end

_SCOPES = {
    "run": "実行",
    "session": "セッション",
    "user": "ユーザー",
    "agent": "エージェント",
    "total": "全体",
    "tool": "ツール",
}


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    take_last(given, screen)
    return run_to_the_end(lambda ending: _main(given, screen))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    limits = [limit for policy in _policies(given) for limit in policy.about.limits]
    journal = choose(journal_for(given))
    try:
        found = await overview(ledger_of(journal), limits, past=given.all)
    finally:
        await journal.close()
    if given.json:
        screen.say(json.dumps([one.as_json() for one in found], ensure_ascii=False))
        return DONE
    for one in found:
        screen.say(_line(one))
    if not found:
        screen.note(say("nothing was spent of a budget yet", "予算はまだ使われていません"))
        note_place(given, screen)
    return DONE


def _policies(given: argparse.Namespace) -> tuple[Policy, ...]:
    """Return the policies of the agent that is meant, for its limits."""
    if (made := programs_agent(given)) is not None:
        return made.recipe.policies
    config = config_for(given)
    return () if config is None else tuple(config.parts(given.agent or None)["policies"])


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
