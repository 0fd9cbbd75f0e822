"""The Japanese pages of the docs have what the English ones have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from keyword import iskeyword

from .source import DOCS

ONLY_ENGLISH = {"benchmarks.md", "synonyms.md"}

_FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_NAME = re.compile(r"--[a-z][\w-]+|[A-Za-z_]\w*(?=\s*[(=:])")
_SPAN = re.compile(r"`([A-Za-z_/.-][\w./-]*)(?:\(…?\))?`")


def translations() -> Iterator[str]:
    """A page in docs/ja has what its page in docs has: headings, options, names, and code but for its texts and comments."""
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("designs/*.md")]):
        name = page.relative_to(DOCS).as_posix()
        other = DOCS / "ja" / name
        if name in ONLY_ENGLISH:
            continue
        if not other.exists():
            yield f"docs/ja/{name} is missing: translate docs/{name}, or add it to ONLY_ENGLISH in rulers/translations.py"
            continue
        english, nihongo = page.read_text(encoding="utf-8"), other.read_text(encoding="utf-8")
        for here, there, one, two in (
            (f"docs/{name}", f"docs/ja/{name}", english, nihongo),
            (f"docs/ja/{name}", f"docs/{name}", nihongo, english),
        ):
            missing = sorted({name for name in _names(one) if name not in two})
            if missing:
                yield f"{there} does not name {', '.join(missing)}, which {here} has"
        yield from _structure(name, english, nihongo)


def _structure(page: str, english: str, nihongo: str) -> Iterator[str]:
    heads = [re.findall(r"^(#+) (.*)$", _FENCE.sub("", text), re.MULTILINE) for text in (english, nihongo)]
    if [level for level, _ in heads[0]] != [level for level, _ in heads[1]]:
        titles = ["; ".join([f"{level} {title}" for level, title in one]) for one in heads]
        yield f"docs/ja/{page} has other headings than docs/{page}:\n      {titles[1]}\n      {titles[0]}"
    codes = [
        [(language, _code_names(language, code)) for language, code in _FENCE.findall(text)] for text in (english, nihongo)
    ]
    if len(codes[0]) != len(codes[1]):
        yield f"docs/ja/{page} has {len(codes[1])} code blocks, docs/{page} has {len(codes[0])}"
        return
    for number, (one, two) in enumerate(zip(*codes, strict=True), 1):
        if one != two:
            differ = ", ".join(sorted(one[1] ^ two[1])) or f"```{one[0]} and ```{two[0]}"
            yield f"code block {number} of docs/ja/{page} differs from that of docs/{page}: {differ}"


def _names(text: str) -> set[str]:
    """Options, and what stands in backticks and is one word; a word in capitals is a place holder."""
    return {
        *re.findall(r"(?<![\w-])--[a-z][a-z-]+", text),
        *[one for one in _SPAN.findall(_FENCE.sub("", text)) if not one.isupper()],
    }


def _code_names(language: str, code: str) -> frozenset[str]:
    """Without texts and comments, which are translated: what is called, set and passed; outside Python how lines begin, too."""
    plain = "\n".join([re.sub(r"(^|\s)# .*", "", line) for line in _STRING.sub('""', code).splitlines()])
    begins = [] if language == "python" else [line.split()[0] for line in plain.splitlines() if line.strip()]
    words = [*_NAME.findall(plain), *[word for word in begins if word.isascii()]]
    return frozenset([word for word in words if not iskeyword(word)])
