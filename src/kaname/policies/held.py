"""A reply on its way to the reader, held back until it is judged.

Patterns hold back only what may still become a match: from where the oldest open match began, nothing at all most of the time.
Checks, which see whole texts, hold back `window` characters and are asked each time as many more have come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.events import Warned
from ..core.language import say
from ..core.messages import NOTHING, ModelReply
from .guardrails import (
    GuardrailAction,
    GuardrailResult,
    Guardrails,
    Withheld,
    arguments_of,
    by_pattern,
    estimated_tokens,
    over_limit,
    too_long,
    worse,
)
from .patterns import Scan

if TYPE_CHECKING:
    from ..kernel.ports import Emit
    from ..kernel.scope import Scope


_FORGET = 1_000  # characters


class _Channel:
    """What has come of one kind (text, thinking): its end, from where something is still held or looked at."""

    def __init__(self, rails: Guardrails) -> None:
        self.tail, self.begins = "", 0  # and the place of the tail's first character in the whole
        self.released, self.judged = 0, 0
        self.blocked, self.warned = Scan(rails.blocked), Scan(rails.warned)

    @property
    def length(self) -> int:
        return self.begins + len(self.tail)

    def part(self, start: int, end: int) -> str:
        return self.tail[max(0, start - self.begins) : max(0, end - self.begins)]

    def forget(self, before: int) -> None:
        if before - self.begins > _FORGET:
            self.tail, self.begins = self.tail[before - self.begins :], before


class Held:
    def __init__(self, rails: Guardrails, emit: Emit, scope: Scope) -> None:
        self._rails, self._emit, self._scope = rails, emit, scope
        self._channels: dict[str, _Channel] = {}
        self._warnings: set[str] = set()
        self.tokens = 0
        self.usage = NOTHING

    async def take(self, text: str, kind: str = "text", call_id: str = "") -> None:
        channel = self._channel(kind)
        channel.tail += text
        await self._match(channel, text, kind, call_id)
        self.tokens += estimated_tokens(text)
        if kind == "text":
            self._within_limit()
        await self._warn(channel, text)
        held = channel.blocked.pending if self._rails.blocked else channel.length
        if channel.length - held > self._rails.longest_match:
            raise Withheld(_endless(self._rails.longest_match))
        if kind == "text" and self._rails.output_checks:
            held = min(held, await self._looked_at(channel))
        await self._release(channel, held, kind, call_id)

    async def finish(self, reply: ModelReply) -> None:
        """The whole is judged once more, with what never streamed (calls, or all of it); then the rest goes out."""
        rails, message = self._rails, reply.message
        verdict = over_limit(message.text, rails.max_output_tokens, "output") or rails.matched(message.text)
        for other in (message.thinking, arguments_of(reply)):
            verdict = worse(verdict, rails.matched(other)) if other else verdict
        for channel in self._channels.values():
            if (found := channel.blocked.end()) is not None:
                verdict = worse(verdict, by_pattern(found.pattern, GuardrailAction.BLOCK))
        if verdict.action is not GuardrailAction.BLOCK and rails.output_checks and message.text:
            judged = await rails.checked(message.text, rails.output_checks)
            self.usage = self.usage + judged.usage
            verdict = worse(verdict, judged)
        if verdict.action is GuardrailAction.BLOCK:
            raise Withheld(verdict, reply)
        if verdict.action is GuardrailAction.WARN:
            await self._report(verdict)
        for kind, channel in self._channels.items():
            await self._release(channel, channel.length, kind, "")

    def _channel(self, kind: str) -> _Channel:
        if kind not in self._channels:
            self._channels[kind] = _Channel(self._rails)
        return self._channels[kind]

    async def _match(self, channel: _Channel, text: str, kind: str, call_id: str) -> None:
        if self._rails.blocked and (found := channel.blocked.feed(text)) is not None:
            if not self._rails.output_checks:
                await self._release(channel, found.start, kind, call_id)  # what stands before it is not blocked
            raise Withheld(by_pattern(found.pattern, GuardrailAction.BLOCK))

    def _within_limit(self) -> None:
        limit = self._rails.max_output_tokens
        if limit is not None and self._channels["text"].length > 4 * limit:  # surely; it is counted exactly at the end
            raise Withheld(too_long(self._channels["text"].length // 4, limit, "output"))

    async def _warn(self, channel: _Channel, text: str) -> None:
        if self._rails.warned and (found := channel.warned.feed(text)) is not None:
            channel.warned = Scan(self._rails.warned)
            await self._report(by_pattern(found.pattern, GuardrailAction.WARN))

    async def _report(self, verdict: GuardrailResult) -> None:
        if verdict.reason not in self._warnings:
            self._warnings.add(verdict.reason)
            await self._scope.record(Warned("guardrails", verdict.reason))

    async def _looked_at(self, channel: _Channel) -> int:
        """Up to where the checks have seen it with enough around it."""
        window = self._rails.window
        if channel.length - channel.judged >= window:
            text = channel.part(channel.judged - window, channel.length)
            verdict = await self._rails.checked(text, self._rails.output_checks)
            self.usage = self.usage + verdict.usage
            if verdict.action is GuardrailAction.BLOCK:
                raise Withheld(verdict)
            if verdict.action is GuardrailAction.WARN:
                await self._report(verdict)
            channel.judged = channel.length
        return max(0, channel.judged - window)

    async def _release(self, channel: _Channel, until: int, kind: str, call_id: str) -> None:
        if until > channel.released:
            piece, channel.released = channel.part(channel.released, until), until
            await self._emit(piece, kind, call_id)
            channel.forget(min(until, channel.judged - self._rails.window) if self._rails.output_checks else until)


def _endless(limit: int) -> GuardrailResult:
    reason = say(
        f"a possible match of a blocked pattern has grown longer than {limit:,} characters",
        f"禁止パターンに一致しうる部分が {limit:,} 文字を超えました",
    )
    return GuardrailResult(GuardrailAction.BLOCK, reason, {"longest_match": limit})
