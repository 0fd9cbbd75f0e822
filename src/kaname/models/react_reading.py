"""Reading ReAct text as a person would: thoughts, one action with its input, or the final answer.

Models write it in many dialects: numbered and bold labels, Japanese ones, none at all; `search[…]`, `search("…")`, JSON; an
observation that they made up. What comes first counts: an answer after an action, or a second action, was written blindly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from ..core.record import record, replace
from ..core.values import plain_text
from .react_arguments import apart, arguments_for, bracketed, described, fitted
from .react_careful import MEANT, TOLD, bare_is, fits, is_whole, kept_whole, labelled_is, tagged_is
from .react_cleaning import cleaned
from .react_doubt import ends_call, is_thought, is_told
from .react_input import JsonCall, json_call, json_value, unfenced
from .react_names import ENDS, plain_name, says_none, tool_named
from .react_sections import Section, has_labels, sections, without_number
from .react_tags import TaggedCall, first_label_tag, tagged_call, with_labels
from .react_values import typed

BLANK = " \t\n\r\f\v\u3000\ufeff\u200b"  # before a reply
_THINK = re.compile(r"[\s\ufeff\u200b]*<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>(?!(?<=`</think>)`|(?<=`</thinking>)`)", re.IGNORECASE)
_FENCED = re.compile(r"```([\w-]*)[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_GLUED = re.compile(r"(?:final answer|最終回答)[ \t]{0,8}[:：][ \t]{0,8}(?=\S)", re.IGNORECASE)
_SPEAKER = re.compile(r"\Aassistant[ \t]{0,4}[:：]\s{0,8}", re.IGNORECASE)
_BESIDE = re.compile(r"[ \t,;.]{1,4}(?:Action Input|行動入力|アクション入力)[ \t]{0,4}[:：]", re.IGNORECASE)
_GLUED_ACTION = re.compile(r"\b(?:Action|Act) \d{1,3}[:：] {0,4}(?=\S)")
WHOLE_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_LOOKS_LIKE_ACTION = re.compile(r"""["'](?:action|tool|tool_name|action_input|arguments)["']\s{0,8}:""")
_ESCAPED = re.compile(r"\\n(?=(?:Action|Action Input|Final Answer|Thought|行動|入力|最終回答)[:：])")
_BROKEN = "the JSON was broken off or not valid"
_UNCLEAR = (
    "it is not clear whether a tool is to be called, or where its input ends. To call it, write the input as one JSON object, "
    "with nothing after it"
)
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


def read(text: str, tools: Tools, careful: Collection[str] = ()) -> Reading:
    """`careful`: the tools that change something. They are called only if it is clear that this, and all of this, is meant."""
    text = cleaned(text)
    thought = ""
    if (think := _THINK.match(text)) is not None:
        if "</think" not in think[0][-12:].lower():
            return Reading(think[1].strip(), problem=_problem("the thought never ended"))
        thought, text = think[1].strip(), text[think.end() :]
    elif (end := _THOUGHT_END.search(text)) is not None and not _answered(text[: end.start()], tools):
        before = sections(text[: end.start()], tools)
        thought, text = "\n".join([one.body for one in before]).strip(), text[end.end() :]
    reading = _read(text.lstrip(BLANK).rstrip(), tools, careful)
    return reading if not thought else replace(reading, thought=reading.thought or thought)


def _answered(text: str, tools: Tools) -> bool:
    return any(one.kind == "answer" for one in sections(text, tools))


def _read(text: str, tools: Tools, careful: Collection[str]) -> Reading:
    text = written = _SPEAKER.sub("", text, count=1)
    if not text:
        return Reading(problem=_problem("the reply was empty"))
    if (tagged := _tagged(text, tools, careful)) is not None:
        return tagged
    if (place := first_label_tag(text)) >= 0 and not _answered(text[:place], tools):
        text = with_labels(text, place).strip()
    whole = unfenced(text)
    if whole[:1] in ("{", "[") and (found := _from_json(whole, tools)) is not None:
        return found if found.action not in careful else _judged_json(found, whole, tools)
    if (first := _first_object(text, tools)) is not None:
        return _judged(first, bare_is(text, first.thought), written, tools) if first.action in careful else first
    if whole[:1] == "{" and _LOOKS_LIKE_ACTION.search(whole) and not _is_json(whole):
        return Reading(problem=_problem(_BROKEN))
    if "\n" not in text and text[:8].lower() == "thought:":
        text = whole = _ESCAPED.sub("\n", text)
    parts = sections(
        whole if whole != text and has_labels(whole, tools) else text, tools, lambda bare: bool(_bare(bare, tools).action)
    )
    kinds = [part.kind for part in parts]
    seen = parts[: kinds.index("observation")] if "observation" in kinds else parts
    if not seen and not any(kind in ("thought", "action", "answer") for kind in kinds[1:]) and len(text.split("\n")) > 1:
        return Reading(answer=undecorated(text))  # a report of what somebody has seen
    if not seen:
        return Reading(problem=_problem("it began with an observation, which only the user gives"))
    if all(part.kind == "bare" for part in seen):
        reading = _bare(seen[0].body, tools)
        return _judged(reading, bare_is(text, reading.thought), written, tools) if reading.action in careful else reading
    reading = _labelled(seen, tools)
    if reading.action in careful and "action" in kinds:
        schema = tools.get(reading.action) or {}
        reading = replace(reading, args=kept_whole(parts, reading.args, schema))
        return _judged(reading, labelled_is(parts, schema), written, tools)
    told = seen[0].kind == "bare" and not is_thought(seen[0].body)
    return Reading(answer=undecorated(written)) if told and reading.problem and "input" not in kinds else reading


def _judged(reading: Reading, verdict: str, text: str, tools: Tools) -> Reading:
    if verdict == TOLD:
        return Reading(answer=undecorated(text))
    meant = verdict == MEANT and fits(reading.args, tools.get(reading.action) or {})
    return reading if meant else Reading(reading.thought, problem=_problem(_UNCLEAR))


def _judged_json(reading: Reading, text: str, tools: Tools) -> Reading:
    return _judged(reading, MEANT, text, tools) if is_whole(text) else Reading(problem=_problem(_BROKEN))


def _tagged(text: str, tools: Tools, careful: Collection[str]) -> Reading | None:
    call = tagged_call(text)
    if call is None or _answered(call.before, tools):
        return None
    parts = sections(call.before, tools)
    reading = _from_tags(call, parts, tools)
    return _judged(reading, tagged_is(call, text, parts), text, tools) if reading.action in careful else reading


def _from_tags(call: TaggedCall, parts: list[Section], tools: Tools) -> Reading:
    thought = "\n".join([one.body for one in parts if one.kind in ("bare", "thought")]).strip()
    if call.name:
        name = tool_named(call.name, tools)
        if not call.pairs:
            return Reading(thought, name, arguments_for(call.body, tools.get(name), called=True))
        properties = (tools.get(name) or {}).get("properties") or {}
        return Reading(thought, name, {key: typed(value, properties.get(key)) for key, value in call.pairs})
    found = _from_json(call.body, tools, tagged=True)
    if found is None:
        return Reading(problem=_problem("the tool call was no readable JSON"))
    return replace(found, thought=found.thought or thought)


def _first_object(text: str, tools: Tools) -> Reading | None:
    """JSON with words before or after it: the first object counts, if it names a known tool or is the answer."""
    place = text.find("{")
    if place < 0 or "```" in text or has_labels(text, tools):
        return None
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text, place)
    except (ValueError, RecursionError):
        return None
    inside = text[place:end]
    found = json_call(inside)
    if found is None or not (_is_known(found.name, tools) or (found.named == "tool" and found.name.lower() in ENDS)):
        return None
    if _is_known(found.name, tools) and not (is_thought(text[:place]) and ends_call(text[end:])):
        return None
    reading = _from_json(inside, tools)
    return None if reading is None else replace(reading, thought=reading.thought or text[:place].strip())


