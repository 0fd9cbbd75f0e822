"""`kaname …`: parse the command line and run the command. Only that command's module is imported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from .. import __version__
from .messages import say, translated
from .messages.usage import Help, translate_usage

DONE, FAILED, USAGE, WAITING, INTERRUPTED = 0, 1, 2, 3, 130
_RECORDS = ("runs", "sessions", "stats")


def main(arguments: Sequence[str] | None = None) -> int:
    from ..core.errors import AgentError, ConfigError

    given, rest = parser().parse_known_args(arguments)
    if len(rest) == 1 and getattr(given, "other", "") is None and not rest[0].startswith("-"):
        given.other = rest[0]  # `runs fork RUN --at 3 "…"`: what follows an option is not seen as the last word
    elif rest and isinstance(getattr(given, "what", None), list) and not any(word.startswith("-") for word in rest):
        given.what += rest  # `memory add --user ken "likes tea"`
    elif rest:
        given = parser().parse_args(arguments)  # it says what is wrong
    if given.command is None:
        parser().print_help()
        return USAGE
    try:
        home = f"records.{given.command}" if given.command in _RECORDS else given.command
        return import_module(f"kaname.cli.{home}").main(given)  # type: ignore[no-any-return]
    except ConfigError as problem:
        return _fail(problem, USAGE)
    except AgentError as problem:
        return _fail(problem, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _let_go_of_output()
        return INTERRUPTED
    except OSError as problem:
        _let_go_of_output()
        return _fail(problem, FAILED)


def _let_go_of_output() -> None:
    """What is left to be flushed goes nowhere, instead of failing once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(problem: Exception, code: int) -> int:
    if sys.stderr is not None:  # it may be closed
        with suppress(OSError):
            sys.stderr.write(f"kaname: {translated(problem)}\n")
    return code


def parser() -> argparse.ArgumentParser:
    translate_usage()
    top = argparse.ArgumentParser(
        prog="kaname",
        formatter_class=Help,
        description=say("An agent that survives, in your terminal.", "中断しても再開できるエージェント。"),
    )
    top.set_defaults(command=None)
    told = say("show the version and end", "バージョンを表示する")
    top.add_argument("--version", action="version", version=f"kaname {__version__}", help=told)
    commands = top.add_subparsers(metavar=say("command", "コマンド"))
    _run(commands)
    _chat(commands)
    _serve(commands)
    _runs(commands)
    _sessions(commands)
    _memory(commands)
    _plan(commands)
    _workflow(commands)
    _models(commands)
    _docs(commands)
    _config(commands)
    stats = _command(commands, "stats", say("figures of the recorded runs", "記録された実行の集計"))
    stats.add_argument(
        "-n",
        "--number",
        type=_count,
        default=1000,
        help=say("read the facts of the last so many runs (default: 1000)", "詳細を読む最近の実行の件数 (既定 1000)"),
    )
    stats.add_argument("--json", action="store_true", help=say("as JSON", "JSON で"))
    _agent_options(stats)
    doctor = _command(commands, "doctor", say("check everything, and say how to mend it", "環境を検査し、直し方を示す"))
    _agent_options(doctor)
    return top


def _command(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, told: str) -> argparse.ArgumentParser:
    made = commands.add_parser(name, help=told, description=told, formatter_class=Help)
    made.set_defaults(command=name)
    return made


def _agent_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-m",
        "--model",
        help=say("provider/model, or local (default: $KANAME_MODEL, or what is found)", "provider/model または local"),
    )
    command.add_argument(
        "-c", "--config", action="append", help=say("a configuration file (default: kaname.yaml)", "設定ファイル")
    )
    command.add_argument(
        "-a",
        "--agent",
        help=say(
            "which agent of the file; or FILE.py:NAME, one that a program makes",
            "設定ファイルのエージェント名。Python のものは FILE.py:名前",
        ),
    )
    command.add_argument("--journal", help=say("where runs are recorded (a file)", "実行を記録するファイル"))


def _run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = _command(commands, "run", say("do a task, and show it being done", "タスクを実行し、経過を表示する"))
    run.add_argument(
        "task", nargs="*", help=say("what to do (from standard input if it is left out)", "タスク (省略すると標準入力から)")
    )
    _agent_options(run)
    run.add_argument(
        "-t",
        "--tool",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help=say(
            "a tool to use: calculator, database:FILE, search, module:name, or FILE.py for all its tools",
            "使うツール。calculator、database:FILE、search、module:name、または FILE.py (すべて)",
        ),
    )
    run.add_argument("-i", "--instructions", default="", help=say("how to go about it", "システムプロンプト"))
    run.add_argument("-s", "--session", help=say("the conversation it belongs to", "属するセッション"))
    run.add_argument("--max-steps", type=int, metavar="N", help=say("at most so many steps", "最大ステップ数"))
    run.add_argument("--cost", metavar="$", help=say('at most so much money, "$0.50"', '費用の上限 "$0.50"'))
    run.add_argument("--deadline", metavar="TIME", help=say('at most so long, "5m"', '時間の上限 "5m"'))
    run.add_argument("--json", action="store_true", help=say("one chunk a line, as JSON", "1 行に 1 件の JSON"))
    run.add_argument("-q", "--quiet", action="store_true", help=say("only the answer", "回答だけを表示"))


