"""`read_result`: read on in a result that was too long to be shown whole, or is no longer shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import log

from ...core.messages import Message, ToolResult
from ...core.state import what_was_said
from ...kernel.ports import ToolContext
from ...tools.function import tool
from ...tools.search.tokenize import query_terms
from .lines import as_value, at_path, lines_of, outline

READ_RESULT = "read_result"
_MOST = 20_000  # characters that one call returns
_LINES, _AROUND, _PLACES = 200, 2, 10  # lines at once, lines around a place, places


@tool(effect="pure", name=READ_RESULT)
async def read_result(
    call: str, context: ToolContext, start: int = 1, lines: int = _LINES, find: str = "", path: str = ""
) -> ToolResult:
    """Read a part of an earlier tool result that was too long to be shown whole.

    Args:
        call: the id of the call, as the note in the shortened result says it
        start: the number of the first line
        lines: how many lines
        find: text to look for; returns the lines around it, after `start`. Separate alternatives with |
        path: for JSON: the part to read, such as orders[3].lines or rows[100:120]
    """
    found = await _find_result(call, context)
    if found is None:
        return ToolResult(error=f"there is no result of a call {call!r} in this conversation", retryable=False)
    return await asyncio.to_thread(_read, found, start, lines, find.strip(), path)


def _read(found: ToolResult, start: int, lines: int, find: str, path: str) -> ToolResult:
    value = as_value(found.output if found.error is None else found.error)
    try:
        part = at_path(value, path) if path else value
    except LookupError as problem:
        return ToolResult(error=str(problem.args[0]), retryable=False)
    every, start = lines_of(part), max(1, start)
    numbers = _lines_with(find, every, start) if find else range(start, start + max(1, lines))
    shown, last = _with_numbers(every, [number for number in numbers if number <= len(every)])
    what = f"{found.name}{f' {path}' if path else ''}: {len(every):,} line{'' if len(every) == 1 else 's'}"
    what += "" if isinstance(part, str) else f", {outline(part)}"
    if not shown:
        message = f"no line from {start} on holds {find!r}" if find else f"there is no line {start}"
        return ToolResult(f"{what}\n{message}")
    more = f"\n[{'more may follow' if find else 'read on'}: start={last + 1}]" if last < len(every) else ""
    return ToolResult("\n".join([what, *shown]) + more)


async def _find_result(call_id: str, context: ToolContext) -> ToolResult | None:
    """Return the result as it was recorded. One that was summarised away is in the journal."""
    state = context.state
    result = state.results.get(call_id) or _among(state.messages, call_id)
    if result is not None:
        return result
    lineage = await context.journal.lineage(context.run_id)
    return _among([message for _, message in what_was_said(lineage.events)], call_id)


def _among(messages: Sequence[Message], call_id: str) -> ToolResult | None:
    parts = [part for message in reversed(messages) if message.role == "tool" for part in message.parts]
    return next((part for part in parts if isinstance(part, ToolResult) and part.call_id == call_id), None)


def _lines_with(find: str, every: list[str], start: int) -> list[int]:
    """Return the numbers of the lines around the text. If no line holds it: around those with most of its words."""
    wanted = [one.strip().casefold() for one in find.split("|") if one.strip()]
    folded = {number: line.casefold() for number, line in enumerate(every, 1) if number >= start}
    hits = [number for number, line in folded.items() if any(one in line for one in wanted)][:_PLACES]
    hits = hits or _most_words(query_terms(find), folded)
    return sorted({near for hit in hits for near in range(max(1, hit - _AROUND), min(len(every), hit + _AROUND) + 1)})


def _most_words(words: Sequence[str], folded: Mapping[int, str]) -> list[int]:
    """Return the numbers of the lines that hold most of the words, the rare ones counting more."""
    scores: dict[int, float] = {}
    for word in words:
        held = [number for number, line in folded.items() if word in line]
        for number in held:
            scores[number] = scores.get(number, 0.0) + log(1 + len(folded) / len(held))
    return sorted(scores, key=lambda number: (-scores[number], number))[:_PLACES]


def _with_numbers(every: list[str], numbers: Sequence[int]) -> tuple[list[str], int]:
    """Return the lines with their numbers, as many as fit, and the number of the last."""
    shown, room, last = list[str](), _MOST, 0
    for number in numbers:
        line = f"{number}: {every[number - 1]}"
        if shown and len(line) > room:
            break
        if last and number > last + 1:
            shown.append("…")
        shown.append(line)
        room, last = room - len(line) - 1, number
    return shown, last
