"""Encrypted files: nothing can be read without the key, everything works with it, and problems are named with their remedy."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kaname import Agent, ConfigError, EncryptionError, JournalError, ScriptedModel, SqliteJournal, load_config, use_key
from kaname.core.encryption import keys
from kaname.core.encryption.database import open_database
from kaname.core.encryption.keys import create_key_file, read_key_file
from kaname.core.encryption.user_keys import SEALED, UserKeys
from kaname.memory.files import MemoryFiles
from kaname.memory.protection.encrypting import decrypt_files, encrypt_files, rotate_key
from kaname.policies.reuse.store import CacheStore
from kaname.stores.default import choose
from kaname.testing import JournalContract
from tests import warm
from tests.parts import SOURCE, add, adding
from tests.properties import nightly
from tests.protection.planted import EVICTED, PLANTED, USER, found_in_files, places, plant

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("KANAME_KEY", raising=False)
    monkeypatch.delenv("KANAME_KEY_FILE", raising=False)
    yield
    keys.forget_keys()


@pytest.fixture
def key_file(tmp_path):
    create_key_file(tmp_path / "key")
    return tmp_path / "key"


class TestEncryptedJournal(JournalContract):
    """An encrypted journal keeps the same contract as a plain one."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path
        create_key_file(tmp_path / "key")

    def make(self):
        return SqliteJournal(self.folder / "journal.db", key_file=self.folder / "key")

    def reopen(self, journal):
        return SqliteJournal(journal.path)


async def test_encrypted_run_is_resumed_listed_and_continued_in_its_session(tmp_path, key_file):
    journal = SqliteJournal(tmp_path / "journal.db", key_file=key_file)
    agent = Agent(adding(), [add], journal=journal)
    first = await agent.run("what is 3 + 4?", user_id="ken", session_id="s")
    await journal.close()
    again = SqliteJournal(tmp_path / "journal.db")
    (card,) = await again.runs(user="ken")
    assert (card.title, card.status) == ("what is 3 + 4?", "completed")
    second = await Agent(ScriptedModel(lambda request: str(len(request.messages))), journal=again).run(
        "and now?", user_id="ken", session_id="s"
    )
    assert second.output == "5"
    assert await again.stores.health.verify() == []
    assert first.run_id != second.run_id
    await again.close()


def test_key_file_that_others_can_read_is_refused(tmp_path, key_file):
    key_file.chmod(0o644)
    with pytest.raises(EncryptionError, match="chmod 600"):
        read_key_file(key_file)


@pytest.mark.parametrize("text", ["", "short", "zz" * 32, f"{KEY} and more"])
def test_key_of_another_form_is_refused_without_showing_it(tmp_path, text):
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(EncryptionError, match="64 hexadecimal digits") as problem:
        read_key_file(path)
    assert not text or text not in str(problem.value)


def test_key_shows_nothing_of_itself(key_file):
    secret = key_file.read_text().strip()
    key = read_key_file(key_file)
    assert secret not in f"{key!r} {key} {vars(type(key))}"
    assert key_file.stat().st_mode & 0o777 == 0o600


