"""Warn if a request does not begin as the last one did, so that the provider's prompt cache is of no use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.codec import digest, encode_message
from ..core.messages import Message, ModelReply, ModelRequest, ToolCall
from ..core.notices import notice
from ..kernel.ports import ModelHandler, Policy

if TYPE_CHECKING:
    from ..kernel.view import RunView

_RUNS = 500  # that are remembered


class _Sent(NamedTuple):
    """A request of which the provider had a part in its cache: fingerprints of its tools and of its messages."""

    model: Any
    cached: int
    tools: str
    messages: tuple[bytes, ...]
    said: int  # messages in the conversation, which becomes shorter when it is summed up


class PrefixWatch(Policy):
    """Warns once per run. It is on by default for models whose provider caches prompts.

    The warning is recorded if the provider read a part of the last request from its cache and nothing of this one, and this
    request does not begin as the last one did: the tools, the instructions or an earlier message have changed. A summary of
    the conversation (`Compact`) is not reported.
    """

    depth = 7
    replayed = False

    def __init__(self) -> None:
        self._sent: dict[str, _Sent | None] = {}  # None once a run has been warned

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        reply = await next(request)
        if not self._sent and not reply.usage.cached:
            return reply
        known = self._sent.get(view.run_id, _NOTHING_SENT)
        if known is None or request.schema is not None or not (reply.usage.cached or known.cached):
            return reply
        messages = tuple([_fingerprint(one) for one in request.messages])
        sent = _Sent(request.model or view.agent.model, reply.usage.cached, _tools(request), messages, len(view.state.messages))
        warning = _difference(known, sent, request) if known.cached and not sent.cached else ""
        self._sent.pop(view.run_id, None)
        if len(self._sent) >= _RUNS:
            self._sent.clear()
        self._sent[view.run_id] = None if warning else sent
        if warning:
            await view.warn("prompt cache", warning)
        return reply

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        return True


_NOTHING_SENT = _Sent(None, 0, "", (), 0)


def _tools(request: ModelRequest) -> str:
    offered = request.tools or request.called_tools
    return digest([[one.name, one.description, one.parameters] for one in offered])


def _fingerprint(message: Message) -> bytes:
    return message.encode_as("prefix", lambda one: digest(encode_message(one)).encode())


def _difference(last: _Sent, sent: _Sent, request: ModelRequest) -> str:
    """Return what has changed at the beginning of the request, or "" if it only became longer."""
    if sent.said < last.said or sent.model is not last.model:
        return ""
    if sent.tools != last.tools:
        return notice(
            "prefix.tools",
            "the tools are not the same as in the last request, so the provider could not use its prompt cache, which held "
            "{tokens:,} tokens. Keep the list of tools and their descriptions the same within a run",
            tokens=last.cached,
        )
    place = next((n for n, one in enumerate(last.messages) if sent.messages[n : n + 1] != (one,)), None)
    if place is None:
        return ""
    if place == 0 and request.messages and request.messages[0].role == "system":
        return notice(
            "prefix.instructions",
            "the instructions are not the same as in the last request, so the provider could not use its prompt cache, which "
            "held {tokens:,} tokens. Keep text that changes, such as the time, out of the instructions",
            tokens=last.cached,
        )
    return notice(
        "prefix.message",
        "message {place} is not the same as in the last request, so the provider could not use its prompt cache, which held "
        "{tokens:,} tokens. A context part or a policy changes or removes earlier messages",
        place=place + 1,
        tokens=last.cached,
    )
