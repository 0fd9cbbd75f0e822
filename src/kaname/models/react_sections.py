"""What stands under which label, and which labels count: `Action` is a word of every day, too.

A label of the protocol counts where the protocol is in use. In an answer all is text until a new turn begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import dedent
from typing import Any

from .react_arguments import bracketed
from .react_blocks import Blocks
from .react_doubt import foreign, is_thought, is_told
from .react_input import json_action, unfenced
from .react_labels import Label, label_of
from .react_names import ENDS, plain_name, tool_named

SET_OFF = ("bullet", "numbered", "heading", "quote")
_NO_LABEL = Label("bare", strong=False, style="plain", rest="")
_ASKED = re.compile(r"^\W{0,8}(?:Q|問|question)\d{0,3}\W{0,3}[:：.]", re.MULTILINE | re.IGNORECASE)
_TAIL = 40  # lines that are looked at for what a text means to say
Calls = Callable[[str], bool]


class Section:
    """`body`: what stands under the label."""

    def __init__(self, label: Label, lines: list[str]) -> None:
        self.label, self._lines = label, lines
        self.own = len(lines)  # lines without those that were joined to it

    @property
    def kind(self) -> str:
        return "answer" if self.label.kind == "closing" else self.label.kind

    @property
    def body(self) -> str:
        if self.label is _NO_LABEL:
            return "\n".join(self._lines).strip()
        under = self._lines[1:]
        if self.label.style == "quote" and all(line.lstrip().startswith(">") for line in under if line.strip()):
            under = [re.sub(r"^\s*> ?", "", line) for line in under]
        if self.kind in ("action", "input") and not self.label.rest.strip():
            return dedent("\n".join(under)).strip()
        return "\n".join([self.label.rest, *under]).strip()

    @property
    def on_its_line(self) -> bool:
        """Whether all of it stands on the label's own line."""
        return bool(self.label.rest.strip()) and not any(line.strip() for line in self._lines[1:])

    @property
    def tail(self) -> str:
        """Its last lines."""
        return "\n".join(self._lines[-_TAIL:]).strip()

    @property
    def last_line(self) -> str:
        """The line right before what follows; empty, if that is the label's own."""
        return self._lines[-1] if len(self._lines) > 1 or self.label is _NO_LABEL else ""

    @property
    def empty(self) -> bool:
        under = self._lines if self.label is _NO_LABEL else self._lines[1:]
        return not self.label.rest.strip() and not any(line.strip() for line in under)

    @property
    def grown(self) -> bool:
        return len(self._lines) > self.own

    def join(self, other: Section) -> None:
        """A label that does not count is text like any other."""
        self._lines += other._lines

    def without_label(self) -> Section:
        return Section(_NO_LABEL, self._lines)


def sections(text: str, tools: Mapping[str, Any], calls: Calls | None = None) -> list[Section]:
    """`bare` is what stands before the first label. `calls`: whether a text without labels is a call."""
    return _Settling(_candidates(text), tools, calls).out


def has_labels(text: str, tools: Mapping[str, Any]) -> bool:
    return any(section.kind != "bare" for section in sections(text, tools))


def _candidates(text: str) -> list[Section]:
    """Every label at a line's beginning. A code block keeps its lines, whatever they say; in an answer even an open one."""
    lines = text.split("\n")
    blocks = Blocks(lines)
    made = [Section(_NO_LABEL, [])]
    answering = False
    under: list[str] = []
    for place, line in enumerate(lines):
        label = None if blocks.keeps(place, answering=answering) else label_of(line)
        if label is not None:
            made[-1] = Section(made[-1].label, under)
            under = [line]
            made.append(Section(label, under))
            answering = answering or label.kind in ("answer", "closing")
        else:
            under.append(line)
        blocks.past(place, label)
    made[-1] = Section(made[-1].label, under)
    return made


