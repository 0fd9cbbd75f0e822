"""A scheduler and worker process whose clock a test sets: it goes through a night in steps, and can die at a tick."""

import asyncio
import os
import sys

from kaname import Agent, ScriptedModel, Worker
from kaname.agent.work import worker as workers
from kaname.agent.work.scheduler import Scheduler
from kaname.stores.default import choose


def answer(request):
    with open(os.environ["NIGHT_CALLS"], "a") as file:
        file.write("called\n")
    return "done"


def make_agent(journal):
    agent = Agent(ScriptedModel(answer), name="clerk", journal=journal)
    agent.schedule("nightly", "Count", cron="30 2 * * *", tz="Europe/Berlin", missed="all")
    agent.schedule("quarter", "Look", cron="*/15 * * * *", tz="Europe/Berlin", missed="all")
    agent.schedule("half", "Listen", every="30m", missed="all")
    return agent


class Dying(Agent):
    """Dies at the third tick: before its run is queued, or after it but before the mark is raised."""

    left = 3

    async def submit(self, *given, **more):
        self.left -= 1
        if self.left <= 0 and os.environ["NIGHT_DIES"] == "before":
            os._exit(9)
        run_id = await super().submit(*given, **more)
        if self.left <= 0:
            os._exit(9)
        return run_id


async def main():
    place, begin, end, step = sys.argv[1], *map(float, sys.argv[2:5])
    agent, clock = make_agent(choose(place)), [begin]
    if os.environ.get("NIGHT_DIES"):
        agent.__class__ = Dying
    scheduler = Scheduler([agent], lambda: clock[0])
    workers.Scheduler = lambda agents: scheduler
    worker = Worker([agent])
    await scheduler.check()
    print("up", flush=True)
    sys.stdin.readline()
    working = asyncio.create_task(worker.work() if type(agent) is Agent else asyncio.sleep(0))  # else a reply could be lost
    while clock[0] < end:
        clock[0] = min(end, clock[0] + step)
        await scheduler.check()
    print("over", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    worker.stop()
    await working
    await agent.journal.close()


if __name__ == "__main__":
    asyncio.run(main())
