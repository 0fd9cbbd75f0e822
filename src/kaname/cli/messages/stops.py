"""Words for how a run stands or has stopped."""

from __future__ import annotations

from . import japanese, say

KINDS = {
    "degraded": ("answered without a tool that failed", "失敗したツールなしで回答"),
    "waiting": ("waiting for an answer", "回答待ち"),
    "cancelled": ("cancelled", "キャンセル"),
    "max_steps": ("out of steps", "ステップ上限"),
    "duplicate": ("going round in circles", "同じ呼び出しの繰り返し"),
    "tool_limit": ("a tool too often", "ツール回数の上限"),
    "deadline": ("out of time", "時間切れ"),
    "budget": ("out of money", "費用の上限"),
    "blocked": ("blocked", "ブロック"),
    "undecodable": ("not in the wanted form", "形式の不一致"),
    "incomplete": ("no answer", "回答なし"),
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