class _Settling:
    """Which of the candidates count, each judged by what stands before it and right after it."""

    def __init__(self, found: list[Section], tools: Mapping[str, Any], calls: Calls | None) -> None:
        self._found, self._tools, self._calls = found, tools, calls
        ends = [place for place, one in enumerate(found) if one.kind in ("action", "answer")]
        self._last_end = ends[-1] if ends else -1
        self._answers = sum([one.kind in ("answer", "question") for one in found])
        self._in_use = False  # something of the protocol came before
        self.out: list[Section] = []
        for place, section in enumerate(found):
            if section.kind == "bare":
                self.out += [] if section.empty else [section]
            elif self._counts(place, section):
                self.out.append(section)
                self._in_use = self._in_use or section.kind != "answer"
            elif self.out:
                self.out[-1].join(section)
            else:
                self.out.append(section.without_label())

    def _follows(self, place: int) -> Label:
        return self._found[place + 1].label if place + 1 < len(self._found) else _NO_LABEL

    def _counts(self, place: int, section: Section) -> bool:
        label, last = section.label, self.out[-1] if self.out else None
        now = last.kind if last else "start"
        if last is not None and now == "answer":
            return self._ends_answer(place, section, last)
        if now in ("action", "input") and last is not None and label.style == "heading" != last.label.style:
            return False  # a comment in code
        if label.kind == "thought":
            return self._in_use or (label.strong and now == "start") or place < self._last_end
        if label.kind == "action":
            return self._is_action(place, section)
        if label.kind == "input":
            return now == "action" or (label.strong and now not in ("input", "bare"))
        if label.kind == "observation":
            return self._is_observation(label, now, last) or self._is_call(last)
        if label.kind in ("answer", "closing"):
            return self._is_answer(section, now, last)
        return False

    def _is_action(self, place: int, section: Section) -> bool:
        label, follows = section.label, self._follows(place)
        fed = follows.kind == "input" and (follows.strong or label.strong)
        if not self._in_use and not self._begins_protocol(place, section):
            return False
        if named_in(section.body, self._tools):
            return label.style != "dash" or fed or "[" in label.rest
        if not self._in_use and not fed and label.style in ("bold", "heading") and " " in section.body.split("\n", 1)[0]:
            return False  # the heading of a text
        if label.strong and label.style != "dash":
            return self._in_use or not self.out or fed or _is_unknown_call(label)
        return fed and (self._in_use or not self.out) and (label.strong or _is_name(section.body))

    def _begins_protocol(self, place: int, section: Section) -> bool:
        """An action that nothing of the protocol stands before. Minutes and manuals have actions, too."""
        label, follows = section.label, self._follows(place)
        fed = follows.kind == "input"
        if not (label.strong and fed and follows.strong):
            if self.out and not (is_thought(self.out[-1].tail) or self._is_plain_call(section)):
                return False
            if is_form(section, self._tools) or (fed and _has_form(self._found[place + 1].body)):
                return False
        return fed or label.strong or section.on_its_line

    def _is_plain_call(self, section: Section) -> bool:
        """`Action: search[…]` of a known tool, after words that are neither lines of a form nor explain it."""
        call = bracketed(section.body, to_the_end=True) if section.label.strong else None
        if call is None or tool_named(plain_name(call[0]), self._tools) not in self._tools:
            return False
        return not (is_told(self.out[-1].tail) or foreign(self.out[-1].last_line))

    def _is_observation(self, label: Label, now: str, last: Section | None) -> bool:
        if label.strong:
            return self._in_use or now == "start"
        if now in ("action", "input") and last is not None:
            return label.capital and _may_end(last)
        return now == "thought" and not label.word.isascii()

    def _is_call(self, last: Section | None) -> bool:
        if last is None or last.kind != "bare" or last.grown or self._calls is None:
            return False
        return self._calls(last.body)

    def _is_answer(self, section: Section, now: str, last: Section | None) -> bool:
        label = section.label
        if label.strong:
            return True
        if label.style in ("bullet", "numbered") and (last is None or last.label.style != label.style):
            return False
        if now in ("action", "input") and last is not None:
            return label.capital and _may_end(last)
        if now == "thought" or label.kind == "closing":
            return now == "thought"
        if now == "start" or last is None:
            return True
        if self._answers > 1 or last.tail.endswith(("?", "？")) or (foreign(last.last_line) and "\n\n" in section.body):
            return False
        return _ASKED.search(last.body) is None

    def _ends_answer(self, place: int, section: Section, answer: Section) -> bool:
        """A new turn: a thought, an observation, an action that names a tool. All else is the answer's own text."""
        label, follows = section.label, self._follows(place)
        if label.kind == "answer" and answer.empty:
            return True
        if (label.style in SET_OFF and label.style != answer.label.style) or (label.indented and not answer.label.indented):
            return False
        if foreign(answer.last_line):
            return False  # one line of several: `Hypothesis: …`, `Observation: …`
        if label.kind == "answer":
            return label.strong and not answer.grown and section.body == answer.body
        if not label.strong:
            return label.kind == "question" and follows.kind == "thought" and follows.strong
        if label.kind == "action":
            fed = follows.kind == "input" and follows.strong
            return label.style != "dash" and (fed or named_in(section.body, self._tools))
        return label.kind in ("thought", "observation") and label.style != "dash"


