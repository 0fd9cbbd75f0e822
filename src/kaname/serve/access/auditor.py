"""Record in the audit log what people do on the server. What cannot be recorded is refused."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from logging import getLogger
from pathlib import Path
from typing import Any

from ...agent.agent import Agent
from ...config.build import Config
from ...core.errors import AuditError, ConfigError
from ...kernel.ports import Journal
from ...policies.permission.permit import Permit
from ...stores.audit.chain import user_subject
from ...stores.audit.facts import FactFollower
from ...stores.audit.log import AuditLog
from ...stores.audit.place import audit_beside
from ...stores.memory import MemoryJournal
from ..users import Caller, Users
from .guessing import forget_oldest

_AGAIN = 600.0  # seconds after which the same read or sign-in is recorded again
_MINUTE = 60.0
_FAILURES = 60  # entries about failed sign-ins in a minute, over all addresses
log = getLogger("kaname.audit")


class Auditor:
    """Record what people do. Without a log, nothing is recorded and nothing is refused.

    Every method that records an action of a person raises `AuditError` if the entry cannot be written.
    """

    def __init__(self, audit: AuditLog | None, journal: Journal) -> None:
        self.log = audit
        self._follower = None if audit is None else FactFollower(audit, journal)
        self._recent: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._failures = Failures()

    async def record(self, kind: str, caller: Caller, subject: str = "", **detail: Any) -> None:
        """Write an entry about an action of the caller."""
        if self.log is not None:
            await asyncio.to_thread(self.log.record, kind, actor=caller.name, subject=subject, **detail)

    async def read(self, caller: Caller, subject: str, owner: str | None) -> None:
        """Record that the caller reads data of another user. The same read within ten minutes is recorded once.

        `owner`: the user whose data it is; None for the data of all users.
        """
        if self.log is None or owner == caller.name or (owner is None and not caller.name):
            return
        mark = "read", caller.name, subject, owner or "*"
        if self._is_recent(mark):
            return
        await self.record("read", caller, subject, user="*" if owner is None else owner)
        self._remember(mark)

    async def sign_in(self, caller: Caller, how: str, address: str) -> None:
        """Record a sign-in. Requests with a token are recorded once in ten minutes for each user and address."""
        mark = "sign_in", caller.name, how, address
        if self.log is None or (how == "token" and self._is_recent(mark)):
            return
        await self.record("sign_in", caller, how=how, address=address, roles=sorted(caller.roles))
        self._remember(mark)

    async def fail_sign_in(self, how: str, address: str) -> None:
        """Record a failed sign-in. Many of them become one entry with their number, so that nobody can fill the disk."""
        if self.log is not None:
            await asyncio.to_thread(self._write_failures, self._failures.count(f"{how} {address}"))

    async def keep_counting(self) -> None:
        """Write the counts of failed sign-ins once a minute, and when the server ends."""
        try:
            while True:
                await asyncio.sleep(_MINUTE)
                await asyncio.to_thread(self._write_failures, self._failures.take())
        finally:
            self._write_failures(self._failures.take())

    def _write_failures(self, counted: Mapping[str, int]) -> None:
        try:
            for place, number in counted.items() if self.log is not None else ():
                how, _, address = place.partition(" ")
                self.log.record("sign_in_failed", how=how, address=address, count=number)  # type: ignore[union-attr]
        except AuditError as problem:
            log.error("failed sign-ins could not be recorded: %s", problem)

    async def require_log(self) -> None:
        """Raise `AuditError` if no entry can be written now: then a person's answer is not accepted."""
        if self.log is not None:
            await asyncio.to_thread(self.log.probe)

    async def before_deleting(self) -> None:
        """Write what the runs that are about to be deleted still have to say."""
        if self._follower is not None:
            await self._follower.catch_up()

    async def keep_following(self) -> None:
        """Copy approvals and refusals from the journal to the log, until it is cancelled."""
        if self.log is not None and self._follower is not None:
            log.info("audit log %s: head %s", self.log.path, self.log.head)
            try:
                await self._follower.keep_following()
            finally:
                log.info("audit log %s: head %s", self.log.path, self.log.head)

    def note_permissions(self, agents: Iterable[Agent[Any]], users: Users | None) -> None:
        """Record the permissions and roles that have changed since they were recorded last.

        Raises `AuditError` if that cannot be written: then the server does not start.
        """
        if self.log is None:
            return
        found = {f"agent:{agent.name}": [one.fingerprint for one in agent.recipe.policies if isinstance(one, Permit)]
                 for agent in agents}  # fmt: skip
        self.log.record_changes("permissions", {name: prints for name, prints in found.items() if prints})
        if users is not None:
            note_roles(self.log, users)

    def _is_recent(self, mark: tuple[str, ...]) -> bool:
        return time.monotonic() - self._recent.get(mark, -_AGAIN) < _AGAIN

    def _remember(self, mark: tuple[str, ...]) -> None:
        self._recent[mark] = time.monotonic()
        forget_oldest(self._recent, mark)


def note_roles(audit: AuditLog, users: Users, actor: str = "") -> None:
    """Record the users whose roles have changed."""
    audit.record_changes("roles", {user_subject(name): sorted(roles) for name, roles in users.all().items()}, actor=actor)


class Failures:
    """Count failed sign-ins. The first of an address is recorded at once, the next ones together after a minute."""

    def __init__(self) -> None:
        self._since, self._written = -_MINUTE, 0
        self._counted: dict[str, int] = {}
        self._known: set[str] = set()

    def count(self, address: str) -> dict[str, int]:
        """Count a failure, and return what is to be recorded now: numbers of failures by address."""
        now, due = time.monotonic(), dict[str, int]()
        if now - self._since >= _MINUTE:
            due = self.take()
            self._since, self._written, self._known = now, 0, set()
        if address in self._known or self._written + len(due) >= _FAILURES:
            place = address if address in self._known else "* *"
            self._counted[place] = self._counted.get(place, 0) + 1
        else:
            self._known.add(address)
            due[address] = due.get(address, 0) + 1
            self._written += 1
        return due

    def take(self) -> dict[str, int]:
        """Return the counts that are not recorded yet, and reset them."""
        due, self._counted = self._counted, {}
        return due


def audit_of(given: AuditLog | str | Path | bool | None, journal: Journal, config: Config | None) -> AuditLog | None:
    """Return the audit log of a server.

    By default it is `audit.log` next to the journal, or what the file says (`audit:`). A journal in memory has none, because
    nothing is to be stored.
    """
    if isinstance(given, AuditLog) or given is False:
        return given or None
    if isinstance(given, str | Path):
        return AuditLog(given)
    return audit_in(config, journal, journal_is_stored=given is True or not isinstance(journal, MemoryJournal))


def audit_in(config: Config | None, journal: Journal | str | Path | None, *, journal_is_stored: bool = True) -> AuditLog | None:
    """Return the audit log that a file names, or the one next to the journal, which is an object or a path."""
    said = None if config is None else config.value.get("audit")
    if said is None and not journal_is_stored:
        return None
    return audit_beside(journal, said, "." if config is None else config.agent().folder)


def require_audit(audit: AuditLog | None) -> AuditLog:
    """Return the log, or raise `ConfigError` if there is none."""
    if audit is None:
        raise ConfigError.of("audit.off", "there is no audit log: the file says `audit: false`")
    return audit
