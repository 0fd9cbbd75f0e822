"""What a provider reports of its rate limits, for one address, key and model: that it is busy, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from urllib.parse import urlsplit

from ...core.durations import retry_after

_BUSY = (429, 503, 529)
_RECOVERY = 2.0  # seconds after which a provider that was busy may get twice as many calls at once
_MANY = 64  # calls at once after which a provider that was busy counts as recovered
_MOST_KNOWN = 1000
_known: dict[tuple[str, bytes, str], ProviderRates] = {}
_accounts: dict[tuple[str, bytes], str] = {}


class ProviderRates:
    """The limits of one address, key and model. All models of the process that have these share it.

    Attributes: account: Stands for the address and the key, without showing the key. bounded: True if there is anything to
    wait for.
    """

    def __init__(self, account: str) -> None:
        self.account, self.bounded = account, False
        self._at_work = 0
        self._held_until = 0.0
        self._at_once = 0  # after a refusal; 0: no limit
        self._refused_at = 0.0

    def __repr__(self) -> str:
        return f"<ProviderRates {self.account}>"

    def wait(self, now: float) -> tuple[str, float]:
        """Return the reason that a call must wait, or "", and the seconds of the wait."""
        if now < self._held_until:
            return "retry_after", self._held_until - now
        if self._at_once and (late := self._recovers_in(now)):
            return "busy", late
        return "", 0.0

    def _recovers_in(self, now: float) -> float:
        """Return the seconds until a busy provider may get another call; 0 if it may get one now.

        The number of calls at once doubles with each that succeeds, and with time: the call that finds out may hang.
        """
        periods = max(0, int((now - self._refused_at) / _RECOVERY))
        if self._at_work < self._at_once << min(periods, 6):
            return 0.0
        return max(0.001, self._refused_at + (periods + 1) * _RECOVERY - now)

    def begin(self) -> None:
        """Count a call that is about to be made. `end` must be called when it is over."""
        self._at_work += 1

    def end(self) -> None:
        self._at_work -= 1

    def learn(self, status: int, headers: Mapping[str, str], now: float | None = None) -> None:
        """Learn from an answer."""
        if self._at_once and status == 200:
            self._at_once = 0 if self._at_once >= _MANY else self._at_once * 2
        if status not in _BUSY:
            return
        now = monotonic() if now is None else now
        if (after := retry_after(headers)) is not None:
            self._held_until = max(self._held_until, now + after)
            self._at_once, self.bounded = 1, True
        elif status == 429:  # it may be a single refusal; a provider that is busy refuses the other calls as well
            self._at_once, self.bounded = max(1, (self._at_once or self._at_work) // 2), True
        self._refused_at = max(now, self._held_until)


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
