"""Export everything that is stored about a user, as one archive that people and programs can read."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from ...core.codec import encode
from ...core.errors import ConfigError
from ...core.events import Answered, Event, Interjected, Opened
from ...core.project import sync_folder
from ...core.record import replace
from ...core.runs import RunInfo
from ...core.state import what_was_said
from ...kernel.ports import Journal
from ...stores.sqlite.journal import SqliteJournal
from ..files import MemoryFiles, as_data
from .places import DataPlaces
from .recording import record_export

_PAGE = 500
_ANOTHER = "(another person)"
_README = """This archive holds what kaname stores about one user.

runs.jsonl            the runs: when, by which agent, how they ended, what they cost
facts.jsonl           everything that was recorded of them, one JSON object a line
conversations/        the same as text: what was asked, and what was answered
media/                pictures and files that were sent or received
memories.jsonl        what was remembered about the user
profile.jsonl         values that programs stored for the user
budgets.jsonl         what was spent in the user's name
approvals.jsonl       approvals that hold for later runs
messages.jsonl        messages that no run has taken in yet

Words of other people in shared sessions are theirs: they are not in this archive.

このアーカイブには、kaname がこのユーザーについて保存しているデータが入っています。
共有セッションでのほかの人の発言は含まれません。
"""


class Exported(NamedTuple):
    """An archive and what is in it."""

    path: Path
    runs: int
    facts: int
    memories: int
    media: int


async def export_user(user: str, path: str | Path, places: DataPlaces | None = None) -> Exported:
    """Write everything that is stored about a user into a ZIP archive that only its owner can read.

    It has the user's runs, also those in shared sessions, without other people's turns there; memories; and accounts.

    Args:
        user: The id of the user, as passed to the runs.
        path: The archive. It appears when it is complete.
        places: Where to look (default: the files of this program).

    Raises:
        ConfigError: The archive exists, or nothing is stored about the user.
    """
    target, places = await asyncio.to_thread(Path(path).expanduser), places or DataPlaces.below()
    if await asyncio.to_thread(target.exists):
        raise ConfigError.of("rights.file_exists", "{path} already exists; choose another name", path=target)
    unfinished = target.with_name(f".{target.name}.unfinished")
    descriptor = await asyncio.to_thread(os.open, unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            with ZipFile(file, "w", ZIP_DEFLATED) as archive:
                writer = _Archive(archive, user, places)
                done = await writer.write(target)
            file.flush()
            os.fsync(file.fileno())
        if not writer.found:
            raise ConfigError.of("rights.unknown_user", "nothing is stored about the user {user!r}", user=user)
        unfinished.replace(target)
        sync_folder(target.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    await asyncio.to_thread(record_export, user, places.audit)
    return done


class _Archive:
    """Writes the parts of an archive, one after the other."""

    def __init__(self, archive: ZipFile, user: str, places: DataPlaces) -> None:
        self._archive, self._user, self._places = archive, user, places
        self._media = 0
        self.found = False  # anything about the user

    async def write(self, target: Path) -> Exported:
        self._archive.writestr("README.txt", _README)
        runs = facts = 0
        journal: Journal | None = None
        place = self._places.journal
        if self._places.server:
            from ...stores.postgres import PostgresJournal

            journal = PostgresJournal(self._places.server)  # not the program's own, which stays open
        elif place is not None and place.exists():
            journal = SqliteJournal(place)
        if journal is not None:
            try:
                runs, facts = await self._write_runs(journal)
                await self._write_accounts(journal)
                await self._write_approvals(journal)
            finally:
                await journal.close()
        memories = await asyncio.to_thread(self._write_memories)
        return Exported(target, runs, facts, memories, self._media)

    async def _write_runs(self, journal: Journal) -> tuple[int, int]:
        cards, lines = [], 0
        parts: list[str] = []
        waiting: dict[str, str] = {}
        async for card in _runs(journal, self._user):
            events = [self._own(event) async for event in journal.read(card.run_id)]
            parts += [self._without_media(encode(event)) for event in events]
            lines += len(events)
            for said in await inbox.letters(card.run_id) if (inbox := journal.stores.inbox) is not None else ():
                waiting[said.id] = self._without_media(encode(self._own(Event(card.run_id, 0, said.at, card.agent, said))))
            cards.append(json.dumps(card_json(card), ensure_ascii=False))
            if not card.parent:
                self._archive.writestr(f"conversations/{_day(card.created)} {card.run_id}.md", conversation(card, events))
        self._write_lines("runs.jsonl", cards)
        self._write_lines("facts.jsonl", parts)
        self._write_lines("messages.jsonl", list(waiting.values()))
        return len(cards), lines

    def _own(self, event: Event) -> Event:
        """Leave out who else started the run, answered or said something: that is another person's."""
        body = event.body
        if not isinstance(body, Answered | Interjected | Opened):
            return event
        return event._replace(body=replace(body, by=self._whose(body.by)))

    def _without_media(self, line: str) -> str:
        """Write pictures and files of a fact as files, and name them in their place."""
        if '"media"' not in line:
            return line
        data = json.loads(line)
        for part in _media_in(data):
            self._media += 1
            kind = str(part.get("mime") or part.get("media_type") or "")
            name = f"media/{self._media:05}{mimetypes.guess_extension(kind) or '.bin'}"
            self._archive.writestr(name, b64decode(part["data"]))
            part["data"] = name
        return json.dumps(data, ensure_ascii=False)

    async def _write_accounts(self, journal: Journal) -> None:
        found, ledger = list[str](), journal.stores.ledger
        assert ledger is not None
        for balance in await ledger.balances(f"user\x1f{self._user}\x1f"):
            _, _, unit, period, window = balance.name.split("\x1f")
            found.append(json.dumps({"unit": unit, "period": period, "window": window, "spent": balance.spent}))
        self._write_lines("budgets.jsonl", found)

    async def _write_approvals(self, journal: Journal) -> None:
        """Write the approvals that hold for later runs of the user, or that the user gave."""
        grants = journal.stores.grants
        found = [one for one in (await grants.all() if grants is not None else ()) if self._user in (one.user, one.by)]
        own = [one._replace(user=self._whose(one.user), by=self._whose(one.by)) for one in found]
        self._write_lines("approvals.jsonl", [json.dumps(one._asdict(), ensure_ascii=False) for one in own])

    def _whose(self, user: str) -> str:
        return user if user in ("", self._user) else _ANOTHER

    def _write_memories(self) -> int:
        folder = self._places.memory
        if folder is None or not folder.is_dir():
            return 0
        files = MemoryFiles(folder)
        if not files.path(("user", self._user)).exists():
            return 0
        try:
            store = files.of(self._user)
            memories = [json.dumps(as_data(one), ensure_ascii=False) for one in store.all(past=True)]
            notes = [(whose, store.notes(whose)) for whose in store.note_owners("")]
        finally:
            files.close()
        self._write_lines("memories.jsonl", memories)
        self._write_lines("profile.jsonl", [json.dumps({whose: held}, ensure_ascii=False) for whose, held in notes])
        return len(memories) + len(notes)

    def _write_lines(self, name: str, lines: list[str]) -> None:
        if lines:
            self.found = True
            text = "".join([f"{line}\n" for line in lines])
            self._archive.writestr(name, text.encode("utf-8", "backslashreplace"))


async def _runs(journal: Journal, user: str) -> AsyncIterator[RunInfo]:
    before = 0
    while page := await journal.runs(user=user, before=before, limit=_PAGE):
        for card in page:
            yield card
        before = page[-1].place


def card_json(card: RunInfo) -> dict[str, Any]:
    return {name: getattr(card, name) for name in RunInfo.__match_args__ if name != "place"}


def conversation(card: RunInfo, events: list[Event]) -> str:
    """Return the messages of a run as text."""
    head = f"# {card.title}\n\n{_moment(card.created)}, {card.agent}, {card.status}\n"
    spoken = [(event, message) for event, message in what_was_said(events) if message.text]
    said = [f"\n**{message.role}** ({_moment(event.time)})\n\n{message.text}\n" for event, message in spoken]
    return "".join([head, *said])


def _media_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("type") == "media" and isinstance(value.get("data"), str):
            yield value
        for one in value.values():
            yield from _media_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _media_in(one)


def _day(when: float) -> str:
    return datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d")


def _moment(when: float) -> str:
    return datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
