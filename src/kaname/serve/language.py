"""The language of a client: questions and errors are sent in Japanese to clients that ask for it (`Accept-Language: ja`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..core.notices import translate

CATALOGUE = Path(__file__).parents[1] / "cli" / "messages" / "ja.json"  # what the packages say, in Japanese


def wanted_language(headers: Mapping[str, str]) -> str:
    """Return "ja" if a request asks for Japanese before other languages, otherwise ""."""
    return "ja" if headers.get("accept-language", "").strip().lower().startswith("ja") else ""


def in_language(text: str, language: str) -> str:
    """Return a text in a language, if it is known in it; otherwise as it is."""
    return translate(text, _catalogue()) if language == "ja" else text


@cache
def _catalogue() -> dict[str, str]:
    found: dict[str, str] = json.loads(CATALOGUE.read_text("utf-8"))
    return found