def _chat(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    chat = _command(commands, "chat", say("a conversation", "会話を始める"))
    _agent_options(chat)
    chat.add_argument(
        "-t", "--tool", action="append", default=[], metavar="MODULE:NAME", help=say("a tool to use", "使うツール")
    )
    chat.add_argument("-i", "--instructions", default="", help=say("how to go about it", "システムプロンプト"))
    chat.add_argument("-s", "--session", help=say("the conversation to go on with", "続けるセッション"))


def _serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = say("serve the agents over HTTP; users: who may use them", "エージェントを HTTP で提供する。users: 利用者の管理")
    serve = _command(commands, "serve", told)
    serve.add_argument("action", nargs="?", choices=["users"], help=say("manage users instead", "利用者の管理"))
    serve.add_argument("what", nargs="*", help=say("users: list, add NAME, remove NAME", "users: list、add 名前、remove 名前"))
    serve.add_argument("--host", help=say("the address to listen on (default: 127.0.0.1)", "アドレス (既定 127.0.0.1)"))
    serve.add_argument("--port", type=int, help=say("(default: 8000; 0: a free one)", "ポート (既定 8000、0: 空き)"))
    serve.add_argument("--workers", type=_count, help=say("so many processes (default: 1)", "プロセス数 (既定 1)"))
    serve.add_argument("--users", metavar="FILE", help=say("who may use it (default: beside the journal)", "利用者のファイル"))
    serve.add_argument(
        "--role", action="append", default=[], help=say("users add: read, talk, approve, admin", "users add: 役割")
    )
    serve.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help=say("another name", "許可するホスト名")
    )
    serve.add_argument("--allow-origin", action="append", default=[], metavar="URL", help=say("accept it", "許可するオリジン"))
    serve.add_argument(
        "--no-recover", action="store_true", help=say("leave interrupted runs alone", "中断した実行を再開しない")
    )
    leaving = say("a run whose client closes the stream (default: stop)", "接続が閉じられた実行の扱い (既定 stop)")
    serve.add_argument("--on-disconnect", choices=["stop", "continue"], help=leaving)
    serve.add_argument(
        "--trace", action="append", default=[], metavar="PLACE", help=say("console, a file, or otel[=URL]", "トレースの出力先")
    )
    serve.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    serve.add_argument("-t", "--tool", action="append", default=[], metavar="MODULE:NAME", help=say("a tool", "ツール"))
    _agent_options(serve)


def _runs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    runs = _command(
        commands,
        "runs",
        say(
            "what was done: list, show, follow, stop, resume, fork, prune, …",
            "実行: 一覧・表示・追跡・停止・再開・分岐・整理など",
        ),
    )
    actions = ["list", "show", "follow", "stop", "resume", "fork", "replay", "diff", "rate", "delete", "prune"]
    runs.add_argument("action", nargs="?", default="list", choices=actions)
    runs.add_argument(
        "run",
        nargs="?",
        help=say("which run; the beginning of its name will do, or 'last'", "実行の ID (先頭だけでも可)、または last"),
    )
    runs.add_argument(
        "other",
        nargs="?",
        help=say(
            "diff: the other run; fork: what to say next; rate: good or bad",
            "diff: もう一方。fork: 次の発言。rate: good か bad",
        ),
    )
    _agent_options(runs)
    runs.add_argument("--at", type=int, help=say("fork: go on from this fact", "fork: 分岐元の記録の番号"))
    runs.add_argument("-t", "--tool", action="append", default=[], metavar="MODULE:NAME", help=say("for resume", "再開用"))
    runs.add_argument("-n", "--number", type=int, default=20, help=say("how many to list", "表示する件数"))
    runs.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="[KEY=]ANSWER",
        help=say('resume: the answer to what it asked; {"args": …} runs a call with other arguments', "再開時の確認への回答"),
    )
    runs.add_argument("--before", metavar="RUN", help=say("list: only runs before this one", "一覧: この実行より前のもの"))
    runs.add_argument(
        "--keep",
        metavar="TIME",
        help=say('prune: delete ended runs that are older, "90d"', '整理: これより古い終了済みの実行を削除 "90d"'),
    )
    runs.add_argument("--dry-run", action="store_true", help=say("prune: only say what would go", "整理: 表示だけ"))
    runs.add_argument("-y", "--yes", action="store_true", help=say("prune without asking", "確認せずに整理する"))
    runs.add_argument(
        "--vacuum",
        action="store_true",
        help=say("prune: rewrite the file to make it smaller; writers wait", "整理: ファイルを作り直して縮小 (書き込みは待機)"),
    )
    runs.add_argument("--takeover", action="store_true", help=say("resume: even if it seems to be running", "再開: 実行中でも"))
    runs.add_argument("--cascade", action="store_true", help=say("delete: also what went on from it", "この後の実行も削除"))
    runs.add_argument(
        "--json", action="store_true", help=say("list, show, follow, resume, fork: JSON, a line each", "1 行に 1 件の JSON")
    )


