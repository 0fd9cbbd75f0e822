"""Pseudonyms: `<EMAIL_1>` in place of an address, the same for the whole session.

The record holds the number of each value under a digest of it, and no value: the values are found again in the conversation,
where the user or a tool wrote them. So a run that is resumed uses the same pseudonyms.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import regex

from ..guardrails.escapes import spelt_out
from .kinds import DataForm
from .scan import Found, find, fold_data, join_overlaps, readings

if TYPE_CHECKING:
    from ....kernel.view import RunView

FACT = "pseudonyms"
_SHORTEST = 4  # characters of a value that is looked for wherever it stands
_APART = r"[ _\\-]{0,3}"  # between the words of a pseudonym, as models write it again: <email_1>, <Date of birth 1>, <EMAIL\_1>
_SEPARATORS = regex.compile(r"[ _\\-]+")
_LABEL = regex.compile(rf"(?:<|&lt;|\[) ?([A-Za-z][A-Za-z0-9 _\\-]{{1,40}}?){_APART}([0-9]{{1,6}}) ?(?:>|&gt;|\])")
LABELS = (DataForm("pseudonym", _LABEL, None, frozenset("<&[")),)


class Pseudonyms:
    """The pseudonyms of a run, and the values that were found in it since it began or was resumed."""

    def __init__(self, view: RunView) -> None:
        known = view.state.custom.get(FACT)
        known = known if isinstance(known, Mapping) else {}
        self._salt = str(known.get("salt") or view.run_id)
        self._labels: dict[str, str] = dict(known.get("labels") or {})
        self._values: dict[str, tuple[str, str]] = {}  # kind and value, by label
        self._by_value: dict[str, str] = {}
        self._recorded = len(self._labels)
        self._counts = Counter([_name(label) for label in self._labels.values()])

    @property
    def size(self) -> int:
        return len(self._values)

    def label(self, kind: str, value: str) -> str:
        """Return the pseudonym of a value."""
        value = spelt_out(value) if "\\u" in value else value  # it stood in JSON
        said = fold_data(value)
        if (label := self._by_value.get(said)) is not None:
            return label
        digest = hashlib.sha256(f"{self._salt}\n{kind}\n{said}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
        if digest not in self._labels:
            name = "".join([char if char.isascii() and char.isalnum() else "_" for char in kind.upper()]).strip("_") or "DATA"
            self._counts[name] += 1
            self._labels[digest] = f"<{name}_{self._counts[name]}>"
        label = self._by_value[said] = self._labels[digest]
        self._values.setdefault(label, (kind, value))
        return label

    def find_values(self, text: str) -> list[Found]:
        """Return the places in a text of values that have a pseudonym, also without a word that names their kind."""
        held = []
        for _, said, place in readings(text) if self._by_value else ():
            for value, label in self._by_value.items():
                start = said.find(value) if len(value) >= _SHORTEST else -1
                while start >= 0:
                    end = start + len(value)
                    if not _is_inside_word(said, start, end):
                        held.append((Found(place(start), place(end), self._values[label][0]), 0))
                    start = said.find(value, start + 1)
        return join_overlaps(held)

    def since(self, size: int) -> list[str]:
        """Return the values that were found since there were `size` of them, folded."""
        return [fold_data(value) for _, value in islice(self._values.values(), size, None)]

    def has(self, value: str) -> bool:
        return fold_data(spelt_out(value) if "\\u" in value else value) in self._by_value

    def value(self, label: str) -> tuple[str, str]:
        """Return the kind and the value of a pseudonym; no kind, and the text itself, if it is none."""
        said = fold_data(label)
        return self._values.get(said) or self._values.get(_as_given(said), ("", label))

    async def record(self, view: RunView) -> None:
        """Record new pseudonyms before a model, a tool or a user sees them."""
        if len(self._labels) > self._recorded:
            self._recorded = len(self._labels)
            await view.note(FACT, {"salt": self._salt, "labels": dict(self._labels)}, shown=False)


def _as_given(label: str) -> str:
    """Return a pseudonym as it was given to the model: it may write it in another case, with blanks or other brackets."""
    found = _LABEL.fullmatch(label)
    return label if found is None else f"<{_SEPARATORS.sub('_', found[1].upper())}_{found[2]}>"


def _name(label: str) -> str:
    return label[1:-1].rpartition("_")[0]


def _is_inside_word(text: str, start: int, end: int) -> bool:
    around = (text[start - 1 : start], text[end : end + 1])
    return any(char.isascii() and char.isalnum() for char in around)


def pseudonyms_of(view: RunView) -> Pseudonyms:
    """Return the pseudonyms of a run, which all its policies share."""
    scratch: dict[Any, Any] = view.scratch
    if FACT not in scratch:
        scratch[FACT] = Pseudonyms(view)
    held: Pseudonyms = scratch[FACT]
    return held


def labels_in(text: str) -> Sequence[Found]:
    return find(text, LABELS) if not LABELS[0].firsts.isdisjoint(fold_data(text)) else ()
