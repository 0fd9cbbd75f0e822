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
from .labels import label_of
from .sections import Section, Sections

_CALL_KEY = re.compile(r"""["'](?:action|tool|tool_name|action_input|arguments)["']\s{0,8}:""")
_OBJECTS = 5
UNCLEAR = "Is a tool to be called? It was not clear, so none was."
_ALONE = (
    f"{UNCLEAR} If {{name}} is meant, write only a thought, the action, and its input as one JSON object, and nothing else."
)
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
        return _reading_of(sections, tools, careful)
    except TwoReadings as problem:
        return ReplyReading(_thoughts(sections.found), problem=f"the input was {problem}")


def _reading_of(sections: Sections, tools: Tools, careful: Collection[str]) -> ReplyReading:
    found = [section for section in sections.found if section.text]
    found = [section for section in found if section.kind != "bare" or section.text.strip("`")]  # but the edge of a code block
    labelled = any(section.kind in ("action", "answer") for section in found)
    if (not sections.raw and not labelled) or (found and found[-1].kind == "think"):
        what = "the thought never ended" if sections.raw else "the reply was empty"
        return ReplyReading(_thoughts(found), problem=what)
    if not found:
        return ReplyReading(problem="it began with an observation, which only the user gives")
    first = next((section for section in found if section.kind in ("action", "answer") or has_call_tag(section.text)), None)
    if first is not None and first.kind == "thought" and (call := tagged_call(first.text, tools)) is not None:
        return _run(call._replace(alone=call.alone and first is found[-1]), tools, careful)
    if first is not None and first.kind in ("action", "answer"):
        reading = _read_labelled(found, first, sections.raw, tools, careful)
        cut = sections.guessed and reading.action in careful
        return ReplyReading(reading.thought, problem=_ALONE.format(name=reading.action)) if cut else reading
    thoughts = _thoughts(found)
    if found[0].kind != "bare" and any(section.kind in ("thought", "input") for section in found):
        return ReplyReading(thoughts, problem="there was neither an action nor a final answer")
    bare = "\n".join([section.text for section in found if section.kind == "bare"])
    reading = _read_unlabelled(bare, sections.raw, tools, careful)
    return replace(reading, thought=reading.thought or thoughts)


def _read_labelled(found: list[Section], first: Section, raw: str, tools: Tools, careful: Collection[str]) -> ReplyReading:
    place = found.index(first)
    before, thoughts = found[:place], _thoughts(found[:place], bare=True)
    if first.kind == "answer":
        return ReplyReading(thoughts, answer=first.text)
    following = next((section for section in found[place + 1 : place + 2] if section.kind == "input"), None)
    given = None if following is None else following.text
    call = _action(first.text, given, tools)
    known = call is not None and bool(tool_named(call.name, tools) or is_end(call.name, tools))
    prose = bool(before) and before[-1].kind == "bare"
    if call is None or not known or (is_end(call.name, tools) and not call.args):
        answer = next((section.text for section in found[place:] if section.kind == "answer"), "")
        if answer:
            return ReplyReading(thoughts, answer=answer)
        if prose:
            return _read_prose(raw, tools)  # the word has another meaning here
        if call is None:
            broken = is_broken(strip_fence(first.text))
            why = f"the action was {why_unreadable(first.text)}" if broken else "the action named no tool"
            return ReplyReading(thoughts, problem=why)
    if prose and known and (following is None or not following.strong):
        return ReplyReading(
            prose=raw, problem=f"{UNCLEAR} If so, write a thought before the action, and nothing after its input."
        )
    rest = found[place + (1 if given is None else 2) :]
    plain = _is_plain(first.text if given is None else given) or (given is not None and _takes_all(call.name, tools))
    clear = plain and not any(section.kind == "bare" for section in before)
    return _run(call._replace(thought=thoughts or call.thought, alone=call.alone and clear and not rest), tools, careful)


def _is_plain(text: str) -> bool:
    """Return True for one line, one code block or one JSON object: it is clear where it ends."""
    text = strip_fence(text)
    return "\n" not in text or (text[:1] == "{" and text[-1:] == "}")


def _takes_all(name: str, tools: Tools) -> bool:
    """True if the tool takes its whole input as one text, however many lines it has."""
    return list((tools.get(tool_named(name, tools)) or {}).get("properties") or ()) == [ONE_TEXT]


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


def _read_unlabelled(text: str, raw: str, tools: Tools, careful: Collection[str]) -> ReplyReading:
    """Read a text without labels: a call, if it is the whole text, else the answer."""
    whole = strip_fence(text)
    if whole[:1] in ("{", "["):
        call = json_call(whole, tools)
        if call is not None and (call.certain or tool_named(call.name, tools) or is_end(call.name, tools)):
            return _run(call, tools, careful)
        if call is None and is_broken(whole) and _CALL_KEY.search(whole) and not _objects(whole):
            return ReplyReading(problem=f"the reply was {why_unreadable(whole)}")
    if has_call_tag(text):
        call = tagged_call(text, tools)
        return ReplyReading(problem="the tool call was not readable JSON") if call is None else _run(call, tools, careful)
    call = bracket_call(text, tools)
    if call is not None and (is_end(call.name, tools) or (call.alone and tool_named(call.name, tools))):
        return _run(call, tools, careful)
    return _read_prose(raw, tools)


def _read_prose(text: str, tools: Tools) -> ReplyReading:
    """Read a text as the answer, unless it contains a call that is neither in the right form nor only mentioned."""
    lines = [line.strip("> \t") for line in text.split("\n")]
    if any(_is_call(piece, tools) for piece in (*_objects(text), *lines)) or text.startswith(("```tool_code", "<|channel|>")):
        return ReplyReading(prose=text, problem="a call of a tool stands in it, but not in the form that was asked for")
    return ReplyReading(answer=text)


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


def _run(call: WrittenCall, tools: Tools, careful: Collection[str]) -> ReplyReading:
    if is_end(call.name, tools):
        answer = call.args if isinstance(call.args, str) else plain_text(call.args)
        if not answer.strip():
            return ReplyReading(call.thought, problem="the final answer was empty")
        return ReplyReading(call.thought, answer=answer.strip())
    name = tool_named(call.name, tools) or call.name
    if isinstance(call.args, str) and is_broken(call.args):
        return ReplyReading(call.thought, problem=f"the input was {why_unreadable(call.args)}")
    if name in careful and not (call.alone and _fits(call.args, tools.get(name) or {})):
        return ReplyReading(call.thought, problem=_ALONE.format(name=name))
    return ReplyReading(call.thought, name, call.args)


def _fits(args: Mapping[str, Any] | str, schema: Mapping[str, Any]) -> bool:
    """Return True if all required arguments are there, none is unknown, and no value is empty or the parameter's own name."""
    properties = schema.get("properties") or {}
    if not isinstance(args, Mapping) or any(value in ("", name) for name, value in args.items()):
        return False
    return set(schema.get("required") or ()) <= set(args) <= set(properties or args)
