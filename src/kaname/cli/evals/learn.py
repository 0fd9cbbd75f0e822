"""`kaname learn`: show failures by cause, patterns of success and lessons; try, approve and roll back lessons."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from ...core.errors import ConfigError
from ...core.install import this_command
from ...evals.trial import ask_model, try_lesson
from ...kernel.ports import Journal
from ...memory.lessons.book import Lesson, LessonBook
from ...memory.lessons.history import PastRun, read_history
from ...memory.lessons.patterns import find_patterns, group_failures
from ...memory.lessons.propose import learn_lessons
from ...stores.default import choose
from ..agent import agent_name, journal_place, note_place
from ..last import take_last
from ..main import DONE
from ..messages import many, say, translate
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end
from .command import AttemptBar, load_file, subject_for

_CAUSES = dict(
    zip(
        ("tool error", "wrong arguments", "loop", "limit", "refused", "bad form", "user unhappy", "error"),
        ("ツールのエラー", "引数の誤り", "繰り返し", "上限", "拒否", "形式の誤り", "ユーザーの不満", "その他のエラー"),
        strict=True,
    )
)
_STATUS = {"suggested": "提案", "approved": "承認済み", "dropped": "取り下げ"}
_DECISIONS = {"helps": "効果あり", "harms": "悪化", "not shown": "差は示されず", "too few": "ケース不足"}


def main(given: argparse.Namespace) -> int:
    return run_to_the_end(lambda ending: _main(given, Screen()))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    take_last(given, screen)
    journal = choose(journal_place(given))
    try:
        if given.action in ("try", "approve", "rollback"):
            return await _change(given, journal, screen)
        agent = agent_name(given)
        runs = await read_history(journal, agent=agent, limit=given.number)
        ask = ask_model(given.ask, journal) if given.ask else None
        for name in dict.fromkeys([one.agent for one in runs]) if given.action in ("", "lessons") else ():
            await learn_lessons(journal, name, limit=given.number, ask=ask)
        lessons = await LessonBook(journal).all(agent)
    finally:
        await journal.close()
    if given.json:
        told: dict[str, Any] = {"runs": len(runs), "failures": [one.to_json() for one in group_failures(runs)]}
        told |= {"patterns": [one.to_json() for one in find_patterns(runs)], "lessons": [one.to_json() for one in lessons]}
        screen.say(json.dumps({given.action: told[given.action]} if given.action else told, ensure_ascii=False))
        return DONE
    parts = {"failures": _failures(runs), "patterns": _patterns(runs), "lessons": _lessons(lessons)}
    for name in [given.action] if given.action else parts:
        for line in parts[name]:
            screen.say(line)
    if not runs and not lessons:
        note_place(given, screen)
    return DONE


def _failures(runs: list[PastRun]) -> Iterator[str]:
    groups, failed = group_failures(runs), len([one for one in runs if one.cause])
    yield say(f"Failures: {failed} of {many(len(runs), 'run')}", f"失敗: {len(runs)} 件中 {failed} 件")
    for group in groups:
        about = " ".join([part for part in (group.tool, f"({group.user})" if group.user else "") if part])
        yield f"{len(group.runs):>5}  {say(group.cause, _CAUSES[group.cause])}  {about}".rstrip()
        for one in group.runs[::-1][:3]:
            note = f"  ← {one.note[:60]}" if one.note else ""
            yield f"       {one.run_id[:12]}  {one.task[:60]}{note}"


def _patterns(runs: list[PastRun]) -> Iterator[str]:
    found = find_patterns(runs)
    yield say("What went well", "うまくいった方法") + ("" if found else say(": nothing yet", ": まだありません"))
    for one in found:
        tools = " → ".join(one.tools) or say("no tools", "ツールなし")
        yield f"{f'{one.good}/{one.runs}':>7}  {tools}  {say('for', '例:')} {one.kind[:60]}"


def _lessons(lessons: list[Lesson]) -> Iterator[str]:
    yield say("Lessons", "教訓") + ("" if lessons else say(": none yet", ": まだありません"))
    for one in lessons:
        yield from lesson_lines(one)


def lesson_lines(one: Lesson) -> Iterator[str]:
    """Yield a lesson for the terminal, with the reasons for it."""
    whose = say("for all users", "全ユーザー") if one.shared else one.user
    yield f"{one.id}  {say(one.status, _STATUS[one.status])}  {translate(one.advice)}"
    told = [whose, many(len(one.evidence), "run") if say("e", "") else f"根拠 {len(one.evidence)} 件", " / ".join(one.when)]
    if one.trial:
        decision, helps, holds = str(one.trial["decision"]), one.trial["helps"], one.trial["holds"]
        worst = f"{holds.get('least', -1.0) * 100:+.0f}"
        least = say(f", at worst {worst}", f"、最悪でも {worst}") if "least" in holds and holds["cases"] else ""
        told.append(f"{say(decision, _DECISIONS[decision])} ({helps['difference'] * 100:+.0f} {say('points in', 'ポイント、')} "
                    f"{many(helps['cases'], 'case') if say('e', '') else str(helps['cases']) + ' 件'}, p = {helps['p']:.2g}; "
                    f"{say('others', 'ほか')} {holds['difference'] * 100:+.0f}{least})")  # fmt: skip
    yield "        " + " · ".join([part for part in (*told, translate(one.why)) if part])


async def _change(given: argparse.Namespace, journal: Journal, screen: Screen) -> int:
    book = LessonBook(journal)
    if not given.what:
        command = f"{this_command()} learn {given.action}"
        raise ConfigError(say(f"{command}: name a lesson by its id", f"{command}: 教訓の ID を指定してください"))
    for lesson_id in given.what:
        if given.action == "approve":
            made = await book.approve(lesson_id, share=given.share, untested=given.untested)
        elif given.action == "rollback":
            made = await book.drop(lesson_id)
        else:
            evaluation, place = load_file(given.eval)
            lesson = await book.find(lesson_id)
            subject, agent = subject_for(given, screen, evaluation, place.parent)
            shown = AttemptBar(screen, quiet=given.json)
            try:
                options = {"repeat": given.repeat, "judge": given.judge, "helps": given.helps, "progress": shown.take}
                made = await try_lesson(lesson, subject, evaluation, journal=journal, **options)
            finally:
                shown.end()
                if agent is not None:
                    await agent.close()
        for line in [json.dumps(made.to_json(), ensure_ascii=False)] if given.json else lesson_lines(made):
            screen.say(line)
    return DONE
