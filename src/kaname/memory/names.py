"""Read what a memory says of the user by name as if the user had said it: "Ken likes sencha" as "I likes sencha".

Only the vector of the memory is made from this. The text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_TOLD = re.compile(r"\bname is ([^.,;]+)|名前は([^。、]+?)(?:です|だ|と(?:いい|申し)ます)?(?:[。、]|$)", re.I)
_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def names_in(text: str) -> list[str]:
    """Return the names in what is known of the user's name, such as `Ken Tanaka`, `My name is Ken.` or 名前は健です。"""
    match = _TOLD.search(text)
    name = (match[1] or match[2] if match else text).strip()
    first = name.split()[:1]
    return [one for one in dict.fromkeys([name, *first]) if one and all(map(str.isalpha, one.split()))]


def in_first_person(text: str, names: Iterable[str]) -> str:
    """Put "I" and "my" in the place of these names, or 私 in Japanese. Latin names count where they have a capital."""
    for name in names:
        known = re.escape(name[:1].upper() + name[1:])
        if _JAPANESE.search(text):
            text = re.sub(rf"(?<![\u30a0-\u30ff\u3400-\u9fff]){known}(?:さん|様|氏)?(?=[はがをにのもと、])", "私", text)
        else:
            text = re.sub(rf"\b{known}\b", "I", re.sub(rf"\b{known}['’]s\b", "my", text))
    return text
