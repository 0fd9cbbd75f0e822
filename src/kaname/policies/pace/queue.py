"""A fair queue, and a window that counts what was used in the last seconds."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """An entry of the queue, with the user and the session that it belongs to."""

    user: str
    session: str


W = TypeVar("W", bound=Waiting)


class FairQueue(Generic[W]):
    """Users take turns, then the sessions of a user. Within a session, first come, first served."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, deque[W]]] = {}

    def __bool__(self) -> bool:
        return bool(self._users)

    def add(self, entry: W) -> None:
        self._users.setdefault(entry.user, {}).setdefault(entry.session, deque()).append(entry)

    def first(self) -> W:
        """Return the entry whose turn it is."""
        sessions = next(iter(self._users.values()))
        return next(iter(sessions.values()))[0]

    def take(self) -> W:
        """Remove and return the entry whose turn it is. Its user and its session are then the last in turn."""
        user = next(iter(self._users))
        sessions = self._users.pop(user)
        session = next(iter(sessions))
        entries = sessions.pop(session)
        taken = entries.popleft()
        if entries:
            sessions[session] = entries
        if sessions:
            self._users[user] = sessions
        return taken

    def remove(self, entry: W) -> bool:
        """Remove an entry that no longer waits. Return False if it was not in the queue."""
        sessions = self._users.get(entry.user, {})
        entries = sessions.get(entry.session, deque())
        if entry not in entries:
            return False
        entries.remove(entry)
        if not entries:
            del sessions[entry.session]
        if not sessions:
            del self._users[entry.user]
        return True


class CountedUse:
    """An amount that was used at a time. `held` is False once the window has passed it."""

    __slots__ = ("amount", "at", "held")

    def __init__(self, at: float, amount: float) -> None:
        self.at, self.amount, self.held = at, amount, True


class SlidingWindow:
    """What was used in the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.total = seconds, 0.0
        self._uses: deque[CountedUse] = deque()

    def wait(self, amount: float, limit: float, now: float) -> float:
        """Return the seconds until `amount` fits under the limit. More than the limit fits when the window is empty."""
        uses = self._uses
        while uses and uses[0].at <= now - self.seconds:
            passed = uses.popleft()
            passed.held = False
            self.total = self.total - passed.amount if uses else 0.0
        missing = self.total + amount - limit
        if missing <= 0 or not uses:
            return 0.0
        for use in uses:
            missing -= use.amount
            if missing <= 0:
                break
        return max(0.001, use.at + self.seconds - now)

    def add(self, amount: float, now: float) -> CountedUse:
        use = CountedUse(now, amount)
        self._uses.append(use)
        self.total += amount
        return use

    def correct(self, use: CountedUse, amount: float) -> None:
        """Replace an estimate by the amount that was really used."""
        if use.held:
            self.total += amount - use.amount
            use.amount = amount
