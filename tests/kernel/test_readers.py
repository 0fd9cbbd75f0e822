"""Readers in hard places: waited for, overtaken, cancelled, too many; text and facts come whole and in order."""

import asyncio

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal, ToolContext, call, tool
from kaname.core.chunks import chunks_of
from kaname.run.run import find_live
from tests.kernel.test_streams import NO_LIMITS, Talking, facts_of, numbered, talking
from tests.parts import until
from tests.properties import nightly


@tool(effect="pure")
async def report(pieces: int, seconds: float, context: ToolContext) -> str:
    """Report progress, then work on."""
    for number in range(pieces):
        await context.progress(f"{number} ")
        await asyncio.sleep(0)
    await asyncio.sleep(seconds)
    return "done"


def reporting(*calls):
    return Agent(ScriptedModel([list(calls), "done"]), [report], journal="memory", stops=NO_LIMITS)


async def shown_by(run):
    """What a reader has to see of a run's facts: of each its chunks, once, in their order."""
    events = [event async for event in run.journal.read(run.run_id)]
    return [(event.seq, chunk.type) for event in events for chunk in chunks_of(event)]


def facts_in(chunks):
    return [(chunk.data["fact"], chunk.type) for chunk in chunks if "fact" in chunk.data]


async def all_of(reader):
    return [chunk async for chunk in reader]


@pytest.mark.parametrize("stall", [0.05, 0.12, 0.14, 0.22])
async def test_facts_of_parallel_tools_keep_their_order_while_a_reader_is_waited_for(stall):
    run = reporting(call("report", pieces=300, seconds=0), call("report", pieces=0, seconds=0.05)).run("go")
    patient, attentive = run.subscribe(wait_for_me=True), run.subscribe()
    run.start()
    reading = asyncio.create_task(all_of(attentive))
    await asyncio.sleep(stall)
    chunks = await all_of(patient)
    result = await run
    assert result.output == "done"
    for seen in (chunks, await reading):
        assert facts_in(seen) == await shown_by(run)


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_run_that_is_stopped_while_it_waits_for_a_reader_has_shown_every_fact(how):
    run = talking(turns=1, words=300).run("go")
    patient, attentive = run.subscribe(wait_for_me=True), run.subscribe()
    reading = asyncio.create_task(all_of(attentive))
    waiting = asyncio.ensure_future(run)
    await until(run.journal.runs)
    await asyncio.sleep(0.05)  # if it is short, less has been said
    run.abort() if how == "abort" else waiting.cancel()
    async with asyncio.timeout(60):
        await asyncio.gather(waiting, return_exceptions=True)
        chunks = await reading
    events = [event async for event in run.journal.read(run.run_id)]
    assert facts_of(chunks) == [event.seq for event in events]
    assert facts_of(await all_of(patient)) == [event.seq for event in events]


async def test_parallel_tools_all_wait_for_a_reader_that_wants_it():
    run = reporting(*[call("report", pieces=400, seconds=0) for _ in range(5)]).run("go")
    reader = run.subscribe(wait_for_me=True)
    run.start()
    seen = 0
    async for chunk in reader:
        seen += chunk.type == "progress"
        if not seen % 100:
            await asyncio.sleep(0.002)
    assert seen == 2000


class Alternating:
    """Says text and thoughts by turns, without a pause."""

    name = "alternating"

    async def reply(self, request, emit):
        for number in range(3000):
            await emit(f"{number} ", "thinking" if number % 2 else "text")
        return await ScriptedModel(["done"]).reply(request, emit)


@pytest.mark.parametrize("wait", [False, True])
async def test_many_attentive_readers_lose_nothing_when_kinds_alternate(wait):
    run = Agent(Alternating(), journal="memory", stops=NO_LIMITS).run("go")
    reading = [asyncio.create_task(all_of(run.subscribe(wait_for_me=wait))) for _ in range(40)]
    await asyncio.sleep(0)
    await run
    for chunks in await asyncio.gather(*reading):
        said = "".join([chunk.data["content"] for chunk in chunks if chunk.type in ("delta", "thinking")])
        assert said.startswith("".join(f"{number} " for number in range(3000)))
        assert numbered(chunks)


