"""Streams: any number of readers, none of which holds the run up, loses a fact or sees one twice."""

import asyncio
import gc
import random
import signal
import subprocess
import sys
import textwrap

import pytest

from kaname import (
    Agent,
    Approve,
    MemoryJournal,
    RunBusy,
    RunNotFound,
    ScriptedModel,
    SqliteJournal,
    call,
    max_steps,
    no_repeats,
    per_tool,
    tool,
)
from kaname.core.errors import JournalError
from kaname.core.messages import ModelReply, assistant
from tests import warm
from tests.parts import add, adding, until
from tests.properties import nightly

NO_LIMITS = max_steps(None) | no_repeats(None) | per_tool(None)


class Talking:
    """Says many words, then asks for a tool, `turns` times."""

    name = "talking"

    def __init__(self, turns=5, words=200, pace=0.0):
        self.turns, self.words, self.pace = turns, words, pace

    async def reply(self, request, emit):
        for _ in range(self.words):
            await emit("word ")
            if self.pace:
                await asyncio.sleep(self.pace)
        done = sum(message.role == "tool" for message in request.messages)
        if done < self.turns:
            return await ScriptedModel(lambda _: call("add", a=done, b=1)).reply(request, emit)
        return ModelReply(assistant("done"), "end_turn")


def talking(journal="memory", **how):
    return Agent(Talking(**how), [add], journal=journal, stops=NO_LIMITS)


def facts_of(chunks):
    return list(dict.fromkeys([chunk["data"]["fact"] for chunk in chunks if "fact" in chunk["data"]]))


def numbered(chunks):
    return [chunk["seq"] for chunk in chunks] == list(range(1, len(chunks) + 1))


async def test_a_reader_that_stops_reading_does_not_hold_the_run_up():
    run = talking(turns=5).run("go")
    await anext(run)
    async with asyncio.timeout(60):
        assert (await run).output == "done"
    rest = [chunk async for chunk in run]
    assert facts_of(rest)[-1] == (await run).state.seq, "and finds all the facts when it comes back"


async def test_a_slow_reader_is_told_what_it_has_lost_and_loses_no_fact():
    run = talking(turns=3, words=1000).run("go").start()
    result = await run
    chunks = [chunk async for chunk in run]
    assert numbered(chunks)
    assert facts_of(chunks) == list(range(1, result.state.seq + 1))
    deltas = sum(chunk.type == "delta" for chunk in chunks)
    skipped = sum(chunk.data.get("deltas", 0) for chunk in chunks if chunk.data.get("status") == "skipped")
    assert deltas + skipped == 4000
    assert skipped > 3000


async def test_an_attentive_reader_loses_nothing():
    for pause in (None, 0):
        seen = 0
        async for chunk in talking(turns=1, words=3000).run("go"):
            seen += chunk.type == "delta"
            if pause is not None:
                await asyncio.sleep(pause)
        assert seen == 6000


async def test_a_run_waits_for_a_reader_that_wants_it_to():
    run = talking(turns=1, words=2000).run("go")
    reader = run.subscribe(wait_for_me=True)
    run.start()
    seen = 0
    async for chunk in reader:
        seen += chunk.type == "delta"
        if seen % 500 == 0:
            await asyncio.sleep(0.01)
    assert seen == 4000
    assert (await run).output == "done"


async def test_a_reader_that_wants_the_run_to_wait_and_goes_away_lets_it_go_on():
    run = talking(turns=1, words=2000).run("go")
    reader = run.subscribe(wait_for_me=True)
    run.start()
    await anext(reader)
    await asyncio.sleep(0.02)
    reader.close()
    async with asyncio.timeout(60):
        assert (await run).output == "done"


async def test_a_reader_that_wants_the_run_to_wait_and_is_forgotten_lets_it_go_on():
    run = talking(turns=1, words=2000).run("go")
    reader = run.subscribe(wait_for_me=True)
    run.start()
    await anext(reader)
    await asyncio.sleep(0.02)
    del reader
    await until(run.done, freeing=True)
    assert (await run).output == "done"


async def test_many_readers_get_the_deltas_joined_and_lose_no_text():
    run = talking(turns=2, words=500, pace=0.0005).run("go")
    heard = {}

    async def read(number, reader):
        chunks = heard[number] = [chunk async for chunk in reader]
        assert numbered(chunks)

    reading = [asyncio.create_task(read(number, run.subscribe())) for number in range(100)]
    result = await run
    await asyncio.gather(*reading)
    for chunks in heard.values():
        assert "".join(chunk.data["content"] for chunk in chunks if chunk.type == "delta") == "word " * 1500
        assert facts_of(chunks) == list(range(1, result.state.seq + 1))
        first_reply = [chunk.type for chunk in chunks].index("usage")
        said = "".join(chunk.data["content"] for chunk in chunks[:first_reply] if chunk.type == "delta")
        assert said == "word " * 500, "the text of a reply comes before the reply"
        assert sum(chunk.type == "delta" for chunk in chunks) < 1500


