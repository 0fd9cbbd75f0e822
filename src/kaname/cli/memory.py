"""`kaname memory`: read, correct and delete stored memories."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..core.durations import seconds
from ..core.errors import ConfigError
from ..core.install import this_command
from ..core.project import FOLDER
from ..memory.files import MemoryFiles, Owner, as_data, day, moment
from ..memory.memory import Memory
from ..memory.store import Memories, Remembered
from ..stores.default import choose
from ..stores.places import is_file
from .last import take_last
from .main import DONE, FAILED
from .messages import config_error, many, say
from .place import agent_name, config_for, journal_place, programs_agent
from .terminal.questions import confirm
from .terminal.screen import Screen
from .terminal.signals import run_to_the_end

_KINDS = {"fact": "事柄", "preference": "好み", "decision": "決定", "said": "発言", "profile": "プロフィール"}


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if not args.folder:
        take_last(args, screen, "agent")
    with closing(MemoryFiles(_folder(args))) as files:
        if args.action == "learn":
            return _learn(args, files, screen)
        owner: Owner = ("project", "") if args.project else ("agent", args.of_agent) if args.of_agent else ("user", args.user)
        if args.action in ("list", "search", "history", "export") and not files.path(owner).exists():
            screen.tell(f"no memories yet ({files.folder})", f"まだ記憶がありません ({files.folder})")
            return DONE if args.action in ("list", "export") else FAILED
        store = files.of(args.user, agent=args.of_agent, project=args.project)
        act: Callable[[argparse.Namespace, Memories, Screen], int]
        act = {
            "list": _list,
            "search": _search,
            "history": _history,
            "add": _add,
            "correct": _correct,
            "forget": _forget,
            "profile": _profile,
            "export": _export,
        }[args.action]
        return act(args, store, screen)


def _folder(args: argparse.Namespace) -> str | None:
    """Return the folder of the memories: from the options, the program or the configuration; None for the default."""
    if args.folder:
        return str(args.folder)
    if (made := programs_agent(args)) is not None:
        own = [part.folder for part in made.recipe.context if isinstance(part, Memory)]
        return str(own[0]) if own else None
    config = config_for(args)
    return None if config is None else str(Path(config.agent(args.agent).folder).resolve() / FOLDER / "memory")


def _list(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    listed = store.all(past=args.all)
    for one in listed:
        _show(one, args, screen)
    if not listed:
        screen.tell("no memories yet", "まだ記憶がありません")
    return DONE


def _search(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    hits = store.search(_words(args), at=moment(args.at), least=0.1)
    for hit in hits:
        _show(hit.memory, args, screen)
        for old in hit.before:
            _show(old, args, screen)
    if not hits:
        screen.tell("nothing was found", "見つかりませんでした")
    return DONE if hits else FAILED


def _history(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    for number in _numbers(args):
        for one in store.history(number):
            _show(one, args, screen)
    return DONE


def _add(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    _show(store.add(_words(args), about=args.about), args, screen)
    return DONE


def _correct(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    if len(args.what) < 2:
        raise config_error('usage: memory correct NUMBER "the new text"', '使い方: memory correct 番号 "新しい内容"')
    (number,) = _numbers(args, args.what[:1])
    _show(store.correct(number, " ".join(args.what[1:])), args, screen)
    return DONE


def _forget(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    if sum([bool(args.what), bool(args.older), args.all]) != 1:
        raise config_error(
            "give exactly one of: numbers, --older TIME, --all",
            "番号、--older 時間、--all のいずれか一つだけを指定してください",
        )
    until = time.time() - seconds(args.older) if args.older else 0.0
    if args.older or args.all:
        doomed = [one for one in store.all(past=args.all) if args.all or one.said < until]
        asked = say(
            f"permanently delete up to {many(len(doomed), 'memory', 'memories')}?",
            f"最大 {len(doomed)} 件の記憶を完全に削除しますか?",
        )
        if doomed and not args.yes and not confirm(asked, screen):
            return FAILED
        gone = store.forget_before(until) if args.older else store.forget([one.id for one in doomed])
    else:
        gone = store.forget(_numbers(args))
    for one in gone:
        _show(one, args, screen)
    screen.tell(f"{len(gone)} deleted", f"{len(gone)} 件を削除しました")
    message = say("the messages themselves stay in the recorded runs: ", "発言そのものは実行の記録に残ります: ")
    screen.note(f"{message}{this_command()} runs list")
    return DONE if gone else FAILED


def _profile(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    for pair in args.what:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise config_error(f"write NAME=VALUE, not {pair!r}", f"名前=値 の形で書いてください: {pair!r}")
        if value.strip():
            store.add(value, "profile", about=name)
        else:
            store.forget([one.id for one in store.all() if one.kind == "profile" and one.about == name.strip().casefold()])
    set_now = [one for one in store.all() if one.kind == "profile"]
    for one in set_now:
        screen.say(json.dumps(as_data(one), ensure_ascii=False) if args.json else f"{one.about}: {one.text}")
    if not set_now:
        screen.tell(
            "the profile is empty. For example: memory profile language=English style=brief",
            "プロフィールは未設定です。例: memory profile 言語=日本語 口調=簡潔に",
        )
    return DONE


def _export(args: argparse.Namespace, store: Memories, screen: Screen) -> int:
    for one in store.all(past=True):
        screen.say(json.dumps(as_data(one), ensure_ascii=False))
    return DONE


def _learn(args: argparse.Namespace, files: MemoryFiles, screen: Screen) -> int:
    """Learn, by rules, from all recorded runs of the agent."""
    place = journal_place(args)
    if is_file(place) and not Path(place).expanduser().exists():
        raise config_error(f"no runs yet: {place} does not exist", f"まだ記録がありません ({place})")

    async def learn() -> int:
        from ..memory.learn import Learning

        journal, config = choose(place), config_for(args)
        agent = agent_name(args) or (config.agent().name if config is not None else "")
        try:
            new = await Learning(files, journal).learn(agent, args.user, everything=True)
        finally:
            await journal.close()
        screen.tell(f"{many(new, 'run')} read", f"{new} 件の実行を読みました")
        return DONE

    return run_to_the_end(lambda ending: learn())


def _show(one: Remembered, args: argparse.Namespace, screen: Screen) -> None:
    if args.json:
        screen.say(json.dumps(as_data(one), ensure_ascii=False))
        return
    held = f"{day(one.said)}–{day(one.ended)}" if one.ended else day(one.said)
    about = f"[{one.about}] " if one.about else ""
    kind = say(one.kind, _KINDS.get(one.kind, one.kind))
    screen.say(f"{one.id:>5}  {held}  {kind}: {about}{one.text}")


def _words(args: argparse.Namespace) -> str:
    if not args.what:
        raise config_error(f"memory {args.action}: the text is missing", f"memory {args.action}: 内容を指定してください")
    return " ".join(args.what)


def _numbers(args: argparse.Namespace, given_numbers: list[str] | None = None) -> list[int]:
    listed = args.what if given_numbers is None else given_numbers
    if not listed or not all(one.isdecimal() for one in listed):
        message = f"memory {args.action}: "
        raise ConfigError(
            message + say("give the numbers that `memory list` shows", "`memory list` に出る番号を指定してください")
        )
    return [int(one) for one in listed]
