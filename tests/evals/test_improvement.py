"""Improvement: GEPA searches on one half of the cases, and the other half decides. Texts are written only if a person agrees."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kaname import Agent, AgentError, ConfigError, ScriptedModel, Workflow, replace, tool
from kaname.cli.main import main
from kaname.core.errors import ModelDenied
from kaname.core.messages import ModelReply, Usage, assistant
from kaname.evals import Case, Evaluation, improve, list_reports, read_history
from kaname.evals.improvement.search import split
from kaname.evals.improvement.texts import read_texts, with_texts

ROOT = Path(__file__).parents[2]
CASES = [Case(f"question {number}", f"c{number}", contains="please") for number in range(24)]
BETTER = "Answer politely."


def say(request):
    """Answer politely if the instructions say so; questions that end with 0 are polite anyway."""
    told, asked = request.messages[0].text, request.messages[-1].text
    return "yes, please" if "politely" in told or asked.endswith("0") else "yes"


class Proposer(ScriptedModel):
    """Proposes one text, or several in turn, and keeps the questions."""

    def __init__(self, *texts):
        self.asked, self.texts = [], texts
        super().__init__(self._propose, name=" ".join(texts), usage=Usage(100, 10, cost=0.01))

    def _propose(self, request):
        self.asked.append(request.messages[-1].text)
        return f"```\n{self.texts[(len(self.asked) - 1) % len(self.texts)]}\n```"


def answering(**more):
    return Agent(ScriptedModel(say, usage=Usage(10, 5, cost=0.001)), instructions="Answer.", journal="memory", **more)


async def test_texts_that_help_on_unseen_cases_are_found_and_shown_with_figures_and_cost():
    agent, proposer, shown = answering(), Proposer(BETTER), []
    made = await improve(
        agent,
        Evaluation("e", CASES),
        model=proposer,
        parts=["instructions"],
        calls=200,
        progress=lambda *told: shown.append(told),
    )
    assert made.helps
    assert made.after == {"instructions": BETTER}
    assert made.comparison.cases == 12
    assert made.comparison.p <= 0.05
    assert made.cost == pytest.approx(made.attempts * 0.001 + made.proposals * 0.01)
    assert shown[-1][3] == 1.0
    assert agent.recipe.instructions == "Answer."  # the agent itself is not changed
    assert await read_history(agent.journal) == [], "neither attempts nor proposals are runs to learn from"
    listed = await list_reports(agent.journal)
    assert [one.name for one in listed] == ["e.held-out"] * 2  # not the many candidates of the search
    seen, unseen = split(Evaluation("e", CASES))
    asked = "\n".join(proposer.asked)
    assert any(case.input in asked for case in seen.cases)
    assert not any(f"{case.input}\n" in asked for case in unseen.cases)  # no proposal was made from a held-out case


async def test_texts_that_only_help_the_search_cases_are_not_called_an_improvement():
    def overfit(request):
        seen = {case.input for case in split(Evaluation("e", CASES))[0].cases}
        return "please" if "overfit" in request.messages[0].text and request.messages[-1].text in seen else "no"

    agent = Agent(ScriptedModel(overfit), instructions="Answer.", journal="memory")
    made = await improve(agent, Evaluation("e", CASES), model=Proposer("overfit"), parts=["instructions"])
    assert made.searched == (0.0, 1.0)
    assert not made.helps
    assert made.comparison.difference == 0


async def test_nothing_better_leaves_the_texts_as_they_are():
    made = await improve(answering(), Evaluation("e", CASES), model=Proposer("Answer quickly."), calls=80)
    assert (made.helps, made.comparison) == (False, None)
    assert made.before == made.after
    assert made.attempts <= 80


async def test_limits_on_attempts_and_cost_hold():
    made = await improve(answering(), Evaluation("e", CASES), model=Proposer("Answer quickly."), cost=0.25)
    assert made.cost <= 0.25
    assert made.proposals > 1
    with pytest.raises(ConfigError, match="too few"):
        await improve(answering(), Evaluation("e", CASES), model=Proposer(BETTER), calls=20)
    with pytest.raises(ConfigError, match="at least 12 cases"):
        await improve(answering(), Evaluation("e", CASES[:8]), model=Proposer(BETTER))


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1, "$1"])
async def test_a_cost_that_is_no_amount_is_refused_and_named(cost):
    with pytest.raises(ConfigError, match=r"improve\(cost=…\)"):
        await improve(answering(), Evaluation("e", CASES), model=Proposer(BETTER), cost=cost)


async def test_every_evaluation_of_a_search_names_the_users_of_all_cases():
    """A text that was proposed from one case is tried on others: `erase_user` finds these evaluations, too."""
    agent, seen = answering(), split(Evaluation("e", CASES))[0].cases[0].name
    cases = [Case(one.input, one.name, from_user="ken" if one.name == seen else "", contains="please") for one in CASES]
    await improve(agent, Evaluation("e", cases), model=Proposer("Answer quickly."), parts=["instructions"], calls=80)
    cards = await agent.journal.runs(agent="evaluation", limit=100)
    assert len(cards) > 1
    for card in cards:
        facts = [event.body async for event in agent.journal.read(card.run_id)]
        assert next(one.data["people"] for one in facts if getattr(one, "name", "") == "evaluation") == ["ken"]


async def test_cost_bounds_the_first_round_too_and_says_what_it_allows():
    made, shown = [], []

    def dear(request):
        made.append(request)
        return "yes"

    agent = Agent(ScriptedModel(dear, usage=Usage(10, 5, cost=0.1)), instructions="Answer.", journal="memory")
    with pytest.raises(ConfigError, match=r"an attempt costs \$0.1000, .* at least 54 attempts: allow \$5.4"):
        await improve(agent, Evaluation("e", CASES), model=Proposer(BETTER), cost=1.0)
    assert len(made) == 1
    found = await improve(
        agent, Evaluation("e", CASES), model=Proposer("Hm."), cost=5.5, progress=lambda *told: shown.append(told[:2])
    )
    assert shown[0] == (1, 55), "one attempt first, and then what the money allows"
    assert found.cost <= 5.5


async def test_prices_that_rise_end_the_search_before_the_limit():
    cost = iter([0.01] * 3 + [0.5] * 100)

    class Rising(ScriptedModel):
        async def reply(self, request, emit):
            made = await super().reply(request, emit)
            return replace(made, usage=Usage(10, 5, cost=next(cost)))

    agent = Agent(Rising(lambda request: "yes"), instructions="Answer.", journal="memory")
    with pytest.raises(AgentError, match=r"of \$2.00 are spent, and the next calls could exceed the limit"):
        await improve(agent, Evaluation("e", CASES), model=Proposer(BETTER), cost=2.0, at_once=1)
    assert 0.5 * (100 - len([*cost])) <= 2.0


async def test_repetitions_count_as_attempts():
    with pytest.raises(ConfigError, match="80 attempts are too few: this evaluation needs at least 162"):
        await improve(answering(), Evaluation("e", CASES), model=Proposer(BETTER), calls=80, repeat=3)
    made = await improve(answering(), Evaluation("e", CASES), model=Proposer(BETTER), calls=200, repeat=3)
    assert made.helps
    assert made.attempts % 3 == 0
    assert 144 <= made.attempts <= 200


async def test_a_second_candidate_on_the_same_held_out_cases_has_to_show_more():
    journal = answering().journal
    first = await improve(answering(), Evaluation("e", CASES), model=Proposer(BETTER), parts=["instructions"], journal=journal)
    second = await improve(
        answering(), Evaluation("e", CASES), model=Proposer("politely!"), parts=["instructions"], journal=journal
    )
    assert second.comparison.p == pytest.approx(2 * first.comparison.p)


def test_descriptions_of_tools_and_examples_are_texts_too():
    @tool(effect="pure")
    def price(item: str) -> int:
        """The price of an item."""
        return 300

    agent = Agent(ScriptedModel(["x"]), [price], instructions="Sell.", journal="memory")
    assert read_texts(agent) == {"instructions": "Sell.", "tool:price": "The price of an item.", "examples": ""}
    made = with_texts(agent, {"tool:price": "Look up a price.", "examples": "tea: 300"})
    assert made.recipe.instructions == "Sell.\n\nExamples:\ntea: 300"
    assert made.recipe.tools["price"].description == "Look up a price."
    assert made.recipe.tools["price"].parameters == agent.tools["price"].parameters
    assert (agent.tools["price"].description, agent.recipe.instructions) == ("The price of an item.", "Sell.")
    assert read_texts(made)["examples"] == "tea: 300"
    with pytest.raises(ConfigError, match="'model' cannot be improved"):
        read_texts(agent, ["model"])


SHOP = """from __future__ import annotations
from kaname import Agent, ScriptedModel
from tests.evals.test_improvement import Proposer, say

