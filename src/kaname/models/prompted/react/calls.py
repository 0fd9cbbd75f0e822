"""Read one call in the forms in which models write it: JSON, tags, or `name[…]` and `name(…)`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ....core.reading.lazy_regex import lazy_regex
from ....core.reading.lenient_json import TwoReadings
from ....core.values import plain_text
from .arguments import arguments_for, fit_object, json_value, strip_fence

Tools = Mapping[str, Mapping[str, Any]]
"""The parameters' schemas of the tools, by name."""
ENDS = frozenset({"finish", "finalanswer", "answer", "最終回答", "回答", "終了"})
_NAMES = ("action", "tool", "tool_name", "name", "行動", "ツール")
_GIVEN = ("action_input", "arguments", "args", "parameters", "input", "tool_input", "入力")
_THOUGHTS = ("thought", "thinking", "reasoning", "思考")
_ANSWERS = ("final_answer", "answer", "最終回答")
_ONE_TEXT: Mapping[str, Any] = {"properties": {"answer": {"type": "string"}}, "required": ["answer"]}
_BRACKETS = {"[": "]", "(": ")", "［": "］", "（": "）"}
_CALL = lazy_regex(
    r"[`*]{0,3}(?P<name>[^\W\d][\w.\-]{0,80}(?: [A-Za-z]{1,30}){0,3})[`*]{0,3}[ \t]?(?P<open>[\[(［（])", re.IGNORECASE
)
_TAGGED = lazy_regex(r"(?P<before>.*?)(?:<tool_call>|\[TOOL_CALLS\])(?P<body>.*?)(?:</tool_call>|\Z)(?P<after>.*)", re.DOTALL)
_WRAPPERS = lazy_regex(r"</?(?:tool_call|tool_calls|function_calls)>|\[TOOL_CALLS\]")


class WrittenCall(NamedTuple):
    """A call. `name` is a tool's, or one of `ENDS` with the answer as `args`. `alone`: only thoughts stood next to it."""

    name: str
    args: Mapping[str, Any] | str
    thought: str = ""
    alone: bool = True
    certain: bool = False  # it is a call, whatever tools there are


def tool_named(text: str, tools: Tools) -> str:
    """Return the tool's name, ignoring case and marks around it; "" if there is no such tool."""
    name = re.sub(r"\A\d{1,2}[.)]\s+", "", text.strip()).strip("`*\"'「」『』<>@ ").rstrip(".。:：")
    name = name.removeprefix("functions.").removeprefix("tools.")
    name = name[1:-1] if name[:1] == "[" and name[-1:] == "]" else name
    if name in tools:
        return name
    same = [known for known in tools if _normalize(known) == _normalize(name)]
    return same[0] if len(same) == 1 else ""


def is_end(name: str, tools: Tools) -> bool:
    return _normalize(name.strip("`*\"' ")) in ENDS and not tool_named(name, tools)


def _normalize(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())


def _without(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {key: one for key, one in fields.items() if key not in names}


def json_call(text: str, tools: Tools) -> WrittenCall | None:
    """Return a call or an answer that is written as one JSON object, or as a list with one object."""
    fields = _fields(text)
    if fields is None:
        return None
    thinks, named = _key(fields, _THOUGHTS), _key(fields, _NAMES)
    thought = fields[thinks] if thinks else ""
    if not named or fields[named].lower() in ("", "none", "null"):
        return _json_answer(fields, thought, {*_THOUGHTS, *_ANSWERS, named})
    given = next((key for key in _GIVEN if key in fields), "")
    if (named == "name" and not given) or _is_schema(fields.get(given)):
        return None  # a thing that has a name; a tool that is described
    rest = _without(fields, (named, *_THOUGHTS, "type", "id", "function"))
    alone = not given or not rest.keys() - {given}
    args = arguments_of(fields[given] if given else rest, fields[named], tools)
    return WrittenCall(fields[named].strip(), args, thought, alone, certain=bool(given) and named != "name" and alone)


def _fields(text: str) -> dict[str, Any] | None:
    """Return the fields of a JSON object, with names in lower case, and those of its `function` among them."""
    try:
        value = json_value(text)
    except ValueError:
        return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping):
        return None
    inner = value.get("function")
    if isinstance(inner, str):
        inner = {"name": inner}
    every = {**value, **inner} if isinstance(inner, Mapping) else value
    return {str(key).strip().lower().replace(" ", "_"): one for key, one in every.items()}


