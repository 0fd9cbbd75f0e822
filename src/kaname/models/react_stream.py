"""ReAct text while it arrives: thoughts and the answer, as soon as it is sure that they are what they seem.

What was shown cannot be taken back. So it is held while it may be a label, a tag, a token of the template or the bold around an
answer; and where only the whole text can tell, nothing more is shown until the end.
"""

from __future__ import annotations

import re

from .react_blocks import TILDES
from .react_cleaning import Cleaning
from .react_labels import Label, label_of, may_be_label
from .react_reading import BLANK, WHOLE_BOLD
from .react_sections import SET_OFF
from .react_tags import TagWatch

_OPENING = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_TAGS = ("<think>", "<thinking>", "</think>", "</thinking>")
_UNSURE = "[{`~>$"  # what a reply begins with that only the whole text can tell: JSON, a code block, a quotation
_SPEAKER = "assistant"
_FENCE = 6  # characters in which a fence has begun
_MAY_WRAP = re.compile(r"\*|\*\*[^*\n]{0,200}|\*\*[^*\n]{1,200}\*")
Shown = list[tuple[str, str]]


class ReactStream:
    """Feed it; what can be shown comes out, as `text` or as `thinking`. `shown` is what it gave of the answer."""

    def __init__(self) -> None:
        self._clean = Cleaning()
        self._kept = ""  # may be the beginning of a tag of thinking
        self._section = "start"  # or think, bare, thought, answer, hold
        self._style = ""
        self._thought_over = False  # thinking between tags has ended, and begins no more
        self._line = _Line()
        self._tags = TagWatch()
        self._said = _Trimmed()
        self._shown: list[str] = []

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    def feed(self, piece: str) -> Shown:
        out: Shown = []
        text, self._kept = self._kept + self._clean.feed(piece), ""
        while text and self._section != "hold":
            if self._section == "start" and not self._line.begun:
                text = self._begin(text)
            elif self._section == "think" or not (self._thought_over or self._section == "answer"):
                text = self._until_closed(text, out)
            else:
                self._lines(text, out)
                text = ""
        return out

    def _begin(self, text: str) -> str:
        """What a reply begins with decides whether it can be shown as it comes."""
        text = text.lstrip(BLANK)
        if not text:
            return ""
        if text[0] == "<" and not self._thought_over:
            opening = _OPENING.match(text)
            if opening is not None:
                self._section = "think"
                return text[opening.end() :]
            if any(tag.startswith(text.lower()) for tag in _TAGS):
                self._kept = text
                return ""
        if len(text) < len(_SPEAKER) and _SPEAKER.startswith(text.lower()):
            self._kept = text
            return ""
        if text[0] == "<" or text[0] in _UNSURE or text.lower().startswith(_SPEAKER):
            self._section = "hold"
        self._line.begun = True
        return text

    def _until_closed(self, text: str, out: Shown) -> str:
        """Up to the end of thinking; also where its beginning was left out. Gives back what follows."""
        closing = _CLOSING.search(text)
        end = closing.start() if closing else len(text)
        if closing is None and (place := text.rfind("<", -len(_TAGS[-1]))) >= 0:
            end = place if any(tag.startswith(text[place:].lower()) for tag in _TAGS) else end
            self._kept = text[end:]
        if self._section == "think":
            self._say(text[:end], "thinking", out)
        else:
            self._lines(text[:end], out)
            label = None if self._line.open else label_of(self._line.text)
            if closing and label is not None and label.kind in ("answer", "closing"):
                self._section = "hold"  # a label right before the end of thinking
            if self._section in ("answer", "hold"):
                return text[end:] if closing else ""
        if closing is None:
            return ""
        self._section, self._thought_over = "start", True
        self._line, self._tags, self._said = _Line(), TagWatch(), _Trimmed()
        return text[closing.end() :]

    def _lines(self, text: str, out: Shown) -> None:
        first = True
        for part in text.split("\n"):
            if not first:
                if not self._line.open:
                    self._decide(out)
                self._more("\n", out)
                self._line.end()
            first = False
            if self._section == "hold":
                return
            self._line.count(part)
            if self._line.open:
                self._more(part, out)
            else:
                self._line.text += part
                if self._line.text and not may_be_label(self._line.text):
                    self._decide(out)

    def _decide(self, out: Shown) -> None:
        """The line is a label with what follows it, or text like the line before."""
        line = self._line
        line.open, text = True, line.text
        label = None if self._section == "answer" and line.fenced else label_of(text)
        section = self._next(label) if label is not None else ""
        if label is None or not section:
            if self._section == "start" and text.strip():
                self._section = "bare"
            self._more(text, out)
            return
        self._section, self._style = section, label.style
        self._said = _Trimmed(may_be_bold=section == "answer")
        self._more(label.rest, out)

    def _next(self, label: Label) -> str:
        """The section that a label begins; empty, if it is but a word."""
        now, kind = self._section, label.kind
        if now == "answer":
            return self._after_answer(label)
        if self._line.fenced:
            return "hold"
        if kind == "thought":
            return "thought"
        if kind == "action" or (kind in ("input", "observation") and label.strong):
            return "hold"
        if kind == "observation":
            return "hold" if now == "thought" and not label.word.isascii() else ""
        if kind in ("answer", "closing"):
            return self._answer(label)
        return ""

    def _answer(self, label: Label) -> str:
        if not label.strong:
            if label.style in ("bullet", "numbered") and self._style != label.style:
                return ""
            if label.kind == "closing" and self._section != "thought":
                return ""
            if self._section == "bare":
                return "hold"
        return "hold" if self._tags.seen or label.open_bold or label.style == "quote" else "answer"

    def _after_answer(self, label: Label) -> str:
        if label.kind == "answer" and not self._said.begun:
            return "hold"
        if label.style in SET_OFF and label.style != self._style:
            return ""
        turns = label.kind in ("thought", "action", "observation", "answer") and label.strong
        return "hold" if turns or label.kind == "question" else ""

    def _more(self, text: str, out: Shown) -> None:
        if self._section in ("start", "bare", "thought"):
            self._tags.feed(text)
        if self._section == "thought":
            self._say(text, "thinking", out)
        elif self._section == "answer":
            self._say(text, "text", out)

    def _say(self, text: str, kind: str, out: Shown) -> None:
        if piece := self._said.feed(text):
            out.append((piece, kind))
            if kind == "text":
                self._shown.append(piece)


