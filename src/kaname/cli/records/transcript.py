"""Transcript of a recorded run: questions, thoughts, calls, results and answers, each with its fact's number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import takewhile

from ...core.chunks import chunks_of
from ...core.events import Event, Opened, Stopped, ToolFinished, ToolStarted
from ...core.people.story import SIGNS, StoryLine, lines
from ...core.runs import RunInfo
from ...kernel.load import read_run, read_whole
from ...kernel.ports import Journal
from ..messages import said_line, say, translate
from ..messages.stops import status_word
from ..terminal.screen import Screen, truncate

_LONG = 300


async def print_run(journal: Journal, run: RunInfo, screen: Screen, *, as_json: bool) -> None:
    events = await read_run(journal, run.run_id)
    if as_json:
        for event in events:
            for chunk in chunks_of(event):
                screen.say(chunk.to_json())
        return
    when = datetime.fromtimestamp(run.created).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    screen.say(f"{run.run_id}  {when}  {run.agent}  {status_word(run.status)}")
    first = events[0].body
    if isinstance(first, Opened) and "choice" in first.recipe:
        from ...evals.adaptive import explain_choice

        screen.say(f"{say('chosen', '選択')}: {translate(explain_choice(first.recipe))}")
    for number, line in await _with_earlier_runs(journal, events):
        screen.say(f"{number:>4}  {line}")
    money = "?" if run.cost is None else f"${run.cost:.4f}"
    screen.note(f"{run.input + run.output} {say('tokens', 'トークン')}, {money}")


async def _with_earlier_runs(journal: Journal, events: list[Event]) -> list[tuple[str, str]]:
    first, own = events[0].body, [(str(event.seq), line) for event, line in _lines(events)]
    if isinstance(first, Opened) and first.base is not None:
        run, upto = first.base
        before = await read_run(journal, run, upto)
        message = say(f"continues {run} after fact {upto}:", f"{run} の記録 {upto} からの続き:")
        earlier = await _with_earlier_runs(journal, before)
        return [("", message), *[("", f"  {line}") for _, line in earlier], ("", "—"), *own]
    return own


async def stories(journal: Journal, one: RunInfo, other: RunInfo) -> tuple[str, list[str], list[str]]:
    """Return the lines of two runs, without times and numbers, and the place where they part if they have facts in common."""
    before, after = await read_whole(journal, one.run_id), await read_whole(journal, other.run_id)
    common = sum([1 for _ in takewhile(lambda pair: pair[0][:2] == pair[1][:2], zip(before, after, strict=False))])
    last = before[common - 1] if common else None
    place = (
        ""
        if last is None
        else say(f"the runs diverge after fact {last.seq} of {last.run_id}", f"{last.run_id} の記録 {last.seq} の後で分岐")
    )
    shared = {event[:2] for event in before[:common]}
    parts = [[line for event, line in _lines(events, timed=False) if event[:2] not in shared] for events in (before, after)]
    return place, parts[0], parts[1]


def _lines(events: list[Event], *, timed: bool = True) -> Iterator[tuple[Event, str]]:
    begun = {event.body.call.id: event.time for event in events if isinstance(event.body, ToolStarted) and timed}
    for line in lines(events):
        yield from [(line.event, text) for text in _texts(line, begun, named=line.apart or not timed)]


def _texts(line: StoryLine, begun: Mapping[str, float], *, named: bool) -> list[str]:
    """Return a line as the terminal shows it. `named`: a result names its call."""
    sign, words, whose = SIGNS.get(line.kind, ""), translate(line.text), line.whose
    match line.kind:
        case "said":
            return words.splitlines()
        case "thought":
            return [f"({text})" for text in words.splitlines() if text.strip()]
        case "asked" | "noted":
            return [f"{sign} {text}" for text in words.splitlines()]
        case "call":
            return [f"{sign} {words}"]
        case "result" | "error":
            words, whose = f"{truncate(words, _LONG)}{_took(line.event, begun)}", whose if named else ""
        case "stopped":
            said = line.event.body.stop.said if isinstance(line.event.body, Stopped) else ""
            words, whose = f"{words}{said_line(said)}", status_word(whose)
    return [f"{sign} {': '.join([part for part in (whose, words) if part])}"]


def _took(event: Event, begun: Mapping[str, float]) -> str:
    call = event.body.result.call_id if isinstance(event.body, ToolFinished) else ""
    return f"  {event.time - begun[call]:.1f} s" if call in begun else ""