async def test_missing_key_file_is_named_and_no_journal_is_created(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db", key_file=tmp_path / "lost")
    with pytest.raises(EncryptionError, match=r"lost cannot be read .*Nothing was changed"):
        await journal.runs()
    assert not (tmp_path / "journal.db").exists()
    await journal.close()


@pytest.mark.parametrize("kind", ["journal", "memory", "cache"])
async def test_encrypted_file_without_a_key_is_named_with_the_remedy(tmp_path, key_file, kind):
    use_key(key_file, places=[tmp_path])
    await _use(kind, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.db")}
    keys.forget_keys()
    with pytest.raises(
        (ConfigError, JournalError, sqlite3.DatabaseError), match=r"is encrypted, and no key is set.*KANAME_KEY"
    ):
        await _use(kind, tmp_path, hidden=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.db")} == before


@pytest.mark.parametrize("kind", ["journal", "memory", "cache"])
async def test_plain_file_with_a_key_is_named_with_the_remedy(tmp_path, key_file, kind):
    await _use(kind, tmp_path)
    for path in tmp_path.rglob("user-*.db"):
        path.rename(MemoryFiles(path.parent).path(("user", "ken"), hidden=True))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.db")}
    use_key(key_file, places=[tmp_path])
    with pytest.raises(
        (ConfigError, JournalError, sqlite3.DatabaseError), match=r"is not encrypted, but a key is set.*encrypt"
    ):
        await _use(kind, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.db")} == before


async def _use(kind: str, folder: Path, hidden: bool | None = None) -> None:
    if kind == "journal":
        journal = SqliteJournal(folder / "journal.db")
        try:
            await journal.runs()
        finally:
            await journal.close()
    elif kind == "memory":
        from kaname.memory.store import Memories

        store = Memories(MemoryFiles(folder / "memory").path(("user", "ken"), hidden), "user ken")
        store.add("likes tea")
        assert store.search("tea")
        store.close()
    else:
        store = CacheStore(folder / "cache.db", 1_000_000)
        store.put("key", "value")
        assert store.get("key") is not None
        store.close()


async def test_one_process_does_not_open_a_file_both_plain_and_encrypted(tmp_path, key_file, monkeypatch):
    """SQLCipher must not touch a file that sqlite3 has open: closing it would drop the locks of sqlite3."""
    opened = []
    monkeypatch.setattr("kaname.core.encryption.cipher.connect", lambda *given: opened.append(given))
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.runs()
    with pytest.raises(EncryptionError, match="is not encrypted"):
        open_database(journal.path, key=read_key_file(key_file))
    assert opened == []
    await journal.close()


async def test_encrypting_rotating_and_decrypting_keep_everything(tmp_path, key_file):
    folder = tmp_path / "data"
    await plant(folder)
    (folder / "trace.jsonl").unlink()
    (folder / "users.json").unlink()
    before = await _everything(folder)
    assert found_in_files(folder)
    use_key(key_file, places=[folder])
    assert len(list(encrypt_files(places(folder), read_key_file(key_file)))) >= 6
    assert found_in_files(folder) == {}
    assert await _everything(folder) == before
    assert list(encrypt_files(places(folder), read_key_file(key_file))) == []
    old = key_file.read_text()
    assert len(list(rotate_key(places(folder), read_key_file(key_file)))) >= 6
    assert old.strip() not in key_file.read_text()
    assert await _everything(folder) == before
    list(decrypt_files(places(folder), read_key_file(key_file)))
    keys.forget_keys()
    assert await _everything(folder) == before
    assert not (folder / "journal.db-keys").exists()
    assert set(PLANTED) - set(found_in_files(folder)) == {EVICTED}


@pytest.mark.parametrize("column", ["inbox.body", "grants.conditions"])
async def test_words_that_no_run_has_taken_are_bound_to_their_users_key(tmp_path, key_file, column):
    """Else they could still be read after the user's key was deleted with an erasure."""
    table, name = column.split(".")

    async def stored():
        def work():
            return [
                text for (text,) in (yield (f"SELECT {name} FROM kaname.{table} WHERE \"user\" <> '' ORDER BY id",)) if text
            ]

        journal = SqliteJournal(folder / "journal.db")
        try:
            return await journal.database.read(work)
        finally:
            await journal.close()

    folder = tmp_path / "data"
    await plant(folder)
    plain = await stored()
    assert plain
    use_key(key_file, places=[folder])
    list(encrypt_files(places(folder), read_key_file(key_file)))
    assert all(text.startswith(SEALED) for text in await stored())
    list(decrypt_files(places(folder), read_key_file(key_file)))
    keys.forget_keys()
    assert await stored() == plain


async def _everything(folder: Path) -> list[str]:
    journal = SqliteJournal(folder / "journal.db")
    cards = await journal.runs(limit=1_000)
    found = [repr(card) for card in cards]
    for card in cards:
        found += [repr(event) async for event in journal.read(card.run_id)]
        found += [repr(said) for said in await journal.stores.inbox.letters(card.run_id)]
    found += [repr(grant) for grant in await journal.stores.grants.all()]
    await journal.close()
    files = MemoryFiles(folder / "memory")
    found += [repr(one) for one in files.of(USER).all(past=True)]
    found += [repr(one.memory) for one in files.of(USER).search(PLANTED[26])]
    files.close()
    return found


async def test_conversion_is_refused_while_a_program_uses_the_file(tmp_path, key_file):
    path = tmp_path / "journal.db"
    await SqliteJournal(path).runs()
    program = (
        "import asyncio, sys; from kaname import SqliteJournal\n"
        "async def main():\n"
        "    journal = SqliteJournal(sys.argv[1]); await journal.runs(); await journal.stores.health.probe()\n"
        "    print('ready', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())"
    )
    with warm.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    ) as other:
        assert other.stdout.readline() == b"ready\n"
        before = path.read_bytes()
        run = [sys.executable, "-m", "kaname.cli.main", "encrypt", "--journal", str(path), "--key-file", str(key_file)]
        done = warm.run(run, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": SOURCE})
        assert done.returncode != 0
        assert "is in use" in done.stderr
        assert path.read_bytes() == before
        other.communicate()


async def test_rotation_can_be_finished_after_an_interruption_and_both_keys_work_meanwhile(tmp_path, key_file):
    folder = tmp_path / "data"
    use_key(key_file, places=[folder])
    await plant(folder)
    steps = rotate_key(places(folder), read_key_file(key_file))
    next(steps)
    next(steps)
    steps.close()  # interrupted after two files
    assert len(key_file.read_text().split()) == 2
    assert await _everything(folder)
    list(rotate_key(places(folder), read_key_file(key_file)))
    assert len(key_file.read_text().split()) == 1
    assert await _everything(folder)


async def test_tampering_with_an_encrypted_file_is_reported_and_never_read_as_data(tmp_path, key_file):
    use_key(key_file, places=[tmp_path])
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda request: "answer " * 50), journal=journal)
    for number in range(20):
        await agent.run(f"question {number}", user_id="ken")
    await journal.close()
    whole, chance = path.read_bytes(), random.Random(7)
    for _ in range(40):
        place = chance.randrange(len(whole))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :])
        connection = None
        with pytest.raises((EncryptionError, sqlite3.DatabaseError)):
            connection = open_database(path)
            for table in ("runs", "facts", "moves", "snapshots", "stops"):
                connection.execute(f"SELECT * FROM {table}").fetchall()
            problems = connection.execute("PRAGMA cipher_integrity_check").fetchall()
            if problems:  # a page that no table uses
                raise sqlite3.DatabaseError(str(problems))
        if connection is not None:
            connection.close()