def _is_known(name: str, tools: Tools) -> bool:
    return tool_named(name, tools) in tools


def ends_whole(text: str) -> bool:
    """Of a reply that was cut off at the token limit: whether the call in it had ended before."""
    if "</tool_call>" in text:
        return True
    parts = sections(text, {})
    if not parts or parts[-1].kind == "observation":
        return bool(parts)
    body = parts[-1].body
    try:
        return isinstance(json_value(unfenced(body.partition("<tool_call>")[2] or body), whole=True), Mapping)
    except ValueError:
        return False


def _labelled(parts: list[Section], tools: Tools) -> Reading:
    thoughts: list[str] = []
    answered = any(part.kind == "answer" and not part.empty for part in parts)
    for place, part in enumerate(parts):
        following = parts[place + 1] if place + 1 < len(parts) else None
        given = following.body if following is not None and following.kind == "input" else None
        if part.kind in ("bare", "thought"):
            thoughts.append(part.body)
        elif part.kind == "answer" and not part.empty:
            return Reading(_joined(thoughts), answer=undecorated(part.body))
        elif part.kind == "action" and (acted := _action(part.body, given, tools, answered=answered)) is not None:
            return replace(acted, thought=_joined(thoughts) or acted.thought)
    said = _joined(thoughts)
    if [part.kind for part in parts if part.kind != "bare"] == ["thought"]:
        last = _bare(parts[-1].body, tools)
        if last.action or (last.answer and last.thought):
            return last
    return _glued(said, tools) or Reading(said, problem=_problem("there was neither an action nor a final answer"))


