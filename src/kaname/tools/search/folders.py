"""Walk folders: collect the files to read, the endings that are skipped, and the places that cannot be accessed."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from ...core.errors import ConfigError
from ...core.notices import notice
from .readers.by_ending import READERS

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
        parents = [str(parent) for one in unseen for parent in (Path(one), *Path(one).parents)]
        parents += [str(parent) for one, full in filled.items() if full for parent in (Path(one), *Path(one).parents)]
        full = set(parents)
        lost = {str(parent) for path in known if path not in there for parent in Path(path).parents}
        found = {str(parent) for path in known if path in there for parent in Path(path).parents}
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
