"""English or Japanese for the person at the other end, by `KANAME_LANG` or the locale."""

from __future__ import annotations

import os


def japanese() -> bool:
    for name in ("KANAME_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return value.lower().startswith("ja")
    return False


def say(english: str, nihongo: str) -> str:
    """Both sentences stand side by side where they are used, so that neither is forgotten."""
    return nihongo if japanese() else english
