"""Answers in words: find the run whose question a conversation ends with, and read the answer of the user.

Chat completions have no ids for questions, and messages of Vercel have none for questions that are not about a tool: each
request holds the whole conversation. So a run is found by its messages: it waits, it belongs to the same user and agent, it
began with exactly these messages, and the last message of the assistant ends with one of its questions. A conversation that is
longer, or whose beginning the client has cut off, may be another one: it answers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...agent.agent import Agent
from ...agent.opening.entrance import Origin, admit
from ...agent.result import Result
from ...agent.run import Run
from ...core.errors import InvalidState
from ...core.events import Asked
from ...core.messages import Media, Message
from ...core.notices import notice
from ...core.people.answers import check_answer, is_yes_or_no, says
from ...core.people.asking import question_text
from ...core.runs import RunInfo
from ..forms import require
from ..service import Service
from ..users import Caller
from .conversation import called_and_asked, is_question
from .transcript import question_of

_MOST = 50  # waiting runs of one user that are looked at, the newest first
Utterance = tuple[str, str, tuple[Media, ...]]  # role, text, media


class ChatAnswer(NamedTuple):
    """An answer in words to a question of a waiting run.

    `unclear`: why the question is asked once more; then nothing is answered.
    """

    card: RunInfo
    question: Asked
    text: str
    unclear: str = ""
    twins: tuple[RunInfo, ...] = ()  # older runs with the same conversation: a client has sent the request twice


def counts_as_answer(found: ChatAnswer, caller: Caller) -> bool:
    """Return True if the message is used as an answer.

    A caller without `approve` can still talk about something else: only a clear answer is refused (`HttpRefused`).
    """
    if not caller.may("approve") and (found.unclear or not found.question.options):
        return False
    require(caller, "approve")
    return True


async def resume_with(service: Service, agent: Agent[Any], found: ChatAnswer, by: str) -> Run[Any]:
    """Resume the run with the answer. Its twins are stopped first, so that one yes allows one call."""
    await service.auditor.require_log()
    for twin in found.twins:
        told = notice("serve.asked_twice", "the same conversation was answered in run {run}", run=found.card.run_id)
        await service.stop(twin, told)
    return agent.resume(found.card.run_id, {found.question.key: found.text}, by=by)


async def find_answer(service: Service, agent: Agent[Any], user: str, messages: Sequence[Message]) -> ChatAnswer | None:
    """Return the answer that a conversation ends with, or None."""
    *before, last = _spoken_messages(messages[:-1]) or [("", "", ())]
    if last[0] != "assistant":
        return None
    shown, text = last[1], messages[-1].text.strip()
    known: list[tuple[RunInfo, Asked]] = []
    waiting = await service.journal.runs(status="waiting", agent=agent.name, user=user, limit=_MOST)
    if waiting:  # a run has recorded its messages as the agent's policies want them, and pictures as its model takes them
        admitted = [await admit(one, agent.recipe, Origin(user)) for one in messages[:-1]]
        before = _spoken_messages(admitted)[: len(before)]
    for card in waiting:
        if not card.parent and (question := await _question(service, card, before, shown)) is not None:
            known.append((card, question))
    if not known:
        return None
    (card, question), *older = known
    twins, began = [twin for twin, _ in older], _opening_messages(await service.agent_result(card.run_id))
    for other in await service.journal.runs(status="running", agent=agent.name, user=user, limit=_MOST):
        if not other.parent and _opening_messages(await service.agent_result(other.run_id)) == began:
            twins.append(other)
    return ChatAnswer(card, question, text, _why_unclear(question, text), tuple(twins))


async def _question(service: Service, card: RunInfo, before: list[Utterance], shown: str) -> Asked | None:
    """Return the open question that was shown last, if the run began with what was said before."""
    result = await service.agent_result(card.run_id)
    if result.stop.kind != "waiting":
        return None
    found = [one for one in result.questions.values() if _ends_with(shown, question_text(one))]
    if not found:
        return None
    told = await called_and_asked(service, card.run_id, card.seq)
    asked = [question_text(question_of(one)) for one in told if is_question(one)]
    answered = sum([one.data.get("status") == "answered" for one in told])
    while [one[0] for one in before[-2:]] == ["assistant", "user"] and any(_ends_with(before[-2][1], one) for one in asked):
        before = before[:-2]  # a question of the same run, and its answer
        answered -= 1
    if answered > 0:  # the same request has already answered an identical question
        return None
    return found[0] if before == _opening_messages(result) else None


def _opening_messages(result: Result[Any]) -> list[Utterance]:
    """Return the messages that the run began with."""
    return _spoken_messages(result.state.messages[: result.state.turn_start + 1])


def _spoken_messages(messages: Sequence[Message]) -> list[Utterance]:
    """Return the messages of the user and the assistant, without calls and results.

    The system prompt is left out, because it may change between requests, with the time of day for example.
    """
    said = [(one.role, one.text.strip(), tuple([part for part in one.parts if type(part) is Media])) for one in messages]
    return [one for one in said if one[0] == "user" or (one[0] == "assistant" and one[1])]


def _ends_with(shown: str, question: str) -> bool:
    return shown.endswith(question.strip())


def _why_unclear(asked: Asked, text: str) -> str:
    """Return why the answer is not accepted; empty if it is. In a chat, only a clear yes or no decides."""
    if is_yes_or_no(asked.options) and not asked.in_doubt and says(text) is None:
        return notice("serve.yes_or_no", "Please answer yes or no first.")
    try:
        check_answer(asked, text or None)
    except InvalidState as unclear:
        return str(unclear)
    return ""
