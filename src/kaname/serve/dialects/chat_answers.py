"""Answers in words: find the question that a conversation ends with, and read the answer of the user.

Chat completions have no ids for questions, and messages of Vercel have none for questions that are not about a tool. So a
question that is shown as a text ends with a code (`question_in_words`), which the client sends back with the conversation. The
code names one question of one run: two conversations that read the same answer two runs. A text without the code of an open
question of the same user and agent answers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...agent.agent import Agent
from ...core.errors import InvalidState
from ...core.events import Asked
from ...core.messages import Message
from ...core.notices import notice
from ...core.people.answers import check_answer, is_yes_or_no, says
from ...core.people.asking import question_in_words, run_code
from ...core.runs import RunInfo
from ..forms import require
from ..language import in_language
from ..service import Service
from ..users import Caller

_PAGE = 500  # waiting runs of one user that are looked at together


class ChatAnswer(NamedTuple):
    """An answer in words to a question of a waiting run.

    `unclear`: why the question is asked once more; then nothing is answered.
    """

    card: RunInfo
    question: Asked
    text: str
    unclear: str = ""

    @property
    def answer(self) -> dict[str, str]:
        """Return the answer by the key of its question."""
        return {self.question.key: self.text}


def counts_as_answer(found: ChatAnswer, caller: Caller) -> bool:
    """Return True if the message is used as an answer.

    A caller without `approve` can still talk about something else: only a clear answer is refused (`HttpRefused`).
    """
    if not caller.may("approve") and (found.unclear or not found.question.options):
        return False
    require(caller, "approve")
    return True


async def find_answer(service: Service, agent: Agent[Any], user: str, messages: Sequence[Message]) -> ChatAnswer | None:
    """Return the answer that a conversation ends with, or None."""
    shown = _last_words(messages[:-1])
    before = 0
    while shown and (cards := await service.journal.runs(
        status="waiting", agent=agent.name, user=user, before=before, limit=_PAGE
    )):  # fmt: skip
        before = cards[-1].place
        for card in cards:
            named = not card.parent and run_code(card.run_id) in shown
            if named and (question := await _question(service, card, shown)) is not None:
                text = messages[-1].text.strip()
                return ChatAnswer(card, question, text, _why_unclear(question, text))
    return None


def _last_words(messages: Sequence[Message]) -> str:
    """Return the text of the message before the user's, if the assistant wrote it. Calls and results are passed over."""
    spoken = [one for one in messages if one.role == "user" or (one.role == "assistant" and one.text.strip())]
    return spoken[-1].text.strip() if spoken and spoken[-1].role == "assistant" else ""


async def _question(service: Service, card: RunInfo, shown: str) -> Asked | None:
    """Return the open question that was shown last."""
    result = await service.agent_result(card.run_id)
    asked = result.questions.values() if result.stop.kind == "waiting" else ()
    texts = [(one, question_in_words(card.run_id, one)) for one in asked]
    return next((one for one, text in texts for how in ("", "ja") if shown.endswith(in_language(text, how).strip())), None)


def _why_unclear(asked: Asked, text: str) -> str:
    """Return the reason that an answer is not accepted, or "" if it is. In a chat, only a clear yes or no decides."""
    if is_yes_or_no(asked.options) and not asked.in_doubt and says(text) is None:
        return notice("serve.yes_or_no", "Please answer yes or no first.")
    try:
        check_answer(asked, text or None)
    except InvalidState as unclear:
        return str(unclear)
    return ""
