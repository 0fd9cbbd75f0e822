"""`kaname workflow check | run | show | resume`: tasks that wait for each other, from a file."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import nullcontext
from typing import Any

from ..api.workflow import draw
from ..api.workflow.file import SCHEMA
from ..api.workflow.workflow import Workflow
from ..core.errors import ConfigError
from ..core.events import Opened
from ..journals.default import choose
from ..kernel.load import load, read_run
from ..models.http.keys import keys_at_first_call
from .agent import journal_for, programs_workflow, take_up, take_workflow, where_it_is, workflow_from
from .main import DONE
from .messages import many, say, translated
from .records.runs import find
from .run import follow
from .terminal.questions import given_answers
from .terminal.screen import Screen
from .terminal.signals import to_the_end

_PICTURES = {"terminal": draw.terminal, "mermaid": draw.mermaid, "svg": draw.svg}


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    if given.action == "schema":
        screen.say(json.dumps(SCHEMA, indent=1, ensure_ascii=False))
        return DONE
    if given.action == "resume" or given.run:
        return to_the_end(lambda ending: _recorded(given, screen))
    given.workflow = given.what
    take_workflow(given)
    if not given.workflow and ":" not in (given.agent or ""):
        raise ConfigError(say("which workflow file?", "どのワークフローファイルですか?"))
    with nullcontext() if given.action == "run" else keys_at_first_call():  # to check and to draw calls no model
        made = workflow_from(given).check()
    if given.action == "check":
        count, name = len(made.graph.tasks), given.what or given.agent or made.name
        screen.say(say(f"{name}: {many(count, 'task')}, no mistakes", f"{name}: タスク {count} 個、誤りはありません"))
    elif given.action == "show":
        screen.say(_PICTURES[given.form](made.graph, told=translated))
    else:
        return to_the_end(lambda ending: _run(given, made, _params(given.param, made), screen))
    return DONE


async def _run(given: argparse.Namespace, made: Workflow, params: dict[str, Any], screen: Screen) -> int:
    stop = asyncio.Event()
    return await _follow(given, made, made.run(params, abort_event=stop), stop, screen)


async def _recorded(given: argparse.Namespace, screen: Screen) -> int:
    """Go on with a run, or show how far it is: by the file that its first fact names."""
    journal = choose(journal_for(given))
    run = await find(journal, given.run or given.what, "resume")
    first = (await read_run(journal, run.run_id, 1))[0].body
    take_up(given, first.recipe if isinstance(first, Opened) else {}, run.agent)
    if given.run and given.what:
        given.workflow = given.what
    if not getattr(given, "workflow", None) and programs_workflow(given) is None:
        raise ConfigError(say(f"{run.run_id} is no run of a workflow file", f"{run.run_id} はワークフローの実行ではありません"))
    made = workflow_from(given)
    if given.action == "show":
        screen.say(_PICTURES[given.form](made.graph, await made.progress(run.run_id), translated))
        return DONE
    stop, state = asyncio.Event(), await load(journal, run.run_id)
    answers = given_answers(given.answer, state.questions)
    return await _follow(given, made, made.resume(run.run_id, answers, abort_event=stop), stop, screen)


async def _follow(given: argparse.Namespace, made: Workflow, run: Any, stop: asyncio.Event, screen: Screen) -> int:
    try:
        code = await follow(made.agent, run, stop, screen, as_json=given.json, quiet=given.quiet, where=where_it_is(given))
        if not given.json and not given.quiet:
            screen.note(draw.terminal(made.graph, await made.progress(run.run_id), translated))
        return code
    finally:
        await made.agent.close()


def _params(given: list[str], workflow: Workflow) -> dict[str, Any]:
    """`--param name=value`: a text where a text is wanted, else as JSON."""
    made: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise ConfigError(say(f"--param is NAME=VALUE, not {one!r}", f"--param は 名前=値 です: {one!r}"))
        wanted = workflow.parameters["properties"].get(name, {}).get("type")
        try:
            made[name] = text if wanted == "string" else json.loads(text)
        except ValueError:
            made[name] = text
    return made
