"""Reading ReAct text as a person would: thoughts, one action with its input, or the final answer.

Models write it in many dialects: numbered and bold labels, Japanese ones, none at all; `search[…]`, `search("…")`, JSON; an
observation that they made up. What comes first counts: an answer after an action, or a second action, was written blindly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..core.record import record, replace
from .react_input import arguments_for, bracketed, json_action, json_value, tool_named, unfenced

_WORDS = {
    "answer": ("final answer", "answer", "最終回答", "最終的な回答", "回答", "答え"),
    "input": ("action input", "tool input", "input", "行動の入力", "行動入力", "アクションの入力", "アクション入力", "入力"),
    "thought": ("thought", "思考", "考え"),
    "action": ("action", "行動", "アクション"),
    "observation": ("observation", "観察", "観測", "結果"),
}
LABELS = {word: kind for kind, words in _WORDS.items() for word in words}
_LABEL = "|".join([re.escape(word) for word in sorted(LABELS, key=len, reverse=True)]).replace(r"\ ", r"[ \t]+")
_BEFORE = r"[ \t\u3000>*_#•・\-]*(?:\d{1,2}[.)][ \t]+)?[*_]*(?:step[ \t]*\d+[ \t]*[-:.)–—]*[ \t]*)?"
LABELLED = re.compile(
    rf"^{_BEFORE}(?P<label>{_LABEL})[ \t]*\d*[ \t]*(?P<close>[*_]*)[ \t]*[:：][*_]*[ \t]*(?P<rest>.*)$", re.IGNORECASE
)
_BOXED = re.compile(rf"^[ \t]*【(?P<label>{_LABEL})】[ \t]*[:：]?[ \t]*(?P<rest>.*)$", re.IGNORECASE)
_HEADED = re.compile(rf"^[ \t]*(?:#+[ \t]*|[*_]{{2,}})(?P<label>{_LABEL})[ \t]*\d*[ \t]*[*_]*(?P<rest>)$", re.IGNORECASE)
_NOTHING = {"none", "n/a", "na", "null", "nothing", "-", "なし", "無し", "ない", "不要", "no action"}
_NO = {"none", "no", "nothing"}
_ENDS = {"finish", "final answer", "final_answer", "finalanswer", "answer", "最終回答", "回答", "終了"}
_THINK = re.compile(r"\A\s*<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"```[\w-]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_GLUED = re.compile(r"(?:final answer|最終回答)[ \t]*[:：][ \t]*(\S.*)\Z", re.IGNORECASE | re.DOTALL)
_SPECIAL = re.compile(r"(?:<\|[^|<>\n]{1,30}\|>|</s>)\s*\Z")
_LOOKS_LIKE_ACTION = re.compile(r"""["'](?:action|tool|tool_name|action_input|arguments)["']\s*:""")


_ONE_TEXT: Mapping[str, Any] = {"properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@record
class Reading:
    """`action` and `args`, or `answer`, or the `problem`."""

    thought: str = ""
    action: str = ""
    args: Mapping[str, Any] | str = ""
    answer: str = ""
    problem: str = ""


Tools = Mapping[str, Mapping[str, Any]]
"""The parameters' schemas of the tools, by name."""


def read(text: str, tools: Tools) -> Reading:
    text = _SPECIAL.sub("", text).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    thought = ""
    if (think := _THINK.match(text)) is not None:
        if "</think" not in think[0].lower():
            return Reading(think[1].strip(), problem=_problem("the thought never ended"))
        thought, text = think[1].strip(), text[think.end() :]
    reading = _read(text.strip(), tools)
    return reading if not thought else replace(reading, thought=reading.thought or thought)


def _read(text: str, tools: Tools) -> Reading:
    if not text:
        return Reading(problem=_problem("the reply was empty"))
    tagged = _TAGGED.search(text)
    if tagged is not None and not any(kind == "answer" for kind, _ in sections(text[: tagged.start()])):
        called = _from_json(tagged[1], tools)
        if called is None:
            return Reading(problem=_problem("the tool call was no readable JSON"))
        return replace(called, thought=called.thought or text[: tagged.start()].strip())
    whole = unfenced(text)
    if whole[:1] in "{[" and whole and (found := _from_json(whole, tools)) is not None:
        return found
    if (first := _first_object(text, tools)) is not None:
        return first
    if whole[:1] == "{" and _LOOKS_LIKE_ACTION.search(whole):
        return Reading(problem=_problem("the JSON was broken off or not valid"))
    parts = sections(whole if whole != text and _has_label(whole) else text)
    seen = _until_observation(parts)
    if not seen:
        return Reading(problem=_problem("it began with an observation, which only the user gives"))
    if all(kind == "bare" for kind, _ in seen):
        return _bare(seen[0][1] if seen else text, tools)
    return _labelled(seen, tools)


def _first_object(text: str, tools: Tools) -> Reading | None:
    """JSON with words before or after it: the first object counts, if it names a known tool or is the answer."""
    place = text.find("{")
    if place < 0 or "```" in text or _has_label(text):
        return None
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text, place)
    except (ValueError, RecursionError):
        return None
    inside = text[place:end]
    found = json_action(inside)
    if found is None or (tool_named(found[0], tools) not in tools and not ('"tool"' in inside and found[0].lower() in _ENDS)):
        return None
    reading = _from_json(inside, tools)
    return None if reading is None else replace(reading, thought=reading.thought or text[:place].strip())


def _has_label(text: str) -> bool:
    return any(kind != "bare" for kind, _ in sections(text))


def sections(text: str) -> list[tuple[str, str]]:
    """What stands under which label; `bare` before the first. A code block keeps its lines, whatever they say."""
    found: list[tuple[str, list[str]]] = [("bare", [])]
    lines = text.split("\n")
    fences = sum(line.count("```") for line in lines)
    inside = False
    for line in lines:
        closing = fences - line.count("```")
        label = (
            None
            if inside and closing >= 0 and fences > 0
            else (LABELLED.match(line) or _HEADED.match(line) or _BOXED.match(line))
        )
        if label is not None and label["label"].lower() == "input" and found[-1][0] != "action":
            label = None  # a word like any other
        if label is not None:
            rest = label["rest"]
            bold = line[: label.start("label")].count("**") and not label.groupdict().get("close")
            if bold and rest.rstrip().endswith("**"):
                rest = rest.rstrip().removesuffix("**")
            found.append((LABELS[re.sub(r"[ \t]+", " ", label["label"]).lower()], [rest]))
        else:
            found[-1][1].append(line)
        if line.count("```") % 2:
            inside = not inside
        fences = closing
    quoted = [(kind, _unquoted(lines)) for kind, lines in found]
    return [(kind, body) for kind, body in quoted if body or kind != "bare"]


def _unquoted(lines: list[str]) -> str:
    """Without the `>` of a quotation that goes through all of it."""
    if len(lines) > 1 and all(line.lstrip().startswith(">") for line in lines[1:] if line.strip()):
        lines = [lines[0], *[re.sub(r"^\s*> ?", "", line) for line in lines[1:]]]
    return "\n".join(lines).strip()


def ends_whole(text: str) -> bool:
    """Of a reply that was cut off at the token limit: whether the call in it had ended before."""
    if "</tool_call>" in text:
        return True
    kind, body = (sections(text) or [("bare", "")])[-1]
    if kind == "observation":
        return True
    inside = unfenced(body.partition("<tool_call>")[2] or body)
    try:
        return isinstance(json_value(inside), Mapping)
    except ValueError:
        return False


def _until_observation(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    kinds = [kind for kind, _ in parts]
    return parts[: kinds.index("observation")] if "observation" in kinds else parts


def _labelled(parts: list[tuple[str, str]], tools: Tools) -> Reading:
    thoughts: list[str] = []
    for place, (kind, body) in enumerate(parts):
        following = parts[place + 1] if place + 1 < len(parts) else ("", "")
        given = following[1] if following[0] == "input" else None
        if kind in ("bare", "thought"):
            thoughts.append(body)
        elif kind == "answer" and body:
            return Reading(_joined(thoughts), answer=_undecorated(body))
        elif kind == "action" and (acted := _action(body, given, tools)) is not None:
            return replace(acted, thought=_joined(thoughts) or acted.thought)
    if [kind for kind, _ in parts if kind != "bare"] == ["thought"]:
        last = _bare(parts[-1][1], tools)
        if last.action or (last.answer and last.thought):
            return last
    glued = _GLUED.search(_joined(thoughts))
    if glued is not None:
        return Reading(_joined(thoughts)[: glued.start()].strip(), answer=glued[1].strip())
    return Reading(_joined(thoughts), problem=_problem("there was neither an action nor a final answer"))


def _joined(thoughts: list[str]) -> str:
    return "\n".join([thought for thought in thoughts if thought]).strip()


def _undecorated(text: str) -> str:
    """Without the bold of a whole line."""
    bold = re.fullmatch(r"\*\*([^*]+)\*\*", text)
    return bold[1].strip() or text if bold else text


def _action(body: str, given: str | None, tools: Tools) -> Reading | None:
    """The action under its label; `None` if it says that there is none."""
    text = unfenced(body)
    if text[:1] in ("{", "["):
        if (found := _from_json(text, tools)) is not None:
            return found
        if text[:1] == "{":
            return Reading(problem=_problem("the JSON of the action was not valid"))
    call = bracketed(text)
    if call is not None:
        name, inside = call
        return _acted(name, inside if inside.strip() or given is None else given, tools, called=True)
    first, _, rest = text.partition("\n")
    name = _plain_name(first)
    if not name or name.lower() in _NOTHING or (name.lower().split()[0] in _NO and tool_named(name, tools) not in tools):
        return None
    before, colon, after = first.partition(":") if ":" in first else first.partition("：")
    known = tool_named(_plain_name(before), tools) in tools or _plain_name(before).lower() in _ENDS
    if given is None and colon and known:
        return _acted(_plain_name(before), "\n".join([after.strip(), rest]).strip(), tools)
    return _acted(name, given if given is not None else rest.strip(), tools)


def _acted(name: str, given: str, tools: Tools, *, called: bool = False) -> Reading:
    name = _plain_name(name)
    if name.lower() in _ENDS and tool_named(name, tools) not in tools:
        answer = _unwrapped_answer(given)
        return Reading(answer=answer) if answer else Reading(problem=_problem("the final answer was empty"))
    found = tool_named(name, tools)
    return Reading(action=found, args=arguments_for(given, tools.get(found), called=called))


def _unwrapped_answer(given: str) -> str:
    read_as = arguments_for(given, _ONE_TEXT, called=True)
    if isinstance(read_as, Mapping) and len(read_as) == 1:
        (value,) = read_as.values()
        return str(value).strip()
    return given.strip()


def _plain_name(text: str) -> str:
    name = text.strip().strip("`*\"'「」『』 ").strip()
    if name[:1] in "[<(" and name[-1:] in "]>)" and name:
        name = name[1:-1].strip()
    return name.rstrip(".。").strip("`*\"' ")


def _from_json(text: str, tools: Tools) -> Reading | None:
    found = json_action(text)
    if found is None:
        return None
    name, given, thought = found
    if name.lower() in _ENDS and tool_named(name, tools) not in tools:
        answer = given if isinstance(given, str) else _unwrapped_answer(_as_text(given))
        return Reading(thought, answer=answer.strip()) if answer.strip() else Reading(thought, problem=_problem("no answer"))
    action = tool_named(name, tools)
    return Reading(thought, action, given if isinstance(given, Mapping) else arguments_for(_as_text(given), tools.get(action)))


def _as_text(value: Any) -> str:
    from ..core.values import plain_text

    return "" if value is None else plain_text(value)


def _bare(text: str, tools: Tools) -> Reading:
    """No labels: a call of a known tool, as all of it or as its last line; else it is the answer itself."""
    for fenced in _FENCED.finditer(text):
        found = _from_json(fenced[1], tools)
        if found is not None and not (found.answer and fenced.start()):
            return replace(found, thought=found.thought or text[: fenced.start()].strip())
        if fenced[1].lstrip()[:1] == "{" and _LOOKS_LIKE_ACTION.search(fenced[1]) and found is None:
            return Reading(problem=_problem("the JSON was broken off or not valid"))
    lines = text.strip().split("\n")
    for start in (0, len(lines) - 1):
        one = "\n".join(lines[start:]).strip().strip("`*").strip()
        call = bracketed(one, to_the_end=True)
        if call is None:
            continue
        name = _plain_name(call[0])
        if tool_named(name, tools) in tools or name.lower() in ("finish", "final answer"):
            return replace(_acted(name, call[1], tools, called=True), thought="\n".join(lines[:start]).strip())
    return Reading(answer=_undecorated(text.strip()))


def _problem(what: str) -> str:
    return (
        f"Your last reply could not be read: {what}. Write either\nThought: …\nAction: the name of one tool\n"
        "Action Input: its input\nor\nThought: …\nFinal Answer: the answer"
    )
