"""`kaname stats`: figures of the recorded runs."""

from __future__ import annotations

import argparse
import json

from ...api.figures import Figures, figures
from ...journals.default import choose
from ..agent import journal_for
from ..main import DONE
from ..messages import say
from ..terminal.screen import Screen
from ..terminal.signals import to_the_end


def main(given: argparse.Namespace) -> int:
    return to_the_end(lambda ending: _main(given, Screen()))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    journal = choose(journal_for(given))
    try:
        made = await figures(journal, agent=given.agent or "", limit=given.number)
    finally:
        await journal.close()
    if given.json:
        screen.say(json.dumps(made.as_json(), ensure_ascii=False))
    else:
        for name, value in _lines(made):
            screen.say(f"{name}: {value}")
    return DONE


def _lines(made: Figures) -> list[tuple[str, str]]:
    kinds = ", ".join([f"{kind} {count}" for kind, count in made.by_status.most_common()])
    cost = say("unknown", "不明") if made.usage.cost is None else f"${made.usage.cost:.4f}"
    return [
        (say("runs", "実行"), f"{made.runs} ({kinds})" if kinds else "0"),
        (say("completed", "完了率"), _part(made.completion_rate)),
        (say("model calls", "モデル呼び出し"), f"{made.model_calls}; {made.usage.total} {say('tokens', 'トークン')}, {cost}"),
        (say("tool calls", "ツール呼び出し"), f"{made.tool_calls}; {say('failed', '失敗')} {_part(made.error_rate)}"),
        (say("timeouts", "時間切れ"), f"{made.timeouts}"),
        (say("questions", "質問"), f"{made.questions}"),
        (say("planned", "計画した実行"), f"{made.planned}; {say('revisions', '修正')} {made.revisions}"),
        (say("rated good", "良い評価"), f"{_part(made.satisfaction)} ({made.good + made.bad})"),
        (say("seconds", "秒"), f"{made.seconds:.1f}"),
    ]


def _part(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