shop = Agent(ScriptedModel(say), instructions="Answer.", journal="shop.db")
proposer = Proposer("Answer politely.")
"""
EVALS = "agent: shop.py:shop\nchecks: {contains: please}\ncases:\n" + "\n".join([f"- input: question {n}" for n in range(24)])


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with a program and an evaluation; the proposing model is the one of the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "evals.yaml").write_text(EVALS)
    monkeypatch.setattr("kaname.evals.improvement.search.resolve", lambda name: Proposer("Answer politely."))
    return tmp_path


def test_the_command_shows_the_difference_and_changes_no_file(shop, capsys):
    assert main(["improve", "--proposer", "any", "--part", "instructions"]) == 0
    said = capsys.readouterr()
    assert "-Answer.\n+Answer politely.\n" in said.out
    assert "real:" in said.out
    assert "put the new texts into your files" in said.out
    assert (shop / "shop.py").read_text() == SHOP


def test_the_command_fails_if_nothing_better_is_found(shop, capsys, monkeypatch):
    monkeypatch.setattr("kaname.evals.improvement.search.resolve", lambda name: Proposer("Answer quickly."))
    assert main(["improve", "--proposer", "any", "--part", "instructions", "--calls", "60"]) == 1
    assert "no better version was found" in capsys.readouterr().out


async def test_a_proposer_that_fails_ends_the_search_instead_of_spending_the_budget_on_nothing():
    def fail(request):
        raise ModelDenied("no key")

    with pytest.raises(AgentError, match="proposed no text: failed: the provider denied access"):
        await improve(answering(), Evaluation("e", CASES), model=ScriptedModel(fail), parts=["instructions"])


def cut_off(text):
    return ModelReply(assistant(text), "max_tokens")


async def test_a_proposal_that_was_cut_off_is_not_used_and_the_search_continues():
    asked = list[str]()

    def propose(request):
        asked.append(request.messages[-1].text)
        return cut_off("```\nAnswer with") if len(asked) == 1 else f"```\n{BETTER}\n```"

    found = await improve(answering(), Evaluation("e", CASES), model=ScriptedModel(propose), parts=["instructions"])
    assert found.after == {"instructions": BETTER}
    assert len(asked) == len({*asked}) == found.proposals  # the first one was not asked for again


async def test_proposals_that_are_all_cut_off_are_told_with_the_model():
    model = ScriptedModel(lambda request: cut_off("```\nAnswer with"), name="tiny")
    with pytest.raises(AgentError, match="all texts that tiny proposed were cut off"):
        await improve(answering(), Evaluation("e", CASES), model=model, parts=["instructions"], calls=60)


async def test_a_provider_that_is_down_gives_no_verdict():
    def fail(request):
        raise ModelDenied("no key")

    with pytest.raises(AgentError, match="every attempt ended in an error"):
        await improve(Agent(ScriptedModel(fail), journal="memory"), Evaluation("e", CASES), model=Proposer(BETTER))


async def test_what_cannot_be_improved_is_told(monkeypatch):
    with pytest.raises(ConfigError, match="a workflow has no instructions"):
        await improve(Workflow("w", journal="memory"), Evaluation("e", CASES))
    monkeypatch.setitem(sys.modules, "gepa", None)
    with pytest.raises(ConfigError, match=r"gepa is not installed.*improve"):
        await improve(answering(), Evaluation("e", CASES), model=Proposer(BETTER))


WORKER = """
import asyncio, sys
from zlib import crc32
sys.path.insert(0, sys.argv[3])
from kaname import Agent, ScriptedModel
from kaname.evals import Evaluation, improve
from tests.evals.test_improvement import CASES, say

