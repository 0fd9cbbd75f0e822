"""Which tool a model means by what it wrote, and whether it says that it means none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_LONGEST = 100  # characters that a name can have, words around it included
_AROUND = re.compile(
    r"(?:\d{1,2}[.)]\s*)?@?(?:functions?\.|tools?\.)?(?:(?:i will|i'll|let me|let's)\s+)?"
    r"(?:(?:use|using|call|calling|run|running|invoke)\s+)?(?:the\s+)?(?P<name>\S.*?)"
    r"(?:\s+(?:tool|function|api)|ツール|機能)?(?:を(?:使う|使います|使用する|使用します|使用|実行する|実行|呼び出す|呼ぶ))?",
    re.IGNORECASE,
)
_NONE = re.compile(
    r"\(?(?:none|n/?a|null|nothing|no|not|no_action|no-action)\b.*|-|—|.*(?:不要|必要なし|必要ない|必要ありません|"
    r"必要はない|必要はありません|使わない|使いません|使用しない|該当なし)(?:です|だ)?[。.]?\)?|なし|無し|ない|特になし",
    re.IGNORECASE,
)
ENDS = {"finish", "final answer", "final_answer", "finalanswer", "answer", "最終回答", "回答", "終了"}


def plain_name(text: str) -> str:
    name = text[:_LONGEST].strip().strip("`*\"'「」『』 ").strip()
    if name[:1] in "[<(" and name[-1:] in "]>)" and name:
        name = name[1:-1].strip()
    return name.rstrip(".。").strip("`*\"' ")


def tool_named(name: str, tools: Mapping[str, Any]) -> str:
    """The tool that is meant, whatever its case and the words around it; the name as it is written, if there is none."""
    if name in tools:
        return name
    around = _AROUND.fullmatch(name[:_LONGEST].strip())
    for attempt in (name, around["name"] if around else name):
        inner = attempt.strip("`*\"'「」『』 ")
        if inner in tools:
            return inner
        same = [known for known in tools if _folded(known) == _folded(inner)]
        if len(same) == 1:
            return same[0]
    return name


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.casefold())


def says_none(name: str) -> bool:
    """Whether these words say that no tool is to be used."""
    return _NONE.fullmatch(name[:_LONGEST].strip()) is not None
