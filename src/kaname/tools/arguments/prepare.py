"""Prepare a call's arguments: parse, repair where there is one reading, validate against the function's types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ...core.errors import BadArguments
from ...core.messages import ToolCall
from ...core.values import read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_MOST_LINES = 20
_ROUNDS = 3


def fitting_arguments(call: ToolCall, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, if they fit a JSON Schema; else `BadArguments` with all that is wrong."""
    from .mend import mended
    from .schema import problems

    args = read_arguments(call)
    mistakes = problems(args, schema)
    if mistakes and (again := mended(args, schema)) is not args:
        args, mistakes = again, problems(again, schema)
    if mistakes:
        raise BadArguments(listed(name, mistakes))
    return args


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object, or `BadArguments` that says what is wrong with the text."""
    args: Any = call.args
    if isinstance(args, str):
        try:
            args = read_json(args) if args.strip() else {}
        except ValueError as problem:
            raise BadArguments(f"the arguments of {call.name} are {problem}. Send one JSON object.") from None
    if args is None:
        return {}
    if not isinstance(args, Mapping):
        raise BadArguments(f"the arguments of {call.name} must be one JSON object, not {json.dumps(args)[:100]}")
    return dict(args)


def validate(adapter: TypeAdapter[Any], name: str, args: dict[str, Any]) -> Any:
    """Check against the types. A JSON text where an object or a list belongs is unpacked, wherever it stands."""
    from pydantic import ValidationError

    for attempts_left in reversed(range(_ROUNDS)):
        try:
            return adapter.validate_python(args)
        except ValidationError as error:
            unpacked = _unpack_texts(args, error) if attempts_left else None
            if unpacked is None:
                raise BadArguments(describe(name, error)) from None
            args = unpacked
    raise AssertionError("the last round returns or raises")


def describe(name: str, error: ValidationError) -> str:
    """What the model must mend, a line for each field."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        place = ".".join([str(part) for part in problem["loc"]]) or "arguments"
        got = "" if problem["type"] == "missing" else f" (got {json.dumps(problem['input'], default=str)[:80]})"
        lines.append(f"{place}: {problem['msg']}{got}")
    return listed(name, lines)


def listed(name: str, mistakes: list[str]) -> str:
    more = [f"- … and {len(mistakes) - _MOST_LINES} more"] if len(mistakes) > _MOST_LINES else []
    return f"the arguments of {name} do not fit:\n" + "\n".join([*[f"- {m}" for m in mistakes[:_MOST_LINES]], *more])


def _unpack_texts(args: dict[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """The arguments with every text unpacked that stands where the check wanted a container; `None` if there is none."""
    mended: dict[str, Any] | None = None
    for problem in error.errors(include_url=False, include_context=False):
        text, place = problem["input"], problem["loc"]
        if not isinstance(text, str) or text.strip()[:1] not in ("{", "["):
            continue
        try:
            unpacked = read_json(text)
        except ValueError:
            continue
        mended = deepcopy(args) if mended is None else mended
        _put(mended, list(place), text, unpacked)
    return None if mended == args else mended


def _put(inside: Any, place: list[Any], text: str, unpacked: Any) -> None:
    """Put it where the text stands. A place may name a branch of a union, which is no key: it is passed over."""
    for part in place:
        held = inside.get(part) if isinstance(inside, dict) else None
        if isinstance(inside, list) and isinstance(part, int) and part < len(inside):
            held = inside[part]
        if held is None:
            continue
        if held == text:
            inside[part] = unpacked
            return
        inside = held
