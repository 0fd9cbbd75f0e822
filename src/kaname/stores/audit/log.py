"""`AuditLog`: record who did what, list the entries, verify that none was changed, and erase a person from them."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.notices import notice
from .chain import CHECKPOINT, ERASED, FIELDS, AuditEntry, Link, as_entry, erase, fields_naming, make_line, read_line, value_of
from .file import AuditFile
from .verify import BrokenLink, find_breaks

Wanted = tuple[str, str, str, Mapping[str, Any]]
"""An entry to be written: its kind, actor, subject and detail."""
_KIND = re.compile(r"[a-z][a-z0-9_.]{0,49}")
SOURCE = ("run", "fact", "at")  # in the detail of an entry: the run and the fact that it comes from, and the fact's place
_AT_ONCE = 20  # erased places that one entry names


class AuditLog:
    """An append-only log whose entries are chained by hashes.

        log = AuditLog("audit.log")
        log.record("export", actor="ann", subject="user:ken", files=3)
        for broken in log.verify():
            print(broken)

    Several processes and threads can write to one file. An entry is on the disk when `record` returns. Entries hold ids, and
    no content of runs.

    Args:
        path: The file, with one JSON object per line. It is created with the first entry.
        head: The file for the number of entries and the last hash (default: the path with ".head" at its end). It shows that
            entries are missing at the end. Choose a place that those who can change the log cannot change.
    """

    def __init__(self, path: str | Path, *, head: str | Path | None = None) -> None:
        self._file = AuditFile(Path(path).expanduser(), None if head is None else Path(head).expanduser())

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def head(self) -> Link | None:
        """Return the number of entries and the last hash, as they were written last; None if nothing was."""
        return self._file.read_head()

    def record(self, kind: str, *, actor: str = "", subject: str = "", **detail: Any) -> AuditEntry:
        """Write an entry. It is on the disk when this returns.

        Args:
            kind: What happened, such as "export": small letters, digits, dots and underscores.
            actor: The user who did it.
            subject: What it was done to: "run:ID", "session:ID" or "user:ID".
            detail: More values for JSON, such as counts and ids. Pass no content of runs.

        Raises:
            AuditError: If it cannot be written. Then do not do what it would have recorded.
        """
        return self.record_all([(kind, actor, subject, detail)])[0]

    def record_all(self, wanted: Iterable[Wanted], only_if: Callable[[Wanted], bool] | None = None) -> list[AuditEntry]:
        """Write several entries. No other process writes in between. `only_if` is called right before each is written."""
        made: list[AuditEntry] = []
        with self._file.lock() as descriptor:
            for one in wanted:
                if only_if is None or only_if(one):
                    made.append(self._append(descriptor, *one))
        return made

    def _append(self, descriptor: int, kind: str, actor: str, subject: str, detail: Mapping[str, Any]) -> AuditEntry:
        if not _KIND.fullmatch(kind):
            told = notice(
                "audit.kind", "the kind of an entry has small letters, digits, dots and underscores, not {kind!r}", kind=kind
            )
            raise ConfigError(told)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        line = make_line(self._file.find_end(descriptor), now, kind, actor, subject, detail)
        entry = read_line(line[:-1])
        assert entry is not None
        self._file.append(descriptor, line, Link(entry["place"], entry["hash"]))
        return as_entry(entry)

    def record_changes(self, kind: str, now: Mapping[str, Any], *, actor: str = "") -> list[AuditEntry]:
        """Write an entry for each subject whose value is not the one that the last entry of this kind says.

        Args:
            kind: What changed, such as "roles".
            now: All subjects with their values. A subject that is not among them any more has the value None.
            actor: The user who changed them, if it is known.
        """
        with self._file.lock() as descriptor:
            before: dict[str, Any] = {}
            for entry in self.entries(kind=kind):
                if entry.subject and entry.detail is not None:
                    before[entry.subject] = entry.detail.get("now")
            changed = [one for one in {**before, **now} if before.get(one) != now.get(one)]
            return [
                self._append(descriptor, kind, actor, one, {"now": now.get(one), "before": before.get(one)}) for one in changed
            ]

    def entries(
        self, *, kind: str = "", actor: str | None = None, subject: str = "", since: str = "", until: str = ""
    ) -> Iterator[AuditEntry]:
        """Yield the entries, oldest first. Lines that are not entries are left out: `verify` names them.

        Args:
            kind: Only entries of this kind.
            actor: Only what this user did.
            subject: Only what was done to this, such as "run:ID".
            since, until: Only entries from this time on, or before that time: the beginning of a time in UTC, such as
                "2026-11-17" or "2026-11-17T09".

        Raises:
            AuditError: If the file cannot be read.
        """
        for _, line in self._file.lines():
            entry = read_line(line.rstrip(b"\n"))
            if entry is None or (kind and entry["kind"] != kind):
                continue
            if entry["time"] < since or (until and entry["time"] >= until):
                continue
            if (actor is None or value_of(entry, "actor") == actor) and (not subject or value_of(entry, "subject") == subject):
                yield as_entry(entry)

    def entries_after(self, place: int) -> tuple[list[AuditEntry], int]:
        """Return the entries after a place in the file, and the place after the last of them."""
        found: list[AuditEntry] = []
        for start, line in self._file.lines(place):
            if line.endswith(b"\n"):
                place = start + len(line)
                entry = read_line(line[:-1])
                found += [] if entry is None else [as_entry(entry)]
        return found, place

    def verify(self, head: str | Link | None = None) -> list[BrokenLink]:
        """Return every place at which the chain does not fit; an empty list if it is whole.

        Args:
            head: A head that you noted elsewhere, such as "120:9f3c…". It is checked in addition to the file of the head.

        Raises:
            AuditError: If the file cannot be read.
            ConfigError: If the head cannot be understood.
        """
        return find_breaks(self._file, head)

    def forget(self, user: str, *, actor: str = "") -> int:
        """Erase the fields that name a user from all entries, and return how many entries were changed.

        The chain stays whole. An entry of the kind "erased" says which places were changed, before they are. It holds a salted
        hash of the user's id: see `has_erased`. If a crash interrupts this, the next call finishes it.

        Args:
            user: The id of the user.
            actor: The user who asked for it.
        """
        with self._file.lock() as descriptor:
            found = dict(self._lines_naming(user))
            erased = [(str(number), names) for number, _, names in found.values()]
            salt = secrets.token_hex(16)
            by = "" if actor == user else actor
            for start in range(0, len(erased) or int(not self.has_erased(user)), _AT_ONCE):
                some = [*found.values()][start : start + _AT_ONCE]
                told = {"places": dict(erased[start : start + _AT_ONCE]), "salt": salt, "user": _mark(salt, user)}
                self._append(descriptor, ERASED, by, "", {**told, "sources": _sources([line for _, line, _ in some])})
            if erased and (done := self._last_source()) is not None:
                self._append(descriptor, CHECKPOINT, "", "", done)
            for place, (_, line, names) in found.items():
                self._file.overwrite(descriptor, place, erase(line, names))
            self._finish_erasing(descriptor)
            os.fsync(descriptor)
        return len(erased)

    def _lines_naming(self, user: str) -> Iterator[tuple[int, tuple[int, bytes, list[str]]]]:
        for place, line in self._file.lines():
            entry = read_line(line.rstrip(b"\n"))
            if entry is not None and (names := fields_naming(user, entry)):
                yield place, (entry["place"], line.rstrip(b"\n"), names)

    def _last_source(self) -> Mapping[str, Any] | None:
        """Return up to where the journal was read: the entry that says so may be about to be erased."""
        last: Mapping[str, Any] | None = None
        for entry in self.entries():
            last = entry.detail if entry.detail and "at" in entry.detail else last
        return None if last is None else {name: last[name] for name in SOURCE}

    def _finish_erasing(self, descriptor: int) -> None:
        """Erase lines that an earlier call has announced and a crash has left half erased."""
        announced = {number for entry in self.entries(kind=ERASED) for number in (entry.detail or {}).get("places", ())}
        lines = [(str(number), place, line[:-1]) for number, (place, line) in enumerate(self._file.lines(), 1)]
        for number, place, line in lines:
            if number in announced and read_line(line) is None and read_line(made := erase(line, [])) is not None:
                self._append(descriptor, ERASED, "", "", {"places": {number: FIELDS}})
                self._file.overwrite(descriptor, place, made)

    def has_erased(self, user: str) -> bool:
        """Return True if the log says that this user was erased from it."""
        told = [entry.detail for entry in self.entries(kind=ERASED) if entry.detail]
        return any(one.get("user") == _mark(str(one.get("salt")), user) for one in told)

    def probe(self) -> None:
        """Raise `AuditError` if no entry could be written now, for example because the disk is full."""
        self._file.probe()


def _sources(lines: Iterable[bytes]) -> list[tuple[str, int]]:
    """Return the runs and facts that entries come from, so that they are not written again after they are erased."""
    details = [value_of(read_line(line) or dict.fromkeys(["detail"]), "detail") or {} for line in lines]
    return [(one["run"], one["fact"]) for one in details if {*SOURCE} <= {*one}]


def _mark(salt: str, user: str) -> str:
    return sha256(f"{salt}:{user}".encode("utf-8", "surrogatepass")).hexdigest()
