"""Labels of the ReAct protocol: `Thought:`, `Action:`, `Action Input:`, `Observation:`, `Final Answer:`, and in Japanese.

A label begins a line. It may be numbered, bold, a heading or an item of a list. Every pattern is bounded, so that a long line
costs no more than a short one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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


def label_of(line: str, section: str) -> Label | None:
    """Return the label that begins this line of a section (`start`: before anything was written).

    An indented line or a line of a patch (`-Action:`) has none. In an answer only a bare word of the protocol is a label.
    """
    start = line[:_WIDTH]
    if start.startswith(("    ", "\t")) or re.match(r"[-+][^\W\d_]", start):
        return None
    before = _BEFORE.match(start)
    found = _BOXED.match(start) or _COLON.match(start, before.end() if before else 0)
    if found is None and len(line) <= _WIDTH:
        found = _HEADING.fullmatch(line) or _ALONE.fullmatch(line)
    if found is None:
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
