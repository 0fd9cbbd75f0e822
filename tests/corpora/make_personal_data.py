"""Write personal_data.jsonl: sentences with labelled personal data, and look-alikes without any.

    python -m tests.corpora.make_personal_data

The sentences are written by hand in personal_data_en.txt and personal_data_ja.txt, one a line (`\\n` is a line break),
and names, towns and domains to fill them with are in personal_data_parts.txt.
`<<phone>>` is a made-up value that gets a label, `<<phone.wide>>` asks for one form of it, `<<person|Ada Quill>>` labels
exactly that text. `<<!…>>` is filled in without a label: `<<!sha>>` by name, `<<!ORD-####>>` by mask (# digit, ^ digit but 0,
@ letter, ~ hexadecimal). A sentence with something to fill in is used twice, with other values.

A label covers the value and nothing around it: a person without title or honorific, an account number without the bank and
the branch, an IP address without port or prefix length. A postal code of Japan is never part of an address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.corpora.made_up import HERE, MAKERS, R, filler

WRITTEN = HERE / "personal_data.jsonl"
USES = 2


def fill_in(template: str, ja: bool) -> tuple[str, list[dict[str, Any]]]:
    text, spans, at = "", [], 0
    for slot in re.finditer(r"<<([^<>]+)>>", template):
        text += template[at : slot.start()].replace("\\n", "\n").replace("\\t", "\t")
        at, inside = slot.end(), slot[1]
        if inside.startswith("!"):
            text += filler(inside[1:], ja)
            continue
        name, _, literal = inside.partition("|")
        kind, _, form = name.partition(".")
        value = literal or MAKERS[kind](form, ja)
        spans.append({"start": len(text), "end": len(text) + len(value), "kind": kind})
        text += value
    return text + template[at:].replace("\\n", "\n").replace("\\t", "\t"), spans


def lines() -> Iterator[str]:
    """Yield the lines of the file, always the same ones."""
    R.seed(36)
    seen: set[str] = set()
    for language in ("en", "ja"):
        for template in (HERE / f"personal_data_{language}.txt").read_text(encoding="utf-8").splitlines():
            if not template or template.startswith("## "):
                continue
            for _ in range(USES):
                text, spans = fill_in(template, language == "ja")
                if text not in seen:
                    seen.add(text)
                    yield json.dumps({"id": len(seen), "text": text, "spans": spans}, ensure_ascii=False)


if __name__ == "__main__":
    WRITTEN.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
