"""The command `kaname learn`, with its help in English and Japanese."""

from __future__ import annotations

from .command import FLAG, LIST, Command, count
from .options import A_TOOL, AGENT, INSTRUCTIONS

# fmt: off
LEARNING = (
    Command("learn", "Show what failed and what went well, and manage lessons: try, approve, roll back.",
            "失敗とうまくいった方法を表示し、教訓の試行・承認・取り消しを行います。", (
        ("action", {"nargs": "?", "default": "", "metavar": "ACTION",
                    "choices": ["", "failures", "patterns", "lessons", "try", "approve", "rollback"]},
         "failures: failed runs by cause. patterns: tools that succeed. lessons: all lessons. try, approve, rollback: lessons "
         "by their ids (default: an overview).",
         "failures: 失敗の原因。patterns: うまくいくツールの使い方。lessons: 教訓の一覧。try、approve、rollback: 教訓の ID "
         "を指定します (既定: 概要)。"),
        ("what", {"nargs": "*", "metavar": "LESSON"}, "The ids of lessons.", "教訓の ID。"),
        ("--eval", {"metavar": "FILE"}, "try: the evaluation (default: evals.yaml or evals.jsonl).",
         "try: 評価ファイル (既定: evals.yaml か evals.jsonl)。"),
        ("--helps", {**LIST, "metavar": "CASE"}, "try: a case that it should help (default: those that it is about).",
         "try: 改善するはずのケース (既定: 教訓に関係するケース)。複数可。"),
        ("-k --repeat", {"type": count, "default": 3, "metavar": "N"}, "try: attempts per case (default: 3).",
         "try: ケースごとの試行回数 (既定: 3)。"),
        ("--judge", {"metavar": "MODEL"}, "try: the model that judges rubrics.", "try: ルーブリックを判定するモデル。"),
        ("--share", FLAG, "approve: for all users, and not only for the one whose runs it comes from.",
         "approve: 元になった実行のユーザーだけでなく、すべてのユーザーに適用します。"),
        ("--untested", FLAG, "approve: even if no trial has shown that it helps.",
         "approve: 効果が確かめられていなくても承認します。"),
        ("--ask", {"metavar": "MODEL"}, "Also let this model suggest lessons.", "このモデルにも教訓を提案させます。"),
        ("-n --number", {"type": count, "default": 300}, "Read this many recent runs (default: 300).",
         "読み込む最近の実行の件数 (既定: 300)。"),
        ("--json", FLAG, "Print JSON.", "JSON で出力します。"),
        *AGENT, A_TOOL, INSTRUCTIONS,
    )),
)
# fmt: on