def _may_end(section: Section) -> bool:
    """Whether a word of every day can end it: not in the middle of a text of several lines."""
    if section.grown:
        return not section.last_line.strip()
    if section.on_its_line or section.kind == "action":
        return True
    body = section.body
    return not section.last_line.strip() or (body[:1] in "{[`~" and body[-1:] in "}]`~")


def is_form(section: Section, tools: Mapping[str, Any]) -> bool:
    """`Action: Search`, `Owner: Ken`: lines of a form, none of them an argument of the tool."""
    first, _, rest = section.body.partition("\n")
    line = next((line for line in rest.split("\n") if line.strip()), "")
    schema = tools.get(tool_named(plain_name(first), tools)) or {}
    word = foreign(line)
    return bool(word) and word.strip("\"' ") not in (schema.get("properties") or {})


def _has_form(given: str) -> bool:
    """An input on one line, and after it lines of a form."""
    first, _, rest = given.partition("\n")
    line = next((line for line in rest.split("\n") if line.strip()), "")
    return bool(foreign(line)) and not foreign(first) and first[:1] not in "{[`"


def _is_unknown_call(label: Label) -> bool:
    """`wikipedia[Ada Lovelace]` after words of its own: the model is told that there is no such tool."""
    call = bracketed(label.rest, to_the_end=True) if label.style == "plain" else None
    return call is not None and re.fullmatch(r"[A-Za-z_][\w.]{2,40}", call[0]) is not None


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[\w.\-]{1,60}", plain_name(text)) is not None


def named_in(body: str, tools: Mapping[str, Any]) -> bool:
    """Whether what stands under an action's label names a known tool, or ends with an answer, in one of the usual ways."""
    text = unfenced(body)
    if text[:1] in ("{", "[", "$"):
        found = json_action(text)
        return found is not None and (tool_named(found[0], tools) in tools or found[0].lower() in ENDS)
    first = text.split("\n", 1)[0]
    call = bracketed(without_number(first)) if "[" in first or "(" in first or "（" in first or "［" in first else None
    names = [plain_name(first), plain_name(re.split(r"[:：]", first, maxsplit=1)[0]), *([call[0]] if call else [])]
    names.append(re.split(r"[(（\[［]", first, maxsplit=1)[0].strip())
    return any(tool_named(name, tools) in tools or name.lower() in ENDS for name in names)


def without_number(text: str) -> str:
    return re.sub(r"^\s*\d{1,2}[.)]\s+", "", text)
