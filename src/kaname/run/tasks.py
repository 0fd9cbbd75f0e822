"""Work in the background: child runs that go on while their parent does, and even after it has ended.

A task is noted in the record of the run that started it, under `background:` and the id of the child. When it ends, the run
that has the conversation by then is told so by a message; its model collects the answer with the tool `tasks`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from logging import getLogger
from typing import Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

from ..core.errors import AgentError, ConfigError, JournalError, Released, RunBusy, RunNotFound, Suspend
from ..core.events import BACKGROUND, Asked, Interjected
from ..core.messages import ToolResult, user
from ..core.notices import notice
from ..core.record import replace
from ..core.runs import UNDER_WAY, RunInfo, as_title
from ..core.state import State
from ..core.values import plain_text
from ..kernel.alarms import Late, within
from ..kernel.load import load
from ..kernel.ports import Journal, ToolContext
from ..kernel.scope import Scope
from ..people.answers import AGAIN, Given, is_expired
from ..tools.definition import Doing
from .attach import stop_run
from .child import (
    Runnable,
    answers_for,
    fails_with_the_journal,
    keep_while_live,
    parent_of,
    question_as,
    recipe_within,
    seconds_so_far,
)
from .run import Run, find_live
from .turns import until_over

TASKS = "tasks"  # also in handoffs/handoff.py, which loads this only when it is used
_TOLD = "Started in the background. Go on with other work: you get a message when it ends. Keep track of it with `tasks`."
_ENDED = 'The task {task} ({agent}) in the background has ended. Collect its answer: tasks(action="collect", task="{task}").'

_PAUSE = 0.05  # seconds until a task that was busy is looked at again
_TO_STOP = 1.0  # seconds in which a journal says that a task is to stop
_HERE = "kaname: work in the background"  # the name of an asyncio task that executes it in this process
_keeping: set[asyncio.Task[None]] = set()
_listening: WeakValueDictionary[tuple[int, str], Scope] = WeakValueDictionary()  # who is told when a child of a journal ends


@runtime_checkable
class StartsTasks(Protocol):
    """A tool that starts work in the background."""

    def task_agent(self, name: str) -> Runnable:
        """Return the agent of a task by its name, to resume it after a restart."""
        ...


def open_tasks(state: State) -> dict[str, Mapping[str, Any]]:
    """Return the tasks of a conversation that were not collected yet, by the ids of their runs."""
    found = {key.removeprefix(BACKGROUND): value for key, value in state.custom.items() if key.startswith(BACKGROUND)}
    return {child_id: value for child_id, value in found.items() if not value.get("collected")}


async def start_task(tool: str, agent: Runnable, given: Any, context: ToolContext) -> ToolResult:
    """Start a child run that works in the background. It has begun, and is on disk, when this returns."""
    scope = _scope_of(context)
    child_id = f"{scope.run_id}/{context.call_id}/{agent.name}"
    if BACKGROUND + child_id not in scope.state.custom:
        noted = {"task": context.call_id, "tool": tool, "agent": agent.name, "about": as_title(plain_text(given))}
        await context.note(BACKGROUND + child_id, noted)
    _listening[id(scope.journal), child_id] = scope
    with fails_with_the_journal(scope, context.call_id):
        await _begin(scope, await _run_of(scope, child_id, agent, given, await answers_for(scope, child_id)))
    return ToolResult({"task": context.call_id, "status": "running", "note": _TOLD})


def _scope_of(context: ToolContext) -> Scope:
    scope = context.view
    if not isinstance(scope, Scope) or scope.open_child is None:
        raise ConfigError.of("child.not_here", "run_child() cannot be used in a replay")
    return scope


async def _run_of(scope: Scope, child_id: str, agent: Runnable, given: Any, answers: Mapping[str, Given]) -> Run[Any]:
    """Return the run of a child, within the limits of its parent."""
    parent_id, call_id, _ = child_id.rsplit("/", 2)
    parent = parent_of(scope, call_id)._replace(run_id=parent_id)  # an earlier run of the conversation may have started it
    known = await scope.journal.runs(run_id=child_id, limit=1)
    recipe = recipe_within(scope, child_id, agent.recipe, await seconds_so_far(scope, known), apart=True)
    return agent.run_on(scope.journal, recipe, child_id, given, answers, parent)


async def _begin(scope: Scope, run: Run[Any]) -> None:
    """Start a child, or resume it, and look after it until it ends or asks. Raise `Released` if the run is to end."""
    parent = find_live(scope.journal, scope.run_id)
    if scope.stopping or (parent is not None and parent.letting_go):  # perhaps while it is being opened
        raise Released
    keep_while_live(run, scope.tasks, scope.tasks)
    try:
        await run.begun()
    except RunBusy:
        look_after(_wait_elsewhere(scope, run.run_id))
        return
    except JournalError:  # it has no record of that
        raise
    except AgentError:  # in its own record
        pass
    except asyncio.CancelledError:  # the call was cut meanwhile, and says nothing of it
        if not scope.leaves_resumable():
            run.abort(notice("task.not_begun", "the call that starts it was cancelled"))
        raise
    run.detach()
    look_after(_wait_here(run, scope.journal), _HERE)


def look_after(work: Any, name: str | None = None) -> None:
    _keeping.add(task := asyncio.create_task(work, name=name))
    task.add_done_callback(_let_go)


def _let_go(task: asyncio.Task[None]) -> None:
    """Log how it failed: nobody awaits it. The task's record is safe, and the next run of its conversation reads that."""
    _keeping.discard(task)
    if not task.cancelled() and (problem := task.exception()) is not None:
        said = " | ".join(str(problem).splitlines())
        lost = "a task in the background cannot be followed any more; its record is safe: %s: %s"
        getLogger("kaname").warning(lost, type(problem).__name__, said)