def test_text_that_was_moved_to_another_place_is_refused(tmp_path, key_file):
    use_key(key_file, places=[tmp_path])
    store = UserKeys(tmp_path / "journal.db")
    sealed = store.of("ken").seal("secret", "run 1 Received")
    assert store.unseal(sealed, "run 1 Received") == "secret"
    for text, place in ((sealed, "run 2 Received"), (sealed[:-4] + "AAA=", "run 1 Received")):
        with pytest.raises(EncryptionError, match="changed or moved"):
            store.unseal(text, place)
    store.close()


def test_configuration_names_the_key(tmp_path, key_file):
    file = tmp_path / "kaname.yaml"
    file.write_text("agents: {desk: {model: local}}\nencryption: {key_file: key}\njournal: deep/app.db\n")
    load_config(file)
    for name in (".kaname/cache.db", "deep/app.db", "deep/app.db-keys"):
        assert keys.key_for(tmp_path / name) is not None
    assert keys.key_for(tmp_path / "other.db") is None
    file.write_text("agents: {desk: {model: local}}\nencryption: {}\n")
    with pytest.raises(ConfigError, match="key_file or keyring"):
        load_config(file)


@pytest.mark.parametrize("way", ["file", "environment"])
def test_key_with_a_journal_in_a_database_is_refused_instead_of_storing_plain_text(tmp_path, key_file, monkeypatch, way):
    if way == "file":
        file = tmp_path / "kaname.yaml"
        file.write_text("agents: {desk: {model: local}}\nencryption: {key_file: key}\njournal: postgresql://me:secret@x/db\n")
        with pytest.raises(ConfigError, match="encrypts files") as refused:
            load_config(file)
    else:
        monkeypatch.setenv("KANAME_KEY_FILE", str(key_file))
        with pytest.raises(ConfigError, match="encrypts files") as refused:
            choose("postgresql://me:secret@x/db")
    assert "secret" not in str(refused.value)


def test_key_of_the_environment_is_used_for_all_files(tmp_path, monkeypatch):
    monkeypatch.setenv("KANAME_KEY", KEY)
    with open_database(tmp_path / "a.db", create=True) as connection:
        connection.execute("CREATE TABLE t (word)")
        connection.execute("INSERT INTO t VALUES ('visible')")
    connection.close()
    assert b"visible" not in (tmp_path / "a.db").read_bytes()
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "encrypted", "step"),
    [
        ("rotate", True, 389),
        *nightly(
            *(("encrypt", False, 331), ("erase", True, 389), ("export", True, 787)),
            ("encrypt", False, 67),
            ("rotate", True, 97),
            ("erase", False, 97),
            ("erase", True, 97),
            ("export", True, 197),
        ),
    ],
)
async def test_work_that_is_killed_at_any_line_leaves_whole_files_and_can_be_repeated(tmp_path, kind, encrypted, step):
    folder = tmp_path / "source"
    folder.mkdir()
    if encrypted:
        create_key_file(folder / "key")
        use_key(folder / "key", places=[folder / "data"])
    await plant(folder / "data")
    (folder / "data" / "users.json").unlink()
    if kind == "encrypt":
        create_key_file(folder / "key")
    root = Path(__file__).parents[2]
    done = warm.run(
        [sys.executable, "-m", "tests.protection.killing", kind, str(folder), str(step)],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{root}"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] >= 2