def _key(fields: Mapping[str, Any], names: tuple[str, ...], kinds: Any = str) -> str:
    """Return the first of these names under which there is a text; "" if there is none."""
    return next((name for name in names if isinstance(fields.get(name), kinds)), "")


def _json_answer(fields: Mapping[str, Any], thought: str, expected: set[str]) -> WrittenCall | None:
    answer = _key(fields, _ANSWERS, str | int | float)
    if not answer or {key for key, one in fields.items() if one} - expected:
        return None
    return WrittenCall("final answer", plain_text(fields[answer]), thought)


def _is_schema(given: Any) -> bool:
    return isinstance(given, Mapping) and given.get("type") == "object" and isinstance(given.get("properties"), Mapping)


def arguments_of(given: Any, name: str, tools: Tools, *, called: bool = False) -> Mapping[str, Any] | str:
    """Return the arguments for the tool of this name; for `finish` the answer: plain, quoted, or under a name.

    Raises `TwoReadings` only for an existing tool, since nothing else is run.
    """
    text, schema = "" if given is None else plain_text(given), tools.get(tool_named(name, tools))
    try:
        if is_end(name, tools):
            named = arguments_for(text, _ONE_TEXT, called=True)
            return str(next(iter(named.values()), "")) if isinstance(named, Mapping) else text.strip()
        return fit_object(given, schema) if isinstance(given, Mapping) else arguments_for(text, schema, called=called)
    except TwoReadings:
        if schema is not None:
            raise
        return text.strip()


def tagged_call(text: str, tools: Tools) -> WrittenCall | None:
    """Return the first `<tool_call>{…}</tool_call>`. For other tags (`<function=name>`) the model is asked again."""
    match = _TAGGED.match(text)
    call = None if match is None else json_call(match["body"], tools)
    if match is None or call is None:
        return None
    before, after = (_WRAPPERS.sub("", match[side]).strip() for side in ("before", "after"))
    return call._replace(thought=call.thought or before, alone=not before and not after)


def has_call_tag(text: str) -> bool:
    """Return True if the tag of a call begins a line."""
    return re.search(r"^[ \t]*(?:<tool_call>|<function=|<invoke |\[TOOL_CALLS\])", text, re.MULTILINE) is not None


def bracket_call(text: str, tools: Tools) -> WrittenCall | None:
    """Return `name[…]` or `name(…)` at the beginning of a text. It is `alone`, if that is all."""
    text = strip_fence(text).strip("`*;. ")
    match = _CALL.match(text)
    if match is None or (end := _closing_bracket(text, match.end(), match["open"])) < 0:
        return None
    args = arguments_of(text[match.end() : end], match["name"], tools, called=True)
    return WrittenCall(match["name"], args, alone=not text[end + 1 :].strip())


def _closing_bracket(text: str, start: int, opening: str) -> int:
    """Return the index of the closing bracket. An extra bracket inside is text, unless another call follows it."""
    closing, depth = _BRACKETS[opening], 1
    another = rf"{re.escape(closing)}\W{{0,6}}(?:\w+ ){{0,3}}\w+{re.escape(opening)}"
    if text.endswith(closing) and not re.search(another, text[start:]):
        return len(text) - 1
    for found in re.finditer(f"[{re.escape(opening + closing)}]", text[start:]):
        depth += 1 if found[0] == opening else -1
        if depth == 0:
            return start + found.start()
    return text.rfind(closing, start)
