"""`kaname approvals`: approvals that hold for later calls, and revoking them."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

from ...core.people.visible import visible, visible_json
from ...kernel.ports import Journal
from ...kernel.stores import Grant, Grants
from ..main import DONE, FAILED, USAGE
from ..messages import say
from ..terminal.screen import Screen
from .reading import on_journal, print_list


def main(args: argparse.Namespace) -> int:
    return on_journal(args, _main)


async def _main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    if (grants := journal.stores.grants) is None:
        screen.tell("this journal keeps no approvals", "このジャーナルは承認を保存しません", colour="red")
        return FAILED
    if args.action == "revoke":
        return await _revoke(grants, args.what, screen)
    found = [one for one in await grants.all() if args.all or one.is_valid(time.time())]
    empty = say("no approvals hold for later calls", "以後の呼び出しに有効な承認はありません")
    return print_list(args, screen, [one._asdict() for one in found], map(_line, found), empty)


async def _revoke(grants: Grants, ids: list[str], screen: Screen) -> int:
    if not ids:
        screen.tell(
            "name an approval: kaname approvals revoke ID", "ID を指定してください: kaname approvals revoke ID", colour="red"
        )
        return USAGE
    code = DONE
    for one in ids:
        if await grants.revoke(one):
            screen.tell(f"revoked: {one}", f"取り消しました: {one}")
        else:
            screen.tell(f"there is no such approval: {one}", f"該当する承認はありません: {one}", colour="red")
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