async def test_subscribers_may_begin_anywhere():
    run = talking(turns=4, words=10).run("go")
    result = await run
    for after in (0, 3, result.state.seq - 1):
        chunks = [chunk async for chunk in run.subscribe(after)]
        assert facts_of(chunks) == list(range(after + 1, result.state.seq + 1))
        assert numbered(chunks)


@pytest.mark.parametrize("count", [200, *nightly(1000)])
async def test_many_readers_come_go_stall_and_come_back(tmp_path, count):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = talking(journal, turns=20, words=100, pace=0.0005)
    run = agent.run("go").detach()
    chance, lost = random.Random(7), []

    async def read(number):
        seen, after = [], 0
        while True:
            reader = run.subscribe(after)
            stay = chance.choice([5, 50, 10_000])
            async for chunk in reader:
                if "fact" in chunk.data:
                    seen.append(chunk.data["fact"])
                    after = chunk.data["fact"]
                if not number % 3:
                    await asyncio.sleep(chance.random() * 0.01)  # slow
                stay -= 1
                if not stay:
                    break  # and comes back, perhaps in the middle of a fact's chunks
            reader.close()
            if run.done() and after == (await run).state.seq:
                break
            await asyncio.sleep(chance.random() * 0.05)
        if list(dict.fromkeys(seen)) != list(range(1, after + 1)):
            lost.append(number)

    await asyncio.gather(*[read(number) for number in range(count)])
    assert (await run).output == "done"
    assert lost == []
    await journal.close()


async def test_cancelling_the_iteration_cancels_the_run():
    """As a web server does it when the client is gone: the task around the loop is cancelled."""
    agent = talking(words=10_000, pace=0.001)
    runs = []

    async def serve():
        runs.append(agent.run("go"))
        async for _ in runs[0]:
            pass

    serving = asyncio.create_task(serve())
    await until(agent.journal.runs)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert [card.status for card in await agent.journal.runs()] == ["cancelled"]


async def test_a_generator_around_a_run_that_is_closed_cancels_it():
    agent = talking(words=10_000, pace=0.001)

    async def pieces():
        async for chunk in agent.run("go"):
            yield chunk

    stream = pieces()
    for _ in range(5):
        await anext(stream)
    await stream.aclose()

    async def ended():
        return [card.status for card in await agent.journal.runs()] == ["cancelled"]

    await until(ended, freeing=True)


async def test_a_detached_run_outlives_its_readers_and_can_be_found_again():
    agent, begun = talking(turns=3, words=30, pace=0.001), asyncio.Event()

    async def serve():
        run = agent.run("go").detach()
        async for _ in run:
            begun.set()

    serving = asyncio.create_task(serve())
    await begun.wait()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    gc.collect()
    (card,) = await agent.journal.runs()
    assert card.status == "running"
    chunks = [chunk async for chunk in agent.attach(card.run_id)]
    assert any(chunk.type == "delta" for chunk in chunks)
    assert facts_of(chunks)[0] == 1
    assert chunks[-1].data["kind"] == "completed"
    assert numbered(chunks)


async def test_attaching_to_a_run_that_is_over_or_not_there():
    agent = Agent(adding(), [add], journal="memory")
    result = await agent.run("go")
    chunks = [chunk async for chunk in agent.attach(result.run_id)]
    assert facts_of(chunks) == list(range(1, 8))
    assert [chunk async for chunk in agent.attach(result.run_id, after=7)] == []
    with pytest.raises(RunNotFound):
        await anext(agent.attach("nobody"))


async def test_attaching_to_a_run_that_waits_goes_on_when_it_is_answered():
    @tool
    async def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    waiting = await agent.run("go")
    reading = asyncio.create_task(_all(agent.attach(waiting.run_id)))
    await asyncio.sleep(0.02)
    assert not reading.done()
    await agent.resume(waiting.run_id, {"approve:c1_0": "yes"})
    async with asyncio.timeout(60):
        chunks = await reading
    assert chunks[-1].data["output"] == "done"
    assert facts_of(chunks) == sorted(facts_of(chunks))


async def test_facts_of_a_journal_that_cannot_be_closed_are_followed():
    class Plain:
        def __init__(self, facts):
            self._facts = facts

        def __aiter__(self):
            return self

        async def __anext__(self):
            return await anext(self._facts)

    followed = asyncio.Event()

    class Own(MemoryJournal):
        def follow(self, run_id, after=0):
            followed.set()
            return Plain(super().follow(run_id, after))

    @tool
    async def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal=Own())
    waiting = await agent.run("go")
    reading = asyncio.create_task(_all(agent.attach(waiting.run_id)))
    await followed.wait()
    await agent.resume(waiting.run_id, {"approve:c1_0": "yes"})
    async with asyncio.timeout(60):
        assert (await reading)[-1].data["output"] == "done"


