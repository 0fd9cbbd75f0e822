"""Kill a run with three tasks in the background before and after each fact, and let another process go on. Script: FOLDER."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from kaname import Agent, MemoryJournal, ScriptedModel, SqliteJournal, Team, call, tool
from kaname.core.events import BACKGROUND, Interjected
from kaname.core.messages import ToolResult
from kaname.core.runs import UNDER_WAY
from kaname.kernel.load import load
from kaname.testing.crash_life import Death, DyingJournal
from tests.talk.killed import in_child

NAMES = ("a", "b", "c")
MOST = 80  # appends; it has fewer


@tool(effect="pure")
async def look() -> str:
    """Look."""
    await asyncio.sleep(0.002)
    return "seen"


def child(name):
    def reply(request):
        return call("look") if request.messages[-1].role == "user" else f"answer of {name}"

    return Agent(ScriptedModel(reply), [look], name=name, journal=MemoryJournal())


def script(request):
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    collected = {str(one.output) for one in results if one.name == "tasks"}
    tasks = [one.output["task"] for one in results if one.name == "delegate_to_agent"]
    told = [message.text for message in request.messages if message.role == "user" and "has ended" in message.text]
    for number, task in enumerate(tasks):
        if f"answer of {NAMES[number]}" not in collected and any(f'"{task}"' in text for text in told):
            return call("tasks", action="collect", task=task)
    if len(tasks) < 3:
        return call("delegate_to_agent", agent=NAMES[len(tasks)], task="look", background=True)
    return "that is all for now"


def make_agent(journal):
    return Agent(
        ScriptedModel(script), name="leader", journal=journal, team=Team([child(one) for one in NAMES], background=True)
    )


async def go_on(agent):
    last = await agent.journal.runs(session="s", limit=1)
    run = agent.resume(last[0].run_id) if last and last[0].status in UNDER_WAY else agent.run("turn", session_id="s")
    await run
    return run.run_id


async def work(path, death):
    journal = SqliteJournal(path)
    agent = make_agent(DyingJournal(journal, death))
    for _ in range(3):
        await go_on(agent)
        while any(card.parent for card in await journal.runs(status="running")):
            await asyncio.sleep(0.002)
    (path.with_suffix(".done")).touch()


async def check(path):
    """Go on until everything is told, and return what is wrong."""
    agent = make_agent(SqliteJournal(path))
    for _ in range(4):
        last = await go_on(agent)
        while any(card.parent for card in await agent.journal.runs(status="running")):
            await asyncio.sleep(0.005)
    told, wrong = Counter(), list[str]()
    async for change in agent.journal.changes(wait=False):
        if isinstance(change.event.body, Interjected):
            told[change.event.body.id.rpartition("/")[2]] += 1
    state = await load(agent.journal, last)
    results = [part for message in state.messages for part in message.parts if isinstance(part, ToolResult)]
    answers = Counter([str(one.output) for one in results if one.name == "tasks"])
    children = Counter([card.agent for card in await agent.journal.runs() if card.parent])
    once = dict.fromkeys(NAMES, 1)
    wrong += [] if told == once else [f"told {dict(told)}"]
    wrong += [] if answers == {f"answer of {name}": 1 for name in NAMES} else [f"answers {dict(answers)}"]
    wrong += [] if children == once else [f"children {dict(children)}"]
    wrong += [f"open {key}" for key, value in state.custom.items() if key.startswith(BACKGROUND) and not value.get("collected")]
    wrong += await agent.journal.stores.health.verify()
    await agent.journal.close()
    print(json.dumps(wrong), flush=True)


def main(folder, step):
    import os

    kills = 0
    for moment in ("before", "after"):
        for number in range(1, MOST, step):
            path = folder / f"{moment}{number}.db"
            os.waitpid(in_child(work, path, Death(moment, number)), 0)
            if path.with_suffix(".done").exists():
                break
            kills += 1
            os.waitpid(in_child(check, path), 0)
    print(json.dumps({"kills": kills}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
