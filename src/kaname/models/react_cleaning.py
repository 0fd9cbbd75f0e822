"""The text of a reply without what belongs to the model's template: line ends made one kind, cut at the token that ends a turn.

It is the same for a text that arrives in pieces and for the whole of it: what comes out is the same, wherever it was cut.
"""

from __future__ import annotations

import re

_NAMES = ("</s>", "<end_of_turn>", "<start_of_turn>", "<eos>", "[/INST]", "[INST]")
_TOKEN = re.compile(r"<[|｜][^|｜<>\n]{1,30}[|｜]>|" + "|".join([re.escape(name) for name in _NAMES]))
_BEGUN = re.compile(r"<(?:[|｜](?:[^|｜<>\n]{1,30}[|｜]?)?)?\Z")
_LEADING = re.compile(
    r"[\s\ufeff\u200b]*(?:(?:<\|(?:im_start|start_header_id)\|>\s{0,4}[a-z]{1,12}\s{0,4}(?:<\|end_header_id\|>)?"
    r"|<\|[^|<>\n]{1,30}\|>|</?s>|\[/?INST\]|<start_of_turn>(?:model)?)[\s\ufeff\u200b]*)*+"
)
_CHANNEL = re.compile(r"<\|channel\|>([^<]{0,80})(?:<\|constrain\|>[^<]{0,20})?<\|message\|>([^<]*(?:<(?!\|)[^<]*)*)")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.\-]{1,80})")
_QUOTING = "`\"'「『“‘("
_LONGEST = 36


class Cleaning:
    """Feed it; what is sure comes out. A token in quotes or in a code block is what the text is about."""

    def __init__(self) -> None:
        self._held = ""
        self._last = ""  # the last character that came out
        self._ticks = 0
        self._fenced = False
        self._struck = False  # there was a <s>: </s> is HTML
        self.over = False

    def feed(self, piece: str) -> str:
        if self.over:
            return ""
        text = self._held + piece
        self._held = ""
        if text.endswith("\r"):
            text, self._held = text[:-1], "\r"
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return self._released(text)

    def finish(self) -> str:
        """What was held."""
        held, self._held = self._held.replace("\r", "\n"), ""
        return "" if self.over else held

    def _released(self, text: str) -> str:
        done, place = [], 0
        for token in _TOKEN.finditer(text):
            self._note(text[place : token.start()])
            done.append(text[place : token.start()])
            place = token.start()
            if not self._is_meant(token[0]):
                self.over, self._held = True, ""
                return "".join(done)
            self._note(token[0])
            done.append(token[0])
            place = token.end()
        rest = text[place:]
        begun = self._begun(rest)
        self._held = rest[begun:] + self._held
        self._note(rest[:begun])
        return "".join([*done, rest[:begun]])

    def _begun(self, text: str) -> int:
        """Where a token may have begun that is not whole yet; the end, if nowhere."""
        for place in range(max(0, len(text) - _LONGEST), len(text)):
            tail = text[place:]
            if tail[0] in "<[" and (_BEGUN.fullmatch(tail) or any(name.startswith(tail) for name in _NAMES)):
                return place
        return len(text)

    def _is_meant(self, token: str) -> bool:
        return self._fenced or (self._last != "" and self._last in _QUOTING) or (token == "</s>" and self._struck)

    def _note(self, text: str) -> None:
        if not text:
            return
        self._last = text[-1]
        self._struck = self._struck or "<s>" in text
        if self._ticks or "`" in text:
            for char in text:
                self._ticks = self._ticks + 1 if char == "`" else 0
                if self._ticks == 3:
                    self._fenced, self._ticks = not self._fenced, 0


def _from_channels(text: str) -> str:
    """Of a reply in channels: what is analysed between tags of thinking, then the rest."""
    thoughts: list[str] = []
    said: list[str] = []
    for head, body in _CHANNEL.findall(text):
        tool = _RECIPIENT.search(head)
        if tool is not None:
            said.append(f"Action: {tool[1]}\nAction Input: {body}")
        else:
            (said if head.startswith("final") else thoughts).append(body.strip())
    return "".join(["<think>", *thoughts, "</think>\n"] if thoughts else []) + "\n".join(said[:1])


def cleaned(text: str) -> str:
    """The whole of a reply, without tokens before it and without what follows its end."""
    text = _from_channels(text) if text.lstrip().startswith("<|channel|>") else text
    leading = _LEADING.match(text)
    cleaning = Cleaning()
    return cleaning.feed(text[leading.end() if leading else 0 :]) + cleaning.finish()
