"""Runs of one session take turns, also where several processes are at one journal: each sees what the one before it said."""

import asyncio
import subprocess
import sys
import threading

import pytest

from kaname import Agent, ConfigError, MemoryJournal, ScriptedModel, SessionBusy, SqliteJournal
from tests import warm

PROGRAM = """
import asyncio, sys
from kaname import Agent, ScriptedModel, tool

@tool(effect="pure")
async def look() -> str:
    "Look."
    await asyncio.sleep(0.02)
    return "seen"

def answer(request):
    return call("look") if request.messages[-1].role == "user" else "ok"

from kaname import call
agent = Agent(ScriptedModel(answer), [look], name="clerk", journal=sys.argv[1])

async def main():
    for number in range(int(sys.argv[3])):
        result = await agent.run(f"{sys.argv[2]}{number}", session_id="s", user_id="u")
        assert result.output == "ok"

asyncio.run(main())
"""


@pytest.mark.slow
def test_processes_at_one_session_never_mix(tmp_path):
    path, each, lanes = tmp_path / "j.db", 6, ("a", "b", "c")
    SqliteJournal(path)  # made once
    started = [
        warm.Popen([sys.executable, "-c", PROGRAM, str(path), lane, str(each)], stderr=subprocess.PIPE) for lane in lanes
    ]
    for one in started:
        _, told = one.communicate(timeout=180)
        assert one.returncode == 0, told.decode()

    async def look():
        journal = SqliteJournal(path)
        cards = await journal.runs(session="s", limit=100)
        last = Agent(ScriptedModel([]), name="clerk", journal=journal)
        return cards, (await last.result(cards[0].run_id)).state

    cards, state = asyncio.run(look())
    assert len(cards) == each * len(lanes)
    assert [card.base for card in cards[:-1]] == [card.run_id for card in cards[1:]], "one after the other"
    said = [message.text for message in state.messages if message.role == "user"]
    assert sorted(said) == sorted([f"{lane}{number}" for lane in lanes for number in range(each)])
    for lane in lanes:
        assert [text for text in said if text[0] == lane] == [f"{lane}{number}" for number in range(each)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_run_of_a_session_that_is_being_executed_is_waited_for_and_that_is_told(kind, tmp_path):
    """Two event loops of one process, which cannot wait for each other's locks."""
    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "j.db")
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            begun.set()
            await asyncio.to_thread(go_on.wait, 10)
            return await ScriptedModel(["first"]).reply(request, emit)

    first = Agent(Slow(), name="clerk", journal=journal)
    other = threading.Thread(target=lambda: asyncio.run(_result(first)))
    other.start()
    await asyncio.to_thread(begun.wait, 10)
    second = Agent(
        ScriptedModel(lambda request: f"I have read {len(request.messages)} messages"), name="clerk", journal=journal
    )
    seen = []
    async for chunk in (run := second.run("two", session_id="s")):
        seen.append(chunk.data.get("status"))
        if chunk.data.get("status") == "queued":
            go_on.set()
    other.join(60)
    assert "queued" in seen
    assert (await run).output == "I have read 3 messages"


async def _result(agent):
    return await agent.run("one", session_id="s")


async def test_run_that_waits_for_its_turn_can_be_called_off(tmp_path):
    go_on = asyncio.Event()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            await go_on.wait()
            return await ScriptedModel(["first"]).reply(request, emit)

    first = Agent(Slow(), name="clerk", journal=SqliteJournal(tmp_path / "j.db")).run("one", session_id="s").detach()
    await first.begun()
    second = Agent(ScriptedModel(["second"]), name="clerk", journal=SqliteJournal(tmp_path / "j.db"))
    run = second.run("two", session_id="s")
    async for chunk in run:
        if chunk.data.get("status") == "queued":
            run.abort("enough")
    assert ((await run).stop.kind, (await run).stop.detail) == ("cancelled", "enough")
    go_on.set()
    assert (await first).output == "first"
    assert [card.status for card in await second.journal.runs()] == ["completed"], "it has left no trace"


@pytest.mark.parametrize("place", ["memory", "sqlite"])
async def test_run_of_a_busy_session_is_refused_by_choice(place, tmp_path):
    go_on = asyncio.Event()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            await go_on.wait()
            return await ScriptedModel(lambda request: "fine").reply(request, emit)

    agent = Agent(Slow(), name="clerk", journal=MemoryJournal() if place == "memory" else SqliteJournal(tmp_path / "j.db"))
    first = agent.run("one", session_id="s").detach()
    await first.begun()
    with pytest.raises(SessionBusy, match=first.run_id):
        await agent.run("two", session_id="s", when_busy="refuse")
    go_on.set()
    await first
    assert len((await agent.run("three", session_id="s", when_busy="refuse")).state.messages) == 4
    with pytest.raises(ConfigError, match="when_busy must be 'wait' or 'refuse'"):
        agent.run("four", when_busy="maybe")
