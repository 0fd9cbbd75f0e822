"""Words of the terminal, in English or Japanese, by `KANAME_LANG` or the locale.

The sentences of the terminal are written in pairs where they are used (`say`). Notices of other packages are translated by
their code (`translate`) from `ja.json`.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

from ...core.errors import AgentError, ConfigError
from ...core.notices import translate as translate_notice


def japanese() -> bool:
    for name in ("KANAME_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return value.lower().startswith("ja")
    return False


def say(english: str, nihongo: str) -> str:
    """Return one of two sentences, by the language of the user. They are written side by side, so that neither is forgotten."""
    return nihongo if japanese() else english


def config_error(english: str, nihongo: str) -> ConfigError:
    """Return the error with one of two sentences, as `say` chooses it."""
    return ConfigError(say(english, nihongo))


def many(count: int, one: str, several: str = "") -> str:
    """Return a number and its English noun: "1 run", "2 runs"."""
    return f"{count} {one if count == 1 else several or one + 's'}"


def translate(text: object) -> str:
    """Return a text, or the message of an exception, in the language of the user; as it is, if the catalogue does not know it.

    The own words of a provider are appended: the person at the terminal is the owner.
    """
    if isinstance(text, AgentError) and text.said:
        return f"{translate(text.public)}{said_line(text.said)}"
    text = str(text)
    return translate_notice(text, catalogue()) if japanese() else text


def said_line(said: str) -> str:
    """Return the own words of a provider on a separate line; empty without any."""
    return f"\n  {say('details', '詳細')}: {said}" if said else ""


@cache
def catalogue() -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(__file__).with_name("ja.json").read_text(encoding="utf-8"))
    return found
