"""Transcript of a recorded run: questions, thoughts, calls, results and answers, each with its fact's number."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from itertools import takewhile

from ...core.chunks import chunks_of
from ...core.events import (
    Answered,
    Asked,
    Event,
    HandedOff,
    ModelReplied,
    Noted,
    Opened,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
    Warned,
)
from ...core.messages import Message, ModelReply, ToolResult
from ...core.openai_shape import result_text
from ...core.runs import RunInfo
from ...kernel.load import read_run, read_whole
from ...kernel.ports import Journal
from ..messages import said_line, say, translated
from ..messages.stops import told_status
from ..terminal.chunks import call_text
from ..terminal.screen import Screen, cut

_LONG = 300


async def tell(journal: Journal, run: RunInfo, screen: Screen, *, as_json: bool) -> None:
    events = await read_run(journal, run.run_id)
    if as_json:
        for event in events:
            for chunk in chunks_of(event):
                screen.say(chunk.to_json())
        return
    when = datetime.fromtimestamp(run.created).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    screen.say(f"{run.run_id}  {when}  {run.agent}  {told_status(run.status)}")
    for number, line in await _with_what_came_before(journal, events):
        screen.say(f"{number:>4}  {line}")
    money = "?" if run.cost is None else f"${run.cost:.4f}"
    screen.note(f"{run.input + run.output} {say('tokens', 'トークン')}, {money}")


async def _with_what_came_before(journal: Journal, events: list[Event]) -> list[tuple[str, str]]:
    first, lines = events[0].body, [(str(event.seq), line) for event, line in _lines(events)]
    if isinstance(first, Opened) and first.base is not None:
        run, upto = first.base
        before = await read_run(journal, run, upto)
        told = say(f"goes on from {run}, fact {upto}:", f"{run} の記録 {upto} からの続き:")
        earlier = await _with_what_came_before(journal, before)
        return [("", told), *[("", f"  {line}") for _, line in earlier], ("", "—"), *lines]
    return lines


async def stories(journal: Journal, one: RunInfo, other: RunInfo) -> tuple[str, list[str], list[str]]:
    """Two runs to be compared, without times and numbers; and where they part, if they have a beginning in common."""
    before, after = await read_whole(journal, one.run_id), await read_whole(journal, other.run_id)
    common = sum([1 for _ in takewhile(lambda pair: pair[0][:2] == pair[1][:2], zip(before, after, strict=False))])
    last = before[common - 1] if common else None
    place = (
        ""
        if last is None
        else say(f"they part after fact {last.seq} of {last.run_id}", f"{last.run_id} の記録 {last.seq} の後で分岐")
    )
    told = [[line for _, line in _lines(events, timed=False)] for events in (before[common:], after[common:])]
    return place, told[0], told[1]


def _lines(events: list[Event], *, timed: bool = True) -> Iterator[tuple[Event, str]]:
    begun = {event.body.call.id: event.time for event in events if isinstance(event.body, ToolStarted) and timed}
    replied = {call.id for event in events if isinstance(event.body, ModelReplied) for call in event.body.reply.message.calls}
    results = {
        e.body.result.call_id: (e, _result(e.body.result, e.time, begun, replied))
        for e in events
        if isinstance(e.body, ToolFinished)
    }
    finished = frozenset(results)
    for event in events:
        match event.body:
            case Received(message) | Noted(message):
                mark = ">" if isinstance(event.body, Received) else "·"
                yield from [(event, f"{mark} {line}") for line in _words(message)]
            case ModelReplied(reply):
                yield from [(event, f"({line})") for line in reply.message.thinking.splitlines() if line.strip()]
                yield from [(event, line) for line in _words(reply.message)]
                yield from _calls(event, reply, results)
            case ToolStarted(call) if call.id not in finished:
                yield event, say(f"… {call.name} was started", f"… {call.name} を開始")
            case ToolFinished(result) if result.call_id in results:
                yield event, results[result.call_id][1]
            case Asked(_, prompt):
                yield event, f"? {translated(prompt)}"
            case Answered(_, answer, by):
                who = f"{by}: " if by else ""
                yield event, f"! {who}{answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)}"
            case Resumed():
                yield event, say("— resumed", "— 再開")
            case HandedOff(to):
                yield event, say(f"— handed over to {to}", f"— {to} に引き継ぎ")
            case Warned(source, text):
                yield event, f"! {source}: {translated(text)}"
            case Stopped(stop) if stop.kind != "completed":
                detail = f": {translated(stop.detail)}" if stop.detail else ""
                yield event, f"— {told_status(stop.kind)}{detail}{said_line(stop.said)}"


def _calls(event: Event, reply: ModelReply, results: dict[str, tuple[Event, str]]) -> Iterator[tuple[Event, str]]:
    """Where several ran at once, each has its result beside it."""
    for call in reply.message.calls:
        yield event, f"→ {call.name}({call_text(call.args)})"
        if len(reply.message.calls) > 1 and call.id in results:
            yield results.pop(call.id)


def _result(result: ToolResult, time: float, begun: Mapping[str, float], replied: Collection[str]) -> str:
    """A task of a graph is named: no reply stands before it."""
    task = "" if result.call_id in replied else f"{result.call_id}: "
    took = f"  {time - begun[result.call_id]:.1f} s" if result.call_id in begun else ""
    told = translated(result.error) if result.is_error else result_text(result)
    return f"{'✗' if result.is_error else '←'} {task}{cut(told, _LONG)}{took}"


def _words(message: Message) -> list[str]:
    return message.text.splitlines()
