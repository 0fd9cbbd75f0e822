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
from .arguments import is_broken, unfenced, why_unreadable
from .calls import Call, Tools, arguments_of, bracket_call, has_call_tag, is_end, json_call, tagged_call, tool_named
from .labels import label_of
from .sections import Section, Sections

_CALL_KEY = re.compile(r"""["'](?:action|tool|tool_name|action_input|arguments)["']\s{0,8}:""")
_OBJECTS = 5
_UNCLEAR = "it is not clear whether this call is to be made: write only a thought, the action, and its input as one JSON object"
_HEAD = re.compile(r"[\[(［（:：|\"]|->|→")
_NAMED = re.compile(r"(?P<name>[^:：\n]{1,80})[:：](?P<given>.*)", re.DOTALL)


@record
class Reading:
    """`action` and `args`, or `answer`, or the `problem`: what is wrong, in words for the model.

    Beside a problem, `thought` holds the words that become the answer if asking again does not help.
    """

    thought: str = ""
    action: str = ""
    args: Mapping[str, Any] | str = ""
    answer: str = ""
    problem: str = ""


def read(text: str, tools: Tools, careful: Collection[str] = ()) -> Reading:
    """`careful`: the tools that change something."""
    sections = Sections()
    sections.feed(text)
    sections.finish()
    return reading_of(sections, tools, careful)


def reading_of(sections: Sections, tools: Tools, careful: Collection[str] = ()) -> Reading:
    try:
        return _reading_of(sections, tools, careful)
    except TwoReadings as problem:
        return Reading(_thoughts(sections.found), problem=f"the input was {problem}")


def _reading_of(sections: Sections, tools: Tools, careful: Collection[str]) -> Reading:
    found = [section for section in sections.found if section.text]
    found = [section for section in found if section.kind != "bare" or section.text.strip("`")]  # but the edge of a code block
    labelled = any(section.kind in ("action", "answer") for section in found)
    if (not sections.raw and not labelled) or (found and found[-1].kind == "think"):
        what = "the thought never ended" if sections.raw else "the reply was empty"
        return Reading(_thoughts(found), problem=what)
    if not found:
        return Reading(problem="it began with an observation, which only the user gives")
    first = next((section for section in found if section.kind in ("action", "answer") or has_call_tag(section.text)), None)
    if first is not None and first.kind == "thought" and (call := tagged_call(first.text, tools)) is not None:
        return _run(call._replace(alone=call.alone and first is found[-1]), tools, careful)
    if first is not None and first.kind in ("action", "answer"):
        reading = _labelled(found, first, sections.raw, tools, careful)
        cut = sections.guessed and reading.action in careful
        return Reading(reading.thought, problem=_UNCLEAR) if cut else reading
    thoughts = _thoughts(found)
    if found[0].kind != "bare" and any(section.kind in ("thought", "input") for section in found):
        return Reading(thoughts, problem="there was neither an action nor a final answer")
    bare = "\n".join([section.text for section in found if section.kind == "bare"])
    reading = _read_unlabelled(bare, sections.raw, tools, careful)
    return replace(reading, thought=reading.thought or thoughts)


def _labelled(found: list[Section], first: Section, raw: str, tools: Tools, careful: Collection[str]) -> Reading:
    place = found.index(first)
    before, thoughts = found[:place], _thoughts(found[:place], bare=True)
    if first.kind == "answer":
        return Reading(thoughts, answer=first.text)
    following = next((section for section in found[place + 1 : place + 2] if section.kind == "input"), None)
    given = None if following is None else following.text
    call = _action(first.text, given, tools)
    known = call is not None and bool(tool_named(call.name, tools) or is_end(call.name, tools))
    prose = bool(before) and before[-1].kind == "bare"
    if call is None or not known or (is_end(call.name, tools) and not call.args):
        answer = next((section.text for section in found[place:] if section.kind == "answer"), "")
        if answer:
            return Reading(thoughts, answer=answer)
        if prose:
            return _read_prose(raw, tools)  # the word has another meaning here
        if call is None:
            broken = is_broken(unfenced(first.text))
            why = f"the action was {why_unreadable(first.text)}" if broken else "the action named no tool"
            return Reading(thoughts, problem=why)
    if prose and known and (following is None or not following.strong):
        return Reading(raw, problem="it is not clear whether this call is to be made: write a thought before the action")
    rest = found[place + (1 if given is None else 2) :]
    clear = _is_plain(first.text if given is None else given) and not any(section.kind == "bare" for section in before)
    return _run(call._replace(thought=thoughts or call.thought, alone=call.alone and clear and not rest), tools, careful)