async def _wait_here(run: Run[Any], journal: Journal) -> None:
    with suppress(AgentError):  # it has failed, and its record says how
        await run
    await _tell_of_end(journal, run.run_id)


async def _wait_elsewhere(scope: Scope, child_id: str) -> None:
    """Wait until nobody executes a task. If it has not ended then, it is resumed: who held it has died, or has only looked
    whether an answer fits. If the user wants it to stop, it is stopped; nobody else may have read that."""
    await asyncio.sleep(_PAUSE)
    await until_over(scope.journal, child_id)
    card, value = await _card(scope.journal, child_id), open_tasks(scope.state).get(child_id)
    if card is None or card.status != "interrupted" or value is None:
        await _tell_of_end(scope.journal, child_id)
        return
    with suppress(Late):
        reason = await within(_TO_STOP, scope.journal.asked_to_stop(child_id))
        await stop_run(scope.journal, child_id, reason)
        return
    if not scope.stopping and not scope.leaves_resumable():
        await _revive_task(scope, child_id, value)


async def _tell_of_end(journal: Journal, child_id: str) -> None:
    """Tell the run that has the conversation of a task that has ended, or asks. Without one, the next run looks itself."""
    scope = _listening.get((id(journal), child_id))
    if scope is not None and (card := await _card(journal, child_id)) is not None:
        await _hear(scope, card)


async def _hear(scope: Scope, card: RunInfo) -> None:
    value = open_tasks(scope.state).get(card.run_id)
    if value is None or value.get("told"):
        return
    if card.status == "waiting":
        state = await load(scope.journal, card.run_id)
        scope.inbox += [_question(scope, card.run_id, *one) for one in state.questions.items()]
    elif card.status not in UNDER_WAY:
        said = user(_ENDED.format(**value))
        scope.hear(Interjected(said, value["agent"], time.time(), id=BACKGROUND + card.run_id))


def _question(scope: Scope, child_id: str, key: str, asked: Asked) -> Suspend:
    """Return the question of a child as its parent asks it. It has a number if an answer could not be used."""
    name = own = f"{child_id}:{key}"
    times = 0
    while name in scope.state.answers:
        times += 1
        name = f"{own}{AGAIN}{times}"
    return question_as(name, asked)


async def _card(journal: Journal, run_id: str) -> RunInfo | None:
    return next(iter(await journal.runs(run_id=run_id, limit=1)), None)


async def revive(scope: Scope) -> None:
    """Look after the tasks of a conversation that a run continues: resume interrupted ones, and hear of those that ended."""
    for child_id, value in open_tasks(scope.state).items():
        _listening[id(scope.journal), child_id] = scope
        await _revive_task(scope, child_id, value)


async def _revive_task(scope: Scope, child_id: str, value: Mapping[str, Any]) -> None:
    if (card := await _card(scope.journal, child_id)) is None:  # the call that starts it is tried again
        return
    answers, expired = await _news_for(scope, child_id) if card.status in ("waiting", "interrupted") else ({}, False)
    ready = card.status == "waiting" and bool(answers or expired)
    if (work := find_live(scope.journal, child_id)) is not None and work.task is not None:
        if not ready:
            if work.letting_go:  # it only brought an answer
                look_after(_wait_elsewhere(scope, child_id))
            return
        await asyncio.wait([work.task])  # it has asked, and is about to rest
    if card.status == "running":
        look_after(_wait_elsewhere(scope, child_id))
    elif card.status == "interrupted" or ready:
        try:
            agent = _agent_of(scope, value)
        except ConfigError as gone:
            getLogger("kaname").warning("%s (run %s)", gone, scope.run_id)
            return
        with suppress(Released):
            await _begin(scope, await _run_of(scope, child_id, agent, "", answers))
    else:
        await _hear(scope, card)


async def _news_for(scope: Scope, child_id: str) -> tuple[dict[str, Given], bool]:
    """Return the answers to open questions of a task, and whether one of these has expired."""
    asked, given, now = (await load(scope.journal, child_id)).questions, await answers_for(scope, child_id), time.time()
    return {key: one for key, one in given.items() if key in asked}, any(is_expired(one, now) for one in asked.values())