class _Line:
    """The line that is being written. `text`: its beginning, as long as it may be a label; `fenced`: it is in a code block."""

    def __init__(self) -> None:
        self.text, self.open, self.begun, self.fenced = "", False, False, False
        self._ticks = self._fences = 0
        self._start = ""
        self._ticked = self._waved = False

    def count(self, part: str) -> None:
        if len(self._start) < _FENCE:
            self._start += part[:_FENCE]
        if self._ticks or "`" in part:
            for char in part:
                self._ticks = self._ticks + 1 if char == "`" else 0
                if self._ticks == 3:
                    self._fences, self._ticks = self._fences + 1, 0

    def end(self) -> None:
        self._ticked = self._ticked != bool(self._fences % 2)
        self._waved = self._waved != (TILDES.match(self._start) is not None)
        self.fenced = self._ticked or self._waved
        self.text, self.open, self._start, self._ticks, self._fences = "", False, "", 0, 0


class _Trimmed:
    """Text without spaces before and after the whole, and without the bold around the whole."""

    def __init__(self, *, may_be_bold: bool = False) -> None:
        self.begun = False  # something of it was there
        self._head, self._bold = "", may_be_bold
        self._spaces: list[str] = []

    def feed(self, text: str) -> str:
        if not self.begun:
            text = text.lstrip()
            if not text:
                return ""
            self.begun = True
        if self._bold and text.strip():
            text = "".join([self._head, *self._spaces, text])
            if self._waits(text):
                return ""
            self._bold, self._head, self._spaces = False, "", []
        kept = text.rstrip()
        if not kept:
            self._spaces.append(text)
            return ""
        piece = "".join([*self._spaces, kept])
        self._spaces = [text[len(kept) :]]
        return piece

    def _waits(self, text: str) -> bool:
        """Whether all of it may be bold, so far."""
        kept = text.rstrip()
        if not (_MAY_WRAP.fullmatch(text) or WHOLE_BOLD.fullmatch(kept)):
            return False
        self._head, self._spaces = kept, [text[len(kept) :]]
        return True
