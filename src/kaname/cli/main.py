"""`kaname …`: run the command of the command line. Only that command's module is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from .. import __version__

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
    if [*(sys.argv[1:] if arguments is None else arguments)] == ["--version"]:
        sys.stdout.write(f"kaname {__version__}\n")  # without importing anything else
        return DONE
    from ..core.errors import AgentError, ConfigError
    from .parser import parse, parser

    if "_ARGCOMPLETE" in os.environ:
        import_module("kaname.cli.completion").complete(parser())
    args = parse(arguments)
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


def _let_go_of_output() -> None:
    """Send remaining output to nowhere, so that flushing at exit does not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fail(problem: Exception, code: int) -> int:
    from .messages import translate

    if sys.stderr is not None:  # it may be closed
        with suppress(OSError):
            sys.stderr.write(f"kaname: {translate(problem)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
