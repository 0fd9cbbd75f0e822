"""`kaname completion bash | zsh | fish`: complete commands with Tab.

The printed script calls `kaname` for the words each time, so that it is never out of date; argcomplete takes them from the
parser. That has to be quick: only the parser is made, and agents and runs are read from their files, without importing what
runs them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..core.errors import EncryptionError
from ..core.project import FILE, FOLDER, state_path
from .main import DONE
from .messages import say

_HINTS = {
    "bash": '# put this line into ~/.bashrc:  eval "$(kaname completion bash)"',
    "zsh": '#compdef kaname\n# put this line into ~/.zshrc, after compinit:  eval "$(kaname completion zsh)"',
    "fish": "# put this line into ~/.config/fish/config.fish:  kaname completion fish | source",
}
_MOST = 50  # runs, or sessions
_RUNS = "SELECT run, title FROM runs WHERE parent = '' ORDER BY place DESC LIMIT ?"
_SESSIONS = "SELECT session, title FROM runs WHERE session <> '' GROUP BY session ORDER BY max(place) DESC LIMIT ?"


def main(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    script = shellcode(["kaname"], shell=args.shell)
    sys.stdout.write(f"{_HINTS[args.shell]}\n{script.lstrip().removeprefix('#compdef kaname')}")
    return DONE


def complete(parser: argparse.ArgumentParser, **how: Any) -> None:
    """Print what can be typed next, for the shell that asks (`_ARGCOMPLETE`), and exit. `how`: options of argcomplete."""
    from argcomplete import autocomplete

    _add_completers(parser, "")
    autocomplete(parser, always_complete_options=False, **how)


def _add_completers(parser: argparse.ArgumentParser, command: str) -> None:
    """Let argcomplete ask for the values that the parser does not know: agents, runs and sessions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                _add_completers(inner, f"{command} {name}".strip())
        elif action.choices is None:
            action.completer = partial(_values, command, action.dest)  # type: ignore[attr-defined]


def _values(command: str, dest: str, *, prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Mapping[str, str]:
    """Return the values of an option or a word, with descriptions; files, if it has no others."""
    from argcomplete.completers import FilesCompleter

    match command, dest, getattr(parsed_args, "action", None):
        case _, "agent", _:
            return dict.fromkeys(_config(_file(parsed_args)).get("agents") or (), "")
        case _, "model", _:
            return {"local": say("the local model", "ローカルモデル")}
        case _, "tool", _:
            return dict.fromkeys(("calculator", "database:", "search"), "")
        case "runs", "other", "rate" if parsed_args.run:
            return {"good": "", "bad": ""}
        case "runs" | "workflow", "run" | "before", _:
            return {"last": "", **dict(_recorded_names(parsed_args, _RUNS))}
        case ("runs", "other", "diff") | ("workflow", "what", "resume"):
            return {"last": "", **dict(_recorded_names(parsed_args, _RUNS))}
        case "runs", "other", _:  # any text
            return {}
        case ("run" | "chat", "session", _) | ("sessions", "before" | "what", _):
            return dict(_recorded_names(parsed_args, _SESSIONS))
    return dict.fromkeys(FilesCompleter()(prefix), "")


def _recorded_names(args: argparse.Namespace, query: str) -> Iterator[tuple[str, str]]:
    """Read names from the file of the journal without changing it. Yield nothing if it cannot be read."""
    import sqlite3

    from ..config.encryption import apply_encryption_of
    from ..core.encryption.database import open_database

    config = _file(args)
    place = Path(getattr(args, "journal", None) or _journal(config)).expanduser()
    apply_encryption_of(config)
    with suppress(sqlite3.Error, EncryptionError):
        with closing(open_database(place, mode="mode=ro", timeout=0.2)) as file:
            rows = file.execute(query, (_MOST,)).fetchall()
        yield from [(name, title if title.isprintable() else "") for name, title in rows]  # not an encrypted title


def _file(args: argparse.Namespace) -> str:
    """Return the last configuration file that was typed, or ""."""
    return str(["", *(getattr(args, "config", None) or [])][-1])


def _journal(config: str) -> str:
    """Return the journal that `kaname runs` would read, if the configuration has no mistakes."""
    file = Path(config or FILE)
    if not file.is_file():
        return os.environ.get("KANAME_JOURNAL") or state_path("journal.db")
    named = _config(config).get("journal")
    if isinstance(named, str) and named:
        return str(file.parent / Path(named).expanduser())
    return os.environ.get("KANAME_JOURNAL") or str(file.resolve().parent / FOLDER / "journal.db")


def _config(config: str) -> dict[str, Any]:
    """Return the contents of the file, unchecked. Nothing that it names is loaded."""
    import yaml

    try:
        held = yaml.safe_load(Path(config or FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return held if isinstance(held, dict) else {}
