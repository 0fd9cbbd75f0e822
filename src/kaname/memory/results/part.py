"""`LargeResults`: how much of a tool's result the model sees, when it is forgotten, and how the rest is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import ConfigError
from ...core.messages import Message, ToolResult
from ...core.record import replace
from ...core.tokens import tokens_of
from ...kernel.bases import ContextBase, options_of
from ...kernel.results import SHOWN_LIMIT
from ...kernel.view import RunView
from .lines import as_shown, as_value, lines_of, outline
from .read import READ_RESULT, read_result

_LEAST = 500  # characters: less than that is not worth forgetting, and not enough to show
_KEPT = 3
Made = dict[tuple[int, bool], tuple[Message, Message, int]]


class LargeResults(ContextBase):
    """Long results of tools: the model sees the beginning and the end, and reads the rest with the tool `read_result`.

        Agent(model, tools=[fetch], context=[LargeResults(shown=20_000, forget_after=30_000)])

    The journal keeps every result whole. What the model sees of a result does not change from one call to the next, so that
    the provider's prompt cache holds; forgetting old results changes it once, when `forget_after` is reached.

    Args:
        shown: The most characters of a result that the model sees (default 40,000).
        forget_after: When the results in the conversation have more tokens than this (estimated), all but the last ones are
            replaced by a note. By default nothing is forgotten.
        keep: How many of the last results are not forgotten (default 3). Those of the last step never are.

    Raises:
        ConfigError: A number is too small.
    """

    tools: Sequence[Any] = (read_result,)

    def __init__(self, shown: int = SHOWN_LIMIT, forget_after: int | None = None, *, keep: int = _KEPT) -> None:
        if shown < _LEAST or (forget_after is not None and forget_after < 1) or keep < 0:
            raise ConfigError.of(
                "results.numbers",
                "shown must be at least {least}, forget_after at least 1 and keep at least 0",
                least=_LEAST,
            )
        self._shown, self._after, self._keep = shown, forget_after, keep

    async def __call__(self, messages: Sequence[Message], view: RunView) -> Sequence[Message]:
        made: Made = view.scratch.setdefault(self, {})
        forgotten = self._find_forgotten(messages, made, view) if self._after is not None else ()
        return [self._show(m, place in forgotten, made)[1] if m.role == "tool" else m for place, m in enumerate(messages)]

    def _show(self, message: Message, forgotten: bool, made: Made) -> tuple[Message, Message, int]:
        """Return the message, the message as the model sees it, and its tokens. It is made once, and stays the same object."""
        known = made.get((id(message), forgotten))
        if known is None or known[0] is not message:
            parts = [
                part if type(part) is not ToolResult else _forget(part) if forgotten else cut(part, self._shown)
                for part in message.parts
            ]
            same = all(one is other for one, other in zip(parts, message.parts, strict=True))
            shown = message if same else Message("tool", tuple(parts))
            known = made[id(message), forgotten] = message, shown, tokens_of(shown)
        return known

    def _find_forgotten(self, messages: Sequence[Message], made: Made, view: RunView) -> set[int]:
        """Return the places of the results that are forgotten by now.

        It is decided after each step, from the conversation up to there alone: a decision never changes afterwards.
        """
        seen, gone, size, step = dict[int, int](), set[int](), 0, 0
        for place in range(len(messages) + 1):
            if place < len(messages) and messages[place].role == "tool":
                seen[place] = self._show(messages[place], False, made)[2]
                size, step = size + seen[place], step + 1
                continue
            if step and self._after is not None and size > self._after:
                for old in list(seen)[: -max(self._keep, step)]:
                    if _can_be_forgotten(messages[old], view):
                        size -= seen.pop(old)
                        gone.add(old)
            step = 0
        return gone


def cut(result: ToolResult, most: int) -> ToolResult:
    """Return the result with no more than about `most` characters for the model, and a note on how to read the rest."""
    if result.error is not None or result.output is None or result.name == READ_RESULT:
        return result
    whole = as_shown(result.output)
    text = whole if result.shown is None or _is_cut(result.shown, whole) else result.shown
    if len(text) <= most:
        return result if result.shown == text or result.shown is None else replace(result, shown=text)
    value = as_value(result.output) if text is whole else text
    every = lines_of(value)
    head = _count_fitting(every, most - most // 10)
    tail = _count_fitting(every[: head - 1 : -1], most // 10)
    if head + tail >= len(every):  # laid out it is shorter
        return replace(result, shown="\n".join(every))
    message = (
        f"[… lines {head + 1:,} to {len(every) - tail:,} of {len(every):,} are not shown here. Read them with "
        f'{READ_RESULT}(call="{result.call_id}", start={head + 1}), or find="text"'
        + ("" if isinstance(value, str) else f', or path="…": it is {outline(value)}')
        + " …]"
    )
    return replace(result, shown="\n".join([*every[:head], "", message, "", *every[len(every) - tail :]]))


def _count_fitting(lines: Sequence[str], most: int) -> int:
    """Return the number of first lines that together have at most `most` characters, at least 1."""
    count, size = 0, 0
    for line in lines:
        size += len(line) + 1
        if size > most and count:
            break
        count += 1
    return count


def _is_cut(shown: str, whole: str) -> bool:
    """Return True if `shown` is what the kernel shows of a result that is too long."""
    return len(whole) > SHOWN_LIMIT and whole.startswith(shown[: SHOWN_LIMIT - SHOWN_LIMIT // 10])


def _forget(result: ToolResult) -> ToolResult:
    size = len(as_shown(result.output) if result.shown is None else result.shown)
    message = f'[This result of {size:,} characters is no longer shown. Read it with {READ_RESULT}(call="{result.call_id}").]'
    return replace(result, shown=message, media=())


def _can_be_forgotten(message: Message, view: RunView) -> bool:
    """Return False for errors, for short results, and for what tools are there for the model to call."""
    for part in message.parts:
        if type(part) is ToolResult:
            tool = view.agent.tools.get(part.name, None)
            loads = options_of(tool).loads_tools
            if part.error is not None or loads or len(as_shown(part.output)) < _LEAST:
                return False
    return True
