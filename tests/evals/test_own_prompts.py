"""The prompts that kaname itself writes for small models are held by an evaluation: `benchmarks/small_model.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kaname import Agent, MemoryJournal
from kaname.evals import load_evaluation
from kaname.tools.loading import object_from

TASKS = Path(__file__).parents[2] / "benchmarks" / "small_model.py"
HELD = ("00 calculator", "06 database", "19 function")  # three kinds of tools; two of three, because a single task can turn


@pytest.mark.nightly
async def test_the_local_model_still_solves_the_tasks_of_the_repositorys_own_prompts(local_model, tmp_path):
    """If this fails after a change of a prompt, measure both versions on all tasks: see the docstring of the benchmark."""
    tools = object_from(f"{TASKS}:tools", Path.cwd())(tmp_path)
    agent = Agent(local_model, tools, journal=MemoryJournal())
    report = await load_evaluation(f"{TASKS}:tune").only(HELD).run(agent, at_once=1)
    await agent.close()
    wrong = {case.name: case.attempts[0].output for case in report.cases if not case.passed}
    assert len(wrong) <= 1, wrong
