"""Questions of runs over HTTP: the call in question with its arguments, and answers that a browser sends as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal, get_args

from ..agent.result import Result
from ..core.errors import ConfigError
from ..core.messages import Media, ToolCall
from ..core.notices import Notice, notice, to_json
from ..core.people.visible import file_in, visible, visible_json
from ..core.reading.files import files_in_arguments
from ..memory.compact import as_lines
from ..policies.lasting import equal_arguments

Shown = Literal["nothing", "call", "turn", "run"]
SHOWN: tuple[Shown, ...] = get_args(Shown)


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
    call = _call_of(result, key)
    tool = None if call is None else tools.get(call.name, None)  # None if a child run asks about a tool of its own
    does = {} if tool is None else {"effect": tool.effect, "description": str(tool.description or "").partition("\n")[0]}
    named = {} if call is None else {"id": call.id, "name": call.name, "arguments": call.args}
    files = {name: [_describe(one) for one in every] for name, every in attached_files(result, key).items()}
    attached = {"attached": files} if files else {}
    told = None if call is None else {**named, **_arguments_as_text(call.args), **attached, **does}
    said = {"prompt": asked.prompt, **({"notice": to_json(asked.prompt)} if isinstance(asked.prompt, Notice) else {})}
    terms = {"in_doubt": asked.in_doubt, "by": asked.by, "until": asked.until or None}
    return {"key": key, **said, "options": list(asked.options), "call": told, **terms}


def attached_files(result: Result[Any], key: str) -> dict[str, list[Media]]:
    """Return the files of the conversation that the call in question names, by argument: the tool gets exactly these.

    A child run has a conversation of its own, so there are none for its questions.
    """
    call = _call_of(result, key)
    if call is None or call.id not in result.state.open or not isinstance(call.args, Mapping):
        return {}
    return files_in_arguments(result.state, call.args)


def _call_of(result: Result[Any], key: str) -> ToolCall | None:
    asked = result.questions[key]
    return asked.about or result.state.open.get(asked.call_id)


def _describe(file: Media) -> dict[str, str]:
    return {"mime": file.mime, "name": visible(file.name), "hash": sha256(file.content).hexdigest()}


def shown_to_approver(asked: dict[str, Any], result: Result[Any], shown: Shown) -> dict[str, Any]:
    """Return a question with its run as a person sees it who can answer it, but not see the run.

    `shown`: what the agent declares. "nothing": the name of the tool. "call": the call with its arguments. "turn", "run": also
    what was said and done in this turn, or in the whole conversation.
    """
    if shown in ("nothing", "call"):
        asked = {**asked, "run": {**asked["run"], "title": ""}}  # it is what the user wrote
    if shown == "nothing":
        call = asked["call"] or {}
        kept = {name: call[name] for name in ("id", "name", "effect", "description") if name in call}
        said = notice("serve.question_hidden", "A call of {tool} waits for an answer.", tool=call.get("name") or "a tool")
        asked = {
            **asked,
            "prompt": said,
            "notice": to_json(said),
            "call": {**kept, "arguments": {}, "hidden": True} if kept else None,
        }
    messages = {"nothing": (), "call": (), "turn": result.state.turn, "run": result.state.history}[shown]
    return {**asked, "conversation": [visible(line) for message in messages for line in as_lines(message)], "shown": shown}
