"""Questions of runs over HTTP: the call in question with its arguments, and answers that a browser sends as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..agent.result import Result
from ..core.errors import ConfigError
from ..core.notices import Notice, notice, to_json
from ..core.people.visible import file_in, visible, visible_json
from ..policies.lasting import equal_arguments


def with_arguments(given: Any) -> Any:
    """Read arguments that a browser sends as JSON text: it cannot hold a large whole number exactly."""
    if not isinstance(given, dict) or {*given} != {"args_text"}:
        return given
    try:
        return {"args": json.loads(given["args_text"])}
    except (ValueError, TypeError, RecursionError):
        raise ConfigError(notice("serve.args_text", "args_text must be the text of a JSON object with the arguments")) from None


def _arguments_as_text(args: Any) -> dict[str, Any]:
    """Return the arguments as texts: all of them, to be edited, each of them, to be read, and conditions for equal calls.

    `files`: the media types of arguments that hold a file.
    """
    if not isinstance(args, Mapping):
        return {}
    files = {name: held[0] for name, one in args.items() if isinstance(one, str) and (held := file_in(one)) is not None}
    texts = {name for name, one in args.items() if isinstance(one, str)} - files.keys()
    shown = {name: visible(one) if name in texts else visible_json(one) for name, one in args.items()}
    equal = equal_arguments(args)
    told = {"text": _as_json_text(args), "shown": shown, **({"files": files} if files else {})}
    return told if equal is None else {**told, "equal": _as_json_text(equal)}


def _as_json_text(value: Any) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def question(result: Result[Any], key: str, tools: Mapping[str, Any]) -> dict[str, Any]:
    asked = result.questions[key]
    call = asked.about or result.state.open.get(asked.call_id)
    tool = None if call is None else tools.get(call.name, None)  # None if a child run asks about a tool of its own
    does = {} if tool is None else {"effect": tool.effect, "description": str(tool.description or "").partition("\n")[0]}
    named = {} if call is None else {"id": call.id, "name": call.name, "arguments": call.args}
    told = None if call is None else {**named, **_arguments_as_text(call.args), **does}
    said = {"prompt": asked.prompt, **({"notice": to_json(asked.prompt)} if isinstance(asked.prompt, Notice) else {})}
    terms = {"in_doubt": asked.in_doubt, "by": asked.by, "until": asked.until or None}
    return {"key": key, **said, "options": list(asked.options), "call": told, **terms}
