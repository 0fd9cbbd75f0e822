"""The labels of the ReAct protocol as models write them: numbered, bold, as headings, in Japanese, with odd spaces.

Only the beginning of a line can be a label, and every part of the pattern is bounded: a long line costs no more.
"""

from __future__ import annotations

import re

from ..core.record import record, replace

_WIDTH = 90  # characters in which a label must have ended
_WORDS = {
    # Said of nothing else: they count wherever the protocol is in use
    ("thought", True): "thought|思考|考え",
    ("action", True): "action|行動|アクション",
    ("input", True): "action input|tool input|action args|action arguments|action parameters|行動の入力|行動入力"
    "|アクションの入力|アクション入力|ツール入力|ツールの入力",
    ("observation", True): "observation|観察|観測",
    ("answer", True): "final answer|最終回答|最終的な回答|最終的な答え|最終答え",
    # Words of every day: what stands before them decides
    ("thought", False): "reasoning|reason",
    ("action", False): "tool|act|function|ツール|使用ツール",
    ("input", False): "input|arguments|args|parameters|params|入力|引数",
    ("observation", False): "観察結果|検索結果|実行結果|結果|result|output|tool output|tool result|user|human",
    ("answer", False): "answer|回答|答え|解答",
    ("closing", False): "response|final|ai|conclusion|final answer is|the final answer is|結論",
    ("question", False): "question|new input|質問",
}
_KINDS = {word.replace(" ", ""): key for key, words in _WORDS.items() for word in words.split("|")}
_GAP = r"[ \t\xa0\u3000_\-]{0,2}"
_SPACE = r"[ \t\xa0\u3000]{0,8}+"
_LABEL = "|".join(
    [
        re.escape(word).replace(r"\ ", _GAP).replace("行動入力", f"行動{_GAP}入力")
        for word in sorted("|".join(_WORDS.values()).split("|"), key=len, reverse=True)
    ]
)
_PICTURES = "\u2190-\u2bff\ufe0f\u200b-\u200d\u2060\ufeff\U0001f000-\U0001faff"
_BEFORE = re.compile(
    rf"(?P<marks>[ \t\xa0\u3000>*_#•・\-{_PICTURES}]{{0,24}}+)(?:\[[ xX]\][ \t]{{0,4}})?"
    rf"(?:(?P<number>\d{{1,2}})[.)][ \t]{{1,4}})?[*_]{{0,4}}"
    r"(?:step[ \t]{0,3}\d{1,3}[ \t]{0,3}[-:.)–—]{0,3}[ \t]{0,3})?",
    re.IGNORECASE,
)
_COLON = re.compile(
    rf"(?P<label>{_LABEL}){_SPACE}\d{{0,3}}{_SPACE}(?P<close>[*_✿]{{0,4}}){_SPACE}(?P<mark>[:：])[*_]{{0,4}}", re.IGNORECASE
)
_DASH = re.compile(rf"(?P<label>{_LABEL})(?P<close>[ \t]\d{{0,3}}[ \t]?)(?P<mark>[-–—=])[ \t]", re.IGNORECASE)
_COUNTED = re.compile(r"(?P<label>action|act)(?P<close>[ \t])\d{1,3}(?P<mark>[ \t])(?=\w{1,40}\[)", re.IGNORECASE)
_COUNTING = re.compile(r"(?:action|act)[ \t]\d{1,3}[ \t]\w{0,40}", re.IGNORECASE)
_BOXED = re.compile(rf"[ \t\u3000]{{0,8}}【(?P<label>{_LABEL})】[ \t]{{0,4}}[:：]?", re.IGNORECASE)
_HEADED = re.compile(
    rf"[ \t]{{0,4}}(?P<marks>#{{1,6}}[ \t]{{0,4}}|[*_]{{2,4}})(?P<label>{_LABEL})"
    r"[ \t]{0,4}\d{0,3}[ \t]{0,4}[*_#]{0,4}[ \t]{0,8}",
    re.IGNORECASE,
)
_ALONE = re.compile(r"[ \t]{0,8}(?:\*\*)?(?:observation|観察)(?:\*\*)?[ \t.…]{0,8}", re.IGNORECASE)
_ALONE_ANSWER = re.compile(r"[ \t]{0,8}(?:Final Answer|FINAL ANSWER|最終回答)[ \t]{0,8}")
_ENDING = re.compile(rf"{_SPACE}\d{{0,3}}{_SPACE}[*_✿】#]{{0,4}}{_SPACE}[-–—=:：]?[*_]{{0,4}}{_SPACE}")
_STEP = re.compile(r"(?:s|st|ste|step[ \t]{0,3}\d{0,3}[ \t]{0,3}[-:.)–—]{0,3}[ \t]{0,3})", re.IGNORECASE)


