"""`kaname user`: export or erase everything that is stored about a user."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from ...memory.protection.erasing import Erasure, erase_user
from ...memory.protection.exporting import export_user
from ...serve.access.cookies import SignIns
from ...serve.users import Users, users_file, users_named_by
from ...stores.places import is_server
from ..main import DONE, FAILED
from ..messages import many, say, translate
from ..place import config_for, journal_place
from ..terminal.questions import confirm
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end
from .places import places_for


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    act = _export if args.action == "export" else _erase
    return run_to_the_end(lambda ending: act(args, screen))


async def _export(args: argparse.Namespace, screen: Screen) -> int:
    path = Path(args.out or f"user-{time.strftime('%Y-%m-%d')}.zip")
    done = await export_user(args.user, path, places_for(args))
    if args.json:
        screen.say(json.dumps({**done._asdict(), "path": str(done.path)}, ensure_ascii=False))
        return DONE
    screen.say(
        say(
            f"{path}: {many(done.runs, 'run')}, {many(done.facts, 'fact')}, {many(done.memories, 'memory', 'memories')}, "
            f"{many(done.media, 'media file')}",
            f"{path}: 実行 {done.runs} 件、記録 {done.facts} 件、記憶 {done.memories} 件、メディア {done.media} 件",
        )
    )
    return DONE


async def _erase(args: argparse.Namespace, screen: Screen) -> int:
    asked = say(
        f"permanently erase everything that is stored about {args.user!r}? This cannot be undone",
        f"{args.user!r} について保存されたすべてのデータを完全に消去しますか? 元に戻せません",
    )
    if not args.yes and not confirm(asked, screen):
        return FAILED
    done = await erase_user(args.user, places_for(args))
    signed_in = _remove_sign_in(args)
    if args.json:
        screen.say(json.dumps({**done.as_json(), "sign_in": signed_in}, ensure_ascii=False))
    else:
        _print(args, done, signed_in, screen)
    return FAILED if done.pending else DONE


def _remove_sign_in(args: argparse.Namespace) -> bool:
    """Remove the user from the users of `kaname serve`, and end their sign-ins."""
    config, places = config_for(args), places_for(args)
    users = Users(place := (config and users_named_by(config)) or users_file(places.journal or places.server))
    if (signed_in := place.with_name("signed_in.json")).exists():
        SignIns(signed_in, users).forget(args.user)
    if known := args.user in users.all():
        users.remove(args.user)
    return known


def _print(args: argparse.Namespace, done: Erasure, signed_in: bool, screen: Screen) -> None:
    gone = done.journal
    lines = [
        (gone.runs, many(gone.runs, "run"), f"実行 {gone.runs} 件"),
        (gone.kept, f"content of {many(gone.kept, 'shared run')}", f"共有された実行 {gone.kept} 件の内容"),
        (gone.answers, many(gone.answers, "answer") + " in runs of others", f"ほかの人の実行での回答 {gone.answers} 件"),
        (gone.accounts, many(gone.accounts, "account"), f"予算の口座 {gone.accounts} 件"),
        (done.memories, many(done.memories, "memory", "memories"), f"記憶 {done.memories} 件"),
        (done.caches, many(done.caches, "cache entry", "cache entries"), f"キャッシュ {done.caches} 件"),
        (done.traces, many(done.traces, "trace line"), f"トレース {done.traces} 行"),
        (int(signed_in), "sign-in to the server", "サーバーへのサインイン"),
    ]
    listed = [say(english, japanese) for count, english, japanese in lines if count]
    nothing = say("nothing was stored", "保存されたデータはありませんでした")
    screen.say(say("erased: ", "消去しました: ") + ", ".join(listed) if listed else nothing)
    if is_server(journal_place(args)):
        screen.tell(
            "the server keeps deleted rows until it vacuums, and its backups and archives are not changed. Memories, "
            "caches and traces are files: repeat the command on every machine that has some",
            "サーバーは VACUUM まで削除した行を保持します。サーバーのバックアップとアーカイブは変更されません。"
            "記憶、キャッシュ、トレースは各マシンのファイルです。該当する各マシンでコマンドを実行してください",
        )
    for copy in gone.copies:
        screen.tell(f"searched the backup {copy}, too", f"バックアップ {copy} も処理しました")
    for path, why in done.pending:
        screen.tell(
            f"{path}: deleted text can still be in this file ({translate(why)}). Stop the programs that use it, then "
            "repeat the command",
            f"{path}: 消去したデータがまだこのファイルに残っている可能性があります ({translate(why)})。"
            "使用中のプログラムを終了し、コマンドを再実行してください",
            colour="red",
        )
