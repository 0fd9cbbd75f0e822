"""`kaname sessions`: conversations that consist of several runs."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...core.errors import ConfigError
from ...core.install import this_command
from ...memory.look_back import Said
from ...memory.sessions import SEARCHED, Session, Sessions
from ...stores.default import choose
from ...stores.places import is_file
from ..agent import agent_name, journal_place, note_place, place_options
from ..last import take_last
from ..main import DONE, FAILED
from ..messages import many, say
from ..messages.stops import status_word
from ..terminal.questions import confirm
from ..terminal.screen import Screen, columns, pad, truncate, width
from ..terminal.signals import run_to_the_end
from .audit import record_deletion, record_here

_LONG = 300
_WIDE = 100  # columns


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    take_last(given, screen)
    place = journal_place(given)
    if is_file(place) and not os.path.exists(os.path.expanduser(place)):
        screen.note(say(f"no sessions yet: {place} does not exist", f"まだセッションがありません ({place})"))
        return DONE if given.action == "list" else FAILED
    given.journal = place
    return run_to_the_end(lambda ending: _main(given, screen))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    journal = choose(given.journal)
    sessions = Sessions(journal)
    words = " ".join(given.what)
    try:
        if given.action == "list":
            return await _list(sessions, given, screen)
        if not words:
            raise ConfigError(
                say(f"sessions {given.action}: name a session", f"sessions {given.action}: セッションを指定してください")
            )
        if given.action == "search":
            return _print_found(await sessions.search(words, agent=agent_name(given), user=given.user), screen, given)
        named = given.what[0] if given.action == "rename" else words
        session = await sessions.get(named, agent=agent_name(given), user=given.user)
        return await _act(given, sessions, session, screen)
    finally:
        await journal.close()


async def _act(given: argparse.Namespace, sessions: Sessions, session: Session, screen: Screen) -> int:
    if given.action == "export" or (given.action == "show" and given.json):
        record_here(given, "export", f"session:{session.id}", session.user)
        screen.say(json.dumps(await sessions.export(session), ensure_ascii=False, indent=None if given.json else 1))
    elif given.action == "show":
        for one in await sessions.said(session):
            _say(one, screen)
    elif given.action == "rename":
        await sessions.rename(session, " ".join(given.what[1:]))
        screen.note(say(f"{session.id} is called {' '.join(given.what[1:])!r} now", f"{session.id} の名前を変更しました"))
    else:
        count = len(session.runs)
        asked = say(
            f"permanently delete {session.id} and its {many(count, 'run')}?",
            f"{session.id} と {count} 件の実行を完全に削除しますか?",
        )
        if not given.yes and not confirm(asked, screen):
            return FAILED
        await record_deletion(given, choose(given.journal), f"session:{session.id}", session.user)
        await sessions.delete(session)
        screen.note(say(f"deleted {session.id} ({many(count, 'run')})", f"{session.id} を削除しました ({count} 件)"))
    return DONE


async def _list(journaled: Sessions, given: argparse.Namespace, screen: Screen) -> int:
    wanted = {"agent": agent_name(given), "user": given.user}
    before = await _place(journaled, given.before, wanted) if given.before else 0
    sessions = await journaled.all(**wanted, before=before, limit=given.number + 1)
    more, sessions = len(sessions) > given.number, sessions[: given.number]
    if given.json:
        for one in sessions:
            screen.say(json.dumps(one.as_json(), ensure_ascii=False))
        return DONE
    if not sessions:
        screen.note(
            say(
                'no sessions yet. Start one with: kaname run -s NAME "…"',
                'まだセッションがありません。次のコマンドで始められます: kaname run -s 名前 "…"',
            )
        )
        note_place(given, screen)
        return DONE
    wide = columns() >= _WIDE
    wider = f"{pad(say('status', '状態'), 11)} {pad(say('agent, user', 'エージェント'), 20)} " if wide else ""
    head = f"{pad(say('session', 'セッション'), 18)}  {pad(say('last used', '最終利用'), 11)}  "
    screen.note(f"{head}{pad(say('runs', '実行'), 4)} {wider}{say('title', 'タイトル')}")
    for one in sessions:
        whose = ", ".join([name for name in (one.agent, one.user) if name])
        left = f"{pad(truncate(one.id, 18), 18)}  {_time(one.updated)}  {len(one.runs):>4} "
        left += f"{pad(status_word(one.status), 11)} {pad(truncate(whose, 20), 20)} " if wide else ""
        screen.say(left + truncate(one.title, max(8, columns() - width(left) - 1)))
    if more:
        last = sessions[-1]
        narrowed = [("-a", given.agent if ":" not in (given.agent or "") else None), ("--user", given.user)]
        options = "".join([f" {name} {shlex.quote(value)}" for name, value in narrowed if value is not None])
        page = f"sessions -n {given.number}{options} --before {shlex.quote(f'{last.id}@{last.place}')}"
        command = f"{this_command()} {page}{place_options(given)}"
        screen.note(say(f"… and more: {command}", f"… 続きがあります: {command}"))
    return DONE


async def _place(journaled: Sessions, named: str, wanted: dict[str, Any]) -> int:
    """Return the place of a session in the list: from `ID@PLACE`, as our own commands write it, or by its id."""
    place = named.rpartition("@")[2]
    return int(place) if "@" in named and place.isdecimal() else (await journaled.get(named, **wanted)).place


def _print_found(found: Sequence[tuple[Session, Sequence[Said]]], screen: Screen, given: argparse.Namespace) -> int:
    for session, places in found[: given.number] if given.json else ():
        said = [{"time": one.time, "run": one.run_id, "text": one.text} for one in places]
        screen.say(json.dumps({**session.as_json(), "said": said}, ensure_ascii=False))
    for session, places in () if given.json else found[: given.number]:
        screen.raw(screen.with_colour(screen.safe(session.id), "cyan", screen.out) + f"  {screen.safe(session.title)}\n")
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
        screen.say(f"{indent}{_time(one.time)}  {who}: {truncate(text, _LONG)}")


def _time(when: float) -> str:
    return datetime.fromtimestamp(when).astimezone().strftime("%m-%d %H:%M")
