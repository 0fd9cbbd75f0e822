"""`kaname runs prune`: delete ended runs that are older than the retention time."""

from __future__ import annotations

import argparse

from ...core.errors import ConfigError
from ...kernel.ports import Journal
from ...memory.retention import Keep, Pruned, prune
from ..agent import agent_name, config_for
from ..main import DONE, FAILED
from ..messages import many, say
from ..messages.stops import status_word
from ..terminal.questions import confirm
from ..terminal.screen import Screen, pad
from .audit import record_deletion


async def main(journal: Journal, given: argparse.Namespace, screen: Screen) -> int:
    """Show which runs would be deleted, ask, and delete them."""
    found = await prune(journal, _keep(given), agent=agent_name(given), dry_run=True)
    for (agent, status), count in sorted(found.by_kind.items()):
        screen.say(f"{count:>8}  {pad(status_word(status), 11)}  {agent}")
    count = sum(found.by_kind.values())
    inner = len(found.runs) - count
    whole = say(many(count, "run"), f"{count} 件の実行") + (
        say(f" and {inner} child runs", f"と子の実行 {inner} 件") if inner else ""
    )
    if given.dry_run or not (count or given.vacuum):
        screen.note(
            say(f"{whole} would be deleted", f"{whole}が削除されます")
            if count
            else say("there are no runs to delete", "削除する実行はありません")
        )
        return DONE
    if count and not given.yes and not confirm(say(f"permanently delete {whole}?", f"{whole}を完全に削除しますか?"), screen):
        return FAILED
    await record_deletion(given, journal, "runs")
    done = await prune(journal, _keep(given), agent=agent_name(given))
    screen.note(say(f"deleted {many(len(done.runs), 'run')}", f"{len(done.runs)} 件を削除しました"))
    await _print_space(journal, done, given, screen)
    return DONE


def _keep(given: argparse.Namespace) -> Keep:
    """Return the retention time: `--keep`, or `keep` in the configuration. Raise `ConfigError` without both."""
    if given.keep:
        return Keep(given.keep)
    config = None if ":" in (given.agent or "") else config_for(given)
    if config is None or config.keep is None:
        raise ConfigError(
            say(
                "set how long runs are kept: --keep 90d, or keep: 90d in kaname.yaml",
                "保存期間を指定してください: --keep 90d、または kaname.yaml の keep: 90d",
            )
        )
    return config.keep


async def _print_space(journal: Journal, done: Pruned, given: argparse.Namespace, screen: Screen) -> None:
    freed, free = done.freed, done.free
    if given.vacuum:
        more, free = await journal.tidy(whole=True)
        freed += more
    if freed > 0:
        screen.note(say(f"{freed / 1e6:.1f} MB released", f"{freed / 1e6:.1f} MB を解放しました"))
    if free > 1e6:
        screen.note(
            say(
                f"{free / 1e6:.1f} MB of the file are free for new runs; --vacuum shrinks the file",
                f"ファイル内の {free / 1e6:.1f} MB は新しい実行に使われます。--vacuum で縮小できます",
            )
        )