async def _all(stream):
    return [chunk async for chunk in stream]


WORKER = """
    import asyncio, sys
    sys.path.insert(0, {root!r})
    from kaname import SqliteJournal
    from tests.kernel.test_streams import talking

    async def main():
        journal = SqliteJournal(sys.argv[1])
        print((await talking(journal, turns={turns}, words=20, pace=0.002).run("go", run_id="r")).stop.kind)
        await journal.close()

    asyncio.run(main())
"""


def worker(path, root, turns=10):
    program = textwrap.dedent(WORKER.format(root=str(root), turns=turns))
    return warm.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)


async def test_a_run_in_another_process_is_followed_fact_by_fact(tmp_path, request):
    """What a page does that shows a run of a worker's: the facts as they come, and from any one on."""
    journal = SqliteJournal(tmp_path / "journal.db")
    other = worker(tmp_path / "journal.db", request.config.rootpath)
    while not await journal.runs(run_id="r"):
        await asyncio.sleep(0.01)
    other.send_signal(signal.SIGSTOP)
    agent = talking(journal)
    stream = agent.attach("r")
    early = [await anext(stream)]  # as it comes: the run cannot have gone on
    other.send_signal(signal.SIGCONT)
    early += [chunk async for chunk in stream]
    assert (await asyncio.to_thread(other.communicate))[0].strip() == "completed"
    last = (await journal.runs(run_id="r"))[0].seq
    assert facts_of(early) == list(range(1, last + 1))
    assert facts_of([chunk async for chunk in agent.attach("r", after=9)]) == list(range(10, last + 1))
    await journal.close()


async def test_a_run_in_another_process_is_stopped(tmp_path, request):
    journal = SqliteJournal(tmp_path / "journal.db")
    other = worker(tmp_path / "journal.db", request.config.rootpath, turns=10_000)
    while not await journal.runs(run_id="r"):
        await asyncio.sleep(0.01)
    agent = talking(journal)
    assert await agent.stop("r", "enough of it")
    async with asyncio.timeout(60):
        assert (await asyncio.to_thread(other.communicate))[0].strip() == "cancelled"
    assert [chunk.data["detail"] async for chunk in agent.attach("r") if chunk.data.get("status") == "stopped"] == [
        "enough of it"
    ]
    assert not await agent.stop("r"), "nobody is at it any more"
    with pytest.raises(RunNotFound):
        await agent.stop("nobody")
    await journal.close()


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_a_listener_that_keeps_its_place_misses_nothing(tmp_path, kind):
    journal = SqliteJournal(tmp_path / "journal.db") if kind == "sqlite" else "memory"
    agent = Agent(adding(), [add], journal=journal)
    heard, place = [], 0

    async def listen():
        nonlocal place
        async for change in agent.journal.changes(place):
            heard.append((change.event.run_id, change.event.seq))
            place = change.place

    for _ in range(3):  # the listener is restarted in between
        listening = asyncio.create_task(listen())
        results = await asyncio.gather(*[agent.run("go") for _ in range(5)])
        await until(lambda: len(heard) % 42 == 35)  # seven facts each; the sixth run comes while nobody listens
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        results += [await agent.run("go")]
    listening = asyncio.create_task(listen())
    await until(lambda: len(heard) >= 3 * 42)
    listening.cancel()
    wanted = {(card.run_id, seq) for card in await agent.journal.runs() for seq in range(1, card.seq + 1)}
    assert set(heard) == wanted
    assert len(heard) == len(wanted)
    await agent.journal.delete(results[0].run_id)
    left = [change.event.run_id async for change in agent.journal.changes(0, wait=False)]
    assert results[0].run_id not in left
    assert len(left) == len(wanted) - 7
    await agent.journal.close()


async def test_a_run_that_is_let_go_can_be_resumed_within_its_limits():
    agent = Agent(Talking(turns=6, words=20, pace=0.001), [add], journal="memory", stops=max_steps(5) | per_tool(None))
    run = agent.run("go").start()
    await until(agent.journal.runs)
    result = await run.let_go()
    assert result.stop.kind == "released"
    (card,) = await agent.journal.runs()
    assert card.status == "interrupted", "it has not ended"
    again = await agent.resume(run.run_id)
    assert again.stop.kind == "max_steps", "the steps before count"
    assert sum(message.role == "assistant" for message in again.history) == 6, "the last words among them"


