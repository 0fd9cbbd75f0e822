"""Open the journal that the options mean, run a command on it, and print lists of what it holds."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from ...core.errors import RunNotFound
from ...core.install import this_command
from ...core.project import path_without_project
from ...kernel.ports import Journal
from ...stores.default import choose, default_path
from ...stores.places import is_file
from ..last import take_last
from ..main import DONE, FAILED
from ..place import journal_place, note_place, place_options
from ..terminal.screen import Screen
from ..terminal.signals import run_to_the_end

T = TypeVar("T")
Work = Callable[[Journal, argparse.Namespace, Screen], Awaitable[int]]


def on_journal(args: argparse.Namespace, work: Work, *, take: str = "journal", missing: tuple[str, str] | None = None) -> int:
    """Run a command on the journal of the options, and return its exit code. If a run is not found, say which it is.

    Args:
        args: The options.
        work: The command.
        take: What to take from the last program, if the options name no journal: "journal" or "agent"; "" for nothing.
        missing: What there is not yet if the file does not exist, in English and Japanese. Without it the file is created.
    """
    screen = Screen()
    if take:
        take_last(args, screen, take)
    place = journal_place(args)
    if missing is not None and is_file(place) and not os.path.exists(os.path.expanduser(place)):
        screen.tell(f"no {missing[0]} yet: {place} does not exist", f"まだ{missing[1]}がありません ({place})")
        if os.path.exists(before := path_without_project("journal.db")) and place == default_path():
            command = f"{this_command()} {args.command} --journal {shlex.quote(before)}"
            screen.tell(f"records from before kaname.yaml was created: {command}", f"kaname.yaml を作る前の記録: {command}")
        return DONE if args.action == "list" else FAILED
    args.journal = place

    async def run() -> int:
        journal = choose(place)
        try:
            return await work(journal, args, screen)
        except RunNotFound:
            note_place(args, screen)
            raise
        finally:
            await journal.close()

    return run_to_the_end(lambda ending: run())


def print_list(args: argparse.Namespace, screen: Screen, found: Any, lines: Iterable[str], empty: str) -> int:
    """Print what was found: as one JSON value, or as lines; without any, that it is `empty`, and where it was looked for."""
    if args.json:
        screen.say(json.dumps(found, ensure_ascii=False))
        return DONE
    shown = [*lines]
    for line in shown:
        screen.say(line)
    if not shown:
        screen.note(empty)
        note_place(args, screen)
    return DONE


def print_page(
    args: argparse.Namespace,
    screen: Screen,
    found: Sequence[T],
    to_json: Callable[[T], dict[str, Any]],
    table: Callable[[Sequence[T]], str],
    empty: str,
) -> Sequence[T]:
    """Print one page of a list: as lines of JSON, or as a table, and the command for the next page. Return what was printed.

    Args:
        args: The options; `number` is the length of the page.
        screen: Where to print.
        found: The entries of the page, and one more if there is another page.
        to_json: Returns an entry as JSON.
        table: Prints the entries, and returns the command that shows what comes after them.
        empty: What to say without entries.
    """
    page = found[: args.number]
    if args.json:
        for one in page:
            screen.say(json.dumps(to_json(one), ensure_ascii=False))
    elif not page:
        screen.note(empty)
        note_place(args, screen)
    else:
        following = table(page)
        if len(found) > len(page):
            following = f"{this_command()} {following}{place_options(args)}"
            screen.tell(f"… and more: {following}", f"… 続きがあります: {following}")
    return page


def short_time(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment).astimezone():%m-%d %H:%M}"
