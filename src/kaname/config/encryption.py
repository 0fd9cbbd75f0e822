"""`encryption:` of the configuration: which key the files of the project are encrypted with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..core.encryption.keys import files_of, use_key
from ..core.project import FILE, FOLDER
from ..stores.default import refuse_to_encrypt
from ..stores.places import is_file


def apply_encryption(given: Mapping[str, Any], folder: Path, journals: Iterable[str], caches: Iterable[str]) -> None:
    """Use the key for everything that the configuration stores: `.kaname`, the journals and the caches that it names."""
    places = [folder.resolve() / FOLDER, *[Path(one) for one in caches]]
    for journal in journals:
        refuse_to_encrypt(journal)
        if is_file(journal):
            places += files_of(Path(journal))
    key_file = given.get("key_file")
    use_key(folder / Path(key_file).expanduser() if key_file else None, keyring=given.get("keyring") or "", places=places)


def apply_encryption_of(file: str | Path = "") -> None:
    """Use the key that a configuration file names for its `.kaname`, without checking the rest of the file."""
    import yaml

    path = Path(file or FILE)
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return
    given = value.get("encryption") if isinstance(value, dict) else None
    if isinstance(given, dict) and ("key_file" in given) != ("keyring" in given):
        named = value.get("journal")
        named = str(path.parent / Path(named).expanduser()) if isinstance(named, str) and is_file(named) else named
        apply_encryption(given, path.parent, [named] if isinstance(named, str) else [], [])
