"""Sign-ins of the page: a random id in a cookie that scripts cannot read, and its hash with the user in a file.

The file is shared by all workers and survives a restart. Signing out removes the entry, so a stolen cookie is worth nothing
afterwards. A sign-in with a token ends when that token is removed or replaced.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from typing import Any

from ...core.notices import notice
from ...core.record import record
from ...stores.audit.file import hold_lock
from ..problems import HttpRefused
from ..users import Caller, Users, write_private

_USUAL, _KEPT = 12 * 3600.0, 30 * 86400.0  # seconds: of a sign-in, and of one that the user wants to keep
_MOST, _MOST_OF_A_USER = 10_000, 50  # sign-ins; the oldest ones end
log = getLogger("kaname.serve")


@record
class PageSignIn:
    """A sign-in: the user, how the user signed in, and until when (seconds since 1970) it lasts.

    `token`: the hash of the token, if one was used. `roles`: otherwise, the roles that the company's provider gave.
    """

    user: str
    how: str
    expires: float
    token: str = ""
    roles: tuple[str, ...] = ()


class SignIns:
    """The sign-ins of the page.

    Args:
        path: Their file.
        users: The users with tokens.
        longest: The longest time of a sign-in, in seconds. By default 12 hours, or 30 days if the user wants to keep it.
    """

    def __init__(self, path: Path, users: Users, longest: float | None = None) -> None:
        self._path, self._users, self._longest = path, users, longest
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, PageSignIn] = {}
        self._name = f"kaname-{sha256(str(path.resolve()).encode()).hexdigest()[:8]}"  # servers on other ports have others

    def begin(
        self, user: str, how: str, *, token: str = "", roles: tuple[str, ...] = (), keep: bool = False
    ) -> tuple[str, float]:
        """Store a sign-in. Return the id for the cookie, which is not stored, and the seconds for which it lasts."""
        made, lasts = secrets.token_urlsafe(32), self._seconds(keep and how == "token")
        with self._changing() as entries:
            entries[_hash(made)] = PageSignIn(user, how, time.time() + lasts, token, roles)
        return made, lasts

    def _seconds(self, keep: bool) -> float:
        usual = _KEPT if keep else _USUAL
        return usual if self._longest is None else min(usual, self._longest) if not keep else self._longest

    def end(self, given: str) -> PageSignIn | None:
        """Remove a sign-in, and return it."""
        with self._changing() as entries:
            return entries.pop(_hash(given), None)

    def forget(self, user: str) -> int:
        """End all sign-ins of a user, and return how many there were."""
        with self._changing() as entries:
            ended = [mark for mark, one in entries.items() if one.user == user]
            for mark in ended:
                del entries[mark]
        return len(ended)

    def caller(self, given: str) -> Caller | None:
        """Return the user of a sign-in with its present roles, or None if it has ended."""
        found = self._load().get(_hash(given)) if given else None
        if found is None or found.expires <= time.time():
            return None
        if not found.token:
            return Caller(found.user, frozenset(found.roles))
        caller = self._users.caller_by_hash(found.token)
        return caller if caller is not None and caller.name == found.user else None

    def roles_of(self, user: str) -> frozenset[str] | None:
        """Return the roles that the company's provider gave a user at the last sign-in; None if none is under way."""
        now = time.time()
        found = [one for one in self._load().values() if one.user == user and not one.token and one.expires > now]
        return frozenset(max(found, key=lambda one: one.expires).roles) if found else None

    def cookie_name(self, secure: bool) -> str:
        return f"__Host-{self._name}" if secure else self._name

    def given_in(self, header: str) -> str:
        """Return the id in a `Cookie` header, or an empty text."""
        found = read_cookies(header)
        return found.get(self.cookie_name(True)) or found.get(self.cookie_name(False), "")

    def _load(self) -> dict[str, PageSignIn]:
        try:
            now = self._path.stat()
        except OSError:
            self._known, self._seen = {}, None
            return self._known
        if (mark := (now.st_mtime_ns, now.st_size, now.st_ino)) != self._seen:
            self._known, self._seen = self._read(), mark
        return self._known

    def _read(self) -> dict[str, PageSignIn]:
        """Return the sign-ins in the file. If it cannot be read, there are none: everybody signs in again."""
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
            return {mark: PageSignIn(**{**one, "roles": tuple(one["roles"])}) for mark, one in entries.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            log.error("the sign-ins in %s cannot be read, so they have ended: %s", self._path, problem)
            return {}

    @contextmanager
    def _changing(self) -> Iterator[dict[str, PageSignIn]]:
        """Change the file while no other process does."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hold_lock(self._path.with_name(self._path.name + ".lock")):
                now = time.time()
                entries = {mark: one for mark, one in self._read().items() if one.expires > now}
                yield entries
                write_private(self._path, {mark: _as_json(one) for mark, one in _newest(entries)})
        except OSError as problem:
            log.error("the sign-ins in %s cannot be written: %s", self._path, problem)
            message = notice("signin.unwritable", "sign-ins cannot be stored now; see the server's log")
            raise HttpRefused(503, message) from problem


def _newest(entries: Mapping[str, PageSignIn]) -> list[tuple[str, PageSignIn]]:
    """Return the sign-ins that are kept: of each user and in all, those that last longest."""
    kept: list[tuple[str, PageSignIn]] = []
    count = Counter[str]()
    for mark, one in sorted(entries.items(), key=lambda entry: -entry[1].expires):
        count[one.user] += 1
        if count[one.user] <= _MOST_OF_A_USER and len(kept) < _MOST:
            kept.append((mark, one))
    return kept


def _as_json(one: PageSignIn) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__match_args__}


def _hash(given: str) -> str:
    return sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def read_cookies(header: str) -> Mapping[str, str]:
    """Return the cookies of a `Cookie` header by name."""
    pairs = [part.strip().partition("=") for part in header.split(";")]  # other programs on this host may set odd ones
    return {name: value for name, _, value in reversed(pairs)}


def set_cookie(name: str, value: str, *, secure: bool, seconds: float | None, same_site: str = "Strict") -> str:
    """Return a `Set-Cookie` header. Scripts cannot read the cookie, and other sites cannot have it sent.

    `seconds`: how long the browser keeps it; None until it is closed.
    """
    parts = [f"{name}={value}", "Path=/", "HttpOnly", f"SameSite={same_site}"]
    parts += ["Secure"] if secure else []
    parts += [] if seconds is None else [f"Max-Age={int(seconds)}"]
    return "; ".join(parts)