async def test_readers_that_come_at_any_moment_see_each_fact_once_and_its_text_before_it():
    """The journal knows a fact before it is shown: what a reader takes from it must neither run ahead nor come again."""
    agent = talking(turns=3, words=20, pace=0.0005)
    append = agent.journal.append

    async def slow(events, epoch):
        await append(events, epoch)
        await asyncio.sleep(0.02)  # readable, and not yet acknowledged

    agent.journal.append = slow
    run = agent.run("go")
    reading = [asyncio.create_task(all_of(run.subscribe(0)))]
    run.detach()
    while not run.done():
        reading.append(asyncio.create_task(all_of(run.subscribe(0))))
        await asyncio.sleep(0.003)
    for chunks in await asyncio.gather(*reading):
        assert facts_in(chunks) == await shown_by(run)
        told = 0
        for chunk in chunks:  # twenty words belong to each reply: more can never come between two of them
            told = 0 if chunk.type == "usage" else told
            told += len(chunk.data["content"].split()) if chunk.type == "delta" else 0
            assert told <= 20


async def test_many_readers_see_what_is_said_while_they_are_being_woken():
    """A piece that comes in the very moment must not wait for the model's next one."""
    heard = asyncio.Event()

    class Pausing:
        name = "pausing"

        async def reply(self, request, emit):
            await emit("one ")
            wake = channel._wake_all

            def in_the_same_moment():
                wake()
                channel._wake_all = wake
                channel.delta("two ", "text", "", "agent")

            channel._wake_all = in_the_same_moment
            async with asyncio.timeout(60):
                await heard.wait()  # it says nothing more before somebody has heard it
            return await ScriptedModel(["done"]).reply(request, emit)

    run = Agent(Pausing(), journal="memory", stops=NO_LIMITS).run("go")
    run.start()
    channel = find_live(run.journal, run.run_id).channel

    async def listen(reader):
        async for chunk in reader:
            if "two" in str(chunk.data.get("content")):
                heard.set()

    listening = [asyncio.create_task(listen(run.subscribe())) for _ in range(20)]
    assert (await run).completed
    await asyncio.gather(*listening)


async def test_a_reader_that_comes_among_many_begins_with_what_is_said_after_it():
    late = []

    class Speaking:
        name = "speaking"

        async def reply(self, request, emit):
            for _ in range(50):
                await emit("before ")
            late.append(run.subscribe())
            await emit("after ")
            return await ScriptedModel([""]).reply(request, emit)

    run = Agent(Speaking(), journal="memory", stops=NO_LIMITS).run("go")
    others = [run.subscribe() for _ in range(20)]
    await run
    assert "".join([chunk.data["content"] async for chunk in late[0] if chunk.type == "delta"]) == "after "
    assert len(others) == 20


async def test_a_run_of_facts_alone_waits_for_nobody_and_its_reader_finds_each_of_them():
    run = talking(turns=200, words=0).run("go")
    reader = run.subscribe(0, wait_for_me=True)
    async with asyncio.timeout(30):
        assert (await run).output == "done", "some 600 facts, and nobody has read one"
    assert facts_in(await all_of(reader)) == await shown_by(run)


@pytest.mark.parametrize("messages", [300, *nightly(600, 2000)])
@pytest.mark.parametrize("words", [5, 1000])
async def test_a_run_with_a_long_history_begins_before_anybody_reads_and_its_reader_misses_no_word(tmp_path, messages, words):
    said = [{"role": "user" if number % 2 else "assistant", "content": f"{number}"} for number in range(messages)]
    run = talking(str(tmp_path / "j.db"), turns=1, words=words).run([*said, {"role": "user", "content": "go"}])
    reader = run.subscribe(0, wait_for_me=True)
    async with asyncio.timeout(30):
        await run.begun()
        chunks = await all_of(reader)
    assert numbered(chunks)
    assert sum(chunk.type == "delta" for chunk in chunks) == 2 * words
    assert facts_in(chunks) == await shown_by(run)


