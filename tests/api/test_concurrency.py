"""Many at once: runs in one process, processes on one file."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal, call, tool
from tests import warm
from tests.properties import nightly


def script(request):
    task = request.messages[0].text
    done = len(request.messages) // 2
    return call("echo", text=f"{task}/{done}") if done < 3 else f"{task} is done"


@tool(effect="pure")
async def echo(text: str) -> str:
    """Echo."""
    await asyncio.sleep(0)
    return text


async def check(journal, names, results):
    for name, result in zip(names, results, strict=True):
        assert result.output == f"{name} is done"
        assert [s.observation for s in result.steps[:3]] == [f"{name}/{n}" for n in range(3)]
        recorded = [event async for event in journal.read(result.run_id)]
        assert [event.seq for event in recorded] == list(range(1, len(recorded) + 1))
        assert all(event.run_id == result.run_id for event in recorded)
        assert recorded[1].body.message.text == name


@pytest.mark.parametrize("count", [100, *nightly(1000)])
async def test_many_runs_at_once_on_one_file(tmp_path, count):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(ScriptedModel(script), [echo], journal=journal)
    names = [f"task {n}" for n in range(count)]
    results = await asyncio.gather(*[agent.run(name) for name in names])
    await check(journal, names, results)
    assert len(await journal.runs(status="completed", limit=2000)) == count
    await journal.close()


WORKER = """
    import asyncio, json, sys
    from kaname import Agent, ScriptedModel, SqliteJournal
    from tests.api.test_concurrency import echo, script
    async def main(path, who):
        journal = SqliteJournal(path)
        agent = Agent(ScriptedModel(script), [echo], journal=journal)
        names = [f"{who}-{n}" for n in range(25)]
        results = await asyncio.gather(*[agent.run(name) for name in names])
        await journal.close()
        print(json.dumps([[name, result.run_id, result.output] for name, result in zip(names, results)]))
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_four_processes_on_one_file(tmp_path):
    path = tmp_path / "journal.db"
    command, env = [sys.executable, "-c", textwrap.dedent(WORKER), str(path)], {**os.environ, "PYTHONWARNINGS": "error"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    workers = [warm.Popen([*command, f"p{n}"], env=env, text=True, **pipes) for n in range(4)]
    outcomes = await asyncio.gather(*[asyncio.to_thread(worker.communicate, None, 120) for worker in workers])
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(script), [echo], journal=journal)
    for out, err in outcomes:
        assert err == ""
        told = json.loads(out)
        assert len(told) == 25
        results = [await agent.resume(run) for _, run, _ in told]
        await check(journal, [name for name, _, _ in told], results)
    assert len(await journal.runs(limit=1000)) == 100
    await journal.close()
    assert list((tmp_path / "journal.db-owners").iterdir()) == []
