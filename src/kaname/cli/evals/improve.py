"""`kaname improve`: search for better texts of an agent, and show the difference. No file is changed."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

from ...core.durations import dollars
from ...evals.evaluation import Evaluation
from ...evals.improvement.search import Improvement, improve
from ...evals.improvement.texts import PARTS
from ...evals.results.comparison import what_it_can_show
from ...stores.default import choose
from ..main import DONE, FAILED
from ..messages import many, say, translate
from ..terminal.screen import Screen, columns, truncate
from ..terminal.signals import run_to_the_end
from .command import load_file, subject_for
from .tables import comparison_lines


def main(args: argparse.Namespace) -> int:
    evaluation, place = load_file(args.eval)
    args.agent, args.tool, args.instructions = args.who or None, [], ""
    return run_to_the_end(lambda ending: _improve(args, Screen(), evaluation, place.parent))


async def _improve(args: argparse.Namespace, screen: Screen, evaluation: Evaluation, folder: Path) -> int:
    subject, agent = subject_for(args, screen, evaluation, folder)

    def show(attempts: int, most: int, tried: int, best: float) -> None:
        if attempts == 1:  # made first, because there is a limit on cost
            screen.tell(
                f"up to {most} attempts for {args.cost}, at the price of the first one",
                f"最初の試行の費用では、{args.cost} で最大 {most} 回の試行ができます",
            )
        progress = f"{attempts} of {most} attempts, {tried} versions, best {best:.0%}"
        progress = say(progress, f"試行 {attempts}/{most}、{tried} 個の案、最高 {best:.0%}")
        screen.replace(truncate(progress, columns() - 1))

    options: dict[str, Any] = {"model": args.proposer, "parts": args.part or PARTS, "calls": args.calls or 0}
    options |= {"cost": None if args.cost is None else dollars(args.cost), "progress": None if args.quiet else show}
    options |= {"journal": choose(args.journal) if args.journal else None, "at_once": args.at_once, "judge": args.judge}
    if not args.quiet:
        screen.note(say("held-out cases: ", "判定用のケース: ") + translate(what_it_can_show((len(evaluation.cases) + 1) // 2)))
    try:
        made = await improve(subject, evaluation, **options)
    except asyncio.CancelledError:
        screen.tell("interrupted; the same command again continues", "中断しました。同じコマンドで続きから再開します")
        raise
    finally:
        screen.replace("")
        if agent is not None:
            await agent.close()
    if args.json:
        screen.say(json.dumps(made.to_json(), ensure_ascii=False))
    else:
        for line, colour in _lines(made):
            screen.say_in(colour, line)
    return DONE if made.helps else FAILED


def _lines(made: Improvement) -> Iterator[tuple[str, str]]:
    before, best = made.searched
    for name in made.before:
        old, new = made.before[name].splitlines(), made.after[name].splitlines()
        for line in unified_diff(old, new, name, name, lineterm="", n=1):
            yield line, {"+": "green", "-": "red"}.get(line[0], "dim")
    yield "", ""
    yield say(f"search cases: {before:.0%} → {best:.0%}", f"探索用のケース: {before:.0%} → {best:.0%}"), ""
    if made.comparison is None:
        yield say("no better version was found", "よりよい案は見つかりませんでした"), "yellow"
    else:
        yield say("held-out cases:", "判定用のケース:"), ""
        yield from list(comparison_lines(made.comparison))[1:]
        if made.helps:
            yield (
                say(
                    "shown to help: put the new texts into your files",
                    "効果を確認できました。新しい文をファイルに反映してください",
                ),
                "green",
            )
        else:
            yield (
                say("not shown to help: keep the current texts", "効果は確認できませんでした。現在の文を使い続けてください"),
                "yellow",
            )
    money = say("unknown", "不明") if made.cost is None else f"${made.cost:.4f}"
    yield (
        say(f"{many(made.attempts, 'attempt')}, {many(made.proposals, 'proposal')}, cost {money}",
            f"試行 {made.attempts} 回、提案 {made.proposals} 回、費用 {money}"),
        "dim",
    )  # fmt: skip
