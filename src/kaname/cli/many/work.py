"""`kaname workers`, `kaname queue` and `kaname schedules`: see queued work, and steer it."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import Any

from ...agent.work.overview import list_queue, list_schedules, list_workers, retry_run, steer_schedule
from ...core.errors import ConfigError
from ...stores.default import choose
from ..agent import config_for, journal_for, note_place
from ..last import take_last
from ..main import DONE
from ..messages import say, translate
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end
from .worker import agents_from

_STATES = {"waiting": "待機中", "delayed": "開始時刻待ち", "taken": "実行中", "set_aside": "除外"}


def main(given: argparse.Namespace) -> int:
    does = {"workers": _workers, "queue": _queue, "schedules": _schedules}[given.command]
    screen = Screen()
    if not getattr(given, "model", None):
        take_last(given, screen, "agent" if given.command == "schedules" else "journal")
    return run_to_the_end(lambda ending: does(given, screen))


async def _workers(given: argparse.Namespace, screen: Screen) -> int:
    journal = choose(journal_for(given))
    try:
        found = await list_workers(journal)
    finally:
        await journal.close()
    lines = []
    for one in found:
        seen = say(f"last heartbeat {_time(one['seen'])}", f"最終確認 {_time(one['seen'])}") if one["seen"] else ""
        executing = say(f"executes {one['executing']}", f"実行中 {one['executing']}")
        lines.append("  ".join(filter(None, (one["name"], executing, seen))))
    return _print(given, screen, found, lines, say("no process executes runs of this journal", "ワーカーはありません"))


async def _queue(given: argparse.Namespace, screen: Screen) -> int:
    journal = choose(journal_for(given))
    try:
        if given.action == "retry":
            await retry_run(journal, _name_from(given))
            screen.note(say(f"{given.name} is queued again", f"{given.name} を待ち行列に戻しました"))
            return DONE
        found = await list_queue(journal)
    except ConfigError:
        note_place(given, screen)
        raise
    finally:
        await journal.close()
    lines = [" · ".join([f"{say(state.replace('_', ' '), _STATES[state])} {n}" for state, n in found["counts"].items()])]
    for one in found["runs"]:
        state, when = say(one["state"].replace("_", " "), _STATES[one["state"]]), _time(one["at"]) if one["at"] else ""
        lines.append(
            "  ".join(filter(None, (one["run_id"], one["agent"], state, when, one["worker"], translate(one["reason"]))))
        )
    return _print(given, screen, found, lines if found["runs"] else [], say("the queue is empty", "待ち行列は空です"))


async def _schedules(given: argparse.Namespace, screen: Screen) -> int:
    if not (given.agent or given.model) and config_for(given) is None:
        raise ConfigError(
            say(
                "schedules belong to agents, and there is no kaname.yaml here: name a program with -a FILE.py:NAME, or a "
                "configuration with -c FILE",
                "kaname.yaml がありません。スケジュールを持つエージェントを -a FILE.py:名前 か -c FILE で指定してください",
            )
        )
    agents = agents_from(given, screen)
    try:
        if given.action != "list":
            run_id = await steer_schedule(agents, given.action, _name_from(given))
            screen.say(run_id) if run_id else screen.note(say(f"{given.name}: done", f"{given.name}: 完了しました"))
            return DONE
        found = await list_schedules(agents)
    finally:
        await agents[0].journal.close()
    lines = []
    for one in found:
        due = say("paused", "一時停止中") if one["paused"] else say("next", "次回") + f" {_time(one['next'])}"
        lines.append(f"{one['name']}  {one['agent']}  {one['when']}  {due}")
        lines += [f"  {run['run_id']}  {run['status']}" for run in one["runs"]]
    return _print(given, screen, found, lines, say("there are no schedules", "スケジュールはありません"))


def _name_from(given: argparse.Namespace) -> str:
    if not given.name:
        raise ConfigError(
            say(f"{given.command} {given.action} needs a name", f"{given.command} {given.action} には名前が必要です")
        )
    return str(given.name)


def _print(given: argparse.Namespace, screen: Screen, found: Any, lines: list[str], empty: str) -> int:
    if given.json:
        screen.say(json.dumps(found, ensure_ascii=False))
    elif not lines:
        screen.note(empty)
        note_place(given, screen)
    for line in [] if given.json else lines:
        screen.say(line)
    return DONE


def _time(moment: float | None) -> str:
    return "–" if moment is None else f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M:%S %z}"
