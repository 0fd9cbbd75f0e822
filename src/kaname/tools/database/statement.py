"""Clean what the model wrote: remove its code block, its comments and its last semicolon.

Safety does not depend on this: each engine's own parser checks the text that it is given."""

from __future__ import annotations

import re
from typing import Literal

Comments = Literal["strip", "refuse"]

LONGEST = 50_000  # characters
_FENCES = ("```", "~~~")
_FENCE = re.compile(r"(?:```|~~~)[ \t]*(?:\w+[ \t]*\r?\n|\r?\n|(?:sql\b)?)(.*?)(?:```|~~~|\Z)", re.DOTALL | re.IGNORECASE)
_BEGINS = re.compile(
    r"(?>(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*)(?:select|with|values|from|table|explain|show|describe|desc|pragma|summarize|pivot)\b",
    re.IGNORECASE | re.DOTALL,
)
# An unclosed quote extends to the end: otherwise the end would be searched in vain for each of many openings
_TEXT, _NAME = r"'(?>(?:[^']|'')*)(?:'|\Z)", r'"(?>(?:[^"]|"")*)(?:"|\Z)'
_WORD = r"(?<![\w$\x80-\U0010ffff])"  # not preceded by part of a name
_ESCAPE = r"'(?>(?:[^'\\]|''|\\.)*)(?:'|\Z)"
_ESCAPED = rf"{_WORD}[eE]{_ESCAPE}(?:[ \t]*+[\n\r]\s*+{_ESCAPE})*"  # it can continue on the next line
_DOLLAR = _WORD + r"\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)"
_LINE = {"sqlite": r"--[^\n]*", "postgres": r"--[^\n\r]*", "duckdb": r"--[^\n\r]*"}
QUOTES = {
    "sqlite": rf"{_TEXT}|{_NAME}|`(?>(?:[^`]|``)*)(?:`|\Z)|\[[^\]]*+(?:\]|\Z)",
    "postgres": rf"{_ESCAPED}|{_DOLLAR}|{_TEXT}|{_NAME}",
    "duckdb": rf"{_ESCAPED}|{_DOLLAR}|{_TEXT}|{_NAME}",
}
_PIECES = {
    dialect: re.compile(rf"{quotes}|(?P<line>{_LINE[dialect]})|(?P<block>/\*)", re.DOTALL) for dialect, quotes in QUOTES.items()
}


class StatementRefused(ValueError):
    """The reason why a statement is not run, written for the model."""


class Missing(StatementRefused):
    """A table or column that does not exist. It may have been created since the schema was loaded."""


def clean_statement(sql: str, dialect: str, comments: Comments) -> str:
    """Return the statement to run. Raises `StatementRefused` if it is empty, too long, or contains what is not allowed."""
    if len(sql) > LONGEST:
        raise StatementRefused(f"the statement is longer than {LONGEST:,} characters")
    if "\0" in sql or (not sql.isascii() and sql.encode(errors="replace").decode() != sql):
        raise StatementRefused("it contains U+0000, or half a character")
    made = _strip_comments(_strip_fence(sql), _PIECES[dialect], comments).strip()
    while made.endswith(";"):
        made = made[:-1].rstrip()
    if not made:
        raise StatementRefused("there is no statement")
    if "kaname_row_" in made.lower():
        raise StatementRefused("choose another name than kaname_row_")
    return made


def _strip_fence(sql: str) -> str:
    """Return the content of a code block. A closing fence without an opening one is removed as well."""
    if not any(fence in sql for fence in _FENCES):
        return sql
    block = None if _BEGINS.match(sql) else _FENCE.search(sql)
    return block[1] if block is not None else sql.rstrip().removesuffix(_FENCES[0]).removesuffix(_FENCES[1])


def _strip_comments(sql: str, pieces: re.Pattern[str], comments: Comments) -> str:
    made, place = [], 0
    while match := pieces.search(sql, place):
        made.append(sql[place : match.start()])
        place = match.end()
        if match["line"] is None and match["block"] is None:
            made.append(match[0])
            continue
        if comments == "refuse":
            raise StatementRefused("write it without comments")
        place = place if match["block"] is None else _end_of_block(sql, place, nested="`" not in pieces.pattern)
        made.append(" ")
    return "".join([*made, sql[place:]])


def _end_of_block(sql: str, place: int, *, nested: bool) -> int:
    depth = 1
    for sign in re.compile(r"/\*|\*/").finditer(sql, place):
        depth += 1 if nested and sign[0] == "/*" else -1 if sign[0] == "*/" else 0
        if depth == 0:
            return sign.end()
    raise StatementRefused("a comment is not closed")
