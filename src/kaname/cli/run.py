"""`kaname run`: one task, from the first word to the exit code."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from ..api.agent import Agent
from ..api.result import Result
from ..api.run import Run
from ..core.language import say
from .main import DONE, FAILED, INTERRUPTED, USAGE, WAITING
from .screen import Screen
from .setting_up import agent_from
from .show import Show

_CODES = {"completed": DONE, "degraded": DONE, "waiting": WAITING, "cancelled": INTERRUPTED}


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    task = " ".join(given.task)
    if task in ("", "-"):
        if sys.stdin.isatty():
            screen.note(say('what is to be done? kaname run "…"', '仕事を書いてください: kaname run "…"'), "red")
            return USAGE
        task = sys.stdin.read()
    if not task.strip():
        screen.note(say("standard input is empty", "標準入力が空です"), "red")
        return USAGE
    return asyncio.run(_main(given, task, screen))


async def _main(given: argparse.Namespace, task: str, screen: Screen) -> int:
    agent = agent_from(given, screen)
    try:
        stop = asyncio.Event()
        run = agent.run(task, session_id=given.session, abort_event=stop)
        return await follow(agent, run, stop, screen, as_json=given.json, quiet=given.quiet)
    finally:
        await agent.close()


async def follow(agent: Agent, run: Run, stop: asyncio.Event, screen: Screen, *, as_json: bool, quiet: bool) -> int:
    """Show a run to its end. Ctrl-C ends it in order and keeps what it has; a second one ends the program."""
    from ..core.errors import AgentError

    _on_interrupt(stop)
    show = Show(screen, quiet=quiet)
    while True:
        try:
            async for chunk in run:
                screen.say(chunk.to_json()) if as_json else show.take(chunk)
            result: Result = await run
        except AgentError as problem:
            show.end_line()
            if not as_json and quiet:
                screen.note(str(problem), "red")
            return FAILED
        show.end_line()
        answers = ask_the_user(result, screen) if result.stop.kind == "waiting" and not as_json else None
        if not answers:
            break
        run = agent.resume(run.run, answers, abort_event=stop)
    if not as_json and not quiet:
        screen.note(_last_line(result, show))
    return _CODES.get(result.stop.kind, FAILED)


def _last_line(result: Result, show: Show) -> str:
    how = "" if result.completed else f"{result.stop.kind}{': ' if result.stop.detail else ''}{result.stop.detail}; "
    again = "" if result.completed else say(f"; kaname runs resume {result.run}", f"; 続きは kaname runs resume {result.run}")
    return f"[{how}{show.spent()}; {result.run}{again}]"


def ask_the_user(result: Result, screen: Screen) -> dict[str, str]:
    """The answers of the person at the terminal; without one, none."""
    if not sys.stdin.isatty():
        return {}
    answers = {}
    for key, question in result.questions.items():
        options = f" [{'/'.join(question.options)}]" if question.options else ""
        screen.note(f"{question.prompt}{options} ", "yellow", end="")
        answers[key] = input().strip()
    return answers


def _on_interrupt(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, first)
