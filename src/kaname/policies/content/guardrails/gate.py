"""Gate: hold a reply back until it is judged, then release it to the readers.

Patterns hold back only what may still become a match: from where the oldest open match began, nothing at all most of the time.
Checks, which see whole texts, hold back `window` characters and are asked each time as many more have come.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ....core.messages import NOTHING, ModelReply
from ....core.notices import notice
from ....core.tokens import quarter_tokens
from .escapes import Spelt, spelt_out
from .folded import Fold, Folded, as_seen, fold_text, is_plain, strip_hidden
from .patterns import Match, Pattern, Scan
from .texts import as_meant, in_calls, of_provider
from .verdicts import (
    AT_ONCE,
    Check,
    GuardrailAction,
    GuardrailResult,
    Withheld,
    by_limit,
    cost_of,
    first_block,
    too_long,
)

if TYPE_CHECKING:
    from ....kernel.ports import Emit
    from ....kernel.view import RunView


_FORGET = 1_000  # characters
_DEEPEST = 2  # JSON in a JSON text


class Rails(Protocol):
    """The part of the policy that the gate uses."""

    blocked: tuple[Pattern, ...]
    warned: tuple[Pattern, ...]
    output_checks: tuple[Check, ...]
    max_output_tokens: int | None
    window: int
    longest_match: int

    def verdict(self, found: Match) -> GuardrailResult: ...
    def warnings(self, scan: Scan, piece: str | None) -> list[GuardrailResult]: ...
    def all_warnings(self, text: str) -> list[GuardrailResult]: ...
    async def matched(self, text: str) -> list[GuardrailResult]: ...
    async def checked(self, text: str, checks: Sequence[Check]) -> list[GuardrailResult]: ...
    def check_output(self, text: str) -> GuardrailResult: ...
    def check_thought(self, text: str) -> GuardrailResult: ...


class _Channel:
    """What has come of one kind (text, thinking): its end, from where something is still held or looked at."""

    def __init__(self, rails: Rails) -> None:
        self.tail, self.begins = "", 0  # and the place of the tail's first character in the whole
        self.released, self.judged = 0, 0
        self.blocked, self.warned = Scan(rails.blocked), Scan(rails.warned)
        self._meant: list[tuple[Spelt, Scan]] = []  # what it says without its escapes, once there are some
        self._folded: dict[tuple[int, Fold], tuple[Folded, Scan]] = {}  # by level of escapes: once folding changes something
        self._all = hashlib.sha256()

    @property
    def length(self) -> int:
        return self.begins + len(self.tail)

    def add(self, text: str) -> None:
        self.tail += text
        self._all.update(text.encode("utf-8", "surrogatepass"))

    def is_all_of(self, text: str) -> bool:
        same = len(text) == self.length
        return same and hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() == self._all.digest()

    @property
    def open(self) -> int:
        """Return the place from which the text may still turn out to be forbidden."""
        spelt = [self._place(scan.pending, level) for level, (_, scan) in enumerate(self._meant, 1)]
        said = [self._place(view.place(scan.pending), level) for (level, _), (view, scan) in self._folded.items()]
        return min([self.blocked.pending, *spelt, *said])

    def match(self, text: str) -> Match | None:
        """A blocked pattern, in what has come or in what it means; its beginning is a place in what has come."""
        hits, scan, level = list[Match](), self.blocked, 0
        while True:
            if level == len(self._meant) < _DEEPEST and "\\" in text:
                self._meant.append((Spelt(scan.length), scan.copy()))
                same = [(fold, *one) for (at, fold), one in self._folded.items() if at == level]
                self._folded |= {(level + 1, fold): (view.copy(), looks.copy()) for fold, view, looks in same}
            for fold in (fold_text, strip_hidden) if self._folded or not is_plain(text) else ():
                if (found := self._match_folded(scan, text, level, fold)) is not None:
                    hits.append(found)
            if (found := scan.feed(text)) is not None:
                hits.append(found._replace(start=self._place(min(found.start, scan.pending), level)))
            if level == len(self._meant):
                return min(hits, default=None)
            spelt, scan = self._meant[level]
            text, level = spelt.feed(text), level + 1

    def _match_folded(self, before: Scan, text: str, level: int, fold: Fold) -> Match | None:
        """The same in a folded form. `before`: what was looked at up to here."""
        if (level, fold) not in self._folded:
            if is_plain(text) or (fold is strip_hidden and strip_hidden(text) == text):
                return None
            scan = before.copy()
            last = scan.step_back()  # a mark may follow it
            self._folded[level, fold] = (Folded(scan.length, fold), scan)
            text = last + text
        view, scan = self._folded[level, fold]
        if (found := scan.feed(view.feed(text))) is None:
            return None
        return found._replace(start=self._place(view.place(min(found.start, scan.pending)), level))

    def _place(self, said: int, level: int) -> int:
        for spelt, _ in reversed(self._meant[:level]):
            said = spelt.place(said)
        return said

    def end(self) -> Match | None:
        ends = [scan.end() for scan in (self.blocked, *[scan for _, scan in self._meant])]
        ends += [scan.feed(view.end()) or scan.end() for view, scan in self._folded.values()]
        return min([found for found in ends if found is not None], default=None)

    def part(self, start: int, end: int) -> str:
        return self.tail[max(0, start - self.begins) : max(0, end - self.begins)]

    def forget(self, before: int) -> None:
        if before - self.begins > _FORGET:
            self.tail, self.begins = self.tail[before - self.begins :], before


class Held:
    def __init__(self, rails: Rails, emit: Emit, view: RunView) -> None:
        self._rails, self._emit, self._view = rails, emit, view
        self._channels: dict[str, _Channel] = {}
        self._warnings: set[str] = set()
        self._last = ""
        self.tokens = self._quarters = 0
        self.usage = NOTHING

    async def take(self, text: str, kind: str = "text", call_id: str = "") -> None:
        if kind == "progress":  # the adapter's own words
            await self._emit(text, kind, call_id)
            return
        if kind == "restarted":
            self._channels, self._last = {}, ""
            self.tokens = self._quarters = 0
            await self._emit(text, kind, call_id)
            return
        if kind != self._last:
            await self._let_go(self._last)
            self._last = kind
        channel = self._channel(kind)
        for start in range(0, len(text), AT_ONCE):
            if start:
                await asyncio.sleep(0)  # a long text must not keep everybody else waiting
            await self._take(channel, text[start : start + AT_ONCE], kind, call_id)

    async def _take(self, channel: _Channel, text: str, kind: str, call_id: str) -> None:
        channel.add(text)
        await self._match(channel, text, kind, call_id)
        self._count(text)
        for verdict in self._rails.warnings(channel.warned, text) if self._rails.warned else ():
            await self._report(verdict)
        held = self._undecided_from(channel)
        if channel.length - held > self._rails.longest_match:
            raise Withheld(_endless(self._rails.longest_match))
        if self._rails.output_checks:
            held = min(held, await self._looked_at(channel))
        await self._release(channel, held, kind, call_id)

    def _undecided_from(self, channel: _Channel) -> int:
        return channel.open if self._rails.blocked else channel.length

    async def _let_go(self, kind: str) -> None:
        """Thoughts are judged and shown before the text that follows them."""
        channel = self._channels.get(kind)
        if channel is not None and self._rails.output_checks and channel.judged < channel.length:
            await self._judge(channel)
            await self._release(channel, self._undecided_from(channel), kind, "")

    async def finish(self, reply: ModelReply) -> None:
        """Judge the whole once more, and release the rest."""
        verdicts = await self._judge_whole(reply)
        if (no := first_block(verdicts)) is not None:
            raise Withheld(no, reply)
        for verdict in [one for one in verdicts if one.action is GuardrailAction.WARN]:
            await self._report(verdict)
        for kind, channel in self._channels.items():
            await self._release(channel, channel.length, kind, "")

    async def _judge_whole(self, reply: ModelReply) -> list[GuardrailResult]:
        """Judge the whole reply, with what never streamed: calls, or all of it."""
        rails, message = self._rails, reply.message
        inside = in_calls(reply, self._view.agent.tools)
        parts = [part for part in (message.text, message.thinking, "\n".join(inside)) if part]
        verdicts = self._by_stream(parts)
        meant = [*as_meant(message.text), *as_meant(message.thinking)]
        unseen = [part for part in (message.text, message.thinking) if part and not self._has_seen(part)]
        for part in _spelt_and_said(*unseen, *inside, *meant, *of_provider(reply)):
            verdicts += await rails.matched(part) if first_block(verdicts) is None else []
        for part in _spelt_and_said(*parts, "\n".join(meant)) if rails.output_checks else ():
            if first_block(verdicts) is None:
                judged = await rails.checked(part, rails.output_checks)
                self.usage = self.usage + cost_of(judged)
                verdicts += judged
        return verdicts

    def _by_stream(self, parts: Sequence[str]) -> list[GuardrailResult]:
        """Return the verdicts on the length of the whole, and those of the patterns that have seen it while it streamed."""
        rails = self._rails
        too_much = by_limit("".join(parts), rails.max_output_tokens, "output")
        verdicts = [] if too_much is None else [too_much]
        for channel in self._channels.values():
            match = channel.end()
            verdicts += [] if match is None else [rails.verdict(match)]
            verdicts += rails.warnings(channel.warned, None)
        for form in dict.fromkeys([form for part in parts for form in as_seen(part)[1:]]) if rails.warned else ():
            verdicts += rails.all_warnings(form)
        return verdicts

    def _has_seen(self, text: str) -> bool:
        """Return True if the patterns have seen exactly this text while it streamed, and its warnings were reported."""
        return any(channel.is_all_of(text) for channel in self._channels.values())

    def _channel(self, kind: str) -> _Channel:
        if kind not in self._channels:
            self._channels[kind] = _Channel(self._rails)
        return self._channels[kind]

    async def _match(self, channel: _Channel, text: str, kind: str, call_id: str) -> None:
        if self._rails.blocked and (match := channel.match(text)) is not None:
            if not self._rails.output_checks:
                await self._release(channel, min(match.start, channel.open), kind, call_id)  # not part of any
            raise Withheld(self._rails.verdict(match))

    def _count(self, text: str) -> None:
        self._quarters += quarter_tokens(text)
        self.tokens = (self._quarters + 3) // 4
        limit = self._rails.max_output_tokens
        if limit is not None and self.tokens > limit:
            raise Withheld(too_long(self.tokens, limit, "output"))

    async def _report(self, verdict: GuardrailResult) -> None:
        if verdict.reason not in self._warnings:
            self._warnings.add(verdict.reason)
            await self._view.warn("guardrails", verdict.reason)

    async def _looked_at(self, channel: _Channel) -> int:
        """Up to where the checks have seen it with enough around it."""
        if channel.length - channel.judged >= self._rails.window:
            await self._judge(channel)
        return max(0, channel.judged - self._rails.window)

    async def _judge(self, channel: _Channel) -> None:
        text = channel.part(channel.judged - self._rails.window, channel.length)
        verdicts: list[GuardrailResult] = []
        for one in dict.fromkeys([text, spelt_out(text)]):
            verdicts += await self._rails.checked(one, self._rails.output_checks) if first_block(verdicts) is None else []
        self.usage = self.usage + cost_of(verdicts)
        if (no := first_block(verdicts)) is not None:
            raise Withheld(no)
        for verdict in [one for one in verdicts if one.action is GuardrailAction.WARN]:
            await self._report(verdict)
        channel.judged = channel.length

    async def _release(self, channel: _Channel, until: int, kind: str, call_id: str) -> None:
        if until > channel.released:
            piece, channel.released = channel.part(channel.released, until), until
            await self._emit(piece, kind, call_id)
            channel.forget(min(until, channel.judged - self._rails.window) if self._rails.output_checks else until)


class HeldWhole:
    """The gate for a `check_output` of one's own: it is asked about the whole text of a reply, and then all is released."""

    def __init__(self, rails: Rails, emit: Emit, view: RunView) -> None:
        self._rails, self._emit, self._view = rails, emit, view
        self._pieces: list[tuple[str, str, str]] = []
        self._quarters, self.usage = 0, NOTHING

    @property
    def tokens(self) -> int:
        return (self._quarters + 3) // 4

    async def take(self, text: str, kind: str = "text", call_id: str = "") -> None:
        if kind == "progress":
            await self._emit(text, kind, call_id)
        elif kind == "restarted":  # and nothing was released
            self._pieces, self._quarters = [], 0
        else:
            self._pieces.append((text, kind, call_id))
            self._quarters += quarter_tokens(text)

    async def finish(self, reply: ModelReply) -> None:
        streamed = {kind: "".join([text for text, what, _ in self._pieces if what == kind]) for _, kind, _ in self._pieces}
        called = "\n".join(in_calls(reply, self._view.agent.tools))
        said = dict.fromkeys([reply.message.text, streamed.pop("text", "")], self._rails.check_output)
        thought = dict.fromkeys([reply.message.thinking, called, *streamed.values()], self._rails.check_thought)
        for part, check in {**thought, **said}.items():
            verdicts = await self._rails.checked(part, (check,)) if part else []
            self.usage = self.usage + cost_of(verdicts)
            if (no := first_block(verdicts)) is not None:
                raise Withheld(no, reply)
            for verdict in [one for one in verdicts if one.action is GuardrailAction.WARN]:
                await self._view.warn("guardrails", verdict.reason)
        for piece in self._pieces:
            await self._emit(*piece)


def _spelt_and_said(*texts: str) -> list[str]:
    """Each as it is written, and without its escapes where it has some."""
    return [text for text in dict.fromkeys([one for text in texts for one in (text, spelt_out(text))]) if text]


def _endless(limit: int) -> GuardrailResult:
    reason = notice(
        "guardrail.match_too_long",
        "a possible match of a blocked pattern is longer than {limit:,} characters",
        limit=limit,
    )
    return GuardrailResult(GuardrailAction.BLOCK, reason, {"longest_match": limit})
