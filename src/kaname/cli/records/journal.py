"""`kaname journal copy`: copy a journal, such as from a file to a database, and verify the copy."""

from __future__ import annotations

import argparse
import os

from ...stores.default import choose
from ...stores.places import is_file, shown_place
from ...stores.transfer import copy_journal
from ..main import DONE
from ..messages import config_error, many, say
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end


def main(args: argparse.Namespace) -> int:
    if is_file(args.source) and not os.path.exists(os.path.expanduser(args.source)):
        raise config_error(f"there is no journal {args.source}", f"ジャーナル {args.source} がありません")
    return run_to_the_end(lambda ending: _copy(args, Screen()))


async def _copy(args: argparse.Namespace, screen: Screen) -> int:
    source, target = choose(args.source), choose(args.target)
    if source is target:
        raise config_error("the two journals are the same", "同じジャーナルです")
    told = 0

    def progress(facts: int) -> None:
        nonlocal told
        if facts - told >= 10_000:
            told = facts
            screen.tell(f"{facts} facts", f"{facts} 件の記録")

    try:
        done = await copy_journal(source, target, progress)
    finally:
        await source.close()
        await target.close()
    where, total = shown_place(args.target), f"{done.checksum:08x}"
    screen.say(
        say(
            f"copied {many(done.runs, 'run')}, {many(done.facts, 'fact')} to {where}; checksum {total}, the same in both",
            f"{where} に {done.runs} 件の実行、{done.facts} 件の記録をコピーしました。チェックサム {total} (一致)",
        )
    )
    if done.queued:
        screen.tell(
            f"{many(done.queued, 'queued run')} not copied: let workers finish the queue of the source, then copy again",
            f"待ち行列の {done.queued} 件はコピーしていません。ワーカーで処理してから、もう一度コピーしてください",
        )
    return DONE
