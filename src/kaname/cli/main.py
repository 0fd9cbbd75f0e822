"""`kaname …`: parse the command line and run the command. Only that command's module is imported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from .. import __version__
from ..core.errors import AgentError, ConfigError
from .messages import say, translate
from .messages.command import Command
from .messages.learn_options import LEARNING
from .messages.options import COMMANDS, EPILOG
from .messages.protection_options import PROTECTION
from .messages.usage import Help, Parser, translate_usage
from .messages.work_options import WORK

DONE, FAILED, USAGE, WAITING, INTERRUPTED = 0, 1, 2, 3, 130
_RECORDS = ("approvals", "audit", "budgets", "cache", "encrypt", "journal", "runs", "sessions", "stats", "user")
_HOMES = {
    **{name: f"records.{name}" for name in _RECORDS},
    "eval": "evals.command",
    "improve": "evals.improve",
    "learn": "evals.learn",
    "worker": "many.worker",
}
_HOMES |= dict.fromkeys(("workers", "queue", "schedules"), "many.work")


def main(arguments: Sequence[str] | None = None) -> int:
    if "_ARGCOMPLETE" in os.environ:
        import_module("kaname.cli.completion").complete(parser())
    args = _parse(arguments)
    if args.command is None:
        parser().print_help()
        return USAGE
    try:
        home = _HOMES.get(args.command, args.command)
        return import_module(f"kaname.cli.{home}").main(args)  # type: ignore[no-any-return]
    except ConfigError as problem:
        return _fail(problem, USAGE)
    except AgentError as problem:
        return _fail(problem, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the pipe has closed it
        _let_go_of_output()
        return INTERRUPTED
    except OSError as problem:
        _let_go_of_output()
        return _fail(problem, FAILED)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line. argparse does not assign words that come after an option: they are assigned here."""
    args: argparse.Namespace
    args, rest = parser().parse_known_args(arguments)
    if len(rest) == 1 and getattr(args, "other", "") is None and not rest[0].startswith("-"):
        args.other = rest[0]  # `runs fork RUN --at 3 "…"`
    elif rest and isinstance(getattr(args, "what", None), list) and not any(word.startswith("-") for word in rest):
        args.what += rest  # `memory add --user ken "likes tea"`
    elif rest:
        args.parser.refuse(rest)
    return args


def _let_go_of_output() -> None:
    """Send remaining output to nowhere, so that flushing at exit does not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(problem: Exception, code: int) -> int:
    if sys.stderr is not None:  # it may be closed
        with suppress(OSError):
            sys.stderr.write(f"kaname: {translate(problem)}\n")
    return code


def parser() -> Parser:
    translate_usage()
    about = say(
        "Run and serve agents whose work survives a crash.", "クラッシュしても再開できるエージェントを実行・公開します。"
    )
    top = Parser(prog="kaname", formatter_class=Help, description=about, epilog=say(*EPILOG))
    top.set_defaults(command=None, parser=top)
    version = say("Show the version and exit.", "バージョンを表示して終了します。")
    top.add_argument("--version", action="version", version=f"kaname {__version__}", help=version)
    commands = top.add_subparsers(metavar=say("command", "コマンド"))
    for command in (*COMMANDS, *WORK, *LEARNING, *PROTECTION):
        made = _add_command(commands, command)
        made.set_defaults(command=command.name)
        if command.commands:
            inner = made.add_subparsers(dest="action", required=True, metavar=say("action", "操作"))
            for action in command.commands:
                _add_command(inner, action)
    return top


def _add_command(commands: argparse._SubParsersAction[Parser], command: Command) -> Parser:
    about = say(command.english, command.japanese)
    made = commands.add_parser(
        command.name, help=about, description=about, epilog=say(*command.epilog) or None, formatter_class=Help
    )
    made.set_defaults(parser=made)
    groups: dict[str, Any] = {}
    for names, more, english, japanese in command.options:
        arguments, place = dict(more), made
        if group := arguments.pop("group", ""):
            place = groups.get(group) or groups.setdefault(group, made.add_mutually_exclusive_group())
        added = place.add_argument(*names.split(), help=say(english, japanese) or argparse.SUPPRESS, **arguments)
        if not english:
            added.required = False
    return made


if __name__ == "__main__":
    sys.exit(main())
