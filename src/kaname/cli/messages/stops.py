"""Words for how a run stands or has stopped: the same as on the page (`serve/page/static/told.js`, `ja.js`)."""

from __future__ import annotations

from . import japanese, say

KINDS = {
    "degraded": ("completed in part", "一部のみ完了"),
    "waiting": ("waiting for an answer", "回答待ち"),
    "cancelled": ("cancelled", "キャンセル"),
    "max_steps": ("step limit", "ステップ上限"),
    "duplicate": ("repeated itself", "同じ呼び出しの繰り返し"),
    "tool_limit": ("tool limit", "ツール回数の上限"),
    "deadline": ("time limit", "時間切れ"),
    "budget": ("cost limit", "費用の上限"),
    "blocked": ("blocked", "ブロック"),
    "undecodable": ("answer not readable", "形式の不一致"),
    "incomplete": ("answer incomplete", "回答が途中"),
    "failed": ("failed", "失敗"),
    "completed": ("completed", "完了"),
    "running": ("running", "実行中"),
    "interrupted": ("interrupted", "中断"),
    "released": ("interrupted", "中断"),
}


def told_stop(kind: str) -> str:
    """Under an answer: how the run has ended."""
    return say(*KINDS.get(kind, (kind, kind)))


def told_status(status: str) -> str:
    """In a list: the word that the journal knows; in Japanese, its translation."""
    return KINDS.get(status, (status, status))[1] if japanese() else status
