"""`kaname workflow check | run | show | resume`: workflows, which are tasks with dependencies, from a file."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import nullcontext
from typing import Any

from ..core.events import Opened
from ..kernel.load import load, read_run
from ..models.http.keys import keys_at_first_call
from ..stores.default import choose
from ..workflows import draw
from ..workflows.file import SCHEMA
from ..workflows.workflow import Workflow
from .agent import restore_options, take_workflow, workflow_from
from .main import DONE
from .messages import config_error, many, say, translate
from .place import journal_for, place_options, programs_workflow
from .records.runs import find
from .run import follow
from .terminal.questions import parse_answers
from .terminal.screen import Screen
from .terminal.signals import run_to_the_end

_PICTURES = {"terminal": draw.terminal, "mermaid": draw.mermaid, "svg": draw.svg}


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if args.action == "schema":
        screen.say(json.dumps(SCHEMA, indent=1, ensure_ascii=False))
        return DONE
    if args.action == "resume" or args.run:
        return run_to_the_end(lambda ending: _resume_or_show(args, screen))
    args.workflow = args.what
    take_workflow(args)
    if not args.workflow and ":" not in (args.agent or ""):
        raise config_error("name a workflow file", "ワークフローファイルを指定してください")
    with nullcontext() if args.action == "run" else keys_at_first_call():  # checking and drawing call no model
        made = workflow_from(args).check()
    if args.action == "check":
        count, name = len(made.graph.tasks), args.what or args.agent or made.name
        screen.say(say(f"{name}: {many(count, 'task')}, no errors", f"{name}: タスク {count} 個、エラーはありません"))
    elif args.action == "show":
        screen.say(_PICTURES[args.form](made.graph, told=translate))
    else:
        return run_to_the_end(lambda ending: _run(args, made, _params(args.param, made), screen))
    return DONE


async def _run(args: argparse.Namespace, made: Workflow, params: dict[str, Any], screen: Screen) -> int:
    stop = asyncio.Event()
    return await _follow(args, made, made.run(params, abort_event=stop), stop, screen)


async def _resume_or_show(args: argparse.Namespace, screen: Screen) -> int:
    """Resume a run, or show its progress. The workflow file is named in its first fact."""
    journal = choose(journal_for(args))
    run = await find(journal, args.run or args.what, "resume")
    first = (await read_run(journal, run.run_id, 1))[0].body
    restore_options(args, first.recipe if isinstance(first, Opened) else {}, run.agent)
    if args.run and args.what:
        args.workflow = args.what
    if not getattr(args, "workflow", None) and programs_workflow(args) is None:
        raise config_error(
            f"{run.run_id} is not a run of a workflow file", f"{run.run_id} はワークフローファイルの実行ではありません"
        )
    made = workflow_from(args)
    if args.action == "show":
        screen.say(_PICTURES[args.form](made.graph, await made.progress(run.run_id), translate))
        return DONE
    stop, state = asyncio.Event(), await load(journal, run.run_id)
    answers = parse_answers(args.answer, state.questions)
    return await _follow(args, made, made.resume(run.run_id, answers, abort_event=stop, by=args.by), stop, screen)


async def _follow(args: argparse.Namespace, made: Workflow, run: Any, stop: asyncio.Event, screen: Screen) -> int:
    try:
        how = {"as_json": args.json, "quiet": args.quiet, "where": place_options(args), "by": getattr(args, "by", "")}
        code = await follow(made.agent, run, stop, screen, **how)
        if not args.json and not args.quiet:
            screen.note(draw.terminal(made.graph, await made.progress(run.run_id), translate))
        return code
    finally:
        await made.agent.close()


def _params(args: list[str], workflow: Workflow) -> dict[str, Any]:
    """Return the parameters of `--param NAME=VALUE`: as text if the parameter is a string, otherwise as JSON."""
    made: dict[str, Any] = {}
    for one in args:
        name, equals, text = one.partition("=")
        if not equals:
            raise config_error(
                f"--param must be NAME=VALUE, not {one!r}", f"--param は 名前=値 の形で指定してください: {one!r}"
            )
        wanted = workflow.parameters["properties"].get(name, {}).get("type")
        try:
            made[name] = text if wanted == "string" else json.loads(text)
        except ValueError:
            made[name] = text
    return made
