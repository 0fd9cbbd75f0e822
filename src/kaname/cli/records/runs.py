"""`kaname runs`: list runs, show one, follow it, and continue it."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext
from typing import Any

from ...core.errors import RunNotFound
from ...core.events import Asked, Opened
from ...core.install import this_command
from ...core.people.visible import call_line
from ...core.runs import RunInfo, is_own_run
from ...core.state import State
from ...core.values import plain_text
from ...kernel.load import load, read_run
from ...kernel.ports import Journal
from ...models.http.keys import keys_at_first_call
from ...people.answers import questions_of_tasks
from ...run.attach import follow_chunks, queued_card, stop_run
from ...run.figures import rate
from ...serve.questions import same_question
from ..agent import agent_from, is_resumable, place_options, restore_options
from ..main import DONE, FAILED, INTERRUPTED, USAGE, WAITING
from ..messages import config_error, say, translate
from ..messages.stops import status_word
from ..run import follow
from ..terminal.chunks import Show
from ..terminal.questions import parse_answers
from ..terminal.screen import Screen, columns, pad, width
from .audit import record_deletion
from .prune import main as prune
from .reading import on_journal, print_page, short_time
from .transcript import print_run, stories

_TASK = 20  # columns that the list of runs keeps for the task
_WAITING = 10_000  # waiting runs in which equal questions are looked for


def main(args: argparse.Namespace) -> int:
    take = "" if args.action == "prune" else "journal"  # it deletes many runs: its journal is never guessed
    return on_journal(args, _main, take=take, missing=("runs", "記録"))


async def _main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    if args.action == "list":
        return await _list(journal, args, screen)
    if args.action == "prune":
        return await prune(journal, args, screen)
    run = await find(journal, args.run, args.action)
    if args.action == "show":
        await print_run(journal, run, screen, as_json=args.json)
        await _print_resume_command(journal, [run], args, screen)
        return DONE
    if args.action == "diff":
        return await _diff(journal, run, await find(journal, args.other, "diff RUN"), screen)
    if args.action == "rate":
        if args.other is None:
            raise config_error(
                "choose good or bad: kaname runs rate RUN good", "good か bad を指定してください: kaname runs rate RUN good"
            )
        await rate(journal, run.run_id, args.other, args.note)
        screen.tell(f"rated {run.run_id} as {args.other}", f"{run.run_id} の評価: {_rating_word(args.other)}")
        return DONE
    if args.action == "follow":
        return await _follow(journal, run, args, screen)
    if args.action == "stop":
        return await _stop(journal, run, screen)
    if args.action == "delete":
        await record_deletion(args, journal, f"run:{run.run_id}", run.user)
        await journal.delete(run.run_id, cascade=args.cascade)
        screen.tell(f"deleted {run.run_id}", f"{run.run_id} を削除しました")
        return DONE
    if not args.equal:
        return await _continue(args, journal, run, screen)
    return await _answer_equal(args, journal, run, screen)


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
        await _print_resume_command(journal, shown, args, screen)
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


async def _print_resume_command(journal: Journal, runs: Sequence[RunInfo], args: argparse.Namespace, screen: Screen) -> None:
    """Print the resume command of the first interrupted or waiting run."""
    still = next((one for one in runs if one.status == "interrupted" or (one.status == "waiting" and one.questions)), None)
    if still is None:
        return
    waiting = still.status == "waiting"
    still = await _top_run(journal, still)  # a run inside another is resumed with that one
    first = (await read_run(journal, still.run_id, 1))[0].body
    ours = isinstance(first, Opened) and is_resumable(first.recipe)
    named = f" -a {shlex.quote(args.agent)}" if args.agent and ":" not in args.agent else ""
    whose = named if ours or args.agent else " -a FILE.py:AGENT"
    answer = " --answer …" if waiting else ""
    command = f"{this_command()} runs resume {still.run_id}{answer}{whose}{place_options(args)}"
    waits = say("waiting for an answer", "回答待ち") if answer else say("interrupted", "中断 (再開できます)")
    screen.note(f"{waits}; {say('to continue', '続けるには')}: {command}")
    if waiting and len([one for one in runs if one.status == "waiting" and not one.parent]) > 1:
        screen.tell(
            "--equal also answers equal questions of other runs", "--equal を付けると、ほかの実行の同じ確認にも回答します"
        )


def _rating_word(rating: str) -> str:
    return {"good": "良い", "bad": "悪い"}.get(rating, rating)


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
    if action == "stop" and (queued := await queued_card(journal, wanted)) is not None:
        return queued
    raise RunNotFound(wanted)


async def _follow(journal: Journal, run: RunInfo, args: argparse.Namespace, screen: Screen) -> int:
    """Show a run, wherever it is executed, until it ends or waits for an answer. Ctrl-C stops showing it, not the run."""
    if run.status == "interrupted":
        await _print_resume_command(journal, [run], args, screen)
    show, output, waits, questions = Show(screen), "", False, set[str]()
    async with aclosing(follow_chunks(journal, run.run_id, 0)) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            screen.say(chunk.to_json()) if args.json else show.take(chunk)
            match chunk.data:
                case {"status": "stopped", "output": held} if held is not None:
                    output = plain_text(held)  # a run in another process shows no deltas
                case {"status": "waiting", "key": key}:
                    questions.add(key)
                case {"status": "answered", "key": key}:
                    questions.discard(key)
            if questions and "fact" in chunk.data and await _only_waits(journal, run.run_id, chunk.data["fact"]):
                waits = True
                break
    if not args.json:
        show.finish(output)
    if waits:
        await _print_resume_command(journal, await journal.runs(run_id=run.run_id), args, screen)
    return WAITING if waits else DONE


async def _only_waits(journal: Journal, run_id: str, fact: int) -> bool:
    """Return True if the run stands at this fact, has asked a question, and has no other call under way."""
    (card,) = await journal.runs(run_id=run_id, limit=1)
    if card.status != "waiting" or card.seq > fact:
        return False
    state = await load(journal, run_id)
    return {*state.started} <= {asked.call_id for asked in state.questions.values()}


async def _stop(journal: Journal, run: RunInfo, screen: Screen) -> int:
    reason = say("stopped with `kaname runs stop`", "`kaname runs stop` でキャンセルされました")
    if not await stop_run(journal, run.run_id, reason):
        screen.tell(
            f"{run.run_id} has already ended: {run.status}",
            f"{run.run_id} はすでに終了しています: {status_word(run.status)}",
            colour="red",
        )
        return FAILED
    if run.status == "running":
        screen.tell(f"stop requested for {run.run_id}", f"{run.run_id} の停止を要求しました")
    else:
        screen.tell(f"stopped {run.run_id}", f"{run.run_id} を停止しました")
    return DONE


async def _answer_equal(args: argparse.Namespace, journal: Journal, run: RunInfo, screen: Screen) -> int:
    """Answer the questions of a run, and then the equal ones of other waiting runs: one after the other, each as by itself."""
    if args.action != "resume" or not args.answer:
        raise config_error("--equal needs: resume RUN --answer ANSWER", "--equal には resume RUN --answer ANSWER が必要です")
    state = await load(journal, run.run_id)
    questions = await _open_questions(journal, state)
    answers = parse_answers(args.answer, questions)
    if not answers:
        return await _continue(args, journal, run, screen)  # it says that the run does not wait
    same = {same_question(state, questions[key]): answer for key, answer in answers.items()}
    same.pop("", None)
    if not same:
        raise config_error(
            f"a question of {run.run_id} cannot be compared with others: answer it without --equal",
            f"{run.run_id} の確認はほかの確認と比較できません。--equal を付けずに回答してください",
        )
    todo: list[tuple[RunInfo, dict[str, Any]]] = [(run, answers)]
    waiting = await journal.runs(status="waiting", limit=_WAITING)  # before the first is resumed: later ones were not meant
    for one in {top.run_id: top for top in [await _top_run(journal, card) for card in waiting]}.values():
        state = await load(journal, one.run_id)
        asked = (await _open_questions(journal, state)).items()
        equal = {key: same[mark] for key, question in asked if (mark := same_question(state, question)) in same}
        todo += [(one, equal)] if equal and one.run_id != run.run_id else []
    code = DONE
    for number, (one, given_answers) in enumerate(todo, 1):
        screen.note(f"{number}/{len(todo)}  {one.run_id}")
        ended = await _continue(argparse.Namespace(**vars(args)), journal, one, screen, given_answers)
        code = max(code, ended)
        if ended == INTERRUPTED:
            break
    return code


async def _open_questions(journal: Journal, state: State) -> dict[str, Asked]:
    """Return the questions that a run can be resumed with, those of its work in the background among them."""
    return {**state.questions, **await questions_of_tasks(journal, state)}


async def _top_run(journal: Journal, card: RunInfo) -> RunInfo:
    """Return the run in which a child run is answered: the one above all."""
    while card.parent and (above := await journal.runs(run_id=card.parent, limit=1)):
        card = above[0]
    return card


async def _continue(
    args: argparse.Namespace, journal: Journal, run: RunInfo, screen: Screen, equal: Mapping[str, Any] | None = None
) -> int:
    """Resume, fork or replay a run, with the agent that made it. `equal`: answers, instead of those of the options."""
    first = (await read_run(journal, run.run_id))[0].body
    restore_options(args, first.recipe if isinstance(first, Opened) else {}, run.agent)
    state = await load(journal, run.run_id)
    answers = dict(equal or {})
    if args.action == "resume" and args.answer and not answers:
        questions = await _open_questions(journal, state)
        if not questions:
            screen.tell(
                f"{run.run_id} is not waiting for an answer: {run.status}",
                f"{run.run_id} は回答を待っていません: {status_word(run.status)}",
                colour="red",
            )
            return USAGE
        answers = parse_answers(args.answer, questions)
    with keys_at_first_call() if args.action == "replay" else nullcontext():
        agent = agent_from(args, screen)
    stop = asyncio.Event()
    try:
        if args.action == "replay":
            replay = await agent.replay(run.run_id)
            screen.say(translate(replay))
            return DONE if replay.same else FAILED
        if args.action == "fork":
            going = agent.fork(run.run_id, args.at, user_input=args.other, abort_event=stop)
        else:
            going = agent.resume(run.run_id, answers, takeover=args.takeover, abort_event=stop, by=args.by)
        by, where = args.by if args.action == "resume" else "", place_options(args)
        earlier = {} if args.action == "fork" else _open_calls(state, answers)
        return await follow(agent, going, stop, screen, as_json=args.json, quiet=False, where=where, by=by, earlier=earlier)
    finally:
        await agent.close()


def _open_calls(state: State, answers: Mapping[str, Any]) -> dict[str, str]:
    """Return the calls of the model that have no result yet, as lines by id: with the arguments that the answers give them."""
    asked = {one.call_id: answers.get(key) for key, one in state.questions.items()}
    calls = [call for message in state.messages for call in message.calls if call.id in state.open]
    edits = {call.id: args["args"] for call in calls if isinstance(args := asked.get(call.id), Mapping) and "args" in args}
    return {call.id: call_line(call.name, edits.get(call.id, call.args)) for call in calls}


async def _diff(journal: Journal, one: RunInfo, other: RunInfo, screen: Screen) -> int:
    """Show two runs line by line: questions, calls, results and answers."""
    from difflib import unified_diff

    if one.run_id == other.run_id:
        screen.tell(f"both are the same run: {one.run_id}", f"どちらも同じ実行です: {one.run_id}")
        return DONE
    parting, before, after = await stories(journal, one, other)
    lines = list(unified_diff(before, after, one.run_id[:12], other.run_id[:12], lineterm="", n=2))
    if parting:
        screen.note(parting)
    for line in lines:
        colour = {"+": "green", "-": "red"}.get(line[:1], "")
        screen.say_in(colour, line)
    if not lines:
        screen.tell("no difference", "違いはありません")
    return FAILED if lines else DONE


def _fork_of(run: RunInfo) -> str:
    return say(f"continues {run.base[:12]}", f"{run.base[:12]} の続き") if run.base else ""
