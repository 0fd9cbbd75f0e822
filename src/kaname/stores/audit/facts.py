"""Copy approvals and refusals from the journal to the audit log, each once, also after a crash."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from logging import getLogger
from typing import Any

from ...core.errors import AuditError, JournalError
from ...core.events import Answered, Asked, Event, Stopped, ToolFinished
from ...core.file_lock import lock_file
from ...core.notices import Notice
from ...core.people.answers import asks_person, is_yes_or_no, read_approval
from ...kernel.load import close_at_the_end
from ...kernel.ports import Journal
from .chain import CHECKPOINT, ERASED, AuditEntry
from .log import SOURCE, AuditLog, Wanted

APPROVAL, ANSWER, REFUSAL = "approval", "answer", "refusal"
_REFUSING = frozenset(["permit", "guardrail", "privacy", "flow"])  # how the codes of refusals begin
_FAR = 10_000  # facts without an entry, after which a checkpoint is written, so that they are not read at every start
_PAUSE, _RETRY, _TURN = 0.5, 5.0, 5.0  # seconds
log = getLogger("kaname.audit")


class FactFollower:
    """Follow a journal, and write an entry for each answer of a person and each refusal by a policy.

    The facts are in the journal before their entries are written, so a crash loses none: the next follower continues after the
    last entry. The entry and its source (run and fact) are written together, so none is written twice.
    """

    def __init__(self, audit: AuditLog, journal: Journal) -> None:
        self._audit, self._journal = audit, journal
        self._place: int | None = None  # up to where this object has read the journal
        self._read = 0  # bytes of the log that were read
        self._last: tuple[int, str, int] | None = None  # the last fact that is known to be done: its place, run and number
        self._done: dict[str, int] = {}  # by run, the last fact with an entry
        self._turn = asyncio.Lock()

    async def catch_up(self) -> None:
        """Write what is still missing. Raises `AuditError` if it cannot be written."""
        async with self._turn:
            try:
                await self._copy()
            except BaseException:
                self._place = None  # the log says where to continue
                raise

    async def keep_following(self) -> None:
        """Follow the journal until it is cancelled. Of several processes, one follows; another one replaces it.

        The journal is read twice a second: to wake up for each fact would cost as much as the run itself.
        """
        told = False
        while True:
            descriptor = self._take_turn()  # not in a thread: if this task is cancelled meanwhile, nobody would close it
            if descriptor is None:
                await asyncio.sleep(_TURN)
                continue
            try:
                while True:
                    await self.catch_up()
                    told = False
                    await asyncio.sleep(_PAUSE)
            except (AuditError, JournalError) as problem:
                if not told:
                    log.error("approvals and refusals wait to be written to the audit log: %s", problem)
                told = True
                await asyncio.sleep(_RETRY)
            finally:
                os.close(descriptor)

    def _take_turn(self) -> int | None:
        place = self._audit.path.with_name(self._audit.path.name + ".follower")
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None
        try:
            lock_file(descriptor)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    async def _copy(self) -> None:
        if self._place is None:
            await asyncio.to_thread(self._learn)
            self._place = await self._start()
        async with close_at_the_end(self._journal.changes(self._place, wait=False)) as changes:
            async for place, event in changes:
                wanted = await self._entry(event)
                if wanted is None and place - (self._last or (0,))[0] >= _FAR:
                    wanted = CHECKPOINT, "", "", {}
                if wanted is not None:
                    kind, actor, subject, detail = wanted
                    source = dict(zip(SOURCE, (event.run_id, event.seq, place), strict=True))
                    await asyncio.to_thread(self._write, (kind, actor, subject, {**detail, **source}))
                self._place = place

    async def _start(self) -> int:
        """Return the place to continue after; 0 to read everything, if the journal does not have the last fact any more."""
        if self._last is None:
            return 0
        place, run_id, seq = self._last
        async with close_at_the_end(self._journal.changes(place - 1, wait=False)) as changes:
            async for found, event in changes:
                if found > place:
                    break
                if (event.run_id, event.seq) == (run_id, seq):
                    return place - 1  # facts that were appended together share a place: those with entries are skipped
        return 0

    def _learn(self) -> None:
        """Read the entries that are new in the log: other processes write some, too."""
        entries, self._read = self._audit.entries_after(self._read)
        for entry in entries:
            self._note(entry)

    def _note(self, entry: AuditEntry) -> None:
        detail = entry.detail or {}
        run_id, seq, place = [detail.get(name) for name in SOURCE]
        if isinstance(run_id, str) and isinstance(seq, int) and isinstance(place, int):
            self._last = place, run_id, seq
            self._done[run_id] = max(seq, self._done.get(run_id, 0))
        for run_id, seq in detail.get("sources", ()) if entry.kind == ERASED else ():  # of entries that cannot say it any more
            self._done[run_id] = max(seq, self._done.get(run_id, 0))

    def _write(self, wanted: Wanted) -> None:
        def is_new(one: Wanted) -> bool:
            self._learn()  # while no other process writes
            return one[0] == CHECKPOINT or self._done.get(one[3]["run"], 0) < one[3]["fact"]

        self._audit.record_all([wanted], is_new)
        self._learn()

    async def _entry(self, event: Event) -> Wanted | None:
        """Return the entry for a fact, or None if it needs none. It holds ids, codes and names, and no content."""
        body, run = event.body, f"run:{event.run_id}"
        if isinstance(body, Answered) and asks_person(body.key):
            asked = await self._question(event.run_id, body.key)
            tool = asked.about.name if asked is not None and asked.about is not None else ""
            decision = _decision(asked, body.answer)
            when = datetime.fromtimestamp(event.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            detail = {
                "user": await self._user(event.run_id),
                "agent": event.agent,
                "question": body.key,
                "tool": tool,
                "when": when,
            }
            return APPROVAL if decision["decision"] else ANSWER, body.by, run, {**detail, **decision}
        if isinstance(body, ToolFinished) and (why := _refusal(body.result.error)):
            return REFUSAL, await self._user(event.run_id), run, {"agent": event.agent, "tool": body.result.name, **why}
        if isinstance(body, Stopped) and body.stop.kind == "blocked":
            why = _refusal(body.stop.detail) or {"code": "blocked"}
            return REFUSAL, await self._user(event.run_id), run, {"agent": event.agent, "withheld": body.stop.withheld, **why}
        return None

    async def _user(self, run_id: str) -> str:
        cards = await self._journal.runs(run_id=run_id, limit=1)
        return cards[0].user if cards else ""

    async def _question(self, run_id: str, key: str) -> Asked | None:
        found: Asked | None = None
        with suppress(JournalError):
            async for event in self._journal.read(run_id):
                if isinstance(event.body, Asked) and event.body.key == key:
                    found = event.body
        return found


def _decision(asked: Asked | None, answer: Any) -> dict[str, Any]:
    """Return the decision about a call, without its arguments. A lasting approval also has its scope and its end."""
    if asked is None or not (asked.in_doubt or (asked.about is not None and is_yes_or_no(asked.options))):
        return {"decision": ""}  # such as the result of a tool that the caller runs
    if asked.in_doubt:
        return {"decision": answer if isinstance(answer, str) else "result"}
    decision, lasting = read_approval(answer)
    if decision is None:
        return {"decision": "unclear"}
    said = "refused" if not decision.approved else "changed" if decision.args is not None else "approved"
    return {"decision": said} if lasting is None else {"decision": said, "for": lasting.scope, "until": lasting.until}


def _refusal(told: Any) -> dict[str, str]:
    """Return the code of a refusal and the name of its rule; an empty mapping if the text is not one of a policy."""
    for one in _parts(told):
        if one.code.partition(".")[0] in _REFUSING:
            rule = one.values.get("rule")
            return {"code": one.code, **({"rule": str(rule)} if rule else {})}
    return {}


def _parts(told: Any) -> Iterator[Notice]:
    """Yield a notice and those inside it."""
    if isinstance(told, Notice):
        yield told
    inner = told.values.values() if isinstance(told, Notice) else told if isinstance(told, list | tuple) else ()
    for one in inner:
        yield from _parts(one)