def _glued(said: str, tools: Tools) -> Reading | None:
    """An answer or a numbered action on the line of its thought."""
    if (answer := _GLUED.search(said)) is not None:
        return Reading(said[: answer.start()].strip(), answer=said[answer.end() :].strip())
    if (action := _GLUED_ACTION.search(said)) is None:
        return None
    call = bracketed(said[action.end() :], to_the_end=True)
    if call is None or not (_is_known(call[0], tools) or plain_name(call[0]).lower() in ENDS):
        return None
    return replace(_acted(call[0], call[1], tools, called=True), thought=said[: action.start()].strip())


def _joined(thoughts: list[str]) -> str:
    return "\n".join([thought for thought in thoughts if thought]).strip()


def undecorated(text: str) -> str:
    """Without the bold of the whole."""
    bold = WHOLE_BOLD.fullmatch(text)
    return bold[1].strip() or text if bold else text


def _action(body: str, given: str | None, tools: Tools, *, answered: bool) -> Reading | None:
    """The action under its label; `None` if it says that there is none. `answered`: an answer follows."""
    text = without_number(unfenced(body))
    if text[:1] in ("{", "[", "$"):
        if (found := _from_json(text, tools)) is not None:
            return found
        if text[:1] == "{":
            return Reading(problem=_problem("the JSON of the action was not valid"))
    first, _, rest = text.partition("\n")
    if given and given.strip() and not says_none(given) and _is_known(described(first), tools):
        return _acted(described(first), given, tools)
    call = bracketed(text)
    if call is not None and (_is_known(call[0], tools) or not says_none(call[0])):
        name, inside = call
        return _acted(name, inside if inside.strip() or given is None else given, tools, called=True)
    name = plain_name(first)
    known = _is_known(name, tools)
    if given is None and not known and (split := _BESIDE.search(first)) is not None:
        return _action(first[: split.start()], first[split.end() :] + f"\n{rest}", tools, answered=answered)
    loose = apart(text) if given is None and not known else None
    if loose is not None and (_is_known(loose[0], tools) or loose[0] in ("終了", "回答", "最終回答")):
        return _acted(loose[0], loose[1], tools, called=True)
    if not name or (not known and says_none(first.strip("`*\"' "))):
        return None
    before, colon, after = first.partition(":") if ":" in first else first.partition("：")
    before = plain_name(before)
    if colon and not known and (_is_known(before, tools) or before.lower() in ENDS):
        return _acted(before, given if given is not None else "\n".join([after.strip(), rest]).strip(), tools)
    ends = name.lower() in ENDS
    if answered and not known and not (given if ends else False) and not rest.strip() and (ends or given is None):
        return None
    if not known and not ends and _is_sentence(first):
        return Reading(problem=_problem("the action named no tool"))
    return _acted(name, given if given is not None else rest.strip(), tools)


