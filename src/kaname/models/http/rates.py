"""Rate limits that a provider reports in the headers of its answers, for one address, key and model."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

from ...core.durations import seconds
from ...core.errors import ConfigError
from .errors import retry_after

_KINDS = {
    "requests": (("x-ratelimit-{}-requests", False), ("anthropic-ratelimit-requests-{}", True)),
    "tokens": (
        ("x-ratelimit-{}-tokens", False),
        ("anthropic-ratelimit-tokens-{}", True),
        ("anthropic-ratelimit-input-tokens-{}", True),
    ),
}
_HEADERS = {
    kind: [(form.format("limit"), form.format("remaining"), form.format("reset"), dated) for form, dated in forms]
    for kind, forms in _KINDS.items()
}
_A_MINUTE = 60.0  # the period of a limit whose reset is not reported
_BUSY = (429, 503, 529)
_MANY = 64  # calls at once after which a provider that was busy counts as recovered
_MOST_KNOWN = 1000
_known: dict[tuple[str, bytes, str], Rates] = {}
_accounts: dict[tuple[str, bytes], str] = {}


class Quota:
    """One limit as the provider last reported it, less what was sent since.

    Providers refill a quota evenly until its reset. If the reports contradict that, nothing is refilled before the reset.
    """

    __slots__ = ("_at", "_evenly", "_left", "_reset", "_spent_then", "_unit", "limit", "spent")

    def __init__(self) -> None:
        self.limit = self.spent = 0.0  # a limit of 0 is unknown
        self._left = self._reset = self._at = self._spent_then = self._unit = 0.0
        self._evenly = True

    def learn(self, limit: float, left: float, reset: float, spent_then: float, now: float) -> None:
        """Take a report. `spent_then`: `spent` when the request was sent. What was sent later may not be counted yet."""
        if limit != self.limit:
            self._unit = 0.0
        if left < limit:
            unit = reset / (limit - left)  # the same in every report if the quota refills evenly
            self._unit = max(self._unit, unit)
            self._evenly = unit * 2 >= self._unit
        self.limit, self._left, self._reset, self._spent_then, self._at = limit, left, reset, spent_then, now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until the provider would accept so much."""
        if not self.limit:
            return 0.0
        passed, limit = now - self._at, self.limit
        if passed >= self._reset:  # it is full again
            self._left, self._at, self._spent_then, passed = limit, now, self.spent, 0.0
            self._reset = self._reset or _A_MINUTE
        speed = (limit - self._left) / self._reset if self._evenly else 0.0
        missing = min(amount, limit) - (self._left + speed * passed - (self.spent - self._spent_then))
        if missing <= 0:
            return 0.0
        rest = self._reset - passed
        return max(0.001, min(rest, missing / speed) if speed else rest)


class Rates:
    """The limits of one address, key and model. All models of the process that have these share it.

    Attributes: account: Stands for the address and the key, without showing the key. bounded: True if there is anything to
    wait for. at_work: Calls under way.
    """

    def __init__(self, account: str) -> None:
        self.account, self.bounded, self.at_work = account, False, 0
        self.requests, self.tokens = Quota(), Quota()
        self._held_until = 0.0
        self._at_once = 0  # after a refusal; 0: no limit
        self._skew: float | None = None  # seconds by which the provider's clock differs from this one

    def __repr__(self) -> str:
        return f"<Rates {self.account}>"

    @property
    def counts_tokens(self) -> bool:
        return self.tokens.limit > 0

    def wait(self, tokens: float, now: float) -> tuple[str, float]:
        """Return why a call must wait, or "", and for how many seconds; 0 seconds if that is unknown."""
        if now < self._held_until:
            return "retry_after", self._held_until - now
        if self._at_once and self.at_work >= self._at_once:
            return "busy", 0.0
        if late := self.requests.wait(1.0, now):
            return "provider_requests", late
        late = self.tokens.wait(tokens, now)
        return ("provider_tokens", late) if late else ("", 0.0)

    def begin(self, tokens: float) -> None:
        """Count a call that is about to be sent."""
        self.at_work += 1
        self.requests.spent += 1.0
        self.tokens.spent += tokens

    def end(self) -> None:
        self.at_work -= 1

    def mark(self) -> tuple[float, float]:
        """Return what has been sent so far. Pass it to `learn` with the answer."""
        return self.requests.spent, self.tokens.spent

    def learn(self, status: int, headers: Mapping[str, str], mark: tuple[float, float], now: float | None = None) -> None:
        """Learn from the answer to a request."""
        if status in _BUSY:
            self._refused(status, headers, monotonic() if now is None else now)
        elif self._at_once and status == 200:
            self._at_once = 0 if self._at_once >= _MANY else self._at_once * 2
        for quota, kind, spent in ((self.requests, "requests", mark[0]), (self.tokens, "tokens", mark[1])):
            for limit, left, reset, dated in _HEADERS[kind]:
                if limit in headers:
                    most, rest = _number(headers[limit]), _number(headers.get(left, ""))
                    if most and rest is not None:
                        late = self._until(headers, headers.get(reset, ""), dated)
                        quota.learn(most, min(most, rest), late, spent, monotonic() if now is None else now)
                        self.bounded = True
                    break

    def _refused(self, status: int, headers: Mapping[str, str], now: float) -> None:
        after = retry_after(headers)
        if after is not None:
            self._held_until = max(self._held_until, now + after)
        if after is not None or status == 429:
            self._at_once, self.bounded = 1, True

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


def rates_of(url: str, secrets: tuple[str, ...], model: str) -> Rates:
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
        found = _known[place, keys, model] = Rates(account)
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
