"""Entries of the audit log, each chained to the one before it.

An entry is one line of JSON. Its hash covers the hash before it, its place, time and kind, and a digest of each of its three
fields. A digest covers a random salt and the field. So a field can be erased with its salt: the digest stays, the chain stays
whole, and nobody can guess the field from the digest.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from ...core.record import record

FIELDS = ("actor", "subject", "detail")
ERASED = "erased"  # the kind of the entry that says which fields of other entries were erased
CHECKPOINT = "checkpoint"  # the kind of the entry that says up to where the journal was read
START = "0" * 64  # stands for the hash before the first entry
_KEYS = ["place", "time", "kind", "prev", "size", "digests", "hash", *FIELDS]
_LARGEST = 10**7  # bytes
_LONGEST = 300  # characters of a text in an entry


class Link(NamedTuple):
    """The end of a chain: how many entries it has, and the hash of the last one."""

    entries: int
    hash: str

    def __str__(self) -> str:
        return f"{self.entries}:{self.hash}"


@record
class AuditEntry:
    """An entry of the audit log.

    Args:
        place: Its number, from 1.
        time: When it was written, in UTC, such as "2026-11-17T09:30:00.000000Z".
        kind: What happened, such as "sign_in", "approval" or "read".
        actor: The user who did it, or "". None if it was erased.
        subject: What it was done to, such as "run:01J…" or "user:ann". None if it was erased.
        detail: More values, without any content of runs. None if they were erased.
        prev, hash: The hash of the entry before it, and its own.
    """

    place: int
    time: str
    kind: str
    actor: str | None
    subject: str | None
    detail: Mapping[str, Any] | None
    prev: str
    hash: str

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""
        return {name: getattr(self, name) for name in self.__match_args__}


def make_line(last: Link, time: str, kind: str, actor: str, subject: str, detail: Mapping[str, Any]) -> bytes:
    """Return a new entry as a line, after the end of a chain."""
    fields = [[secrets.token_hex(16), _shorten(value)] for value in (actor, subject, dict(detail))]
    digests = [digest_of(one) for one in fields]
    place, size = last.entries + 1, len(encode(fields))
    entry = {
        "place": place,
        "time": time,
        "kind": kind,
        "prev": last.hash,
        "size": size,
        "digests": digests,
        "hash": hash_of(last.hash, place, time, kind, [size, *digests]),
        **dict(zip(FIELDS, fields, strict=True)),
    }
    return encode(entry) + b"\n"


def hash_of(prev: str, place: int, time: str, kind: str, fields: list[Any]) -> str:
    """Return the hash of an entry. `fields`: the size of its fields, and their digests."""
    return sha256(encode([prev, place, time, kind, fields])).hexdigest()


def digest_of(salted: list[Any]) -> str:
    """Return the digest of a field with its salt."""
    return sha256(encode(salted)).hexdigest()


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()


def read_line(line: bytes) -> dict[str, Any] | None:
    """Return the entry in a line, without its newline; None if it is not written as `make_line` and `erase` write it."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or [*entry] != _KEYS or not _is_well_formed(entry):
        return None
    return entry if line == _pad(entry) else None


def _pad(entry: Mapping[str, Any]) -> bytes:
    """Return the line of an entry: as long as it was before fields were erased."""
    padding: int = entry["size"] - len(encode([entry[name] for name in FIELDS]))
    return encode(entry) + b" " * padding


def _is_well_formed(entry: Mapping[str, Any]) -> bool:
    texts = [entry["time"], entry["kind"], entry["prev"], entry["hash"]]
    digests = entry["digests"]
    return (
        type(entry["place"]) is type(entry["size"]) is int
        and entry["size"] < _LARGEST
        and isinstance(digests, list)
        and len(digests) == len(FIELDS)
        and all(isinstance(one, str) for one in [*texts, *digests])
        and all(entry[name] is None or _is_field(name, entry[name]) for name in FIELDS)
    )


def _is_field(name: str, salted: Any) -> bool:
    if not isinstance(salted, list) or len(salted) != 2 or not isinstance(salted[0], str):
        return False
    return isinstance(salted[1], dict if name == "detail" else str)


def value_of(entry: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field, or None if it was erased."""
    return None if entry[name] is None else entry[name][1]


def as_entry(entry: Mapping[str, Any]) -> AuditEntry:
    actor, subject, detail = [value_of(entry, name) for name in FIELDS]
    own = {name: entry[name] for name in ("place", "time", "kind", "prev", "hash")}
    return AuditEntry(actor=actor, subject=subject, detail=detail, **own)


def mismatches(entry: Mapping[str, Any]) -> list[str]:
    """Return the parts of an entry that do not match their hash: the names of fields, or "hash" for the entry itself."""
    wrong = [
        name
        for name, digest in zip(FIELDS, entry["digests"], strict=True)
        if entry[name] is not None and digest_of(entry[name]) != digest
    ]
    sized = [entry["size"], *entry["digests"]]
    fits = hash_of(entry["prev"], entry["place"], entry["time"], entry["kind"], sized) == entry["hash"]
    return wrong if fits else [*wrong, "hash"]


def erase(line: bytes, names: list[str]) -> bytes:
    """Return a line of the same length without these fields. A line that a crash has left half erased loses all of them."""
    entry = read_line(line)
    if entry is None:
        try:
            entry, names = json.loads(line.partition(b',"actor":')[0] + b"}"), [*FIELDS]
            return _pad({**entry, **dict.fromkeys(names)})
        except (ValueError, KeyError, TypeError):
            return line
    return _pad({**entry, **dict.fromkeys(names)})


def fields_naming(user: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the fields of an entry that name a user."""
    wanted = {_shorten(user), _shorten(user_subject(user))}
    return [name for name in FIELDS if entry[name] is not None and not wanted.isdisjoint(_texts(entry[name][1]))]


def user_subject(user: str) -> str:
    """Return a user as the subject of an entry."""
    return f"user:{user}"


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in _texts(part)]


def _shorten(value: Any) -> Any:
    """Return a JSON value in which no text is very long."""
    if isinstance(value, Mapping):
        return {str(key)[:_LONGEST]: _shorten(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shorten(one) for one in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
