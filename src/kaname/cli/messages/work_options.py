"""Commands for queued work, `worker`, `workers`, `queue` and `schedules`, with their help in English and Japanese."""

from __future__ import annotations

from .command import FLAG, Command, Option, actions, count
from .options import A_GRACE, A_TOOL, AN_AGENT, CONFIG, JOURNAL, MODEL, agent_option

# fmt: off
AS_JSON: Option = ("--json", FLAG, "Print JSON.", "JSON で出力します。")
WORK = (
    Command("worker", "Execute queued and interrupted runs. Start as many workers as you like, on any machine.",
            "待ち行列の実行と中断した実行を処理します。ワーカーは複数のマシンでいくつでも開始できます。", (
        ("--concurrency", {"type": count, "default": 8}, "Runs at the same time (default: 8).",
         "同時に処理する実行の数 (既定: 8)。"),
        ("--queues", {"default": "", "metavar": "NAMES"}, "Serve these queues, with commas between them (default: default).",
         "処理する待ち行列。コンマ区切り (既定: default)。"),
        ("--per-key", {"type": count}, "Runs with the same key at the same time, over all workers (default: no limit).",
         "同じキーの実行を同時に処理する数。すべてのワーカーの合計 (既定: 上限なし)。"),
        A_GRACE,
        ("--embedded", FLAG, "Start a PostgreSQL of its own in .kaname/postgres, and use it as the journal.",
         ".kaname/postgres に専用の PostgreSQL を開始し、ジャーナルとして使います。"),
        ("--log-level", {"default": "info", "choices": ["debug", "info", "warning", "error"]},
         "The level of the log (default: info).", "ログレベル (既定: info)。"),
        A_TOOL,
        MODEL,
        CONFIG,
        agent_option("all agents and workflows of the configuration", "設定ファイルのすべて"),
        JOURNAL,
    )),
    Command("workers", "List the processes that execute runs of a journal.",
            "ジャーナルの実行を処理しているプロセスの一覧。", (AS_JSON, CONFIG, AN_AGENT, JOURNAL)),
    Command("queue", "Show queued runs, and retry runs that were set aside.",
            "待ち行列の実行を表示し、除外された実行を再試行します。", (
        actions("list retry"),
        ("name", {"nargs": "?", "metavar": "RUN"}, "retry: the id of the run.", "retry: 実行の ID。"),
        AS_JSON, CONFIG, AN_AGENT, JOURNAL,
    )),
    Command("schedules", "Show schedules with their next and last runs; pause, resume or run one.",
            "スケジュールの次回と最近の実行を表示します。一時停止・再開・即時実行もできます。", (
        actions("list pause resume run"),
        ("name", {"nargs": "?", "metavar": "NAME"}, "pause, resume, run: the name of the schedule.",
         "pause、resume、run: スケジュールの名前。"),
        AS_JSON, A_TOOL, MODEL, CONFIG,
        agent_option("all agents and workflows of the configuration", "設定ファイルのすべて"),
        JOURNAL,
    )),
)
# fmt: on
