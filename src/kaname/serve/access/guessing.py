"""Slow down guessing of tokens: for each address and in total, without keeping anybody out whose token cannot be guessed."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections import Counter, OrderedDict
from hashlib import sha256

from ...core.notices import notice
from ..problems import HttpRefused

_RATE, _BURST = 1.0, 10  # wrong tokens of one address, per second and at once, before it is slowed down
_RATE_OF_ALL, _BURST_OF_ALL = 20.0, 200  # the same for all addresses together
_MOST_HELD, _MOST_HELD_IN_ALL = 10, 500  # answers that are delayed at a time, for one address and for all
_OWN_FORM = re.compile(r"kn_[A-Za-z0-9_-]{43}")  # 256 random bits: nobody guesses these, at whatever speed
_EVERYBODY = "*"


class Rates:
    """A bucket of requests for each caller. It is refilled with `rate` requests a second and holds at most `burst`."""

    _MOST = 10_000  # callers that are remembered

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str) -> int:
        """Take one request from the bucket and return 0; if the bucket is empty, return the number of seconds to wait."""
        left = self._left(who)
        self._buckets[who] = (left - 1 if left >= 1 else left, time.monotonic())
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._MOST:
            self._buckets.popitem(last=False)
        return self._seconds(left)

    def peek(self, who: str) -> int:
        """Return the number of seconds to wait, without taking anything."""
        return self._seconds(self._left(who))

    def knows(self, who: str) -> bool:
        return who in self._buckets

    def _left(self, who: str) -> float:
        now = time.monotonic()
        left, since = self._buckets.get(who, (float(self._burst), now))
        return min(self._burst, left + (now - since) * self._rate)

    def _seconds(self, left: float) -> int:
        return 0 if left >= 1 else max(1, round((1 - left) / self._rate))


class WrongToken(HttpRefused):
    """A token that belongs to no user. It is answered differently from a missing token."""

    def __init__(self) -> None:
        told = notice("serve.wrong_token", "this token is not valid: check it, or ask the server's administrator for a new one")
        super().__init__(401, told, www_authenticate='Bearer error="invalid_token"')


class TooManyTokens(HttpRefused):
    """A token that was not checked, because too many wrong ones came before it."""

    def __init__(self, wait: int) -> None:
        told = notice("serve.wrong_tokens", "too many wrong tokens from this address; try again in {wait} s", wait=wait)
        super().__init__(429, told, retry_after=str(wait), connection="close")


class Guessing:
    """Count wrong tokens, and slow down those who send them.

    A token of kaname's own form is always checked at once: it has 256 random bits. A token that the operator chose may be
    weaker, so it is not checked while its address has sent too many wrong ones, unless it was right before from there. The
    memory is bounded: addresses and tokens that were not seen for the longest time are forgotten.
    """

    def __init__(self) -> None:
        self._wrong, self._all = Rates(_RATE, _BURST), Rates(_RATE_OF_ALL, _BURST_OF_ALL)
        self._right: OrderedDict[str, None] = OrderedDict()
        self._held = Counter[str]()

    def check(self, token: str, address: str) -> None:
        """Raise `TooManyTokens` if the token must not be checked now."""
        network = network_of(address)
        wait = self._wrong.peek(network) or (self._all.peek(_EVERYBODY) if self._wrong.knows(network) else 0)
        if wait and not _OWN_FORM.fullmatch(token) and _mark(token, network) not in self._right:
            raise TooManyTokens(wait)

    def note_right(self, token: str, address: str) -> None:
        mark = _mark(token, network_of(address))
        self._right[mark] = None
        self._right.move_to_end(mark)
        if len(self._right) > Rates._MOST:
            self._right.popitem(last=False)

    async def delay(self, problem: HttpRefused, address: str) -> HttpRefused:
        """Delay the answer to a wrong token if the same address, or all of them, have sent many. Return the answer.

        A few answers are delayed at a time; other requests with wrong tokens are refused at once.
        """
        network = network_of(address)
        wait = max(self._wrong.wait(network), self._all.wait(_EVERYBODY))
        if not wait:
            return problem
        if self._held[network] >= _MOST_HELD or self._held.total() >= _MOST_HELD_IN_ALL:
            return TooManyTokens(wait)
        self._held[network] += 1
        try:
            await asyncio.sleep(wait)
        finally:
            self._held[network] -= 1
            if not self._held[network]:
                del self._held[network]
        return problem


def _mark(token: str, network: str) -> str:
    return sha256(f"{network}\0{token}".encode("utf-8", "surrogatepass")).hexdigest()


def network_of(address: str) -> str:
    """Return the network of a client: the first half of an IPv6 address, because a client has the whole other half."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))
