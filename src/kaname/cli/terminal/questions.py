"""What a run asks the person at the terminal: typed here, shown by `chunks`, worded by the policy that asks."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Collection, Mapping
from typing import Any

from ...api.agent import Agent
from ...api.result import Result
from ...api.run import Run
from ...core.errors import InvalidState
from ...core.events import Asked
from ...core.people.answers import NO, YES, fitting, says
from ...core.values import read_json
from ..messages import say, translated
from .screen import Screen


def somebody_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def typed(prompt: str, screen: Screen, colour: str = "yellow") -> str | None:
    """One line. `None`: the person would rather not answer (Ctrl-C, Ctrl-D)."""
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


async def typed_line(prompt: str, screen: Screen) -> str | None:
    """One line, while the loop goes on: a Ctrl-C ends what is under way, and the question with it. `None`: Ctrl-D."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def readable() -> None:
        if not line.done():
            line.set_result(sys.stdin.readline())  # a terminal hands over whole lines

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


def yes(prompt: str, screen: Screen, *, by_default: bool = True, unanswered: str = "") -> bool:
    """Ask for a yes or a no. `by_default`: what Enter alone means. `unanswered`: what to say if the input ends without an
    answer (Ctrl-D, Ctrl-C, a terminal that nobody types at); that counts as a no."""
    answer = typed(prompt if by_default else f"{prompt} [y/N] ", screen, "")
    if answer is None and unanswered:
        screen.note(unanswered, "yellow")
    return answer is not None and (says(answer) is True or (by_default and not answer))


def confirmed(asked: str, screen: Screen) -> bool:
    """Before something is deleted for good: a person says yes, or whoever wrote the command said it with -y."""
    if somebody_is_there():
        told = say("no answer: nothing was deleted; -y does without", "回答がないため、削除していません。-y で確認を省けます")
        return yes(asked, screen, by_default=False, unanswered=told)
    screen.note(
        say(
            "nothing was deleted: nobody is there to be asked; -y does without",
            "削除していません。確認できないので -y が必要です",
        )
    )
    return False


def ask_the_user(result: Result, screen: Screen, shown: Collection[str] = ()) -> dict[str, Any]:
    """The answers of the person at the terminal. `shown`: questions that stand on the screen already."""
    if not somebody_is_there():
        return {}
    answers: dict[str, Any] = {}
    for key, question in result.questions.items():
        alone = len(result.questions) == 1
        options = f"[{'/'.join(map(_option, question.options))}] " if question.options else "> "
        if alone and str(question.prompt) not in shown:
            screen.note(f"? {translated(question.prompt)}", "yellow")
        while key not in answers:
            answer = typed(options if alone else f"{translated(question.prompt)} {options}", screen)
            if answer is None:
                return {}
            if not answer:  # a slip of the finger; Ctrl-D leaves the question open
                continue
            try:
                answers[key] = fitting(question, understood(answer))
            except InvalidState as problem:  # asked once more: a slip must not end the command
                screen.note(translated(problem), "red")
    return answers


def _option(option: str) -> str:
    """An answer to choose, in the user's language where it is kaname's own."""
    return {YES: say("yes", "はい"), NO: say("no", "いいえ")}.get(option, option)


async def resume_with_answers(
    agent: Agent[Any], result: Result, screen: Screen, shown: Collection[str], stop: asyncio.Event
) -> Run[Any] | None:
    """Ask the person at the terminal, and resume the run. An answer that is refused is asked for once more.

    Returns None if the person does not answer.
    """
    while answers := ask_the_user(result, screen, shown):
        try:
            return await agent.resume(result.run_id, answers, abort_event=stop).begun()
        except InvalidState as refused:
            screen.note(translated(refused), "red")
            shown = ()
    return None


def understood(answer: str) -> Any:
    """An object where one was written ({"args": …}), else the words."""
    if not answer.lstrip().startswith("{"):
        return answer
    try:
        return read_json(answer)
    except ValueError:
        return answer


def given_answers(given: list[str], questions: Mapping[str, Asked]) -> dict[str, Any]:
    """From the command line: `KEY=ANSWER` for one question, or one answer for all that is asked."""
    answers: dict[str, Any] = {}
    for one in given:
        key, equals, answer = one.partition("=")
        if equals and key in questions:
            answers[key] = understood(answer)
        else:
            answers |= dict.fromkeys([key for key in questions if key not in answers], understood(one))
    return answers
