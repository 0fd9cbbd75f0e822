"""Media of runs: stored once next to the journal, and gone with their last run."""

import asyncio
import os
from base64 import b64encode

import pytest

from kaname import Agent, Media, ScriptedModel, tool
from kaname.core.codec import dump
from kaname.core.errors import JournalError
from kaname.core.events import Received
from kaname.core.messages import ModelReply, assistant
from kaname.kernel.bases import ModelBase
from kaname.stores import media as shared
from kaname.stores.sqlite import SqliteJournal
from kaname.stores.sqlite import media as stored


def photo(number=0, size=200_000):
    content = b"\x89PNG\r\n\x1a\n" + bytes([number]) * 8 + (8).to_bytes(4) * 2 + os.urandom(size)  # states 8 x 8 pixels
    return Media("image/png", b64encode(content).decode(), name=f"{number}.png")


class Seeing(ModelBase):
    """A model that keeps what it is sent."""

    name = "seeing"

    def __init__(self):
        self.requests = []

    async def reply(self, request, emit):
        self.requests.append(request)
        return ModelReply(assistant("seen"), "end_turn")


def agent(journal, *tools):
    return Agent(ScriptedModel([f"answer {n}" for n in range(50)]), tools, journal=journal)


async def pictures_in(journal, run_id):
    facts = [event.body async for event in journal.read(run_id)]
    return [part for fact in facts if isinstance(fact, Received) for part in fact.message.parts if isinstance(part, Media)]


@pytest.mark.slow
async def test_hundred_pictures_in_a_run_leave_the_journal_below_a_megabyte(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    pictures = [photo(n, 30_000) for n in range(100)]
    result = await agent(journal).run(["look", *pictures])
    await agent(journal).run(["look again", *pictures])  # not stored twice
    assert await pictures_in(journal, result.run_id) == pictures
    assert len(journal.media.of_run(result.run_id)) == 100
    await journal.close()
    assert (tmp_path / "j.db").stat().st_size < 1_000_000
    assert 3_000_000 < (tmp_path / "j.db-media").stat().st_size < 4_000_000
    assert (tmp_path / "j.db-media").stat().st_mode & 0o777 == 0o600


async def test_pictures_survive_another_process_a_fork_and_the_snapshot_of_a_session(tmp_path):
    picture = photo(1)
    journal = SqliteJournal(tmp_path / "j.db")
    first = await agent(journal).run(["look", picture], session_id="s")
    await journal.close()
    journal = SqliteJournal(tmp_path / "j.db")  # as another process opens it
    seen = Seeing()
    again = Agent(seen, journal=journal)
    await again.run("and now?", session_id="s")
    assert picture in seen.requests[0].messages[0].parts
    fork = await again.fork(first.run_id, 2, user_input="what else?")
    assert picture in seen.requests[1].messages[0].parts
    assert fork.output == "seen"
    await journal.close()


async def test_medium_is_removed_with_its_last_run_and_its_bytes_with_it(tmp_path):
    picture = photo(2)
    journal = SqliteJournal(tmp_path / "j.db")
    first = await agent(journal).run(["look", picture])
    second = await agent(journal).run(["look", picture])
    await journal.delete(first.run_id)
    assert await pictures_in(journal, second.run_id) == [picture]
    await journal.delete(second.run_id)
    await journal.close()
    (file,) = tmp_path.glob("*-media")
    assert file.stat().st_size < 50_000


async def test_run_cannot_read_the_medium_of_another_by_its_hash(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    first = await agent(journal).run(["look", photo(3)])
    (one,) = journal.media.of_run(first.run_id)

    @tool(effect="pure")
    def thief() -> dict:
        """Return a part that names another run's medium."""
        return {"type": "media", "mime": "image/png", "stored": one.hash}

    from kaname import call

    mine = Agent(ScriptedModel([call("thief"), "done"]), [thief], journal=journal)
    result = await mine.run("go")
    texts = [str(event.body) async for event in journal.read(result.run_id)]
    assert not any("iVBOR" in text for text in texts)
    assert journal.media.read(result.run_id, one.hash) is None
    assert journal.media.read(first.run_id, one.hash)
    await journal.close()


async def test_medium_whose_run_never_came_into_the_journal_is_swept_after_a_day(tmp_path, monkeypatch):
    journal = SqliteJournal(tmp_path / "j.db")
    result = await agent(journal).run(["look", photo(4)])
    text = dump({"type": "media", "mime": "image/png", "data": photo(5).data})
    assert '"stored":"' in journal.media.detach("never", text)
    await journal.tidy()
    assert journal.media.of_run("never")
    monkeypatch.setattr(stored, "_ORPHANED", -1.0)
    await journal.tidy()
    assert not journal.media.of_run("never")
    assert journal.media.of_run(result.run_id)
    await journal.close()


async def test_medium_that_is_lost_leaves_the_run_readable(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    await agent(journal).run(["look", photo(6)], session_id="s")
    await journal.close()
    (tmp_path / "j.db-media").unlink()
    journal = SqliteJournal(tmp_path / "j.db")
    (run,) = await journal.runs()
    (left,) = await pictures_in(journal, run.run_id)
    assert (left.data, left.name) == ("", "6.png")
    await journal.close()


async def test_backup_takes_the_media_along(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    result = await agent(journal).run(["look", picture := photo(7)])
    await journal.backup(tmp_path / "copy.db")
    await journal.close()
    copy = SqliteJournal(tmp_path / "copy.db")
    assert await pictures_in(copy, result.run_id) == [picture]
    await copy.close()


async def test_medium_over_the_limit_is_refused_and_nothing_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "LARGEST", 1000)
    journal = SqliteJournal(tmp_path / "j.db")
    with pytest.raises(JournalError, match="cannot be stored; the limit is 1,000"):
        await agent(journal).run(["look", photo(8)])
    await journal.close()


async def test_runs_at_the_same_time_store_one_picture_once(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    picture = photo(9)
    results = await asyncio.gather(*[agent(journal).run(["look", picture]) for _ in range(10)])
    for one in results:
        assert await pictures_in(journal, one.run_id) == [picture]
    await journal.close()
    assert (tmp_path / "j.db-media").stat().st_size < 400_000


async def test_media_file_stays_below_the_limit_of_its_journal_and_the_error_says_so(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db", max_bytes=1_000_000)
    await agent(journal).run(["look", photo(1)])
    with pytest.raises(JournalError, match="no space is left"):
        await agent(journal).run(["look", *[photo(n) for n in range(10)]])
    assert (tmp_path / "j.db-media").stat().st_size <= 1_000_000
    await agent(journal).run("without a picture")
    await journal.close()
