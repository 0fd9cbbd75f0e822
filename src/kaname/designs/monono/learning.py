"""`LearningEngine` of MONONO 3.10: patterns of success, improvements after failures, and answers as the user likes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, cast, get_args

from ...core.notices import join_notices, notice
from ...core.runs import EVALUATION_PREFIX
from ...kernel.threads import off_loop
from ...memory.files import MemoryFiles
from ...memory.lessons.history import Cause, PastRun, UsedTool
from ...memory.lessons.patterns import SuccessPattern, find_patterns, group_failures, is_same_kind
from ...memory.lessons.propose import suggest
from ...memory.memory import Memory
from ...memory.preferences import preferences_in
from ...run.input import check_argument
from .checks import check_method

if TYPE_CHECKING:
    from ...kernel.scope import Scope
    from ...kernel.view import RunView

_NOTES, _MOST = "learning", 300  # the name of the notes, and how many tasks of a user are kept


class LearningEngine(Memory):
    """Learns from tasks: from those that your program reports, and from the runs of an agent: `Agent(…, context=[engine])`.

    Such an agent is told the user's profile, and, if tasks of this kind have failed before, `suggest_improvements`. After each
    run `track_success_patterns` is called. A subclass can override all three methods. What is learned is kept in the folder,
    and belongs to a user. To try changes before they are used, see `kaname learn` and `Lessons`.

    Args:
        memory: The folder of memories, or `Memory` (default: the folder of this program).
    """

    def __init__(self, memory: Any = None) -> None:
        _check(memory is None or isinstance(memory, str | PathLike | MemoryFiles), "memory", "a folder or a Memory", memory)
        check_method(self, "track_success_patterns", "task_description", "approach_details", "was_successful")
        check_method(self, "suggest_improvements", "failed_task_context")
        check_method(self, "personalize_responses", "user_id", "interaction_history", "preferences")
        super().__init__(memory.folder if isinstance(memory, MemoryFiles) else memory)

    async def gather(self, said: str, view: RunView, trouble: list[str]) -> list[str]:
        """Return the lines that the model is told: the profile, memories, and advice on tasks that have failed before."""
        user = view.state.user
        profile: Mapping[str, str] | None = await off_loop(self.personalize_responses, user, [said], {})
        lines = await super().gather(said, view, trouble)
        lines += [line for about, text in (profile or {}).items() if (line := f"- {about}: {text}") not in lines]
        if [one for one in await off_loop(self._like, said, user) if one.cause]:
            lines.append(f"- {await off_loop(self.suggest_improvements, {'task': said, 'user': user})}")
        return lines

    async def ended(self, scope: Scope) -> None:
        await super().ended(scope)
        state, stop = scope.state, scope.state.stop
        if state.question is None or stop is None or stop.kind == "cancelled" or scope.run_id.startswith(EVALUATION_PREFIX):
            return
        names = [call.name for message in state.messages[state.turn_start :] for call in message.calls]
        details = {"tools": names, "user": state.user}
        task = "" if stop.blocks_input else state.question.text
        store = self.of(state.user)
        before = store.notes(_NOTES)
        await off_loop(self.track_success_patterns, task, details, stop.kind == "completed")
        if store.notes(_NOTES) == before:  # a method of one's own need not keep it, and failures are looked up by it
            await off_loop(self._keep, task, details, stop.kind == "completed")

    def track_success_patterns(
        self, task_description: str, approach_details: Any, was_successful: bool, user_feedback: str | None = None
    ) -> list[SuccessPattern]:
        """Record how a task was done, and return which tools in which order have done tasks of this kind.

        Args:
            task_description: What was to be done.
            approach_details: The names of the tools in their order, or a mapping with them under `tools`, and the `user`.
            was_successful: Whether it succeeded.
            user_feedback: What the user said about it. Feedback on a failure is what `suggest_improvements` quotes first.
        """
        user = self._keep(task_description, approach_details, was_successful, user_feedback)
        return find_patterns(self._like(task_description, user), 1)

    def _keep(
        self, task_description: str, approach_details: Any, was_successful: bool, user_feedback: str | None = None
    ) -> str:
        """Keep what came of a task, and return its user."""
        used = approach_details.get("tools", ()) if isinstance(approach_details, Mapping) else approach_details
        _check(isinstance(task_description, str), "task_description", "a text", task_description)
        _check(used is None or isinstance(used, Iterable), "approach_details", "a list of tools", approach_details)
        names = [used] if isinstance(used, str) else [str(one) for one in used or ()]
        failed: Cause = "" if was_successful else "user unhappy" if user_feedback else "limit"
        user = str(approach_details.get("user") or "") if isinstance(approach_details, Mapping) else ""
        store, task = self.of(user), [task_description, names, failed, user_feedback or ""]
        store.note(_NOTES, {f"{time.time_ns():020}": json.dumps(task, ensure_ascii=False)})
        store.note(_NOTES, dict.fromkeys([*store.notes(_NOTES)][:-_MOST]))
        return user

    def suggest_improvements(self, failed_task_context: Mapping[str, Any] | str) -> str:
        """Return advice for a task that failed: what users said, and the tools that have done such tasks.

        Args:
            failed_task_context: The task, or a mapping with `task` (or `task_description`), and if it is known `user`,
                `tool`, and `cause`: one of those that `kaname learn failures` shows, such as "tool error".
        """
        what = "a text, or a mapping with a task"
        _check(isinstance(failed_task_context, str | Mapping), "failed_task_context", what, failed_task_context)
        given: Mapping[str, Any] = {"task": failed_task_context}
        given = failed_task_context if isinstance(failed_task_context, Mapping) else given
        task = str(given.get("task") or given.get("task_description") or "")
        tool, cause = str(given.get("tool") or ""), cast(Cause, given.get("cause") or "limit")
        _check(cause in get_args(Cause), 'failed_task_context["cause"]', f"one of {', '.join(get_args(Cause)[1:])}", cause)
        failed = PastRun("now", "", "", "", 0.0, task, (), cause, tool, offered=(tool,))
        like = self._like(task, str(given.get("user") or ""))
        parts = [one.advice for group in group_failures([one for one in like if one.note]) for one in suggest(group, like)]
        (group,) = group_failures([failed, failed])
        parts += [lesson.advice for lesson in suggest(group, like)]
        return join_notices(" ", parts) if parts else notice("learning.nothing", "Nothing is known about such failures yet.")

    def personalize_responses(
        self, user_id: str, interaction_history: Iterable[Any] = (), preferences: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Store how a user wants to be answered, and return their profile. Agents with `Memory` are told it.

        Args:
            user_id: The user.
            interaction_history: What the user said: texts, or messages with `content`. Wishes for all answers are looked for
                in it, and kept in the user's words.
            preferences: Entries that the user has set, such as `{"language": "日本語"}`. They go before what is learned.
        """
        _check(isinstance(user_id, str), "user_id", "a text", user_id)
        listed = isinstance(interaction_history, Iterable) and not isinstance(interaction_history, str | Mapping)
        _check(listed, "interaction_history", "a list of texts or messages", interaction_history)
        _check(preferences is None or isinstance(preferences, Mapping), "preferences", "a mapping", preferences)
        store = self.of(user_id)
        for one in interaction_history:
            said = one.get("content", "") if isinstance(one, Mapping) and one.get("role", "user") == "user" else one
            for about, words in preferences_in(said if isinstance(said, str) else "").items():
                store.add(f'"{words}"', "profile", about=about, run="history")
        for about, value in (preferences or {}).items():
            store.add(str(value), "profile", about=about)
        return {one.about: one.text for one in store.profile()}

    def _like(self, task: str, user: str) -> list[PastRun]:
        """Return the tasks of a user that are of the kind of a task."""
        kept = [(key, *json.loads(value)) for key, value in self.of(user).notes(_NOTES).items()]
        return [
            PastRun(key, "", user, "", 0.0, done, tuple([UsedTool(name) for name in names]), failed, note=note)
            for key, done, names, failed, note in kept
            if is_same_kind(task, done)
        ]


def _check(fits: bool, name: str, what: str, given: Any) -> None:
    check_argument(fits, f"LearningEngine: {name}", what, given)
