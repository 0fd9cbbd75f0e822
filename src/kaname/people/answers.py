"""Answers to a run's open questions, checked before anything is recorded."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..core.errors import BadArguments, InvalidState, RunNotFound, nearest
from ..core.events import BACKGROUND, Asked
from ..core.people.answers import APPROVAL, check_answer, read_decision
from ..core.record import replace
from ..core.state import State
from ..kernel.arguments import apply_edits
from ..kernel.door import refusal
from ..kernel.load import load
from ..kernel.ports import Journal
from ..kernel.results import must_be_json
from ..kernel.scope import Scope

AGAIN = ";"  # before the number of a child's question that is asked once more


class Given(NamedTuple):
    """An answer, and the person who gave it."""

    answer: Any
    by: str = ""


def asked_key(key: str, known: Container[str]) -> str:
    """Return the key of a child's question without the number with which its parent asked it once more. The child's own key,
    which is `known`, may have such a number too: it is kept."""
    return key if key in known else key.rpartition(AGAIN)[0] or key


class TaskQuestions(NamedTuple):
    """The open questions of work in the background and the answers that it has, by the keys that its parent uses."""

    questions: Mapping[str, Asked]
    answers: Mapping[str, Given]

    def key(self, key: str) -> str:
        """Return the key of a task's question, which may be asked once more. Another key stays as it is."""
        return asked_key(key, {**self.questions, **self.answers})

    def answers_to(self, keys: Iterable[str]) -> dict[str, Given]:
        """Return the answers that questions with these keys already have."""
        return {key: self.answers[own] for key in keys if (own := self.key(key)) in self.answers}

    def has(self, key: str) -> bool:
        return self.key(key) in {**self.questions, **self.answers}


async def read_tasks(journal: Journal, state: State) -> TaskQuestions:
    """Return the questions of a run's tasks, and their answers. A task that was stopped asks nothing."""
    tasks = TaskQuestions({}, {})
    for name, value in state.custom.items():
        if name.startswith(BACKGROUND) and not value.get("collected"):
            child_id = name.removeprefix(BACKGROUND)
            with suppress(RunNotFound):
                child = await load(journal, child_id)
                asked = child.questions if child.stop is None else {}
                given = {key: Given(one, child.answered_by.get(key, "")) for key, one in child.answers.items()}
                questions = {f"{child_id}:{key}": replace(one, key=f"{child_id}:{key}") for key, one in asked.items()}
                answers = {f"{child_id}:{key}": one for key, one in given.items()}
                tasks = TaskQuestions({**tasks.questions, **questions}, {**tasks.answers, **answers})
    return tasks


async def questions_of_tasks(journal: Journal, state: State) -> Mapping[str, Asked]:
    """Return the questions of work in the background whose run has ended, by the keys under which that run answers them."""
    return {} if state.stop is None else (await read_tasks(journal, state)).questions


def is_expired(asked: Asked, now: float) -> bool:
    return bool(asked.until) and now >= asked.until


def _answers_of_expired(asking: Mapping[str, Asked], now: float) -> dict[str, Given]:
    """Return the answers that questions have when their time is up."""
    return {key: Given(asked.then) for key, asked in asking.items() if is_expired(asked, now)}


