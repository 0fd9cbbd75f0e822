"""A damaged file gives the right data or a clear error, never wrong data."""

import os
import random
import sqlite3
import subprocess
from enum import Enum

import pytest

from kaname import Agent, JournalError, ScriptedModel, SharedSession, SqliteJournal, call
from kaname.core.codec import encode
from kaname.core.errors import JournalCorrupt
from kaname.kernel.load import load
from tests.parts import add
from tests.properties import nightly


async def written(path):
    """A journal with sessions, tools and long texts, and everything that can be read from it."""
    journal = SqliteJournal(path)

    def script(request):
        if request.messages[-1].role == "user":
            return call("add", a=len(request.messages), b=1)
        return "長い答え " * (len(request.messages) * 20)

    agent = Agent(ScriptedModel(script), [add], journal=journal)
    for number in range(24):
        await agent.run(f"question {number}", session_id=f"s{number % 5}", user_id=f"u{number % 3}")
    truth = await everything(journal)
    await journal.close()
    return truth


async def everything(journal):
    cards = await journal.runs()
    facts = {card.run_id: [encode(event) async for event in journal.read(card.run_id)] for card in cards}
    states = {card.run_id: (await load(journal, card.run_id)).history for card in cards}
    sessions = {f"s{number}": await journal.runs(session=f"s{number}") for number in range(5)}
    return cards, facts, states, sessions


def damage(path, seed):
    """One bit, a few bytes, a page of zeros, a page in another's place, or a missing end."""
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    page, other = (chance.randrange(len(content) // 4096) * 4096 for _ in range(2))
    match seed % 5:
        case 0:
            content[place] ^= 1 << chance.randrange(8)
        case 1:
            content[place : place + 16] = chance.randbytes(len(content[place : place + 16]))
        case 2:
            content[page : page + 4096] = bytes(4096)
        case 3:
            content[page : page + 4096] = content[other : other + 4096]
        case 4:
            del content[place:]
    path.write_bytes(content)


@pytest.mark.parametrize("count", [50, *nightly(200)])
async def test_random_damage_gives_a_clear_error_or_the_right_data(tmp_path, count):
    truth = await written(tmp_path / "whole.db")
    whole = (tmp_path / "whole.db").read_bytes()
    told, right = 0, 0
    for seed in range(count):
        path = tmp_path / "damaged.db"
        path.write_bytes(whole)
        damage(path, seed)
        journal = SqliteJournal(path)
        try:
            found = await everything(journal)
        except JournalError as problem:
            found = str(problem)
        if isinstance(found, str):
            assert str(path) in found, f"seed {seed}: {found}"
            told += 1
        else:
            assert found == truth, f"seed {seed}: wrong data"
            right += 1
        await journal.close()
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(f"{path}{ending}"):
                os.unlink(f"{path}{ending}")
    assert told > count / 2, (told, right)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE facts SET body = replace(body, 'question 3', 'question 8')", "fact 2 of run .* does not match its checksum"),
        ("UPDATE facts SET time = time + 1 WHERE seq = 4", "fact 4 of run .* does not match its checksum"),
        ("DELETE FROM facts WHERE type = 'ToolFinished'", "fact 5 of run .* is missing"),
        ("DELETE FROM facts WHERE type = 'Stopped'", "fact 7 of run .* is missing"),
        ("DELETE FROM facts WHERE seq = 1", "fact 1 of run .* is missing"),
        ("UPDATE runs SET seq = 5", "the entry of run .* does not match its checksum"),
        ("UPDATE runs SET place = place + 100", "the entry of run .* does not match its checksum"),
        ("UPDATE runs SET session = 'another'", "the entry of run .* does not match its checksum"),
        ("DELETE FROM runs", "run .* has facts, but no entry"),
    ],
)
async def test_rows_that_were_changed_or_removed_are_noticed(tmp_path, statement, what):
    path = tmp_path / "journal.db"
    cards, *_ = await written(path)
    run = next(card.run_id for card in cards if card.title == "question 3")
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    journal = SqliteJournal(path)
    with pytest.raises(JournalCorrupt, match=what):
        assert [event async for event in journal.read(run)]
    with pytest.raises(JournalCorrupt, match=what):
        await load(journal, run)
    assert await journal.stores.health.verify()
    await journal.close()


