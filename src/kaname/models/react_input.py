"""The pieces of an action as models write them: calls with brackets, JSON in many spellings, inputs that become arguments."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from ..core.values import read_json

_CALL = re.compile(r"[`*\"']*(?P<name>[^\W\d][\w.\-]*(?: [A-Za-z]+)?)[`*\"']*\s*(?P<open>[\[(［（])")
_PAIRS = {"[": "]", "(": ")", "［": "］", "（": "）"}
_QUOTES = {'"': '"', "'": "'", "「": "」", "『": "』", "“": "”", "`": "`"}
_SMART = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"})
_NAMES = ("action", "tool", "tool_name", "name", "行動", "ツール")
_GIVEN = ("action_input", "args", "arguments", "parameters", "input", "tool_input", "params", "入力")
_THOUGHTS = ("thought", "thinking", "reasoning", "思考")
_EMPTY = {"", "none", "null", "n/a", "なし", "無し", "{}", "()"}


def unfenced(text: str) -> str:
    """What stands in the code block, if that is all there is. Its end may be missing."""
    text = text.strip()
    fence = re.match(r"```[\w-]*[ \t]*\n?", text)
    if fence is None:
        single = re.fullmatch(r"`([^`]+)`", text)
        return single[1].strip() if single else text
    inner = text[fence.end() :]
    if inner.count("```") == 0:
        return inner.strip()
    return inner.removesuffix("```").strip() if inner.count("```") == 1 and inner.endswith("```") else text


def tool_named(name: str, tools: Mapping[str, Any]) -> str:
    """The tool that is meant, whatever its case; the name as it is written, if there is none."""
    if name in tools:
        return name
    same = [known for known in tools if _folded(known) == _folded(name)]
    return same[0] if len(same) == 1 else name


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())


def bracketed(text: str, *, to_the_end: bool = False) -> tuple[str, str] | None:
    """`name[…]` or `name(…)`: the name and what is inside. `to_the_end`: nothing may follow."""
    call = _CALL.match(text)
    if call is None:
        return None
    opening = call["open"]
    closing = _PAIRS[opening]
    end = _closed(text, call.end(), opening, closing)
    if end < 0:
        return None
    after = text[end + 1 :].strip().strip("`*;.。").strip()
    return None if to_the_end and after else (call["name"], text[call.end() : end])


def _closed(text: str, start: int, opening: str, closing: str) -> int:
    """Where the bracket closes. One that closes nothing later on was part of what is inside."""
    triple = re.match(r"\s*(\"\"\"|''')", text[start:])
    if triple and (end := text.find(triple[1], start + triple.end())) >= 0:
        return text.find(closing, end)
    depth, end = 1, -1
    for place in range(start, len(text)):
        if text[place] == opening:
            depth += 1
        elif text[place] == closing:
            depth -= 1
            if depth == 0:
                end = place
                break
    if end < 0:
        return text.rfind(closing, start)
    rest = text[end + 1 :].split("\n", 1)[0]
    surplus = rest.count(closing) > rest.count(opening)
    return end + 1 + rest.rfind(closing) if surplus else end


def json_value(text: str) -> Any:
    """The value that a model meant; `ValueError` if it is none. Line ends in strings and curly quotes are mended."""
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
    return read_json(text.translate(_SMART))


def json_action(text: str) -> tuple[str, Any, str] | None:
    """Name, input and thought of an action that is written as JSON: of the first, if it is a list."""
    try:
        value = json_value(text)
    except ValueError:
        return None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return None
    inner = value.get("function")
    if isinstance(inner, Mapping):
        value = {**value, **inner}
    if isinstance(inner, str) and "name" not in value:
        value = {**value, "name": inner}
    named = next((key for key in _NAMES if isinstance(value.get(key), str)), None)
    given = next((key for key in (*_GIVEN, *(["text"] if named == "tool" else [])) if key in value), None)
    answer = next((value[key] for key in ("final_answer", "answer", "最終回答") if isinstance(value.get(key), str)), None)
    if named is None and answer is not None and set(value) <= {*_THOUGHTS, "final_answer", "answer", "最終回答"}:
        return "final answer", answer, _thought(value)
    if named is None or (given is None and named == "name"):
        return None
    beside = {key: one for key, one in value.items() if key not in (named, *_THOUGHTS, "type", "id", "function")}
    held = (beside or None) if given is None else value[given]
    if isinstance(held, str):
        held = _unpacked(held)
    return str(value[named]).strip(), held, _thought(value)


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


def arguments_for(given: str, schema: Mapping[str, Any] | None, *, called: bool = False) -> Mapping[str, Any] | str:
    """The arguments that an input spells, for a tool of this schema; the text itself, where it is not clear whose it is."""
    text = unfenced(given)
    if (value := _object(text)) is not None:
        return value
    if schema is None:
        keywords = _keywords(text, None, called) if called else None
        return _unquoted(text) if keywords is None else keywords
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if not properties:
        return {}
    keywords = _keywords(text, list(properties), called)
    if keywords is not None:
        return keywords
    required = [name for name in schema.get("required") or [] if name in properties]
    only = list(properties) if len(properties) == 1 else required
    if len(only) != 1:
        return text
    if text.lower() in _EMPTY and only[0] not in required:
        return {}
    return {only[0]: _typed(text, properties[only[0]])}


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is, or that it begins with: models like to add that they are waiting."""
    fence = re.match(r"```[\w-]*[ \t]*\n(.*?)\n```", text, re.DOTALL)
    text = fence[1].strip() if fence else text
    if text[:1] != "{":
        return None
    for end in (len(text), text.find("}\n\n") + 1, text.find("}\n") + 1):
        try:
            value = json_value(text[:end]) if end else None
        except ValueError:
            continue
        if isinstance(value, Mapping):
            return dict(value)
    return None


def _typed(text: str, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind in (None, "string"):
        return _unquoted(text)
    try:
        return json_value(text)
    except ValueError:
        return _unquoted(text)


def _unquoted(text: str) -> str:
    """Without the quotes around the whole of it."""
    text = text.strip()
    for mark in ('"""', "'''"):
        if len(text) > 6 and text.startswith(mark) and text.endswith(mark):
            return text[3:-3].strip()
    closing = _QUOTES.get(text[:1])
    if closing is None or len(text) < 2 or not text.endswith(closing) or closing in text[1:-1].replace("\\" + closing, ""):
        return text
    if text[0] == '"':
        try:
            value = json.loads(text, strict=False)
        except ValueError:
            return text[1:-1]
        return value if isinstance(value, str) else text
    return text[1:-1].replace("\\" + closing, closing)


def _keywords(text: str, names: list[str] | None, called: bool) -> dict[str, Any] | None:
    """`city="Tokyo", days=3`, or `"Tokyo", 3` in a call: Python's literals, nothing else."""
    if "=" not in text and not (called and names is not None and len(names) > 1):
        return None
    try:
        tree = ast.parse(f"call({text})", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    call = tree.body
    if not isinstance(call, ast.Call) or len(call.args) > len(names or ()):
        return None
    pairs = [*zip(names or (), call.args, strict=False), *[(one.arg, one.value) for one in call.keywords]]
    known = [name for name, _ in pairs if name and (names is None or name in names)]
    if not pairs or len(known) != len(pairs) or (not call.keywords and len(call.args) < 2):
        return None
    try:
        return {str(name): ast.literal_eval(value) for name, value in pairs}
    except (ValueError, SyntaxError, RecursionError):
        return None
