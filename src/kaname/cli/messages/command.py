"""`Command`: a command of the terminal with its options, and what many options have in common."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from . import say

# The flags (or the name of a positional), arguments of `add_argument`, and the help in English and Japanese. Options of the
# same `group` exclude each other. An option without help is hidden.
Option = tuple[str, dict[str, Any], str, str]


class Command(NamedTuple):
    """A command, or an action of `kaname docs`."""

    name: str
    english: str
    japanese: str
    options: tuple[Option, ...] = ()
    commands: tuple[Any, ...] = ()
    epilog: tuple[str, str] = ("", "")  # below the options, in English and Japanese


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(say(f"a number from 1 up, not {text!r}", f"1 以上の数です: {text!r}"))
    return int(text)


def seconds(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(say(f"a number of seconds from 0 up, not {text!r}", f"0 以上の秒数です: {text!r}"))
    return int(text)


def actions(names: str) -> Option:
    """Return the positional for the action of a command, `list` by default."""
    how = {"nargs": "?", "default": "list", "choices": names.split()}
    return "action", how, "What to do (default: list).", "操作 (既定: list)。"


FLAG = {"action": "store_true"}
LIST: dict[str, Any] = {"action": "append", "default": []}
