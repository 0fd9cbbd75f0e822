"""`kaname runs`: list runs, and find the one that is meant. What is done with one run is in `one_run.py`."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...core.errors import RunNotFound
from ...core.events import Opened
from ...core.install import this_command
from ...core.runs import RunInfo, is_own_run
from ...kernel.load import read_run
from ...kernel.ports import Journal
from ..main import DONE
from ..messages import config_error, say
from ..messages.stops import status_word
from ..place import is_resumable, names_program, place_options
from ..terminal.screen import Screen, columns, pad, width
from .reading import on_journal, print_page, short_time

_TASK = 20  # columns that the list of runs keeps for the task


def main(args: argparse.Namespace) -> int:
    take = "" if args.action == "prune" else "journal"  # it deletes many runs: its journal is never guessed
    return on_journal(args, _main, take=take, missing=("runs", "記録"))


async def _main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    if args.action == "list":
        return await _list(journal, args, screen)
    home = "prune" if args.action == "prune" else "one_run"  # a list starts quickly: it needs nothing that executes runs
    code: int = await import_module(f".{home}", __package__).main(journal, args, screen)
    return code


async def _list(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    before = (await find(journal, args.before, "list --before")).place if args.before else 0
    found = await journal.runs(before=before, limit=args.number + 1)

    def to_json(one: RunInfo) -> dict[str, Any]:
        return {name: getattr(one, name) for name in one.__match_args__}

    def table(runs: Sequence[RunInfo]) -> str:
        ids = _print_table(runs, screen)
        return f"runs --before {ids[runs[-1].run_id]}"

    shown = print_page(args, screen, found, to_json, table, say("no runs yet", "まだ記録がありません"))
    if not args.json:
        await print_resume_command(journal, shown, args, screen)
    return DONE


def _print_table(runs: Sequence[RunInfo], screen: Screen) -> dict[str, str]:
    """Print one line a run, and return the ids as they are shown."""
    wide = columns() >= 70
    begin = Counter([one.run_id[:12] for one in runs])  # the runs of an evaluation have long ids that begin alike
    ids = {one.run_id: one.run_id[:12] if begin[one.run_id[:12]] == 1 or one.parent else one.run_id for one in runs}
    room_for_ids = columns() - (46 if wide else 27) - _TASK - 1
    column = max([12, *[len(one) for one in ids.values() if len(one) <= room_for_ids]])
    head = f"{pad(say('run', '実行'), column)}  {pad(say('started', '開始'), 11)}  {pad(say('status', '状態'), 11)} "
    figures = [say("tokens", "トークン"), say("cost", "費用")]
    head += "{} {}  ".format(*[" " * (8 - width(one)) + one for one in figures]) if wide else ""
    screen.note(head + say("task", "内容"))
    for one in runs:
        shown = f"└ {one.agent}" if one.parent else ids[one.run_id]
        if not one.parent and width(shown) > column:  # on a line of its own: it can be copied, and the task still has room
            screen.say(shown)
            shown = ""
        screen.say(_row(one, pad(shown, column), wide=wide))
    return ids


def _row(one: RunInfo, name: str, *, wide: bool) -> str:
    """Return the line of a run. `wide`: with its tokens and its cost."""
    money = "?" if one.cost is None else f"${one.cost:.4f}"
    left = f"{name}  {short_time(one.created)}  {pad(status_word(one.status), 11)} "
    left += f"{one.input + one.output:>8} {money:>8}  " if wide else ""
    room = columns() - width(left) - 1
    return left + (pad(one.title or _fork_of(one), room).rstrip() if room > 8 else "")


async def _agent_option(journal: Journal, run: RunInfo, args: argparse.Namespace) -> str:
    """Return the option that names the agent of a run, unless `place_options` does or the run can be resumed without."""
    if args.agent:
        return "" if names_program(args) else f" -a {shlex.quote(args.agent)}"
    first = (await read_run(journal, run.run_id, 1))[0].body
    return "" if isinstance(first, Opened) and is_resumable(first.recipe) else " -a FILE.py:AGENT"


async def print_resume_command(journal: Journal, runs: Sequence[RunInfo], args: argparse.Namespace, screen: Screen) -> None:
    """Print the resume command of the first interrupted or waiting run."""
    still = next((one for one in runs if one.status == "interrupted" or (one.status == "waiting" and one.questions)), None)
    if still is None:
        return
    waiting = still.status == "waiting"
    still = await top_run(journal, still)  # a run inside another is resumed with that one
    answer = " --answer …" if waiting else ""
    whose = await _agent_option(journal, still, args)
    command = f"{this_command()} runs resume {still.run_id}{answer}{whose}{place_options(args)}"
    waits = say("waiting for an answer", "回答待ち") if waiting else say("interrupted", "中断 (再開できます)")
    screen.note(f"{waits}; {say('to continue', '続けるには')}: {command}")
    if waiting and len([one for one in runs if one.status == "waiting" and not one.parent]) > 1:
        screen.tell(
            "--equal also answers equal questions of other runs", "--equal を付けると、ほかの実行の同じ確認にも回答します"
        )


async def find(journal: Journal, wanted: str | None, action: str) -> RunInfo:
    """Return a run by its id, by an unambiguous beginning of it, or by "last"."""
    if not wanted:
        raise config_error(
            f"name a run, for example: kaname runs {action} last", f"実行を指定してください。例: kaname runs {action} last"
        )
    exact = await journal.runs(run_id=wanted)
    if exact:
        return exact[0]
    if wanted == "last" and (recent := await journal.runs(limit=1000)):
        return next((one for one in recent if is_own_run(one)), recent[0])
    like = await journal.runs(starting=wanted, limit=1000)
    whole = [one for one in like if "/" not in one.run_id]  # without the runs inside it
    like = whole if len(whole) == 1 else like
    if len(like) > 1:
        names = ", ".join([one.run_id for one in like[:5]])
        raise config_error(f"{wanted!r} matches several runs: {names}", f"{wanted!r} に該当する実行が複数あります: {names}")
    if like:
        return like[0]
    raise RunNotFound(wanted)


async def top_run(journal: Journal, card: RunInfo) -> RunInfo:
    """Return the run in which a child run is answered: the one above all."""
    while card.parent and (above := await journal.runs(run_id=card.parent, limit=1)):
        card = above[0]
    return card


def _fork_of(run: RunInfo) -> str:
    return say(f"continues {run.base[:12]}", f"{run.base[:12]} の続き") if run.base else ""
