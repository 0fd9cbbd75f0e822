"""Split ReAct text into its sections, in one pass, as it arrives, so that streaming and the final reading agree.

Text under `Thought:` and `Final Answer:` is shown as it comes. Text without a label is held: only the whole of it shows
whether it is an answer. A label inside a code block is text. Text after an observation, or after a label that follows the
answer, is left out.
"""

from __future__ import annotations

import re
from textwrap import dedent

from .calls import has_call_tag
from .labels import Label, label_of, may_become_label

_TAGS = "thought|action|action_input|tool|tool_input|observation|final_answer|answer"
_TOKEN = re.compile(
    rf"<[|｜][^|｜<>\n]{{1,30}}[|｜]>|<(?P<end>/?)think(?:ing)?>|<(?P<close>/?)(?P<tag>{_TAGS})>"
    r"|</s>|<end_of_turn>|<start_of_turn>(?:model)?|<eos>|\[/?INST\]",
    re.IGNORECASE,
)
_PARTIAL = re.compile(r"(?:<[^<>\n]{0,34}|\[/?[INST]{0,4}|\r)\Z")
_TAG_KINDS = {"tool": "action", "action_input": "input", "tool_input": "input", "final_answer": "answer"}
_FENCE = re.compile(r"[ \t]{0,3}(?:```|~~~)([\w-]*)")
_SPEAKER = re.compile(r"\A\s*+assistant(?:\s*+[:：]|[ \t]*\n|\s*\Z)", re.IGNORECASE)
_ODD_SPACES = {0xA0: " ", 0xFEFF: None, 0x200B: None}
_QUOTES = "`\"'「『“‘("
Shown = list[tuple[str, str]]


class Section:
    """A section. `kind`: bare, think, thought, action, input or answer. `label`: its label; `tagged`: it began with a tag."""

    def __init__(self, kind: str, label: Label | None = None, tagged: bool = False) -> None:
        self.kind, self.tagged = kind, tagged
        self.strong, self.bold = label is None or label.strong, label is not None and label.bold
        self.pieces: list[str] = []
        self.begun = False  # there is more in it than spaces

    @property
    def text(self) -> str:
        text = "".join(self.pieces)
        if self.kind == "input":
            text = dedent(re.sub(r"\A[ \t]*\n", "", text))
        text = text.strip()
        return text.removesuffix("**").rstrip() if self.bold else text


