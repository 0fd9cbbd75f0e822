"""Answers to a run's open questions, checked before anything is recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...core.errors import InvalidState, nearest
from ...core.events import BACKGROUND, Asked
from ...core.notices import notice
from ...core.people.answers import check_answer, read_decision
from ...core.state import State
from ...kernel.results import must_be_json
from ...kernel.scope import Scope
from ...policies.approve import Approve, apply_edits


def answers_to_tasks(state: State, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers to work in the background whose questions the run has not asked itself, because it has ended."""
    tasks = [key.removeprefix(BACKGROUND) for key in state.custom if key.startswith(BACKGROUND)]
    asked = [key for key in answers if key not in state.questions and any(key.startswith(f"{one}:") for one in tasks)]
    return {key: answers[key] for key in asked if key not in state.answers}


def with_expired(state: State, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers with those of questions that have expired. Raises `InvalidState` if one comes too late."""
    expired = {key: asked for key, asked in state.questions.items() if asked.until and time.time() >= asked.until}
    for key in answers:
        if key in expired:
            raise InvalidState(notice("answer.expired", "the question {key!r} has expired, so it is not answered", key=key))
    return {**answers, **{key: asked.then for key, asked in expired.items()}}


def check_answers(scope: Scope, answers: Mapping[str, Any], by: str = "") -> dict[str, Any]:
    """Return the answers to open questions as they are recorded.

    The same answer given again is passed over. Another one, one to no question, one that is unclear, and arguments that the
    tool or a policy does not accept raise `InvalidState`.
    """
    state, fresh = scope.state, dict[str, Any]()
    for key, answer in answers.items():
        if (asked := state.questions.get(key)) is not None:
            expires = bool(asked.until) and time.time() >= asked.until
            if asked.by == "other" and not expires and by in ("", state.user):
                told = notice("answer.other", "another person than {user!r} must answer {key!r}", user=state.user, key=key)
                raise InvalidState(told)
            if asked.about is not None and isinstance(answer, Mapping) and "for" in answer:
                from ...policies.lasting import complete

                answer = complete(answer, asked.about, by, scope.run_id, scope.journal)
            fresh[key] = must_be_json(check_answer(asked, answer), f"the answer to {key!r}")
            _check_changed_arguments(scope, asked, fresh[key])
        elif key not in state.answers:
            told = notice(
                "run.no_question", "there is no open question {key!r}{hint}", key=key, hint=nearest(key, state.questions)
            )
            raise InvalidState(told)
        elif not _is_same(state.answers[key], answer):
            told = notice(
                "run.answered_already",
                "{key!r} has already been answered with {answers!r}, so {answer!r} was not recorded",
                key=key,
                answers=state.answers[key],
                answer=answer,
            )
            raise InvalidState(told)
    return fresh


def _is_same(recorded: Any, answer: Any) -> bool:
    if isinstance(recorded, Mapping) and isinstance(answer, Mapping) and "for" in recorded:  # completed when it was recorded
        given = [name for name in ("approved", "for", "where") if name in answer]  # the time is counted from each answer
        return all(recorded.get(name) == answer[name] for name in given)
    return bool(recorded == answer) and isinstance(recorded, bool) == isinstance(answer, bool)


def _check_changed_arguments(scope: Scope, asked: Asked, answer: Any) -> None:
    """Refuse arguments that would not be run: the approval would be used up for nothing."""
    decision, call = read_decision(answer), scope.state.open.get(asked.call_id)
    if call is None or decision is None or decision.args is None or asked.key != Approve.key(call):
        return
    asking = next((one for one in scope.view.policies(call) if isinstance(one, Approve)), None)
    if asking is None:
        return
    if why := asking.objection(apply_edits(call, asked.about or call, decision.args), scope.view):
        told = notice("answer.bad_arguments", "the changed arguments were not accepted: {why}", why=why)
        raise InvalidState(told)