async def test_a_removed_result_is_not_paid_for_again(tmp_path):
    """The run goes on from its last fact, which somebody has removed: it must not."""
    path, paid = tmp_path / "journal.db", []

    async def pay() -> str:
        paid.append(1)
        return "paid"

    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel([call("pay"), RuntimeError("the model broke")]), [pay], journal=journal)
    run = agent.run("go")
    with pytest.raises(Exception, match="the model broke"):
        await run
    await journal.close()
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM facts WHERE type IN ('ToolFinished', 'ToolStarted')")
    connection.commit()
    connection.close()
    journal = SqliteJournal(path)
    with pytest.raises(JournalCorrupt, match="is missing"):
        await Agent(ScriptedModel([call("pay"), "done"]), [pay], journal=journal).resume(run.run_id)
    assert paid == [1]
    await journal.close()


async def test_a_damaged_write_ahead_log_gives_an_earlier_state_and_no_other(tmp_path):
    """SQLite takes a log up to its first wrong page. What is lost is lost from the end: whole commits, never a part of one."""
    path = tmp_path / "journal.db"
    (tmp_path / "copies").mkdir()
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda request: f"answer {len(request.messages)}"), journal=journal)
    for number in range(8):
        await agent.run(f"question {number}", session_id="s")
    facts = {card.run_id: [encode(event) async for event in journal.read(card.run_id)] for card in await journal.runs()}
    subprocess.run(["cp", path, f"{path}-wal", tmp_path / "copies"], check=True)  # by another process: see the docs
    await journal.close()
    main, log = (tmp_path / "copies" / "journal.db").read_bytes(), (tmp_path / "copies" / "journal.db-wal").read_bytes()
    for seed in range(40):
        chance = random.Random(seed)
        copy = tmp_path / f"copy-{seed}.db"
        copy.write_bytes(main)
        broken = bytearray(log)
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        (tmp_path / f"copy-{seed}.db-wal").write_bytes(broken)
        journal = SqliteJournal(copy)
        for card in await journal.runs():
            found = [encode(event) async for event in journal.read(card.run_id)]
            assert found == facts[card.run_id][: len(found)], f"seed {seed}"
        assert await journal.stores.health.verify() == []
        await journal.close()


async def test_a_run_can_be_forked_from_before_the_damage(tmp_path):
    path = tmp_path / "journal.db"
    cards, *_ = await written(path)
    run = cards[-1].run_id
    connection = sqlite3.connect(path)
    connection.execute("UPDATE facts SET body = '{}' WHERE run = ? AND seq = 5", (run,))
    connection.commit()
    connection.close()
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda request: "forked"), [add], journal=journal)
    assert (await agent.fork(run, 3, user_input="otherwise")).output == "forked"
    with pytest.raises(JournalCorrupt, match="fact 5"):
        await agent.fork(run)
    await journal.close()


class Person(str, Enum):  # noqa: UP042  StrEnum formats as it is written
    """Texts of a class of their own, which format otherwise than they are written."""

    KEN = "ken"
    RUN = "run-1"
    NAME = "helper"


@pytest.mark.parametrize("session", [SharedSession("team"), Person.KEN, "plain"])
async def test_texts_of_a_class_of_their_own_are_no_damage(tmp_path, session):
    journal = SqliteJournal(tmp_path / "j.db")
    agent = Agent(ScriptedModel(lambda request: f"{len(request.messages)}"), name=Person.NAME, journal=journal)
    await agent.run("one", session_id=session, user_id=Person.KEN, run_id=Person.RUN)
    assert (await agent.run("two", session_id=session, user_id="ken")).output == "3"
    await journal.close()
    later = SqliteJournal(tmp_path / "j.db")
    (_, first) = await later.runs(user="ken", agent="helper")
    assert (first.run_id, first.session) == ("run-1", "shared/team" if isinstance(session, SharedSession) else session)
    assert [event.seq async for event in later.read("run-1")] == [1, 2, 3, 4]
    await later.close()
