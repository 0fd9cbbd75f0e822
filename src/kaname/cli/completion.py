"""`kaname completion bash | zsh | fish`: complete commands with Tab. The words come from the argument parser itself.

The printed script calls this command for the words each time, so that it is never out of date. That has to be quick: only the
parser is made, and agents and runs are read from their files, without importing what runs them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ..core.project import FILE, FOLDER, state_path
from .main import DONE, parser
from .messages import say

_SCRIPTS = {
    "bash": """# kaname: put this line into ~/.bashrc:  eval "$(kaname completion bash)"
_kaname() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" completion bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
}
complete -o default -o nosort -F _kaname kaname
""",
    "zsh": """#compdef kaname
# kaname: put this line into ~/.zshrc, after compinit:  eval "$(kaname completion zsh)"
_kaname() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        _describe -V 'kaname' found
    else
        _files
    fi
}
compdef _kaname kaname
""",
    "fish": """# kaname: put this line into ~/.config/fish/config.fish:  kaname completion fish | source
function __kaname_words
    set -l typed (commandline -opc)
    set -l found ($typed[1] completion fish $typed[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c kaname -f -a '(__kaname_words)'
""",
}
_MOST = 50  # runs, or sessions
_RUNS = "SELECT run, title FROM runs WHERE parent = '' ORDER BY place DESC LIMIT ?"
_SESSIONS = "SELECT session, title FROM runs WHERE session <> '' GROUP BY session ORDER BY max(place) DESC LIMIT ?"
_TOOLS = ("calculator", "database:", "search")

Word = tuple[str, str]
"""Something that can be typed, and what it is."""


def main(given: argparse.Namespace) -> int:
    if not given.words:
        sys.stdout.write(_SCRIPTS[given.shell])
        return DONE
    words = _split(given.words[0]) if given.shell == "bash" else given.words
    form = {"bash": _for_bash, "zsh": _for_zsh, "fish": _for_fish}[given.shell]
    sys.stdout.writelines([form(word, " ".join(told.split())) + "\n" for word, told in candidates(words)])
    return DONE


def _for_bash(word: str, told: str) -> str:
    return shlex.quote(word)


def _for_zsh(word: str, told: str) -> str:
    return word.replace("\\", "\\\\").replace(":", "\\:") + (f":{told}" if told else "")


def _for_fish(word: str, told: str) -> str:
    return f"{word}\t{told}"


def _split(line: str) -> list[str]:
    """Split what was typed before the cursor, without the command itself. bash would also split words at `:` and `=`."""
    try:
        words = shlex.split(line)
    except ValueError:  # an open quotation mark: any text can follow
        return []
    return [*words[1:], *([""] if line[-1:].isspace() else [])]


def candidates(words: Sequence[str]) -> list[Word]:
    """Return the words that can replace the last one. Empty if that is a file or any text."""
    if not words:
        return []
    typed = TypedWords()
    for word in words[:-1]:
        typed.take(word)
    current = words[-1]
    return [(word, told) for word, told in typed.next(current) if word.startswith(current)]


class TypedWords:
    """The words before the cursor, as the parser reads them."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._only_positional = False
        self._enter(parser(), "")

    def _enter(self, inner: argparse.ArgumentParser, command: str) -> None:
        self._parser, self.command = inner, command
        self._left = [action for action in inner._actions if not action.option_strings]
        self._wanted: argparse.Action | None = None  # an option whose value comes next

    def take(self, word: str) -> None:
        if self._wanted is not None:
            self._values[self._wanted.dest], self._wanted = word, None
        elif word == "--":
            self._only_positional = True
        elif word.startswith("-") and len(word) > 1 and not self._only_positional:
            self._option(word)
        elif self._left:
            self._positional(word)

    def _option(self, word: str) -> None:
        name, equals, value = word.partition("=")
        known = {string: action for action in self._parser._actions for string in action.option_strings}
        meant = known.get(name) or next(
            (known[string] for string in known if name[:2] == "--" and string.startswith(name)), None
        )
        if meant is None and not name.startswith("--"):  # -nVALUE
            meant, equals, value = known.get(word[:2]), "=", word[2:]
        if meant is None or meant.nargs == 0:
            return
        if equals:
            self._values[meant.dest] = value
        else:
            self._wanted = meant

    def _positional(self, word: str) -> None:
        action = self._left[0]
        if isinstance(action, argparse._SubParsersAction):
            if word in action.choices:
                self._enter(action.choices[word], f"{self.command} {word}".strip())
            return
        self._values[action.dest] = word
        if action.nargs in (None, "?"):
            self._left.pop(0)

    def next(self, current: str) -> Iterator[Word]:
        if self._wanted is not None:
            yield from self._values_of(self._wanted)
        elif current.startswith("-") and not self._only_positional:
            for action in self._parser._actions:
                long = [one for one in action.option_strings if one.startswith("--")]
                if action.help != argparse.SUPPRESS:
                    yield from [(one, action.help or "") for one in (long or action.option_strings)]
        elif self._left:
            yield from self._values_of(self._left[0])

    def _values_of(self, action: argparse.Action) -> Iterator[Word]:
        if isinstance(action, argparse._SubParsersAction):
            for one in action._choices_actions:
                yield one.dest, one.help or ""
        elif action.choices is not None:
            yield from [(str(one), "") for one in action.choices]
        else:
            yield from self._known_values(action.dest)

    def _known_values(self, dest: str) -> Iterator[Word]:
        match self.command, dest, self._values.get("action", ""):
            case _, "agent", _:
                yield from [(name, "") for name in _config(self._values.get("config", "")).get("agents") or ()]
            case _, "model", _:
                yield "local", say("the local model", "ローカルモデル")
            case _, "tool", _:
                yield from [(name, "") for name in _TOOLS]
            case "runs", "other", "rate":
                yield from [("good", ""), ("bad", "")]
            case (
                ("runs", "run" | "before", _)
                | ("runs", "other", "diff")
                | ("workflow", "run", _)
                | ("workflow", "what", "resume")
            ):
                yield "last", ""
                yield from self._recorded_names(_RUNS)
            case ("run" | "chat", "session", _) | ("sessions", "before" | "what", _):
                yield from self._recorded_names(_SESSIONS)

    def _recorded_names(self, query: str) -> Iterator[Word]:
        """Read names from the file of the journal without changing it. Yield nothing if it cannot be read."""
        import sqlite3

        from ..config.build import apply_encryption_of
        from ..core.encryption.database import open_database
        from ..core.errors import EncryptionError

        config = self._values.get("config", "")
        place = Path(self._values.get("journal") or _journal(config)).expanduser()
        apply_encryption_of(config)
        with suppress(sqlite3.Error, EncryptionError):
            with closing(open_database(place, mode="mode=ro", timeout=0.2)) as file:
                rows = file.execute(query, (_MOST,)).fetchall()
            yield from [(name, title if title.isprintable() else "") for name, title in rows]  # not an encrypted title


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
