"""What is remembered of one owner (a user, an agent or the project): a file of its own, on the search room's index.

A memory that is replaced ends and stays, as the past of the one that took its place: they are a chain. Every version can be
found; what is given is the chain, with what holds now and what held before.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Sequence
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

from ...core.errors import ConfigError
from ...core.notices import notice
from ...tools.search.chunk import Chunk
from ...tools.search.embed import Embeddings
from ...tools.search.index import FileRow, Index
from ...tools.search.pipeline import RAGPipeline, ranked
from ...tools.search.tokenize import terms

KINDS = ("fact", "preference", "decision", "said", "profile")
_LONGEST = 2_000  # characters
_LATEST = 32_503_680_000.0  # the year 3000
_TRIES, _PAUSE = 10, 0.1  # seconds
_HUGE = 1 << 63
_TABLES = (
    "CREATE TABLE IF NOT EXISTS memories (id INTEGER PRIMARY KEY AUTOINCREMENT, chain INTEGER, text TEXT, kind TEXT, "
    "about TEXT, said REAL, ended REAL, run TEXT, same TEXT)",
    "CREATE INDEX IF NOT EXISTS memories_chain ON memories (chain)",
    "CREATE INDEX IF NOT EXISTS memories_same ON memories (same)",
    "CREATE TABLE IF NOT EXISTS learned (run TEXT PRIMARY KEY)",
)
_COLUMNS = "id, chain, text, kind, about, said, ended, run"


class Remembered(NamedTuple):
    """One version. `about`: what it is about, if only one can hold at a time (`home`). `said`, `ended`: from when until when it
    held; `ended` is 0 as long as it does. `run`: where it comes from, empty if a person wrote it.

    `kind`: a fact, a preference or a decision; `said`, the user's own words, of which nobody has judged whether they still
    hold; `profile`, how the user wants to be answered."""

    id: int
    chain: int
    text: str
    kind: str = "fact"
    about: str = ""
    said: float = 0.0
    ended: float = 0.0
    run: str = ""


class Recalled(NamedTuple):
    """What was found: the version that holds (or held, at the time that was asked for), and those before it, newest first."""

    memory: Remembered
    before: tuple[Remembered, ...] = ()
    score: float = 0.0


class Memories(Index):
    """The file of one owner. `owner`: whose it is, in words; it is written into the file."""

    def __init__(self, path: str | Path, owner: str = "", embeddings: Embeddings | str | None = None) -> None:
        super().__init__(path)
        with self._reading():
            if self._writable:
                for statement in _TABLES:
                    self._db.execute(statement)
                self._db.execute("PRAGMA secure_delete = ON")  # what is forgotten is gone from the file
                for key, value in (("owner", owner), ("since", repr(time.time()))):
                    self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))
            self.owner, self.since = self._meta("owner"), float(self._meta("since") or 0)
        self._search = RAGPipeline(self, embeddings=embeddings)
        weakref.finalize(self, self._db.close)

    # Writing

    def add(
        self,
        text: str,
        kind: str = "fact",
        *,
        about: str = "",
        replaces: int = 0,
        said: float | None = None,
        run: str = "",
    ) -> Remembered:
        """Remember it. What says the same as something that holds is not written twice; what `replaces` another, or is `about`
        the same thing, takes its place. A `profile` takes the place of none but its like."""
        text, same = self._checked(text)
        about, when = " ".join(about.split()).casefold(), time.time() if said is None else said
        if kind not in KINDS:
            raise ConfigError(
                notice("memory.kind", "{kind!r} is no kind of memory: {kinds}", kind=kind, kinds=", ".join(KINDS))
            )
        if not 0 <= when < _LATEST:
            raise ConfigError(notice("memory.time", "said is a time in seconds since 1970, not {when}", when=when))
        vectors = self._search.embedded([text], zeros=True)
        with self._writing():
            known = self._one("same = ? AND ended = 0 AND kind = ?", same, kind)
            old = self._current(replaces) if replaces else None
            if old is None and about:
                old = self._one("about = ? AND ended = 0 AND (kind = 'profile') = ?", about, kind == "profile")
            if old is not None and (old.kind == "profile") != (kind == "profile"):
                old = None
            if old is not None and kind == "profile" and run and not old.run:
                return old  # what a person has set is not changed by what is learnt
            if known is not None and (not about or known.about in ("", about)):
                self._db.execute("UPDATE memories SET about = ? WHERE id = ?", (about or known.about, known.id))
                return self._said_again(known, old, when)
            if said is None and old is not None:
                when = max(when, old.said)  # what is said now is the newest, wherever the clock was set
            ended = old.said if old is not None and old.said > when else 0.0  # older news than what is known
            made = self._db.execute(
                "INSERT INTO memories (chain, text, kind, about, said, ended, run, same) VALUES (0, ?, ?, ?, ?, ?, ?, ?)",
                (text, kind, about or (old.about if old else ""), when, ended, run, same),
            )
            number = int(made.lastrowid or 0)
            self._db.execute("UPDATE memories SET chain = ? WHERE id = ?", (old.chain if old else number, number))
            if old is not None and not ended:
                self._db.execute("UPDATE memories SET ended = ? WHERE id = ?", (when, old.id))
            self._insert(_row(number), [Chunk(text, "", "")], vectors)
            return self._numbered(number)

    def _said_again(self, known: Remembered, old: Remembered | None, when: float) -> Remembered:
        """What is known already holds from the last time that it was said, and may take the place of another."""
        if when > known.said:
            self._db.execute("UPDATE memories SET said = ? WHERE id = ?", (when, known.id))
        if old is not None and old.chain != known.chain and when >= old.said:
            self._db.execute("UPDATE memories SET ended = ? WHERE id = ?", (when, old.id))
            self._db.execute("UPDATE memories SET chain = ? WHERE chain = ?", (old.chain, known.chain))
        return self._numbered(known.id)

    def _checked(self, text: str) -> tuple[str, str]:
        """The text as it is kept, and what is the same in all that say the same."""
        text = " ".join(text.encode("utf-8", "replace").decode().split())
        if not text or len(text) > _LONGEST:
            raise ConfigError(notice("memory.text", "a memory is a text of 1 to {most} characters", most=_LONGEST))
        return text, " ".join(terms(text)) or text.casefold()

    def correct(self, number: int, text: str) -> Remembered:
        """It was never so: put the right text in its place, without a past."""
        text, same = self._checked(text)
        old = self.get(number)
        vectors = self._search.embedded([text], zeros=True)
        with self._writing():
            self._db.execute("UPDATE memories SET text = ?, same = ? WHERE id = ?", (text, same, old.id))
            self._insert(_row(old.id), [Chunk(text, "", "")], vectors)
        self._scrub()
        return self.get(old.id)

    def forget(self, numbers: Iterable[int]) -> list[Remembered]:
        """Delete them for good, each with its past; which they were."""
        gone: list[Remembered] = []
        with self._writing():
            for chain in dict.fromkeys([self._numbered(number).chain for number in numbers]):
                gone += self._many("chain = ?", chain)
                self._db.execute("DELETE FROM memories WHERE chain = ?", (chain,))
            for one in gone:
                self._forget(_row(one.id).path)
            self._changed()
        self._scrub()
        return gone

    def _scrub(self) -> None:
        """Take what was deleted out of the file too: the words of the index are written anew, and the log is emptied. While
        another process reads, the log cannot be: then its next reader or writer does it."""
        with self._writing():
            self._db.execute("INSERT INTO words (words) VALUES ('optimize')")
        for _ in range(_TRIES):
            with self._reading():
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return
            time.sleep(_PAUSE)
        getLogger("kaname").warning("%s: forgotten texts stay in its log until no other process reads it", self.path)

    def forget_before(self, when: float) -> list[Remembered]:
        """Delete what nobody has said anything about since that time. What a person set (`profile`) stays."""
        with self._reading():
            rows = self._db.execute(
                "SELECT max(id) FROM memories GROUP BY chain HAVING max(max(said, ended)) < ? AND max(kind = 'profile') = 0",
                (when,),
            )
            old = [number for (number,) in rows]
        return self.forget(old) if old else []

    # Reading

    def all(self, *, past: bool = False) -> list[Remembered]:
        """What holds, or all that ever did; the newest last."""
        with self._reading():
            return self._many("1" if past else "ended = 0")

    def get(self, number: int) -> Remembered:
        with self._reading():
            return self._numbered(number)

    def history(self, number: int) -> list[Remembered]:
        """All versions, the newest first."""
        with self._reading():
            return self._many("chain = ?", self._numbered(number).chain)[::-1]

    def search(self, query: str, most: int = 5, *, at: float | None = None, least: float = 0.0) -> list[Recalled]:
        """What fits the question best. `at`: what held at that time; without it what holds now, with its past."""
        query = query.strip()[:_LONGEST].encode("utf-8", "replace").decode()
        if not query or not len(self):
            return []
        scores, _ = self._search.scored(query, self._search.embedded([query], zeros=True)[0])
        found: dict[int, Recalled] = {}
        for number in ranked(scores):
            if scores[number] < least or len(found) >= most:
                break
            version = self._of_chunk(number)
            if version is not None and version.chain not in found:
                recalled = self._as_of(version.chain, at, scores[number])
                if recalled is not None:
                    found[version.chain] = recalled
        return list(found.values())

    def learned(self, runs: Sequence[str]) -> set[str]:
        """Which of these runs were looked through already."""
        with self._reading():
            known = "SELECT 1 FROM learned WHERE run = ?"
            return {run for run in runs if self._db.execute(known, (run,)).fetchone()}

    def mark_learned(self, run: str) -> None:
        with self._writing():
            self._db.execute("INSERT OR IGNORE INTO learned VALUES (?)", (run,))

    def _as_of(self, chain: int, at: float | None, score: float) -> Recalled | None:
        with self._reading():
            versions = self._many("chain = ?", chain)[::-1]
        if at is not None:
            versions = [one for one in versions if one.said <= at]
            holds = bool(versions) and (not versions[0].ended or versions[0].ended > at)
            return Recalled(versions[0], tuple(versions[1:]), score) if holds else None
        return Recalled(versions[0], tuple(versions[1:]), score)

    def _of_chunk(self, number: int) -> Remembered | None:
        with self._reading():
            row = self._db.execute(
                "SELECT f.path FROM chunks c JOIN files f ON f.id = c.file WHERE c.id = ?", (number,)
            ).fetchone()
            return self._one("id = ?", int(row[0].rpartition("/")[2])) if row else None

    def _current(self, number: int) -> Remembered:
        return self._many("chain = ?", self._numbered(number).chain)[-1]

    def _numbered(self, number: int) -> Remembered:
        if not 0 < number < _HUGE or (found := self._one("id = ?", number)) is None:
            raise ConfigError(notice("memory.unknown", "there is no memory {number}", number=number))
        return found

    def _one(self, where: str, *values: object) -> Remembered | None:
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM memories WHERE {where} ORDER BY said DESC, id DESC LIMIT 1", values
        ).fetchone()
        return None if row is None else Remembered(*row)

    def _many(self, where: str, *values: object) -> list[Remembered]:
        return [
            Remembered(*row)
            for row in self._db.execute(f"SELECT {_COLUMNS} FROM memories WHERE {where} ORDER BY said, id", values)
        ]


def _row(number: int) -> FileRow:
    return FileRow(f"memory/{number}", 0.0, 0, "", 1, "")
