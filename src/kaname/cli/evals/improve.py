"""`kaname improve`: search for better texts of an agent, show the difference, and write it to the file if a person agrees."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

from ...core.durations import dollars
from ...core.errors import ConfigError
from ...evals.evaluation import Evaluation
from ...evals.improvement.rewrite import rewrite
from ...evals.improvement.search import Improvement, improve
from ...evals.improvement.texts import PARTS
from ...evals.results.comparison import what_it_can_show
from ...evals.subject import Subject
from ...journals.default import choose
from ..agent import config_for
from ..main import DONE, FAILED
from ..messages import say, translate
from ..terminal.questions import ask_yes_no, can_ask
from ..terminal.screen import Screen, columns, truncate
from ..terminal.signals import run_to_the_end
from .command import load_file, subject_for
from .tables import comparison_lines


def main(given: argparse.Namespace) -> int:
    evaluation, place = load_file(given.eval)
    given.agent, given.tool, given.instructions = given.who or None, [], ""
    return run_to_the_end(lambda ending: _improve(given, Screen(), evaluation, place.parent))


async def _improve(given: argparse.Namespace, screen: Screen, evaluation: Evaluation, folder: Path) -> int:
    subject, agent = subject_for(given, screen, evaluation, folder)
    place = given.who or evaluation.agent

    def show(attempts: int, most: int, tried: int, best: float) -> None:
        told = say(f"{attempts} of {most} attempts, {tried} versions, best {best:.0%}",
                   f"試行 {attempts}/{most}、{tried} 個の案、最高 {best:.0%}")  # fmt: skip
        if not given.quiet:
            screen.replace(truncate(told, columns() - 1))

    if not given.quiet:
        screen.note(translate(what_it_can_show(len(evaluation.cases) - len(evaluation.cases) // 2, evaluation.repeat)))
    journal = choose(given.journal) if given.journal else None
    limits: dict[str, Any] = {"calls": given.calls or 0, "cost": None if given.cost is None else dollars(given.cost)}
    try:
        made = await improve(subject, evaluation, model=given.proposer, parts=given.part or PARTS, journal=journal,
                             progress=show, at_once=given.at_once, judge=given.judge, **limits)  # fmt: skip
    finally:
        screen.replace("")
        if agent is not None:
            await agent.close()
    if given.json:
        screen.say(json.dumps(_as_json(made), ensure_ascii=False))
    else:
        for line, colour in _lines(made):
            screen.raw(screen.with_colour(screen.safe(line), colour, screen.out) + "\n")
    return await _accept(given, screen, made, subject, evaluation, _files(given, place, folder)) if made.helps else FAILED


async def _accept(
    given: argparse.Namespace, screen: Screen, made: Improvement, agent: Any, evaluation: Evaluation, files: list[Path]
) -> int:
    """Write the texts, if the person says yes or has said so before."""
    subject = Subject.of(agent, None, evaluation.files)
    try:
        contents = rewrite(subject.agent, files, made.after)
    except ConfigError as problem:
        screen.note(translate(problem), "yellow")
        return DONE
    finally:
        await subject.close()
    names = ", ".join([str(path) for path in contents])
    asked = say(f"Write this to {names}?", f"{names} に書き込みますか?")
    if not given.accept and not (can_ask() and not given.json and ask_yes_no(asked, screen, by_default=False)):
        screen.note(say("nothing was written; --accept writes it", "書き込んでいません。--accept を付けると書き込みます"))
        return DONE
    for path, text in contents.items():
        path.write_text(text, encoding="utf-8")
    screen.note(say(f"written: {names}", f"書き込みました: {names}"), "green")
    return DONE


def _files(given: argparse.Namespace, place: str, folder: Path) -> list[Path]:
    """Return the files in which the texts of the agent can be."""
    program, colon, _ = (place or "").rpartition(":")
    if colon:
        here = Path(program).expanduser()
        return [(here if given.who or here.is_absolute() else folder / here).resolve()] if program.endswith(".py") else []
    config = config_for(given)
    return [] if config is None else [Path(file) for file in config.files]


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
        if not made.helps:
            yield say("not shown to help: nothing is written", "効果は確認できませんでした。書き込みません"), "yellow"
    money = say("unknown", "不明") if made.cost is None else f"${made.cost:.4f}"
    yield (
        say(f"{made.attempts} attempts, {made.proposals} proposals, cost {money}",
            f"試行 {made.attempts} 回、提案 {made.proposals} 回、費用 {money}"),
        "dim",
    )  # fmt: skip


def _as_json(made: Improvement) -> dict[str, Any]:
    told = {name: getattr(made, name) for name in ("helps", "before", "after", "searched", "attempts", "proposals", "cost")}
    return {**told, "comparison": None if made.comparison is None else made.comparison.to_json()}
