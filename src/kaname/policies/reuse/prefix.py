"""Warn if a request does not begin as the last one did, so that the provider's prompt cache is of no use."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.codec import encode_message
from ...core.messages import Message, ModelReply, ModelRequest, ToolSpec
from ...core.notices import notice
from ...kernel.bases import PolicyInfo
from ...kernel.ports import ModelHandler, Policy

if TYPE_CHECKING:
    from ...kernel.view import RunView


class _Sent(NamedTuple):
    """A request of which the provider had a part in its cache."""

    model: Any
    cached: int
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    said: int  # messages in the conversation, which becomes shorter when it is summed up


class PrefixWatch(Policy):
    """Warns once per run. It is on by default for models whose provider caches prompts.

    The warning is recorded if the provider read a part of the last request from its cache and nothing of this one, and this
    request does not begin as the last one did: the tools, the instructions or an earlier message have changed. A summary of
    the conversation (`Compact`) is not reported.
    """

    place = "attempt"
    about = PolicyInfo(replayed=False)

    def __init__(self) -> None:
        self._is_cached = False  # until a provider has read something from its cache, there is nothing to watch

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        reply = await next(request)
        cached = reply.usage.cached
        if cached:
            self._is_cached = True
        elif not self._is_cached:
            return reply
        known: _Sent | None = view.scratch.get(PrefixWatch, _NOTHING_SENT)
        if known is None or request.schema is not None or not (cached or known.cached):  # None once it has warned
            return reply
        tools = request.tools or request.called_tools
        sent = _Sent(request.model or view.agent.model, cached, tools, request.messages, len(view.state.messages))
        warning = _difference(known, sent) if known.cached and not cached else ""
        view.scratch[PrefixWatch] = None if warning else sent
        if warning:
            await view.warn("prompt cache", warning)
        return reply


_NOTHING_SENT = _Sent(None, 0, (), (), 0)


def _same(one: Message | None, other: Message) -> bool:
    return one is other or (one is not None and encode_message(one) == encode_message(other))


def _difference(last: _Sent, sent: _Sent) -> str:
    """Return a description of the change at the beginning of the request, or "" if the request only became longer."""
    if sent.said < last.said or sent.model is not last.model:
        return ""
    if sent.tools != last.tools:
        return notice(
            "prefix.tools",
            "the tools are not the same as in the last request, so the provider could not use its prompt cache, which held "
            "{tokens:,} tokens. Keep the list of tools and their descriptions the same within a run",
            tokens=last.cached,
        )
    pairs = zip_longest(sent.messages[: len(last.messages)], last.messages)
    place = next((n for n, (now, before) in enumerate(pairs) if not _same(now, before)), None)
    if place is None:
        return ""
    if place == 0 and sent.messages and sent.messages[0].role == "system":
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
