"""`kaname run`: run one task, show it, and return the exit code."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping
from threading import Timer

from ..agent.agent import Agent
from ..core.errors import AgentError
from ..core.install import this_command
from ..core.messages import Media
from ..core.values import plain_text
from ..run.result import Result, settle
from ..run.run import Run
from .agent import agent_from, input_for, take_workflow
from .main import DONE, FAILED, INTERRUPTED, USAGE, WAITING
from .messages import say, translate
from .messages.stops import stop_words
from .place import place_options, programs_workflow
from .terminal.attachments import attach_files, check_files
from .terminal.chunks import Show
from .terminal.questions import resume_with_answers
from .terminal.screen import Screen
from .terminal.signals import run_to_the_end

_CODES = {"completed": DONE, "degraded": DONE, "waiting": WAITING}


def main(args: argparse.Namespace) -> int:
    if args.batch:
        from .many.command import main as run_many

        return run_many(args)
    screen = Screen()
    words = " ".join(args.task)
    words = "" if words == "-" else words
    try:
        task = "\n\n".join([part for part in (words, _read_pipe(screen)) if part.strip()])
    except UnicodeDecodeError:
        screen.tell("standard input is not text (UTF-8)", "標準入力が UTF-8 のテキストではありません", colour="red")
        return USAGE
    take_workflow(args)
    flow = getattr(args, "workflow", None) or (args.agent and programs_workflow(args))
    if not task and not flow and not args.file:  # a workflow may need no parameters
        screen.tell('the task is missing: kaname run "…"', 'タスクを指定してください: kaname run "…"', colour="red")
        return USAGE
    return run_to_the_end(lambda ending: _main(args, task, screen))


def _read_pipe(screen: Screen) -> str:
    """Return the text on standard input. If nothing arrives for two seconds, say what is waited for."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    message = say(
        "reading standard input; end it with Ctrl-D, or start with < /dev/null",
        "標準入力を読み取っています。Ctrl-D で終わります (不要なら < /dev/null を付けてください)",
    )
    patience = Timer(2.0, screen.note, [message])
    patience.daemon = True
    patience.start()
    try:
        args = sys.stdin.buffer.read()
    except OSError:  # it cannot be read here
        return ""
    finally:
        patience.cancel()
    return args.decode()


async def _main(args: argparse.Namespace, task: str, screen: Screen) -> int:
    check_files(args.file)  # before a model is downloaded
    agent = agent_from(args, screen)
    try:
        stop = asyncio.Event()
        words = input_for(args, task)
        asked: list[str | Media] = [*([words] if words else []), *await attach_files(args.file)]
        run = agent.run(asked if args.file else words, session_id=args.session, abort_event=stop)
        return await follow(agent, run, stop, screen, as_json=args.json, quiet=args.quiet, where=place_options(args))
    finally:
        await agent.close()


def _note_end(result: Result, show: Show, screen: Screen, where: str, *, for_good: bool) -> None:
    """Say how the run ended or where it stands, and what can be done."""
    screen.note(_ended_line(result, show, where) if for_good else _last_line(result, show, where))
    for advice in _advice(result):
        screen.note(advice)


async def follow(
    agent: Agent,
    run: Run,
    stop: asyncio.Event,
    screen: Screen,
    *,
    as_json: bool,
    quiet: bool,
    where: str = "",
    by: str = "",
    earlier: Mapping[str, str] | None = None,
) -> int:
    """Show a run until its end. The first Ctrl-C stops the run in order and keeps its work; the second ends the program."""
    show = Show(screen, quiet=quiet, earlier=earlier)
    while True:
        _on_interrupt(stop)
        if agent.servers is not None:
            screen.doing = say("starting the tool servers", "ツールサーバーを起動中")
        try:
            async with screen.spinner():
                async for chunk in run:
                    screen.say(chunk.to_json()) if as_json else show.take(chunk)
                result: Result = await run
            going = None
            if result.stop.kind == "waiting" and not as_json:
                going = await resume_with_answers(agent, result, screen, show.asked, stop, by, where)
        except AgentError as problem:
            return _report_failure(problem, show, screen, as_json=as_json, where=where)
        if going is None:
            break
        run = going
    if not as_json:
        has_answer = result.stop.kind in ("completed", "degraded")
        show.finish(plain_text(result.output) if has_answer else "", result.citations)
        if not quiet or not has_answer:
            ended = not stop.is_set() and _has_ended_for_good(agent, result)
            _note_end(result, show, screen, where, for_good=ended)
    await _wait_for_background(stop, screen)
    interrupted = result.stop.kind == "cancelled" and stop.is_set()  # and not cancelled by the run itself: no plan was found
    return INTERRUPTED if interrupted else _CODES.get(result.stop.kind, FAILED)


