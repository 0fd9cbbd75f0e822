"""`Lessons`: tell the model what was learned from earlier runs, when it concerns the task. A part of an agent's context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...core.errors import ConfigError
from ...core.messages import Message, system
from ...core.notices import notice
from ...core.runs import EVALUATION_PREFIX, LESSONS
from ...kernel.bases import ContextBase
from ...kernel.boundary import Failure, attempt
from .book import Lesson, LessonBook
from .history import is_correction

if TYPE_CHECKING:
    from ...kernel.scope import Scope
    from ...kernel.view import RunView

_MOST = 5  # lessons that a task is told
_HEAD = "Lessons from earlier runs:"
LessonMode = Literal["off", "suggest", "apply"]


class Lessons(ContextBase):
    """Learn from failed runs and corrections, and tell the model what is known to help.

    Args:
        mode: "suggest" (default) suggests lessons, and tells the model those that a person has approved. "apply" also tells
            those that a trial has shown to help, if kaname wrote them by its rules. "off" does neither.
        only: Tell exactly these lessons, in every task, and learn nothing. Trials use it.

    Raises:
        ConfigError: If the mode is another word.
    """

    def __init__(self, mode: LessonMode = "suggest", *, only: Sequence[Lesson] | None = None) -> None:
        if mode not in ("off", "suggest", "apply"):
            raise ConfigError.of("lessons.mode", "the mode of lessons must be off, suggest or apply, not {mode!r}", mode=mode)
        self.mode, self._only = mode, only
        self.identity = "" if only is None else "\n".join([one.advice for one in only])

    async def __call__(self, messages: Sequence[Message], view: RunView) -> Sequence[Message]:
        if self.mode == "off":
            return messages
        told = await view.recall(f"{LESSONS}:{view.agent.name}:{view.place(self)}", lambda: self._choose(view), turn=True)
        if not told["lines"]:
            return messages
        head = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
        listed = "\n".join([_HEAD, *[f"- {line}" for line in told["lines"]]])
        return [system("\n\n".join([*[one.text for one in messages[:head]], listed])), *messages[head:]]

    async def _choose(self, view: RunView) -> dict[str, Any]:
        if self._only is not None:
            chosen = [*self._only]
        else:
            question, tools = view.state.question, view.agent.tools
            task = question.text if question is not None else ""
            found = await attempt(LessonBook(view.journal).of, view.agent.name, view.state.user, passing=())
            if isinstance(found, Failure):  # an answer without lessons is better than none
                await view.warn(LESSONS, notice("warning.lessons", "lessons could not be read: {problem}", problem=str(found)))
                found = []
            chosen = [one for one in found if one.is_told(self.mode) and one.fits(task)]
            chosen = [one for one in chosen if one.cause == "wrong arguments" or not one.tool or one.tool in tools]
        lines = [" ".join(str(one.advice).split()) for one in chosen]  # several users can have shared the same advice
        kept = [*dict.fromkeys(lines)][-(_MOST if self._only is None else len(lines)) :]
        return {"ids": [one.id for one, line in zip(chosen, lines, strict=True) if line in kept], "lines": kept}

    async def ended(self, scope: Scope) -> None:
        """Look for lessons after a run that failed, or in which the user corrected the run before."""
        state, stop = scope.state, scope.state.stop
        if self.mode == "off" or self._only is not None or scope.run_id.startswith(EVALUATION_PREFIX):
            return
        question = state.question.text if state.question is not None else ""
        if (stop is not None and stop.kind not in ("completed", "cancelled")) or is_correction(question):
            from .propose import learn_lessons  # slow to load, and rarely needed

            await learn_lessons(scope.journal, scope.root.name, state.user)
