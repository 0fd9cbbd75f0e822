"""Workers: submitted runs are executed once, in their order, by whoever is alive."""

import asyncio
import time

import pytest

from kaname import (
    Agent,
    Approve,
    ConfigError,
    InvalidState,
    MemoryJournal,
    PostgresJournal,
    RunNotFound,
    ScriptedModel,
    SqliteJournal,
    Team,
    Worker,
    call,
    tool,
)
from kaname.agent.work import deaths as rule
from kaname.agent.work import worker as module
from kaname.agent.work.order import encode_order, request_for
from kaname.core.events import Answered, Event, Opened, Received, Resumed
from kaname.core.messages import Message, ModelReply, assistant, user
from kaname.run.input import as_turn
from kaname.stores.queue import QueuedRun, Wanted
from tests.parts import listening


@pytest.fixture(params=["sqlite", "postgres"])
def open_journal(request, tmp_path):
    """Another journal on the same storage each time, as another process has it."""
    opened = []
    url = request.getfixturevalue("url") if request.param == "postgres" else ""

    def make():
        opened.append(PostgresJournal(url) if url else SqliteJournal(tmp_path / "journal.db"))
        return opened[-1]

    return make


class Gate:
    """A model that waits until it may answer."""

    name = "gate"

    def __init__(self, open_at_first=True):
        self.open, self.asked = asyncio.Event(), []
        if open_at_first:
            self.open.set()

    async def reply(self, request, emit):
        self.asked.append(request.messages[-1].text)
        await self.open.wait()
        return await ScriptedModel(lambda request: f"did {request.messages[-1].text}").reply(request, emit)


class Working:
    """A worker under way."""

    def __init__(self, agent, **options):
        self.worker = Worker([agent], **options)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.worker.work())
        return self.worker

    async def __aexit__(self, *_):
        self.worker.stop()
        await self.task


async def ended(agent, run_id, kind="completed"):
    async with asyncio.timeout(60):
        while True:
            try:
                result = await agent.result(run_id)
                if result.stop.kind == kind:
                    return result
            except RunNotFound:
                pass
            await asyncio.sleep(0.02)


async def test_submitted_run_is_executed_by_a_worker_and_is_queued_once(open_journal):
    mine, theirs = open_journal(), open_journal()
    client, model = Agent(ScriptedModel([]), name="clerk", journal=mine), Gate()
    run = await client.submit("the dishes", user_id="ken", run_id="r")
    assert await client.submit("something else", run_id="r") == run
    async with Working(Agent(model, name="clerk", journal=theirs)):
        result = await ended(client, run)
        assert (result.output, result.state.user) == ("did the dishes", "ken")
        again = await client.submit("more")
        assert (await ended(client, again)).output == "did more"
    assert model.asked == ["the dishes", "more"]
    assert dict(await mine.stores.queue.count()) == {}
    await client.submit("the dishes", run_id="r")
    async with Working(Agent(model, name="clerk", journal=theirs)):
        async with asyncio.timeout(60):
            while await mine.stores.queue.find("r") is not None:
                await asyncio.sleep(0.02)
    assert len(model.asked) == 2, "what is done stays done"
    await mine.close()
    await theirs.close()


async def test_runs_of_a_session_take_turns_over_two_workers(open_journal):
    journals = [open_journal(), open_journal()]
    agents = [Agent(ScriptedModel(lambda request: f"{len(request.messages)}"), name="clerk", journal=one) for one in journals]
    runs = [await agents[0].submit(f"turn {number}", session_id="s") for number in range(6)]
    async with Working(agents[0]), Working(agents[1]):
        for run in runs:
            await ended(agents[0], run)
    cards = await journals[0].runs(session="s")
    assert [card.run_id for card in reversed(cards)] == runs
    assert [card.base for card in cards[:-1]] == [card.run_id for card in cards[1:]]
    for journal in journals:
        await journal.close()


async def test_worker_that_stops_releases_its_runs_and_another_goes_on(open_journal):
    first, second = open_journal(), open_journal()
    model = Gate(open_at_first=False)
    agent = Agent(model, name="clerk", journal=first)
    run = await agent.submit("long work")
    async with Working(agent):
        async with asyncio.timeout(60):
            while not model.asked:
                await asyncio.sleep(0.01)
    assert [card.status for card in await first.runs()] == ["interrupted"]
    model.open.set()
    other = Agent(model, name="clerk", journal=second)
    async with Working(other):
        assert (await ended(other, run)).output == "did long work"
    facts = [event.body async for event in second.read(run)]
    assert [fact.died for fact in facts if isinstance(fact, Resumed)] == [False], "it was released in order"
    await first.close()
    await second.close()


