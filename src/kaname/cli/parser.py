"""The parser of the command line, made of the commands and options in `messages/`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from .. import __version__
from .messages import say
from .messages.command import Command
from .messages.learn_options import LEARNING
from .messages.options import COMMANDS, EPILOG
from .messages.protection_options import PROTECTION
from .messages.usage import Help, Parser, translate_usage
from .messages.work_options import WORK


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line. argparse does not assign words that come after an option: they are assigned here."""
    args: argparse.Namespace
    words = sys.argv[1:] if arguments is None else arguments
    args, rest = parser(words[0] if words else "").parse_known_args(words)
    if len(rest) == 1 and getattr(args, "other", "") is None and not rest[0].startswith("-"):
        args.other = rest[0]  # `runs fork RUN --at 3 "…"`
    elif rest and isinstance(getattr(args, "what", None), list) and not any(word.startswith("-") for word in rest):
        args.what += rest  # `memory add --user ken "likes tea"`
    elif rest:
        args.parser.refuse(rest)
    return args


def parser(wanted: str = "") -> Parser:
    """Return the parser. If `wanted` is the name of a command, the others are only listed: their options take time to make."""
    translate_usage()
    about = say(
        "Run and serve agents whose work survives a crash.", "クラッシュしても再開できるエージェントを実行・公開します。"
    )
    top = Parser(prog="kaname", formatter_class=Help, description=about, epilog=say(*EPILOG))
    top.set_defaults(command=None, parser=top)
    version = say("Show the version and exit.", "バージョンを表示して終了します。")
    top.add_argument("--version", action="version", version=f"kaname {__version__}", help=version)
    commands = top.add_subparsers(metavar=say("command", "コマンド"))
    every = (*COMMANDS, *WORK, *LEARNING, *PROTECTION)
    is_known = any(command.name == wanted for command in every)
    for command in every:
        if is_known and command.name != wanted:
            commands.add_parser(command.name, help=say(command.english, command.japanese))
            continue
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
