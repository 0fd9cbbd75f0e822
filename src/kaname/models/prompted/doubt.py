"""Doubts about a small model's choice, which it is shown: invented or forgotten numbers, copied arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.codec import dump
from ...core.messages import ModelRequest, Part, Text, ToolCall, ToolResult, ToolSpec
from ...core.openai_shape import result_text
from .names import KnownNames, named_in
from .numbers import KnownNumbers
from .offer import TurnSoFar
from .words import describe_tool


class Doubt:
    """The doubts of one turn. They apply only if there are look-up tools to which the model can be pointed."""

    def __init__(self, request: ModelRequest, turn: TurnSoFar) -> None:
        self._turn = turn
        texts = _texts_before(request, turn)
        self._heard = KnownNames(texts)  # tool descriptions are left out: a table's name in them cannot be looked up
        self._known = KnownNumbers([*texts, *[f"{tool.name} {tool.description}" for tool in request.tools]])
        looked = bool(turn.calls) and all(call.name in turn.pure and result is not None for call, result in turn.calls)
        self._forgotten = turn.unused_numbers if looked else []  # never point the model to a tool with effects
        self._not_looked_up = _names_not_looked_up(request, turn) if looked else []
        self._holding = bool(self._forgotten or self._not_looked_up)

    def clear(self, text: str) -> int:
        """Return the number of characters of this part that can be shown. The rest may have to be written again."""
        if self._holding:
            return 0
        end = len(text)
        while end and (text[end - 1].isdigit() or text[end - 1] in ".,．，"):
            end -= 1  # a number that may not be all there
        odd = self._known.unknown(text[:end])
        self._holding = bool(odd)
        return odd[0][0] if odd else end

    def about(self, part: Part) -> str:
        """Return the remark for the model, or "" if there is no doubt."""
        if isinstance(part, ToolCall):
            return self._about_call(part)
        text = part.text if isinstance(part, Text) else ""
        if odd := self._known.unknown(text):
            return f"{odd[0][1]} {_NOWHERE}: use a tool to work it out, or repeat the answer."
        if self._forgotten:
            return f"{', '.join(self._forgotten)} of the question was not used: use a tool with it, or repeat the answer."
        if self._not_looked_up:
            return f"{self._not_looked_up[0]} of the question was not looked up: use a tool with it, or repeat the answer."
        return ""

    def ask_for_missing(self) -> str:
        """Return the request after a doubted answer. It does not quote the answer, because a small model would copy it."""
        if self._forgotten or self._not_looked_up:
            return f"Now write the call that works with {', '.join(self._forgotten or self._not_looked_up)}."
        return "Now write the call that works out the answer."

    def from_nowhere(self, call: ToolCall) -> str:
        """Return the first number or name in a call that is neither in the question nor in a result."""
        odd = self._known.unknown(dump(call.args))
        return odd[0][1] if odd else self._heard.unknown(call.args)

    def _about_call(self, call: ToolCall) -> str:
        name = self.from_nowhere(call)
        if not name:
            return ""
        others = ", ".join(sorted(self._turn.pure - {call.name}))
        instead = f"look it up first ({others}), or correct the call" if others else "correct the call"
        return f"{name} {_NOWHERE}: {instead}.\nQuestion: {self._turn.question}"


def _names_not_looked_up(request: ModelRequest, turn: TurnSoFar) -> list[str]:
    """Return the names of the question that are in no call and no result. A word that describes a tool is not a name."""
    results = [result_text(result) for _, result in turn.calls if result is not None]
    heard = KnownNames([*[dump(call.args) for call, _ in turn.calls], *results])
    tools = KnownNames([f"{tool.name} {tool.description} {dump(tool.parameters)}" for tool in request.tools])
    return [name for name in named_in(turn.question) if not heard.has(name) and not tools.has(name)]


def copied_argument(part: Part, tools: Sequence[ToolSpec]) -> str:
    """Return a remark about an argument that only repeats its own description, as small models do."""
    spec = next((tool for tool in tools if isinstance(part, ToolCall) and tool.name == part.name), None)
    if spec is None or not isinstance(part, ToolCall) or not isinstance(part.args, Mapping):
        return ""
    lines = describe_tool(spec)
    for name, value in part.args.items():
        if isinstance(value, str) and len(value) >= _LONG and value in lines:
            return f"{name!r} repeats what the argument is for: write the real {name}, for this question."
    return ""


_LONG = 20  # characters
_NOWHERE = "is neither in the question nor in a result"


def _texts_before(request: ModelRequest, turn: TurnSoFar) -> list[str]:
    """Return the texts of the conversation, of results and calls of tools, and of the parameters that tools accept."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    texts = [message.text for message in request.messages] + [result_text(result) for result in results]
    texts += [dump(call.args) for call, result in turn.calls if result is not None and not result.is_error]
    return texts + [dump(tool.parameters) for tool in request.tools]
