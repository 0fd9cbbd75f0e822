"""Runs as lists show them, and their questions: the call in question with its arguments, as its readers see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..core.calls import call_key
from ..core.errors import ConfigError
from ..core.events import Asked
from ..core.messages import Media, ToolCall
from ..core.notices import Notice, notice, to_json
from ..core.people.visible import file_in, visible, visible_json
from ..core.reading.files import files_in_arguments
from ..core.runs import UNDER_WAY, RunInfo
from ..core.state import State
from ..core.values import identity_text
from ..memory.compact import as_lines
from ..policies.content.privacy.pseudonyms import labels_in
from ..policies.permission.lasting import equal_arguments
from ..run.result import Result
from .language import in_language
from .users import Caller

if TYPE_CHECKING:  # the terminal works without the packages of the server
    from .service import Service, Shown


def with_arguments(given: Any) -> Any:
    """Read arguments that a browser sends as JSON text: it cannot hold a large whole number exactly."""
    if not isinstance(given, dict) or {*given} != {"args_text"}:
        return given
    try:
        return {"args": json.loads(given["args_text"])}
    except (ValueError, TypeError, RecursionError):
        raise ConfigError.of("serve.args_text", "args_text must be the text of a JSON object with the arguments") from None


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


def question(result: Result[Any], key: str, tools: Mapping[str, Any], language: str = "") -> dict[str, Any]:
    """Return a question as JSON. `prompt` is in the language of the client, `notice` has the code and values of the text."""
    asked = result.questions[key]
    call = _call_of(result.state, asked)
    tool = None if call is None else tools.get(call.name, None)  # None if a child run asks about a tool of its own
    does = {} if tool is None else {"effect": tool.effect, "description": str(tool.description or "").partition("\n")[0]}
    named = {} if call is None else {"id": call.id, "name": call.name, "arguments": call.args}
    files = {name: [_describe(one) for one in every] for name, every in attached_files(result.state, asked).items()}
    attached = {"attached": files} if files else {}
    told = None if call is None else {**named, **_arguments_as_text(call.args), **attached, **does}
    coded = {"notice": to_json(asked.prompt)} if isinstance(asked.prompt, Notice) else {}
    said = {"prompt": in_language(asked.prompt, language), **coded}
    terms = {
        "in_doubt": asked.in_doubt,
        "by": asked.by,
        "until": asked.until or None,
        "same": same_question(result.state, asked),
    }
    return {"key": key, **said, "options": list(asked.options), "call": told, **terms}


def same_question(state: State, asked: Asked) -> str:
    """Return a text that is equal for approvals that ask the same, in any run: one answer can be given to all of them.

    They are about equal calls of one agent, with the same files, for the same reasons. Empty if the question stands alone: it
    is not an approval, or a value is hidden, so that calls may look alike and differ.
    """
    if asked.in_doubt or not asked.rules or asked.about is None or equal_arguments(asked.about.args) is None:
        return ""
    files = {name: [_describe(one)["hash"] for one in every] for name, every in attached_files(state, asked).items()}
    try:
        call = identity_text(call_key(asked.about))
    except TypeError:  # not JSON: it cannot be compared
        return ""
    if labels_in(call):  # a pseudonym stands for another value in each run
        return ""
    told = [state.agent, call, files, str(asked.prompt), asked.options, asked.by, asked.rules]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def attached_files(state: State, asked: Asked) -> dict[str, list[Media]]:
    """Return the files of the conversation that the call in question names, by argument: the tool gets exactly these.

    A child run has a conversation of its own, so there are none for its questions.
    """
    call = _call_of(state, asked)
    if call is None or call.id not in state.open or not isinstance(call.args, Mapping):
        return {}
    return files_in_arguments(state, call.args)


def _call_of(state: State, asked: Asked) -> ToolCall | None:
    return asked.about or state.open.get(asked.call_id)


def _describe(file: Media) -> dict[str, str]:
    return {"mime": file.mime, "name": visible(file.name), "hash": sha256(file.content).hexdigest()}


def shown_to_approver(asked: dict[str, Any], result: Result[Any], shown: Shown, language: str = "") -> dict[str, Any]:
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
            "prompt": in_language(said, language),
            "notice": to_json(said),
            "call": {**kept, "arguments": {}, "hidden": True} if kept else None,
            "same": "",
        }
    messages = {"nothing": (), "call": (), "turn": result.state.turn, "run": result.state.history}[shown]
    return {**asked, "conversation": [visible(line) for message in messages for line in as_lines(message)], "shown": shown}


def summary(card: RunInfo) -> dict[str, Any]:
    return {
        "run_id": card.run_id,
        "agent": card.agent,
        "status": card.status,
        "title": card.title,
        "session_id": card.session,
        "user_id": card.user,
        "created": card.created,
        "updated": card.updated,
        "facts": card.seq,
        "questions": card.questions,
        "base": card.base,
        "parent": card.parent,
        "usage": {"input_tokens": card.input, "output_tokens": card.output, "cost": card.cost},
    }


async def questions_of(service: Service, card: RunInfo, above: RunInfo, caller: Caller) -> list[dict[str, Any]]:
    """Return the questions of a waiting run with its card, as the caller sees them.

    Args:
        above: The parent of a child run, or else the run. Work in the background asks by itself once its parent has ended;
            other children's questions are asked by their parents.
    """
    if card.parent and above.status in UNDER_WAY:
        return []
    result, run = await service.agent_result(card.run_id), summary(above)
    tools, prefix = ({}, f"{card.run_id}:") if card.parent else (service.tools_of(card), "")
    asked = [{**question(result, key, tools, caller.language), "key": f"{prefix}{key}", "run": run} for key in result.questions]
    if caller.sees(card.user):
        return asked
    return [shown_to_approver(one, result, service.shown_by(above.agent), caller.language) for one in asked]
