"""What a child run costs over its own steps: the same work delegated to children, and as runs of their own.

uv run python benchmarks/team.py
"""

import asyncio
import tempfile
import time

from kaname import Agent, ScriptedModel, call, max_steps

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


async def main():
    for name, make in {"memory": lambda: "memory", "SQLite": lambda: tempfile.mktemp(suffix=".db")}.items():
        for kind in (alone, delegated):
            await kind(make())
        best = [min([await kind(make()) for _ in range(3)]) for kind in (alone, delegated)]
        print(
            f"{name}: {best[0]:.2f} ms a run alone, {best[1]:.2f} ms as a child with its call: {best[1] - best[0]:.2f} ms more"
        )


asyncio.run(main())