async def test_waiting_run_is_stopped_before_a_worker_has_it_and_a_running_one_within_a_second(open_journal):
    mine, theirs = open_journal(), open_journal()
    client, model = Agent(ScriptedModel([]), name="clerk", journal=mine), Gate(open_at_first=False)
    waiting = await client.submit("never", delay="1h")
    assert await client.stop(waiting, "not needed")
    assert not await client.stop(waiting), "it has ended"
    with pytest.raises(InvalidState, match="stopped before it began"):
        await client.resume(waiting)
    with pytest.raises(RunNotFound):
        await client.stop("nothing")
    assert dict(await mine.stores.queue.count()) == {}
    assert await client.submit("never", run_id=waiting) == waiting
    run = await client.submit("forever")
    async with Working(Agent(model, name="clerk", journal=theirs)):
        async with asyncio.timeout(60):
            while not model.asked:
                await asyncio.sleep(0.01)
        await listening(theirs, run)
        began = time.monotonic()
        assert await client.stop(run, "enough")
        assert (await ended(client, run, "cancelled")).stop.detail == "enough"
        assert (await ended(client, waiting, "cancelled")).stop.detail == "not needed"
        async with asyncio.timeout(60):
            while await mine.stores.queue.find(waiting) is not None:
                await asyncio.sleep(0.02)
        assert model.asked == ["forever"], "an id that was stopped before it began is not executed"
        assert time.monotonic() - began < 30, "a second, and the rest for a busy machine"
    await mine.close()
    await theirs.close()


async def test_question_is_answered_through_the_queue(open_journal):
    journal = open_journal()

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], name="clerk", journal=journal, policies=[Approve("pay")])
    run = await agent.submit("pay")
    async with Working(agent):
        result = await ended(agent, run, "waiting")
        (key,) = result.questions
        with pytest.raises(InvalidState, match="no open question"):
            await agent.submit_answers(run, {"nonsense": "yes"})
        await agent.submit_answers(run, {key: "yes"}, by="ken")
        assert [event.body.by async for event in journal.read(run) if isinstance(event.body, Answered)] == ["ken"]
        assert (await ended(agent, run)).output == "done"
    await journal.close()


async def test_answer_whose_process_dies_before_it_queues_the_run_is_not_lost(open_journal, monkeypatch):
    """The run was started by a script, so that no worker would resume it without the answer."""
    journal = open_journal()

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], name="clerk", journal=journal, policies=[Approve("pay")])
    result = await agent.run("pay")

    async def die(items):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(journal.stores.queue, "put", die)
        with pytest.raises(KeyboardInterrupt):
            await agent.submit_answers(result.run_id, dict.fromkeys(result.questions, "yes"))
    assert dict(await journal.stores.queue.count()) == {}
    async with Working(agent):
        assert (await ended(agent, result.run_id)).output == "done"
    await journal.close()


async def test_question_that_expires_is_answered_by_a_worker(open_journal):
    journal = open_journal()

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    model, policy = ScriptedModel([call("pay", yen=5), "not paid"]), Approve("pay", expires=0.1)
    agent = Agent(model, [pay], name="clerk", journal=journal, policies=[policy])
    run = await agent.submit("pay")
    async with Working(agent):
        assert (await ended(agent, run)).output == "not paid"
    assert [event.body.answer["approved"] async for event in journal.read(run) if isinstance(event.body, Answered)] == [False]
    await journal.close()


async def test_question_of_a_task_whose_run_has_ended_expires_too(open_journal):
    journal, go = open_journal(), asyncio.Event()

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    class Paying:
        name = "paying"

        async def reply(self, request, emit):
            await go.wait()
            last = request.messages[-1]
            return ModelReply(Message("assistant", (call("pay", yen=5),)) if last.role == "user" else assistant("not paid"))

    child = Agent(Paying(), [pay], name="payer", policies=[Approve("pay", expires=0.1)], journal=MemoryJournal())
    script = [call("delegate_to_agent", agent="payer", task="Pay.", background=True), "later"]
    agent = Agent(ScriptedModel(script), name="lead", journal=journal, team=Team((child,), background=True))
    run = await agent.submit("pay")
    async with Working(agent):
        assert (await ended(agent, run)).output == "later"
        go.set()
        task = (await journal.runs(agent="payer"))[0].run_id
        assert (await ended(agent, task)).output == "not paid"
    await journal.close()


