"""The first wall: a real SQL parser looks at the statement before any database does, and what was looked at is what is run.

One SELECT, over tables that are there, with functions that only calculate; everything else is refused with its reason. The
engine never sees the text that was written: it gets one that is generated from the checked tree, in a form so plain that it can
be read in one way only. A parser can be fooled; the walls behind it are the engine's own, and a process with limits."""

from __future__ import annotations

import re
from typing import Any

from .calls import allowed, check_calls
from .dots import no_hidden_calls
from .engines.base import ROW
from .functions import TYPES
from .grammar import generated, not_plainly, parsed
from .labels import label
from .names import Known, small
from .plain import Refused, plain
from .proof import proofread
from .sources import only_full_names, rewrite
from .words import only_plain_words

__all__ = ["Refused", "check"]

_UNSURE = "\x01"  # stands before a name while it is written; no statement can hold it
_KEYWORDS = re.compile(
    r"^\s*(insert|update|delete|drop|alter|create|truncate|replace|merge|grant|revoke|pragma|attach|detach|copy|vacuum|set|"
    r"call|do|execute|prepare|begin|commit|explain|show|install|load|export|import|analyze|lock|listen|notify)\b",
    re.IGNORECASE,
)


def check(sql: str, known: Known) -> str:
    """The statement as it is to be run; `Refused` if it must not be."""
    text = plain(sql, known.dialect)
    if found := _KEYWORDS.match(text):
        raise Refused(_only_select(found[1].upper()))
    if known.dialect != "duckdb" and re.match(r"from\b", text, re.IGNORECASE):
        raise Refused("begin with SELECT")
    tree, tokens = parsed(text, known.dialect)
    _judge(tree, known, text)
    label(tree, text, tokens, known.dialect)
    rewrite(tree, known)
    _exact_names(tree, known)
    return _written(tree, known)


def _judge(tree: Any, known: Known, text: str) -> None:
    _only_reading(tree, known.dialect)
    only_plain_words(tree)
    check_calls(tree, known, text)
    if known.dialect == "postgres":
        no_hidden_calls(tree, known, allowed(known))
    _check_types(tree, known)


def _only_select(what: str) -> str:
    return f"only SELECT is allowed, not {what}"


def _only_reading(tree: Any, dialect: str) -> None:
    from sqlglot import exp

    kinds: tuple[Any, ...] = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)
    seen: tuple[Any, ...] = (exp.Describe, exp.Summarize)
    if dialect == "duckdb":
        kinds += (exp.Pivot,)
        if isinstance(tree, seen) and isinstance(tree.this, exp.Table) and not tree.args.get("style"):
            kinds += seen
    if not isinstance(tree, kinds):
        raise Refused(_only_select(type(tree).__name__.upper()))
    never: tuple[Any, ...] = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Pragma, exp.Set, exp.Drop, exp.Alter)
    if tree.find(exp.Concat):  # which none but the parser's own reading of 'a' 'b' is
        raise Refused("join texts with ||")
    never += (exp.TruncateTable, exp.Placeholder, exp.Parameter, exp.SessionParameter, exp.Show, exp.Operator, exp.Hint)
    for node in tree.walk():
        if (isinstance(node, never) and not isinstance(node, exp.Query)) or (isinstance(node, seen) and node is not tree):
            raise Refused(_only_select(type(node).__name__.upper()))


def _check_types(tree: Any, known: Known) -> None:
    from sqlglot import exp

    for node in list(tree.find_all(exp.DataType, exp.ObjectIdentifier)):
        kind = str(getattr(node.this, "name", node.this))
        if known.dialect == "sqlite" and re.search("DECIMAL|DATE|TIME|BOOL", kind):  # for SQLite all of them are numbers
            node.replace(exp.DataType(this=exp.DataType.Type.USERDEFINED, kind="NUMERIC"))
        elif known.dialect == "postgres":
            name = small(node.sql("postgres")) if kind != "USERDEFINED" else known.folded(_type_name(node))
            if isinstance(node, exp.ObjectIdentifier) or kind == "XML" or name.startswith(("reg", "pg_")):
                raise Refused(_no_type(name))
            if kind == "USERDEFINED" and name not in TYPES and name not in known.types:
                raise Refused(_no_type(name))


def _type_name(node: Any) -> Any:
    from sqlglot import exp

    kind = node.args.get("kind")
    if isinstance(kind, exp.Dot):
        return kind.expression
    return kind if isinstance(kind, exp.Identifier) else exp.to_identifier(str(kind or ""))


def _no_type(name: str) -> str:
    return f"a cast to {name} is not allowed here"


def _exact_names(tree: Any, known: Known) -> None:
    """Every name as the engine understands it: after this, they are all written in quotes."""
    from sqlglot import exp

    for node in tree.find_all(exp.Identifier):
        if small(node.this) == ROW:
            raise Refused(f"{ROW} is no name for you")
        if "\x00" in node.this or not node.this:
            raise Refused("a name is empty")
        if known.dialect == "postgres" and not node.args.get("quoted"):
            node.set("this", small(node.this))
        if known.dialect == "sqlite":
            node.meta["bare"] = not node.args.get("quoted")
        node.set("quoted", True)


def _written(tree: Any, known: Known) -> str:
    text = generated(tree, known.dialect)
    if any(words in _spoken(tree) and words not in text for words in ("IGNORE NULLS", "RESPECT NULLS")):
        raise not_plainly()
    again, _ = parsed(text, known.dialect)  # what the engine will read, judged as if somebody had written it
    _check_types(again, known)
    if generated(again, known.dialect).replace(" (", "(") != text.replace(" (", "("):
        raise not_plainly()
    only_full_names(again, known)
    _judge(again, known, text)
    if known.dialect == "sqlite":
        text = _sure(tree)
    proofread(text, allowed(known), known.own_operators)
    return text


def _spoken(tree: Any) -> str:
    """What the generator leaves out where it thinks that the engine does not know it."""
    from sqlglot import exp

    kinds = {exp.IgnoreNulls: "IGNORE NULLS", exp.RespectNulls: "RESPECT NULLS"}
    return "; ".join([words for kind, words in kinds.items() if tree.find(kind)])


def _sure(tree: Any) -> str:
    """SQLite takes "a name" that it does not find for a text, but not `a name`: so are those written that were bare."""
    from sqlglot import exp

    for column in tree.find_all(exp.Column):
        name = column.this
        if isinstance(name, exp.Identifier) and name.meta.get("bare") and not column.table and not set("`\"'") & set(name.this):
            name.set("this", _UNSURE + name.this)
    text = generated(tree, "sqlite")
    return re.sub(f'"{_UNSURE}([^"]*)"', r"`\1`", text)
