"""`kaname learn`: show failures by cause, patterns of success and lessons; try, approve and roll back lessons."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from ...core.install import this_command
from ...evals.trial import ask_model, try_lesson
from ...kernel.ports import Journal
from ...memory.lessons.book import Lesson, LessonBook
from ...memory.lessons.history import PastRun, read_history
from ...memory.lessons.patterns import find_patterns, group_failures
from ...memory.lessons.propose import learn_lessons
from ..main import DONE
from ..messages import config_error, many, say, translate
from ..place import agent_name, note_place
from ..records.reading import on_journal
from ..terminal.screen import Screen
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


def main(args: argparse.Namespace) -> int:
    return on_journal(args, _main)


async def _main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    if args.action in ("try", "approve", "rollback"):
        return await _change(args, journal, screen)
    agent = agent_name(args)
    runs = await read_history(journal, agent=agent, limit=args.number)
    ask = ask_model(args.ask, journal) if args.ask else None
    for name in dict.fromkeys([one.agent for one in runs]) if args.action in ("", "lessons") else ():
        await learn_lessons(journal, name, limit=args.number, ask=ask)
    lessons = await LessonBook(journal).all(agent)
    if args.json:
        listed = {"failures": group_failures(runs), "patterns": find_patterns(runs), "lessons": lessons}
        data = {"runs": len(runs)} | {name: [one.to_json() for one in every] for name, every in listed.items()}  # type: ignore[attr-defined]
        screen.say(json.dumps({args.action: data[args.action]} if args.action else data, ensure_ascii=False))
        return DONE
    parts = {"failures": _failures(runs), "patterns": _patterns(runs), "lessons": _lessons(lessons)}
    for name in [args.action] if args.action else parts:
        for line in parts[name]:
            screen.say(line)
    if not runs and not lessons:
        note_place(args, screen)
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
    parts = [whose, many(len(one.evidence), "run") if say("e", "") else f"根拠 {len(one.evidence)} 件", " / ".join(one.when)]
    if one.trial:
        decision, helps, holds = str(one.trial["decision"]), one.trial["helps"], one.trial["holds"]
        worst = f"{holds.get('least', -1.0) * 100:+.0f}"
        least = say(f", at worst {worst}", f"、最悪でも {worst}") if "least" in holds and holds["cases"] else ""
        points = f"{helps['difference'] * 100:+.0f} {say('points in', 'ポイント、')}"
        parts.append(f"{say(decision, _DECISIONS[decision])} ({points} "
                    f"{many(helps['cases'], 'case') if say('e', '') else str(helps['cases']) + ' 件'}, p = {helps['p']:.2g}; "
                    f"{say('others', 'ほか')} {holds['difference'] * 100:+.0f}{least})")  # fmt: skip
    yield "        " + " · ".join([part for part in (*parts, translate(one.why)) if part])


async def _change(args: argparse.Namespace, journal: Journal, screen: Screen) -> int:
    book = LessonBook(journal)
    if not args.what:
        command = f"{this_command()} learn {args.action}"
        raise config_error(f"{command}: name a lesson by its id", f"{command}: 教訓の ID を指定してください")
    for lesson_id in args.what:
        if args.action == "approve":
            made = await book.approve(lesson_id, share=args.share, untested=args.untested)
        elif args.action == "rollback":
            made = await book.drop(lesson_id)
        else:
            evaluation, place = load_file(args.eval)
            lesson = await book.find(lesson_id)
            subject, agent = subject_for(args, screen, evaluation, place.parent)
            shown = AttemptBar(screen, quiet=args.json)
            try:
                options = {"repeat": args.repeat, "judge": args.judge, "helps": args.helps, "progress": shown.take}
                made = await try_lesson(lesson, subject, evaluation, journal=journal, **options)
            finally:
                shown.end()
                if agent is not None:
                    await agent.close()
        for line in [json.dumps(made.to_json(), ensure_ascii=False)] if args.json else lesson_lines(made):
            screen.say(line)
    return DONE
