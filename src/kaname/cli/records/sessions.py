"""`kaname sessions`: conversations that consist of several runs."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import Any

from ...kernel.ports import Journal
from ...memory.look_back import Said
from ...memory.sessions import SEARCHED, Session, Sessions
from ...stores.default import choose
from ..main import DONE, FAILED
from ..messages import config_error, many, say
from ..messages.stops import status_word
from ..place import agent_name
from ..terminal.questions import confirm
from ..terminal.screen import Screen, columns, pad, truncate, width
from .audit import record_deletion, record_here
from .reading import on_journal, print_page, short_time

_LONG = 300
_WIDE = 100  # columns


def main(args: argparse.Namespace) -> int:
    return on_journal(args, _main, missing=("sessions", "セッション"))


async def _main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    sessions = Sessions(journal)
    words = " ".join(args.what)
    if args.action == "list":
        return await _list(sessions, args, screen)
    if not words:
        raise config_error(f"sessions {args.action}: name a session", f"sessions {args.action}: セッションを指定してください")
    if args.action == "search":
        return _print_found(await sessions.search(words, agent=agent_name(args), user=args.user), screen, args)
    named = args.what[0] if args.action == "rename" else words
    session = await sessions.get(named, agent=agent_name(args), user=args.user)
    return await _act(args, sessions, session, screen)


async def _act(args: argparse.Namespace, sessions: Sessions, session: Session, screen: Screen) -> int:
    if args.action == "export" or (args.action == "show" and args.json):
        record_here(args, "export", f"session:{session.id}", session.user)
        screen.say(json.dumps(await sessions.export(session), ensure_ascii=False, indent=None if args.json else 1))
    elif args.action == "show":
        for one in await sessions.said(session):
            _say(one, screen)
    elif args.action == "rename":
        await sessions.rename(session, " ".join(args.what[1:]))
        screen.tell(f"{session.id} is called {' '.join(args.what[1:])!r} now", f"{session.id} の名前を変更しました")
    else:
        count = len(session.runs)
        asked = say(
            f"permanently delete {session.id} and its {many(count, 'run')}?",
            f"{session.id} と {count} 件の実行を完全に削除しますか?",
        )
        if not args.yes and not confirm(asked, screen):
            return FAILED
        await record_deletion(args, choose(args.journal), f"session:{session.id}", session.user)
        await sessions.delete(session)
        screen.tell(f"deleted {session.id} ({many(count, 'run')})", f"{session.id} を削除しました ({count} 件)")
    return DONE


async def _list(journaled: Sessions, args: argparse.Namespace, screen: Screen) -> int:
    wanted = {"agent": agent_name(args), "user": args.user}
    before = await _place(journaled, args.before, wanted) if args.before else 0
    found = await journaled.all(**wanted, before=before, limit=args.number + 1)
    empty = say(
        'no sessions yet. Start one with: kaname run -s NAME "…"',
        'まだセッションがありません。次のコマンドで始められます: kaname run -s 名前 "…"',
    )

    def table(sessions: Sequence[Session]) -> str:
        _print_table(sessions, screen)
        narrowed = [("-a", args.agent if ":" not in (args.agent or "") else None), ("--user", args.user)]
        options = "".join([f" {name} {shlex.quote(value)}" for name, value in narrowed if value is not None])
        return f"sessions -n {args.number}{options} --before {shlex.quote(f'{sessions[-1].id}@{sessions[-1].place}')}"

    print_page(args, screen, found, Session.as_json, table, empty)
    return DONE


def _print_table(sessions: Sequence[Session], screen: Screen) -> None:
    wide = columns() >= _WIDE
    wider = f"{pad(say('status', '状態'), 11)} {pad(say('agent, user', 'エージェント'), 20)} " if wide else ""
    head = f"{pad(say('session', 'セッション'), 18)}  {pad(say('last used', '最終利用'), 11)}  "
    screen.note(f"{head}{pad(say('runs', '実行'), 4)} {wider}{say('title', 'タイトル')}")
    for one in sessions:
        whose = ", ".join([name for name in (one.agent, one.user) if name])
        left = f"{pad(truncate(one.id, 18), 18)}  {short_time(one.updated)}  {len(one.runs):>4} "
        left += f"{pad(status_word(one.status), 11)} {pad(truncate(whose, 20), 20)} " if wide else ""
        screen.say(left + truncate(one.title, max(8, columns() - width(left) - 1)))


async def _place(journaled: Sessions, named: str, wanted: dict[str, Any]) -> int:
    """Return the place of a session in the list: from `ID@PLACE`, as our own commands write it, or by its id."""
    place = named.rpartition("@")[2]
    return int(place) if "@" in named and place.isdecimal() else (await journaled.get(named, **wanted)).place


def _print_found(found: Sequence[tuple[Session, Sequence[Said]]], screen: Screen, args: argparse.Namespace) -> int:
    for session, places in found[: args.number] if args.json else ():
        said = [{"time": one.time, "run": one.run_id, "text": one.text} for one in places]
        screen.say(json.dumps({**session.as_json(), "said": said}, ensure_ascii=False))
    for session, places in () if args.json else found[: args.number]:
        screen.say_in("cyan", session.id, f"  {session.title}")
        for one in places:
            _say(one, screen, "    ")
    if not found:
        looked = say(
            f"nothing was found in the last {SEARCHED} sessions", f"最近の {SEARCHED} 件のセッションには見つかりませんでした"
        )
        screen.note(looked)
    return DONE if found else FAILED


def _say(one: Said, screen: Screen, indent: str = "") -> None:
    results = f"← {', '.join([result.name for result in one.message.results])}"
    who = one.agent if one.message.role == "assistant" else say("user", "ユーザー") if one.message.role == "user" else results
    text = " ".join(one.text.split())
    if text:
        screen.say(f"{indent}{short_time(one.time)}  {who}: {truncate(text, _LONG)}")
