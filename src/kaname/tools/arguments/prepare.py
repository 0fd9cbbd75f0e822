"""Prepare a call's arguments: parse them, repair what has only one reading, and validate them against the function's types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import BadArguments
from ...core.messages import ToolCall
from ...core.reading.lenient_json import TwoReadings
from ...core.values import read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_MOST_LINES = 20


def fitting_arguments(call: ToolCall, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments if they match the JSON Schema. Raises `BadArguments` with all mistakes otherwise."""
    from .schema import problems

    args = read_arguments(call)
    mistakes = problems(args, schema)
    if mistakes and (again := _mend(args, name, schema)) is not args:
        args, mistakes = again, problems(again, schema)
    if mistakes:
        raise BadArguments(list_mistakes(name, mistakes))
    return args


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as an object. Raises `BadArguments` if the text cannot be read as one."""
    args: Any = call.args
    if isinstance(args, str):
        try:
            args = read_json(args) if args.strip() else {}
        except ValueError as problem:
            raise BadArguments(f"the arguments of {call.name} are {problem}. Send one JSON object.") from None
    if args is None:
        return {}
    if not isinstance(args, Mapping):
        raise BadArguments(
            f"the arguments of {call.name} must be one JSON object, not {json.dumps(args, ensure_ascii=False)[:100]}"
        )
    return dict(args)


def validate(adapter: TypeAdapter[Any], name: str, args: dict[str, Any], schema: Mapping[str, Any]) -> Any:
    """Validate against the types. On failure, repair by the schema what has only one reading, and validate again.

    Raises `BadArguments` with all mistakes."""
    from pydantic_core import ValidationError

    try:
        return adapter.validator.validate_python(args)
    except ValidationError as error:
        if (again := _mend(args, name, schema)) is args:
            raise BadArguments(describe(name, error)) from None
    try:
        return adapter.validate_python(again)
    except ValidationError as error:
        raise BadArguments(describe(name, error)) from None


def _mend(args: dict[str, Any], name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    from .schema import mend_arguments

    try:
        return mend_arguments(args, schema)
    except TwoReadings as problem:
        raise BadArguments(f"the arguments of {name} do not fit: a text in them is {problem}") from None


def describe(name: str, error: ValidationError) -> str:
    """Describe what the model must correct, with one line for each field."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        place = ".".join([str(part) for part in problem["loc"]]) or "arguments"
        got = (
            ""
            if problem["type"] == "missing"
            else f" (got {json.dumps(problem['input'], default=str, ensure_ascii=False)[:80]})"
        )
        lines.append(f"{place}: {problem['msg']}{got}")
    return list_mistakes(name, lines)


def list_mistakes(name: str, mistakes: list[str]) -> str:
    more = [f"- … and {len(mistakes) - _MOST_LINES} more"] if len(mistakes) > _MOST_LINES else []
    return f"the arguments of {name} do not fit:\n" + "\n".join([*[f"- {m}" for m in mistakes[:_MOST_LINES]], *more])
