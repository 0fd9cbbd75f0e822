"""JSON as models write it into a text: in code blocks, with comments, a brace too many or too few; and calls made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..core.record import record
from ..core.values import plain_text, read_json
from .react_names import says_none

_SMART = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"})
_NAMES = ("action", "tool", "tool_name", "name", "行動", "ツール")
_GIVEN = ("action_input", "args", "arguments", "parameters", "input", "tool_input", "params", "actioninput", "入力")
_THOUGHTS = ("thought", "thinking", "reasoning", "思考")
_ANSWERS = ("final_answer", "answer", "最終回答")
_FENCE = re.compile(r"(```|~~~)[\w-]*[ \t]*\n?")
_ASSIGNED = re.compile(r"\$?[A-Za-z_]{1,20}[ \t]*=[ \t]*(?=[\[{])")
_CLOSES = {"{": "}", "[": "]"}
_AFTER = re.compile(r"[}\])\s]*(?:(?:observation|観察|観測)\b.*)?", re.IGNORECASE | re.DOTALL)


@record
class JsonCall:
    """An action that is written as JSON. `named` and `given_as`: the keys that its name and its input stood under."""

    name: str
    given: Any
    thought: str
    named: str
    given_as: str
    more: bool = False  # there was something else beside them


def unfenced(text: str) -> str:
    """What stands in the code block, if that is all there is. Its end may be missing."""
    text = text.strip()
    fence = _FENCE.match(text)
    if fence is None:
        single = len(text) > 2 and text[0] == text[-1] == "`" and text.count("`") == 2
        return text[1:-1].strip() if single else text
    inner, mark = text[fence.end() :], fence[1]
    if inner.count(mark) == 0:
        return inner.strip()
    return inner.removesuffix(mark).strip() if inner.count(mark) == 1 and inner.endswith(mark) else text


def json_value(text: str, *, whole: bool = False) -> Any:
    """The value that a model meant; `ValueError` if it is none. `whole`: nothing may be missing at its end."""
    text = unfenced(text)
    try:
        return read_json(text)
    except ValueError:
        pass
    for attempt in (text, text.translate(_SMART)):
        try:
            return json.loads(attempt, strict=False)
        except (ValueError, RecursionError):
            continue
    if "“" in text:
        try:
            return read_json(text.translate(_SMART))
        except ValueError:
            pass
    mended = _mended(text, whole)
    if mended == text:
        raise ValueError("not valid JSON")
    try:
        return read_json(mended)
    except ValueError:
        pass
    try:
        return json.loads(mended, strict=False)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _mended(text: str, whole: bool) -> str:
    """Without comments and what follows the value; closed, where only the end is missing. Never inside a string."""
    if text[:1] not in _CLOSES:
        return text
    out: list[str] = []
    waiting: list[str] = []
    place, size = 0, len(text)
    while place < size:
        char = text[place]
        if char == '"':
            end = _string_end(text, place)
            out.append(text[place:end])
            place = end
            continue
        if text.startswith("//", place):
            end = text.find("\n", place)
            place = size if end < 0 else end
            continue
        out.append(char)
        if char in _CLOSES:
            waiting.append(_CLOSES[char])
        elif waiting and char == waiting[-1]:
            waiting.pop()
            if not waiting:
                return "".join(out) if _AFTER.fullmatch(text, place + 1) else text
        place += 1
    if whole or (text.rstrip()[-1:] not in ('"', "}", "]") and not text.rstrip()[-1:].isalnum()):
        raise ValueError("the JSON is broken off")
    return "".join([*out, *reversed(waiting)])


def _string_end(text: str, start: int) -> int:
    place = start + 1
    while place < len(text):
        if text[place] == "\\":
            place += 1
        elif text[place] == '"':
            return place + 1
        place += 1
    raise ValueError("the JSON is broken off in a string")


def json_action(text: str) -> tuple[str, Any, str] | None:
    """Name, input and thought of an action that is written as JSON: of the first, if it is a list."""
    found = json_call(text)
    return None if found is None else (found.name, found.given, found.thought)


def json_call(text: str) -> JsonCall | None:
    try:
        value = json_value(_ASSIGNED.sub("", text, count=1) if text[:1] == "$" else text)
    except ValueError:
        return None
    if isinstance(value, list) and value:
        value = value[0]
    return _called({_key(key): one for key, one in value.items()}) if isinstance(value, Mapping) else None


def _key(key: Any) -> str:
    folded = re.sub(r"[ \-]+", "_", str(key).strip().lower())
    return folded if folded in (*_NAMES, *_GIVEN, *_THOUGHTS, *_ANSWERS, "function", "type", "id") else str(key)


def _called(value: dict[str, Any]) -> JsonCall | None:
    inner = value.get("function")
    if isinstance(inner, Mapping):
        value = {**value, **inner}
    if isinstance(inner, str) and "name" not in value:
        value = {**value, "name": inner}
    named = next((key for key in _NAMES if isinstance(value.get(key), str)), None)
    if named is not None and named != "name" and says_none(value[named]):
        named = None
        value = {key: one for key, one in value.items() if key not in (*_NAMES, *_GIVEN)}
    answer = next((value[key] for key in _ANSWERS if isinstance(value.get(key), str) and value[key].strip()), None)
    if answer is None and isinstance(value.get("final_answer"), int | float):
        answer = plain_text(value["final_answer"])
    if named is None and answer is not None and not any(value.get(key) for key in value if key not in (*_THOUGHTS, *_ANSWERS)):
        return JsonCall("final answer", answer, _thought(value), "final_answer", "final_answer")
    given = next((key for key in (*_GIVEN, *(["text"] if named == "tool" else [])) if key in value), None)
    if named is None or (given is None and named == "name") or (given is not None and _declares(value[given])):
        return None
    beside = {key: one for key, one in value.items() if key not in (named, *_THOUGHTS, *_ANSWERS, "type", "id", "function")}
    held = (beside or None) if given is None else value[given]
    if isinstance(held, str):
        held = _unpacked(held)
    more = given is not None and len(beside) > 1
    return JsonCall(str(value[named]).strip(), held, _thought(value), named, given or "", more)


def _declares(given: Any) -> bool:
    """A tool's parameters, not its arguments: a schema."""
    return isinstance(given, Mapping) and given.get("type") == "object" and isinstance(given.get("properties"), Mapping)


def _thought(value: Mapping[str, Any]) -> str:
    return next((value[key].strip() for key in _THOUGHTS if isinstance(value.get(key), str)), "")


def _unpacked(text: str) -> Any:
    """Arguments as JSON inside JSON."""
    if text.strip()[:1] != "{":
        return text
    try:
        value = json_value(text)
    except ValueError:
        return text
    return value if isinstance(value, Mapping) else text
