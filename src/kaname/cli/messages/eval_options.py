"""Options of `kaname eval` and `kaname improve`, with their help in English and Japanese."""

from __future__ import annotations

from .command import FLAG, LIST, Option, count

# fmt: off
EVAL_OPTIONS: tuple[Option, ...] = (
    ("what", {"nargs": "*", "metavar": "FILE"},
     "The evaluation: a .yaml, .jsonl or .py file (default: evals.yaml or evals.jsonl). Or: list; show EVALUATION; "
     "compare EVALUATION EVALUATION; add RUN [FILE]. An evaluation is named by its id, its label, or last.",
     "評価ファイル: .yaml、.jsonl、.py (既定: evals.yaml か evals.jsonl)。または list、show 評価、compare 評価 評価、"
     "add 実行 [ファイル]。評価は ID、ラベル、last で指定します。"),
    ("-k --repeat", {"type": count, "metavar": "N"}, "Try each case this many times (default: as the file says, or 1).",
     "各ケースを試す回数 (既定: ファイルの指定、または 1)。"),
    ("--judge", {"metavar": "MODEL"}, "The model that judges rubrics and plays simulated users.",
     "ルーブリックの判定と模擬ユーザーに使うモデル。"),
    ("--label", {"default": "", "metavar": "NAME"},
     "Name this version of the agent, to compare it later. The same version can have several labels.",
     "このバージョンのエージェントの名前。あとで比較に使えます。同じバージョンに複数のラベルを付けられます。"),
    ("--case", {**LIST, "metavar": "NAME"}, "Run only this case. Repeat for several.",
     "このケースだけ実行します。複数可。"),
    ("--fresh", FLAG, "Make all attempts anew, even if the journal has them.", "記録済みの試行も、すべてやり直します。"),
    ("--at-once", {"type": count, "default": 8, "metavar": "N"}, "Attempts at the same time (default: 8).",
     "同時に実行する試行の数 (既定: 8)。"),
    ("--batch-prices", FLAG, "Call the model through the provider's batch API, for half the price.",
     "プロバイダーのバッチ API を使います。料金は半額です。"),
    ("--at-least", {"type": float, "metavar": "RATE"},
     "Exit with 0 if at least this share of attempts passes, such as 0.9 (default: every case must pass).",
     "試行の合格率がこの値以上なら終了コード 0 にします。例: 0.9 (既定: すべてのケースの合格)。"),
    ("--margin", {"type": float, "default": 10.0, "metavar": "POINTS"},
     "compare: the largest difference that does not matter, in points (default: 10).",
     "compare: 問題にしない差の上限。単位はポイント (既定: 10)。"),
    ("--junit", {"metavar": "FILE"}, "Also write the report as JUnit XML.", "JUnit XML も書き出します。"),
    ("--html", {"metavar": "FILE"}, "Also write the report as an HTML page.", "HTML も書き出します。"),
    ("--json", FLAG, "Print JSON.", "JSON で出力します。"),
    ("-q --quiet", FLAG, "Do not show progress.", "経過を表示しません。"),
)
_SAME = ("--judge", "--at-once", "--json", "-q --quiet")
IMPROVE_OPTIONS: tuple[Option, ...] = (
    ("who", {"nargs": "?", "default": "", "metavar": "AGENT"},
     "The agent: its name in the configuration, or FILE.py:NAME (default: as the evaluation says).",
     "エージェント: 設定ファイルでの名前、または FILE.py:名前 (既定: 評価ファイルの指定)。"),
    ("--eval", {"metavar": "FILE"}, "The evaluation (default: evals.yaml or evals.jsonl).",
     "評価ファイル (既定: evals.yaml か evals.jsonl)。"),
    ("--proposer", {"metavar": "MODEL"}, "The model that proposes texts (default: that of the agent).",
     "案を作るモデル (既定: エージェントのモデル)。"),
    ("--part", {**LIST, "choices": ["instructions", "tools", "examples"]},
     "What can change. Repeat for several (default: all).", "変更してよい部分。複数可 (既定: すべて)。"),
    ("--calls", {"type": count, "metavar": "N"}, "The most attempts in all (default: ten for each case).",
     "試行の総数の上限 (既定: ケースごとに 10 回)。"),
    ("--cost", {"metavar": "USD"}, 'The most to spend in all, such as "$5" (default: no limit).',
     '費用の総額の上限。例: "$5" (既定: 上限なし)。'),
    *[option for option in EVAL_OPTIONS if option[0] in _SAME],
)
# fmt: on
