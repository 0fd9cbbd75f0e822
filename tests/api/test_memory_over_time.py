"""`Memory` over time: many users and few open files, a clock that is set, and what is forgotten."""

import asyncio
import json
import os
import sys
import time

import pytest

from kaname import Agent, Memory, ScriptedModel, Sessions, SqliteJournal, call
from kaname.memory.store import Memories
from tests import warm
from tests.api.test_memory import at, remembering


@pytest.fixture
def store(tmp_path):
    made = Memories(tmp_path / "m.db", "user ken")
    yield made
    made.close()


@pytest.mark.nightly
def test_files_of_many_users_stay_few(tmp_path):
    """As many users as a machine has descriptors for files: each is remembered, also with 60 of them at the same time."""
    program = """
import asyncio, gc, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
gc.disable()  # nothing is closed by chance
from kaname import Agent, Memory, ScriptedModel

class Simple:
    name = "simple"
    def embed(self, texts):
        return [[float(len(text)), 1.0] for text in texts]

async def main():
    memory = Memory(sys.argv[1], embeddings=Simple())
    async with Agent(ScriptedModel(lambda request: "noted"), context=memory, journal="memory") as agent:
        for first in range(0, 120, 60):
            said = [agent.run(f"I am guest number {n} of the hotel.", user_id=f"guest {n}") for n in range(first, first + 60)]
            await asyncio.gather(*said)
    held = memory.of("guest 7")  # in use while 100 others are
    for n in range(120):
        (one,) = memory.of(f"guest {n}").all()
        assert one.text == f"I am guest number {n} of the hotel.", one
        assert len(held.all()) == 1
    import os
    most = len(os.listdir("/proc/self/fd"))
    memory.close()
    print(most, len([name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
                     and ".db" in os.readlink(f"/proc/self/fd/{name}")]))

asyncio.run(main())
"""
    told = warm.run([sys.executable, "-c", program, str(tmp_path / "m")], capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    assert "unable to open" not in told.stderr
    most, left = map(int, told.stdout.split())
    assert most < 150, "at most 32 files are kept open, each with its log"
    assert left == 0


async def test_closing_an_agent_closes_the_files_of_its_memory_and_it_can_be_used_again(tmp_path):
    agent, memory = remembering(tmp_path)
    async with agent:
        await agent.run("Our door is green today.", user_id="ken")
    opened = [link for link in map(os.readlink, _descriptors()) if link.startswith(str(tmp_path / "memory"))]
    assert opened == []
    store = memory.of("ken")
    memory.close()
    assert [one.text for one in store.all()] == ["Our door is green today."], "who holds it can still use it"
    assert [link for link in map(os.readlink, _descriptors()) if link.startswith(str(tmp_path / "memory"))] == []
    store.forget([1])
    assert b"green" not in store.path.read_bytes(), "it deletes for good also when it was opened again"
    await agent.journal.close()


def _descriptors():
    return [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]


# The clock


@pytest.fixture
def clock(monkeypatch):
    """A wall clock that can be set."""
    real, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + shift[0])
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + shift[0]) * 1e9))
    return shift


@pytest.mark.parametrize("shift", [-86_400 * 400, 86_400 * 400])
async def test_a_run_is_learnt_from_wherever_the_clock_was_set(tmp_path, clock, shift):
    agent, memory = remembering(tmp_path)
    async with agent:
        await agent.run("Our door is green today.", user_id="ken")
        clock[0] += shift
        await agent.run("Our window is broken today.", user_id="ken")
        clock[0] -= shift
        await agent.run("Our roof is high and old.", user_id="ken")
    assert {one.text for one in memory.of("ken").all()} == {
        "Our door is green today.",
        "Our window is broken today.",
        "Our roof is high and old.",
    }
    await agent.journal.close()


@pytest.mark.parametrize("shift", [-86_400 * 400, 0.0, 86_400 * 400])
async def test_what_was_said_in_a_later_run_holds_wherever_the_clock_was_set(tmp_path, clock, shift):
    def learnt(request):
        text = request.messages[-1].text.rpartition("The user said:\n")[2]
        known = [line for line in request.messages[-1].text.splitlines() if line[:1].isdigit() and ": " in line]
        return json.dumps({"facts": [{"text": text, "replaces": int(known[0].partition(":")[0]) if known else 0}]})

    agent, memory = remembering(tmp_path, model=ScriptedModel(learnt))
    for town in ("Leeds", "York", "Bath"):
        async with agent:
            await agent.run(f"Ken lives in the town of {town} now.", user_id="ken")
        clock[0] += shift
    assert [one.text for one in memory.of("ken").all()] == ["Ken lives in the town of Bath now."]
    (found,) = memory.of("ken").search("Where does Ken live now?")
    assert [old.text for old in found.before] == ["Ken lives in the town of York now.", "Ken lives in the town of Leeds now."]
    await agent.journal.close()


