"""`kaname runs`: what was done. A list, one run as a story, and going on with it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
from contextlib import aclosing, nullcontext
from datetime import datetime

from ...api.attach import attached, stop_run
from ...api.figures import rate
from ...core.errors import ConfigError, RunNotFound
from ...core.events import Opened
from ...core.install import this_command
from ...core.project import path_without_project
from ...core.runs import RunInfo
from ...core.values import plain_text
from ...journals.default import choose, default_path
from ...kernel.load import load, read_run
from ...kernel.ports import Journal
from ...models.http.keys import keys_at_first_call
from ..agent import agent_from, journal_place, take_up, where_it_is
from ..main import DONE, FAILED, USAGE, WAITING
from ..messages import say, translated
from ..messages.stops import told_status
from ..run import follow
from ..terminal.chunks import Show
from ..terminal.questions import given_answers
from ..terminal.screen import Screen, columns, padded, width
from ..terminal.signals import to_the_end
from .prune import main as prune
from .transcript import stories, tell


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    place = journal_place(given)
    if place not in ("memory", ":memory:") and not os.path.exists(os.path.expanduser(place)):
        screen.note(say(f"no runs yet: there is no {place}", f"まだ記録がありません ({place})"))
        if os.path.exists(before := path_without_project("journal.db")) and place == default_path():
            command = f"{this_command()} runs --journal {shlex.quote(before)}"
            screen.note(say(f"from before kaname.yaml was here: {command}", f"kaname.yaml を作る前の記録: {command}"))
        return DONE if given.action == "list" else FAILED
    given.journal = place
    return to_the_end(lambda ending: _main(given, screen))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    journal = choose(given.journal)
    try:
        if given.action == "list":
            return await _list(journal, given, screen)
        if given.action == "prune":
            return await prune(journal, given, screen)
        run = await find(journal, given.run, given.action)
        if given.action == "show":
            await tell(journal, run, screen, as_json=given.json)
            await _how_to_go_on(journal, [run], given, screen)
            return DONE
        if given.action == "diff":
            return await _diff(journal, run, await find(journal, given.other, "diff RUN"), screen)
        if given.action == "rate":
            if given.other is None:
                raise ConfigError(
                    say("good or bad? kaname runs rate RUN good", "good か bad を指定: kaname runs rate RUN good")
                )
            await rate(journal, run.run_id, given.other)
            screen.note(say(f"{run.run_id} is rated {given.other}", f"{run.run_id} の評価: {_rating(given.other)}"))
            return DONE
        if given.action == "follow":
            return await _follow(journal, run, given, screen)
        if given.action == "stop":
            return await _stop(journal, run, screen)
        if given.action == "delete":
            await journal.delete(run.run_id, cascade=given.cascade)
            screen.note(say(f"deleted {run.run_id}", f"{run.run_id} を削除しました"))
            return DONE
        return await _go_on(given, journal, run, screen)
    finally:
        await journal.close()


async def _list(journal: Journal, given: argparse.Namespace, screen: Screen) -> int:
    if given.number < 1:
        raise ConfigError(say("-n is a number from 1 up", "-n は 1 以上の数です"))
    before = (await find(journal, given.before, "list --before")).place if given.before else 0
    runs = await journal.runs(before=before, limit=given.number + 1)
    more, runs = len(runs) > given.number, runs[: given.number]
    if given.json:
        for one in runs:
            screen.say(json.dumps({name: getattr(one, name) for name in one.__match_args__}, ensure_ascii=False))
        return DONE
    if not runs:
        screen.note(say("no runs yet", "まだ記録がありません"))
        return DONE
    wide = columns() >= 70
    head = f"{padded(say('run', '実行'), 12)}  {padded(say('begun', '開始'), 11)}  {padded(say('status', '状態'), 11)} "
    head += f"{padded(say('tokens', 'トークン'), 8)} {padded(say('cost', '費用'), 8)}  " if wide else ""
    screen.note(head + say("task", "内容"))
    for one in runs:
        money = "?" if one.cost is None else f"${one.cost:.4f}"
        name = padded(f"└ {one.agent}" if one.parent else one.run_id[:12], 12)
        left = f"{name}  {_time(one.created)}  {padded(told_status(one.status), 11)} "
        left += f"{one.input + one.output:>8} {money:>8}  " if wide else ""
        room = columns() - width(left) - 1
        screen.say(left + (padded(one.title or _fork_of(one), room).rstrip() if room > 8 else ""))
    if more:
        command = f"{this_command()} runs --before {runs[-1].run_id[:12]}{where_it_is(given)}"
        screen.note(say(f"… and more: {command}", f"… 続きがあります: {command}"))
    await _how_to_go_on(journal, runs, given, screen)
    return DONE


async def _how_to_go_on(journal: Journal, runs: list[RunInfo], given: argparse.Namespace, screen: Screen) -> None:
    """Of the first that stands still."""
    still = next((one for one in runs if one.status in ("interrupted", "waiting")), None)
    if still is None:
        return
    while still.parent and (above := await journal.runs(run_id=still.parent, limit=1)):
        still = above[0]  # a run inside another goes on with that one
    first = (await read_run(journal, still.run_id, 1))[0].body
    ours = isinstance(first, Opened) and "origin" in first.recipe
    named = f" -a {shlex.quote(given.agent)}" if given.agent and ":" not in given.agent else ""
    whose = named if ours or given.agent else " -a FILE.py:AGENT"
    answer = " --answer …" if still.status == "waiting" else ""
    command = f"{this_command()} runs resume {still.run_id}{answer}{whose}{where_it_is(given)}"
    waits = (
        say("it waits for an answer", "回答待ち")
        if answer
        else say("interrupted: nobody executes it any more", "中断 (再開できます)")
    )
    screen.note(f"{waits}; {say('to go on', '続けるには')}: {command}")


def _rating(rating: str) -> str:
    return {"good": "良い", "bad": "悪い"}.get(rating, rating)


async def find(journal: Journal, wanted: str | None, action: str) -> RunInfo:
    """Return the run that is meant by its id, by the only beginning of one, or by "last"."""
    if not wanted:
        raise ConfigError(
            say(f"which run? for example: kaname runs {action} last", f"どの実行ですか? 例: kaname runs {action} last")
        )
    exact = await journal.runs(run_id=wanted)
    if exact:
        return exact[0]
    if wanted == "last" and (recent := await journal.runs(limit=1000)):
        return next((one for one in recent if not one.parent), recent[0])
    like = await journal.runs(starting=wanted, limit=1000)
    whole = [one for one in like if "/" not in one.run_id]  # and not the runs inside it
    like = whole if len(whole) == 1 else like
    if len(like) > 1:
        names = ", ".join([one.run_id for one in like[:5]])
        raise ConfigError(say(f"{wanted!r} could be {names}", f"{wanted!r} は複数あります: {names}"))
    if not like:
        raise RunNotFound(wanted)
    return like[0]


async def _follow(journal: Journal, run: RunInfo, given: argparse.Namespace, screen: Screen) -> int:
    """Show a run as it goes on, wherever it is executed, until it ends or waits for an answer.

    Ctrl-C ends the showing, not the run.
    """
    if run.status == "interrupted":
        await _how_to_go_on(journal, [run], given, screen)
    show, output, waits, questions = Show(screen), "", False, set[str]()
    async with aclosing(attached(journal, run.run_id, 0)) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            screen.say(chunk.to_json()) if given.json else show.take(chunk)
            match chunk.data:
                case {"status": "stopped", "output": held} if held is not None:
                    output = plain_text(held)  # another process shows no deltas
                case {"status": "waiting", "key": key}:
                    questions.add(key)
                case {"status": "answered", "key": key}:
                    questions.discard(key)
            if questions and "fact" in chunk.data and await _only_waits(journal, run.run_id, chunk.data["fact"]):
                waits = True
                break
    if not given.json:
        show.finish(output)
    if waits:
        await _how_to_go_on(journal, await journal.runs(run_id=run.run_id), given, screen)
    return WAITING if waits else DONE


async def _only_waits(journal: Journal, run_id: str, fact: int) -> bool:
    """True if the run stands at this fact, asks something, and has nothing else under way."""
    (card,) = await journal.runs(run_id=run_id, limit=1)
    if card.status != "waiting" or card.seq > fact:
        return False
    state = await load(journal, run_id)
    return {*state.started} <= {asked.call_id for asked in state.questions.values()}


async def _stop(journal: Journal, run: RunInfo, screen: Screen) -> int:
    reason = say("stopped with `kaname runs stop`", "`kaname runs stop` でキャンセルされました")
    if not await stop_run(journal, run.run_id, reason):
        screen.note(
            say(f"{run.run_id} is over already: {run.status}", f"{run.run_id} は終了しています: {told_status(run.status)}"),
            "red",
        )
        return FAILED
    if run.status == "running":
        screen.note(say(f"{run.run_id} is asked to stop", f"{run.run_id} に停止を求めました"))
    else:
        screen.note(say(f"{run.run_id} is stopped", f"{run.run_id} を停止しました"))
    return DONE


async def _go_on(given: argparse.Namespace, journal: Journal, run: RunInfo, screen: Screen) -> int:
    """Resume, fork or replay, with the agent that it was made by."""
    first = (await read_run(journal, run.run_id))[0].body
    take_up(given, first.recipe if isinstance(first, Opened) else {}, run.agent)
    state = await load(journal, run.run_id)
    answers = {}
    if given.action == "resume" and given.answer:
        if not state.questions:
            screen.note(
                say(
                    f"{run.run_id} asks nothing: {run.status}",
                    f"{run.run_id} は確認待ちではありません: {told_status(run.status)}",
                ),
                "red",
            )
            return USAGE
        answers = given_answers(given.answer, state.questions)
    with keys_at_first_call() if given.action == "replay" else nullcontext():
        agent = agent_from(given, screen)
    stop = asyncio.Event()
    try:
        if given.action == "replay":
            replay = await agent.replay(run.run_id)
            screen.say(translated(replay))
            return DONE if replay.same else FAILED
        if given.action == "fork":
            going = agent.fork(run.run_id, given.at, user_input=given.other, abort_event=stop)
        else:
            going = agent.resume(run.run_id, answers, takeover=given.takeover, abort_event=stop)
        return await follow(agent, going, stop, screen, as_json=given.json, quiet=False, where=where_it_is(given))
    finally:
        await agent.close()


async def _diff(journal: Journal, one: RunInfo, other: RunInfo, screen: Screen) -> int:
    """Line by line: what was asked, called, given back and said."""
    from difflib import unified_diff

    if one.run_id == other.run_id:
        screen.note(say(f"both are {one.run_id}", f"どちらも {one.run_id} です"))
        return DONE
    parting, before, after = await stories(journal, one, other)
    lines = list(unified_diff(before, after, one.run_id[:12], other.run_id[:12], lineterm="", n=2))
    if parting:
        screen.note(parting)
    for line in lines:
        colour = {"+": "green", "-": "red"}.get(line[:1], "")
        screen.raw(screen.coloured(screen.safe(line), colour, screen.out) + "\n")
    if not lines:
        screen.note(say("no difference", "違いはありません"))
    return FAILED if lines else DONE


def _fork_of(run: RunInfo) -> str:
    return say(f"goes on from {run.base[:12]}", f"{run.base[:12]} の続き") if run.base else ""


def _time(stamp: float) -> str:
    return datetime.fromtimestamp(stamp).astimezone().strftime("%m-%d %H:%M")
