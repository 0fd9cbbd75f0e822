"""`kaname stats`: metrics of the recorded runs."""

from __future__ import annotations

import argparse
import json
from collections import Counter

from ...kernel.ports import Journal
from ...run.figures import Figures, figures, sum_tallies
from ..main import DONE
from ..messages import say
from ..messages.stops import status_word
from ..place import agent_name, note_place
from ..terminal.screen import Screen
from .reading import on_journal


def main(args: argparse.Namespace) -> int:
    return on_journal(args, _main)


async def _main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    made = await figures(journal, agent=agent_name(args) or "", limit=args.number)
    if args.json:
        screen.say(json.dumps(made.as_json(), ensure_ascii=False))
    else:
        for name, value in _lines(made):
            screen.say(f"{name}: {value}")
        if not made.recorded:
            note_place(args, screen)
    return DONE


def _lines(made: Figures) -> list[tuple[str, str]]:
    every = sum_tallies(made.recorded)
    counted = _count_text(every["runs"], Counter(every["by_status"]))
    return [
        (say("all runs", "全実行"), f"{counted}; {_spent(every['tokens'], every['cost'])}"),
        (say("of these, read in full", "うち詳細まで集計した実行"), _count_text(made.runs, made.by_status)),
        (say("completed", "完了率"), _part(made.completion_rate)),
        (say("model calls", "モデル呼び出し"), f"{made.model_calls}; {_spent(made.usage.total, made.usage.cost)}"),
        (say("tool calls", "ツール呼び出し"), f"{made.tool_calls}; {say('failed', '失敗')} {_part(made.error_rate)}"),
        (say("timeouts", "時間切れ"), f"{made.timeouts}"),
        (say("questions", "確認"), f"{made.questions}"),
        (say("planned", "計画した実行"), f"{made.planned}; {say('revisions', '修正')} {made.revisions}"),
        (say("rated good", "良い評価"), f"{_part(made.satisfaction)} ({made.good + made.bad})"),
        (say("seconds", "所要時間 (秒)"), f"{made.seconds:.1f}"),
    ]


def _count_text(runs: int, by_status: Counter[str]) -> str:
    kinds = ", ".join([f"{status_word(kind)} {count}" for kind, count in by_status.most_common()])
    return f"{runs} ({kinds})" if kinds else "0"


def _spent(tokens: int, cost: float | None) -> str:
    return f"{tokens} {say('tokens', 'トークン')}, {say('cost unknown', '費用は不明') if cost is None else f'${cost:.4f}'}"


def _part(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
