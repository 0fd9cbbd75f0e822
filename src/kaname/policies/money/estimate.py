"""Estimate of one call: an upper bound of the tokens of its request, what it can cost at most, and how long its reply can be
for what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

from ...core.codec import dump
from ...core.messages import Media, Message, ModelRequest, Provided, Text, Thinking, ToolCall, ToolResult, ToolSpec, Usage
from ...core.record import replace
from ...core.values import plain_text
from ...kernel.bases import ModelBase, model_info, optional

_LEAST = 128  # tokens; a shorter reply is of no use
_OVERHEAD = 16  # tokens around a message
_SLACK, _TOOLS = 64, 1_000  # tokens that a provider adds, without and with tools


class Measured(NamedTuple):
    """A request that was answered, and the input tokens that its provider counted."""

    messages: tuple[Message, ...]
    rest: int
    tokens: int
    tools: tuple[ToolSpec, ...]
    schema: Mapping[str, Any] | None
    model: Any  # others count otherwise


def bound_input(request: ModelRequest, model: Any, last: Measured | None) -> tuple[int | None, Measured]:
    """Return an upper bound of the input tokens, or None if there is none, and the measure for the next request.

    A tokenizer never makes more tokens of a text than it has bytes. What the provider has counted before need not be counted
    again: if this request continues the last one, only what was added is.
    """
    tools, schema = request.tools, request.schema
    rest = last.rest if last is not None and last.tools is tools and last.schema is schema else _rest(request)
    known = 0
    if last is not None and last.model is model and last.rest == rest and _continues(request.messages, last.messages):
        known, counted = len(last.messages), last.tokens + _SLACK
    else:
        counted = rest + _SLACK + (_TOOLS if request.tools else 0)
    for message in request.messages[known:]:
        if (size := _bytes(message, model_info(model).picture_tokens)) is None:
            return None, Measured(request.messages, rest, 0, tools, schema, model)
        counted += size + _OVERHEAD
    return counted, Measured(request.messages, rest, 0, tools, schema, model)


def _rest(request: ModelRequest) -> int:
    """Return the bytes of what is not in the messages."""
    count = len(dump([[tool.name, tool.description, tool.parameters] for tool in request.tools]).encode())
    return count + (len(dump(request.schema).encode()) if request.schema is not None else 0)


def remember(measured: Measured, usage: Usage) -> Measured | None:
    """Return the measure of an answered request, if its provider has counted the input."""
    return measured._replace(tokens=usage.input) if usage.input else None


def _continues(messages: tuple[Message, ...], before: tuple[Message, ...]) -> bool:
    return len(messages) >= len(before) and all(map(is_, messages, before))


def _bytes(message: Message, picture: int) -> int | None:
    """Return the bytes of a message, with so many for a picture; None for media whose tokens have no known bound."""
    count = 0
    for part in message.parts:
        match part:
            case Text(text) | Thinking(text):
                count += len(text.encode("utf-8", "replace"))
            case ToolCall(_, name, args):
                count += len(name.encode()) + len(dump(args).encode("utf-8", "replace"))
            case ToolResult():
                shown = part.error or (plain_text(part.output) if part.shown is None else part.shown)
                count += len(shown.encode("utf-8", "replace")) + picture * len(part.media)
            case Provided(_, data):
                count += len(dump(data).encode("utf-8", "replace"))
            case _:
                count += picture
        for one in (part,) if isinstance(part, Media) else part.media if isinstance(part, ToolResult) else ():
            if not one.mime.startswith("image/"):
                return None
    return count


class Estimate:
    """`tokens_in`: an upper bound of the input, or None. `longest`: the longest reply, if the settings have no bound.
    `share`: the part of what is left that a reply may take, if it need not take all."""

    def __init__(self, request: ModelRequest, model: Any, tokens_in: int | None, longest: int, share: float = 1.0) -> None:
        self.request, self.model, self._input, self._share = request, model, tokens_in, share
        own = optional(model, ModelBase, "longest_reply")(request.settings)
        self._is_bounded, self.longest = own is not None, own or longest
        settings = {**model_info(model).settings, **request.settings}
        several = settings.get("n")
        self._times: int = model_info(model).rounds * (several if isinstance(several, int) and several > 1 else 1)
        self._base, self._piece = self._price(0), 0.0
        self.most = self._price(self.longest)
        if self.most is not None and self._base is not None:
            self._piece = (self.most - self._base) / self.longest
        self._binds = False  # there is a limit that the length of the reply counts for
        self.left: float | None = None  # of the tightest limit on money, before this call

    def _price(self, output: int) -> float | None:
        if self._input is None:
            return None
        found: float | None = optional(self.model, ModelBase, "most_expensive")(self.request, self._input, output)
        return None if found is None else found * self._times

    def cost(self, output: int) -> float | None:
        """Return the highest cost of a reply with so many tokens; None if it is unknown."""
        return None if self._base is None else self._base + self._piece * output

    def tokens(self, output: int) -> int:
        return ((self._input or 0) + output) * self._times

    def output_for(self, dollars: Sequence[float], tokens: Sequence[float], longest: int = 0) -> int:
        """Return the number of tokens that a reply can have for the remaining money and tokens; 0 if they do not suffice."""
        most = min(self.longest, longest) if longest else self.longest
        least = min(most, _LEAST)
        self._binds = self._binds or bool(tokens) or bool(dollars and self.most)
        if dollars:
            left = min(dollars)
            self.left = left if self.left is None else min(left, self.left)
            if left < 0 or (left == 0 and self.most != 0):
                return 0
        for share in (self._share, 1.0):
            output = self._affordable(float(most), [one * share for one in dollars], [one * share for one in tokens])
            if output >= least:
                return int(output)
        return 0

    def _affordable(self, output: float, dollars: Sequence[float], tokens: Sequence[float]) -> float:
        if dollars and self._base is not None and self.most:
            left = min(dollars)
            output = min(output, (left - self._base) / self._piece if self._piece else output if left >= self._base else 0)
        return min(output, min(tokens) / self._times - (self._input or 0)) if tokens else output

    @property
    def least(self) -> int:
        """Return the shortest reply that is of use."""
        return min(self.longest, _LEAST)

    @property
    def size_is_unknown(self) -> bool:
        return self._input is None

    def limit_request(self, output: int) -> ModelRequest:
        """Return the request with settings that allow no longer reply."""
        if not self._binds or (self._is_bounded and output >= self.longest):
            return self.request
        return replace(self.request, settings=optional(self.model, ModelBase, "shorten_replies")(self.request.settings, output))
