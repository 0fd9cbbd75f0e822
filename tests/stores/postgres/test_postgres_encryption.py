"""An encrypted database: no planted string is in its tables, a wrong key changes nothing, and an erased user stays unreadable."""

import asyncio
import json
from enum import StrEnum

import pytest

from kaname import Agent, EncryptionError, JournalError, PostgresJournal, ScriptedModel, SqliteJournal, erase_user, replace
from kaname.cli.main import main
from kaname.core.encryption import keys
from kaname.core.encryption.keys import create_key_file
from kaname.core.errors import ConfigError
from kaname.core.events import Event, Noted, Opened, Received
from kaname.core.messages import user
from kaname.kernel.stores import Digest
from kaname.stores.transfer import copy_journal
from kaname.testing.journal_lists import write
from tests.postgres import program, run
from tests.protection.evaluated import SECRETS, evaluate_words
from tests.protection.planted import OTHER, PLANTED, USER, _base64_forms, places, plant
from tests.stores.postgres.proxy import proxied
from tests.stores.postgres.test_postgres_erasure import everything
from tests.stores.postgres.test_postgres_trouble import schema_of, sql


class Who(StrEnum):
    KEN = "user 4"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("KANAME_KEY", raising=False)
    monkeypatch.delenv("KANAME_KEY_FILE", raising=False)
    yield
    keys.forget_keys()


