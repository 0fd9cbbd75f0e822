"""Calls and answers between tags: `<tool_call>`, `<function=…>`, `<invoke name=…>`, `<action>`, `<answer>`."""

from __future__ import annotations

import re

from ..core.record import record

CALL_TAG = re.compile(
    r"<tool_call>|<function=|<invoke\s|<function_calls>|\[TOOL_CALLS\]|<(?:action|tool|tool_name)>", re.IGNORECASE
)
_LONGEST = 16  # characters of the longest of these tags
_PARAMETER = re.compile(
    r"<parameter(?:=|\s+name=)[\"']?([\w.\-]{1,80})[\"']?\s*>(.*?)(?:</parameter>|(?=<parameter)|\Z)", re.DOTALL
)
_FUNCTION = re.compile(r"<(?:function=|invoke\s+name=)[\"']?([\w.\-]{1,80})[\"']?\s*>", re.IGNORECASE)
_WORDS = {
    "thought": "Thought",
    "thinking": "Thought",
    "reasoning": "Thought",
    "action": "Action",
    "tool": "Action",
    "tool_name": "Action",
    "action_input": "Action Input",
    "tool_input": "Action Input",
    "input": "Action Input",
    "parameters": "Action Input",
    "observation": "Observation",
    "result": "Observation",
    "final_answer": "Final Answer",
    "answer": "Final Answer",
}
_LABEL_TAG = re.compile(rf"<(/?)({'|'.join(_WORDS)})>[ \t]{{0,4}}", re.IGNORECASE)
_FIRST = "thought|thinking|reasoning|action|tool|tool_name|final_answer|answer"
_MIDWAY = ("action", "tool", "tool_name", "final_answer", "answer")
_LINE_TAG = re.compile(rf"^[ \t]{{0,8}}<({_FIRST})>", re.MULTILINE | re.IGNORECASE)
_ANY_TAG = re.compile(rf"{CALL_TAG.pattern}|<(?:{'|'.join(_WORDS)})>", re.IGNORECASE)


@record
class TaggedCall:
    """`body` is JSON that names the tool, unless `name` does; `pairs` are arguments that had tags of their own."""

    before: str
    body: str
    name: str = ""
    pairs: tuple[tuple[str, str], ...] = ()


def tagged_call(text: str) -> TaggedCall | None:
    """The first call between tags."""
    tag = next((one for one in CALL_TAG.finditer(text) if text[one.start() - 1 : one.start()] != "`"), None)
    if tag is None or tag[0][1:].lower() in ("action>", "tool>", "tool_name>"):
        return None
    before, inside = text[: tag.start()].strip(), text[tag.start() :]
    function = _FUNCTION.search(inside)
    end = inside.find("</tool_call>")
    if function is None or 0 <= end < function.start():
        body = inside[tag.end() - tag.start() :]
        return TaggedCall(before, body.split("</tool_call>", 1)[0].strip())
    body = re.split(r"</(?:function|invoke|tool_call)>", inside[function.end() :], maxsplit=1)[0]
    pairs = tuple([(name, value.strip()) for name, value in _PARAMETER.findall(body)])
    return TaggedCall(before, "" if pairs else body.strip(), function[1], pairs)


def first_label_tag(text: str) -> int:
    """Where a tag that is as good as a label begins the text, or a line of it, and is closed again; -1 if nowhere."""
    closed: dict[str, bool] = {}
    fences = place = 0
    for tag in _LINE_TAG.finditer(text):
        fences, place = fences + text.count("```", place, tag.start()), tag.start()
        if fences % 2:
            return -1
        if tag[1] not in closed:
            closed[tag[1]] = f"</{tag[1]}>" in text
        if not tag.start() or (tag[1].lower() in _MIDWAY and closed[tag[1]]):
            return tag.start()
    return -1


def with_labels(text: str, start: int) -> str:
    """Tags as labels from there on: `<action>search</action>` is `Action: search`. An answer keeps the tags that are in it."""
    out, place = [text[:start]], start
    while (tag := _LABEL_TAG.search(text, place)) is not None:
        out.append(text[place : tag.start()])
        word = _WORDS[tag[2].lower()]
        out.append("\n" if tag[1] else f"\n{word}: ")
        place = tag.end()
        if word == "Final Answer" and not tag[1]:
            end = text.find(f"</{tag[2]}>", place)
            return "".join([*out, text[place:] if end < 0 else text[place:end]])
    return "".join([*out, text[place:]])


class TagWatch:
    """Whether a tag of the protocol was among what was fed, wherever it was cut."""

    def __init__(self) -> None:
        self._tail = ""
        self.seen = False

    def feed(self, text: str) -> None:
        if not self.seen:
            text = self._tail + text
            self.seen = _ANY_TAG.search(text) is not None
            self._tail = text[-_LONGEST:]
