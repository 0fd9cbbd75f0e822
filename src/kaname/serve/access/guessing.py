"""Limits on requests and on wrong tokens. Nobody is kept out whose token cannot be guessed."""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from ...core.notices import notice
from ..problems import HttpRefused
from ..users import Caller
from .proxies import parse_address

WRONG_AT_ONCE, _RATE = 10, 1.0  # wrong tokens of one address: at once, and then per second, until it is slowed down
_WRONG_OF_ALL, _RATE_OF_ALL = 200, 20.0  # the same for all addresses together
_OWN_FORM = re.compile(r"kn_[A-Za-z0-9_-]{43}")  # 256 random bits: nobody guesses these, at whatever speed
_EVERYBODY = "*"
_MOST = 10_000  # addresses, callers and tokens that are remembered; those that were not seen for the longest time are forgotten


class Rates:
    """A bucket of requests for each caller. It is refilled with `rate` requests a second and holds at most `burst`."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str, *, take: bool = True) -> int:
        """Take one request from the bucket and return 0; if the bucket is empty, return the number of seconds to wait.

        `take`: False to look only.
        """
        now = time.monotonic()
        left, since = self._buckets.get(who, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._rate)
        if take:
            self._buckets[who] = (left - 1 if left >= 1 else left, now)
            forget_oldest(self._buckets, who)
        return 0 if left >= 1 else max(1, round((1 - left) / self._rate))

    def knows(self, who: str) -> bool:
        return who in self._buckets


class TokenRefused(HttpRefused):
    """A token that belongs to no user, or that was not checked because too many wrong ones came before it."""


class Guessing:
    """Count wrong tokens, and slow down those who send them.

    A token of kaname's own form is always checked: it has 256 random bits. A token that the operator chose may be weaker, so it
    is not checked while its address has sent too many wrong ones, unless it was right before from there.
    """

    def __init__(self) -> None:
        self._wrong, self._all = Rates(_RATE, WRONG_AT_ONCE), Rates(_RATE_OF_ALL, _WRONG_OF_ALL)
        self._right: OrderedDict[str, None] = OrderedDict()

    def check(self, token: str, address: str, find: Callable[[str], Caller | None]) -> Caller:
        """Return the user that `find` returns for the token. Raise `TokenRefused` if there is none, or after many guesses."""
        network = network_of(address)
        mark = sha256(f"{network}\0{token}".encode("utf-8", "surrogatepass")).hexdigest()
        wait = self._wrong.wait(network, take=False)
        wait = wait or (self._wrong.knows(network) and self._all.wait(_EVERYBODY, take=False))
        caller = None if wait and not _OWN_FORM.fullmatch(token) and mark not in self._right else find(token)
        if caller is None:
            self._wrong.wait(network)
            self._all.wait(_EVERYBODY)
            raise _too_many(wait) if wait else _wrong()
        self._right[mark] = None
        forget_oldest(self._right, mark)
        return caller


def _wrong() -> TokenRefused:
    message = notice("serve.wrong_token", "this token is not valid: check it, or ask the server's administrator for a new one")
    return TokenRefused(401, message, www_authenticate='Bearer error="invalid_token"')


def _too_many(wait: int) -> TokenRefused:
    message = notice("serve.wrong_tokens", "too many wrong tokens from this address; try again in {wait} s", wait=wait)
    return TokenRefused(429, message, retry_after=str(wait), connection="close")


def forget_oldest(seen: OrderedDict[Any, Any], latest: object) -> None:
    """Move an entry to the end, and remove the first if there are too many."""
    seen.move_to_end(latest)
    if len(seen) > _MOST:
        seen.popitem(last=False)


def network_of(address: str) -> str:
    """Return the network of a client: the first half of an IPv6 address, because a client has the whole other half."""
    found = parse_address(address)
    return address if found is None or found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
