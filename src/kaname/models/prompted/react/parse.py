"""Read a ReAct reply: one call, or the answer, or the reason why it is neither.

A call is run only in a form of the protocol: under the label `Action:`, or as the whole of a reply that is one JSON object, one
tag or one `name[…]`. The first action or answer counts: what follows was written without knowing the result. A tool that
changes something is called only if nothing else stands in the reply but thoughts and that call, with arguments that fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from ....core.reading.lenient_json import TwoReadings
from ....core.record import record, replace
from ....core.values import plain_text
from .arguments import ONE_TEXT, is_broken, strip_fence, why_unreadable
from .calls import Tools, WrittenCall, arguments_of, bracket_call, has_call_tag, is_end, json_call, tagged_call, tool_named
from .sections import Section, Sections, label_of

_CALL_KEY = re.compile(r"""["'](?:action|tool|tool_name|action_input|arguments)["']\s{0,8}:""")
_OBJECTS = 5
UNCLEAR = "Is a tool to be called? It was not clear, so none was."
_ALONE = (
    f"{UNCLEAR} If {{name}} is meant, write only a thought, the action, and its input as one JSON object, and nothing else."
)
_NO_THOUGHT = f"{UNCLEAR} If so, write a thought before the action, and nothing after its input."
_DECIDING = ("action", "answer")
_HEAD = re.compile(r"[\[(［（:：|\"]|->|→")
_NAMED = re.compile(r"(?P<name>[^:：\n]{1,80})[:：](?P<given>.*)", re.DOTALL)


@record
class ReplyReading:
    """The content of a reply: `action` and `args`, or `answer`, or the `problem` in words for the model.

    A problem that begins with `UNCLEAR` is a question to the model: the reply could be read, but the intention is unclear.
    `prose`: a whole reply without labels that contains something like a call. If the model insists, it is the answer.
    """

    thought: str = ""
    action: str = ""
    args: Mapping[str, Any] | str = ""
    answer: str = ""
    problem: str = ""
    prose: str = ""


def read_reply(text: str, tools: Tools, careful: Collection[str] = ()) -> ReplyReading:
    """Read a whole reply. `careful`: the tools that change something."""
    sections = Sections()
    sections.feed(text)
    sections.finish()
    return reading_of(sections, tools, careful)


def reading_of(sections: Sections, tools: Tools, careful: Collection[str] = ()) -> ReplyReading:
    try:
        return _Reader(sections, tools, careful).read()
    except TwoReadings as problem:
        return ReplyReading(_thoughts(sections.found), problem=f"the input was {problem}")


class _Reader:
    """Reads the sections of one reply."""

    def __init__(self, sections: Sections, tools: Tools, careful: Collection[str]) -> None:
        written = [section for section in sections.found if section.text]
        self._found = [one for one in written if one.kind != "bare" or one.text.strip("`")]  # not the edge of a code block
        self._raw, self._is_cut = sections.raw, sections.guessed
        self._tools, self._careful = tools, careful

    def read(self) -> ReplyReading:
        found, thoughts = self._found, _thoughts(self._found)
        if missing := self._missing():
            return ReplyReading(thoughts, problem=missing)
        place = next((n for n, one in enumerate(found) if one.kind in _DECIDING or has_call_tag(one.text)), None)
        if place is not None and (reading := self._read_first(place)) is not None:
            return reading
        if found[0].kind != "bare" and any(one.kind in ("thought", "input") for one in found):
            return ReplyReading(thoughts, problem="there was neither an action nor a final answer")
        reading = self._read_unlabelled("\n".join([one.text for one in found if one.kind == "bare"]))
        return replace(reading, thought=reading.thought or thoughts)

    def _read_first(self, place: int) -> ReplyReading | None:
        """Read the first section that may decide what the reply is; None if it decides nothing."""
        first = self._found[place]
        if first.kind == "answer":
            return ReplyReading(_thoughts(self._found[:place], bare=True), answer=first.text)
        if first.kind == "action":
            reading = self._read_action(place)
            cut = self._is_cut and reading.action in self._careful
            return ReplyReading(reading.thought, problem=_ALONE.format(name=reading.action)) if cut else reading
        call = tagged_call(first.text, self._tools) if first.kind == "thought" else None
        return None if call is None else self._run(call._replace(alone=call.alone and first is self._found[-1]))

    def _missing(self) -> str:
        """Return the problem of a reply that says nothing; "" if it says something."""
        if self._found and self._found[-1].kind == "think":
            return "the thought never ended" if self._raw else "the reply was empty"
        if not self._raw and not any(one.kind in _DECIDING for one in self._found):
            return "the reply was empty"
        return "" if self._found else "it began with an observation, which only the user gives"

    def _read_action(self, place: int) -> ReplyReading:
        """Read the section under `Action:`, with its input."""
        before, first, rest = self._found[:place], self._found[place], self._found[place + 1 :]
        thoughts, in_prose = _thoughts(before, bare=True), bool(before) and before[-1].kind == "bare"
        given = rest.pop(0) if rest and rest[0].kind == "input" else None
        call = _action(first.text, None if given is None else given.text, self._tools)
        answer = next((one.text for one in rest if one.kind == "answer"), "")
        if call is None and not answer and not in_prose:
            return ReplyReading(thoughts, problem=_why_no_action(first.text))
        if call is None or (not self._says_something(call) and (answer or in_prose)):  # the word may have another meaning here
            return ReplyReading(thoughts, answer=answer) if answer else self._read_prose()
        if in_prose and (given is None or not given.strong):
            return ReplyReading(prose=self._raw, problem=_NO_THOUGHT)
        alone = call.alone and not rest and all(one.kind != "bare" for one in before)
        alone = alone and self._ends_clearly(call.name, first, given)
        return self._run(call._replace(thought=thoughts or call.thought, alone=alone))

    def _says_something(self, call: WrittenCall) -> bool:
        """Return True if the call is of a known tool, or the end with an answer."""
        if is_end(call.name, self._tools):
            return bool(call.args)
        return bool(tool_named(call.name, self._tools))

    def _ends_clearly(self, name: str, action: Section, given: Section | None) -> bool:
        """Return True if it is clear where the input ends: it is one line, block or object, or the tool takes any text."""
        if given is None:
            return _is_plain(action.text)
        return _is_plain(given.text) or self._properties(name) == [ONE_TEXT]

    def _properties(self, name: str) -> list[str]:
        return list((self._tools.get(tool_named(name, self._tools)) or {}).get("properties") or ())

    def _read_unlabelled(self, text: str) -> ReplyReading:
        """Read a text without labels: a call, if it is the whole text, else the answer."""
        if (reading := self._read_json(strip_fence(text))) is not None:
            return reading
        if has_call_tag(text):
            call = tagged_call(text, self._tools)
            return ReplyReading(problem="the tool call was not readable JSON") if call is None else self._run(call)
        call = bracket_call(text, self._tools)
        if call is not None and (is_end(call.name, self._tools) or (call.alone and tool_named(call.name, self._tools))):
            return self._run(call)
        return self._read_prose()

    def _read_json(self, text: str) -> ReplyReading | None:
        """Read a text that is one JSON object; None if it is another text, or no call."""
        if text[:1] not in ("{", "["):
            return None
        call = json_call(text, self._tools)
        if call is None:
            broken = is_broken(text) and _CALL_KEY.search(text) is not None and not _objects(text)
            return ReplyReading(problem=f"the reply was {why_unreadable(text)}") if broken else None
        known = call.certain or tool_named(call.name, self._tools) or is_end(call.name, self._tools)
        return self._run(call) if known else None

    def _read_prose(self) -> ReplyReading:
        """Read the reply as the answer, unless it contains a call that is neither in the right form nor only mentioned."""
        text = self._raw
        lines = [line.strip("> \t") for line in text.split("\n")]
        called = any(_is_call(piece, self._tools) for piece in (*_objects(text), *lines))
        if called or text.startswith(("```tool_code", "<|channel|>")):
            return ReplyReading(prose=text, problem="a call of a tool stands in it, but not in the form that was asked for")
        return ReplyReading(answer=text)

    def _run(self, call: WrittenCall) -> ReplyReading:
        """Return the reading of a call, or of the end, unless something is wrong with it."""
        if is_end(call.name, self._tools):
            answer = (call.args if isinstance(call.args, str) else plain_text(call.args)).strip()
            return ReplyReading(call.thought, answer=answer, problem="" if answer else "the final answer was empty")
        if isinstance(call.args, str) and is_broken(call.args):
            return ReplyReading(call.thought, problem=f"the input was {why_unreadable(call.args)}")
        name = tool_named(call.name, self._tools) or call.name
        if name in self._careful and not (call.alone and _fits(call.args, self._tools.get(name) or {})):
            return ReplyReading(call.thought, problem=_ALONE.format(name=name))
        return ReplyReading(call.thought, name, call.args)


def _why_no_action(text: str) -> str:
    return f"the action was {why_unreadable(text)}" if is_broken(strip_fence(text)) else "the action named no tool"


def _is_plain(text: str) -> bool:
    """Return True for one line, one code block or one JSON object: it is clear where it ends."""
    text = strip_fence(text)
    return "\n" not in text or (text[:1] == "{" and text[-1:] == "}")


def _thoughts(found: list[Section], *, bare: bool = False) -> str:
    kinds = ("think", "thought", "bare") if bare else ("think", "thought")
    return "\n".join([section.text for section in found if section.kind in kinds])


def _action(text: str, given: str | None, tools: Tools) -> WrittenCall | None:
    """Return the call under the label: a name and its input, JSON, `name[…]`, or `name: input`."""
    text = strip_fence(text)
    if text[:1] in "{[" and (call := json_call(text, tools)) is not None:
        return call
    name, _, rest = text.partition("\n")
    head = _HEAD.split(name, maxsplit=1)[0]  # before a remark, `search (the web)`
    if given is not None and tool_named(head, tools):
        return WrittenCall(head, arguments_of(given, head, tools))
    if tool_named(name, tools) or is_end(name, tools):
        return WrittenCall(name, arguments_of(given if given is not None else rest, name, tools))
    if (call := bracket_call(text, tools)) is not None:
        return call
    if (split := _NAMED.fullmatch(text)) is not None and (tool_named(split["name"], tools) or is_end(split["name"], tools)):
        return WrittenCall(split["name"], arguments_of(split["given"], split["name"], tools))
    if not re.fullmatch(r"[\w.\-]+", name.strip("`*\"' .")):
        return None
    return WrittenCall(name.strip("`*\"' "), arguments_of(given if given is not None else rest, name, tools))


def _objects(text: str) -> list[str]:
    """Return the first JSON objects in a text."""
    found, place = list[str](), text.find("{")
    while place >= 0 and len(found) < _OBJECTS:
        try:
            _, end = json.JSONDecoder(strict=False).raw_decode(text, place)
        except (ValueError, RecursionError):
            return found
        found.append(text[place:end])
        place = text.find("{", end)
    return found


def _is_call(text: str, tools: Tools) -> bool:
    """Return True if a line or a code block is a call of a known tool."""
    label = label_of(text, "start")
    if label is not None and label.kind == "action":
        return bool(tool_named(_HEAD.split(label.rest, maxsplit=1)[0], tools))
    if text.lstrip()[:1] in ("{", "["):
        call = json_call(text, tools)
        return call is not None and bool(tool_named(call.name, tools) or (call.alone and is_end(call.name, tools)))
    call = bracket_call(text, tools)
    return call is not None and call.alone and call.name in tools


def _fits(args: Mapping[str, Any] | str, schema: Mapping[str, Any]) -> bool:
    """Return True if all required arguments are there, none is unknown, and no value is empty or the parameter's own name."""
    properties = schema.get("properties") or {}
    if not isinstance(args, Mapping) or any(value in ("", name) for name, value in args.items()):
        return False
    return set(schema.get("required") or ()) <= set(args) <= set(properties or args)
