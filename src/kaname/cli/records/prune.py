"""`kaname runs prune`: delete ended runs that are older than the retention time."""

from __future__ import annotations

import argparse

from ...kernel.ports import Journal
from ...memory.retention import Keep, Pruned, prune
from ..main import DONE, FAILED
from ..messages import config_error, many, say
from ..messages.stops import status_word
from ..place import agent_name, config_for, names_program
from ..terminal.questions import confirm
from ..terminal.screen import Screen, pad
from .audit import record_deletion


async def main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    """Show which runs would be deleted, ask, and delete them."""
    found = await prune(journal, _keep(args), agent=agent_name(args), dry_run=True)
    for (agent, status), count in sorted(found.by_kind.items()):
        screen.say(f"{count:>8}  {pad(status_word(status), 11)}  {agent}")
    count = sum(found.by_kind.values())
    inner = len(found.runs) - count
    whole = say(many(count, "run"), f"{count} 件の実行") + (
        say(f" and {inner} child runs", f"と子の実行 {inner} 件") if inner else ""
    )
    if args.dry_run or not (count or args.vacuum):
        screen.note(
            say(f"{whole} would be deleted", f"{whole}が削除されます")
            if count
            else say("there are no runs to delete", "削除する実行はありません")
        )
        return DONE
    if count and not args.yes and not confirm(say(f"permanently delete {whole}?", f"{whole}を完全に削除しますか?"), screen):
        return FAILED
    await record_deletion(args, journal, "runs")
    done = await prune(journal, _keep(args), agent=agent_name(args))
    screen.tell(f"deleted {many(len(done.runs), 'run')}", f"{len(done.runs)} 件を削除しました")
    await _print_space(journal, done, args, screen)
    return DONE


def _keep(args: argparse.Namespace) -> Keep:
    """Return the retention time: `--keep`, or `keep` in the configuration. Raise `ConfigError` without both."""
    if args.keep:
        return Keep(args.keep)
    config = None if names_program(args) else config_for(args)
    if config is None or config.keep is None:
        raise config_error(
            "set how long runs are kept: --keep 90d, or keep: 90d in kaname.yaml",
            "保存期間を指定してください: --keep 90d、または kaname.yaml の keep: 90d",
        )
    return config.keep


async def _print_space(journal: Journal, done: Pruned, args: argparse.Namespace, screen: Screen) -> None:
    freed, free = done.freed, done.free
    if args.vacuum:
        more, free = await journal.tidy(whole=True)
        freed += more
    if freed > 0:
        screen.tell(f"{freed / 1e6:.1f} MB released", f"{freed / 1e6:.1f} MB を解放しました")
    if free > 1e6:
        screen.tell(
            f"{free / 1e6:.1f} MB of the file are free for new runs; --vacuum shrinks the file",
            f"ファイル内の {free / 1e6:.1f} MB は新しい実行に使われます。--vacuum で縮小できます",
        )
