"""`kaname runs ACTION RUN`: show a run, compare, rate, follow and stop it, and continue it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from contextlib import aclosing, nullcontext
from typing import Any

from ...core.errors import RunNotFound
from ...core.events import Asked, Opened
from ...core.people.visible import call_line
from ...core.runs import RunInfo
from ...core.state import State
from ...core.values import plain_text
from ...kernel.load import load, read_run
from ...kernel.ports import Journal
from ...models.http.keys import keys_at_first_call
from ...people.answers import questions_of_tasks
from ...run.attach import follow_chunks, queued_card, stop_run
from ...run.figures import rate
from ...serve.questions import same_question
from ..agent import agent_from, restore_options
from ..main import DONE, FAILED, INTERRUPTED, USAGE, WAITING
from ..messages import config_error, say, translate
from ..messages.stops import status_word
from ..place import place_options
from ..run import follow
from ..terminal.chunks import Show
from ..terminal.questions import parse_answers
from ..terminal.screen import Screen
from .audit import record_deletion
from .runs import find, print_resume_command, top_run
from .transcript import print_run, stories

_WAITING = 10_000  # waiting runs in which equal questions are looked for


async def main(journal: Journal, args: argparse.Namespace, screen: Screen) -> int:
    try:
        run = await find(journal, args.run, args.action)
    except RunNotFound as missing:
        queued = await queued_card(journal, missing.run_id) if args.action == "stop" else None
        if queued is None:
            raise
        run = queued
    if args.action == "show":
        await print_run(journal, run, screen, as_json=args.json)
        await print_resume_command(journal, [run], args, screen)
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


def _rating_word(rating: str) -> str:
    return {"good": "良い", "bad": "悪い"}.get(rating, rating)


async def _follow(journal: Journal, run: RunInfo, args: argparse.Namespace, screen: Screen) -> int:
    """Show a run, wherever it is executed, until it ends or waits for an answer. Ctrl-C stops showing it, not the run."""
    if run.status == "interrupted":
        await print_resume_command(journal, [run], args, screen)
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
        await print_resume_command(journal, await journal.runs(run_id=run.run_id), args, screen)
    return WAITING if waits else DONE


async def _only_waits(journal: Journal, run_id: str, fact: int) -> bool:
    """Return True if the run stands at this fact, has asked a question, and has no other call under way."""
    (card,) = await journal.runs(run_id=run_id, limit=1)
    if card.status != "waiting" or card.seq > fact:
        return False
    state = await load(journal, run_id, fact)  # not later: what has ended meanwhile has not been shown yet
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
    for one in {top.run_id: top for top in [await top_run(journal, card) for card in waiting]}.values():
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