def _sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = say("conversations: list, show, search, rename, export, delete", "セッション: 一覧・表示・検索・改名・出力・削除")
    sessions = _command(commands, "sessions", told)
    actions = ["list", "show", "search", "rename", "export", "delete"]
    sessions.add_argument("action", nargs="?", default="list", choices=actions)
    sessions.add_argument(
        "what",
        nargs="*",
        help=say("which session (the beginning of its id or title will do); search: the words", "セッション。検索では検索語"),
    )
    sessions.add_argument("--user", help=say("only of this user", "この利用者のものだけ"))
    sessions.add_argument("-n", "--number", type=_count, default=20, help=say("how many to list", "表示する件数"))
    sessions.add_argument(
        "--before", metavar="SESSION", help=say("list: only sessions used before this one", "一覧: これより前のもの")
    )
    sessions.add_argument("-y", "--yes", action="store_true", help=say("delete without asking", "確認せずに削除する"))
    sessions.add_argument("--json", action="store_true", help=say("as JSON", "JSON で"))
    _agent_options(sessions)


def _memory(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = say(
        "what is remembered: list, search, add, correct, forget, profile, learn, export",
        "記憶: 一覧・検索・追加・訂正・削除・プロフィール・学習・書き出し",
    )
    memory = _command(commands, "memory", told)
    actions = ["list", "search", "history", "add", "correct", "forget", "profile", "learn", "export"]
    memory.add_argument("action", nargs="?", default="list", choices=actions)
    memory.add_argument(
        "what",
        nargs="*",
        help=say(
            "search, add: the words; history, forget: numbers; correct: a number and the words; profile: NAME=VALUE",
            "検索・追加: 内容。history・forget: 番号。correct: 番号と内容。profile: 名前=値",
        ),
    )
    whose = memory.add_mutually_exclusive_group()
    whose.add_argument("--user", default="", help=say("of this user", "この利用者の記憶"))
    whose.add_argument("--of-agent", default="", metavar="NAME", help=say("of this agent", "このエージェントの記憶"))
    whose.add_argument("--project", action="store_true", help=say("of the project", "プロジェクトの記憶"))
    memory.add_argument(
        "--about", default="", help=say("add: what it is about; it replaces the old one", "追加: 何についての記憶か")
    )
    memory.add_argument("--at", metavar="DATE", default="", help=say("search: what held then", "検索: その時点の記憶"))
    memory.add_argument("--older", metavar="TIME", help=say("forget: older than, 365d", "削除: これより古いもの"))
    memory.add_argument(
        "--all", action="store_true", help=say("forget: everything; list: also the past", "すべて。一覧: 過去の記憶も")
    )
    memory.add_argument("--folder", help=say("where the memories are", "記憶のあるフォルダー"))
    memory.add_argument("-y", "--yes", action="store_true", help=say("forget without asking", "確認せずに削除する"))
    memory.add_argument("--json", action="store_true", help=say("as JSON, a line each", "1 行に 1 件の JSON"))
    _agent_options(memory)


def _plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = say("plan a task, show the plan, carry it out, evaluate it", "タスクを計画し、確認のうえ実行して評価する")
    plan = _command(commands, "plan", told)
    plan.add_argument("task", nargs="+", help=say("what to do", "タスク"))
    plan.add_argument("-y", "--yes", action="store_true", help=say("carry it out without asking first", "確認せずに実行する"))
    plan.add_argument("--max-revisions", type=int, default=3, metavar="N", help=say("plans after the first", "計画の修正回数"))
    plan.add_argument("-t", "--tool", action="append", default=[], metavar="MODULE:NAME", help=say("a tool", "ツール"))
    plan.add_argument("--cost", metavar="$", help=say("at most so much money", "費用の上限"))
    plan.add_argument("--deadline", metavar="TIME", help=say("at most so long", "時間の上限"))
    plan.add_argument("--json", action="store_true", help=say("one chunk a line, as JSON", "1 行に 1 件の JSON"))
    plan.add_argument("-q", "--quiet", action="store_true", help=say("only the outcome", "結果だけを表示"))
    _agent_options(plan)


def _workflow(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = say("tasks that wait for each other: check, run, show, resume", "依存関係のあるタスク: 検査・実行・表示・再開")
    flow = _command(commands, "workflow", told)
    flow.add_argument("action", choices=["check", "run", "show", "resume", "schema"])
    flow.add_argument("what", nargs="?", help=say("the file; resume: which run", "ファイル。再開では実行"))
    flow.add_argument("-p", "--param", action="append", default=[], metavar="NAME=VALUE", help=say("what it is given", "引数"))
    flow.add_argument("--run", metavar="RUN", help=say("show: how far this run is", "表示: この実行の進捗"))
    flow.add_argument("--form", choices=["terminal", "mermaid", "svg"], default="terminal", help=say("show: as", "表示の形式"))
    flow.add_argument(
        "-t", "--tool", action="append", default=[], metavar="MODULE:NAME", help=say("a tool to use", "使うツール")
    )
    flow.add_argument("--answer", action="append", default=[], metavar="[KEY=]ANSWER", help=say("resume: the answer", "回答"))
    flow.add_argument("--json", action="store_true", help=say("one chunk a line, as JSON", "1 行に 1 件の JSON"))
    flow.add_argument("-q", "--quiet", action="store_true", help=say("only the outcome", "結果だけを表示"))
    _agent_options(flow)


def _config(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    init = _command(commands, "init", say("write a commented kaname.yaml", "コメント付きの kaname.yaml を作る"))
    init.add_argument("--force", action="store_true", help=say("write over an existing one", "上書きする"))
    config = _command(commands, "config", say("check the configuration, or print its schema", "設定の検査、スキーマの表示"))
    config.add_argument("action", choices=["check", "show", "schema"])
    config.add_argument("files", nargs="*")
    config.add_argument("-c", "--config", action="append", help=say("a configuration file", "設定ファイル"))
    shell = _command(commands, "completion", say("complete commands with Tab, in your shell", "シェルの Tab 補完"))
    shell.add_argument("shell", choices=["bash", "zsh", "fish"], help=say("print its script", "そのスクリプトを表示する"))
    shell.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS).required = False  # only the scripts give them
    tools = _command(commands, "tools", say("what an agent can do", "エージェントが使えるツール"))
    _agent_options(tools)
    tools.add_argument("-t", "--tool", action="append", default=[], metavar="MODULE:NAME", help=say("a tool", "ツール"))


def _docs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    docs = _command(
        commands,
        "docs",
        say("documents to search: add, list, search, show, remove", "検索する文書: 追加・一覧・検索・表示・削除"),
    )
    actions = docs.add_subparsers(dest="action", required=True, metavar=say("action", "操作"))
    files = say("files and folders", "ファイルやフォルダー")
    told = {
        "add": (say("read files and folders; what has not changed is passed over", "ファイルやフォルダーを読み込む"), files),
        "list": (say("what has been read", "読み込んだファイル"), ""),
        "search": (say("look for something", "検索する"), say("the question", "質問")),
        "show": (
            say("the passage that a citation means", "引用された箇所を表示する"),
            say("such as rules.md#3", "rules.md#3 など"),
        ),
        "remove": (
            say("forget files or folders", "索引から削除する"),
            say("files, folders, or a file as it is cited: rules.md", "ファイル、フォルダー、または引用名 (rules.md)"),
        ),
    }
    for name, (words, what) in told.items():
        one = actions.add_parser(name, help=words, description=words, formatter_class=Help)
        if what:
            one.add_argument("what", nargs="+", help=what)
        one.add_argument("--index", metavar="FILE", help=say("the index (default: $KANAME_DOCS)", "索引 (既定 $KANAME_DOCS)"))
        if name in ("add", "search"):
            one.add_argument("--embeddings", metavar="NAME", help=say("local, or openai/MODEL", "local または openai/MODEL"))
        if name == "add":
            forget = say(
                "also forget what stood in a folder that is missing or empty now", "なくなった・空になったフォルダーの分も削除"
            )
            one.add_argument("--forget", action="store_true", help=forget)
        if name == "search":
            one.add_argument("-n", "--number", type=_count, default=5, help=say("how many", "件数"))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(say(f"a number from 1 up, not {text!r}", f"1 以上の数です: {text!r}"))
    return int(text)


def _models(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = say("which models there are; fetch the local one", "モデルの一覧。ローカルモデルの取得")
    models = _command(commands, "models", told)
    models.add_argument("action", nargs="?", default="list", choices=["list", "pull"])
    models.add_argument(
        "--from", dest="source", metavar="DIR", help=say("pull: from a folder, without a network", "pull: フォルダーから")
    )
    models.add_argument("--check", action="store_true", help=say("pull: read what is there, all of it", "pull: すべて検査"))
    models.add_argument("--again", action="store_true", help=say("pull: even if it is there", "pull: 取得し直す"))


if __name__ == "__main__":
    sys.exit(main())