async def _wait_for_background(stop: asyncio.Event, screen: Screen) -> None:
    """Wait until work in the background has ended or asks. Ctrl-C leaves it to the next run of the session, or to a worker."""
    settling, stopped = asyncio.ensure_future(settle()), asyncio.ensure_future(stop.wait())
    screen.doing = say("waiting for work in the background (Ctrl-C: leave it)", "バックグラウンド処理を待機中 (Ctrl-C: 終了)")
    async with screen.spinner():
        await asyncio.wait([settling, stopped], return_when=asyncio.FIRST_COMPLETED)
    for one in (settling, stopped):
        one.cancel()


def _report_failure(problem: AgentError, show: Show, screen: Screen, *, as_json: bool, where: str) -> int:
    show.finish()
    if as_json:
        screen.note(translate(problem), "red")
    elif not show.failed:
        screen.note(f"{say('failed', '失敗')}: {translate(problem)}", "red")
    if problem.run_id and not as_json:
        screen.note(f"[{show.spent()}; {problem.run_id}; {_resume_hint(problem.run_id, where=where)}]")
    return FAILED


def _last_line(result: Result, show: Show, where: str) -> str:
    if result.completed:
        return f"[{show.spent()}; {result.run_id}]"
    told = stop_words(result.stop.kind)
    how = f"{told}: {translate(result.stop.detail)}" if result.stop.detail and result.stop.kind != "waiting" else told
    if result.stop.kind == "degraded":
        return f"[{how}; {show.spent()}; {result.run_id}]"
    if result.state.seq == 0:  # the run never began and cannot be resumed
        return f"[{how}]"
    cut = [one.call.name for one in result.state.started.values() if one.effect in ("irreversible", "compensable")]
    if cut:
        names = ", ".join(dict.fromkeys(cut))
        how += say(
            f"; {names} was running and may have taken effect", f"。{names} は実行中でした。効果が出ている可能性があります"
        )
    spent = show.spent() if result.stop.kind != "cancelled" else f"{show.spent()}+"  # plus the interrupted call
    return f"[{how}; {spent}; {_resume_hint(result.run_id, result, where)}]"


def _advice(result: Result) -> list[str]:
    """Return lines with the calls that were not made, and advice for the user other than resuming the run."""
    if (partial := result.partial) is None or result.stop.kind == "waiting":
        return []
    names = ", ".join(dict.fromkeys([deed.tool for deed in partial.not_done]))
    left = [say(f"Not done: {names}", f"未実行: {names}")] if names else []
    return left + [
        translate(one) for one in partial.advice if getattr(one, "code", "") not in ("partial.resume", "partial.check")
    ]


def _has_ended_for_good(agent: Agent, result: Result) -> bool:
    """Return True if resuming would end in the same way: a workflow whose task failed, a planner that found no plan."""
    from ..strategies.graph.strategy import GraphStrategy
    from ..strategies.orchestrate import Orchestrate

    kinds = {"failed": GraphStrategy, "cancelled": Orchestrate}
    return result.stop.kind in kinds and isinstance(agent.recipe.strategy, kinds[result.stop.kind])


def _ended_line(result: Result, show: Show, where: str) -> str:
    """Return a line that says that the run has ended, with the command to fork it from before the end."""
    command = f"{this_command()} runs fork {result.run_id} --at FACT{where}"
    again = (
        say(
            f"the run has ended; to retry from before the failure: {command}",
            f"実行は終了しました。失敗の前からやり直すには: {command}",
        )
        if result.stop.kind == "failed"
        else say(
            f"the run has ended; to plan again from an earlier fact: {command}",
            f"実行は終了しました。前の記録から計画し直すには: {command}",
        )
    )
    return f"[{stop_words(result.stop.kind)}: {translate(result.stop.detail)}; {show.spent()}; {again}]"


def _resume_hint(run_id: str, result: Result | None = None, where: str = "") -> str:
    """Return the command that resumes the run, ready to be copied."""
    answer = ""
    if result is not None and result.questions:
        key, question = next(iter(result.questions.items()))
        wanted = question.options[0] if question.options and not question.in_doubt else "…"  # look up a call in doubt
        answer = f" --answer {wanted}" if len(result.questions) == 1 else f" --answer '{key}={wanted}' …"
        answer += " --by NAME" if question.by == "other" else ""
    command = f"{this_command()} runs resume {run_id}{answer}{where}"
    return say(f"to continue: {command}", f"続けるには: {command}")


def _on_interrupt(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    if not stop.is_set():
        loop.add_signal_handler(signal.SIGINT, first)
