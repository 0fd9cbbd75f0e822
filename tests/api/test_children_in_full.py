"""What a parent's readers, sinks and figures learn of its children, also at bad moments."""

import asyncio
from collections import Counter

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal, ToolContext, Usage, call, deadline, max_steps, tool
from kaname.core.events import Delta, ModelReplied

SECONDS = 60


def team(clerk, *, journal="memory", **options):
    @tool(effect="idempotent")
    async def delegate(task: str, context: ToolContext) -> str:
        """Delegate."""
        return str((await context.run_child(clerk, task)).unwrap())

    return Agent(ScriptedModel([call("delegate", task="x"), "all done"]), [delegate], name="boss", journal=journal, **options)


def busy_clerk(seen, steps):
    @tool(effect="pure")
    async def step(n: int) -> str:
        """Step."""
        return f"stepped {n}"

    def sink(event):
        if not isinstance(event.body, Delta):
            seen.append(event.seq)

    script = [*[[call("step", n=9 * i + j) for j in range(9)] for i in range(steps)], "clerk done"]
    return Agent(ScriptedModel(script), [step], name="clerk", stops=max_steps(steps + 1), sinks=[sink])


async def test_sinks_of_a_child_get_every_fact_in_order_while_its_parent_is_read():
    seen = []
    boss = team(busy_clerk(seen, 40))
    async for _ in boss.run("go", run_id="p"):
        pass
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == len([event async for event in boss.journal.read("p/c1_0/clerk")])


async def test_deadline_is_kept_while_a_patient_reader_of_a_parent_stalls():
    seen = []
    boss = team(busy_clerk(seen, 200), stops=deadline(1))
    run = boss.run("go", run_id="p")
    reader = run.subscribe(0, wait_for_me=True)
    run.start()
    await reader.get()  # one chunk, and then no more
    await asyncio.wait_for(run.wait(), SECONDS)
    while reader.take():
        pass
    assert (await run).stop.kind == "deadline"
    assert seen == [event.seq async for event in boss.journal.read("p/c1_0/clerk")]


async def test_usage_counts_a_child_whose_call_is_cut_off_while_the_child_begins():
    working = []

    def reply(request):
        working[0].cancel()
        return "done"

    clerk = Agent(ScriptedModel(reply, usage=Usage(10, 5, cost=0.1)), name="clerk")

    @tool(effect="idempotent")
    async def delegate(task: str, context: ToolContext) -> str:
        """Delegate."""
        working.append(asyncio.ensure_future(context.run_child(clerk, task)))
        try:
            return str(await working[0])
        except asyncio.CancelledError:
            return "cut off"

    model = ScriptedModel([call("delegate", task="x"), "all done"], usage=Usage(10, 5, cost=0.0))
    boss = Agent(model, [delegate], name="boss", journal="memory")
    result = await boss.run("go", run_id="p")
    replies = [event.body async for event in boss.journal.read("p/c1_0/clerk") if isinstance(event.body, ModelReplied)]
    assert replies, "the child was cut off after its model had replied"
    assert result.usage.cost == pytest.approx(0.1)


async def test_child_that_another_process_executes_is_shown_once_and_in_full(tmp_path, monkeypatch):
    """The second process is slow between reading the child and claiming it: in between, the first one goes on."""
    go_on, begun = asyncio.Event(), asyncio.Event()

    def boss():
        @tool(effect="pure")
        async def step(n: int) -> str:
            """Step."""
            if n == 1:
                begun.set()
                await go_on.wait()
            return f"stepped {n}"

        clerk = Agent(ScriptedModel([*[call("step", n=n) for n in range(4)], "clerk done"]), [step], name="clerk")
        return team(clerk, journal=SqliteJournal(tmp_path / "journal.db"))

    first = boss()
    run = first.run("go", run_id="p").start()
    await asyncio.wait_for(begun.wait(), SECONDS)
    second, waited = boss(), []
    claim = second.journal.claim

    async def late_claim(run_id, **options):
        if "/" in run_id and len(waited) < 3:
            waited.append(run_id)
            if len(waited) == 3:
                go_on.set()
                while (await second.journal.runs(run_id=run_id))[0].status == "running":
                    await asyncio.sleep(0.01)
        return await claim(run_id, **options)

    monkeypatch.setattr(second.journal, "claim", late_claim)
    told = Counter()

    async def follow():
        async for chunk in second.resume("p", takeover=True):
            if chunk["type"] == "tool_response" and chunk["agent"] == "clerk":
                told[chunk["data"]["content"]] += 1

    await asyncio.wait_for(follow(), SECONDS)
    assert told == {"stepped 1": 1, "stepped 2": 1, "stepped 3": 1}, "readers have seen the step before them already"
    await asyncio.gather(run, return_exceptions=True)  # it was superseded
    for agent in (first, second):
        await agent.journal.close()
