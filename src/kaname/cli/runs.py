"""`kaname runs`: what was done. A list, one run as a story, and going on with it."""

from __future__ import annotations

import argparse
import asyncio
from datetime import datetime
from typing import Any

from ..core.chunks import chunks_of
from ..core.errors import ConfigError, RunNotFound
from ..core.language import say
from ..core.runs import RunInfo
from ..journals.choose import choose
from ..kernel.ports import Journal
from .main import DONE, FAILED
from .run import follow
from .screen import Screen, columns, padded
from .setting_up import agent_from
from .show import Show, call_text


def main(given: argparse.Namespace) -> int:
    return asyncio.run(_main(given, Screen()))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    journal = choose(given.journal)
    try:
        if given.action == "list":
            return await _list(journal, given.number, screen)
        run = await _found(journal, given.run)
        if given.action == "show":
            return await _tell(journal, run, screen, as_json=given.json)
        if given.action == "diff":
            return await _diff(journal, run, await _found(journal, given.other), screen)
        if given.action == "delete":
            await journal.delete(run.run)
            screen.note(say(f"deleted {run.run}", f"{run.run} を削除しました"))
            return DONE
        return await _resume(given, run, screen)
    finally:
        await journal.close()


async def _list(journal: Journal, number: int, screen: Screen) -> int:
    runs = await journal.runs(limit=number)
    if not runs:
        screen.note(say("no runs yet", "まだ記録がありません"))
    for one in runs:
        money = "?" if one.cost is None else f"${one.cost:.4f}"
        left = f"{one.run[:12]}  {_time(one.created)}  {padded(one.status, 11)} {one.input + one.output:>7}  {money:>8}  "
        screen.say(left + padded(one.title, max(10, columns() - len(left) - 1)).rstrip())
    return DONE


async def _found(journal: Journal, wanted: str | None) -> RunInfo:
    if not wanted:
        raise ConfigError(say("which run? kaname runs show last", "どの実行ですか? 例: kaname runs show last"))
    exact = await journal.runs(run=wanted)
    if exact:
        return exact[0]
    recent = await journal.runs(limit=1000)
    if wanted == "last" and recent:
        return recent[0]
    like = [one for one in recent if one.run.startswith(wanted)]
    if len(like) > 1:
        names = ", ".join([one.run for one in like[:5]])
        raise ConfigError(say(f"{wanted!r} could be {names}", f"{wanted!r} は複数あります: {names}"))
    if not like:
        raise RunNotFound(wanted)
    return like[0]


async def _tell(journal: Journal, run: RunInfo, screen: Screen, *, as_json: bool) -> int:
    show = Show(screen)
    if not as_json:
        screen.say(f"{run.run}  {_time(run.created)}  {run.status}")
    async for event in journal.read(run.run):
        for chunk in chunks_of(event):
            if as_json:
                screen.say(chunk.to_json())
            elif chunk.data.get("status") == "received":
                screen.say(f"> {chunk.data['content']}")
            else:
                show.take(chunk)
        if not as_json:
            _words(event.body, screen)
    if not as_json:
        screen.note(show.spent())
    return DONE


def _words(body: Any, screen: Screen) -> None:
    """What was streamed is not recorded piece by piece: the text of a reply stands in the reply."""
    reply = getattr(body, "reply", None)
    if reply is not None and reply.message.text:
        screen.say(reply.message.text)


async def _resume(given: argparse.Namespace, run: RunInfo, screen: Screen) -> int:
    agent = agent_from(given, screen)
    try:
        stop, answers = asyncio.Event(), None
        if given.action == "replay":
            replay = await agent.replay(run.run)
            screen.say(str(replay))
            return DONE if replay.same else FAILED
        if given.action == "fork":
            forked = agent.fork(run.run, given.at, user_input=given.other, abort_event=stop)
            return await follow(agent, forked, stop, screen, as_json=given.json, quiet=False)
        if given.answer is not None:
            waiting = await agent.resume(run.run)
            answers = dict.fromkeys(waiting.questions, given.answer)
        return await follow(
            agent, agent.resume(run.run, answers, abort_event=stop), stop, screen, as_json=given.json, quiet=False
        )
    finally:
        await agent.close()


async def _diff(journal: Journal, one: RunInfo, other: RunInfo, screen: Screen) -> int:
    """Line by line: what was asked, called, given back and said."""
    from difflib import unified_diff

    before, after = await _story(journal, one), await _story(journal, other)
    lines = list(unified_diff(before, after, one.run[:12], other.run[:12], lineterm="", n=2))
    for line in lines:
        colour = {"+": "green", "-": "red"}.get(line[:1], "")
        screen.say(screen.coloured(screen.safe(line), colour, screen.out))
    if not lines:
        screen.note(say("no difference", "違いはありません"))
    return FAILED if lines else DONE


async def _story(journal: Journal, run: RunInfo) -> list[str]:
    lines: list[str] = []
    async for event in journal.read(run.run):
        for chunk in chunks_of(event):
            data = chunk.data
            if data.get("status") == "received":
                lines.append(f"> {data['content']}")
            elif chunk.type == "tool_call":
                lines.append(f"→ {data['name']}({call_text(data['arguments'])})")
            elif chunk.type == "tool_response":
                lines.append(f"← {data['content_preview']}")
        reply = getattr(event.body, "reply", None)
        lines += reply.message.text.splitlines() if reply is not None else []
    return lines


def _time(stamp: float) -> str:
    return datetime.fromtimestamp(stamp).astimezone().strftime("%m-%d %H:%M")
