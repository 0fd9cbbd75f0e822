"""`kaname approvals`: approvals that hold for later calls, and revoking them."""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime

from ...core.people.visible import visible, visible_json
from ...kernel.approvals.port import Grant, Grants, HasGrants
from ...stores.default import choose
from ..agent import journal_for, note_place
from ..last import take_last
from ..main import DONE, FAILED, USAGE
from ..messages import say
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    take_last(given, screen)
    return run_to_the_end(lambda ending: _main(given, screen))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    journal = choose(journal_for(given))
    try:
        if not isinstance(journal, HasGrants):
            screen.note(say("this journal keeps no approvals", "このジャーナルは承認を保存しません"), "red")
            return FAILED
        if given.action == "revoke":
            return await _revoke(journal.grants, given.what, screen)
        found = [one for one in await journal.grants.all() if given.all or one.is_valid(time.time())]
    finally:
        await journal.close()
    if given.json:
        screen.say(json.dumps([one._asdict() for one in found], ensure_ascii=False))
        return DONE
    for one in found:
        screen.say(_line(one))
    if not found:
        screen.note(say("no approvals hold for later calls", "以後の呼び出しに有効な承認はありません"))
        note_place(given, screen)
    return DONE


async def _revoke(grants: Grants, ids: list[str], screen: Screen) -> int:
    if not ids:
        screen.note(
            say("name an approval: kaname approvals revoke ID", "ID を指定してください: kaname approvals revoke ID"), "red"
        )
        return USAGE
    code = DONE
    for one in ids:
        if await grants.revoke(one):
            screen.note(say(f"revoked: {one}", f"取り消しました: {one}"))
        else:
            screen.note(say(f"there is no such approval: {one}", f"該当する承認はありません: {one}"), "red")
            code = FAILED
    return code


def _line(one: Grant) -> str:
    whose = "".join([f"  {word}" for word in (one.agent, one.user) if word])
    by = say(f", by {visible(one.by)}", f"、承認者 {visible(one.by)}") if one.by else ""
    until = ""
    if one.revoked:
        until = say(", revoked", "、取り消し済み")
    elif one.until:
        ends = f"{datetime.fromtimestamp(one.until, UTC).astimezone():%Y-%m-%d %H:%M}"
        until = say(f", until {ends}", f"、{ends} まで")
    return f"{one.id}  {visible(one.tool)} {visible_json(one.where)}{whose}{by}{until}"
