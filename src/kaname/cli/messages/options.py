"""Commands of the terminal and their options, with their help in English and Japanese."""

from __future__ import annotations

from .command import FLAG, LIST, Command, Option, actions, count, seconds
from .eval_options import EVAL_OPTIONS, IMPROVE_OPTIONS

# fmt: off
TOOL, ANSWER = {**LIST, "metavar": "MODULE:NAME"}, {**LIST, "metavar": "[KEY=]ANSWER"}
BY: Option = (
    "--by", {"default": "", "metavar": "NAME"},
    "resume: the person who answers, if another person than the user must answer.",
    "resume: 回答する人の名前。本人以外の回答が必要な確認で指定します。",
)
A_TOOL: Option = (
    "-t --tool", TOOL,
    "Add a tool: calculator, database:FILE, search, senses, MODULE:NAME, or FILE.py for all its tools. Repeat for several.",
    "ツールを追加します: calculator、database:FILE、search、senses、MODULE:NAME、または FILE.py (すべてのツール)。複数可。",
)
A_COST: Option = (
    "--cost", {"metavar": "USD"}, 'Stop when the run has cost this much, such as "$0.50" (default: no limit).',
    '費用がこの額に達すると停止します。例: "$0.50" (既定: 上限なし)。',
)
A_DEADLINE: Option = (
    "--deadline", {"metavar": "TIME"}, 'Stop after this working time, such as "5m" (default: 30m).',
    '作業時間がこの長さに達すると停止します。例: "5m" (既定: 30m)。',
)
A_GRACE: Option = (
    "--grace", {"type": seconds, "metavar": "SECONDS"},
    "How long tool calls under way have to end after SIGTERM or Ctrl-C (default: 10). 0 cuts them at once.",
    "SIGTERM か Ctrl-C の後に、動作中のツールの呼び出しを待つ秒数 (既定: 10)。0 はすぐに打ち切ります。",
)
INSTRUCTIONS: Option = ("-i --instructions", {"default": ""}, "The system prompt.", "システムプロンプト。")
CHUNKS: Option = ("--json", FLAG, "Print one JSON chunk per line.", "1 行に 1 件の JSON を出力します。")
INDEX: Option = ("--index", {"metavar": "FILE"}, "The index file (default: $KANAME_DOCS, or .kaname/docs.db).",
                 "索引ファイル (既定: $KANAME_DOCS、または .kaname/docs.db)。")
EMBEDDINGS: Option = ("--embeddings", {"metavar": "NAME"},
                      "The embedding model: local, or openai/MODEL (default: the model of the index, or local).",
                      "埋め込みモデル: local または openai/MODEL (既定: 索引のモデル、または local)。")
MODEL: Option = (
    "-m --model", {},
    "PROVIDER/MODEL, or local (default: the model of the configuration, $KANAME_MODEL, the provider whose key is set, "
    "or local). With commas between several: when one fails, the next is asked.",
    "PROVIDER/MODEL または local (既定: 設定ファイルのモデル、$KANAME_MODEL、キーが設定されたプロバイダー、local の順)。"
    "コンマで区切って複数指定すると、失敗したときに次のモデルを使います。",
)
CONFIG: Option = ("-c --config", {"action": "append"}, "A configuration file (default: kaname.yaml). Repeat to merge several.",
                  "設定ファイル (既定: kaname.yaml)。複数指定すると順に重ねます。")
JOURNAL: Option = (
    "--journal", {"metavar": "FILE"},
    "The file or database (postgresql://…) that runs are recorded in (default: that of the configuration, $KANAME_JOURNAL, "
    "or .kaname/journal.db).",
    "実行を記録するファイルまたは postgresql://… (既定: 設定ファイルのジャーナル、$KANAME_JOURNAL、.kaname/journal.db の順)。",
)
def agent_option(default: str, by_default: str) -> Option:
    """Return the option `-a`, with its default in English and Japanese."""
    english = f"An agent or workflow: its name in the configuration, or FILE.py:NAME (default: {default})."
    japanese = f"エージェントかワークフロー: 設定ファイルの名前、または FILE.py:名前 (既定: {by_default})。"
    return "-a --agent", {}, english, japanese


