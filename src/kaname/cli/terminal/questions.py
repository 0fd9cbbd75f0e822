"""Questions of a run at the terminal: read the answers. `chunks` shows the questions, and the policy that asks words them."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from ...agent.agent import Agent
from ...core.errors import InvalidState
from ...core.events import Asked
from ...core.install import this_command
from ...core.people.answers import ALWAYS, NO, YES, can_last, check_answer, normalize_answer, says
from ...core.values import read_json
from ...people.answers import is_expired
from ...run.result import Result
from ...run.run import Run
from ..messages import say, translate
from .screen import Screen

_ALWAYS = (ALWAYS, "常に", "いつも")


def can_ask() -> bool:
    """Return True if a person can be asked: standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_line(prompt: str, screen: Screen, colour: str = "yellow") -> str | None:
    """Ask for one line. Return None if the person does not want to answer (Ctrl-C, Ctrl-D)."""
    screen.note(prompt, colour, end="")
    loop = _running_loop()
    if loop is not None:
        loop.remove_signal_handler(signal.SIGINT)  # Ctrl-C belongs to the question now
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input().strip()
    except (EOFError, KeyboardInterrupt):
        screen.note("")
        return None
    finally:
        signal.signal(signal.SIGINT, before)


async def read_line_async(prompt: str, screen: Screen) -> str | None:
    """Ask for one line while the event loop runs. Return None for Ctrl-D. Ctrl-C stops the run, and the question with it."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def readable() -> None:
        if not line.done():
            line.set_result(sys.stdin.readline())  # a terminal passes whole lines

    screen.note(prompt, "yellow", end="")
    loop.add_reader(sys.stdin.fileno(), readable)
    try:
        text = await line
    finally:
        loop.remove_reader(sys.stdin.fileno())
        if not line.done() or line.cancelled() or not line.result():
            screen.note("")
    return text.strip() if text else None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def ask_yes_no(prompt: str, screen: Screen, *, by_default: bool = True, unanswered: str = "") -> bool:
    """Ask a question and return True for yes.

    `by_default`: the meaning of Enter alone. `unanswered`: printed if the input ends without an answer (Ctrl-D, Ctrl-C), which
    counts as a no.
    """
    answer = read_line(prompt if by_default else f"{prompt} [y/N] ", screen, "")
    if answer is None and unanswered:
        screen.note(unanswered, "yellow")
    return answer is not None and (says(answer) is True or (by_default and not answer))


def confirm(asked: str, screen: Screen) -> bool:
    """Ask before something is deleted for good, and return True for yes. Without a terminal, say that `-y` is needed."""
    if can_ask():
        message = say(
            "no answer, so nothing was deleted; -y skips the question", "回答がないため、削除していません。-y で確認を省けます"
        )
        return ask_yes_no(asked, screen, by_default=False, unanswered=message)
    screen.tell(
        "nothing was deleted: there is no terminal to ask in; -y skips the question",
        "削除していません。確認するためのターミナルがありません。-y で確認を省けます",
    )
    return False


def ask_the_user(result: Result, screen: Screen, shown: Collection[str] = (), by: str = "", where: str = "") -> dict[str, Any]:
    """Ask the questions of a run and return the answers by key; empty without a terminal or without an answer.

    `shown`: questions that are on the screen already. `by`: the person who answers, if it is not the one who started the run.
    `where`: the options of a command that finds the run.
    """
    if not can_ask():
        return {}
    answers: dict[str, Any] = {}
    for key, question in result.questions.items():
        alone = len(result.questions) == 1
        choices = (*question.options, *([ALWAYS] if can_last(question) else []))
        options = f"[{'/'.join(map(_option, choices))}] " if choices else "> "
        if alone and str(question.prompt) not in shown:
            screen.note(f"? {translate(question.prompt)}", "yellow")
        if question.by == "other" and not by:
            command = f"{this_command()} runs resume {result.run_id} --by NAME --answer '{key}=yes'{where}"
            screen.tell(f"another person must answer: {command}", f"別の人の回答が必要です: {command}", colour="yellow")
            continue
        if question.until:
            ends = f"{datetime.fromtimestamp(question.until).astimezone():%Y-%m-%d %H:%M:%S}"
            screen.tell(f"the question expires at {ends}", f"確認の期限: {ends}")
        answered = _read_answer(question, options if alone else f"{translate(question.prompt)} {options}", screen)
        if not answered:
            return {}
        answers[key] = answered[0]
    return answers


def _read_answer(question: Asked, prompt: str, screen: Screen) -> tuple[Any, ...]:
    """Read lines until one of them is an answer. Return nothing if the input ends first, or the question expires."""
    while (answer := read_line(prompt, screen)) is not None:
        if not answer and is_expired(question, time.time()):
            break
        if not answer:  # Enter by mistake; Ctrl-D leaves the question open
            continue
        try:
            return (check_answer(question, parse_answer(answer, question)),)
        except InvalidState as problem:  # ask once more: a typing error must not end the command
            screen.note(translate(problem), "red")
    return ()


def _option(option: str) -> str:
    """Return an option in the language of the user, if it is one of kaname."""
    return {YES: say("yes", "はい"), NO: say("no", "いいえ"), ALWAYS: say("always", "常に")}.get(option, option)


async def resume_with_answers(
    agent: Agent[Any],
    result: Result,
    screen: Screen,
    shown: Collection[str],
    stop: asyncio.Event,
    by: str = "",
    where: str = "",
) -> Run[Any] | None:
    """Ask the questions and resume the run.

    If an answer is refused, ask once more what is still open. If a question has expired, resume the run without an answer.
    Return None if the person does not answer, or if nothing is open any more.
    """
    while True:
        if _has_expired(result):
            message = say("the question has expired; the run continues", "確認の期限が過ぎたため、実行を続けます")
            screen.note(message, "yellow")
            return await agent.resume(result.run_id, abort_event=stop).begun()
        if not (answers := ask_the_user(result, screen, shown, by, where)):
            if _has_expired(result):
                continue
            return None
        try:
            return await agent.resume(result.run_id, answers, abort_event=stop, by=by).begun()
        except InvalidState as refused:
            screen.note(translate(refused), "red")
            result, shown = await agent.result(result.run_id), ()
            if result.stop.kind != "waiting":  # answered elsewhere, or stopped
                return None


def _has_expired(result: Result) -> bool:
    return any(is_expired(asked, time.time()) for asked in result.questions.values())


def parse_answer(answer: str, asked: Asked) -> Any:
    """Return the answer as an object if it is one ({"args": …}) or says "always" to an approval, otherwise as text."""
    if can_last(asked) and normalize_answer(answer) in _ALWAYS:
        return {"approved": True, "for": ALWAYS}
    if not answer.lstrip().startswith("{"):
        return answer
    try:
        return read_json(answer)
    except ValueError:
        return answer


def parse_answers(args: list[str], questions: Mapping[str, Asked]) -> dict[str, Any]:
    """Return the answers of the command line by key: `KEY=ANSWER` for one question, or one answer for all questions."""
    answers: dict[str, Any] = {}
    for one in args:
        key, equals, answer = one.partition("=")
        if equals and key in questions:
            answers[key] = parse_answer(answer, questions[key])
        else:
            answers |= {key: parse_answer(one, asked) for key, asked in questions.items() if key not in answers}
    return answers
