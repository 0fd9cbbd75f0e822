"""Ingest files: find those of a folder, read what has changed, embed it in batches, and store each file as a whole."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ConfigError, ModelError
from ...core.notices import notice
from ...kernel.boundary import Border
from .chunk import TextChunk, chunk_blocks, sentences
from .embed import BadVector
from .index import FileRow, Index, Vectors
from .readers.base import Unreadable
from .readers.by_ending import READERS, check, read_blocks

_BATCH = 32  # texts to embed at once
_READER = "4:"  # before a digest; raised when the same file gives other words than before
_FRESH = 2.0  # seconds: a file may change twice in one tick of its clock
_PLAIN = "text"  # that every server can embed
Progress = Callable[[int, int, str], None]
"""`progress(done, all, file)`, in files. For a large file, `file` ends with its own progress: `manual.pdf (64 of 512)`."""
Embed = Callable[[list[str]], Any]


class Added(NamedTuple):
    """The result of adding documents, as paths.

    `passed`: how many files of each unsupported ending were skipped. `again`: files that were read again, because an older
    reader had read them."""

    added: list[str]
    unchanged: list[str]
    removed: list[str]
    problems: dict[str, str]
    passed: Counter[str]
    again: list[str]


@dataclass(eq=False, slots=True)
class _PendingFile:
    """A file that is being embedded. `known`: the vectors that are already stored, by text and heading."""

    row: FileRow
    chunks: list[TextChunk]
    known: dict[tuple[str, str], Vectors] = field(default_factory=dict)
    vectors: list[Any] = field(default_factory=list)  # of each chunk, followed by those of its sentences
    texts: list[list[str]] = field(init=False)
    wanted: int = field(init=False)

    def __post_init__(self) -> None:
        self.texts = [[] if chunk[:2] in self.known else _texts_to_embed(chunk) for chunk in self.chunks]
        self.wanted = sum(map(len, self.texts))

    def complete(self) -> bool:
        return len(self.vectors) == self.wanted

    def count_embedded(self) -> int:
        """Count the chunks that have a vector."""
        starts = accumulate(map(len, self.texts[:-1]), initial=0)
        return sum([not texts or start < len(self.vectors) for start, texts in zip(starts, self.texts, strict=True)])

    def split_vectors(self) -> tuple[list[Any], list[Any]]:
        """Return the vectors of the chunks, and for each chunk the vectors of its sentences."""
        parts = [
            self.known.get(chunk[:2], (part[:1], part[1:])) for chunk, part in zip(self.chunks, self._parts(), strict=True)
        ]
        return [own[0] for own, _ in parts], [within for _, within in parts]

    def _parts(self) -> list[list[Any]]:
        ends = accumulate(map(len, self.texts), initial=0)
        return [self.vectors[start:end] for start, end in pairwise(ends)]


class Adding:
    """A run over files that reads, embeds and stores them. Call `take` for each file, then `finish`; `done` is the result."""

    def __init__(self, index: Index, embed: Embed, progress: Progress | None, total: int) -> None:
        self._index, self._embed, self._progress, self._total = index, embed, progress, total
        self._known = {row.path: row for row in index.files()}
        self._held: deque[_PendingFile] = deque()
        self._waiting: deque[tuple[_PendingFile, str]] = deque()  # texts that are not embedded yet
        self.done = Added([], [], [], {}, Counter(), [])

    def take(self, path: Path) -> None:
        self._report(str(path))
        with Border() as border:  # a reader may fail on any file: report it, and read the others
            known = self._known.get(str(path))
            held = self._read(path, known)
        if border.failure is not None:
            self.done.problems[str(path)] = str(border.failure)
        elif isinstance(held, _PendingFile):
            self._held.append(held)
            self._waiting.extend([(held, text) for several in held.texts for text in several])
            self._embed_full_batches()
        else:
            self.done.unchanged.append(str(path))
            if held != known:
                self._index.touch(held.path, held.modified)

    def finish(self) -> None:
        while self._waiting:
            self._embed_some()
        self._store()

    def _report(self, name: str) -> None:
        if self._progress is not None:
            done = len(self.done.added) + len(self.done.unchanged) + len(self.done.problems)
            self._progress(done, self._total, name)

    def _read(self, path: Path, known: FileRow | None) -> _PendingFile | FileRow:
        """Read the file. Return its stored row instead if it has not changed."""
        status = path.stat()
        if known is not None and not known.digest.startswith(_READER):
            self.done.again.extend([str(path)] if not known.problem else [])
            known = None
        if known is not None and (known.modified, known.size) == (status.st_mtime, status.st_size) and not known.problem:
            return known
        modified = 0.0 if abs(time.time() - status.st_mtime) < _FRESH else status.st_mtime  # 0: to be compared again
        digest, problem = "", ""
        chunks: list[TextChunk] = []
        try:
            check(path, status.st_size)
            with path.open("rb") as file:
                digest = _READER + hashlib.file_digest(file, "sha256").hexdigest()
            if known is not None and known.digest == digest and not known.problem:
                return known._replace(modified=modified)
            chunks = list(chunk_blocks(read_blocks(path)))
            problem = "" if chunks else notice("search.no_text", "it contains no text")
        except Unreadable as trouble:
            problem = str(trouble)
        row = FileRow(str(path), modified, status.st_size, digest, len(chunks), problem)
        return _PendingFile(row, chunks, self._index.vectors_of(str(path)) if str(path) in self._known else {})

    def _embed_full_batches(self) -> None:
        while len(self._waiting) >= _BATCH:
            self._embed_some()
        self._store()

    def _embed_some(self) -> None:
        some = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        try:
            vectors = self._embed([text for _, text in some])
        except (ModelError, ConfigError) as problem:
            self._one_by_one(some, problem)
        else:
            for (held, _), vector in zip(some, vectors, strict=True):
                held.vectors.append(vector)
        last = some[-1][0]
        if len(last.chunks) > 2 * _BATCH:
            self._report(f"{last.row.path} ({last.count_embedded()} of {len(last.chunks)})")
        self._store()

    def _one_by_one(self, some: list[tuple[_PendingFile, str]], problem: ModelError | ConfigError) -> None:
        """Embed the files of a failed batch one by one, so that a bad text only costs its own file.

        Raises the problem again if no text is at fault, for example if the key is wrong or the server is down."""
        if not _is_text_fault(problem):
            raise problem
        try:
            self._embed([_PLAIN])
        except (ModelError, ConfigError):
            raise problem from None
        for held in dict.fromkeys([held for held, _ in some]):
            try:
                held.vectors.extend(self._embed([text for one, text in some if one is held]))
            except (ModelError, ConfigError) as trouble:
                if not _is_text_fault(trouble):
                    raise
                held.row = held.row._replace(chunks=0, problem=str(trouble))
                held.chunks, held.vectors, held.texts, held.wanted = [], [], [], 0
                self._waiting = deque([one for one in self._waiting if one[0] is not held])

    def _store(self) -> None:
        """Store the files that are completely embedded, in their order."""
        while self._held and self._held[0].complete():
            held = self._held.popleft()
            self._index.put(held.row, held.chunks, *held.split_vectors())
            if held.row.problem:
                self.done.problems[held.row.path] = held.row.problem
            else:
                self.done.added.append(held.row.path)


def _is_text_fault(problem: ModelError | ConfigError) -> bool:
    """Return True if the text caused the error, such as one that is too long; not the key, the address or the server."""
    if isinstance(problem, ModelError):
        return problem.status >= 400 and problem.status not in (401, 402, 403, 404, 405, 407, 408, 429)
    return isinstance(problem, BadVector)


def _texts_to_embed(chunk: TextChunk) -> list[str]:
    """Return the chunk's headings and text, followed by its sentences if it has several.

    The headings are included because they often name the subject of a passage."""
    return [f"{chunk.heading}\n{chunk.text}" if chunk.heading else chunk.text, *sentences(chunk.text)]


def embed_text(name: str, text: str, chunks: list[TextChunk], embed: Embed) -> tuple[FileRow, list[Any], list[Any]]:
    """Embed a text that is not a file. Return its row, the vectors of its chunks, and those of their sentences."""
    digest = _READER + hashlib.sha256(text.encode()).hexdigest()
    held = _PendingFile(FileRow(name, 0.0, len(text), digest, len(chunks), ""), chunks)
    flat = [one for several in held.texts for one in several]
    for start in range(0, len(flat), _BATCH):
        held.vectors.extend(embed(flat[start : start + _BATCH]))
    return held.row, *held.split_vectors()


_PASSED_OVER = {"node_modules", "venv", "__pycache__", "site-packages"}
_LITTER = {"Thumbs.db", "desktop.ini"}  # in addition to hidden files
_KEPT = notice("search.known_is_kept", "; its indexed content is kept until add(…, forget=True) or --forget")


class FolderScan:
    """The result of walking folders, compared with the files that the index already knows.

    `files`: to read; `gone`: known files that no longer exist; `passed`: how many files of each unsupported ending."""

    def __init__(self, known: Collection[str], forget: bool) -> None:
        self._known, self._forget = known, forget
        self.files: list[Path] = []
        self.gone: list[str] = []
        self.problems: dict[str, str] = {}
        self.passed: Counter[str] = Counter()
        self._missing: list[Path] = []
        self._kept: list[str] = []  # below these nothing is gone

    def look(self, paths: list[Path]) -> None:
        for path in paths:
            kind = self._kind(path) if self._name_is_utf8(path) else "unseen"
            if kind == "file":
                self.files.append(path)
            elif kind == "folder":
                self._take_folder(path)
            elif kind == "other":
                self.problems[str(path)] = notice("search.no_file_or_folder", "it is neither a file nor a folder")
            elif kind == "nothing":
                self._take_absent(path)
        if len(self._missing) == len(paths) and paths:
            listed = ", ".join(map(str, self._missing))
            raise ConfigError.of("search.no_paths", "not found: {listed}", listed=listed)
        self.files = list(dict.fromkeys(self.files))
        kept = () if self._forget else tuple([one.rstrip(os.sep) + os.sep for one in self._kept])
        self.gone = [path for path in self.gone if not path.startswith(kept)]

    def _kind(self, path: Path) -> str:
        """Return "file", "folder" or "other"; "nothing" if it is missing; "unseen", with a problem, if it is inaccessible."""
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return "nothing"
        except OSError as problem:
            self.problems[str(path)] = notice(
                "search.not_accessible", "it cannot be accessed: {strerror}", strerror=problem.strerror
            )
            return "unseen"
        return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"

    def _take_absent(self, path: Path) -> None:
        """Treat a deleted file as gone, but keep the files of a missing folder: it may be a drive that is not mounted today."""
        inside = self._below(path)
        known = [*inside, *([str(path)] if str(path) in self._known else [])]
        if known and (self._forget or (not inside and path.parent.is_dir())):
            self.gone += known
            return
        missing = notice("search.no_path", "{path} was not found", path=path)
        self.problems[str(path)] = missing + _KEPT if known else missing
        self._kept.append(str(path))
        self._missing += [] if known else [path]

    def _below(self, folder: Path | str) -> list[str]:
        beginning = str(folder).rstrip(os.sep) + os.sep
        return [path for path in self._known if path.startswith(beginning)]

    def _take_folder(self, top: Path) -> None:
        unseen: list[str] = []
        there: set[str] = set()
        filled: dict[str, bool] = {}  # every folder, and True if it contains files

        def report(problem: OSError) -> None:
            place = str(problem.filename)
            unseen.append(place)
            reason = notice(
                "search.folder_not_accessible", "the folder cannot be opened: {strerror}", strerror=problem.strerror
            )
            self.problems[place] = reason + (_KEPT if self._below(place) else "")

        for folder, folders, files in os.walk(top, onerror=report):
            folders[:] = sorted([name for name in folders if not name.startswith(".") and name not in _PASSED_OVER])
            folders[:] = [name for name in folders if not self._leads_out(Path(folder, name), top)]
            seen = sorted([name for name in files if not name.startswith((".", "~$"))])
            filled[folder] = bool(set(seen) - _LITTER)
            for name in seen:
                path = Path(folder, name)
                kind = self._kind(path) if self._should_read(path, top) else "nothing"
                there |= {str(path)} if kind in ("file", "unseen") else set()
                self.files += [path] if kind == "file" else []
        self._kept += unseen
        known = self._below(top)
        self._keep_drives(filled, unseen, there, known)
        self.gone += [path for path in known if path not in there]

    def _keep_drives(self, filled: dict[str, bool], unseen: list[str], there: set[str], known: list[str]) -> None:
        """Keep what is known of folders that are empty now or have another drive mounted. Only the outermost is reported."""
        has_files = [*unseen, *[one for one, is_full in filled.items() if is_full]]
        full = {*map(str, map(Path, has_files)), *_parents(has_files)}
        lost, found = _parents({*known} - there), _parents(there.intersection(known))
        reported: tuple[str, ...] = ()
        for folder in filled:
            other = folder in full and folder not in found and os.path.ismount(folder) if folder in lost else False
            if self._forget or folder not in lost or (folder in full and not other) or folder.startswith(reported):
                continue
            reason = notice("search.other_drive", "another drive is mounted here")
            self.problems[folder] = (reason if other else notice("search.folder_empty", "the folder is empty")) + _KEPT
            reported += (folder.rstrip(os.sep) + os.sep,)
        self._kept += reported

    def _name_is_utf8(self, path: Path) -> bool:
        """Return True if the name can be stored as UTF-8; otherwise report the problem."""
        shown = str(path).encode("utf-8", "replace").decode()
        if shown != str(path):
            self.problems[shown] = notice("search.name_not_utf8", "its name is not UTF-8")
        return shown == str(path)

    def _should_read(self, path: Path, top: Path) -> bool:
        if path.suffix.lower() not in READERS:
            self.passed[path.suffix.lower() or notice("search.without_ending", "without an extension")] += 1
            return False
        return self._name_is_utf8(path) and not self._leads_out(path, top)

    def _leads_out(self, path: Path, top: Path) -> bool:
        out = os.path.islink(path) and os.path.exists(path) and not Path(os.path.realpath(path)).is_relative_to(top)
        if out:
            self.problems[str(path)] = notice(
                "search.link_leads_out",
                "it is a link to a place outside the folder; add its target directly",
            )
        return out


def _parents(paths: Iterable[str]) -> set[str]:
    return {str(parent) for path in paths for parent in Path(path).parents}
