"""Kill processes that execute the runs of a session while two others talk to them. Run as a script: FOLDER KILLS SEED."""

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from kaname import Agent, ScriptedModel, SqliteJournal, call, tool
from kaname.core.events import Interjected
from kaname.core.runs import UNDER_WAY
from kaname.kernel.load import load
from kaname.testing.crash_life import Death, DyingJournal, die, read_lines, write_line

TURNS_OF_A_SESSION = 15


@tool(effect="pure")
def step(number: int) -> int:
    """Do one step."""
    time.sleep(0.002)
    return number


def script(request):
    done = 0
    for message in reversed(request.messages):
        if message.role == "user" and message.text.startswith("turn"):
            break
        done += message.role == "tool"
    return call("step", number=done) if done < 3 else "done"


def make_agent(journal):
    return Agent(ScriptedModel(script), [step], journal=journal)


async def go_on(agent, session):
    last = await agent.journal.runs(session=session, limit=1)
    if last and last[0].status in UNDER_WAY:
        await agent.resume(last[0].run_id)
    else:
        await agent.run(f"turn {time.time()}", session_id=session)


async def work(folder, session, death):
    agent = make_agent(DyingJournal(SqliteJournal(folder / "journal.db"), death))
    if death.seconds:
        timer = threading.Timer(death.seconds, die)
        timer.daemon = True
        timer.start()
    while True:
        await go_on(agent, session)


async def talk(folder, who, seed):
    """Say something to the newest run, and note what was acknowledged."""
    dice, number = random.Random(seed), 0
    agent = make_agent(SqliteJournal(folder / "journal.db"))
    while not (folder / "stop").exists():
        await asyncio.sleep(dice.random() * 0.02)
        if runs := await agent.journal.runs(limit=1):
            number += 1
            text = f"<{who}-{number}>"
            await agent.say(runs[0].run_id, text, by=who, urgent=dice.random() < 0.3)
            write_line(folder / f"{who}.log", text)


def in_child(work, *given):
    if child := os.fork():
        return child
    try:
        asyncio.run(work(*given))
    finally:
        os._exit(0)


async def check(folder, sessions):
    """Let each session take in what is left, and compare the record with what was acknowledged."""
    agent, recorded, seen = make_agent(SqliteJournal(folder / "journal.db")), Counter(), Counter()
    for session in sessions:
        for _ in range(2):
            await go_on(agent, session)
        last = (await agent.journal.runs(session=session, limit=1))[0]
        for message in (await load(agent.journal, last.run_id)).messages:
            if message.role == "user" and message.text.startswith("<"):
                seen[message.text] += 1
    async for change in agent.journal.changes(wait=False):
        if isinstance(change.event.body, Interjected):
            recorded[change.event.body.message.text] += 1
    said = {who: read_lines(folder / f"{who}.log") for who in ("mika", "ken")}
    acknowledged = [text for texts in said.values() for text in texts]
    return {
        "said": len(acknowledged),
        "missing": [text for text in acknowledged if recorded[text] != 1 or seen[text] != 1],
        "twice": [text for counted in (recorded, seen) for text, count in counted.items() if count != 1],
        "damage": await agent.journal.stores.health.verify(),
    }


def main(folder, kills, seed):
    dice, sessions = random.Random(seed), []
    talking = [in_child(talk, folder, who, f"{seed}{who}") for who in ("mika", "ken")]
    for number in range(kills):
        sessions += [f"s{len(sessions)}"] if number % TURNS_OF_A_SESSION == 0 else []
        moment = dice.choice(("before", "after", "time"))
        death = Death(moment, dice.randint(1, 14)) if moment != "time" else Death(seconds=0.01 + dice.random() * 0.08)
        os.waitpid(in_child(work, folder, sessions[-1], death), 0)
    (folder / "stop").touch()
    for child in talking:
        os.waitpid(child, 0)
    print(json.dumps(asyncio.run(check(folder, sessions))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