def count(text):
    with open(sys.argv[2], "a") as file:
        file.write(text + "\\n")

def answer(request):
    count(request.messages[0].text + "|" + request.messages[-1].text)
    return say(request)

def propose(request):
    count(request.messages[-1].text.replace("\\n", " "))
    return "```" + ["Answer quickly.", "Answer slowly.", "Answer politely."][crc32(request.messages[-1].text.encode()) % 3] + "```"

agent = Agent(ScriptedModel(answer), instructions="Answer.", journal=sys.argv[1])
made = asyncio.run(improve(agent, Evaluation("e", CASES), model=ScriptedModel(propose), parts=["instructions"], at_once=1))
print(made.attempts, made.proposals, made.helps)
"""


@pytest.mark.nightly
def test_a_search_that_is_killed_repeats_no_finished_call_and_comes_to_the_same_end(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)

    def start(place):
        made = [sys.executable, tmp_path / "worker.py", tmp_path / f"{place}.db", tmp_path / f"{place}.txt", ROOT]
        return subprocess.Popen(made, stdout=subprocess.PIPE, text=True)

    def calls(place):
        return (tmp_path / f"{place}.txt").read_text().splitlines() if (tmp_path / f"{place}.txt").exists() else []

    whole, _ = start("whole").communicate(timeout=120)
    for least in (5, 14, 30):
        process = start("killed")
        while len(calls("killed")) < least and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.communicate()
    said, _ = start("killed").communicate(timeout=120)
    assert said == whole
    assert said.endswith("True\n")
    assert len(calls("killed")) <= len(calls("whole")) + 3  # what each kill cut short, and no more
    assert set(calls("killed")) == set(calls("whole"))


@pytest.mark.slow
async def test_a_search_that_is_cancelled_ends_at_once():
    begun, answers = asyncio.Event(), []

    async def wait(request):
        answers.append(1)
        if len(answers) > 14:
            begun.set()
            await asyncio.Event().wait()
        return "yes"

    class Waiting(ScriptedModel):
        async def reply(self, request, emit):
            await wait(request)
            return await super().reply(request, emit)

    agent = Agent(Waiting(say), instructions="Answer.", journal="memory")
    task = asyncio.create_task(
        improve(agent, Evaluation("e", CASES), model=Proposer("Answer quickly."), parts=["instructions"])
    )
    await asyncio.wait_for(begun.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