def _is_sentence(text: str) -> bool:
    text = text.strip()
    return (
        len(text) > 60
        or len(text.split()) > 4
        or text.endswith(("。", "！", "!", "?", "？"))
        or (" " in text and text[-1:] == ".")
    )


def _acted(name: str, given: str, tools: Tools, *, called: bool = False) -> Reading:
    name = plain_name(name)
    if name.lower() in ENDS and not _is_known(name, tools):
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


def _from_json(text: str, tools: Tools, *, tagged: bool = False) -> Reading | None:
    found = json_call(text)
    if found is None:
        return None
    if found.name.lower() in ENDS and not _is_known(found.name, tools):
        answer = found.given if isinstance(found.given, str) else _unwrapped_answer(_as_text(found.given))
        if not answer.strip():
            return Reading(found.thought, problem=_problem("the final answer was empty"))
        return Reading(found.thought, answer=answer.strip())
    action = tool_named(found.name, tools)
    if action not in tools and not (tagged or _means_a_call(found)):
        return None
    if isinstance(found.given, Mapping):
        return Reading(found.thought, action, fitted(found.given, tools.get(action)))
    return Reading(found.thought, action, arguments_for(_as_text(found.given), tools.get(action)))


def _means_a_call(found: JsonCall) -> bool:
    """Of a tool that is not known: whether the JSON can be anything but a call."""
    if found.more or (found.named == "name" and found.given_as in ("input", "parameters")):
        return False
    return bool(found.given_as) or found.given is None


def _as_text(value: Any) -> str:
    return "" if value is None else plain_text(value)


def _bare(text: str, tools: Tools) -> Reading:
    """No labels: a call of a known tool, as all of it or as its last line; else it is the answer itself."""
    for fenced in _FENCED.finditer(text):
        if (found := _in_fence(fenced, text, tools)) is not None:
            return found
    lines = text.strip().split("\n")
    for start in (0, len(lines) - 1):
        one = "\n".join(lines[start:]).strip().strip("`*").strip()
        call = bracketed(one, to_the_end=True)
        if call is None and start == 0 and lines[0].strip().lower().startswith("finish["):
            call = bracketed(one)  # with kind words after it
        before = "\n".join(lines[:start]).strip()
        if call is None or not (
            is_thought(before) or (one.endswith("]") and one[0] != "[" and before.endswith((".", "。")) and not is_told(before))
        ):
            continue
        name = plain_name(call[0])
        if _is_tool_call(name, tools) or name.lower() in ("finish", "final answer"):
            return replace(_acted(name, call[1], tools, called=True), thought="\n".join(lines[:start]).strip())
    return Reading(answer=undecorated(text.strip()))


def _is_tool_call(name: str, tools: Tools) -> bool:
    """In a text without labels a call is known by the tool's own name, not by words around it."""
    return _is_known(name, tools) and name.count(".") <= tool_named(name, tools).count(".")


def _in_fence(fenced: re.Match[str], text: str, tools: Tools) -> Reading | None:
    inside = fenced[2].strip()
    alone = not text[: fenced.start()].strip()
    if fenced[1] == "tool_code":
        printed = re.fullmatch(r"print\((.*)\)", inside, re.DOTALL)
        call = bracketed((printed[1] if printed else inside).strip(), to_the_end=True)
        if call is not None and _is_known(call[0], tools):
            return replace(_acted(call[0], call[1], tools, called=True), thought=text[: fenced.start()].strip())
    found = _from_json(inside, tools)
    if found is not None and not (is_thought(text[: fenced.start()]) and ends_call(text[fenced.end() :])):
        return None
    if found is not None and not (found.answer and not alone) and (alone or found.action in tools):
        return replace(found, thought=found.thought or text[: fenced.start()].strip())
    broken = found is None and inside[:1] == "{" and _LOOKS_LIKE_ACTION.search(inside) and not _is_json(inside)
    return Reading(problem=_problem(_BROKEN)) if broken else None


def _is_json(text: str) -> bool:
    try:
        json_value(text, whole=True)
    except ValueError:
        return False
    return True


def _problem(what: str) -> str:
    return (
        f"Your last reply could not be read: {what}. Write either\nThought: …\nAction: the name of one tool\n"
        "Action Input: its input\nor\nThought: …\nFinal Answer: the answer"
    )
