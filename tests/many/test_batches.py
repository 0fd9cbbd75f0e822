"""Batch prices: the model calls of many runs in as many batches as steps, each submitted once, whatever is killed."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from kaname import Agent, BatchPrices, Budget, ConfigError, RunBusy, cost
from kaname.core.chunks import chunks_of
from kaname.core.messages import system
from kaname.models.batches import HttpBatches, OpenAIBatches
from tests import warm
from tests.many.batch_server import BatchServer
from tests.many.batch_worker import add, agent
from tests.parts import SOURCE, facts
from tests.properties import nightly

WORKER = Path(__file__).with_name("batch_worker.py")
QUICK = BatchPrices(poll=0.01)
PROTOCOLS = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "runs"), [("openai", 60), *nightly(("openai", 200), ("anthropic", 200))])
async def test_batches_many_runs_of_three_steps_are_three_batches_at_half_the_price(protocol, runs, tmp_path):
    with BatchServer() as server:
        one = agent(server.url, protocol, tmp_path / "a.db")
        results = await one.map([f"q{n}" for n in range(runs)], batch=QUICK)
        await one.close()
        assert [result.output for result in results] == [f"done: q{n}" for n in range(runs)]
        assert [len(batch["requests"]) for batch in server.batches.values()] == [runs, runs, runs]
        assert set(server.asked.values()) == {1}
        assert (server.faults, server.direct) == ([], 0)
        assert results[0].usage.cost == pytest.approx(3 * (1000 * 10 + 100 * 100) / 1e6 / 2)


@PROTOCOLS
async def test_batches_an_expired_request_is_sent_again_and_fails_its_run_after_three_times(protocol):
    with BatchServer() as server:
        server.fate = lambda question, times: "batch_expired" if question == "bad" or (question == "late" and times < 3) else ""
        one = agent(server.url, protocol, "memory")
        good, late, bad = await one.map(["good", "late", "bad"], batch=QUICK)
        await one.close()
        assert (good.output, late.output) == ("done: good", "done: late")
        assert (bad.stop.kind, bad.stop.error) == ("failed", "ModelUnavailable")
        assert (server.asked["bad", 0], server.asked["late", 0], server.asked["good", 0]) == (3, 3, 1)


@PROTOCOLS
async def test_batches_a_refused_request_fails_its_run_alone(protocol):
    with BatchServer() as server:
        server.fate = lambda question, times: "refused" if question == "bad" else ""
        one = agent(server.url, protocol, "memory")
        good, bad = await one.map(["good", "bad"], batch=QUICK)
        await one.close()
        assert good.completed
        assert (bad.stop.kind, bad.stop.error, server.asked["bad", 0]) == ("failed", "RequestRefused", 1)


async def test_batches_a_batch_that_fails_as_a_whole_is_sent_again():
    with BatchServer() as server:
        server.fail_whole = {1}
        one = agent(server.url, "openai", "memory")
        results = await one.map(["a", "b"], batch=QUICK)
        await one.close()
        assert [result.output for result in results] == ["done: a", "done: b"]
        assert len(server.batches) == 4


async def test_batches_are_cut_at_the_limit_of_the_provider(monkeypatch):
    monkeypatch.setattr(HttpBatches, "most_requests", 3)
    with BatchServer() as server:
        one = agent(server.url, "openai", "memory")
        results = await one.map([f"q{n}" for n in range(8)], batch=QUICK, at_once=2)
        await one.close()
        assert all(result.completed for result in results)
        assert max(len(batch["requests"]) for batch in server.batches.values()) == 3
        assert set(server.asked.values()) == {1}


async def test_batches_an_answer_that_is_lost_does_not_submit_a_batch_twice(monkeypatch):
    """The provider received the batch, but the connection broke: it is looked for, and found by its label."""
    with BatchServer() as server:
        one, submit, broken = agent(server.url, "openai", "memory"), OpenAIBatches.submit, []

        async def break_off(self, requests, label):
            made = await submit(self, requests, label)
            if not broken:
                broken.append(made)
                raise self._not_answered("the connection broke")
            return made

        monkeypatch.setattr(OpenAIBatches, "submit", break_off)
        results = await one.map(["a", "b"], batch=QUICK)
        await one.close()
        assert all(result.completed for result in results)
        assert len(server.batches) == 3
        assert set(server.asked.values()) == {1}


async def test_batches_a_parked_run_asks_no_person(tmp_path):
    with BatchServer(polls=10**6) as server:
        one = agent(server.url, "openai", tmp_path / "a.db")
        mapped = one.map(["a"], job="job", batch=QUICK)
        waiting = asyncio.ensure_future(anext(mapped))
        while not server.batches or not next(iter(server.batches.values()))["polls"]:
            await one.journal.runs()
        (card,) = await one.journal.runs(status="waiting")
        assert card.questions == 0
        result = await one.result(card.run_id)
        assert (result.stop.kind, dict(result.questions)) == ("waiting", {})
        told = chunks_of((await facts(one, card.run_id))[-1])
        assert [chunk.data["status"] for chunk in told] == ["parked"]
        with pytest.raises(RunBusy):
            await anext(agent(server.url, "openai", one.journal).map(["a"], job="job", batch=QUICK))
        waiting.cancel()
        await asyncio.wait([waiting])
        server.polls = 0
        (done,) = await one.map(["a"], job="job", batch=QUICK)
        assert done.completed
        assert set(server.asked.values()) == {1}
        assert (await one.replay(done.run_id)).same
        await one.close()


async def test_batches_a_request_that_changes_each_time_fails_instead_of_paying_for_ever():
    counted = iter(range(10**6))

    async def clock(messages, view):
        return [system(f"now: {next(counted)}"), *messages]

    with BatchServer() as server:
        model = agent(server.url, "openai", "memory").recipe.model
        one = Agent(model, [add], context=clock, journal="memory")
        (result,) = await one.map(["a"], batch=QUICK)
        await one.close()
        assert (result.stop.kind, result.stop.error) == ("failed", "RequestRefused")
        assert "changes each time" in result.stop.detail
        assert len(server.batches) == 8


async def test_batches_with_a_limit_on_each_run_cost_half_and_each_call_counts_once(tmp_path):
    """What is left of a limit bounds the replies. The bound does not change which answer is found."""
    with BatchServer() as server:
        model = agent(server.url, "openai", "memory").recipe.model
        limits = [Budget(run=["$1/day", "3 calls"])]
        one = Agent(model, [add], policies=limits, stops=cost("$0.06"), journal=tmp_path / "a.db")
        results = await one.map([f"q{n}" for n in range(9)], batch=QUICK, at_once=2)
        await one.close()
        assert [result.stop.kind for result in results] == ["completed"] * 9
        assert len(server.asked) == 27
        assert set(server.asked.values()) == {1}
        assert results[0].usage.cost == pytest.approx(0.03)


def test_batches_refuse_a_budget_that_runs_share():
    model = agent("http://127.0.0.1:1/v1", "openai", "memory").recipe.model
    one = Agent(model, policies=[Budget(user="$5/day")], journal="memory")
    with pytest.raises(ConfigError, match=r"Budget\(user=…\)"):
        one.map(["a"], batch=True)


def test_batches_refuse_equal_models_and_take_others_in_a_list():
    one, other = [agent("http://127.0.0.1:1/v1", kind, "memory").recipe.model for kind in ("openai", "anthropic")]
    with pytest.raises(ConfigError, match="equal models"):
        Agent([[one, other]], journal="memory").map(["a"], batch=True)
    assert Agent([one, other], journal="memory").map(["a"], batch=True).batches is not None


async def test_batches_a_model_that_cannot_answer_is_left_for_the_next():
    with BatchServer() as server:
        server.fate = lambda question, times: "batch_expired" if times <= 3 else ""
        first, second = [agent(server.url, kind, "memory").recipe.model for kind in ("openai", "anthropic")]
        one = Agent([first, second], [add], journal="memory")
        (result,) = await one.map(["a"], batch=QUICK)
        await one.close()
        assert result.completed
        kinds = [batch["kind"] for batch in server.batches.values()]
        assert kinds[:4] == ["openai"] * 3 + ["anthropic"]
        assert server.direct == 0


async def test_batches_another_model_cannot_take_over_a_job(tmp_path):
    with BatchServer(polls=10**6) as server:
        one = agent(server.url, "openai", tmp_path / "a.db")
        waiting = asyncio.ensure_future(anext(one.map(["a"], job="job", batch=QUICK)))
        while not server.batches or not next(iter(server.batches.values()))["polls"]:
            await one.journal.runs()
        waiting.cancel()
        await asyncio.wait([waiting])
        other = agent(server.url, "anthropic", one.journal)
        with pytest.raises(ConfigError, match="a batch of openai/any"):
            await other.map(["a"], job="job", batch=QUICK)
        await one.close()
        await other.close()


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "step"), [("openai", 7), *nightly(("openai", 1), ("anthropic", 1))])
def test_batches_killed_at_every_fact_submit_each_request_once(protocol, step, tmp_path):
    """By day at every seventh place: before a fact or after it."""
    kill(protocol, tmp_path, [(when, fact) for fact in range(1, 36) for when in ("before", "after")][::step])


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "step"), [(50, 60), *nightly((200, 120))])
def test_batches_of_many_runs_killed_several_times_submit_each_request_once(runs, step, tmp_path):
    kill("openai", tmp_path, [("after", fact) for fact in range(60, 6 * runs, step)], runs=runs, in_a_row=True)


def kill(protocol, folder, places, runs=2, *, in_a_row=False):
    """Map in a process that is killed at a fact, and in others until all is done; each case with questions of its own."""
    with BatchServer() as server:
        name = "row" if in_a_row else ""
        cases = json.dumps([[name or f"{when}{fact}", when, fact] for when, fact in places])
        command = [sys.executable, str(WORKER), server.url, str(folder), protocol, cases, str(runs), "row" if in_a_row else ""]
        done = warm.run(command, capture_output=True, text=True, env={"PYTHONPATH": SOURCE, "PATH": ""})
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert told, done.stderr
        assert all(status in (0, -9) for _, _, status in told), done.stderr
        assert max(lives for _, lives, _ in told) >= 2
        assert (server.faults, server.direct) == ([], 0)
        assert set(server.asked.values()) == {1}
