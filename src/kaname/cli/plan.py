"""`kaname plan TASK`: plan a task, show the plan, run it, evaluate it, and plan again if necessary."""

from __future__ import annotations

import argparse
import asyncio

from .agent import orchestrator_from
from .messages import config_error
from .place import place_options
from .run import follow
from .terminal.screen import Screen
from .terminal.signals import run_to_the_end


def main(args: argparse.Namespace) -> int:
    task = " ".join(args.task).strip()
    if not task:
        raise config_error('the task is missing: kaname plan "…"', 'タスクを指定してください: kaname plan "…"')
    args.plan, args.approve = True, not args.yes
    return run_to_the_end(lambda ending: _main(args, task, Screen()))


async def _main(args: argparse.Namespace, task: str, screen: Screen) -> int:
    made, stop = orchestrator_from(args, screen), asyncio.Event()
    try:
        run = made.run(task, abort_event=stop)
        code = await follow(made.agent, run, stop, screen, as_json=args.json, quiet=args.quiet, where=place_options(args))
        context = await made.context(run.run_id)
        if context.current_plan is not None and not args.json and not args.quiet:
            tried = len(context.execution_history)
            screen.tell(f"[{tried} plan{'s' if tried > 1 else ''}]", f"[計画 {tried} 件]")
        return code
    finally:
        await made.agent.close()
