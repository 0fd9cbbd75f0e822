"""Rate limits that a provider reports in the headers of its answers, for one address, key and model."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

from ...core.durations import retry_after, seconds
from ...core.errors import ConfigError

_KINDS = {
    "requests": (("x-ratelimit-{}-requests", False), ("anthropic-ratelimit-requests-{}", True)),
    "tokens": (
        ("x-ratelimit-{}-tokens", False),
        ("anthropic-ratelimit-tokens-{}", True),
        ("anthropic-ratelimit-input-tokens-{}", True),
    ),
}
_HEADERS = [
    (kind, [(form.format("limit"), form.format("remaining"), form.format("reset"), dated) for form, dated in forms])
    for kind, forms in _KINDS.items()
]
_A_MINUTE = 60.0  # the period of a limit whose reset is not reported
_BUSY = (429, 503, 529)
_RECOVERY = 2.0  # seconds after which a provider that was busy may get twice as many calls at once
_MANY = 64  # calls at once after which a provider that was busy counts as recovered
_MOST_KNOWN = 1000
Sent = tuple[int, float]
"""A call among those of the same rates: its number, and the tokens of all calls up to it."""
_sending: ContextVar[tuple[ProviderRates, Sent] | None] = ContextVar("kaname_sending", default=None)
_known: dict[tuple[str, bytes, str], ProviderRates] = {}
_accounts: dict[tuple[str, bytes], str] = {}


class Quota:
    """One limit as the provider last reported it, less what was sent since.

    Providers refill a quota evenly. If the reports contradict that, it is refilled only at its reset.
    """

    __slots__ = ("_at", "_left", "_resets_at", "_speed", "_unit", "limit")

    def __init__(self) -> None:
        self.limit = 0.0  # 0: unknown
        self._left = self._at = self._speed = self._resets_at = self._unit = 0.0

    def learn(self, limit: float, left: float, reset: float, uncounted: float, now: float) -> None:
        """Take a report. `uncounted`: what has been sent and may not be counted in it."""
        if limit != self.limit:
            self._unit, self._speed = 0.0, limit / _A_MINUTE
        if left < limit:
            unit = reset / (limit - left)  # the same in every report if the quota refills evenly
            self._unit = max(self._unit, unit)
            self._speed = 0.0 if unit * 2 < self._unit else 1.0 / max(unit, 1e-6)
        self.limit, self._left, self._at, self._resets_at = limit, max(0.0, left - uncounted), now, now + reset

    def spend(self, amount: float) -> None:
        self._left -= amount

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until the provider would accept so much."""
        limit, speed = self.limit, self._speed
        if not limit:
            return 0.0
        if speed:
            self._left = min(limit, self._left + speed * (now - self._at))
        elif now >= self._resets_at:
            self._left, self._resets_at = limit, now + _A_MINUTE
        self._at = now
        missing = min(amount, limit) - self._left
        return 0.0 if missing <= 1e-9 else max(0.001, missing / speed if speed else self._resets_at - now)


