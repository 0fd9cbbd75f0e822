"""What a child run costs over its own steps: the same work delegated to children, and as runs of their own.

uv run python benchmarks/team.py
"""

import asyncio
import tempfile
import time

from kaname import Agent, ScriptedModel, call, max_steps, tool

CHILDREN, AT_ONCE = 200, 10


def worker(journal):
    return Agent(ScriptedModel(lambda request: "done"), name="worker", journal=journal)


async def alone(journal):
    agent = worker(journal)
    begun = time.process_time()
    for _ in range(CHILDREN // AT_ONCE):
        await asyncio.gather(*[agent.run("do it") for _ in range(AT_ONCE)])
    return (time.process_time() - begun) * 1000 / CHILDREN


async def delegated(journal):
    rounds = CHILDREN // AT_ONCE

    def script(request):
        asked = sum(message.role == "assistant" for message in request.messages)
        work = [call("delegate_to_agent", agent="worker", task=f"do {asked} {number}") for number in range(AT_ONCE)]
        return work if asked < rounds else "all done"

    lead = Agent(ScriptedModel(script), name="lead", team=[worker("memory")], journal=journal, stops=max_steps(None))
    begun = time.process_time()
    result = await lead.run("go")
    assert result.output == "all done", result.stop
    return (time.process_time() - begun) * 1000 / CHILDREN


@tool(effect="idempotent")
async def nothing(task: str) -> str:
    """A call as the parent makes it, without a child behind it."""
    return "done"


async def called(journal):
    rounds = CHILDREN // AT_ONCE

    def script(request):
        asked = sum(message.role == "assistant" for message in request.messages)
        return [call("nothing", task=f"do {asked} {number}") for number in range(AT_ONCE)] if asked < rounds else "all done"

    lead = Agent(ScriptedModel(script), [nothing], name="lead", journal=journal, stops=max_steps(None))
    begun = time.process_time()
    assert (await lead.run("go")).output == "all done"
    return (time.process_time() - begun) * 1000 / CHILDREN


async def main():
    for name, make in {"memory": lambda: "memory", "SQLite": lambda: tempfile.mktemp(suffix=".db")}.items():
        for kind in (alone, called, delegated):
            await kind(make())
        own, plain, child = [min([await kind(make()) for _ in range(3)]) for kind in (alone, called, delegated)]
        print(
            f"{name}: {own:.2f} ms a run alone, {plain:.2f} ms a plain call, {child:.2f} ms as a child with its call: "
            f"{child - own - plain:.2f} ms over its own steps and the call"
        )


asyncio.run(main())
