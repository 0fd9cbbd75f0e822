"""Choice by reward: alternatives are chosen by what they have achieved; the journal is the only memory."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from kaname import Agent, ConfigError, MemoryJournal, ScriptedModel, SqliteJournal, call, tool
from kaname.core.errors import ModelDenied
from kaname.core.messages import Usage
from kaname.evals import AdaptiveAgent, Evaluation, Reward, Standing, explain_choice
from kaname.evals.adaptive import choose
from kaname.kernel.load import read_run
from kaname.run.figures import rate
from tests.properties import nightly


def fails_unless(word):
    """A model that completes only with instructions that hold the word."""

    def say(request):
        if word not in request.messages[0].text:
            raise ModelDenied("no")
        return "done"

    return ScriptedModel(say)


def adaptive(model, journal=None, **more):
    given = {"alternatives": {"kind": {"instructions": "Be kind."}}, "seed": 1, "instructions": "Be quick.", **more}
    return AdaptiveAgent(model, journal=journal or MemoryJournal(), **given)


async def choice_of(agent, run_id):
    return (await read_run(agent.journal, run_id))[0].body.recipe.get("choice")


async def run_many(agent, count, text="go"):
    chosen = []
    for result in await agent.map([text] * count, at_once=1):
        chosen.append((await choice_of(agent, result.run_id))["alternative"])
    return chosen


async def test_the_better_alternative_is_chosen_more_and_more_and_exploration_stays_bounded():
    agent = adaptive(fails_unless("kind"))
    chosen = await run_many(agent, 60)
    assert chosen[-20:].count("kind") >= 15
    standings = {one.alternative: one for one in await agent.standings()}
    assert (standings["kind"].reward, standings["default"].reward) == (1.0, 0.0)
    assert standings["kind"].runs + standings["default"].runs == 60
    explored = [(await choice_of(agent, card.run_id))["explored"] for card in await agent.journal.runs(limit=100)]
    assert sum(explored) <= 0.2 * 60 + 1


def test_exploration_never_exceeds_its_share_even_if_all_alternatives_are_alike():
    chance, runs, explored = Random(3), {"default": [], "other": []}, 0
    for step in range(300):
        standings = [Standing("", name, len(got), len(got), sum(got) / len(got) if got else None) for name, got in runs.items()]
        chosen, best = choose(standings, explored, 0.1, chance)
        explored += chosen != best
        runs[chosen].append(float(chance.random() < 0.5))
        assert explored <= 0.1 * (step + 1) + 1
    assert explored > 20  # and it is used


async def test_kinds_of_tasks_are_learnt_apart():
    def say(request):
        if ("kind" in request.messages[0].text) != (request.messages[-1].text == "please"):
            raise ModelDenied("no")
        return "done"

    agent = adaptive(ScriptedModel(say), kind_of=lambda text: "polite" if text == "please" else "rude")
    polite, rude = [(await run_many(agent, 40, text))[-10:] for text in ("please", "now!")]
    assert polite.count("kind") >= 7
    assert rude.count("default") >= 7
    assert {one.kind for one in await agent.standings()} == {"polite", "rude"}


async def test_ratings_cost_and_time_count_by_their_weights():
    def say(request):
        return "done"

    cheap = ScriptedModel(say, name="cheap", usage=Usage(10, 5, cost=0.001))
    dear = ScriptedModel(say, name="dear", usage=Usage(10, 5, cost=0.1))
    agent = adaptive(dear, alternatives={"cheap": {"model": cheap}}, reward=Reward(outcome=1, cost=2, rating=4))
    await run_many(agent, 40)
    standings = {one.alternative: one for one in await agent.standings()}
    assert standings["cheap"].reward > standings["default"].reward
    for card in await agent.journal.runs(limit=100):  # people like the dear one better
        chosen = (await choice_of(agent, card.run_id))["alternative"]
        await rate(agent.journal, card.run_id, "good" if chosen == "default" else "bad")
    standings = {one.alternative: one for one in await agent.standings()}
    assert standings["cheap"].reward < standings["default"].reward


async def test_a_resumed_run_and_a_conversation_keep_their_alternative():
    @tool(effect="idempotent")
    def pay(yen: int) -> str:
        """Pay."""
        return "paid"

    from kaname import Approve

    said = []

    def say(request):
        said.append(request.messages[0].text)
        done = any(message.role == "tool" for message in request.messages)
        return "done" if done else call("pay", yen=3)

    for seed in range(8):
        journal = MemoryJournal()
        agent = adaptive(ScriptedModel(say), journal, tools=[pay], policies=[Approve("pay")], seed=seed, explore=1.0)
        result = await agent.run("pay", session_id="s")
        first = await choice_of(agent, result.run_id)
        other = adaptive(ScriptedModel(say), journal, tools=[pay], policies=[Approve("pay")], seed=seed + 100, explore=1.0)
        said.clear()
        assert (await other.resume(result.run_id, dict.fromkeys(result.questions, "yes"))).completed
        assert said == ["Be kind." if first["alternative"] == "kind" else "Be quick."]
        again = await other.run("pay again", session_id="s")
        assert (await choice_of(other, again.run_id))["alternative"] == first["alternative"]


async def test_a_choice_is_explained_and_a_model_of_the_callers_own_is_no_choice():
    agent = adaptive(fails_unless("kind"))
    await run_many(agent, 10)
    last = (await agent.journal.runs(limit=1))[0].run_id
    told = explain_choice((await read_run(agent.journal, last))[0].body.recipe)
    assert told.startswith("kind (best so far: kind;")
    assert "kind 1.0 (9)" in told
    own = await agent.run("go", model=ScriptedModel(["hi"]))
    assert await choice_of(agent, own.run_id) is None
    assert explain_choice({}) == ""


async def test_a_changed_alternative_starts_anew():
    journal = MemoryJournal()
    await run_many(adaptive(fails_unless("kind"), journal), 20)
    changed = adaptive(fails_unless("kind"), journal, alternatives={"kind": {"instructions": "Be kind and brief."}})
    assert {one.alternative: one.runs for one in await changed.standings()}["kind"] == 0


async def test_runs_of_evaluations_and_inside_others_do_not_push_out_those_that_count():
    agent = adaptive(ScriptedModel(lambda request: "x"), window=4)
    await run_many(agent, 2)
    await Evaluation("e", [f"case {number}" for number in range(50)]).run(agent)

    calls = [call("delegate_to_agent", agent=agent.name, task=f"task {number}") for number in range(5)]
    outer = Agent(ScriptedModel([*calls, "done"]), name="outer", journal=agent.journal, team=[agent])
    assert (await outer.run("go")).completed
    assert len(await agent.journal.runs(agent=agent.name, limit=100)) == 57
    assert sum([one.runs for one in await agent.standings()]) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"alternatives": None},
        {"alternatives": ["short"]},
        {"alternatives": {"short": "Be short."}},
        {"alternatives": {"short": {"tools": 5}}},
        {"alternatives": {"short": {"settings": "x"}}},
        {"alternatives": {"short": {"instructions": 5}}},
        {"reward": 3},
        {"reward": Reward(outcome="much")},
        {"reward": Reward(0, 0)},
        {"reward": Reward(outcome=float("inf"))},
        {"kind_of": "price"},
        {"explore": "much"},
        {"explore": 2},
        {"window": 0},
        {"seed": [1]},
    ],
)
def test_wrong_argument_is_refused_and_named(wrong):
    with pytest.raises(ConfigError, match=rf"AdaptiveAgent\({next(iter(wrong))}"):
        adaptive(ScriptedModel(["x"]), **wrong)


@pytest.mark.parametrize("wrong", [{"a": {"colour": "red"}}, {"a": {"tools": ["none"]}}, {"default": {}}])
def test_an_alternative_that_cannot_be_used_is_refused_at_once(wrong):
    with pytest.raises(ConfigError, match="alternative"):
        adaptive(ScriptedModel(["x"]), alternatives=wrong)


async def test_a_replay_uses_the_alternative_of_the_run():
    agent = adaptive(fails_unless("kind"))
    await run_many(agent, 12)
    for card in await agent.journal.runs(status="completed", limit=5):
        assert (await agent.replay(card.run_id)).same


WORKER = """
import asyncio, sys
from kaname import ScriptedModel
from kaname.core.errors import ModelDenied
from kaname.evals import AdaptiveAgent

def say(request):
    if "kind" not in request.messages[0].text:
        raise ModelDenied("no")
    return "done"

async def main():
    agent = AdaptiveAgent(ScriptedModel(say), instructions="Be quick.", alternatives={"kind": {"instructions": "Be kind."}},
                          journal=sys.argv[1])
    await agent.map(["go"] * 25, at_once=2)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, *nightly(8)])
async def test_several_processes_lose_no_reward(tmp_path, count):
    (tmp_path / "worker.py").write_text(WORKER)
    workers = [subprocess.Popen([sys.executable, tmp_path / "worker.py", tmp_path / "j.db"]) for _ in range(count)]
    assert [worker.wait(180) for worker in workers] == [0] * count
    journal = SqliteJournal(tmp_path / "j.db")
    agent = adaptive(fails_unless("kind"), journal)
    standings = {one.alternative: one for one in await agent.standings()}
    assert sum(one.runs for one in standings.values()) == 25 * count
    assert sum(one.rewarded for one in standings.values()) == 25 * count
    completed = len(await journal.runs(status="completed", limit=300))
    assert standings["kind"].runs == standings["kind"].reward * standings["kind"].rewarded == completed
    await journal.close()
