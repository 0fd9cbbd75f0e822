"""Find the files of the project that the command line means: those of the configuration, or of this folder."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ...core.encryption.keys import KEY_FILE
from ...core.project import FOLDER, default_state_folder
from ...memory.protection.places import DataPlaces
from ...serve.access.auditor import audit_in
from ...stores.places import is_file, is_server
from ..place import config_for, journal_place


def config_folder(args: argparse.Namespace) -> Path:
    """Return the folder of kaname's files: `.kaname` next to the configuration, or the state folder of the program."""
    config = config_for(args)
    return Path(default_state_folder()) if config is None else Path(config.agent().folder).resolve() / FOLDER


def places_for(args: argparse.Namespace) -> DataPlaces:
    """Return all places where the project stores words of users."""
    config, home, place = config_for(args), config_folder(args), journal_place(args)
    journal = Path(place).expanduser().resolve() if is_file(place) else None
    usual = DataPlaces.below(home, journal)
    caches = {home / "cache.db", home / "values.db"}
    traces: list[Path] = []
    if config is not None:
        caches |= {Path(one.cache_path) for one in config.agents.values()}
        base = Path(config.agent().folder)
        file = (config.value.get("trace") or {}).get("file")
        named = file.get("path") if isinstance(file, dict) else file
        traces += [base / Path(named).expanduser()] if named else []
    server = place if is_server(place) else ""
    audit = audit_in(config, journal or server) if journal or server else None
    log = None if audit is None else audit.path
    return DataPlaces(journal, usual.memory, tuple(sorted(caches)), usual.indexes, tuple(traces), log, server)


def key_file_of(args: argparse.Namespace) -> str:
    """Return the key file that the configuration or the environment names; empty without one."""
    config = config_for(args)
    named = None if config is None else (config.value.get("encryption") or {}).get("key_file")
    if config is not None and named:
        return str(Path(config.agent().folder) / Path(named).expanduser())
    return os.environ.get(KEY_FILE, "")