async def check_answers(scope: Scope, answers: Mapping[str, Given], tasks: TaskQuestions, *, judged: bool) -> dict[str, Given]:
    """Return the answers to open questions as they are recorded, with those of questions that have expired.

    The same answer given again is passed over. Another one, one to no question or to a run that was stopped, one that is
    unclear, that comes too late or from the wrong person, and arguments that the tool or a policy does not accept raise
    `InvalidState`.

    `tasks`: work in the background. When the run has ended, its questions can be answered as well. What it was answered
    elsewhere is this run's answer too. `judged`: the parent passes down what it has recorded: who gave it, and when, was
    judged there.
    """
    state, now = scope.state, time.time()
    left = tasks.questions if state.stop is not None else {}
    taken = tasks.answers_to((*state.questions, *answers))
    had = {**state.answers, **{key: one.answer for key, one in taken.items()}}
    fresh = {key: one for key, one in taken.items() if key in state.questions}
    asking = {key: asked for key, asked in state.questions.items() if key not in taken}
    stopped = state.stop is not None and state.stop.kind == "cancelled"  # its questions are asked again before they expire
    due = {} if stopped else _answers_of_expired({key: asked for key, asked in asking.items() if key not in answers}, now)
    for key, given in {**answers, **due}.items():
        if (asked := asking.get(key) or left.get(tasks.key(key))) is None:
            _check_repeated(key, given.answer, had, state)
            continue
        if not judged and key not in due:
            if key in asking and stopped:
                raise _stopped(scope.run_id, key)
            _check_giver(key, asked, given.by, state, now)
        fresh[key] = await _as_recorded(scope, key, asked, given)
    return fresh


async def _as_recorded(scope: Scope, key: str, asked: Asked, given: Given) -> Given:
    """Return an answer as it is recorded. Raises `InvalidState` if it does not fit the question."""
    answer, by = given
    if asked.about is not None and isinstance(answer, Mapping) and "for" in answer:
        from ..policies.permission.lasting import complete  # slow to load, and few answers last

        own = scope.run_id if key.startswith(APPROVAL) else ""  # a child's is completed once more in its own run
        answer = complete(answer, asked.about, by, own, scope.journal)
    answer = must_be_json(check_answer(asked, answer), f"the answer to {key!r}")
    await _check_changed_arguments(scope, asked, answer)
    return Given(answer, by)


def _check_repeated(key: str, answer: Any, recorded: Mapping[str, Any], state: State) -> None:
    """Raise `InvalidState` unless an answer is the one that is recorded already."""
    if key not in recorded:
        hint = nearest(key, state.questions)
        raise InvalidState.of("run.no_question", "there is no open question {key!r}{hint}", key=key, hint=hint)
    if not _is_same(recorded[key], answer):
        raise InvalidState.of(
            "run.answered_already",
            "{key!r} has already been answered with {answers!r}, so {answer!r} was not recorded",
            key=key,
            answers=recorded[key],
            answer=answer,
        )


def _stopped(run_id: str, key: str) -> InvalidState:
    return InvalidState.of(
        "answer.stopped",
        "run {run_id} was stopped, so the answer to {key!r} was not recorded. Resume the run without answers first: "
        "then it asks again",
        run_id=run_id,
        key=key,
    )


def _check_giver(key: str, asked: Asked, by: str, state: State, now: float) -> None:
    if is_expired(asked, now):
        raise InvalidState.of("answer.expired", "the question {key!r} has expired, so it is not answered", key=key)
    if asked.by == "other" and not state.is_another(by):
        same = by if by and by == state.by else state.user
        raise InvalidState.of("answer.other", "another person than {user!r} must answer {key!r}", user=same, key=key)


def _is_same(recorded: Any, answer: Any) -> bool:
    if isinstance(recorded, Mapping) and isinstance(answer, Mapping) and "for" in recorded:  # completed when it was recorded
        names = ("approved", "for", "where") if "where" in answer else ("approved", "for")  # a time is counted from each answer
        return all(recorded.get(name) == answer.get(name) for name in names)
    return bool(recorded == answer) and isinstance(recorded, bool) == isinstance(answer, bool)


async def _check_changed_arguments(scope: Scope, asked: Asked, answer: Any) -> None:
    """Refuse arguments that would not be run: the approval would be used up for nothing."""
    decision = read_decision(answer)
    if asked.about is None or not asked.key.startswith(APPROVAL) or decision is None or decision.args is None:
        return
    call = scope.state.open.get(asked.call_id, asked.about)
    try:
        why = await refusal(scope.as_received(apply_edits(call, asked.about, decision.args)), scope)
    except BadArguments as problem:
        why = str(problem)
    if why:
        raise InvalidState.of("answer.bad_arguments", "the changed arguments were not accepted: {why}", why=why)
