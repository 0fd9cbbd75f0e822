"""`kaname workers`, `kaname queue` and `kaname schedules`: see queued work, and steer it."""

from __future__ import annotations

import argparse
from datetime import datetime

from ...agent.work.overview import list_queue, list_schedules, list_workers, retry_run, steer_schedule
from ...core.errors import ConfigError
from ...kernel.ports import Journal
from ..last import take_last
from ..main import DONE
from ..messages import config_error, say, translate
from ..place import config_for, note_place
from ..records.reading import on_journal, print_list
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end
from .worker import agents_from

_STATES = {"waiting": "待機中", "delayed": "開始時刻待ち", "taken": "実行中", "set_aside": "除外"}


def main(args: argparse.Namespace) -> int:
    if args.command != "schedules":
        return on_journal(args, {"workers": _workers, "queue": _queue}[args.command])
    screen = Screen()
    if not args.model:
        take_last(args, screen, "agent")
    return run_to_the_end(lambda ending: _schedules(args, screen))


async def _workers(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    found = await list_workers(journal)
    lines = []
    for one in found:
        seen = say(f"last heartbeat {_time(one['seen'])}", f"最終確認 {_time(one['seen'])}") if one["seen"] else ""
        executing = say(f"executes {one['executing']}", f"実行中 {one['executing']}")
        lines.append("  ".join(filter(None, (one["name"], executing, seen))))
    return print_list(args, screen, found, lines, say("no process executes runs of this journal", "ワーカーはありません"))


async def _queue(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    if args.action == "retry":
        try:
            await retry_run(journal, _name_from(args))
        except ConfigError:
            note_place(args, screen)
            raise
        screen.tell(f"{args.name} is queued again", f"{args.name} を待ち行列に戻しました")
        return DONE
    found = await list_queue(journal)
    lines = [" · ".join([f"{say(state.replace('_', ' '), _STATES[state])} {n}" for state, n in found["counts"].items()])]
    for one in found["runs"]:
        state, when = say(one["state"].replace("_", " "), _STATES[one["state"]]), _time(one["at"]) if one["at"] else ""
        lines.append(
            "  ".join(filter(None, (one["run_id"], one["agent"], state, when, one["worker"], translate(one["reason"]))))
        )
    return print_list(args, screen, found, lines if found["runs"] else [], say("the queue is empty", "待ち行列は空です"))


async def _schedules(args: argparse.Namespace, screen: Screen) -> int:
    if not (args.agent or args.model) and config_for(args) is None:
        raise config_error(
            "schedules belong to agents, and there is no kaname.yaml here: name a program with -a FILE.py:NAME, or a "
            "configuration with -c FILE",
            "kaname.yaml がありません。スケジュールを持つエージェントを -a FILE.py:名前 か -c FILE で指定してください",
        )
    agents = agents_from(args, screen)
    try:
        if args.action != "list":
            run_id = await steer_schedule(agents, args.action, _name_from(args))
            screen.say(run_id) if run_id else screen.tell(f"{args.name}: done", f"{args.name}: 完了しました")
            return DONE
        found = await list_schedules(agents)
    finally:
        await agents[0].journal.close()
    lines = []
    for one in found:
        due = say("paused", "一時停止中") if one["paused"] else say("next", "次回") + f" {_time(one['next'])}"
        lines.append(f"{one['name']}  {one['agent']}  {one['when']}  {due}")
        lines += [f"  {run['run_id']}  {run['status']}" for run in one["runs"]]
    return print_list(args, screen, found, lines, say("there are no schedules", "スケジュールはありません"))


def _name_from(args: argparse.Namespace) -> str:
    if not args.name:
        raise config_error(f"{args.command} {args.action} needs a name", f"{args.command} {args.action} には名前が必要です")
    return str(args.name)


def _time(moment: float | None) -> str:
    return "–" if moment is None else f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M:%S %z}"
