"""`kaname plan TASK`: plan a task, show the plan, run it, evaluate it, and plan again if necessary."""

from __future__ import annotations

import argparse
import asyncio

from ..core.errors import ConfigError
from .agent import orchestrator_from, place_options
from .messages import say
from .run import follow
from .terminal.screen import Screen
from .terminal.signals import run_to_the_end


def main(given: argparse.Namespace) -> int:
    task = " ".join(given.task).strip()
    if not task:
        raise ConfigError(say('the task is missing: kaname plan "…"', 'タスクを指定してください: kaname plan "…"'))
    given.plan, given.approve = True, not given.yes
    return run_to_the_end(lambda ending: _main(given, task, Screen()))


async def _main(given: argparse.Namespace, task: str, screen: Screen) -> int:
    made, stop = orchestrator_from(given, screen), asyncio.Event()
    try:
        run = made.run(task, abort_event=stop)
        code = await follow(made.agent, run, stop, screen, as_json=given.json, quiet=given.quiet, where=place_options(given))
        context = await made.context(run.run_id)
        if context.current_plan is not None and not given.json and not given.quiet:
            tried = len(context.execution_history)
            screen.note(say(f"[{tried} plan{'s' if tried > 1 else ''}]", f"[計画 {tried} 件]"))
        return code
    finally:
        await made.agent.close()
