"""`kaname run`: one task, from the first word to the exit code."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from threading import Timer

from ..api.agent import Agent
from ..api.result import Result
from ..api.run import Run
from ..core.errors import AgentError
from ..core.install import this_command
from ..core.values import plain_text
from .agent import agent_from, input_for, programs_workflow, take_workflow, where_it_is
from .main import DONE, FAILED, INTERRUPTED, USAGE, WAITING
from .messages import say, translated
from .messages.stops import told_stop
from .terminal.chunks import Show
from .terminal.questions import resume_with_answers
from .terminal.screen import Screen
from .terminal.signals import to_the_end

_CODES = {"completed": DONE, "degraded": DONE, "waiting": WAITING}


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    words = " ".join(given.task)
    words = "" if words == "-" else words
    try:
        task = "\n\n".join([part for part in (words, _piped(screen)) if part.strip()])
    except UnicodeDecodeError:
        screen.note(say("standard input is not text (UTF-8)", "標準入力が UTF-8 のテキストではありません"), "red")
        return USAGE
    take_workflow(given)
    flow = getattr(given, "workflow", None) or (given.agent and programs_workflow(given))
    if not task and not flow:  # a workflow may need no parameters
        screen.note(say('what is to be done? kaname run "…"', 'タスクを指定してください: kaname run "…"'), "red")
        return USAGE
    return to_the_end(lambda ending: _main(given, task, screen))


def _piped(screen: Screen) -> str:
    """What was piped in. Where nothing comes and nothing ends, it is said what is being waited for."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    told = say("reading standard input; end it, or start with < /dev/null", "標準入力を読んでいます (不要なら < /dev/null)")
    patience = Timer(2.0, screen.note, [told])
    patience.daemon = True
    patience.start()
    try:
        given = sys.stdin.buffer.read()
    except OSError:  # it cannot be read here
        return ""
    finally:
        patience.cancel()
    return given.decode()


async def _main(given: argparse.Namespace, task: str, screen: Screen) -> int:
    agent = agent_from(given, screen)
    try:
        stop = asyncio.Event()
        run = agent.run(input_for(given, task), session_id=given.session, abort_event=stop)
        return await follow(agent, run, stop, screen, as_json=given.json, quiet=given.quiet, where=where_it_is(given))
    finally:
        await agent.close()


async def follow(
    agent: Agent, run: Run, stop: asyncio.Event, screen: Screen, *, as_json: bool, quiet: bool, where: str = ""
) -> int:
    """Show a run to its end. Ctrl-C ends it in order and keeps what it has; a second one ends the program."""
    show = Show(screen, quiet=quiet)
    while True:
        _on_interrupt(stop)
        if agent.servers is not None:
            screen.doing = say("starting the tool servers", "ツールサーバーを起動中")
        try:
            async with screen.waiting():
                async for chunk in run:
                    screen.say(chunk.to_json()) if as_json else show.take(chunk)
                result: Result = await run
            going = None
            if result.stop.kind == "waiting" and not as_json:
                going = await resume_with_answers(agent, result, screen, show.asked, stop)
        except AgentError as problem:
            return _failed(problem, show, screen, as_json=as_json, where=where)
        if going is None:
            break
        run = going
    if not as_json:
        show.finish(plain_text(result.output) if result.stop.kind in ("completed", "degraded") else "", result.citations)
        if not quiet or result.stop.kind not in ("completed", "degraded"):
            ended = not stop.is_set() and _has_ended_for_good(agent, result)
            screen.note(_ended_line(result, show, where) if ended else _last_line(result, show, where))
    interrupted = result.stop.kind == "cancelled" and stop.is_set()  # and not by the run itself: a plan that cannot be made
    return INTERRUPTED if interrupted else _CODES.get(result.stop.kind, FAILED)


def _failed(problem: AgentError, show: Show, screen: Screen, *, as_json: bool, where: str) -> int:
    show.finish()
    if as_json:
        screen.note(translated(problem), "red")
    elif not show.failed:
        screen.note(f"{say('failed', '失敗')}: {translated(problem)}", "red")
    if problem.run_id and not as_json:
        screen.note(f"[{show.spent()}; {problem.run_id}; {_to_go_on(problem.run_id, where=where)}]")
    return FAILED


def _last_line(result: Result, show: Show, where: str) -> str:
    if result.completed:
        return f"[{show.spent()}; {result.run_id}]"
    told = told_stop(result.stop.kind)
    how = f"{told}: {translated(result.stop.detail)}" if result.stop.detail and result.stop.kind != "waiting" else told
    if result.stop.kind == "degraded":
        return f"[{how}; {show.spent()}; {result.run_id}]"
    if result.state.seq == 0:  # it never began, and there is nothing to go on with
        return f"[{how}]"
    cut = [one.call.name for one in result.state.started.values() if one.effect in ("irreversible", "compensable")]
    if cut:
        names = ", ".join(dict.fromkeys(cut))
        how += say(
            f"; {names} was under way and may have taken effect", f"。{names} は実行中でした。効果が出ている可能性があります"
        )
    spent = show.spent() if result.stop.kind != "cancelled" else f"{show.spent()}+"  # of what was broken off nobody knows
    return f"[{how}; {spent}; {_to_go_on(result.run_id, result, where)}]"


def _has_ended_for_good(agent: Agent, result: Result) -> bool:
    """True if resuming would only end it in the same way: a workflow whose task failed, a planner that found no plan."""
    from ..strategies.graph.strategy import GraphStrategy
    from ..strategies.orchestrate import Orchestrate

    kinds = {"failed": GraphStrategy, "cancelled": Orchestrate}
    return result.stop.kind in kinds and isinstance(agent.recipe.strategy, kinds[result.stop.kind])


def _ended_line(result: Result, show: Show, where: str) -> str:
    """Say why the run has ended, and how to fork it from before that: it is not tried again."""
    command = f"{this_command()} runs fork {result.run_id} --at FACT{where}"
    again = (
        say(f"it has ended; from before the failure: {command}", f"終了しました。失敗の前からやり直すには: {command}")
        if result.stop.kind == "failed"
        else say(
            f"it has ended; to plan again from an earlier fact: {command}",
            f"終了しました。前の記録から計画し直すには: {command}",
        )
    )
    return f"[{told_stop(result.stop.kind)}: {translated(result.stop.detail)}; {show.spent()}; {again}]"


def _to_go_on(run_id: str, result: Result | None = None, where: str = "") -> str:
    """The command that goes on, ready to be copied."""
    answer = ""
    if result is not None and result.questions:
        key, question = next(iter(result.questions.items()))
        wanted = question.options[0] if question.options and not question.in_doubt else "…"  # that one is to be looked up
        answer = f" --answer {wanted}" if len(result.questions) == 1 else f" --answer '{key}={wanted}' …"
    command = f"{this_command()} runs resume {run_id}{answer}{where}"
    return say(f"to go on: {command}", f"続けるには: {command}")


def _on_interrupt(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    if not stop.is_set():
        loop.add_signal_handler(signal.SIGINT, first)
