"""Evaluations as tests: each case is a test of pytest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .evaluation import Evaluation
from .files import load_evaluation
from .results.report import EvalReport
from .subject import as_agent


def as_test(evaluation: Evaluation | str | Path, agent: Any, *, at_least: float = 1.0, **options: Any) -> Callable[..., None]:
    """Return a test that runs each case, and fails if fewer of its attempts pass than it should.

    Args:
        evaluation: The evaluation, or its file.
        agent: The agent, or a function that makes it: without arguments, or, for a folder for each attempt, with one.
        at_least: The share of attempts of a case that must pass (default: 1.0, all of them).
        options: Those of `Evaluation.run`, such as `repeat=3`.

    Returns:
        A function for pytest: assign it to a name that starts with `test_`.
    """
    import pytest

    loaded = evaluation if isinstance(evaluation, Evaluation) else load_evaluation(evaluation)
    cases = {case.name: case for case in loaded.cases}
    made: list[EvalReport] = []

    @pytest.mark.parametrize("case", list(cases))
    def test(case: str) -> None:
        if not made:  # the first test makes all attempts, several at a time
            with ThreadPoolExecutor(1) as thread:  # a loop of its own, also where one is running already
                made.append(thread.submit(lambda: asyncio.run(_run(loaded, agent, options))).result())
        found = next(one for one in made[0].cases if one.name == case)
        if found.rate < at_least or not found.attempts:
            lines = [f"  run {one.run_ids[-1] if one.run_ids else '-'}: {one.why}" for one in found.attempts if not one.passed]
            pytest.fail(f"{found.passes} of {len(found.attempts)} attempts passed\n" + "\n".join(lines), pytrace=False)

    return test


async def _run(evaluation: Evaluation, agent: Any, options: dict[str, Any]) -> EvalReport:
    subject = agent
    if as_agent(agent) is None and callable(agent) and not _takes_folder(agent):
        subject = agent()
    return await evaluation.run(subject, **options)


def _takes_folder(make: Callable[..., Any]) -> bool:
    from inspect import Parameter, signature

    required = [one for one in signature(make).parameters.values() if one.default is Parameter.empty]
    return bool(required)