@pytest.fixture
def key(tmp_path):
    create_key_file(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def sealed(url, key):
    """The address of an encrypted journal."""
    return f"{url}&key_file={key}"


def dump(url):
    """What pg_dump writes of a journal."""
    folder = url.partition("&")[0].partition("host=")[2]
    return run(program("pg_dump") or "", "-h", folder, "-U", "kaname", "-n", schema_of(url), "shop")


def planted_in(text):
    """The planted strings that are in a text, also as base64 and in hexadecimal form."""
    forms = {one: [one, one.encode().hex(), *[form.decode() for form in _base64_forms(one)]] for one in PLANTED}
    return {one for one, wanted in forms.items() if any(form in text for form in wanted)}


async def words_of(journal):
    """All that can be read in a journal."""
    found = []
    for card in await journal.runs(limit=1000):
        found += [card.title, *[str(event) async for event in journal.read(card.run_id)]]
        found += [str(letter) for letter in await journal.stores.inbox.letters(card.run_id)]
    return [*found, *map(str, await journal.stores.grants.all())]


async def talk(journal, who, **more):
    agent = Agent(ScriptedModel(lambda request: "a secret answer"), name="desk", journal=journal)
    return await agent.run("a secret question", user_id=who, **more)


async def test_nothing_that_was_said_is_in_the_tables_and_all_of_it_can_be_read(sealed, url, tmp_path):
    await plant(tmp_path)
    file, journal = SqliteJournal(tmp_path / "journal.db"), PostgresJournal(sealed)
    await copy_journal(file, journal)
    cards = await journal.runs(user=USER)
    await journal.stores.digests.put([Digest(one.run_id, one.seq, f"called {PLANTED[5]}", USER) for one in cards])
    await Agent(ScriptedModel([]), name="desk", journal=journal).submit(f"queued {PLANTED[4]}", user_id=USER)
    await journal.keep_snapshot(cards[0].run_id, 1, 1, json.dumps(f"state {PLANTED[4]}"))
    names = {USER, *[card.session for card in await journal.runs(limit=1000)]} & {*PLANTED}
    words = await words_of(journal)
    assert words == await words_of(file)
    assert len(planted_in("\n".join(words))) > 25
    assert planted_in(await everything(url)) == planted_in(dump(url)) == names
    assert await journal.stores.health.verify() == []
    assert [one.text for one in await journal.stores.digests.of([cards[0].run_id])] == [f"called {PLANTED[5]}"]
    (queued,) = await journal.stores.queue.entries("waiting")
    assert PLANTED[4] in queued.order
    where = replace(places(tmp_path), journal=None, server=sealed)
    done = await erase_user(USER, where)
    assert (done.journal.kept, done.journal.answers) == (1, 1)
    assert planted_in(await everything(url)) == set()
    assert planted_in("\n".join(await words_of(journal))) == set()
    assert {card.title for card in await journal.runs(user=OTHER)} == {"what Mia says", "Mia wants to send", "Mia waits"}
    assert await journal.stores.health.verify() == []
    await file.close()
    await journal.close()


async def test_erased_user_cannot_be_read_in_rows_that_are_restored_and_begins_again_with_a_new_key(sealed, url, tmp_path):
    journal, other = PostgresJournal(sealed), PostgresJournal(sealed)
    before, schema = await talk(journal, "ken"), schema_of(url)
    names = 'run, agent, session, "user", status, title, created, updated, seq, input, output, cost, base, questions, parent'
    names += ", base_seq, place, moved, ended, epoch"
    await sql(url, f"CREATE TABLE {schema}.old_facts AS TABLE {schema}.facts")
    await sql(url, f"CREATE TABLE {schema}.old_runs AS SELECT {names} FROM {schema}.runs")
    assert (await talk(other, "ken")).output == "a secret answer"  # it knows the key, too
    await erase_user("ken", replace(places(tmp_path), journal=None, server=sealed))
    after = await talk(other, "ken")
    await sql(url, f"INSERT INTO {schema}.facts SELECT * FROM {schema}.old_facts")
    await sql(url, f"INSERT INTO {schema}.runs ({names}) SELECT {names} FROM {schema}.old_runs")
    third = PostgresJournal(sealed)
    (card,) = await third.runs(run_id=before.run_id)
    assert card.title == "[erased]"
    restored = str([event async for event in third.read(before.run_id)])
    assert "erased" in restored
    assert "secret" not in restored
    assert "a secret answer" in str([event async for event in third.read(after.run_id)])
    for one in (journal, other, third):
        await one.close()


async def test_erasure_finds_the_words_of_a_user_in_evaluations(sealed, url, tmp_path, monkeypatch):
    monkeypatch.setenv("KANAME_JOURNAL", str(tmp_path / "journal.db"))  # the folders of attempts are next to it
    journal = PostgresJournal(sealed)
    await evaluate_words(journal, tmp_path)
    words = "".join(await words_of(journal))
    assert [secret in words for secret in SECRETS] == [True] * len(SECRETS)
    await erase_user("ken", replace(places(tmp_path), journal=None, server=sealed))
    words = "".join([*await words_of(journal), await everything(url)])
    assert [secret for secret in SECRETS if secret in words] == []
    assert await journal.runs(starting="eval-other-"), "others stay"
    await journal.close()


async def test_key_of_a_user_is_made_once_by_several_journals_at_the_same_moment(sealed, url):
    journals = [PostgresJournal(sealed) for _ in range(6)]
    users = ["user 0", "user 1", "user 2", "user 3", Who.KEN]
    results = await asyncio.gather(*[talk(one, who) for who in users for one in journals])
    rows = await sql(url, f"SELECT count(*), count(DISTINCT owner) FROM {schema_of(url)}.keys")
    assert [tuple(row) for row in rows] == [(6, 6)]  # with that of the database
    for result in results:
        assert "a secret answer" in str([event async for event in journals[0].read(result.run_id)])
    for one in journals:
        await one.close()


@pytest.mark.parametrize("lost", [b"a-run", b"COMMIT"])
async def test_first_facts_whose_answer_was_lost_are_written_once(sealed, lost):
    async with proxied(sealed) as (proxy, through):
        journal = PostgresJournal(through)
        await talk(journal, "mia")
        lease = await journal.claim("a-run")
        facts = [Event("a-run", 1, 1.0, "desk", Opened(user="ken")), Event("a-run", 2, 2.0, "desk", Received(user("a secret")))]
        proxy.losing = lost
        await journal.append(facts, lease.epoch)
        assert proxy.lost == 1
        await journal.append([Event("a-run", 3, 3.0, "desk", Noted(user("more")))], lease.epoch)
        found = [event async for event in journal.read("a-run")]
        assert found[:2] == facts
        assert len(found) == 3
        await journal.close()


async def test_wrong_or_missing_key_is_named_and_changes_nothing(sealed, url, tmp_path):
    journal = PostgresJournal(sealed)
    await talk(journal, "ken")
    await journal.close()
    create_key_file(tmp_path / "other")
    before = await everything(url)
    for address, message in ((f"{url}&key_file={tmp_path}/other", "encrypted with another key"), (url, "no key is set")):
        wrong = PostgresJournal(address)
        with pytest.raises(EncryptionError, match=message) as raised:
            await wrong.runs()
        assert "postgresql://kaname@/shop" in str(raised.value)
        with pytest.raises(EncryptionError, match=message):
            await write(wrong, "more")
        await wrong.close()
    assert await everything(url) == before
    await sql(url, f"DELETE FROM {schema_of(url)}.keys")
    journal = PostgresJournal(sealed)
    with pytest.raises(EncryptionError, match=r"is not in the table s\d+\.keys of .*Restore this table"):
        await journal.runs()
    await journal.close()
    with pytest.raises(ConfigError, match="tables of Procrastinate are not encrypted"):
        await PostgresJournal(f"{sealed}&queue=procrastinate").runs()
    with pytest.raises(EncryptionError, match="key file"):
        PostgresJournal(f"{url}&key_file={tmp_path}/none").database.me  # noqa: B018


async def test_process_without_a_key_cannot_write_to_a_database_that_was_encrypted_meanwhile(sealed, url):
    plain, journal = PostgresJournal(url), PostgresJournal(sealed)
    assert await plain.runs() == await journal.runs() == []
    with pytest.raises(JournalError, match="encrypted meanwhile"):
        await write(plain, "1")
    assert await journal.runs() == []
    await plain.close()
    await journal.close()


def test_plain_database_is_refused_and_copied_to_an_encrypted_one(url, sealed, key, monkeypatch, capsys):
    async def work(address):
        journal = PostgresJournal(address)
        try:
            await talk(journal, "ken", run_id="1")
        finally:
            await journal.close()

    asyncio.run(work(url))
    with pytest.raises(EncryptionError, match="is not encrypted, but a key is set"):
        asyncio.run(work(sealed))
    monkeypatch.setenv("KANAME_KEY_FILE", str(key))
    target = url.replace("schema=", "schema=sealed_")
    assert main(["journal", "copy", url, target]) != 0
    assert "is not encrypted" in capsys.readouterr().err
    assert main(["journal", "copy", f"{url}&key_file=", target]) == 0
    assert "secret" in asyncio.run(everything(url))
    assert "secret" not in asyncio.run(everything(target))
    assert main(["runs", "list", "--journal", target]) == 0
    assert "a secret question" in capsys.readouterr().out
    main(["doctor", "--journal", target])
    assert "1 runs, no damage found" in capsys.readouterr().out


def test_key_is_rotated_while_programs_use_the_database(url, key, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KANAME_KEY_FILE", str(key))
    monkeypatch.setenv("KANAME_JOURNAL", url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    old = tmp_path / "old"
    old.write_text(key.read_text())
    old.chmod(0o600)

    async def work():
        journal = PostgresJournal(url)
        first = await talk(journal, "ken")
        assert await asyncio.to_thread(main, ["encrypt", "--rotate"]) == 0
        second = await talk(journal, "mia")  # its key is made after the change
        await journal.close()
        for address in (url, f"{url}&key_file={old}"):
            journal = PostgresJournal(address)
            for one in (first, second):
                assert "a secret answer" in str([event async for event in journal.read(one.run_id)])
            await journal.close()

    with pytest.raises(EncryptionError, match="another key"):
        asyncio.run(work())
    assert key.read_text() != old.read_text()
    assert main(["encrypt", "--undo", "-y"]) != 0
    assert "cannot be decrypted at its place" in capsys.readouterr().err
