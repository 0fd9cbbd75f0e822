"""Snapshots: a long session is not folded from its first fact for every cold start, and nobody can tell the difference."""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from kaname import Agent, Approve, JournalError, MemoryJournal, ModelError, ScriptedModel, SqliteJournal, call, tool
from kaname.core.codec import decode_state, encode_state
from kaname.core.messages import Media, Message, Provided, Text, Thinking, ToolCall, ToolResult, Usage
from kaname.core.state import FOLD, State, evolve
from kaname.kernel import load as loading
from kaname.kernel.load import load, walk
from tests.parts import add
from tests.properties import tries


@tool
async def pay(yen: int) -> str:
    """Pay."""
    return f"支払い {yen}"


def talking(turns):
    """Answers each turn of a conversation in its own way: with words, tools, two tools at once, a question, a failure."""

    def script(request):
        turn = sum(message.role == "user" for message in request.messages) - 1
        if request.messages[-1].role == "tool":
            return f"turn {turn} is done"
        return {
            "words": f"turn {turn}",
            "tool": call("add", a=turn, b=1),
            "tools": [call("add", a=turn, b=1), call("add", a=turn, b=2)],
            "question": call("pay", yen=turn),
            "failure": ModelError("down"),
        }[turns[turn] if turn < len(turns) else "words"]

    return ScriptedModel(script)


async def folded(journal, run):
    """The state without any snapshot."""
    state = State()
    for event in (await walk(journal, run)).events:
        evolve(state, event)
    return state


def same(one, other):
    """But for what limits count of single calls, which a stop ends."""
    for state in (one, other):
        state.spent.by_call, state.spent.charged = {}, set()
    return one == other


async def snapshots(path):
    def read():
        connection = sqlite3.connect(path)
        try:
            return connection.execute("SELECT run, seq, fold FROM snapshots").fetchall()
        finally:
            connection.close()

    return await asyncio.to_thread(read)


@tries(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.sampled_from(["words", "tool", "tools", "question", "failure"]), min_size=1, max_size=12))
def test_a_state_from_a_snapshot_is_the_state_from_all_facts(monkeypatch, turns):
    monkeypatch.setattr(loading, "_EVERY", 5)

    async def check(folder):
        for _ in turns:  # a new process every turn, as far as the journal can see
            journal = SqliteJournal(folder / "journal.db")
            agent = Agent(talking(turns), [add, pay], policies=[Approve("pay")], journal=journal)
            run = agent.run("go on", session_id="s")
            try:
                result = await run
                assert same(decode_state(encode_state(result.state)), result.state)
            except ModelError:
                pass
            assert same(await load(journal, run.run_id), await folded(journal, run.run_id))
            await journal.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder)))


async def test_a_long_session_is_kept_as_one_snapshot_and_few_facts(tmp_path):
    path = tmp_path / "journal.db"
    for number in range(6):
        journal = SqliteJournal(path)
        agent = Agent(talking(["tool"] * 60), [add], journal=journal)
        for _ in range(10):
            result = await agent.run("go on", session_id="s")
        assert result.output == f"turn {number * 10 + 9} is done"
        lineage = await journal.lineage(result.run_id, fold=FOLD)
        assert lineage.snapshot or number == 0
        assert len(lineage.events) < 210
        await journal.close()
    assert len(await snapshots(path)) == 1


async def test_a_snapshot_goes_with_its_run(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(talking(["tool"] * 30), [add], journal=journal)
    first = (await agent.run("go on", session_id="s")).run_id
    for _ in range(29):
        await agent.run("go on", session_id="s")
    assert await snapshots(path)
    await journal.delete(first, cascade=True)
    assert await snapshots(path) == []
    await journal.close()


@pytest.mark.parametrize("change", ["state = replace(state, 'turn 3 is', 'turn 3 was')", "fold = fold + 1", "sum = 0"])
async def test_a_snapshot_that_is_damaged_or_of_another_fold_is_not_used(tmp_path, change):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(talking(["tool"] * 40), [add], journal=journal)
    for _ in range(30):
        result = await agent.run("go on", session_id="s")
    await journal.close()
    connection = sqlite3.connect(path)
    assert connection.execute(f"UPDATE snapshots SET {change}").rowcount == 1
    connection.commit()
    connection.close()
    journal = SqliteJournal(path)
    assert (await journal.lineage(result.run_id, fold=FOLD)).snapshot == ""
    assert (await load(journal, result.run_id)).history == result.history
    assert (
        await Agent(talking(["tool"] * 40), [add], journal=journal).run("go on", session_id="s")
    ).output == "turn 30 is done"
    await journal.close()


async def test_a_snapshot_that_cannot_be_kept_costs_time_and_nothing_else(caplog):
    class Forgetful(MemoryJournal):
        async def keep_snapshot(self, run, seq, fold, state):
            raise JournalError("no room for it")

    agent = Agent(talking(["tool"] * 30), [add], journal=Forgetful())
    for number in range(30):
        assert (await agent.run("go on", session_id="s")).output == f"turn {number} is done"
    assert "no snapshot of run" in caplog.text


async def test_a_fork_from_before_the_snapshot_sees_what_was_there_then(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(talking(["tool"] * 40), [add], journal=journal)
    runs = [(await agent.run("go on", session_id="s")).run_id for _ in range(30)]
    fork = await agent.fork(runs[4], user_input="otherwise")
    assert fork.output == "turn 5 is done"
    await journal.close()


async def test_a_session_of_approvals_is_kept_as_a_snapshot_too(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(talking(["question"] * 30), [pay], policies=[Approve("pay")], journal=journal)
    for _ in range(20):
        waiting = await agent.run("go on", session_id="s")
        result = await agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert (await journal.lineage(result.run_id, fold=FOLD)).snapshot
    assert same(await load(journal, result.run_id), await folded(journal, result.run_id))
    await journal.close()


def test_every_kind_of_part_comes_back_from_a_snapshot():
    picture = Media("image/png", data="iVBORw0KGgouLg==")
    results = [
        ToolResult(3, call_id="c", name="add"),
        ToolResult(error="boom", call_id="c", name="add", retryable=False),
        ToolResult([1, {"a": None}], call_id="c", name="add", shown="short", media=(picture,), usage=Usage(1, 2, cost=0.5)),
        ToolResult("x", call_id="c", name="add", transfer="clerk", gave_up=True),
    ]
    calls = [ToolCall("c", "add", {"a": []}), ToolCall("c", "add", "raw text"), ToolCall("c", "add", {})]
    said = [Text(""), Text("[1]"), Thinking("hm"), picture, Provided("openai", {"id": 1}), *calls]
    state = State(messages=[Message("assistant", tuple(said)), *[Message("tool", (one,)) for one in results]])
    assert decode_state(encode_state(state)) == state
