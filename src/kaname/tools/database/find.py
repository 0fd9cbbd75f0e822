"""Find the rows of a database that share words with a question: SQL selects candidates, and their words are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..search.tokenize import query_terms, terms
from .tables import KnownTables, Table

_TERMS, _COLUMNS = 12, 40  # that are looked for, and in
_WORDS = "kaname_words"  # what a row says, in small letters
_SHORTEST = 2  # letters of a word that is looked for
_TELLING = 3  # digits of a number that says something alone


def words_to_find(question: str) -> list[str]:
    """Return the words of a question to look for in rows: names, numbers, and other words that are not in every question."""
    found = [term for term in query_terms(question) if len(term) >= _SHORTEST or not term.isascii() or term.isdigit()]
    return found[:_TERMS]


def candidates(table: Table, name: str, words: Sequence[str], known: KnownTables, most: int) -> str:
    """Return the SELECT of the rows in which the most of these words occur, also as parts of words."""
    columns = [known.quote(one.name) for one in table.columns]
    text = " || ' ' || ".join([f"coalesce(CAST({column} AS TEXT), '')" for column in columns[:_COLUMNS]])
    found = [f"{_WORDS} LIKE '%{word}%'" for word in words]
    count = " + ".join([f"CASE WHEN {one} THEN 1 ELSE 0 END" for one in found])
    inner = f"(SELECT *, lower({text}) AS {_WORDS} FROM {name}) AS kaname_rows"
    return f"SELECT {', '.join(columns)} FROM {inner} WHERE {' OR '.join(found)} ORDER BY {count} DESC LIMIT {most}"


def best(name: str, rows: Sequence[dict[str, Any]], words: Sequence[str], most: int) -> list[dict[str, Any]]:
    """Return the rows that have the most of these words. If more than `most` rows tie, return nothing.

    A small number alone only counts if the question names the table: `order 7`, but not `7 cups`."""
    named = not set(words).isdisjoint(terms(name))
    shared = [_count_shared(row, words, named) for row in rows]
    top = max(shared, default=0)
    found = [row for row, count in zip(rows, shared, strict=True) if count == top]
    return found if top and len(found) <= most else []


def _count_shared(row: dict[str, Any], words: Sequence[str], named: bool) -> int:
    found = set(words).intersection(terms(" ".join([str(value) for value in row.values()])))
    telling = named or any(not word.isdigit() or len(word) >= _TELLING for word in found)
    return len(found) if telling else 0