def _is_plain(text: str) -> bool:
    """One line, one code block or one JSON object: it is clear where it ends."""
    text = unfenced(text)
    return "\n" not in text or (text[:1] == "{" and text[-1:] == "}")


def _thoughts(found: list[Section], *, bare: bool = False) -> str:
    kinds = ("think", "thought", "bare") if bare else ("think", "thought")
    return "\n".join([section.text for section in found if section.kind in kinds])


def _action(text: str, given: str | None, tools: Tools) -> Call | None:
    """The call under the label: a name and its input, JSON, `name[…]`, or `name: input`."""
    text = unfenced(text)
    if text[:1] in "{[" and (call := json_call(text, tools)) is not None:
        return call
    name, _, rest = text.partition("\n")
    head = _HEAD.split(name, maxsplit=1)[0]  # before a remark, `search (the web)`
    if given is not None and tool_named(head, tools):
        return Call(head, arguments_of(given, head, tools))
    if tool_named(name, tools) or is_end(name, tools):
        return Call(name, arguments_of(given if given is not None else rest, name, tools))
    if (call := bracket_call(text, tools)) is not None:
        return call
    if (split := _NAMED.fullmatch(text)) is not None and (tool_named(split["name"], tools) or is_end(split["name"], tools)):
        return Call(split["name"], arguments_of(split["given"], split["name"], tools))
    if not re.fullmatch(r"[\w.\-]+", name.strip("`*\"' .")):
        return None
    return Call(name.strip("`*\"' "), arguments_of(given if given is not None else rest, name, tools))


def _read_unlabelled(text: str, raw: str, tools: Tools, careful: Collection[str]) -> Reading:
    """No label: a call, if it is the whole of the text; else the answer."""
    whole = unfenced(text)
    if whole[:1] in ("{", "["):
        call = json_call(whole, tools)
        if call is not None and (call.certain or tool_named(call.name, tools) or is_end(call.name, tools)):
            return _run(call, tools, careful)
        if call is None and is_broken(whole) and _CALL_KEY.search(whole) and not _objects(whole):
            return Reading(problem=f"the reply was {why_unreadable(whole)}")
    if has_call_tag(text):
        call = tagged_call(text, tools)
        return Reading(problem="the tool call was not readable JSON") if call is None else _run(call, tools, careful)
    call = bracket_call(text, tools)
    if call is not None and (is_end(call.name, tools) or (call.alone and tool_named(call.name, tools))):
        return _run(call, tools, careful)
    return _read_prose(raw, tools)


def _read_prose(text: str, tools: Tools) -> Reading:
    """The answer, unless a call stands in it that is neither in the protocol's form nor clearly talked about."""
    lines = [line.strip("> \t") for line in text.split("\n")]
    if any(_is_call(piece, tools) for piece in (*_objects(text), *lines)) or text.startswith(("```tool_code", "<|channel|>")):
        return Reading(text, problem="a call of a tool stands in it, but not in the form that was asked for")
    return Reading(answer=text)


def _objects(text: str) -> list[str]:
    """The first JSON objects that stand in a text."""
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
    """Whether a line or a code block is a call of a known tool."""
    label = label_of(text, "start")
    if label is not None and label.kind == "action":
        return bool(tool_named(_HEAD.split(label.rest, maxsplit=1)[0], tools))
    if text.lstrip()[:1] in ("{", "["):
        call = json_call(text, tools)
        return call is not None and bool(tool_named(call.name, tools) or (call.alone and is_end(call.name, tools)))
    call = bracket_call(text, tools)
    return call is not None and call.alone and call.name in tools


def _run(call: Call, tools: Tools, careful: Collection[str]) -> Reading:
    if is_end(call.name, tools):
        answer = call.args if isinstance(call.args, str) else plain_text(call.args)
        if not answer.strip():
            return Reading(call.thought, problem="the final answer was empty")
        return Reading(call.thought, answer=answer.strip())
    name = tool_named(call.name, tools) or call.name
    if isinstance(call.args, str) and is_broken(call.args):
        return Reading(call.thought, problem=f"the input was {why_unreadable(call.args)}")
    if name in careful and not (call.alone and _fits(call.args, tools.get(name) or {})):
        return Reading(call.thought, problem=_UNCLEAR)
    return Reading(call.thought, name, call.args)


def _fits(args: Mapping[str, Any] | str, schema: Mapping[str, Any]) -> bool:
    """All that is required is there, nothing is unknown, and no value is empty or but the parameter's name."""
    properties = schema.get("properties") or {}
    if not isinstance(args, Mapping) or any(value in ("", name) for name, value in args.items()):
        return False
    return set(schema.get("required") or ()) <= set(args) <= set(properties or args)
