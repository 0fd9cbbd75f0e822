"""An input as models write it becomes a tool's arguments: a call's brackets, keywords, lines of `name: value`, plain text."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
import warnings
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from ..core.values import plain_text
from .react_blocks import fenced_whole
from .react_doubt import foreign, is_afterword, is_waiting, speaks_of_the_protocol
from .react_input import json_value, unfenced
from .react_values import kinds_of, typed, unquoted

_CALL = re.compile(
    r"[`*\"'@]{0,4}(?P<name>[^\W\d][\w.\-]{0,80}(?: [A-Za-z]{1,30}){0,3})[`*\"']{0,4}(?P<gap>\s{0,8})(?P<open>[\[(［（])"
)
_PAIRS = {"[": "]", "(": ")", "［": "］", "（": "）"}
_EMPTY = {"", "none", "null", "n/a", "なし", "無し", "{}", "()"}
_APART = re.compile(
    r"(?P<name>[\w.\-]{1,80})[ \t]{0,4}(?:(?:->|→|=>|\|)[ \t]{0,4}(?P<rest>\S.*)|(?P<quoted>[\"'「『“`].*))", re.DOTALL
)
_LONGEST_CODE = 50_000  # characters that Python's own reader is given
_PLACE = re.compile(r"[^\s\d]+(?:[ \t][^\s\d]+){0,2}|\d+(?:\.\d+)?")  # a name or a number: what stands before others
ONE_TEXT = "input"
"""What the parameter of a tool is called that takes one text, as it is written."""


def bracketed(text: str, *, to_the_end: bool = False) -> tuple[str, str] | None:
    """`name[…]` or `name(…)`: the name and what is inside. `to_the_end`: nothing may follow."""
    call = _CALL.match(text)
    if call is None:
        return None
    opening = call["open"]
    end = _closed(text, call.end(), opening, _PAIRS[opening])
    if end < 0:
        return None
    after = text[end + 1 :].strip().strip("`*;.。").strip()
    return None if to_the_end and after else (call["name"], text[call.end() : end])


def apart(text: str) -> tuple[str, str] | None:
    """`search -> moss`, `search "moss"`, or a bracket that never closes: the name and what follows it."""
    found = _APART.fullmatch(text)
    if found is not None:
        return found["name"], found["rest"] or found["quoted"]
    call = _CALL.match(text)
    return None if call is None else (call["name"], text[call.end() :])


def described(text: str) -> str:
    """The name before a remark in brackets, `search (web search)`; empty if there is none."""
    call = _CALL.match(text)
    if call is None or call["open"] not in "(（":
        return ""
    remark = text[call.end() :].strip().rstrip("`*.。")
    words = remark[-1:] in ")）" and not re.search(r"[\"'「『“`=＝:：{}\[\]]", remark)
    return call["name"] if call["gap"] or (words and remark.strip("()（） ")) else ""


def _closed(text: str, start: int, opening: str, closing: str) -> int:
    """Where the bracket closes. One that closes nothing later on was part of what is inside."""
    triple = re.match(r"\s{0,20}(\"\"\"|''')", text[start : start + 30])
    if triple and (end := text.find(triple[1], start + triple.end())) >= 0:
        return text.find(closing, end)
    depth, end = 1, -1
    for found in re.finditer(f"[{re.escape(opening + closing)}]", text[start:]):
        depth += 1 if found[0] == opening else -1
        if depth == 0:
            end = start + found.start()
            break
    if end < 0:
        return text.rfind(closing, start)
    rest = text[end + 1 :].split("\n", 1)[0]
    surplus = rest.count(closing) > rest.count(opening)
    return end + 1 + rest.rfind(closing) if surplus else end


def tidied(given: str, properties: Mapping[str, Any] | None = None, *, kept: bool = False) -> str:
    """The input without what belongs to the telling: a block's fence, bold, the words that the model is waiting now.

    `kept`: no words are left out. Nor are they from lines of `name: value`, unless they speak of the protocol.
    """
    text = given.strip()
    if (tag := text.find("<observation>")) >= 0:
        text = text[:tag].rstrip()
    text = text if kept else _without_waiting(text, properties or {})
    if (inside := fenced_whole(text)) is not None:
        return dedent(inside).strip()
    if len(text) > 4 and text.startswith("**") and text.endswith("**") and text.count("**") == 2:
        text = text[2:-2].strip()
    return unfenced(text)


def _without_waiting(text: str, properties: Mapping[str, Any]) -> str:
    named = len(properties) > 1 and foreign(text.split("\n", 1)[0]) in properties
    while (place := text.rfind("\n")) >= 0:
        last = text[place + 1 :].strip()
        if named and not speaks_of_the_protocol(last):
            break
        if not (is_waiting(last) or (text[:place].endswith("\n") and is_afterword(last))):
            break
        text = text[:place].rstrip()
    return text


def arguments_for(
    given: str, schema: Mapping[str, Any] | None, *, called: bool = False, kept: bool = False
) -> Mapping[str, Any] | str:
    """The arguments that an input spells, for a tool of this schema; the text itself, where it is not clear whose it is."""
    properties: Mapping[str, Any] = (schema or {}).get("properties") or {}
    text = tidied(given, properties, kept=kept)
    if (value := _object(text, properties)) is not None:
        return fitted(value, schema, text)
    if schema is None:
        keywords = _literals(text, None, called) if called else None
        return unquoted(text) if keywords is None else keywords
    if not properties:
        return {}
    required = [name for name in schema.get("required") or [] if name in properties]
    only = list(properties) if len(properties) == 1 else required
    braced = text[:1] == "{" and text.endswith("}")  # JSON whose names have no quotes
    named = _named(text[1:-1].strip() if braced else text, properties, required, called)
    if named is not None:
        return named
    if not (kept and len(required) < 2) and (placed := _placed(text, properties)) is not None:
        return placed
    if len(only) != 1:
        return text
    if text.lower() in _EMPTY and only[0] not in required:
        return {}
    return {only[0]: typed(text, properties[only[0]])}


def fitted(value: Mapping[str, Any], schema: Mapping[str, Any] | None, text: str = "") -> Mapping[str, Any]:
    """An object for a tool that takes one text, or one object, is that text or that object, unless it names the parameter."""
    properties: Mapping[str, Any] = (schema or {}).get("properties") or {}
    if len(properties) != 1:
        return value
    ((name, kind),) = properties.items()
    if name in value or not value:
        return value
    if name == ONE_TEXT and kinds_of(kind) == {"string"}:
        return {name: text or plain_text(value)}
    takes = kind.get("properties") if isinstance(kind, Mapping) else None
    return {name: value} if takes and set(value) <= set(takes) else value


def _object(text: str, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON object that the text is, or that it begins with: models like to add that they are waiting."""
    if text[:1] not in ("{", "｛"):
        return None
    text = _narrow(text) if text[0] == "｛" else text
    for end in (len(text), text.find("}\n\n") + 1, text.find("}\n") + 1):
        try:
            value = json_value(text[:end]) if end else None
        except ValueError:
            continue
        if isinstance(value, Mapping):
            return dict(value)
    if (first := _first_of_several(text)) is not None:
        return first
    one = re.fullmatch(r"\{\s{0,8}\"(\w{1,40})\"\s{0,8}:\s{0,8}\"([^\n]*)\"\s{0,8}\}", text)  # quotes that were not escaped
    return {one[1]: one[2]} if one is not None and one[1] in properties and '": ' not in one[2] else None


