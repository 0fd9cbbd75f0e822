"""Usage texts that argparse writes by itself, in Japanese."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from gettext import gettext
from shutil import get_terminal_size
from typing import Any, NoReturn

from ...core.people.columns import width as columns
from ...core.people.columns import wrap_line
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
        super().__init__(prog, width=get_terminal_size().columns - 2 - wider)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return list(wrap_line(" ".join(text.split()), width))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = [line for part in text.splitlines() for line in self._split_lines(part, width - len(indent))]
        return "\n".join([indent + line for line in lines])


class Parser(argparse.ArgumentParser):
    """Name the likely word for a command, an action or an option that does not exist."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [str(one) for one in action.choices or ()]
        if action.choices is not None and value not in action.choices and (close := _closest(str(value), known)):
            told = say(f"{value!r} does not exist; did you mean {close!r}?", f"{value!r} はありません。{close!r} のことですか?")
            raise argparse.ArgumentError(action, told)
        super()._check_value(action, value)

    def refuse(self, words: list[str]) -> NoReturn:
        """Exit with the usage of this command: it has no such words. An option that was mistyped is named as it is written."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        close = dict.fromkeys([found for word in options if (found := _closest(word, known))])
        listed = ", ".join(close)
        hint = say(f"; did you mean {listed}?", f"。{listed} のことですか?") if close else ""
        told = say(f"unrecognized arguments: {' '.join(words)}", f"この引数はありません: {' '.join(words)}")
        self.error(told + hint)


def _closest(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # only after a mistake

    return next(iter(get_close_matches(word, list(known), n=1)), "")


def translate_usage() -> None:
    """Have argparse take its words from here, in the language of the moment."""
    setattr(argparse, "_", lambda text: _WORDS.get(text, text) if japanese() else _ENGLISH.get(text) or gettext(text))  # noqa: B010  typeshed has no name for it
