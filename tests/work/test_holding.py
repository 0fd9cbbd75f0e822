"""Who claims a run releases it: an answered run is never held by a process that does not execute it."""

import asyncio

import pytest

from kaname import Agent, Approve, PostgresJournal, ScriptedModel, SqliteJournal, call, tool
from kaname.agent.conversation import Conversation
from kaname.core.errors import AgentError, JournalUnreachable
from kaname.core.events import Answered
from tests.work.test_workers import Working, ended


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request, tmp_path):
    postgres = request.param == "postgres"
    return PostgresJournal(request.getfixturevalue("url")) if postgres else SqliteJournal(tmp_path / "journal.db")


@tool
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


def clerk(journal):
    model = ScriptedModel(lambda request: "done" if request.messages[-1].role == "tool" else call("pay", yen=5))
    return Agent(model, [pay], name="clerk", journal=journal, policies=[Approve("pay")])


class Trouble:
    """Cancels the caller at one of its calls of the journal, or lets that call fail, before or after it is carried out."""

    def __init__(self, journal, patch, number, kind):
        self.left, self.kind = number, kind
        for place, name in [(journal, "claim"), (journal, "append"), (journal, "lineage"), (journal.stores.inbox, "letters")]:
            patch.setattr(place, name, self._troubled(getattr(place, name)))

    def _troubled(self, real):
        async def troubled(*given, **options):
            self.left -= 1
            if self.left or self.kind == "later":
                done = await real(*given, **options)
                if not self.left:
                    asyncio.current_task().cancel()
                return done
            if self.kind == "away":
                raise JournalUnreachable("the server is away")
            asyncio.current_task().cancel()
            return await real(*given, **options)

        return troubled


@pytest.mark.parametrize("kind", ["cancelled", "later", "away"])
async def test_answered_run_is_free_whatever_happens_to_its_caller(journal, monkeypatch, kind):
    agent, runs, left = clerk(journal), list[str](), 0
    while left <= 0:  # until no call of the journal is left to trouble
        result = await agent.run("pay")
        answers = dict.fromkeys(result.questions, "yes")
        runs.append(result.run_id)
        with monkeypatch.context() as patch:
            trouble = Trouble(journal, patch, len(runs), kind)
            outcome = await asyncio.gather(agent.submit_answers(result.run_id, answers), return_exceptions=True)
        expected = AgentError if kind == "away" else asyncio.CancelledError
        left = trouble.left
        assert left > 0 or outcome == [None] or isinstance(outcome[0], expected)
        if not [event async for event in journal.read(result.run_id) if isinstance(event.body, Answered)]:
            await agent.submit_answers(result.run_id, answers)
    assert len(runs) > 3
    async with Working(agent):
        for run in runs:
            assert (await ended(agent, run)).output == "done"
    await journal.close()


async def test_worker_whose_read_fails_at_the_start_tries_the_run_again(journal, monkeypatch):
    agent = clerk(journal)
    result = await agent.run("pay")
    real, failed = journal.stores.inbox.letters, []

    async def letters(run_id, *given, **options):
        if not failed:
            failed.append(run_id)
            raise JournalUnreachable("the server is away")
        return await real(run_id, *given, **options)

    await agent.submit_answers(result.run_id, dict.fromkeys(result.questions, "yes"))
    monkeypatch.setattr(journal.stores.inbox, "letters", letters)
    async with Working(agent):
        assert (await ended(agent, result.run_id)).output == "done"
    assert failed == [result.run_id]
    await journal.close()


@pytest.mark.parametrize("how", ["new", "resumed"])
async def test_run_is_released_when_its_beginning_fails_after_it_was_recorded(journal, monkeypatch, how):
    """What the caller has to record before the first step is a part of the beginning, too."""
    agent, run_id = clerk(journal), "r"
    if how == "resumed":
        result = await agent.run("pay", run_id=run_id)

    def begin(conversation, scope):
        raise JournalUnreachable("the server is away")

    monkeypatch.setattr(Conversation, "begin", begin)
    async with agent:
        with pytest.raises(JournalUnreachable):
            if how == "new":
                await agent.run("pay", run_id=run_id)
            else:
                await agent.resume(run_id, dict.fromkeys(result.questions, "yes"))
    monkeypatch.undo()
    async with asyncio.timeout(60):
        while (await journal.runs(run_id=run_id))[0].status == "running":
            await asyncio.sleep(0.01)
    result = await agent.resume(run_id)
    if how == "new":
        result = await agent.resume(run_id, dict.fromkeys(result.questions, "yes"))
    assert result.output == "done"
    await journal.close()
