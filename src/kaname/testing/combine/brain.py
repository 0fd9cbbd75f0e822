"""A scripted model that obeys every instruction it reads, whoever wrote it.

An instruction is a number in brackets, such as `[[3]]`, somewhere in the request: in the words of the user, in a tool result,
in a file. `orders[3]` says which calls it stands for. The reply depends on the request only, so that a run that was killed and
resumed gets the same replies.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.messages import Media, Message, ModelRequest, Text, ToolCall, ToolResult, Usage
from ...models.prices import Price
from ...models.providers.scripted import ScriptedModel, call
from .ledger import ModelSaw, OutsideLedger, root

_ORDER = re.compile(r"\[\[(\d+)\]\]")
Order = Sequence[tuple[str, Mapping[str, Any]]]
USAGE = Usage(100, 50)


@dataclass
class Brain:
    """What the model knows: the orders by number, and the marks of users that it repeats in its answer."""

    ledger: OutsideLedger
    orders: dict[int, Order] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    sentences: dict[int, str] = field(default_factory=dict)  # the orders in words, for an agent that passes them on
    at_once: int = 1  # how many orders it follows in one reply
    price: Price | None = None
    name: str = "scripted"
    held: set[int] = field(default_factory=set)  # orders that are followed only when somebody says "Go ahead"
    revisions: int = 0  # how often a plan is found wanting and written again, in other words
    lure: tuple[str, str, str] | None = None  # a plan gives this tool the argument from that field of what it reads

    def model(self, name: str = "", says: str = "Done.", price: Price | None = None) -> ScriptedModel:
        """Return a model that obeys, and writes what it sees into the ledger."""
        named, price = name or self.name, price or self.price
        return ScriptedModel(lambda request: self.reply(request, named, says, price), name=named, usage=USAGE, price=price)

    def reply(self, request: ModelRequest, name: str, says: str, price: Price | None = None) -> Any:
        """Return the calls of the next order that was read and not yet followed, or the last words."""
        text = text_of(request.messages)
        wanted = (request.schema or {}).get("properties", {})
        if "steps" in wanted:
            reply: Any = self._plan(text)
        elif "is_successful" in wanted:
            reply = self._verdict(request)
        else:
            reply = self._next_order(request, text) or self._last_words(request, text, says)
        calls = [part for part in (reply if isinstance(reply, list) else [reply]) if isinstance(part, ToolCall)]
        if "steps" in wanted:
            calls = [call(one["tool_name"], **one["arguments"]) for one in json.loads(reply)["steps"]]
        cost = 0.0 if price is None else price.of(USAGE) or 0.0
        said = reply if isinstance(reply, str) else ""
        self.ledger.seen.append(
            ModelSaw(
                self.ledger.now(),
                name,
                text,
                tuple(_read_call(one) for one in calls),
                said,
                root.get(),
                cost,
                _last(request.messages),
            )
        )
        return reply

    def _next_order(self, request: ModelRequest, text: str) -> list[ToolCall] | None:
        """Return the calls of the first order that was not followed yet, as far as the tools for it are offered."""
        offered = {tool.name for tool in request.tools}
        made = Counter(_read_call(part)[0] for one in request.messages for part in one.parts if isinstance(part, ToolCall))
        turn = sum(made.values())
        found: list[ToolCall] = []
        for number in self._read(text):
            order = self.orders[number]
            if made[order[0][0]]:
                made.subtract(tool for tool, _ in order)
            elif order[0][0] in offered or "use_tool" in offered:
                found += [_call_for(tool, args, offered, turn) for tool, args in order]
            if len(found) >= self.at_once:
                break
        return found or None

    def _read(self, text: str) -> list[int]:
        """Return the numbers of the orders that stand in the text, in their order."""
        numbers = [int(number) for number in dict.fromkeys(_ORDER.findall(text))]
        return [one for one in numbers if one in self.orders and (one not in self.held or "Go ahead" in text)]

    def _plan(self, text: str) -> str:
        """Return a plan of all orders. A later plan writes equal calls in another way."""
        calls = [one for number in self._read(text) for one in self.orders[number]]
        later = '"steps"' in text.split("Write another plan")[0] and "Write another plan" in text
        steps = [
            {"name": f"s{place}", "tool_name": tool, "arguments": _other_words(args, later)}
            for place, (tool, args) in enumerate(calls)
        ]
        reading = next((step["name"] for step in steps if step["tool_name"] == "read_mail"), None)
        if self.lure is not None and reading is not None:
            tool, name, field_name = self.lure
            rest = {"yen": 70} if tool == "pay" else {}
            steps.append({"name": "lured", "tool_name": tool, "arguments": {**rest, name: f"${{{reading}.{field_name}}}"}})
        return json.dumps(
            {"description": "all of it", "steps": steps or [{"name": "none", "tool_name": "lookup", "arguments": {"q": "x"}}]}
        )

    def _verdict(self, request: ModelRequest) -> str:
        tries = sum(one.role == "assistant" and "is_successful" in one.text for one in request.messages)
        good = tries >= self.revisions
        verdict = {
            "is_successful": good,
            "should_retry": not good,
            "feedback": "Write it again.",
            "reason": "",
            "answer": "Done.",
        }
        return json.dumps(verdict)

    def _last_words(self, request: ModelRequest, text: str, says: str) -> str:
        """Return the answer. It repeats the marks of users, and passes on orders for tools that this agent does not have."""
        offered = {tool.name for tool in (*request.tools, *request.unoffered)}
        passed = [self.sentences.get(one, "") for one in self._read(text) if self.orders[one][0][0] not in offered]
        passed += [self.sentences.get(one, "") for one in sorted(self.held) if f"[[{one}]]" in text and "Go ahead" not in text]
        return " ".join([says, *[mark for mark in self.marks if mark in text], *(passed if offered else [])])


def _call_for(tool: str, args: Mapping[str, Any], offered: set[str], turn: int) -> ToolCall:
    """Return the call, through `use_tool` if the tool must be looked up. Models write its arguments in two ways."""
    if tool not in offered and "use_tool" in offered:
        return call("use_tool", name=tool, **{"arguments" if len(tool) % 2 == turn % 2 else "args": dict(args)})
    return call(tool, **args)


def _other_words(args: Mapping[str, Any], later: bool) -> dict[str, Any]:
    """Return equal arguments in other words: `100.0` for `100`, and a default written out."""
    if not later:
        return dict(args)
    return {name: float(value) if type(value) is int else value for name, value in args.items()}


def _read_call(sent: ToolCall) -> tuple[str, Mapping[str, Any]]:
    args = sent.args if isinstance(sent.args, Mapping) else {}
    if sent.name == "use_tool":
        return str(args.get("name")), args.get("args") or args.get("arguments") or {}
    return sent.name, args


def text_of(messages: Sequence[Message]) -> str:
    """Return everything in the messages that a model can read, apart from its own calls."""
    return "\n".join(_text_of_part(part) for message in messages for part in message.parts)


def _text_of_part(part: Any) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, ToolResult):
        shown = part.shown if part.shown is not None else part.output
        said = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, default=str)
        return f"{said} {part.error or ''}" + "".join(_text_of_part(one) for one in part.media)
    if isinstance(part, Media):
        return f"{base64.b64decode(part.data).decode('utf-8', 'replace') if part.mime.startswith('text/') else ''} {part.url}"
    return ""


def _last(messages: Sequence[Message]) -> tuple[str, str]:
    return (messages[-1].role, _text_of_part(messages[-1].parts[-1]) if messages[-1].parts else "") if messages else ("", "")
