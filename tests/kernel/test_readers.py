"""Readers in hard places: waited for, overtaken, cancelled, too many; text and facts come whole and in order."""

import asyncio

import pytest

from kaname import Agent, ScriptedModel, ToolContext, call, tool
from tests.kernel.test_streams import NO_LIMITS, Talking, facts_of, numbered, talking


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
    for seen in (chunks, await reading):
        assert facts_of(seen) == list(range(1, result.state.seq + 1))


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_run_that_is_stopped_while_it_waits_for_a_reader_has_shown_every_fact(how):
    run = talking(turns=1, words=300).run("go")
    patient, attentive = run.subscribe(wait_for_me=True), run.subscribe()
    reading = asyncio.create_task(all_of(attentive))
    waiting = asyncio.create_task(run._result())
    await asyncio.sleep(0.05)
    run.abort() if how == "abort" else waiting.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(waiting, return_exceptions=True)
        chunks = await reading
    events = [event async for event in run._work.journal.read(run.run_id)]
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


async def test_text_comes_before_its_reply_for_a_reader_that_catches_up():
    """The journal knows a fact before it is shown: what a reader takes from it must not run ahead of the deltas."""
    agent = talking(turns=1, words=50, pace=0.0005)
    journal, append = agent.journal, agent.journal.append

    async def slow(events, epoch):
        await append(events, epoch)
        await asyncio.sleep(0.05)  # readable, and not yet acknowledged

    journal.append = slow
    run = agent.run("go").detach()
    while True:
        chunks = await all_of(run.subscribe(0))
        if run._work.task.done():
            break
    for seen in (chunks, await all_of(run)):
        kinds = [chunk.type for chunk in seen]
        first = kinds.index("usage")
        assert kinds[first : kinds.index("usage", first + 1)].count("delta") <= 50, "those of the second reply, and no others"
        assert facts_of(seen) == list(range(1, (await run).state.seq + 1))


async def test_a_reader_of_a_run_that_was_deleted_comes_to_an_end():
    agent = talking(turns=1, words=600)
    run = agent.run("go").start()
    await run
    await agent.journal.delete(run.run_id)
    async with asyncio.timeout(5):
        assert [chunk.type for chunk in await all_of(run)][-1] == "status"


async def test_a_late_subscriber_that_is_overtaken_gets_no_old_fact(tmp_path):
    run = Agent(Talking(turns=0, words=700, pace=0.0005), journal=str(tmp_path / "j.db"), stops=NO_LIMITS).run("go").detach()
    await asyncio.sleep(0.05)
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
