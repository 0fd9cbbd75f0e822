"""Keys of cached values: everything that a model sees, and everything that the result of a pure tool depends on."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ...core.calls import call_key
from ...core.codec import dump, encode_message
from ...core.messages import NOTHING, Message, ModelReply, ModelRequest, ToolCall, ToolResult, ToolSpec, is_withheld
from ...core.record import replace
from ...core.values import identity_text
from ...kernel.bases import ActionBase, model_info, optional, options_of
from ...kernel.identity import model_identity, result_identity

if TYPE_CHECKING:
    from ...kernel.view import RunView

_FORM = 2  # changes with what is in a key or a value
_SEALED = "cache"
_WHOLE = ("end_turn", "tool_use", "stop_sequence")  # how a reply ends that was not cut off
_PROVIDER_TOOLS = ("tools", "mcp_servers", "web_search_options")  # settings by which the provider runs tools of its own
_UNKEYED = (TypeError, ValueError, RecursionError)


def model_key(request: ModelRequest, view: RunView, *, any_temperature: bool = False) -> str | None:
    """Return the key of a request, or None if its reply is not to be cached.

    That is the case if nothing tells the model apart from others, if the temperature is set above zero, if the provider runs
    tools of its own, which can have effects, or if a setting is not JSON.
    """
    model: Any = request.model or view.agent.model
    if not (known := model_identity(model)):
        return None
    settings = {**model_info(model).settings, **request.settings}
    warm = settings.get("temperature")
    if (warm and not any_temperature) or any(settings.get(name) for name in _PROVIDER_TOOLS):
        return None
    try:
        rest = [
            known,
            [_seen(spec) for spec in request.tools],
            [_seen(spec) for spec in request.called_tools],
            request.schema,
            sorted(settings.items()),
            request.last,
        ]
        told = [dump(rest).encode(), *[message.encode_as(_SEALED, _encode) for message in request.messages]]
    except _UNKEYED:
        return None
    return _digest("model", *told)


def tool_key(call: ToolCall, view: RunView) -> str | None:
    """Return the key of a call, or None if its result is not to be cached.

    Only a tool that is declared pure and depends on nothing but its arguments is cached. One that receives the context of the
    run can read the conversation, the user and `deps`.
    """
    tool: Any = view.tools(call).get(call.name, None)
    if tool is None or tool.effect != "pure" or not options_of(tool).declared:
        return None
    if optional(tool, ActionBase, "takes_context") or not (known := result_identity(tool)):
        return None
    try:
        told = [tool.description, tool.parameters, known]
        return _digest("tool", json.dumps(told, sort_keys=True, ensure_ascii=True).encode(), *_told_call(call, tool, view))
    except _UNKEYED:
        return None


def _told_call(call: ToolCall, tool: Any, view: RunView) -> list[bytes]:
    """Return a call as the key holds it: as it is shown, and as it was sent if it is shown with less, such as a secret."""
    sent, told = view.as_sent(call), [identity_text(call_key(call))]
    try:
        identity_text(call_key(sent, tool))
    except TypeError:  # the tool receives more than JSON
        told.append(identity_text(call_key(sent)))
    return [one.encode() for one in told]


def value_key(key: str) -> str:
    """Return the key of a value that a program stores itself."""
    return _digest("value", key.encode("utf-8", "surrogatepass"))


def is_complete(reply: ModelReply) -> bool:
    """Return True if the reply can be cached: it was not cut off, can be read, and nothing of it is withheld."""
    whole = reply.stop_reason in _WHOLE and bool(reply.message.parts) and not reply.problem
    return whole and not is_withheld(reply.message)


def is_answer_of(reply: ModelReply, model: Any) -> bool:
    """Return True if this model gave the reply, and not another in its place."""
    name = str(getattr(model, "name", ""))
    return reply.model in ("", name, model_info(model).served or name.partition("/")[2])


def is_sound(result: ToolResult) -> bool:
    """Return True if the result can be cached: the tool ran and succeeded."""
    return not (result.is_error or result.transfer or result.gave_up or result.not_run)


def _seen(spec: ToolSpec) -> list[Any]:
    return [spec.name, spec.description, spec.parameters, spec.effect]


def _encode(message: Message) -> bytes:
    """Return a message as the model sees it. The cost of a tool's result is left out: it differs when the result is cached."""
    if any(type(part) is ToolResult and part.usage is not NOTHING for part in message.parts):
        parts = [replace(part, usage=NOTHING) if type(part) is ToolResult else part for part in message.parts]
        message = Message(message.role, tuple(parts))
    return encode_message(message).encode()


def _digest(kind: str, *told: bytes) -> str:
    """Return the fingerprint of several texts. Their lengths are in it, so that no two lists look the same."""
    made = sha256(f"{_FORM}:{kind}".encode())
    for one in told:
        made.update(b"%d:" % len(one))
        made.update(one)
    return f"{kind}:{made.hexdigest()}"