async def hand_over(scope: Scope, answers: Mapping[str, Given]) -> None:
    """Record answers in the tasks that a run has left behind. What stands in the way is raised, such as `RunBusy`."""
    for child_id, value in open_tasks(scope.state).items():
        prefix = f"{child_id}:"
        given = {key.removeprefix(prefix): one for key, one in answers.items() if key.startswith(prefix)}
        if given:
            run = await _run_of(scope, child_id, _agent_of(scope, value), "", given)
            await run.let_go()


def _agent_of(scope: Scope, value: Mapping[str, Any]) -> Runnable:
    """Return the agent of a task, from the tool that started it. Raise `ConfigError` if there is no such tool."""
    for one in (scope.root, *scope.root.team.values()):
        tool = one.tools.get(value["tool"], None)
        if tool is not None and isinstance(tool, StartsTasks):
            return tool.task_agent(value["agent"])
    raise ConfigError.of("task.no_tool", "the tool {tool}, which started a task, no longer exists", tool=value["tool"])


async def stop_tasks(scope: Scope) -> None:
    """Stop what works in the background, because the run is stopped."""
    for child_id in open_tasks(scope.state):
        with suppress(RunNotFound):  # it has not begun
            await stop_run(scope.journal, child_id, notice("task.parent_stopped", "the run that started it was stopped"))


async def settle_tasks() -> None:
    """Wait until nothing works in the background in this event loop, which is about to close. Other processes go on."""
    loop = asyncio.get_running_loop()
    while mine := [task for task in _keeping if task.get_loop() is loop and task.get_name() == _HERE]:
        await asyncio.wait(mine)


class TaskList(Doing):
    """The tool with which the model lists, collects and stops what works in the background."""

    options = replace(Doing.options, listed=True)
    description = (
        "Keep track of work in the background. list: what there is, and how it stands. collect: wait for a task and get its "
        "answer. stop: stop a task."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["list", "collect", "stop"]},
            "task": {"type": "string", "description": "the id of the task, for collect and stop"},
        },
        "required": ["action"],
        "additionalProperties": False,
    }

    def __init__(self) -> None:
        super().__init__(TASKS)

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        scope = _scope_of(context)
        held = {key.removeprefix(BACKGROUND): value for key, value in scope.state.custom.items() if key.startswith(BACKGROUND)}
        if prepared["action"] == "list":
            return ToolResult([await self._line(scope, *one) for one in open_tasks(scope.state).items()])
        wanted = prepared.get("task", "")
        found = next(((child_id, value) for child_id, value in held.items() if wanted in (child_id, value["task"])), None)
        if found is None:
            known = ", ".join([value["task"] for value in held.values()]) or "-"
            told = notice("task.unknown", "there is no task {task!r}. Tasks: {known}", task=wanted, known=known)
            return ToolResult(error=told, not_run=True)
        if prepared["action"] == "stop":
            stopped = await stop_run(scope.journal, found[0])
            return ToolResult({"task": found[1]["task"], "status": "stopping" if stopped else "it had ended"})
        return await self._collect(scope, *found, context)

    async def _line(self, scope: Scope, child_id: str, value: Mapping[str, Any]) -> dict[str, Any]:
        card = await _card(scope.journal, child_id)
        return {
            **{name: value[name] for name in ("task", "agent", "about")},
            "status": "missing" if card is None else card.status,
        }

    async def _collect(self, scope: Scope, child_id: str, value: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Wait for a task. Its question is asked here, and its cost is this run's, once."""
        with fails_with_the_journal(scope, context.call_id):
            state = await self._finished_state(scope, child_id, value)
        for key, asked in state.questions.items():
            raise _question(scope, child_id, key, asked)
        if not value.get("collected"):
            await context.note(BACKGROUND + child_id, {**value, "told": True, "collected": True})
            scope.family(context.call_id).children[child_id] = state  # its limits have counted it already
        return _outcome(value["agent"], state)

    async def _finished_state(self, scope: Scope, child_id: str, value: Mapping[str, Any]) -> State:
        """Return the state of a task when it has ended, or asks. One that was interrupted is resumed."""
        while True:
            while (work := find_live(scope.journal, child_id)) is not None and work.task is not None:
                await asyncio.wait([work.task])
            await until_over(scope.journal, child_id)
            state = await load(scope.journal, child_id)
            if state.finished:
                return state
            answers = await answers_for(scope, child_id)
            await _begin(scope, await _run_of(scope, child_id, _agent_of(scope, value), "", answers))


def _outcome(agent: str, state: State) -> ToolResult:
    stop = state.stop
    if stop is not None and stop.kind in ("completed", "degraded"):
        return ToolResult(state.output)
    ended = "interrupted" if stop is None else stop.summary
    unfinished = notice("team.unfinished", "{to} did not finish ({ended})", to=agent, ended=ended)
    had = notice("team.it_had", "; its result so far: {output}", output=plain_text(state.output))
    return ToolResult(error=unfinished + had if state.output else unfinished)
