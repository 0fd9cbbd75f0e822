"""Whether a call in a reply is meant: an answer that speaks of a call must not be run as one.

Before a call that has no label stand thoughts, and after it the protocol. Prose that explains a call is an answer.
"""

from __future__ import annotations

import re

from .react_labels import label_of

_LONGEST = 1_000  # characters of words before a call that are looked at
_INTENT = re.compile(
    r"\bI\b|\bI['’](?:ll|m|ve|d)\b|\b(?i:let me|let us|let['’]s|we|we['’]ll|sure|okay|ok|certainly|of course|first|now|next)\b"
    r"|\b(?i:needs?|needed|required|necessary|unknown|(?:look|looked|looking) (?:it |this |that )?up|find out|to answer)\b"
    r"|調べ|確認|検索し|わからない|不明|(?:ます|よう|する|たい|必要|べき|だ|ました)(?:です)?[。．….：:]{0,3}\s*\Z"
)
_ABOUT_TO = re.compile(
    r"\bI(?: (?:will|shall|need|should|must|have to|am going|can now|now)\b|['’]ll\b|['’]m going\b)"
    r"|\b(?i:let me|let us|let['’]s|we need|we will|we['’]ll)\b"
    r"|(?:ます|よう|する|たい|必要|べき|だ|しました)(?:です)?[。．….：:]{0,3}\s*\Z"
)
_TOLD = re.compile(
    r"\b(?:let me|i will|i'll) (?:explain|show|describe|illustrate|tell|note)\b"
    r"|\b(?:never|don['’]t|do not|must not|should not|shouldn['’]t|avoid|would|e\.g\.|if you|usage)\b"
    r"|\b(?:examples?|samples?|snippet|template|transcript|trace|request body|payload|looks? like)\b"
    r"|\bhere(?: is|['’]s) (?:how|the|an?)\b"
    r"|\byou (?:can|could|may|might|should|must|write|call|use|type|run|asked how)\b|\byour (?:own|code|program|script)\b"
    r"|例えば|たとえば|ください|しないで|してはいけ|禁止|場合",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"[ \t*_\-・•>]{0,8}(?P<word>[^\W\d][^:：\n`\"'{}\[\]()=]{0,40}?)[*_ \t]{0,4}[:：](?!//)[*_]{0,4}(?:[ \t\u3000]|\b|\Z)"
)
_WAITING = re.compile(
    r"pause|stop|-{3,}|\*{3,}|={3,}|\*{0,2}observation\*{0,2}[.…]*|観察|✿RESULT✿"
    r"|[(\[*_]{0,3}(?:now )?(?:i will|i'll|i’ll|i am|i'm|let me|let us|let's|we will|we'll|please|waiting|wait|pausing)\b"
    r"[^\n]{0,120}\b(?:wait|waiting|observation|observations|result|results|response|output|tool|provide|pause)\b[^\n]{0,120}"
    r"|[(\[*_]{1,3}(?:wait|waiting|pause|awaiting)[^\n]{0,80}|[（(]?(?:観察|結果|応答|実行)[^\n]{0,20}(?:待ち|待つ|待機)[^\n]{0,20}",
    re.IGNORECASE,
)
_AFTERWORD = re.compile(
    r"(?:this (?:will|should|query will|search will)|once i|after (?:this|that|i)|(?:and )?then i(?: will|'ll)"
    r"|let me know|i hope)\b"
    r"[^\n]{0,200}",
    re.IGNORECASE,
)
_OF_THE_PROTOCOL = re.compile(
    r"\b(?:observations?|PAUSE)\b|観察|✿RESULT✿|\bwait(?:ing)?\b[^\n]{0,60}\b(?:tool|result|output)", re.IGNORECASE
)


def is_thought(text: str) -> bool:
    """Words before a call that say what the model is about to do, and explain nothing to the reader."""
    said = text.strip()[-_LONGEST:]
    if not said:
        return True
    return not is_told(said) and _INTENT.search(said.rsplit("\n\n", 1)[-1]) is not None


def is_told(text: str) -> bool:
    """Words that explain something to the reader."""
    said = text.strip()[-_LONGEST:]
    return "```" in said or _TOLD.search(said) is not None


def is_about_to(text: str) -> bool:
    """The same for a tool that changes something: they say that it happens now."""
    return is_thought(text) and (not text.strip() or _ABOUT_TO.search(text.strip()[-_LONGEST:]) is not None)


def is_waiting(line: str) -> bool:
    """The model says that it waits for the tool."""
    return _WAITING.fullmatch(line.strip()) is not None


def is_afterword(line: str) -> bool:
    """The model says what it called the tool for, or is polite."""
    return _AFTERWORD.fullmatch(line.strip()) is not None


def speaks_of_the_protocol(line: str) -> bool:
    return is_waiting(line) and _OF_THE_PROTOCOL.search(line) is not None


def ends_call(rest: str) -> bool:
    """Whether what follows a call is nothing, the protocol, or another call: no prose."""
    for line in rest.split("\n"):
        said = line.strip().strip("`*;.。").strip()
        if not said or is_waiting(said) or is_afterword(said) or said.lower() in ("then", "and", "next", "json"):
            continue
        label = label_of(line)
        return said[0] in "{[<" or line.lstrip().startswith(("```", "~~~")) or (label is not None and label.kind != "question")
    return True


def foreign(line: str) -> str:
    """The word that stands before a colon where a line begins, `Owner: Ken`; empty, if it is a label or there is none."""
    found = _FOREIGN.match(line[:120])
    return found["word"].strip() if found is not None and label_of(line) is None else ""
