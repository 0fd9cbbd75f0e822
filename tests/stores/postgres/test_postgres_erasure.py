"""Export and erase a user whose runs are in PostgreSQL: nothing of 50 planted strings is left, and other people's data is."""

import asyncio
from zipfile import ZipFile

import asyncpg
import pytest

from kaname import PostgresJournal, RunBusy, ScriptedModel, SqliteJournal, erase_user, export_user, replace
from kaname.agent.agent import Agent
from kaname.cli.main import main
from kaname.kernel.stores import Digest
from kaname.stores.transfer import copy_journal
from tests.protection.evaluated import SECRETS, evaluate_words
from tests.protection.planted import OTHER, PLANTED, USER, places, plant


async def everything(url):
    """All that is stored in the tables of a journal, as text."""
    schema = url.partition("schema=")[2].partition("&")[0]
    connection = await asyncpg.connect(url.partition("&")[0])
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        held = [row[0] for (table,) in tables for row in await connection.fetch(f"SELECT t::text FROM {schema}.{table} AS t")]
        contents = [row[0] for row in await connection.fetch(f"SELECT content FROM {schema}.media")]
        return "\n".join([*held, *[content.decode("latin-1") for content in contents]])
    finally:
        await connection.close()


@pytest.fixture
async def planted(url, tmp_path):
    await plant(tmp_path)
    file, journal = SqliteJournal(tmp_path / "journal.db"), PostgresJournal(url)
    await copy_journal(file, journal)
    await file.close()
    digests = [Digest(card.run_id, card.seq, f"called {PLANTED[5]}", USER) for card in await journal.runs(user=USER)]
    await journal.stores.digests.put(digests)
    yield journal
    await journal.close()


async def test_erasure_leaves_no_planted_string_in_the_database_and_keeps_the_data_of_others(planted, url, tmp_path):
    await Agent(ScriptedModel([]), name="desk", journal=planted).submit(f"queued {PLANTED[4]}", user_id=USER)
    before = await everything(url)
    assert sum([one in before for one in PLANTED]) > 25
    where = replace(places(tmp_path), journal=None, server=url)
    done = await erase_user(USER, where)
    assert done.pending == ()
    assert (done.journal.kept, done.journal.answers) == (1, 1)
    assert done.journal.accounts
    assert done.memories
    after = await everything(url)
    assert [one for one in PLANTED if one in after] == []
    assert await planted.stores.health.verify() == []
    assert {card.title for card in await planted.runs(user=OTHER)} == {"what Mia says", "Mia wants to send", "Mia waits"}
    again = await erase_user(USER, where)
    assert (again.journal.runs, again.journal.answers) == (0, 0)


@pytest.mark.nightly
async def test_erasure_finds_the_words_of_a_user_in_evaluations_and_trials(url, tmp_path, monkeypatch):
    monkeypatch.setenv("KANAME_JOURNAL", str(tmp_path / "journal.db"))  # the folders of attempts are next to it
    journal = PostgresJournal(url)
    await evaluate_words(journal, tmp_path)
    assert [*(tmp_path / "evals").rglob("notes.txt")]
    before = await everything(url)
    assert all(secret in before for secret in SECRETS)
    await erase_user("ken", replace(places(tmp_path), journal=None, server=url))
    after = await everything(url)
    assert [secret for secret in SECRETS if secret in after] == []
    assert not [*(tmp_path / "evals").rglob("notes.txt")]
    assert await journal.runs(starting="eval-other-"), "others stay"
    assert await journal.stores.health.verify() == []
    await journal.close()


async def test_export_has_the_same_as_that_of_a_file(planted, url, tmp_path):
    kept = places(tmp_path)
    one = await export_user(USER, tmp_path / "file.zip", kept)
    other = await export_user(USER, tmp_path / "server.zip", replace(kept, journal=None, server=url))
    assert one[1:] == other[1:]
    with ZipFile(tmp_path / "file.zip") as first, ZipFile(tmp_path / "server.zip") as second:
        assert first.namelist() == second.namelist()
        assert first.read("facts.jsonl") == second.read("facts.jsonl")


async def test_erasure_is_refused_while_a_run_of_the_user_is_executed(url, tmp_path):
    journal, begun = PostgresJournal(url), asyncio.Event()

    class Slow(ScriptedModel):
        async def reply(self, request, emit):
            begun.set()
            await asyncio.sleep(60)

    run = Agent(Slow([]), journal=journal).run("go", user_id="ken").start()
    await begun.wait()
    with pytest.raises(RunBusy):
        await erase_user("ken", replace(places(tmp_path), journal=None, server=url))
    assert len(await journal.runs(user="ken")) == 1
    run.abort()
    await asyncio.wait([asyncio.ensure_future(run.wait())])
    await journal.close()


def test_user_is_erased_at_the_terminal_which_says_what_it_cannot_reach(url, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["user", "erase", "ken", "--yes", "--journal", url]) == 0
    told = capsys.readouterr()
    assert "until it vacuums" in told.out + told.err
