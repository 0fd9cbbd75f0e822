"""The program that `-a FILE.py:NAME` named last in this folder: commands that read find its journal without the option."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from pathlib import Path

from ..core.project import FILE, path_without_project
from ..kernel.ports import Journal
from ..stores.default import default_path
from ..stores.places import MEMORY, is_file, shown_place
from .terminal.screen import Screen


def _note() -> Path:
    return Path(path_without_project("last.json"))


def remember(args: argparse.Namespace, journal: Journal) -> None:
    """Remember the program of `-a`, and its journal.

    A journal that is the default one, in memory, or at an address with a password is not remembered.
    """
    place = str(args.journal or journal.stores.place)
    place = os.path.realpath(os.path.expanduser(place)) if is_file(place) else place
    if place in ("", *MEMORY, os.path.realpath(default_path())) or shown_place(place) != place:
        forget()
        return
    file, _, name = args.agent.partition(":")
    agent = f"{Path(file).expanduser().resolve()}:{name}" if file.endswith(".py") else args.agent
    held = json.dumps({"agent": agent, "journal": place})
    with suppress(OSError, ValueError):  # not being able to remember is no reason to fail
        if not _note().is_file() or _note().read_text("utf-8") != held:
            _note().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _note().write_text(held, "utf-8")


def forget() -> None:
    """Forget the program: the last command that worked with runs was not one of its."""
    with suppress(OSError):
        _note().unlink(missing_ok=True)


def take_last(args: argparse.Namespace, screen: Screen, wanted: str = "journal") -> None:
    """Take the journal of the last program, or the program itself (`wanted`: "agent"), and say so.

    Nothing is taken if the options, `KANAME_JOURNAL` or a `kaname.yaml` in this folder say which journal it is.
    """
    if args.journal or args.agent or args.config or os.environ.get("KANAME_JOURNAL") or os.path.isfile(FILE):
        return
    try:
        last = json.loads(_note().read_text("utf-8"))
        taken, agent, place = str(last[wanted]), str(last["agent"]), str(last["journal"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if is_file(place) and not os.path.exists(place):
        return
    setattr(args, wanted, taken)
    options = f"-a {agent}" if wanted == "agent" else f"--journal {place}"
    screen.tell(
        f"taken from the last command in this folder: {options}", f"このフォルダーで最後に使われたものを使います: {options}"
    )
