"""Calls and answers between tags: `<tool_call>`, `<function=…>`, `<invoke name=…>`, `<action>` with `<action_input>`, and others."""

from __future__ import annotations

import re

from ..core.record import record

CALL_TAG = re.compile(r"<tool_call>|<function=|<invoke\s|<function_calls>|\[TOOL_CALLS\]|<(?:action|tool|tool_name)>", re.IGNORECASE)
_LONGEST = 16  # characters of the longest of these tags
_PARAMETER = re.compile(r"<parameter(?:=|\s+name=)[\"']?([\w.\-]{1,80})[\"']?\s*>(.*?)(?:</parameter>|(?=<parameter)|\Z)", re.DOTALL)
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


@record
class TaggedCall:
    """`body` is JSON that names the tool, unless `name` does; `pairs` are arguments that had tags of their own."""

    before: str
    body: str
    name: str = ""
    pairs: tuple[tuple[str, str], ...] = ()


def tagged_call(text: str) -> TaggedCall | None:
    """The first call between tags."""
    tag = CALL_TAG.search(text)
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


def with_labels(text: str) -> str:
    """Tags as labels, where a line begins with one: `<action>search</action>` is `Action: search`."""
    first = re.search(rf"^[ \t]{{0,8}}<(?:{'|'.join(_WORDS)})>", text, re.MULTILINE | re.IGNORECASE)
    if first is None:
        return text
    rest = _LABEL_TAG.sub(lambda tag: "\n" if tag[1] else f"\n{_WORDS[tag[2].lower()]}: ", text[first.start() :])
    return text[: first.start()] + rest


class TagWatch:
    """Whether a tag of a call was among what was fed, wherever it was cut."""

    def __init__(self) -> None:
        self._tail = ""
        self.seen = False

    def feed(self, text: str) -> None:
        if not self.seen:
            text = self._tail + text
            self.seen = CALL_TAG.search(text) is not None
            self._tail = text[-_LONGEST:]