async def test_run_that_kills_its_workers_is_set_aside_with_its_reason(open_journal, monkeypatch):
    monkeypatch.setattr(module, "DEATHS", 3)
    journal = open_journal()
    agent = Agent(Gate(), name="clerk", journal=journal)
    lease = await journal.claim("poison")
    opened = Opened(recipe={"origin": {"served": "clerk"}})
    facts = [opened, Received(user("x")), *[Resumed(life, died=True) for life in range(2, 5)]]
    await journal.append([Event("poison", seq, 1.0, "clerk", body) for seq, body in enumerate(facts, 1)], lease.epoch)
    await journal.release("poison", lease.epoch)
    async with Working(agent):
        async with asyncio.timeout(60):
            while (item := await journal.stores.queue.find("poison")) is None or item.state != "set_aside":
                await asyncio.sleep(0.02)
        assert "died 3 times without any progress" in item.reason
        assert (await ended(agent, await agent.submit("others go on"))).completed
        assert await journal.stores.queue.again("poison")
        assert (await ended(agent, "poison")).completed, "a person has it tried again"
    await journal.close()


async def test_queued_run_whose_workers_died_before_it_began_is_not_set_aside(open_journal, monkeypatch, caplog):
    """A crash loop, whatever causes it, takes runs and begins none."""
    monkeypatch.setattr(rule, "_LONGEST", 0.3)
    journal, model, wanted = open_journal(), Gate(open_at_first=False), Wanted(("clerk",))
    agent = Agent(model, name="clerk", journal=journal)
    runs = [await agent.submit(f"{number}", run_id=f"r{number}") for number in range(3)]
    for _ in range(2 * module.DEATHS):
        assert len(await journal.stores.queue.take(wanted, 10)) == 3
        assert len(await journal.stores.queue.rescue()) == 3, "the process that took them executes none"
    async with Working(agent):
        async with asyncio.timeout(60):
            while not model.asked or sorted((await journal.stores.queue.count()).items()) != [("delayed", 2), ("taken", 1)]:
                await asyncio.sleep(0.02)
        assert len(model.asked) == 1, "one at a time; the others wait in the queue, where a crash does not count"
        model.open.set()
        for run in runs:
            assert (await ended(agent, run)).completed
        assert (await ended(agent, await agent.submit("another"))).completed
    assert f"{2 * module.DEATHS} workers that took it died" in caplog.text
    assert dict(await journal.stores.queue.count()) == {}
    await journal.close()


async def test_run_that_has_ended_meanwhile_is_not_begun_again(tmp_path):
    """Two workers may have the same run for a moment: the second must not resume what the first has ended."""
    journal = SqliteJournal(tmp_path / "journal.db")
    model = Gate(open_at_first=False)
    agent = Agent(model, name="clerk", journal=journal)
    run = agent.run("x", run_id="r").start()
    await run.begun()
    run.abort("enough")
    assert (await run).stop.kind == "cancelled"
    seen, facts = len(model.asked), [event.seq async for event in journal.read("r")]
    for order in ("", encode_order(as_turn("x"))):
        async with asyncio.timeout(60):
            result = await agent.run_request(request_for(QueuedRun("r", "clerk", order)))
        assert result.stop.kind == "cancelled"
    assert (len(model.asked), [event.seq async for event in journal.read("r")]) == (seen, facts)
    await journal.close()


async def test_interrupted_run_is_found_behind_those_of_scripts_which_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 2)
    journal, model = SqliteJournal(tmp_path / "journal.db"), Gate(open_at_first=False)
    served = Agent(model, name="clerk", journal=journal)
    served.origin = {"served": "clerk"}
    script = Agent(model, name="clerk", journal=journal)
    for agent, run_id in [(served, "ours"), *[(script, f"script-{number}") for number in range(5)]]:
        await (await agent.run("x", run_id=run_id).begun()).let_go()
    model.open.set()
    async with Working(Agent(model, name="clerk", journal=journal)):
        await ended(script, "ours")
    assert {card.status for card in await journal.runs() if card.run_id != "ours"} == {"interrupted"}
    await journal.close()


async def test_key_has_a_limit_over_two_workers(open_journal):
    journals, model = [open_journal(), open_journal()], Gate(open_at_first=False)
    agents = [Agent(model, name="clerk", journal=one) for one in journals]
    for number in range(5):
        await agents[0].submit(f"k{number}", key="ken")
    await agents[0].submit("other", key="mika")
    async with Working(agents[0], per_key=2), Working(agents[1], per_key=2):
        async with asyncio.timeout(60):
            while len(model.asked) < 3:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        assert sorted(model.asked) == ["k0", "k1", "other"]
        model.open.set()
        async with asyncio.timeout(60):
            while len([card for card in await journals[0].runs() if card.status == "completed"]) < 6:
                await asyncio.sleep(0.02)
    for journal in journals:
        await journal.close()


async def test_journal_in_memory_has_no_queue():
    agent = Agent(ScriptedModel([]), journal=MemoryJournal())
    with pytest.raises(ConfigError, match="use a file or a database"):
        await agent.submit("x")
    with pytest.raises(ConfigError, match="use a file or a database"):
        Worker([agent])