AN_AGENT = agent_option("the first agent of the configuration", "設定ファイルの最初のエージェント")
AGENT: tuple[Option, ...] = (MODEL, CONFIG, AN_AGENT, JOURNAL)
OF_AGENT: tuple[Option, ...] = (
    CONFIG,
    ("-a --agent", {}, "Only the records of this agent: its name, or FILE.py:NAME (default: all agents).",
     "このエージェントの記録だけ: 名前、または FILE.py:名前 (既定: すべてのエージェント)。"),
    JOURNAL,
)
DOCS = (
    Command("add", "Add files and folders to the index. Unchanged files are skipped.",
            "ファイルやフォルダーを索引に追加します。変更のないものは飛ばします。", (
        ("what", {"nargs": "+", "metavar": "PATH"}, "Files and folders.", "ファイルやフォルダー。"),
        INDEX,
        EMBEDDINGS,
        ("--forget", FLAG, "Also remove files from the index if their folder is missing or empty now.",
         "フォルダーがなくなったか空になったファイルも、索引から削除します。"),
    )),
    Command("list", "List the indexed files.", "索引にあるファイルを一覧表示します。", (
        INDEX,
    )),
    Command("search", "Search the documents.", "文書を検索します。", (
        ("what", {"nargs": "+", "metavar": "QUESTION"}, "The question.", "質問。"),
        INDEX,
        EMBEDDINGS,
        ("-n --number", {"type": count, "default": 5}, "Show this many passages (default: 5).", "表示する件数 (既定: 5)。"),
    )),
    Command("show", "Show the passage of a citation.", "引用された箇所を表示します。", (
        ("what", {"nargs": "+", "metavar": "CITATION"}, "The citation, such as rules.md#3.", "引用 (rules.md#3 など)。"),
        INDEX,
    )),
    Command("remove", "Remove files or folders from the index.", "索引からファイルやフォルダーを削除します。", (
        ("what", {"nargs": "+", "metavar": "FILE"}, "Files, folders, or the file name in a citation, such as rules.md.",
         "ファイル、フォルダー、または引用のファイル名 (rules.md など)。"),
        INDEX,
    )),
)
COMMANDS = (
    Command("run", "Run a task and show its progress.", "タスクを実行し、経過を表示します。", (
        ("task", {"nargs": "*"}, "The task. Piped input is appended to it. If you pass no task, the piped input is the task.",
         "タスク。パイプの入力は末尾に加わります。省略すると、パイプの入力がタスクになります。"),
        ("-f --file", {**LIST, "metavar": "FILE"},
         "Attach a picture, a sound or another file, or a web address. Repeat for several.",
         "画像・音声などのファイル、または Web アドレスを添付します。複数指定できます。"),
        *AGENT,
        A_TOOL,
        INSTRUCTIONS,
        ("-s --session", {}, "Continue this session, or start it if it does not exist.",
         "このセッションを続けます。なければ始めます。"),
        ("--max-steps", {"type": int, "metavar": "N"}, "Stop after this many model calls (default: 10).",
         "モデルをこの回数呼び出すと停止します (既定: 10)。"),
        A_COST,
        A_DEADLINE,
        CHUNKS,
        ("-q --quiet", FLAG, "Show only the answer.", "回答だけを表示します。"),
        ("--batch", {"metavar": "FILE"},
         "Run each line of a JSONL file: a JSON string, or an object with input and, if you like, id, session and user. "
         "The same command again continues where it stopped.",
         "JSONL ファイルの各行を実行します。行は JSON の文字列か、input と任意の id・session・user を持つオブジェクトです。"
         "同じコマンドをもう一度実行すると、続きから再開します。"),
        ("--out", {"metavar": "FILE"}, "With --batch: the file for the results, one line each (default: FILE.results.jsonl).",
         "--batch の結果を 1 行ずつ書き込むファイル (既定: FILE.results.jsonl)。"),
        ("--at-once", {"type": count, "default": 8, "metavar": "N"}, "With --batch: runs at the same time (default: 8).",
         "--batch で同時に実行する数 (既定: 8)。"),
        ("--batch-prices", FLAG,
         "With --batch: call the model through the provider's batch API, for half the price (OpenAI, Anthropic). "
         "Each step can take up to a day.",
         "--batch のモデル呼び出しにプロバイダーのバッチ API を使います (OpenAI、Anthropic)。料金は半額ですが、"
         "1 ステップに最長 1 日かかります。"),
    )),
    Command("chat", "Start or continue a conversation.", "会話を始めます。または続けます。", (
        *AGENT,
        A_TOOL,
        INSTRUCTIONS,
        ("-s --session", {}, "Continue this session, or start it if it does not exist (default: a new session).",
         "このセッションを続けます。なければ始めます (既定: 新しいセッション)。"),
    )),
    Command("serve", "Serve the agents over HTTP, or manage the users of the server.",
            "エージェントを HTTP で公開します。またはユーザーを管理します。", (
        ("action", {"nargs": "?", "choices": ["users"]}, "Manage users instead of serving.",
         "公開せずにユーザーを管理します。"),
        ("what", {"nargs": "*", "metavar": "ACTION"}, "users: list (default), add NAME, or remove NAME.",
         "users: list (既定)、add 名前、remove 名前。"),
        ("--host", {}, "The address to listen on (default: 127.0.0.1).", "待ち受けるアドレス (既定: 127.0.0.1)。"),
        ("--port", {"type": int}, "The port (default: 8000). 0 chooses a free one.", "ポート (既定: 8000)。0 は空きポート。"),
        ("--workers", {"type": count}, "The number of processes (default: 1).", "プロセス数 (既定: 1)。"),
        ("--users", {"metavar": "FILE"}, "The users file (default: users.json next to the journal).",
         "ユーザーのファイル (既定: ジャーナルの隣の users.json)。"),
        ("--role", LIST,
         "users add: give this role: read, talk, approve, approve:AGENT or admin (default: read and talk). Repeat.",
         "users add: 役割 (read、talk、approve、approve:AGENT、admin。既定: read と talk)。複数指定できます。"),
        ("--allow-host", {**LIST, "metavar": "NAME"},
         "Accept requests with this Host header. Repeat for several.",
         "この Host ヘッダーの要求を受け付けます。複数指定できます。"),
        ("--allow-origin", {**LIST, "metavar": "URL"},
         "Accept requests from pages of this origin. Repeat for several.",
         "このオリジンのページからの要求を受け付けます。複数指定できます。"),
        ("--proxy", {**LIST, "metavar": "ADDRESS"},
         "Believe X-Forwarded-For from the proxy with this address or network. Repeat for several.",
         "このアドレスかネットワークのプロキシからの X-Forwarded-For を信用します。複数指定できます。"),
        ("--no-recover", FLAG, "Do not resume runs that a crash or a restart interrupted.",
         "クラッシュや再起動で中断した実行を再開しません。"),
        ("--on-disconnect", {"choices": ["stop", "continue"]},
         "Stop or continue a run if a client of the OpenAI, Vercel, AG-UI or MCP protocol closes the connection "
         "(default: stop). Runs of /api/runs continue, unless the request says otherwise.",
         "OpenAI、Vercel、AG-UI、MCP のクライアントが接続を閉じたとき、実行を停止するか続けるか (既定: stop)。"
         "/api/runs の実行は、リクエストに指定がなければ続きます。"),
        A_GRACE,
        ("--approvers-see", {"choices": ["nothing", "call", "turn", "run"]},
         "What people see who answer questions for other users (default: as the configuration says, otherwise call).",
         "ほかのユーザーの代わりに回答する人に見せる内容 (既定: 設定ファイルの値、なければ call)。"),
        ("--trace", {**LIST, "metavar": "PLACE"},
         "Send traces to console, a file, or otel[=URL]. Repeat for several.",
         "トレースの出力先: console、ファイル、otel[=URL]。複数指定できます。"),
        ("--log-level", {"default": "info", "choices": ["debug", "info", "warning", "error"]},
         "The level of the log (default: info).",
         "ログレベル (既定: info)。"),
        A_TOOL,
        MODEL,
        CONFIG,
        agent_option("all agents and workflows of the configuration", "設定ファイルのすべて"),
        JOURNAL,
    )),
    Command("runs", "Manage recorded runs: list, show, follow, stop, resume, fork, replay, diff, rate, delete, prune.",
            "記録された実行の一覧・表示・追跡・停止・再開・分岐・再生・比較・評価・削除・整理。", (
        actions("list show follow stop resume fork replay diff rate delete prune"),
        ("run", {"nargs": "?", "metavar": "RUN"}, "The run: its id, the beginning of its id, or last.",
         "実行の ID (先頭の一部でも可)、または last。"),
        ("other", {"nargs": "?", "metavar": "VALUE"}, "diff: the other run. fork: your next message. rate: good or bad.",
         "diff: もう一方の実行。fork: 次の発言。rate: good か bad。"),
        ("-m --model", {}, "PROVIDER/MODEL, or local (default: the model of the run).",
         "PROVIDER/MODEL または local (既定: 実行のモデル)。"),
        CONFIG,
        agent_option("the agent of the run", "実行のエージェント"),
        JOURNAL,
        ("--at", {"type": int, "metavar": "FACT"},
         "fork: continue after the fact with this number, as shown by `kaname runs show` (default: the last).",
         "fork: この番号の記録の後から分岐します。番号は `kaname runs show` で確認できます (既定: 最後)。"),
        ("-t --tool", TOOL, "resume, fork, replay: add a tool.", "resume、fork、replay: ツールを追加します。"),
        ("-n --number", {"type": count, "default": 20}, "list: show this many (default: 20).",
         "list: 表示する件数 (既定: 20)。"),
        ("--answer", ANSWER,
         "resume: answer a question. To approve a call with other arguments, pass '{\"args\": {\"yen\": 10}}'. "
         "Repeat for several questions.",
         "resume: 確認に回答します。引数を変えて承認するには '{\"args\": {\"yen\": 10}}' を渡します。複数指定できます。"),
        ("--equal", FLAG, "resume: give the same answer to the equal questions of other waiting runs, one after the other.",
         "resume: ほかの実行の同じ確認にも、1 件ずつ同じ回答をします。"),
        BY,
        ("--before", {"metavar": "RUN"}, "list: show runs before this one.", "list: この実行より前のものを表示します。"),
        ("--keep", {"metavar": "TIME"},
         'prune: keep ended runs for this time, such as "90d", and delete older ones (default: `keep` in the configuration).',
         'prune: 終了した実行をこの期間残し、古いものを削除します。例: "90d" (既定: 設定ファイルの `keep`)。'),
        ("--note", {"default": ""}, "rate: say why.", "rate: 評価の理由。"),
        ("--dry-run", FLAG, "prune: show what would be deleted, and delete nothing.",
         "prune: 対象を表示するだけで、削除しません。"),
        ("-y --yes", FLAG, "prune: do not ask for confirmation.", "prune: 確認せずに削除します。"),
        ("--vacuum", FLAG, "prune: rewrite the file to make it smaller. Other programs cannot write meanwhile.",
         "prune: ファイルを作り直して縮小します。その間、ほかのプログラムは書き込めません。"),
        ("--takeover", FLAG,
         "resume: resume even if another process seems to be executing the run. That process can then no longer write to it.",
         "resume: ほかのプロセスで実行中に見えても再開します。そのプロセスは、以後この実行に書き込めません。"),
        ("--cascade", FLAG, "delete: also delete the runs that build on this one: later turns and forks.",
         "delete: この実行を元にした実行 (後のターンと分岐) も削除します。"),
        ("--json", FLAG, "list, show, follow, resume, fork: print one JSON object per line.",
         "list、show、follow、resume、fork: 1 行に 1 件の JSON を出力します。"),
    )),
    Command("sessions", "List, show, search, rename, export and delete sessions.",
            "セッションの一覧・表示・検索・改名・書き出し・削除。", (
        actions("list show search rename export delete"),
        ("what", {"nargs": "*", "metavar": "SESSION"},
         "The session: its id or title, or the beginning of one. search: the words to search for. "
         "rename: the session and the new title. export: prints the session as JSON.",
         "セッションの ID かタイトル (先頭の一部でも可)。search: 検索語。rename: セッションと新しいタイトル。"
         "export: セッションを JSON で出力します。"),
        ("--user", {}, "Only sessions of this user.", "このユーザーのセッションだけ。"),
        ("-n --number", {"type": count, "default": 20}, "list: show this many (default: 20).",
         "list: 表示する件数 (既定: 20)。"),
        ("--before", {"metavar": "SESSION"}, "list: show sessions last used before this one.",
         "list: これより前に使われたものを表示します。"),
        ("-y --yes", FLAG, "delete: do not ask for confirmation.", "delete: 確認せずに削除します。"),
        ("--json", FLAG, "Print JSON.", "JSON で出力します。"),
        *OF_AGENT,
    )),
    Command("memory", "Manage stored memories: list, search, history, add, correct, forget, profile, learn, export.",
            "記憶の一覧・検索・履歴・追加・訂正・削除・プロフィール・学習・書き出し。", (
        actions("list search history add correct forget profile learn export"),
        ("what", {"nargs": "*", "metavar": "VALUE"},
         "search, add: the text. history, forget: memory numbers, as shown by list. correct: a number and the new text. "
         "profile: NAME=VALUE. learn: nothing; it stores memories from the recorded runs.",
         "search、add: 内容。history、forget: list で表示される番号。correct: 番号と新しい内容。profile: 名前=値。"
         "learn: なし。記録された実行から記憶を作ります。"),
        ("--user", {"default": "", "group": "owner"},
         "Use the memories of this user (default: the memories of runs without a user).",
         "このユーザーの記憶を使います (既定: ユーザーのない実行の記憶)。"),
        ("--of-agent", {"default": "", "metavar": "NAME", "group": "owner"}, "Use the memories of this agent.",
         "このエージェントの記憶を使います。"),
        ("--project", {**FLAG, "group": "owner"}, "Use the memories of the project.", "プロジェクトの記憶を使います。"),
        ("--about", {"default": ""}, "add: the subject. An older memory with the same subject is replaced.",
         "add: 何についての記憶か。同じ対象の古い記憶を置き換えます。"),
        ("--at", {"default": "", "metavar": "DATE"}, "search: memories that were valid on this date (YYYY-MM-DD).",
         "search: この日付 (YYYY-MM-DD) の時点で有効だった記憶。"),
        ("--older", {"metavar": "TIME"}, 'forget: delete memories older than this: "365d".',
         'forget: これより古い記憶を削除します: "365d"。'),
        ("--all", FLAG, "forget: delete everything. list: also show replaced memories.",
         "forget: すべて削除します。list: 置き換えられた記憶も表示します。"),
        ("--folder", {}, "The folder of the memories (default: .kaname/memory).", "記憶のフォルダー (既定: .kaname/memory)。"),
        ("-y --yes", FLAG, "forget: do not ask for confirmation.", "forget: 確認せずに削除します。"),
        ("--json", FLAG, "Print one JSON object per line.", "1 行に 1 件の JSON を出力します。"),
        *AGENT,
    )),
    Command("plan", "Plan a task, ask for approval, run the plan and evaluate the result.",
            "タスクを計画し、承認を得て実行し、結果を評価します。", (
        ("task", {"nargs": "+"}, "The task.", "タスク。"),
        ("-y --yes", FLAG, "Run the plan without asking for approval.", "承認を求めずに計画を実行します。"),
        ("--max-revisions", {"type": int, "default": 3, "metavar": "N"}, "How often the plan can be revised (default: 3).",
         "計画を修正できる回数 (既定: 3)。"),
        A_TOOL,
        ("--cost", {"metavar": "USD"}, 'Stop when the run has cost this much, such as "$0.50" (default: $10).',
         '費用がこの額に達すると停止します。例: "$0.50" (既定: $10)。'),
        A_DEADLINE,
        CHUNKS,
        ("-q --quiet", FLAG, "Show only the result.", "結果だけを表示します。"),
        *AGENT,
    )),
    Command("workflow", "Check, run, show and resume workflows: tasks with dependencies.",
            "ワークフロー (依存関係のあるタスク) の検査・実行・表示・再開。", (
        ("action", {"choices": ["check", "run", "show", "resume", "schema"]}, "What to do. schema prints the JSON Schema.",
         "操作。schema は JSON Schema を表示します。"),
        ("what", {"nargs": "?", "metavar": "FILE"}, "The workflow file; without it, pass -a. resume: the run.",
         "ワークフローファイル。省く場合は -a を指定します。resume: 実行。"),
        ("-p --param", {**LIST, "metavar": "NAME=VALUE"},
         "A parameter of the workflow. Repeat for several.",
         "ワークフローの引数。複数指定できます。"),
        ("--run", {"metavar": "RUN"}, "show: also show the state of each task in this run.",
         "show: この実行の各タスクの状態も表示します。"),
        ("--form", {"default": "terminal", "choices": ["terminal", "mermaid", "svg"]}, "show: the format (default: terminal).",
         "show: 形式 (既定: terminal)。"),
        A_TOOL,
        ("--answer", ANSWER, "resume: answer a question. Repeat for several.", "resume: 確認に回答します。複数指定できます。"),
        BY,
        CHUNKS,
        ("-q --quiet", FLAG, "Show only the result.", "結果だけを表示します。"),
        *AGENT,
    )),
    Command("eval", "Evaluate an agent on cases, compare two evaluations, or add a case.",
            "エージェントをケースで評価します。評価の比較やケースの追加もできます。",
            (*EVAL_OPTIONS, *AGENT, A_TOOL, INSTRUCTIONS)),
    Command("improve", "Search for better instructions, tool descriptions and examples, and measure them on unseen cases.",
            "指示、ツールの説明、例の改善案を探し、探索に使っていないケースで効果を測定します。",
            (*IMPROVE_OPTIONS, MODEL, CONFIG, JOURNAL)),
    Command("models", "List the models, or download the local one.",
            "モデルを一覧表示します。またはローカルモデルをダウンロードします。", (
        actions("list pull"),
        ("what", {"nargs": "?", "choices": ["chat", "senses"], "default": "chat"},
         "pull: the chat model (default), or the models of the senses, which hear and speak (190 MB).",
         "pull: チャットのモデル (既定)、または音声認識と音声合成のモデル senses (190 MB)。"),
        ("--from", {"metavar": "DIR", "dest": "source"}, "pull: copy the model from a folder, without a network.",
         "pull: ネットワークを使わず、フォルダーからコピーします。"),
        ("--check", FLAG, "pull: verify the checksum of the downloaded file, and download it again if it is wrong.",
         "pull: ダウンロード済みのファイルのチェックサムを検査し、誤りがあればダウンロードし直します。"),
        ("--again", FLAG, "pull: download the model again.", "pull: モデルをダウンロードし直します。"),
    )),
    Command("docs", "Manage the documents for the tool `search`: add, list, search, show, remove.",
            "ツール `search` の文書の追加・一覧・検索・表示・削除。", (), DOCS),
    Command("init", "Write a kaname.yaml with comments.", "コメント付きの kaname.yaml を作ります。", (
        ("--force", FLAG, "Overwrite an existing file.", "既存のファイルを上書きします。"),
    )),
    Command("config", "Check or show the configuration, or print its schema or its keys.",
            "設定の検査・表示、スキーマとキーの表示。", (
        ("action", {"choices": ["check", "show", "schema", "keys"]},
         "schema: print the JSON Schema. keys: print all keys, with descriptions.",
         "schema: JSON Schema を表示します。keys: すべてのキーを説明付きで表示します。"),
        ("files", {"nargs": "*"}, "Configuration files (default: kaname.yaml). keys: the beginning of keys, such as serve.",
         "設定ファイル (既定: kaname.yaml)。keys: キーの先頭。例: serve。"),
        ("-c --config", {"action": "append"}, "The same as `files`.", "`files` と同じです。"),
    )),
    Command("completion", "Print a script that completes commands with Tab in your shell.",
            "シェルの Tab 補完スクリプトを表示します。", (
        ("shell", {"choices": ["bash", "zsh", "fish"]}, "Your shell.", "使っているシェル。"),
    ), (), (
        'Add this line to ~/.bashrc:  eval "$(kaname completion bash)"\n'
        'To ~/.zshrc, after compinit:  eval "$(kaname completion zsh)"\n'
        "To ~/.config/fish/config.fish:  kaname completion fish | source",
        '~/.bashrc に加えます:  eval "$(kaname completion bash)"\n'
        '~/.zshrc では compinit の後に:  eval "$(kaname completion zsh)"\n'
        "~/.config/fish/config.fish では:  kaname completion fish | source",
    )),
    Command("tools", "List the tools of an agent.", "エージェントのツールを一覧表示します。", (
        *AGENT,
        A_TOOL,
    )),
    Command("stats", "Show metrics of the recorded runs.", "記録された実行を集計します。", (
        ("-n --number", {"type": count, "default": 1000},
         "Compute tools, times and ratings from this many recent runs (default: 1000).",
         "ツール、時間、評価を集計する最近の実行の件数 (既定: 1000)。"),
        ("--json", FLAG, "Print JSON.", "JSON で出力します。"),
        *OF_AGENT,
    )),
    Command("budgets", "Show what was spent of the budgets.", "予算の使用状況を表示します。", (
        ("--all", FLAG, "Show past periods, too.", "過去の期間も表示します。"),
        ("--json", FLAG, "Print JSON.", "JSON で出力します。"),
        *OF_AGENT,
    )),
    Command("journal", "Copy a journal, such as from a file to a database.",
            "ジャーナルをコピーします (ファイルからデータベースなど)。", (
        ("action", {"choices": ["copy"]}, "What to do.", "操作。"),
        ("source", {"metavar": "FROM"}, "A file, or postgresql://…", "ファイル、または postgresql://…"),
        ("target", {"metavar": "TO"}, "A file, or postgresql://… The copy is read back and compared.",
         "ファイル、または postgresql://…。コピーは読み直して比較します。"),
    )),
    Command("cache", "Show the size of the cache, or clear it.", "キャッシュのサイズを表示します。または消去します。", (
        ("action", {"nargs": "?", "default": "show", "choices": ["show", "clear"]}, "What to do (default: show).",
         "操作 (既定: show)。"),
        ("--file", {}, "The cache file (default: that of the agent).", "キャッシュのファイル (既定: エージェントのもの)。"),
        ("--json", FLAG, "Print JSON.", "JSON で出力します。"),
        CONFIG,
        AN_AGENT,
    )),
    Command("audit", "List the audit log of `kaname serve`, or verify that it was not changed.",
            "`kaname serve` の監査ログを一覧表示します。または改変がないか検証します。", (
        actions("list verify head"),
        ("--kind", {}, "Only this kind, such as sign_in, approval or read.", "この種類だけ。例: sign_in、approval、read。"),
        ("--actor", {"metavar": "USER"}, "Only what this user did.", "このユーザーの操作だけ。"),
        ("--subject", {}, "Only what was done to this, such as run:ID.", "この対象への操作だけ。例: run:ID。"),
        ("--since", {"metavar": "TIME"}, "Only from this time on, in UTC, such as 2026-11-17T09.",
         "この時刻 (UTC) 以降だけ。例: 2026-11-17T09。"),
        ("--until", {"metavar": "TIME"}, "Only before this time.", "この時刻より前だけ。"),
        ("-n --number", {"type": count}, "Only the last N entries (default: 100; all with --json).",
         "最後の N 件だけ (既定: 100。--json ではすべて)。"),
        ("--head", {"metavar": "N:HASH"}, "verify: also check this head, which `kaname audit head` printed earlier.",
         "verify: 以前 `kaname audit head` が表示した末尾も照合します。"),
        ("--file", {}, "The log (default: that of the server).", "監査ログのファイル (既定: サーバーのもの)。"),
        ("--json", FLAG, "Print one JSON object per line.", "1 行に 1 件の JSON を出力します。"),
        CONFIG, AN_AGENT, JOURNAL,
    )),
    Command("doctor", "Check the installation and say how to fix problems.", "環境を検査し、問題の直し方を示します。", (
        ("--whole", FLAG, "Read the whole journal (default: its newest 100,000 facts).",
         "ジャーナル全体を読みます (既定: 新しい記録 100,000 件)。"),
        *AGENT,
    )),
)
EPILOG = (
    "Run `kaname COMMAND --help` for the options of a command.\n"
    'First steps:  kaname init; kaname run "What is 12 * 7?"',
    "コマンドのオプションは `kaname コマンド --help` で表示します。\n"
    '最初に:  kaname init; kaname run "12 * 7 はいくつですか"',
)
# fmt: on
