"""Usage texts that argparse writes by itself, in Japanese."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from gettext import gettext
from typing import Any, NoReturn

from ...core.people.columns import terminal_width, wrap_line
from ...core.people.columns import width as columns
from . import japanese, say

_WORDS = {
    "usage: ": "使い方: ",
    "positional arguments": "引数",
    "options": "オプション",
    "show this help message and exit": "この説明を表示して終了します。",
    "%(prog)s: error: %(message)s\n": "%(prog)s: %(message)s\n",
    "argument %(argument_name)s: %(message)s": "%(argument_name)s: %(message)s",
    "the following arguments are required: %s": "必要な引数がありません: %s",
    "invalid choice: %(value)r (choose from %(choices)s)": "%(value)r は選べません。使えるもの: %(choices)s",
    "invalid %(type)s value: %(value)r": "値が正しくありません: %(value)r",
    "expected one argument": "値が必要です",
    "expected at least one argument": "値が一つ以上必要です",
    "not allowed with argument %s": "%s と一緒には使えません",
    "ambiguous option: %(option)s could match %(matches)s": "%(option)s に該当するオプションが複数あります: %(matches)s",
    "ignored explicit argument %r": "値は指定できません: %r",
}

_ENGLISH = {"show this help message and exit": "Show this help and exit."}  # like our own help texts


class Help(argparse.HelpFormatter):
    """Wrap help texts by columns: argparse counts letters, and a Japanese letter takes two columns."""

    def __init__(self, prog: str) -> None:
        wider = columns(_WORDS["usage: "]) - len(_WORDS["usage: "]) if japanese() else 0
        super().__init__(prog, width=terminal_width() - 2 - wider)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return list(wrap_line(" ".join(text.split()), width))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = [line for part in text.splitlines() for line in self._split_lines(part, width - len(indent))]
        return "\n".join([indent + line for line in lines])


class Parser(argparse.ArgumentParser):
    """Name the likely word for a command, an action or an option that does not exist."""

    _typed: Sequence[str] = ()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [str(one) for one in action.choices or ()]
        if action.choices is not None and value not in action.choices and (hint := likely(str(value), known)):
            raise argparse.ArgumentError(action, say(f"{value!r} does not exist", f"{value!r} はありません") + hint)
        super()._check_value(action, value)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._typed = [*(sys.argv[1:] if args is None else args)]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with the usage of this command. If an option is mistyped, say so: argparse may blame its value instead."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for word in [word.partition("=")[0] for word in self._typed if word.startswith("--") and len(word) > 2]:
            if not any(name.startswith(word) for name in known) and (hint := likely(word, known)):
                message = say(f"unrecognized arguments: {word}", f"この引数はありません: {word}") + hint
                break
        super().error(message)

    def refuse(self, words: list[str]) -> NoReturn:
        """Exit with the usage of this command: it has no such words."""
        self.error(say(f"unrecognized arguments: {' '.join(words)}", f"この引数はありません: {' '.join(words)}"))


def likely(word: str, known: Iterable[str]) -> str:
    """Return a hint with the word that was probably meant, for the end of a message; empty if none is close."""
    from difflib import get_close_matches  # only after a mistake

    close = [one if one.startswith("-") else repr(one) for one in get_close_matches(word, list(known), n=1)]
    return say(f"; did you mean {close[0]}?", f"。{close[0]} のことですか?") if close else ""


def translate_usage() -> None:
    """Have argparse take its words from here, in the language of the moment."""
    setattr(argparse, "_", lambda text: _WORDS.get(text, text) if japanese() else _ENGLISH.get(text) or gettext(text))  # noqa: B010  typeshed has no name for it