class Sections:
    """A parser.

    `feed` returns the part that can be shown, as `text` or `thinking`. After `finish`, `found` holds the sections.
    """

    def __init__(self) -> None:
        self.found = [Section("bare")]
        self.shown = ""  # of the answer
        self._raw: list[str] = []
        self._held = ""  # may be the beginning of a token
        self._line, self._decided = "", False  # a beginning that may still become a label
        self._fenced = self._wrapped = False
        self.over = False  # the answer has ended, or an observation was written, which only the user gives
        self.guessed = False  # it was an everyday word that ended it: perhaps a line of the input
        self._ended = False  # the turn is over: the rest is ignored
        self._called = False  # there was a call before the answer
        self._spaces: list[str] = []  # after what was shown
        self._out: Shown = []

    @property
    def raw(self) -> str:
        """Return the whole text, without the tokens of the model's template."""
        return _SPEAKER.sub("", "".join(self._raw), count=1).strip()

    def feed(self, piece: str) -> Shown:
        text, self._held = self._held + piece, ""
        partial = _PARTIAL.search(text)
        if partial is not None:
            text, self._held = text[: partial.start()], text[partial.start() :]
        self._split(text.replace("\r\n", "\n").replace("\r", "\n").translate(_ODD_SPACES))
        out, self._out = self._out, []
        return out

    def finish(self) -> Shown:
        held, self._held = self._held, ""
        self._split(held.replace("\r", "\n"))
        if not self._decided and not self.over:
            self._decide()
        out, self._out = self._out, []
        return out

    def _split(self, text: str) -> None:
        place = 0
        for token in _TOKEN.finditer(text):
            if self._ended:
                return
            self._write(text[place : token.start()])
            place = token.start()
            before = text[place - 1 : place] or (self._raw[-1][-1:] if self._raw else "")
            if not self._fenced and not (before and before in _QUOTES) and self._take_token(token):
                place = token.end()
        self._write(text[place:])

    def _take_token(self, token: re.Match[str]) -> bool:
        """Take a token. Return False if it is text about one."""
        if token["tag"] is not None:
            kind = token["tag"].lower()
            return not self.over and self._take_tag(_TAG_KINDS.get(kind, kind), closes=bool(token["close"]))
        if token["end"] is not None:
            return not self.over and self._take_thinking(closes=bool(token["end"]))
        if token[0] == "<|channel|>" or (token[0] == "</s>" and "<s>" in self.raw):
            return False
        self._ended = bool(self.raw)  # the end of a turn; before any text its beginning
        return True

    def _take_tag(self, kind: str, *, closes: bool) -> bool:
        """Take `<action>` and similar tags, which replace a label. Return False if it is text."""
        now = self.found[-1]
        at_start = now.kind == "bare" and not self._line.strip() and not self._decided
        if closes and not (now.kind == kind and now.tagged):
            return False
        if not closes and (now.kind == "answer" or not (at_start or len(self.found) > 1)):
            return False
        if self._line.strip() and not self._decided:
            self._decide()
        self.over = closes and kind == "answer" and now.begun
        self._begin("bare" if closes else kind, tagged=not closes)
        return True

    def _take_thinking(self, *, closes: bool) -> bool:
        """Take `<think>` or `</think>`.

        Everything before `</think>` is thought, even without `<think>`, which counts only at the start.
        """
        if self.found[-1].kind == "answer" if closes else self._line.strip() or any(one.begun for one in self.found):
            return False
        if closes:
            if not self._decided:
                self._decide()
            said = "\n".join([section.text for section in self.found if section.text])
            self.found = [Section("think")]
            self.found[0].pieces.append(said)
            self._raw.clear()
        self._begin("bare" if closes else "think")
        return True

    def _write(self, text: str) -> None:
        if self._ended or not text:
            return
        self._raw.append(text)
        if self.over:
            return
        for number, part in enumerate(text.split("\n")):
            if number:
                self._end_line()
            if self.over:
                return
            if self._decided or self.found[-1].kind == "think":
                self._decided = True
                self._add(part)
            elif part:
                self._line += part
                if not may_become_label(self._line) and not _may_become_fence(self._line):
                    self._decide()

    def _end_line(self) -> None:
        if not self._decided:
            self._decide()
        if not self.over:
            self._add("\n")
        self._line, self._decided = "", False

    def _decide(self) -> None:
        """Decide whether the line begins a section, opens or closes a code block, or continues the section."""
        line, self._decided = self._line, True
        now = self.found[-1].kind
        if (fence := _FENCE.match(line)) is not None:
            if len(self.found) == 1 and not self.found[0].begun and fence[1] in ("", "text", "markdown"):
                self._wrapped = True  # perhaps the whole reply stands in a code block
            elif self._wrapped and not self._fenced and not fence[1] and len(self.found) > 1:
                self._wrapped = False
                self._begin("bare")
                return
            else:
                self._fenced = not self._fenced
        now = "start" if not any(section.begun for section in self.found) else now
        label = None if self._fenced or now == "think" else label_of(line, now)
        if label is None:
            self._add(line)
        elif label.kind == "observation" or (now == "answer" and self.found[-1].begun):
            self.over, self.guessed = True, not label.strong
        else:
            self._begin(label.kind, label)
            self._decided = True
            self._add(label.rest)

    def _begin(self, kind: str, label: Label | None = None, *, tagged: bool = False) -> None:
        if kind == "answer":
            self._called = any(one.kind == "action" or has_call_tag(one.text) for one in self.found)
        self.found.append(Section(kind, label, tagged))
        self._line, self._decided, self._spaces = "", False, []

    def _add(self, text: str) -> None:
        section = self.found[-1]
        begun, section.begun = section.begun, section.begun or bool(text.strip())
        section.pieces.append(text)
        if section.kind in ("thought", "think"):
            self._show(text, "thinking", begun)
        elif section.kind == "answer" and not self._called:
            self._show(text, "text", begun)

    def _show(self, text: str, kind: str, begun: bool) -> None:
        """Show text. Spaces and the end of bold are held until something follows them."""
        if not text.strip():
            self._spaces += [text] if begun else []
            return
        text = "".join([*self._spaces, text])
        kept = text.rstrip("* \t\n\u3000") if self.found[-1].bold else text.rstrip()
        self._spaces = [text[len(kept) :]] if begun or kept else []
        shown = kept if begun else kept.lstrip()
        if shown:
            self._out.append((shown, kind))
            if kind == "text":
                self.shown += shown


def _may_become_fence(line: str) -> bool:
    """Return True if the end of the line decides whether it opens or closes a code block."""
    start = line.lstrip()
    return start.startswith(("```", "~~~")) or not start.strip("`") or not start.strip("~")
