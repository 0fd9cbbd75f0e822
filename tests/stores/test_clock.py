"""What a clock that is set back or forward changes: nothing but the times that are shown."""

import asyncio
import time

import pytest

from kaname import Agent, MemoryJournal, ScriptedModel, SqliteJournal, deadline


@pytest.fixture
def clock(monkeypatch):
    """A wall clock that can be set; the monotonic one goes on as it does."""
    real, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + shift[0])
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + shift[0]) * 1e9))
    return shift


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_a_session_goes_on_from_its_last_turn_although_the_clock_was_set_back(tmp_path, clock, kind):
    journal = SqliteJournal(tmp_path / "journal.db") if kind == "sqlite" else MemoryJournal()
    for turn in range(5):
        agent = Agent(ScriptedModel(lambda request: f"{len(request.messages)} messages"), journal=journal)
        assert (await agent.run("go on", session_id="s")).output == f"{2 * turn + 1} messages"
        clock[0] -= 3600
    cards = await journal.runs(session="s")
    assert [card.created for card in cards] == sorted([card.created for card in cards]), "the newest first, the clock aside"
    await journal.close()


async def test_a_deadline_does_not_strike_because_the_clock_was_set_forward(clock):
    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            clock[0] += 3600
            await asyncio.sleep(0.01)
            return await ScriptedModel(["in time"]).reply(request, emit)

    result = await Agent(Slow(), stops=deadline("30s"), journal="memory").run("go")
    assert (result.stop.kind, result.output) == ("completed", "in time")
    assert result.state.spent.seconds < 10


async def test_a_deadline_strikes_although_the_clock_was_set_back(clock):
    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            clock[0] -= 3600
            await asyncio.sleep(30)

    result = await Agent(Slow(), stops=deadline("0.2s"), journal="memory").run("go")
    assert result.stop.kind == "deadline"
