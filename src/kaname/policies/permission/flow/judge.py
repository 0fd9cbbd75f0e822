"""Decide whether a call may run after text from outside was read: whose values are these, and did the user ask for the tool?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ....core.messages import ToolCall
from ....core.people.labels import ToolLabels
from ....core.values import identity, plain_text
from ...content.guardrails.folded import fold_text
from .dates import is_moment
from .records import TrustedRecords
from .verbs import said_for, verbs_of
from .words import UserWords, leaves, named_leaves

Whose = Literal["user", "source", "nowhere", "bounded"]
_FOLLOWED = re.compile(  # links, addresses, long numbers and codes: what a reader of the content could follow or use
    r"\w+://\S+|www\.\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}\b"
    r"|\d(?:[ -]?\d){5,}|\b(?=\w*\d)(?=\w*[a-zA-Z])\w{6,}\b",
    re.IGNORECASE,
)


class Mark(NamedTuple):
    """A value of a call, and where it comes from. `source`: the call whose result holds it."""

    name: str
    value: Any
    role: str
    whose: Whose
    source: str = ""


class FlowVerdict(NamedTuple):
    """The decision whether a call waits for the user, with the origin of its values."""

    waits: bool
    marks: tuple[Mark, ...]
    asked_for: bool = True


class FlowJudge:
    """Judges calls by what the user has said and what was read so far.

    Args:
        words: The user's words.
        records: The trusted records that were read.
        find_source: Returns the name of the tool whose untrusted result holds a text, or "".
        private: True if private data was read.
        repeated: Returns True if the same tool has run with these targets before.
    """

    def __init__(
        self,
        words: UserWords,
        records: TrustedRecords,
        find_source: Callable[[str], str],
        private: bool,
        repeated: Callable[[str, Any], bool],
    ) -> None:
        self._words, self._records, self._find_source = words, records, find_source
        self._private, self._repeated = private, repeated

    def judge(self, call: ToolCall, labels: ToolLabels, schema: Mapping[str, Any]) -> FlowVerdict:
        """Judge a call of a tool that acts, by the strict rule."""
        marks = self.marks(call, labels, schema)
        asking = self._words.requests_for(said_for(labels.verbs) or verbs_of(call.name))
        asked_for = asking is not None and all(self._is_meant(mark, asking) for mark in marks)
        foreign = [mark for mark in marks if mark.whose in ("source", "nowhere")]
        waits = not asked_for or any(mark.role == "target" for mark in foreign)
        if not waits and foreign:
            waits = labels.prose != "lenient" or not self._is_harmless(call, foreign, marks)
        return FlowVerdict(waits, marks, asked_for)

    def _is_meant(self, mark: Mark, asking: UserWords) -> bool:
        """Return False for a target that the user named for something else, in a message that does not ask for the tool."""
        named = mark.role == "target" and mark.whose == "user"
        return not named or asking.has(mark.value) or self._records.has(mark.value)

    def marks(self, call: ToolCall, labels: ToolLabels, schema: Mapping[str, Any]) -> tuple[Mark, ...]:
        """Return the origins of the values of a call. Values that do not come from the user are first.

        `schema`: the schemas of its parameters, by name.
        """
        args = call.args if isinstance(call.args, Mapping) else {"": call.args}
        roles = labels.parameters or {}
        marks = []
        for name, value in args.items():
            known = schema.get(name) or {}
            if "default" in known and identity(known["default"]) == identity(value):
                continue
            role = roles.get(name, "target")
            if role == "bounded" and not all(_is_bounded(one, known) for one in leaves(value)):
                role = "target"  # a free text can carry anything
            marks += [self._mark(path, one, role) for path, one in named_leaves(name, value)]
        order = ("source", "nowhere", "bounded", "user")
        return tuple(sorted(marks, key=lambda mark: order.index(mark.whose)))

    def _mark(self, name: str, value: Any, role: str) -> Mark:
        if self._words.has(value) or self._records.has(value):
            return Mark(name, value, role, "user")
        if role == "bounded":
            return Mark(name, value, role, "bounded")
        source = self._find_source(plain_text(value))
        return Mark(name, value, role, "source" if source else "nowhere", source)

    def _is_harmless(self, call: ToolCall, foreign: list[Mark], marks: tuple[Mark, ...]) -> bool:
        """Return True for prose that holds nothing to follow, and is sent for the first time."""
        if self._private or self._repeated(call.name, targets_of(marks)):
            return False
        followed = [one for mark in foreign for one in _FOLLOWED.findall(fold_text(plain_text(mark.value)))]
        return all(self._words.has(one) or self._records.has(one) for one in followed)


def _is_bounded(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True for a number, a date, a time, a truth value, or one of the choices of a schema."""
    choices = [one for each in (schema, *(schema.get("anyOf") or ())) for one in each.get("enum") or [each.get("const")]]
    return not isinstance(value, str) or is_moment(value) or value in choices


def targets_of(marks: tuple[Mark, ...]) -> Any:
    """Return the targets of a call in a form that can be compared."""
    return sorted([(mark.name, plain_text(mark.value)) for mark in marks if mark.role == "target"])
