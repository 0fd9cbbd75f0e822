"""`LearningEngine` of MONONO 3.10: patterns of success, improvements after failures, and answers as the user likes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, cast, get_args

from ...agent.input import check_argument
from ...core.notices import join_notices, notice
from ...memory.files import MemoryFiles
from ...memory.lessons.history import Cause, PastRun, UsedTool
from ...memory.lessons.patterns import SuccessPattern, find_patterns, group_failures, is_same_kind
from ...memory.lessons.propose import suggest
from ...memory.preferences import preferences_in


class LearningEngine:
    """Learns from tasks that your program reports. To learn from recorded runs, use `kaname learn` and `Lessons`.

    Args:
        memory: The folder of memories, or `Memory`, whose profiles `personalize_responses` reads and writes (default: the
            folder of this program).
    """

    def __init__(self, memory: Any = None) -> None:
        _check(memory is None or isinstance(memory, str | PathLike | MemoryFiles), "memory", "a folder or a Memory", memory)
        self._files = memory if isinstance(memory, MemoryFiles) else MemoryFiles(memory)
        self.runs: list[PastRun] = []

    def track_success_patterns(
        self, task_description: str, approach_details: Any, was_successful: bool, user_feedback: str | None = None
    ) -> list[SuccessPattern]:
        """Record how a task was done, and return which tools in which order have done tasks of this kind.

        Args:
            task_description: What was to be done.
            approach_details: The names of the tools in their order, or a mapping with them under `tools`.
            was_successful: Whether it succeeded.
            user_feedback: What the user said about it. Feedback on a failure is what `suggest_improvements` quotes first.
        """
        used = approach_details.get("tools", ()) if isinstance(approach_details, Mapping) else approach_details
        _check(isinstance(task_description, str), "task_description", "a text", task_description)
        _check(used is None or isinstance(used, Iterable), "approach_details", "a list of tools", approach_details)
        names = [used] if isinstance(used, str) else [str(one) for one in used or ()]
        failed: Cause = "" if was_successful else "user unhappy" if user_feedback else "limit"
        calls = tuple([UsedTool(name) for name in names])
        made = PastRun(str(len(self.runs)), "", "", "", 0.0, task_description, calls, failed, note=user_feedback or "")
        self.runs.append(made)
        return find_patterns(self._like(task_description), 1)

    def suggest_improvements(self, failed_task_context: Mapping[str, Any] | str) -> str:
        """Return advice for a task that failed: what users said, and the tools that have done such tasks.

        Args:
            failed_task_context: The task, or a mapping with `task` (or `task_description`), and if it is known `tool`, and
                `cause`: one of those that `kaname learn failures` shows, such as "tool error".
        """
        what = "a text, or a mapping with a task"
        _check(isinstance(failed_task_context, str | Mapping), "failed_task_context", what, failed_task_context)
        given: Mapping[str, Any] = {"task": failed_task_context}
        given = failed_task_context if isinstance(failed_task_context, Mapping) else given
        task = str(given.get("task") or given.get("task_description") or "")
        tool, cause = str(given.get("tool") or ""), cast(Cause, given.get("cause") or "limit")
        _check(cause in get_args(Cause), 'failed_task_context["cause"]', f"one of {', '.join(get_args(Cause)[1:])}", cause)
        failed = PastRun("now", "", "", "", 0.0, task, (), cause, tool, offered=(tool,))
        known = [one for one in self._like(task) if one.note]
        told = [lesson.advice for group in group_failures(known) for lesson in suggest(group, self.runs)]
        (group,) = group_failures([failed, failed])
        told += [lesson.advice for lesson in suggest(group, self._like(task))]
        return join_notices(" ", told) if told else notice("learning.nothing", "Nothing is known about such failures yet.")

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
        store = self._files.of(user_id)
        for one in interaction_history:
            said = one.get("content", "") if isinstance(one, Mapping) and one.get("role", "user") == "user" else one
            for about, words in preferences_in(said if isinstance(said, str) else "").items():
                store.add(f'"{words}"', "profile", about=about, run="history")
        for about, value in (preferences or {}).items():
            store.add(str(value), "profile", about=about)
        return {one.about: one.text for one in store.profile()}

    def _like(self, task: str) -> list[PastRun]:
        """Return the runs whose tasks are of the kind of a task."""
        return [one for one in self.runs if is_same_kind(task, one.task)]


def _check(fits: bool, name: str, what: str, given: Any) -> None:
    check_argument(fits, f"LearningEngine: {name}", what, given)
