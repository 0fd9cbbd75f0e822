"""Validate a model's reply and mint its call ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError, UnexpectedError
from ..core.messages import Media, Message, ModelReply, ModelRequest, Provided, Text, Thinking, ToolCall, Usage
from ..core.record import replace
from .bases import ActionBase, optional
from .chain import around_attempt, around_model
from .ports import Model
from .results import check_usage, must_be_json
from .scope import silent
from .view import RunView, current_view

_PARTS = (Text, Media, Thinking, Provided, ToolCall)


def take_in(reply: Any, model: str, number: int, tools: Mapping[str, Any]) -> ModelReply:
    """Validate a reply and give its calls new ids, because providers repeat theirs or have none.

    The ids are the same after a crash as without one. A call that stands for another is replaced by it here, before it is
    judged, recorded or run. Raises `UnexpectedError` if the reply has the wrong form.
    """
    if not isinstance(reply, ModelReply):
        raise _wrong(model, reply, "a ModelReply")
    message = reply.message
    if not isinstance(message, Message) or message.role != "assistant":
        raise _wrong(model, message, "an assistant's Message in its reply")
    if not isinstance(reply.usage, Usage):
        raise _wrong(model, reply.usage, "a Usage in its reply")
    parts = tuple([_part(part, model, number, place, tools) for place, part in enumerate(message.parts)])
    words = (reply.model, reply.problem, reply.advice, reply.served, reply.request_id)
    for said in (reply.stop_reason or "", *words):
        if type(said) is not str and not isinstance(said, str):
            raise _wrong(model, said, "texts as its reply's stop_reason, model, problem, advice, served and request_id")
    return ModelReply(Message("assistant", parts), reply.stop_reason, check_usage(reply.usage, f"the model {model!r}"), *words)


def _part(part: Any, model: str, number: int, place: int, tools: Mapping[str, Any]) -> Any:
    if type(part) is ToolCall:
        if not isinstance(part.name, str) or not part.name:
            raise _wrong(model, part, "a ToolCall with a name")
        must_be_json(part.args, f"the arguments of {part.name}, as the model {model!r} returned them,")
        call = ToolCall(f"c{number}_{place}", part.name, part.args)
        tool = tools.get(part.name, None)
        meant = None if tool is None else optional(tool, ActionBase, "unfold")(call)
        return call if meant is None else ToolCall(call.id, meant.name, meant.args)
    if not isinstance(part, _PARTS) or not isinstance(getattr(part, "text", ""), str):
        raise _wrong(model, part, "texts, thinking, media and tool calls as the message's parts")
    if type(part) is Provided:
        must_be_json(part.data, f"what the model {model!r} wants back unchanged")
    elif type(part) is Media and not all(isinstance(said, str) for said in (part.mime, part.data, part.url, part.name)):
        raise _wrong(model, part, "texts in its Media")
    return part


def _wrong(model: str, got: Any, expected: str) -> UnexpectedError:
    return UnexpectedError(f"the model {model!r}, or a policy around it, returned {repr(got)[:100]}; expected {expected}")


async def ask_for_run(request: ModelRequest, model: Model) -> ModelReply:
    """Ask a model on behalf of the run in this task, within its budgets, rates and time-outs; outside of a run, only ask it.

    The other policies of the run concern its conversation. Raises `Halt` if the limits of the run do not allow it.
    """

    async def reply_to(request: ModelRequest) -> ModelReply:
        return await model.reply(request, silent)

    view = current_view.get()()
    if view is None:
        return await reply_to(request)
    return await around_attempt(view.policies(), reply_to, view)(replace(request, model=model))


async def ask_beside(messages: tuple[Message, ...], view: RunView, model: Model | None = None) -> ModelReply:
    """Ask a model outside the conversation. Its cost is not counted: record it together with the outcome.

    Args:
        messages: The request.
        view: The run for which it is asked.
        model: Another model, instead of the agent's.
    """
    asked = model or view.agent.model
    if asked is None:
        raise ConfigError.of("agent.no_model", "agent {name!r} has no model: pass Agent(model=…)", name=view.agent.name)

    async def reply_to(request: ModelRequest) -> ModelReply:
        return await (request.model or asked).reply(request, silent)

    settings = {} if model is not None else view.agent.settings
    request = ModelRequest(messages, (), None, settings, stream=False, model=model)
    return await around_model(view.policies(), reply_to, view)(request)
