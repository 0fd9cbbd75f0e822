"""Words for the status and the stop of a run. The page uses the same (`serve/page/static/format.js`, `ja.js`)."""

from __future__ import annotations

from . import japanese, say

KINDS = {
    "degraded": ("completed in part", "一部のみ完了"),
    "waiting": ("waiting for an answer", "回答待ち"),
    "cancelled": ("cancelled", "キャンセル"),
    "max_steps": ("step limit", "ステップ上限"),
    "duplicate": ("repeat limit", "繰り返しの上限"),
    "tool_limit": ("tool limit", "ツール回数の上限"),
    "deadline": ("time limit", "時間切れ"),
    "budget": ("budget", "予算"),
    "blocked": ("blocked", "ブロック"),
    "undecodable": ("answer not readable", "形式の不一致"),
    "incomplete": ("answer incomplete", "回答が途中"),
    "failed": ("failed", "失敗"),
    "completed": ("completed", "完了"),
    "running": ("running", "実行中"),
    "interrupted": ("interrupted", "中断"),
    "released": ("interrupted", "中断"),
}


def stop_words(kind: str) -> str:
    """Return the words for a kind of stop, for the line below the answer."""
    return say(*KINDS.get(kind, (kind, kind)))


def status_word(status: str) -> str:
    """Return the status of a run for a list: the word of the journal, or its Japanese translation."""
    return KINDS.get(status, (status, status))[1] if japanese() else status
