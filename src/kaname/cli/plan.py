"""`kaname plan TASK`: plan it, show the plan, carry it out, evaluate it, and plan again if need be."""

from __future__ import annotations

import argparse
import asyncio

from ..core.errors import ConfigError
from .agent import orchestrator_from, where_it_is
from .messages import say
from .run import follow
from .terminal.screen import Screen
from .terminal.signals import to_the_end


def main(given: argparse.Namespace) -> int:
    task = " ".join(given.task).strip()
    if not task:
        raise ConfigError(say('name the task: kaname plan "…"', 'タスクを指定してください: kaname plan "…"'))
    given.plan, given.approve = True, not given.yes
    return to_the_end(lambda ending: _main(given, task, Screen()))


async def _main(given: argparse.Namespace, task: str, screen: Screen) -> int:
    made, stop = orchestrator_from(given, screen), asyncio.Event()
    try:
        run = made.run(task, abort_event=stop)
        code = await follow(made.agent, run, stop, screen, as_json=given.json, quiet=given.quiet, where=where_it_is(given))
        context = await made.context(run.run_id)
        if context.current_plan is not None and not given.json and not given.quiet:
            tried = len(context.execution_history)
            screen.note(say(f"[{tried} plan{'s' if tried > 1 else ''}]", f"[計画 {tried} 件]"))
        return code
    finally:
        await made.agent.close()