def _narrow(text: str) -> str:
    """JSON in wide characters: its marks as JSON has them, what is between quotes as it is."""
    text = re.sub(r"”\s{0,4}：\s{0,4}", "”:", text)
    text = re.sub(r"，\s{0,4}(?=[“\"])", ",", text)
    text = re.sub(r"(?<=:)[０-９]{1,30}", lambda number: unicodedata.normalize("NFKC", number[0]), text)
    return text.translate(str.maketrans("｛｝“”", '{}""'))


def _first_of_several(text: str) -> dict[str, Any] | None:
    """Of objects one after the other the first."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and text[end:].lstrip(" \n,;")[:1] == "{" else None


def _placed(text: str, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """`Oslo, 3` in the order of the parameters, if all but the first are numbers or the like."""
    pieces = [piece.strip() for piece in re.split(r"[,、，]", text, maxsplit=len(properties))]
    if not 1 < len(pieces) <= len(properties) or "\n" in text or not all(pieces) or not _PLACE.fullmatch(pieces[0]):
        return None
    made = {name: typed(piece, properties[name]) for name, piece in zip(properties, pieces, strict=False)}
    return made if all(isinstance(value, int | float) for value in list(made.values())[1:]) else None


def _named(text: str, properties: Mapping[str, Any], required: list[str], called: bool) -> dict[str, Any] | None:
    """`city="Tokyo", days=3`, `city: Tokyo` and `days: 3` on lines of their own, or `"Tokyo", 3` in this order."""
    names = list(properties)
    listed = len(required) > 1 and text[:1] in "\"'["
    inside = text[1:-1] if listed and text[:1] == "[" and text.endswith("]") else text
    literal = _literals(inside, names, called or listed)
    if literal is not None:
        return literal
    either = "|".join([re.escape(name) for name in names])
    before, after = r"(?:\A|[,;\n、，；]|[ \t]and(?=[ \t]))[ \t\-*]{0,8}[\"'`]?", r"[\"'`]?[ \t]{0,8}[:=：＝][ \t]{0,8}"
    marks = list(re.finditer(f"{before}({either}){after}", text))
    if not marks or marks[0].start() > 0:
        return None
    known = {mark[1] for mark in marks}
    if len(known) < len(marks):  # a name that comes again is text of the last value
        if len({mark[1] for mark in marks[: len(known)]}) < len(known):
            return None
        marks = marks[: len(known)]
    if len(names) == 1:
        marks = marks[:1]
    ends = [*[mark.start() for mark in marks[1:]], len(text)]
    pieces = {mark[1]: text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}
    if len(names) == 1 and marks[0][0].rstrip().endswith("=") and pieces[names[0]][:1] == "=":
        return None  # it compares
    return {name: typed(piece, properties[name]) for name, piece in pieces.items()}


def _literals(text: str, names: list[str] | None, called: bool) -> dict[str, Any] | None:
    """Python's literals, nothing else."""
    if len(text) > _LONGEST_CODE or ("=" not in text and not (called and names is not None and len(names) > 1)):
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # what is odd about it is the model's affair
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
