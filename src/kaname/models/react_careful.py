"""Calls of tools that change something: run only if it is clear that they are meant, and where their input ends.

Whoever is asked again loses a moment. Whoever deletes what an answer only spoke of, or sends half a letter, loses more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .react_arguments import arguments_for, bracketed
from .react_blocks import fenced_whole
from .react_doubt import foreign, is_thought, is_told, speaks_of_the_protocol
from .react_input import json_call, json_value, unfenced
from .react_labels import label_of
from .react_sections import Section
from .react_tags import TaggedCall

MEANT, TOLD, UNCLEAR = "meant", "told", "unclear"
_FENCES = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})", re.MULTILINE)


def tagged_is(call: TaggedCall, text: str, before: list[Section]) -> str:
    """Of a call between tags."""
    verdict = _after(before)
    rest = re.split(r"</(?:tool_call|function_calls|invoke|function)>", text)[-1]
    if rest == text or not rest.strip():
        return verdict
    return UNCLEAR if verdict == MEANT else TOLD


def bare_is(text: str, thought: str) -> str:
    """Of a call without a label, after these words."""
    return MEANT if not text.startswith(thought) or not thought.strip() else UNCLEAR


def labelled_is(parts: list[Section], schema: Mapping[str, Any]) -> str:
    """Of the first action under a label. `parts` are all sections of the reply."""
    place = next((place for place, part in enumerate(parts) if part.kind == "action"), -1)
    if place < 0:
        return UNCLEAR
    if (verdict := _after(parts[:place])) != MEANT:
        return verdict
    thought = any(part.kind == "thought" for part in parts[:place])
    everyday = [part for part in parts[place : place + 2] if part.kind in ("action", "input") and not part.label.strong]
    if everyday and not thought:
        return UNCLEAR  # "Tool: delete" also begins a manual
    if not schema.get("properties"):
        return MEANT  # it takes nothing
    action, following = parts[place], parts[place + 1 :]
    after = next((part.kind for part in following if part.kind != "input"), "")
    if after in ("thought", "answer"):  # it may have thought better of it
        return UNCLEAR
    if not following or following[0].kind != "input":
        return _action_is(action, schema, following)
    return _input_is(following[0], schema, following[1:])


def kept_whole(parts: list[Section], args: Mapping[str, Any] | str, schema: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """The arguments with all that stands in the input, polite words as well."""
    place = next(place for place, part in enumerate(parts) if part.kind == "action")
    given = parts[place + 1] if place + 1 < len(parts) else None
    if given is None or given.kind != "input" or _value_end(given.body) >= 0 or bracketed(parts[place].body) is not None:
        return args
    return arguments_for(given.body, schema, kept=True)


def fits(args: Mapping[str, Any] | str, schema: Mapping[str, Any]) -> bool:
    """Whether these are arguments that somebody means: all that are wanted, no others, and no parameter named for its value."""
    properties = schema.get("properties") or {}
    if isinstance(args, str):
        named = {word.strip() for word in re.split(r"[,、]", args)}
        return bool(args.strip() or not schema.get("required")) and not named & set(properties)
    texts = {name: value for name, value in args.items() if properties.get(name, {}).get("type") == "string"}
    if any(not isinstance(value, str) or value.strip() in properties for value in texts.values()):
        return False
    return set(args) <= set(properties) and set(schema.get("required") or ()) <= set(args)


def is_whole(text: str) -> bool:
    """Of JSON: whether nothing had to be added at its end."""
    try:
        json_value(text, whole=True)
    except ValueError:
        return False
    return True


def _after(before: list[Section]) -> str:
    """What a call is after these sections. Prose tells of it, unless it says that it happens now."""
    said = [part.body for part in before if part.kind == "bare"]
    said = [words for words in said if (label := label_of(words)) is None or label.kind != "question"]
    thought = any(part.kind == "thought" for part in before)
    said = [words for words in said if not (thought and is_thought(words))]
    if not said:
        return MEANT
    told = any(is_told(words) or words.endswith((":", "：")) for words in said)
    return TOLD if told and not thought else UNCLEAR


def _action_is(action: Section, schema: Mapping[str, Any], following: list[Section]) -> str:
    """Without an input under a label of its own."""
    text = unfenced(action.body)
    if text[:1] in ("{", "["):
        return MEANT if is_whole(text) and json_call(text) is not None else UNCLEAR
    first, _, rest = text.partition("\n")
    if (call := bracketed(text)) is not None:
        opening = re.search(r"[\[(［（]", text)
        end = (opening.end() if opening else 0) + len(call[1]) + 1
        empty = bool(schema.get("required")) and not call[1].strip()
        return MEANT if not text[end:].strip() and not empty else UNCLEAR
    if _value_end(rest.strip()) == len(rest.strip()) > 0:
        return MEANT
    if rest.strip() or (following and not following[0].label.strong):
        return UNCLEAR
    return MEANT if not schema.get("required") or re.search(r"[:：\"'「『“`]|->|→|=>|\|", first) else UNCLEAR


def _input_is(given: Section, schema: Mapping[str, Any], following: list[Section]) -> str:
    body = given.body.partition("<observation>")[0].rstrip()
    if (end := _value_end(body)) >= 0:
        rest = body[end:].lstrip("}])")
        return MEANT if not rest.strip() else UNCLEAR
    if not body and schema.get("required"):
        return UNCLEAR
    if body[:1] == "{" or len(_FENCES.findall(body)) % 2 or speaks_of_the_protocol(body.rsplit("\n", 1)[-1]):
        return UNCLEAR
    properties = schema.get("properties") or {}
    named = len(properties) > 1 and foreign(body.split("\n", 1)[0]) in properties
    if given.label.rest.strip() and "\n\n" in body and "\n" not in body.partition("\n\n")[0] and not named:
        return UNCLEAR
    return MEANT if not following or _is_end(given, following) else UNCLEAR


def _is_end(given: Section, following: list[Section]) -> bool:
    """Whether the label after an input of plain text is the protocol's, and not a line of the text."""
    after = following[0].label
    if after.kind == "observation":  # in a letter it may be a line of the letter
        return given.on_its_line
    if not after.strong or (after.kind == "thought" and len(following) == 1):
        return False
    return given.on_its_line or after.style == given.label.style == "heading"


def _value_end(body: str) -> int:
    """Where the JSON or the code block ends that the input begins with; -1 if it begins with none, or nobody can tell."""
    if body[:1] == "{":
        try:
            return json.JSONDecoder(strict=False).raw_decode(body)[1]
        except (ValueError, RecursionError):
            return len(body) if is_whole(body) and isinstance(json_value(body, whole=True), Mapping) else -1
    inside, mark = fenced_whole(body), re.match(r"`+|~+", body)
    if inside is None or mark is None:
        return -1
    end = body.find("\n", body.find(inside, mark.end()) + len(inside) + 1)
    return len(body) if end < 0 else end
