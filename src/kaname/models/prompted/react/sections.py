"""Split ReAct text into its sections, in one pass, as it arrives, so that streaming and the final reading agree.

Text under `Thought:` and `Final Answer:` is shown as it comes. Text without a label is held: only the whole of it shows
whether it is an answer. A label inside a code block is text. Text after an observation, or after a label that follows the
answer, is left out.

A label (`Thought:`, `Action:`, `Action Input:`, `Observation:`, `Final Answer:`, or its Japanese word) begins a line. It may be
numbered, bold, a heading or an item of a list. Every pattern is bounded, so that a long line costs no more than a short one.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import NamedTuple

from .calls import has_call_tag

_WIDTH = 60  # characters in which a label must have ended
_WORDS = {
    "thought": "thought|思考|考え",
    "action": "action|行動|アクション",
    "input": "action input|tool input|action args|action arguments|行動 入力|行動の入力|アクション 入力|アクションの入力"
    "|ツール 入力|ツールの入力",
    "observation": "observation|観察|観測",
    "answer": "final answer|最終回答|最終答え|最終的な回答|最終的な答え",
}
# Everyday words: labels only in these sections.
_WEAK = {
    "input": ("action", "input|arguments|args|parameters|入力|引数"),
    "answer": ("start thought", "answer|final|response|ai|回答|答え|解答|結論"),
    "action": ("thought", "tool|act|ツール"),
    "observation": ("action input", "result|output|結果|検索結果|実行結果|観察結果"),
}
_KINDS = {word.replace(" ", ""): (kind, "") for kind, words in _WORDS.items() for word in words.split("|")}
_KINDS |= {word: (kind, after) for kind, (after, words) in _WEAK.items() for word in words.split("|")}
_GAP = r"[ \t_\-]?"
_LABEL = "|".join(
    sorted([re.escape(word).replace(r"\ ", _GAP) for word in [*"|".join(_WORDS.values()).split("|"), *_KINDS]], key=len)[::-1]
)
_MARKS = r"[ \t\u3000*_#•・\-\u2190-\u2bff\ufe0f\U0001f300-\U0001faff]{0,12}"
_BEFORE = re.compile(rf"{_MARKS}(?:\d{{1,2}}[.)][ \t])?[*_]{{0,3}}(?:step[ \t]?\d{{1,3}}[ \t]?[:.\-–—]?[ \t]?)?", re.IGNORECASE)
_AFTER = r"[ \t\u3000]?\d{0,3}[*_]{0,3}[ \t\u3000]?[:：][*_]{0,3}[ \t\u3000]*"
_COLON = re.compile(rf"(?P<word>{_LABEL}){_AFTER}", re.IGNORECASE)
_BOXED = re.compile(rf"[ \t\u3000]{{0,4}}【(?P<word>{_LABEL})】[ \t]{{0,4}}[:：]?", re.IGNORECASE)
_HEADING = re.compile(
    rf"[ \t]{{0,4}}(?:#{{1,6}}[ \t]?|\*\*)(?P<word>{_LABEL})[ \t]?\d{{0,3}}[*#:：]{{0,3}}[ \t]{{0,4}}", re.IGNORECASE
)
_ALONE = re.compile(r"[ \t]{0,4}(?:\*\*)?(?P<word>Observation|観察|Final Answer|最終回答)(?:\*\*)?[ \t]{0,4}")
_ENDING = re.compile(r"[ \t\u3000]?\d{0,3}[*_】]{0,3}[ \t\u3000]?[:：]?[*_]{0,3}[ \t\u3000]*")


class Label(NamedTuple):
    """A label.

    `rest`: the text after it on the line. `strong`: its word belongs to the protocol. `bold`: the whole line is bold.
    """

    kind: str
    rest: str
    strong: bool = True
    bold: bool = False


def _find_word(line: str, start: str) -> re.Match[str] | None:
    before = _BEFORE.match(start)
    found = _BOXED.match(start) or _COLON.match(start, before.end() if before else 0)
    if found is None and len(line) <= _WIDTH:
        found = _HEADING.fullmatch(line) or _ALONE.fullmatch(line)
    return found


def label_of(line: str, section: str) -> Label | None:
    """Return the label that begins this line of a section (`start`: before anything was written).

    An indented line or a line of a patch (`-Action:`) has none. In an answer only a bare word of the protocol is a label.
    """
    start = line[:_WIDTH]
    if start.startswith(("    ", "\t")) or re.match(r"[-+][^\W\d_]", start):
        return None
    if (found := _find_word(line, start)) is None:
        return None
    kind, after = _KINDS[re.sub(r"[ \t_\-]", "", found["word"]).lower()]
    if after and (section not in after.split() or (kind != "input" and start[: found.start("word")].strip("* \u3000【"))):
        return None  # an everyday word, here or in a list
    if section == "answer" and (found.start("word") > 0 or kind == "input"):
        return None
    bold = "**" in start[: found.start("word")] and "*" not in start[found.end("word") : found.end()]
    return Label(kind, line[found.end() :], not after, bold)


def may_become_label(line: str) -> bool:
    """Return True if more text could turn this beginning of a line into a label, or the text after a label into part of it."""
    if len(line) >= _WIDTH or line.startswith(("    ", "\t")):
        return False
    if _HEADING.fullmatch(line) or _ALONE.fullmatch(line):
        return True  # a label, if nothing follows
    rest = line.lstrip(" \t\u3000").removeprefix("【")
    rest = rest[before.end() :] if (before := _BEFORE.match(rest)) else rest
    if not rest.strip("*_ ") or re.fullmatch(r"\d{1,2}[.)]?|s|st|ste|step[ \t]?\d{0,3}", rest, re.IGNORECASE):
        return True
    folded = re.sub(r"[ \t_\-]", "", rest).lower()
    if any(word.startswith(folded) for word in _KINDS):
        return True
    word = re.match(_LABEL, rest, re.IGNORECASE)
    return word is not None and _ENDING.fullmatch(rest, word.end()) is not None


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
        if (fence := _FENCE.match(line)) is not None and self._ends_wrapping(fence[1]):
            self._wrapped = False
            self._begin("bare")
            return
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

    def _ends_wrapping(self, language: str) -> bool:
        """Open or close a code block. Return True if it is the one in which the whole reply stands, and it ends."""
        if len(self.found) == 1 and not self.found[0].begun and language in ("", "text", "markdown"):
            self._wrapped = True  # perhaps the whole reply stands in a code block
        elif self._wrapped and not self._fenced and not language and len(self.found) > 1:
            return True
        else:
            self._fenced = not self._fenced
        return False

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