async def test_a_child_with_a_long_history_is_read_by_its_parent_whole():
    clerk = Agent(Talking(turns=0, words=1000), name="clerk", stops=NO_LIMITS)

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have the clerk do it."""
        return (await context.run_child(clerk, [{"role": "user", "content": "x"}] * 600)).unwrap()

    run = Agent(ScriptedModel([call("delegate"), "done"]), [delegate], journal="memory", stops=NO_LIMITS).run("go")
    reader = run.subscribe(0, wait_for_me=True)
    async with asyncio.timeout(30):
        await run.begun()
        chunks = await all_of(reader)
    said = [chunk.data["content"] for chunk in chunks if chunk.type == "delta" and "run_id" in chunk.data]
    assert "".join(said) == "word " * 1000


async def test_a_run_that_queued_before_its_long_history_begins_before_anybody_reads(tmp_path):
    """The word that it queues is no fact: it does not make anybody be waited for before the run has begun."""
    at_work, go = asyncio.Event(), asyncio.Event()

    class Holding(Talking):
        async def reply(self, request, emit):
            at_work.set()
            await go.wait()
            return await super().reply(request, emit)

    ours, other = SqliteJournal(tmp_path / "j.db"), SqliteJournal(tmp_path / "j.db")  # as in two processes
    first = Agent(Holding(turns=0, words=5), name="clerk", journal=other, stops=NO_LIMITS).run("hi", session_id="s").start()
    await at_work.wait()
    agent = Agent(Talking(turns=0, words=5), name="clerk", journal=ours, stops=NO_LIMITS)
    run = agent.run([{"role": "user", "content": "x"}] * 600, session_id="s").start()
    reader = run.subscribe(0, wait_for_me=True)
    async with asyncio.timeout(60):
        chunks = [await anext(reader)]
        assert chunks[0].data["status"] == "queued"
        go.set()
        await run.begun()
        assert facts_in([*chunks, *await all_of(reader)]) == await shown_by(run)
    await first
    for journal in (ours, other):
        await journal.close()


@pytest.mark.parametrize("wait", [False, True])
async def test_a_childs_text_comes_whole_to_its_parents_readers(wait):
    clerk = Agent(Talking(turns=0, words=3000), name="clerk", stops=NO_LIMITS)

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have the clerk do it."""
        return (await context.run_child(clerk, "x")).unwrap()

    boss = Agent(ScriptedModel([call("delegate"), "done"]), [delegate], journal="memory", stops=NO_LIMITS)
    run = boss.run("go")
    reader, said, seen = run.subscribe(wait_for_me=wait), [], 0
    run.start()
    async for chunk in reader:
        seen += 1
        said += [chunk.data["content"]] if chunk.type == "delta" and "run_id" in chunk.data else []
        if wait and not seen % 200:
            await asyncio.sleep(0.005)
    assert "".join(said) == "word " * 3000


async def test_a_reader_of_a_run_that_was_deleted_comes_to_an_end():
    agent = talking(turns=1, words=600)
    run = agent.run("go").start()
    await run
    await agent.journal.delete(run.run_id)
    async with asyncio.timeout(60):
        assert [chunk.type for chunk in await all_of(run)][-1] == "status"


async def test_a_late_subscriber_that_is_overtaken_gets_no_old_fact(tmp_path):
    run = Agent(Talking(turns=0, words=700, pace=0.0005), journal=str(tmp_path / "j.db"), stops=NO_LIMITS).run("go").detach()
    async for chunk in run.subscribe():
        if chunk.type == "delta":
            break
    reader = run.subscribe()
    await run
    assert facts_of(await all_of(reader)) == [3, 4]


async def test_two_tasks_on_one_reader_are_refused_while_it_catches_up(tmp_path):
    run = talking(str(tmp_path / "j.db"), turns=1, words=5).run("go")
    await run
    reader = run.subscribe(0)
    outcomes = await asyncio.gather(all_of(reader), all_of(reader), return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes].count("InvalidState") == 1


async def test_closed_readers_count_no_more():
    run = talking(turns=0, words=200, pace=0.0002).run("go")
    closed = [run.subscribe() for _ in range(30)]
    for reader in closed:
        reader.close()
    seen = [chunk.type async for chunk in run]
    assert seen.count("delta") > 190, "not joined, as they would be for many"


async def test_iterating_a_resumed_run_begins_at_the_same_fact_however_it_was_started():
    agent = talking(turns=1, words=5)
    first = await agent.run("go")
    seen = []
    for start in (lambda run: run, lambda run: run.start(), lambda run: run.detach()):
        seen.append(facts_of(await all_of(start(agent.resume(first.run_id, after=4)))))
    assert seen == [list(range(5, first.state.seq + 1))] * 3
