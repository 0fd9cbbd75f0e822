"""Verify the audit log: find every place at which its chain does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.errors import ConfigError
from ...core.notices import notice
from ...core.record import record
from .chain import ERASED, FIELDS, START, Link, mismatches, read_line, value_of
from .file import AuditFile, parse_head


@record
class BrokenLink:
    """A place at which the chain does not fit.

    Args:
        place: The number of the entry, or of the first missing one.
        time: When that entry was written, as far as it can be read; otherwise the time of the last entry before it.
        what: What does not fit.
    """

    place: int
    time: str
    what: str

    def __str__(self) -> str:
        return notice("audit.broken", "entry {place} ({time}): {what}", place=self.place, time=self.time or "?", what=self.what)


def find_breaks(file: AuditFile, given: str | Link | None = None) -> list[BrokenLink]:
    """Return every break of the chain, in the order of the file."""
    walk = _Walk()
    found = list(walk.breaks(file))
    heads = [(file.read_head(), file.head_path.exists() or walk.last.entries > 0)]
    if given is not None:
        wanted = given if isinstance(given, Link) else parse_head(given)
        if wanted is None:
            raise ConfigError.of(
                "audit.head_form",
                "a head is written as COUNT:HASH, with 64 hexadecimal digits, not {given!r:.100}",
                given=given,
            )
        heads.append((wanted, True))
    for head, expected in heads:
        if expected and (problem := walk.check_head(head)) is not None and problem not in found:
            found.append(problem)
    return [*found, *walk.find_unexplained()]


class _Walk:
    """A walk through the lines of the log."""

    def __init__(self) -> None:
        self.last, self._time = Link(0, START), ""
        self._hashes: dict[int, str] = {0: START}
        self._erased: dict[int, tuple[str, list[str]]] = {}  # entries without some fields: their times, and the fields
        self._announced: dict[int, set[str]] = {}

    def breaks(self, file: AuditFile) -> Iterator[BrokenLink]:
        for _, line in file.lines():
            if not line.endswith(b"\n"):
                yield from self._check_rest(line, file)
                continue
            entry = read_line(line[:-1])
            if entry is None:
                message = notice("audit.no_entry", "the line is not an entry as it was written: it was changed")
                yield BrokenLink(self.last.entries + 1, self._time, message)
                self.last = Link(self.last.entries + 1, "")  # the next entry says which hash it had
                continue
            yield from self._check(entry)

    def _check(self, entry: dict[str, Any]) -> Iterator[BrokenLink]:
        place, expected = entry["place"], self.last.entries + 1
        self._time = entry["time"]
        if place != expected:
            yield BrokenLink(min(expected, place), self._time, _gap(expected, place))
        elif self.last.hash and entry["prev"] != self.last.hash:
            message = notice(
                "audit.prev", "it does not follow from entry {before}: the hash before it differs", before=place - 1
            )
            yield BrokenLink(place, self._time, message)
        if wrong := mismatches(entry):
            message = notice("audit.changed", "it was changed: {parts} does not fit its hash", parts=", ".join(wrong))
            yield BrokenLink(place, self._time, message)
        if missing := [name for name in FIELDS if entry[name] is None]:
            self._erased[place] = self._time, missing
        if entry["kind"] == ERASED:
            self._note_erasure((value_of(entry, "detail") or {}).get("places"))
        self.last = Link(place, entry["hash"])
        self._hashes[place] = entry["hash"]

    def _note_erasure(self, places: Any) -> None:
        for place, names in places.items() if isinstance(places, dict) else ():
            if place.isdecimal() and isinstance(names, list):
                self._announced.setdefault(int(place), set()).update([str(name) for name in names])

    def _check_rest(self, line: bytes, file: AuditFile) -> Iterator[BrokenLink]:
        """Check a line without its end. A crash leaves one, but only after the last entry that was acknowledged."""
        head = file.read_head()
        if head is None or head.entries > self.last.entries:
            message = notice("audit.cut", "the last line is incomplete: {size} bytes of it are there", size=len(line))
            yield BrokenLink(self.last.entries + 1, self._time, message)

    def check_head(self, head: Link | None) -> BrokenLink | None:
        if head is None:
            message = notice(
                "audit.no_head", "the file with the head is missing or unreadable, so entries after this one may be missing"
            )
            return BrokenLink(self.last.entries, self._time, message)
        if head.entries > self.last.entries:
            message = notice(
                "audit.end", "the end is missing: the head says that there are {count} entries", count=head.entries
            )
            return BrokenLink(self.last.entries + 1, self._time, message)
        if self._hashes.get(head.entries, "") not in ("", head.hash):
            message = notice("audit.other_head", "its hash differs from the head: the log was written anew")
            return BrokenLink(head.entries, self._time, message)
        return None

    def find_unexplained(self) -> Iterator[BrokenLink]:
        """Yield the entries of which fields are missing, although no entry says that they were erased."""
        for place, (time, erased) in self._erased.items():
            if missing := [name for name in erased if name not in self._announced.get(place, ())]:
                message = notice("audit.unexplained", "{parts} was erased, and no entry says so", parts=", ".join(missing))
                yield BrokenLink(place, time, message)


def _gap(expected: int, place: int) -> str:
    if place == expected + 1:
        return notice("audit.one_missing", "entry {place} is missing", place=expected)
    if place > expected:
        return notice("audit.missing", "entries {first} to {last} are missing", first=expected, last=place - 1)
    return notice("audit.order", "it stands after entry {before}: the order was changed", before=expected - 1)
