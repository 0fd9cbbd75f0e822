"""Words that the parser keeps as bare text, and the generator writes as they are: units, types, options, names of arguments.

They have to be words. Whoever puts signs into one writes SQL that nobody has looked at."""

from __future__ import annotations

import re
from typing import Any

from .grammar import not_plainly

_WORDS = re.compile(r"[A-Za-z0-9_]*(?: [A-Za-z0-9_]+)*", re.ASCII)
_NUMBER = re.compile(r"[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?", re.ASCII)


def only_plain_words(tree: Any) -> None:
    """Names and texts are written in quotes; keys of JSON too, inside of a text."""
    from sqlglot import exp

    for node in tree.walk():
        if isinstance(node, exp.Identifier | exp.JSONPathPart):
            continue
        if isinstance(node, exp.Literal):
            if not node.is_string and not _NUMBER.fullmatch(str(node.this)):
                raise not_plainly()
            continue
        if (
            isinstance(node, exp.JSONExtract | exp.JSONExtractScalar)
            and node.expression.name == ""
            and node.expression.is_string
        ):
            raise not_plainly()
        for value in node.args.values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str) and not _WORDS.fullmatch(one):
                    raise not_plainly()