async def test_letting_go_of_a_run_that_is_over_gives_its_result():
    run = Agent(adding(), [add], journal="memory").run("go")
    await run
    assert (await run.let_go()).output == "the sum is 7"


async def test_start_or_resume_does_a_thing_once_however_often_it_is_asked_for(tmp_path):
    journal, other = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db")
    acted, refused = [], asyncio.Semaphore(0)

    async def act() -> str:
        acted.append(1)
        await refused.acquire()
        await refused.acquire()
        return "acted"

    async def ask(agent: Agent) -> object:
        try:
            return await agent.start_or_resume("order-42", "go")
        except RunBusy as busy:
            refused.release()
            return busy

    agents = [Agent(ScriptedModel([call("act"), "done"]), [act], journal=one) for one in (journal, other, journal)]
    outcomes = await asyncio.gather(*map(ask, agents))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Result", "RunBusy", "RunBusy"]
    assert all(isinstance(outcome, RunBusy) or outcome.output == "done" for outcome in outcomes)
    assert (await agents[1].start_or_resume("order-42", "go")).output == "done"
    assert acted == [1]
    await journal.close()
    await other.close()


async def test_followers_that_begin_at_different_times_all_come_to_the_end(tmp_path):
    journal, other = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db")
    run = talking(journal, turns=6, words=5, pace=0.005).run("go").start()
    while not await other.runs():
        await asyncio.sleep(0.005)

    async def follow():
        return [event.seq async for event in other.follow(run.run_id)]

    following = []
    for _ in range(12):
        following.append(asyncio.create_task(follow()))
        await asyncio.sleep(0.03)
    result = await run
    async with asyncio.timeout(60):
        for one in await asyncio.gather(*following):
            assert one == list(range(1, result.state.seq + 1))
    await journal.close()
    await other.close()


async def test_a_follower_that_was_busy_when_the_last_fact_came_still_sees_it():
    """Nobody was waiting in that moment, so nobody was woken: it must be noticed all the same."""
    agent = talking(turns=2, words=0)
    run = agent.run("go").start()
    while not await agent.journal.runs():
        await asyncio.sleep(0)
    seen = []
    async with asyncio.timeout(60):
        async for event in agent.journal.follow(run.run_id):
            seen.append(event.seq)
            await run  # everything else is written while this one is looked at
    assert seen == list(range(1, (await run).state.seq + 1))


async def test_a_listener_is_told_when_the_journal_is_closed(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")

    async def listen():
        return [change async for change in journal.changes()]

    listening = asyncio.create_task(listen())
    await talking(journal, turns=1, words=200, pace=0.002).run("go")
    await journal.close()
    with pytest.raises(JournalError, match="is closed"):
        await asyncio.wait_for(listening, 60)


async def test_attaching_right_after_detaching():
    agent = talking(turns=1, words=5)
    run = agent.run("go").detach()
    chunks = [chunk async for chunk in agent.attach(run.run_id)]
    assert chunks[-1].data["output"] == "done"


async def test_a_run_that_is_let_go_while_it_begins_has_begun_and_not_ended():
    for turns in range(8):
        agent = talking(turns=2, words=3)
        run = agent.run("go").start()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert (await run.let_go()).stop.kind == "released"
        (card,) = await agent.journal.runs()
        assert card.status == "interrupted"
        assert (await agent.resume(run.run_id)).output == "done"


async def test_detached_run_is_interrupted_when_the_program_ends_and_another_goes_on(tmp_path):
    program = """
        import asyncio, sys
        from kaname import Agent, ScriptedModel, ToolContext, call, tool

        @tool(effect="pure")
        async def nap() -> str:
            \"\"\"Nap.\"\"\"
            await asyncio.sleep(0 if sys.argv[2:] else 60)
            return "rested"

        @tool(effect="idempotent")
        async def delegate(context: ToolContext) -> str:
            \"\"\"Delegate.\"\"\"
            return (await context.run_child(child, "sleep")).output

        child = Agent(ScriptedModel([call("nap"), "slept"]), [nap], name="child")
        agent = Agent(ScriptedModel([call("delegate"), "done"]), [delegate], journal=sys.argv[1])

        async def main():
            if sys.argv[2:]:
                print([card.status for card in await agent.journal.runs()], (await agent.resume("r")).steps[0].observation)
                return
            run = agent.run("go", run_id="r").detach()
            async for chunk in run:
                if chunk["data"].get("name") == "nap":
                    break

        asyncio.run(main())
    """
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))

    async def start(*more):
        command = [sys.executable, str(path), str(tmp_path / "journal.db"), *more]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        return (await asyncio.wait_for(process.communicate(), 30))[0].decode()

    assert await start() == ""
    assert await start("again") == "['interrupted', 'interrupted'] slept\n"