class ProviderRates:
    """The limits of one address, key and model. All models of the process that have these share it.

    Attributes: account: Stands for the address and the key, without showing the key. bounded: True if there is anything to
    wait for.
    """

    def __init__(self, account: str) -> None:
        self.account, self.bounded = account, False
        self._count = self._ended = 0
        self._sent_tokens = 0.0
        self._unanswered: dict[int, float] = {}  # the tokens of calls without an answer, by their numbers
        self.requests, self.tokens = Quota(), Quota()
        self._held_until = 0.0
        self._at_once = 0  # after a refusal; 0: no limit
        self._refused_at = 0.0
        self._skew: float | None = None  # seconds by which the provider's clock differs from this one

    def __repr__(self) -> str:
        return f"<ProviderRates {self.account}>"

    @property
    def counts_tokens(self) -> bool:
        return self.tokens.limit > 0

    def wait(self, tokens: float, now: float) -> tuple[str, float]:
        """Return why a call must wait, or "", and for how many seconds; 0 seconds if that is unknown."""
        if now < self._held_until:
            return "retry_after", self._held_until - now
        if self._at_once and (late := self._recovers_in(now)):
            return "busy", late
        if late := self.requests.wait(1.0, now):
            return "provider_requests", late
        late = self.tokens.wait(tokens, now)
        return ("provider_tokens", late) if late else ("", 0.0)

    def _recovers_in(self, now: float) -> float:
        """Return the seconds until a busy provider may get another call; 0 if it may get one now.

        The number of calls at once doubles with each that succeeds, and with time: the call that finds out may hang.
        """
        periods = max(0, int((now - self._refused_at) / _RECOVERY))
        if self._count - self._ended < self._at_once << min(periods, 6):
            return 0.0
        return max(0.001, self._refused_at + (periods + 1) * _RECOVERY - now)

    def begin(self, tokens: float) -> Sent:
        """Count a call that is about to be made. `end` must be called when it is over."""
        self._count += 1
        self._unanswered[self._count] = tokens
        self._sent_tokens += tokens
        if self.bounded:
            self.requests.spend(1.0)
            self.tokens.spend(tokens)
        return self._count, self._sent_tokens

    def sending(self, sent: Sent) -> None:
        """Say in the task that makes the call which call it is."""
        _sending.set((self, sent))

    def end(self, sent: Sent) -> None:
        self._unanswered.pop(sent[0], None)
        self._ended += 1

    def learn(self, status: int, headers: Mapping[str, str], now: float | None = None) -> None:
        """Learn from the answer to the call of this task."""
        known = _sending.get()
        sent = known[1] if known is not None and known[0] is self else (self._count, self._sent_tokens)
        self._unanswered.pop(sent[0], None)
        if status in _BUSY:
            self._refused(status, headers, monotonic() if now is None else now)
        elif self._at_once and status == 200:
            self._at_once = 0 if self._at_once >= _MANY else self._at_once * 2
        for kind, forms in _HEADERS:
            for limit, left, reset, dated in forms:
                if limit in headers:
                    most, rest = _number(headers[limit]), _number(headers.get(left, ""))
                    if most and rest is not None:
                        until = self._until(headers, headers.get(reset, ""), dated)
                        quota: Quota = getattr(self, kind)
                        quota.learn(
                            most, min(most, rest), until, self._uncounted(sent, kind), monotonic() if now is None else now
                        )
                        self.bounded = True
                    break

    def _uncounted(self, sent: Sent, kind: str) -> float:
        """Return the requests or tokens that the answer to a call may not count: those of all calls after it, and of the calls
        before it that have no answer yet."""
        before = [tokens for number, tokens in list(self._unanswered.items()) if number < sent[0]]
        if kind == "requests":
            return len(before) + self._count - sent[0]
        return sum(before) + self._sent_tokens - sent[1]

    def _refused(self, status: int, headers: Mapping[str, str], now: float) -> None:
        after = retry_after(headers)
        if after is not None:
            self._held_until = max(self._held_until, now + after)
            self._at_once, self.bounded = 1, True
        elif status == 429:  # it may be a single refusal; a provider that is busy refuses the other calls as well
            self._at_once, self.bounded = max(1, (self._at_once or self._count - self._ended) // 2), True
        self._refused_at = max(now, self._held_until)

    def _until(self, headers: Mapping[str, str], reset: str, dated: bool) -> float:
        """Return the seconds until a reset: "6m0s", "20ms", a number of seconds, or a time."""
        try:
            if not dated:
                return 0.0 if reset.strip(" 0ms.") == "" and reset else seconds(reset)
            from datetime import datetime

            if self._skew is None:
                self._skew = _skew(headers.get("date", ""))
            return max(0.0, datetime.fromisoformat(reset.replace("Z", "+00:00")).timestamp() - time() - self._skew)
        except (ConfigError, ValueError, OverflowError):
            return _A_MINUTE


def rates_of(url: str, secrets: tuple[str, ...], model: str) -> ProviderRates:
    """Return the limits that belong to an address, its keys and a model: always the same object for the same ones."""
    from hashlib import sha256  # slow to load

    parts = urlsplit(url)
    place = f"{parts.hostname or url}:{parts.port}" if parts.port else parts.hostname or url
    keys = sha256("\0".join(secrets).encode("utf-8", "replace")).digest()
    found = _known.get((place, keys, model))
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            del _known[next(iter(_known))]
        account = _accounts.setdefault((place, keys), f"{place} #{len(_accounts) + 1}")
        found = _known[place, keys, model] = ProviderRates(account)
    return found


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _skew(date: str) -> float:
    """Return by how many seconds the server's clock is ahead of this one."""
    from email.utils import parsedate_to_datetime  # slow to load

    try:
        return parsedate_to_datetime(date).timestamp() - time()
    except (ValueError, TypeError):
        return 0.0
