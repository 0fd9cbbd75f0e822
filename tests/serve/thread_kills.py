"""Let go of runs, stop them, and kill processes while tools work in threads; a person answers truthfully what has happened so far.

python -m tests.serve.thread_kills lanes 20 40       # two and three processes on one file: seconds, runs
python -m tests.serve.thread_kills servers 30 12     # two servers: how often one is ended, runs
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from kaname import Agent, AgentError, RunBusy, ScriptedModel, SqliteJournal, ToolContext, call, tool
from tests import warm
from tests.serve.serving import ROOT, Served

FOLDER = Path(os.environ.get("KANAME_TEST_FOLDER", "."))
PAYMENTS = 8  # of each run


@tool
def pay(number: int, context: ToolContext) -> str:
    """Pay, in a thread, after a while."""
    time.sleep(random.uniform(0.02, 0.8))
    with (FOLDER / "ledger.txt").open("a") as file:
        file.write(f"{context.run_id}/{number}\n")
    return "paid"


def script(request: Any) -> Any:
    turn = sum(message.role == "assistant" for message in request.messages)
    return call("pay", number=turn) if turn < PAYMENTS else "done"


agents = [Agent(ScriptedModel(script), [pay], name="payer", journal=SqliteJournal(FOLDER / "journal.db"))]


def entries(folder: Path) -> list[str]:
    return (folder / "ledger.txt").read_text().split() if (folder / "ledger.txt").exists() else []


def truth(folder: Path, run_id: str, number: int) -> Any:
    """What a person says who looks into the ledger now."""
    return {"result": "paid"} if f"{run_id}/{number}" in entries(folder) else "retry"


# Lanes: processes that take runs up, let go of them or stop them half-way, and live on


async def lane(seconds: float, runs: int) -> None:
    agent, until, done = agents[0], time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < until or not entries(FOLDER):  # on a slow machine, not before something has been paid
        await asyncio.gather(*[_one(agent, f"run-{number}", done) for number in random.sample(range(runs), 4)])
    print(json.dumps(done))


async def _one(agent: Agent[Any], run_id: str, done: Counter[str]) -> None:
    answers: dict[str, Any] = {}
    with suppress(AgentError):
        result = await agent.result(run_id)
        for key, asked in result.questions.items():
            assert asked.about is not None
            answers[key] = truth(FOLDER, run_id, asked.about.args["number"])
            done["retry" if answers[key] == "retry" else "result"] += 1
    run = agent.resume(run_id, answers) if answers else agent.start_or_resume(run_id, "go")
    run.start()
    await asyncio.sleep(random.uniform(0.0, 0.5))
    try:
        if random.random() < 0.5:
            await run.let_go()
            done["let go"] += 1
        else:
            run.abort()
            await run
            done["aborted"] += 1
    except RunBusy:
        done["busy"] += 1
    except AgentError:
        done["other"] += 1


def lanes(folder: Path, seconds: float, runs: int, count: int = 2) -> dict[str, object]:
    """Some of the lanes are killed on the way."""
    command = [sys.executable, "-m", "tests.serve.thread_kills", "lane", str(seconds), str(runs)]
    environment = {**os.environ, "KANAME_TEST_FOLDER": str(folder), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    def start() -> subprocess.Popen[str]:
        return warm.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    working, until, told, killed = [start() for _ in range(count)], time.monotonic() + seconds, Counter[str](), 0
    while time.monotonic() < until:
        time.sleep(random.uniform(1.0, 3.0))
        victim = random.randrange(count)
        working[victim].kill()
        working[victim].communicate()
        killed += 1
        working[victim] = start()
    for one in working:
        out, _ = one.communicate(timeout=seconds + 60)
        told.update(json.loads(out or "{}"))
    return {"killed": killed, **told, **_counted(folder)}


def _counted(folder: Path) -> dict[str, object]:
    paid = Counter(entries(folder))
    return {"payments": len(paid), "repeated": [name for name, count in paid.items() if count > 1]}


# Servers: two on one journal, ended in order or killed


async def _look(urls: list[str], path: str) -> dict[str, Any] | None:
    for url in urls:
        with suppress(httpx.HTTPError, ValueError):
            async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as http:
                return dict((await http.get(path)).json())
    return None


async def _until_done(folder: Path, urls: list[str], run_id: str) -> None:
    while True:
        run = await _look(urls, f"/api/runs/{run_id}") or {}
        if run.get("status") == "completed":
            return
        for question in run.get("questions", ()) if isinstance(run.get("questions"), list) else ():
            given = {question["key"]: truth(folder, run_id, question["call"]["arguments"]["number"])}
            with suppress(httpx.HTTPError):
                async with httpx.AsyncClient(base_url=random.choice(urls), trust_env=False, verify=False, timeout=60) as http:
                    await http.post(f"/api/runs/{run_id}/answers", json={"answers": given, "mode": "detach"})
        await asyncio.sleep(0.1)


async def servers(folder: Path, ends: int, runs: int) -> dict[str, object]:
    place, began = "tests/serve/thread_kills.py:agents", time.monotonic()
    serving = [await asyncio.to_thread(Served, folder, agents=place) for _ in range(2)]
    urls, names = [one.url for one in serving], [f"run-{number}" for number in range(runs)]
    for number, name in enumerate(names):
        async with httpx.AsyncClient(base_url=urls[number % 2], trust_env=False, verify=False, timeout=30) as http:
            await http.post("/api/runs", json={"input": "go", "run_id": name, "mode": "detach"})
    waiting = [asyncio.create_task(_until_done(folder, urls, name)) for name in names]
    ended = Counter[str]()
    while sum(ended.values()) < ends and not all(task.done() for task in waiting):
        await asyncio.sleep(random.uniform(0.1, 0.4))
        which, how = random.randrange(2), random.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGKILL])
        serving[which].process.send_signal(how)
        await asyncio.to_thread(serving[which].process.wait, 30)
        ended[how.name] += 1
        serving[which] = await asyncio.to_thread(Served, folder, agents=place, port=serving[which].port)
    await asyncio.wait_for(asyncio.gather(*waiting), 300)
    for one in serving:
        await asyncio.to_thread(one.end)
    missing = PAYMENTS * runs - len(set(entries(folder)))
    return {"ended": dict(ended), "missing": missing, **_counted(folder), "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    kind, first, second = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    if kind == "lane":
        asyncio.run(lane(first, second))
    else:
        with tempfile.TemporaryDirectory() as made:
            if kind == "lanes":
                print(lanes(Path(made), first, second, count=random.choice([2, 3])))
            else:
                print(asyncio.run(servers(Path(made), int(first), second)))
