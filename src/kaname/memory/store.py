"""The memories of one owner (a user, an agent or the project): a file of its own, on the index of the search.

A memory that is replaced ends and stays, as the past of the one that took its place: they are a chain. Every version can be
found; what is given is the chain, with what holds now and what held before.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from logging import getLogger
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.sentences import split_sentences
from ..tools.search import index_file as opening
from ..tools.search.chunk import TextChunk, sentences
from ..tools.search.dialogue import speaker
from ..tools.search.embed import AbsentEmbeddings, Embeddings, is_absent
from ..tools.search.index import FileRow, Index
from ..tools.search.pipeline import RAGPipeline
from ..tools.search.rank import rank
from ..tools.search.tokenize import query_terms, terms
from .forgetting import without, words_to_forget
from .names import in_first_person, names_in
from .remembered import KINDS, Later, in_order
from .remembered import Recalled as Recalled
from .remembered import Remembered as Remembered
from .rules import told_in

_LONGEST = 2_000  # characters
_LATEST = 32_503_680_000.0  # the year 3000
_RENEWED = 32  # memories of an older kaname whose sentences are embedded when one is added
_TRIES, _PAUSE = 10, 0.1  # seconds
_HUGE = 1 << 63
_OPEN_TO_ALL = nullcontext()
_WORDS = 0.3  # what all of a question's words count, where a cosine counts 1
_USUAL, _TYPICAL = 0.75, 0.05  # what a question's usual cosine with the memories counts against it; a typical one
_CHANCE, _FEW = 0.055, 0.2  # so near comes the nearest of N unrelated memories: `_CHANCE` × ln N; of few of them
_BESIDE = 0.05  # what is recalled besides the nearest may be so much farther; all by trial, see benchmarks/README.md
_SENTENCES = 8  # of a message that are looked up one by one
_BEGUN = 1_000  # runs that are still to be learnt from: older ones are given up
_TABLES = (
    "CREATE TABLE IF NOT EXISTS memories (id INTEGER PRIMARY KEY AUTOINCREMENT, chain INTEGER, text TEXT, kind TEXT, "
    "about TEXT, said REAL, ended REAL, run TEXT, same TEXT)",
    "CREATE INDEX IF NOT EXISTS memories_chain ON memories (chain)",
    "CREATE INDEX IF NOT EXISTS memories_same ON memories (same)",
    "CREATE INDEX IF NOT EXISTS memories_about ON memories (about)",
    "CREATE INDEX IF NOT EXISTS memories_said ON memories (said)",
    "CREATE INDEX IF NOT EXISTS memories_profile ON memories (said, id) WHERE kind = 'profile'",
    "CREATE TABLE IF NOT EXISTS learned (run TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS begun (run TEXT PRIMARY KEY, upto INTEGER)",  # and the last memory there was then
    "CREATE TABLE IF NOT EXISTS notes (whose TEXT, key TEXT, value TEXT, PRIMARY KEY (whose, key))",
)
_COLUMNS = "id, chain, text, kind, about, said, ended, run"


class Memories(Index):
    """The file of one owner. `owner`: whose it is, in words; it is written into the file. `gate`: held while the file is used,
    so that only so many are in use at once."""

    ONE_TALK = True  # a memory that names its speaker (`Mia: …`) is a turn

    def __init__(
        self,
        path: str | Path,
        owner: str = "",
        embeddings: Embeddings | str | None = None,
        gate: AbstractContextManager[Any] = _OPEN_TO_ALL,
    ) -> None:
        self._gate, self._turning = gate, threading.Lock()  # the second: while it is opened or closed
        self._inside, self._closed = 0, False
        super().__init__(path)
        with self._read_lock():
            if self._writable:
                for statement in _TABLES:
                    self._db.execute(statement)
                self._db.execute("INSERT OR IGNORE INTO meta VALUES ('owner', ?)", (owner,))
            self.owner = self._meta("owner")
        if embeddings is None and is_absent(self.made_with):
            embeddings = AbsentEmbeddings(self.made_with, self.path)
        self._search = RAGPipeline(self, embeddings=embeddings)

    def _open(self) -> None:
        super()._open()
        if self._writable:
            self._db.execute("PRAGMA secure_delete = ON")  # what is forgotten is gone from the file

    def close(self) -> None:
        """Close the file as soon as it is not in use. If it is used again, it is open for as long as that takes."""
        with self._turning:
            self._closed = True
            if not self._inside:
                self._closing()

    @contextmanager
    def _read_lock(self) -> Iterator[None]:
        with self._lock, nullcontext() if self._inside else self._gate:
            with self._turning, opening.explain_errors(self.path):
                if not self._closing.alive:
                    self._open()
                self._inside += 1
            try:
                with super()._read_lock():
                    yield
            finally:
                with self._turning:
                    self._inside -= 1
                    if self._closed and not self._inside:
                        self._closing()

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
        later: Later | None = None,
    ) -> Remembered:
        """Remember it. What says the same as something that holds is not written twice; what `replaces` another, or is `about`
        the same thing, takes its place. A `profile` takes the place of none but its like.

        `later`: tells which memories are newer than this one, whatever the clock says. Without it the newer one is the one
        with the later `said`, and what is added without `said` is the newest."""
        text, same = self._normalize(text)
        about, when = " ".join(about.split()).casefold(), time.time() if said is None else said
        _check_kind(kind)
        _check_time(when)
        vectors = self._embed(text)
        with self._write_transaction():
            known = self._one("same = ? AND ended = 0 AND kind = ?", same, kind)
            old = self._predecessor(replaces, about, is_profile=kind == "profile")
            if old is not None and kind == "profile" and run and not old.run:
                return old  # what a person has set is not changed by what is learnt
            if said is None or later is not None:
                when = in_order(when, [one for one in (known, old) if one is not None], later)
            if known is not None and (not about or known.about in ("", about)):
                self._db.execute("UPDATE memories SET about = ? WHERE id = ?", (about or known.about, known.id))
                return self._said_again(known, old, when)
            number = self._write(text, kind, about, when, run, same, old)
            self._insert(_row(number), [TextChunk(text, "", "")], vectors[:1], [vectors[1:]], [bool(speaker(text))])
            added = self._by_number(number)
        self._search.renew(_RENEWED)
        return added

    def _write(self, text: str, kind: str, about: str, when: float, run: str, same: str, old: Remembered | None) -> int:
        """Write the memory in the place of `old`, unless it is older news, and return its number."""
        ended = old.said if old is not None and old.said > when else 0.0
        made = self._db.execute(
            "INSERT INTO memories (chain, text, kind, about, said, ended, run, same) VALUES (0, ?, ?, ?, ?, ?, ?, ?)",
            (text, kind, about or (old.about if old else ""), when, ended, run, same),
        )
        number = int(made.lastrowid or 0)
        self._db.execute("UPDATE memories SET chain = ? WHERE id = ?", (old.chain if old else number, number))
        if old is not None and not ended:
            self._db.execute("UPDATE memories SET ended = ? WHERE id = ?", (when, old.id))
        return number

    def _predecessor(self, replaces: int, about: str, *, is_profile: bool) -> Remembered | None:
        """Return the memory that a new one takes the place of: the one with that id, or the one about the same subject."""
        old = self._current(replaces) if replaces else None
        if old is None and about:
            old = self._one("about = ? AND ended = 0 AND (kind = 'profile') = ?", about, is_profile)
        return old if old is not None and (old.kind == "profile") == is_profile else None

    def _embed(self, text: str) -> Any:
        """Return the vectors of a memory and of its sentences: of what it tells, not of what it asks besides, and with "I" for
        the user's name, since a question says "I", and a name in only one of the two hides what they have in common."""
        meant = text if speaker(text) else in_first_person(told_in(text), self._user_names())
        return self._search.embed([meant, *sentences(meant)], zeros=True)

    def _user_names(self) -> list[str]:
        """Return the names by which the user is known: the user id, and what is remembered `about` the name."""
        kind, _, name = self.owner.partition(" ")
        if kind != "user":
            return []
        with self._read_lock():
            return [
                one
                for known in (*[one.text for one in self._many("about = 'name' AND ended = 0")], name)
                for one in names_in(known)
            ]

    def _said_again(self, known: Remembered, old: Remembered | None, when: float) -> Remembered:
        """Renew a memory that was said again. It can replace another one."""
        if when > known.said:
            self._db.execute("UPDATE memories SET said = ? WHERE id = ?", (when, known.id))
        if old is not None and old.chain != known.chain and when >= old.said:
            self._db.execute("UPDATE memories SET ended = ? WHERE id = ?", (when, old.id))
            self._db.execute("UPDATE memories SET chain = ? WHERE chain = ?", (old.chain, known.chain))
        return self._by_number(known.id)

    def _normalize(self, text: str) -> tuple[str, str]:
        """Return the text to store, and a form that is equal for texts that say the same."""
        text = " ".join(text.encode("utf-8", "replace").decode().split())
        if not text or len(text) > _LONGEST:
            raise ConfigError.of("memory.text", "a memory must have 1 to {most} characters", most=_LONGEST)
        return text, " ".join(terms(text)) or text.casefold()

    def correct(self, number: int, text: str) -> Remembered:
        """Replace a text that was wrong from the start. The wrong text is not kept as past."""
        text, same = self._normalize(text)
        old = self.get(number)
        vectors = self._embed(text)
        with self._write_transaction():
            self._db.execute("UPDATE memories SET text = ?, same = ? WHERE id = ?", (text, same, old.id))
            self._insert(_row(old.id), [TextChunk(text, "", "")], vectors[:1], [vectors[1:]], [bool(speaker(text))])
        self._scrub()
        return self.get(old.id)

    def forget(self, numbers: Iterable[int]) -> list[Remembered]:
        """Delete these memories for good, and return all that were deleted.

        A memory that holds is deleted with its past, which would be recalled in its place otherwise. A past one is deleted
        alone: what replaced it, and what it had replaced, stay."""
        gone: dict[int, Remembered] = {}
        with self._write_transaction():
            for one in [self._by_number(number) for number in numbers]:
                versions = [one] if one.ended else self._many("chain = ?", one.chain)
                gone |= {version.id: version for version in versions}
            for number in gone:
                self._db.execute("DELETE FROM memories WHERE id = ?", (number,))
                self._forget(_row(number).path)
            self._count_version()
        self._scrub()
        return list(gone.values())

    def _scrub(self) -> None:
        """Take what was deleted out of the file too: the words of the index are written anew, and the log is emptied. While
        another process reads, the log cannot be: then its next reader or writer does it."""
        with self._write_transaction():
            self._db.execute("INSERT INTO words (words) VALUES ('optimize')")
        for _ in range(_TRIES):
            with self._read_lock():
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return
            time.sleep(_PAUSE)
        getLogger("kaname").warning("%s: forgotten texts stay in its log until no other process reads it", self.path)

    def forget_before(self, when: float) -> list[Remembered]:
        """Delete what nobody has said anything about since that time. What a person set (`profile`) stays."""
        with self._read_lock():
            rows = self._db.execute(
                "SELECT id FROM memories WHERE chain IN (SELECT chain FROM memories WHERE chain IN "
                "(SELECT chain FROM memories WHERE said < ?) GROUP BY chain "
                "HAVING max(max(said, ended)) < ? AND max(kind = 'profile') = 0) ORDER BY said, id",
                (when, when),
            )
            old = [number for (number,) in rows]
        return self.forget(old) if old else []

    # Reading

    def all(self, *, past: bool = False) -> list[Remembered]:
        """Return the valid memories, or with `past` all versions; the newest last."""
        with self._read_lock():
            return self._many("1" if past else "ended = 0")

    def profile(self) -> list[Remembered]:
        """Return the memories about the way in which the user wants to be answered. The newest is last."""
        with self._read_lock():
            return self._many("kind = 'profile' AND ended = 0")

    def find_about(self, about: str) -> list[tuple[Remembered, str]]:
        """Return the memories that say this or most of it, whatever their age, each with its text without the sentences that
        do: empty if nothing is left. A memory that only shares a word with it is not meant."""
        with self._read_lock():
            weighed, absent = self._weigh_terms(about)
            weights = {term: weight for _, term, weight in weighed}
            found = [one for number in self.sharing_words_with(about) if (one := self._of_chunk(number)) is not None]
        missing = absent / max(1, len(query_terms(about)) - len(weights))
        words = {word: weights.get(word, missing) for word in words_to_forget(about)}
        split = {one: split_sentences(one.text) for one in found}
        left = {one: " ".join(without(split[one], words)) for one in found}
        return [(one, rest if query_terms(rest) else "") for one, rest in left.items() if rest != " ".join(split[one])]

    def forget_what(self, about: str, is_meant: Callable[[Remembered], bool] = lambda _: True) -> None:
        """Delete what the memories say of this, and leave what else they say. `is_meant`: which memories it may concern."""
        meant = [(one, left) for one, left in self.find_about(about) if is_meant(one)]
        for one, left in meant:
            if left:
                self.correct(one.id, left)
        if gone := [one.id for one, left in meant if not left]:
            self.forget(gone)

    def get(self, number: int) -> Remembered:
        with self._read_lock():
            return self._by_number(number)

    def history(self, number: int) -> list[Remembered]:
        """All versions, the newest first."""
        with self._read_lock():
            return self._many("chain = ?", self._by_number(number).chain)[::-1]

    def search(
        self, query: str, most: int = 5, *, at: float | None = None, least: float = 0.0, clear: bool = False
    ) -> list[Recalled]:
        """Return the memories that fit the question best. Each sentence is looked up by itself, so that none dilutes another.

        Args:
            query: The question, or what the user says.
            most: The maximum number of memories.
            at: Return what was true at this time (seconds since 1970). By default, what is true now, with its past.
            least: Leave out memories whose nearness to the question is less than this.
            clear: Leave out memories that are as near to the question as one of so many is by chance.
        """
        query = query.strip()[:_LONGEST].encode("utf-8", "replace").decode()
        if not query or self.is_empty():
            return []
        asked = _sentences_of(query)
        places, near = dict[int, int](), dict[int, float]()
        for part, vector in zip(asked, self._search.embed(asked, zeros=True), strict=True):
            scores, cosines = self._search.score(part, vector)
            shared, usual = self.sharing_words_with(part), _USUAL * (self.usual(vector) - _TYPICAL)
            for place, number in enumerate(rank(scores)):
                places[number] = min(place, places.get(number, place))
                near[number] = max(cosines[number] - usual + _WORDS * shared.get(number, 0.0), near.get(number, -1.0))
        if clear:
            bar = max(_CHANCE * math.log(len(self)), _FEW)
            least = bar - _BESIDE if max(near.values(), default=0.0) >= bar else math.inf
        found: dict[int, Recalled] = {}
        for number in sorted(places, key=lambda number: (places[number], -near[number])):
            if len(found) >= most:
                break
            version = self._of_chunk(number) if near[number] >= least else None
            if version is not None and version.chain not in found:
                recalled = self._as_of(version.chain, at, near[number])
                if recalled is not None:
                    found[version.chain] = recalled
        return list(found.values())

    # Runs that are learnt from

    def begin(self, run: str) -> None:
        """Note that this run has this memory: once it has ended, it is learnt from."""
        with self._write_transaction():
            if not self._db.execute("SELECT 1 FROM learned WHERE run = ?", (run,)).fetchone():
                newest = "SELECT ?, ifnull(max(id), 0) FROM memories"
                self._db.execute(f"INSERT OR IGNORE INTO begun (run, upto) {newest}", (run,))
                self._db.execute("DELETE FROM begun WHERE rowid <= (SELECT max(rowid) FROM begun) - ?", (_BEGUN,))

    def runs_to_learn(self) -> dict[str, int]:
        """Return the runs that are still to be learnt from, each with the number of the last memory there was when it began."""
        with self._read_lock():
            return dict(self._db.execute("SELECT run, upto FROM begun"))

    def find_learned(self, marks: Sequence[str]) -> set[str]:
        """Return those of these marks that were set with `mark_learned`."""
        with self._read_lock():
            known = "SELECT 1 FROM learned WHERE run = ?"
            return {mark for mark in marks if self._db.execute(known, (mark,)).fetchone()}

    def mark_learned(self, mark: str) -> None:
        """Note that a run was looked through: `mark` is its id. Another mark leaves the run to be learnt from later."""
        with self._write_transaction():
            self._db.execute("INSERT OR IGNORE INTO learned VALUES (?)", (mark,))
            self._db.execute("DELETE FROM begun WHERE run = ?", (mark,))

    # Values that a program keeps here, as JSON; see `notes.py`

    def notes(self, whose: str) -> dict[str, str]:
        with self._read_lock():
            return dict(self._db.execute("SELECT key, value FROM notes WHERE whose = ? ORDER BY rowid", (whose,)))

    def note_owners(self, starting: str) -> list[str]:
        """Return the owners of notes whose names begin with `starting`."""
        with self._read_lock():
            found = "SELECT DISTINCT whose FROM notes WHERE substr(whose, 1, ?) = ? ORDER BY whose"
            return [whose for (whose,) in self._db.execute(found, (len(starting), starting))]

    def note(self, whose: str, changes: Mapping[str, str | None], *, keep: bool = False) -> None:
        """Write these notes, and delete those that are None. `keep`: leave those that are there already."""
        how = "IGNORE" if keep else "REPLACE"
        with self._write_transaction():
            for key, value in changes.items():
                if value is None:
                    self._db.execute("DELETE FROM notes WHERE whose = ? AND key = ?", (whose, key))
                else:
                    self._db.execute(f"INSERT OR {how} INTO notes VALUES (?, ?, ?)", (whose, key, value))

    def _as_of(self, chain: int, at: float | None, score: float) -> Recalled | None:
        with self._read_lock():
            versions = self._many("chain = ?", chain)[::-1]
        if at is not None:
            versions = [one for one in versions if one.said <= at]
            holds = bool(versions) and (not versions[0].ended or versions[0].ended > at)
            return Recalled(versions[0], tuple(versions[1:]), score) if holds else None
        return Recalled(versions[0], tuple(versions[1:]), score)

    def _of_chunk(self, number: int) -> Remembered | None:
        with self._read_lock():
            row = self._db.execute(
                "SELECT f.path FROM chunks c JOIN files f ON f.id = c.file WHERE c.id = ?", (number,)
            ).fetchone()
            return self._one("id = ?", int(row[0].rpartition("/")[2])) if row else None

    def _current(self, number: int) -> Remembered:
        return self._many("chain = ?", self._by_number(number).chain)[-1]

    def _by_number(self, number: int) -> Remembered:
        if not 0 < number < _HUGE or (found := self._one("id = ?", number)) is None:
            raise ConfigError.of("memory.unknown", "there is no memory with the number {number}", number=number)
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


def _sentences_of(query: str) -> list[str]:
    """Return the message and its sentences, the first and the last ones of many."""
    found = split_sentences(query)
    half = _SENTENCES // 2
    return list(dict.fromkeys([query, *(found if len(found) <= _SENTENCES else [*found[:half], *found[-half:]])]))


def _row(number: int) -> FileRow:
    return FileRow(f"memory/{number}", 0.0, 0, "", 1, "")


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ConfigError.of(
            "memory.kind", "{kind!r} is not a kind of memory; available: {kinds}", kind=kind, kinds=", ".join(KINDS)
        )


def _check_time(when: float) -> None:
    if not 0 <= when < _LATEST:
        raise ConfigError.of("memory.time", "said must be a time in seconds since 1970, not {when}", when=when)
