"""kaname agents as solvers of inspect_ai."""

from __future__ import annotations

import sys

import pytest

from kaname import Agent, ConfigError, ScriptedModel, call, tool
from kaname.evals import as_solver


def agent(journal="memory"):
    @tool(effect="pure")
    def price(item: str) -> int:
        """The price of an item."""
        return 300

    return Agent(ScriptedModel([call("price", item="tea"), "It is 300 yen."]), [price], journal=journal)


def test_inspect_is_named_with_its_command_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai.model", None)
    with pytest.raises(ConfigError, match=r"kaname\[inspect\]|\[inspect\]"):
        as_solver(agent())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_agent_solves_the_samples_of_an_inspect_task(tmp_path):
    pytest.importorskip("inspect_ai", reason="no inspect_ai: its solver was NOT tried")
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes

    with pytest.raises(ConfigError, match="expects an Agent"):
        as_solver(3)
    samples = [Sample("How much is tea?", target="300"), Sample("How much is cake?", target="450")]
    task = Task(samples, solver=as_solver(agent(tmp_path / "j.db")), scorer=includes())
    (log,) = evaluate(task, model="mockllm/model", display="none", log_dir=str(tmp_path / "logs"))
    assert log.status == "success"
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
    told = log.samples[0].metadata["kaname"]
    assert (told["stop"], told["calls"]) == ("completed", ["price"])