async def test_an_earlier_run_that_is_learnt_from_later_is_older_news(tmp_path, clock):
    """It took longer than the one after it, and its clock was ahead: the journal says which of the two came first."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            if "Leeds" in request.messages[-1].text:
                begun.set()
                await go_on.wait()
            return await ScriptedModel(["noted"]).reply(request, emit)

    def learnt(request):
        known, _, said = request.messages[-1].text.partition("The user said:\n")
        replaces = [int(line.partition(":")[0]) for line in known.splitlines() if line[:1].isdigit()]
        return json.dumps({"facts": [{"text": said, "replaces": (replaces or [0])[0]}]})

    memory = Memory(tmp_path / "memory", model=ScriptedModel(learnt))
    agent = Agent(Slow(), context=memory, journal=tmp_path / "j.db")
    store = memory.of("ken")
    clock[0] += 86_400 * 30
    first = asyncio.ensure_future(agent.run("Ken lives in the town of Leeds.", user_id="ken"))
    await begun.wait()
    clock[0] -= 86_400 * 30
    async with agent:
        await agent.run("Ken lives in the town of York.", user_id="ken")
    assert [one.text for one in store.all()] == ["Ken lives in the town of York."]
    go_on.set()
    async with agent:
        await first
    assert [one.text for one in store.all()] == ["Ken lives in the town of York."]
    assert [one.text for one in store.history(1)] == ["Ken lives in the town of York.", "Ken lives in the town of Leeds."]
    assert store.runs_to_learn() == {}
    await agent.journal.close()


def test_what_a_person_wrote_while_a_run_went_on_is_newer_than_the_run(store):
    store.add("Ken lives in Leeds.", about="home")
    store.begin("r")
    store.add("Ken lives in York.", about="home")
    upto = store.runs_to_learn()["r"]
    store.add("Ken lives in Bath.", about="home", said=at("2099-01-01"), run="r", later=lambda one: one.id > upto)
    assert [one.text for one in store.all()] == ["Ken lives in York."]
    assert store.history(1)[0].text == "Ken lives in York."


# Forgetting


def test_forgetting_a_past_memory_leaves_what_replaced_it(store):
    first = store.add("Ken lives in Leeds.", about="home", said=at("2024-01-01"))
    second = store.add("Ken lives in York.", about="home", said=at("2025-01-01"))
    third = store.add("Ken lives in Bath.", about="home", said=at("2026-01-01"))
    assert [one.id for one in store.forget([second.id])] == [second.id]
    assert [one.id for one in store.all(past=True)] == [first.id, third.id]
    (found,) = store.search("Where does Ken live?")
    assert (found.memory.id, [old.id for old in found.before]) == (third.id, [first.id])
    assert [one.id for one in store.forget([first.id])] == [first.id]
    assert [one.text for one in store.all(past=True)] == ["Ken lives in Bath."]
    fourth = store.add("Ken lives in Hull.", about="home")
    assert {one.id for one in store.forget([fourth.id])} == {third.id, fourth.id}, "what holds goes with its past"


def test_forgetting_by_age_takes_all_versions(store):
    store.add("Ken works at Initech.", about="employer", said=at("2024-02-01"))
    store.add("Ken works at Globex.", about="employer", said=at("2023-01-01"))  # older news, learnt later
    assert len(store.forget_before(at("2025-01-01"))) == 2
    assert store.all(past=True) == []


async def test_the_model_forgets_the_past_memory_that_it_names_and_no_other(tmp_path):
    memory = Memory(tmp_path / "memory", learn="nothing")
    old = memory.of("ken").add("Ken lives in Leeds.", about="home")
    memory.of("ken").add("Ken lives in York.", about="home")
    agent = Agent(ScriptedModel([call("forget", id=old.id), "done"]), context=memory, journal="memory")
    result = await agent.run("Forget that I lived in Leeds.", user_id="ken")
    assert [one["id"] for one in result.state.results["c1_0"].output] == [old.id]
    assert [one.text for one in memory.of("ken").all(past=True)] == ["Ken lives in York."]


# Sessions


async def test_sessions_are_listed_in_the_order_of_the_journal(tmp_path, clock):
    journal = SqliteJournal(tmp_path / "j.db")
    agent = Agent(ScriptedModel(lambda request: "fine"), journal=journal)
    for name in ("first", "second", "first", "third"):
        await agent.run("Hello!", session_id=name)
        clock[0] -= 3_600
    assert [one.id for one in await Sessions(journal).all()] == ["third", "first", "second"]
    await journal.close()