@record
class Label:
    """`strong`: the word belongs to the protocol. `style`: how it is set off; `rest`: what follows it on its line."""

    kind: str
    strong: bool
    style: str
    rest: str
    word: str = ""
    capital: bool = True  # or has no case
    open_bold: bool = False  # the line began bold, and the label did not end it
    indented: bool = False  # as code is


def label_of(line: str) -> Label | None:
    """The label that the line begins with."""
    label = _label(line)
    indented = line.startswith(("    ", "\t"))
    return replace(label, indented=True) if label is not None and indented else label


def _label(line: str) -> Label | None:
    start = line[:_WIDTH]
    if re.match(r"-[^\W\d_]", start):
        return None  # of a patch: `-Action: search`
    if (found := _BOXED.match(start)) is not None:
        return _made(found, "boxed", line)
    before = _BEFORE.match(start)
    place = before.end() if before else 0
    found = _COLON.match(start, place)
    if found is not None:
        marks = start[: found.start("label")]
        made = _made(found, _style(marks, bool(before and before["number"])), line)
        bold = "**" in marks and not found["close"] and "*" not in found[0][-2:]
        return made if not bold else _with_bold(made)
    if len(line) <= _WIDTH and (found := _HEADED.fullmatch(line)) is not None:
        return _made(found, "heading" if "#" in found["marks"] else "bold", line)
    if (found := _DASH.match(start, place)) is not None or (found := _COUNTED.match(start, place)) is not None:
        made = _made(found, "dash", line)
        return made if made.strong and made.kind in ("action", "input", "answer") else None
    if len(line) <= _WIDTH and _ALONE_ANSWER.fullmatch(line):
        return Label("answer", strong=True, style="plain", rest="")
    if len(line) <= _WIDTH and _ALONE.fullmatch(line):
        return Label("observation", strong=False, style="plain", rest="")
    return None


def _made(found: re.Match[str], style: str, line: str) -> Label:
    word = found["label"]
    kind, strong = _KINDS[re.sub(r"[ \t\xa0\u3000_\-]+", "", word).lower()]
    rest = line[found.end() :].lstrip()
    twice = re.match(rf"{re.escape(word)}[ \t]{{0,4}}[:：][ \t]{{0,4}}", rest) if kind in ("action", "input") else None
    rest = rest[twice.end() :] if twice is not None else rest
    return Label(kind, strong, style, rest, word, capital=not word[:1].islower())


def _with_bold(label: Label) -> Label:
    rest = label.rest.rstrip()
    ended = rest.endswith("**") and rest.count("**") % 2 == 1
    return replace(label, rest=rest.removesuffix("**") if ended else label.rest, open_bold=True)


def _style(marks: str, numbered: bool) -> str:
    bare = marks.strip(" \t\xa0\u3000")
    if bare.startswith(">"):
        return "quote"
    if bare.startswith("#"):
        return "heading"
    if numbered:
        return "numbered"
    return "bullet" if re.match(r"[-•・]|\*[ \t]", bare) else "plain"


def may_be_label(line: str) -> bool:
    """Whether more text could make a label of the beginning of a line, or of what follows one."""
    if len(line) >= _WIDTH:
        return False
    label = label_of(line)
    if label is not None:
        return not label.rest.strip(" *_")
    if line.lstrip(" \t\u3000").startswith("【"):
        return "】" not in line
    before = _BEFORE.match(line)
    rest = line[before.end() :] if before else line
    if not rest.strip() or rest.strip(" \t") in ("[", "[ ", "[ ]", "[x", "[x]") or _STEP.fullmatch(rest):
        return True
    if re.fullmatch(r"\d{1,2}[.)]?[ \t]{0,4}", rest) or _COUNTING.fullmatch(rest):
        return True
    folded = re.sub(r"[ \t\xa0\u3000_\-]+", "", rest).lower()
    if any(word.startswith(folded) for word in _KINDS):
        return True
    return any(folded.startswith(word) and _ENDING.fullmatch(_after(rest, len(word))) for word in _KINDS)


def _after(text: str, letters: int) -> str:
    """What follows so many letters, spaces between them not counted."""
    for place, char in enumerate(text):
        if letters == 0:
            return text[place:]
        letters -= char not in " \t\xa0\u3000_-"
    return ""
