"""Arguments as models send them: read, mended where there is one reading, checked against the function's types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import BadArguments
from ..core.messages import ToolCall
from ..core.values import read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_CONTAINERS = (
    "dict_type",
    "list_type",
    "tuple_type",
    "set_type",
    "model_type",
    "dataclass_type",
    "model_attributes_type",
)


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
    """Check against the types. A JSON text where an object or a list belongs is unpacked, once."""
    from pydantic import ValidationError

    try:
        return adapter.validate_python(args)
    except ValidationError as first:
        mended = _unpack_texts(args, first)
        try:
            if mended is not None:
                return adapter.validate_python(mended)
        except ValidationError as second:
            first = second
        raise BadArguments(describe(name, first)) from None


def describe(name: str, error: ValidationError) -> str:
    """What the model must mend, a line for each field."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        place = ".".join([str(part) for part in problem["loc"]]) or "arguments"
        got = "" if problem["type"] == "missing" else f" (got {json.dumps(problem['input'], default=str)[:80]})"
        lines.append(f"- {place}: {problem['msg']}{got}")
    return f"the arguments of {name} do not fit:\n" + "\n".join(lines)


def _unpack_texts(args: dict[str, Any], error: ValidationError) -> dict[str, Any] | None:
    mended: dict[str, Any] | None = None
    for problem in error.errors(include_url=False, include_context=False):
        field = problem["loc"][0] if problem["loc"] else None
        value = args.get(field) if isinstance(field, str) else None
        if problem["type"] in _CONTAINERS and isinstance(field, str) and isinstance(value, str):
            try:
                unpacked = read_json(value)
            except ValueError:
                continue
            mended = {**(mended or args), field: unpacked}
    return mended
