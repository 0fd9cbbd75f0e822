"""A server that ends, dies, or is one of several: no run is lost, no effect happens twice, followers catch up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.agent.work.deaths import DEATHS, deaths, pause_left
from kaname.core.errors import JournalFull
from kaname.core.events import Event, ModelReplied, Opened, Received, Resumed, ToolStarted
from kaname.core.messages import ModelReply, ToolCall, assistant, user
from kaname.core.steps import CallModel
from tests import warm
from tests.parts import wait_until
from tests.serve.killing import killing
from tests.serve.serving import ROOT, client, events, serving
from tests.serve.thread_kills import lanes


def test_ending_server_parks_its_runs_and_the_next_goes_on_with_them(tmp_path):
    with serving(tmp_path, KANAME_TEST_PACE="0.05") as served, client(served) as http:
        run = http.post("/api/runs", json={"input": "long", "mode": "detach"}).json()["run_id"]
        told: list[dict] = []

        def follow() -> None:
            with client(served) as own, own.stream("GET", f"/api/runs/{run}/events") as answer:
                for one in events(answer.iter_lines()):
                    told.append(one)

        following = threading.Thread(target=follow)
        following.start()
        wait_until(lambda: len(told) > 3)
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(60)
        following.join()
        assert told[-1]["event"] == "closing"
        after = told[-1]["data"]["data"]["after"]
        assert after == int(told[-2]["id"]) if "id" in told[-2] else after >= 2
    with serving(tmp_path, KANAME_TEST_PACE="0.001") as served, client(served) as http:
        with http.stream("GET", f"/api/runs/{run}/events", headers={"last-event-id": str(after)}) as answer:
            rest = list(events(answer.iter_lines()))
        assert rest[-1]["data"]["data"]["kind"] == "completed"
        assert next(one["data"]["data"]["status"] for one in rest if one["event"] == "status") == "restarted"
        assert next(one for one in rest if one["event"] == "message")["data"]["data"]["content"] == "word " * 400


@pytest.mark.nightly
@pytest.mark.slow
async def test_server_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing(tmp_path):
    told = await killing(tmp_path, kills=4, runs=12, pace=0.2)
    assert told["kills"] >= 2
    assert told["statuses"] == {"completed": 12}
    assert (told["transfers"], told["transfers twice"]) == (36, 0)
    assert told["bookings"] == 36
    assert (told["events twice"], told["followers to the end"]) == (0, 12)


@pytest.mark.slow
def test_run_of_a_server_that_died_is_taken_up_and_followed_at_another(tmp_path):
    with serving(tmp_path, KANAME_TEST_PACE="0.3") as first, serving(tmp_path, KANAME_TEST_PACE="0.001") as second:
        with client(first) as http:
            run = http.post("/api/runs", json={"input": "work", "agent": "worker", "mode": "detach"}).json()["run_id"]
        with client(second) as http, http.stream("GET", f"/api/runs/{run}/events") as answer:
            lines = events(answer.iter_lines())
            assert next(lines)["data"]["data"]["status"] == "started", "another process is at it"
            first.kill()
            rest = list(lines)
        assert rest[-1]["data"]["data"]["output"] == "worked 3 times"
    assert len((tmp_path / "ledger.txt").read_text().split()) == 3


@pytest.mark.nightly
@pytest.mark.slow
def test_metrics_of_several_workers_say_whose_they_are(tmp_path):
    with serving(tmp_path, "--workers", "2") as served:

        def seen() -> set[str]:
            with client(served) as http:  # a new connection, to whichever process takes it
                assert http.post("/api/runs", json={"input": "x"}).json()["output"] == "you said: x"
            with client(served) as http:
                metrics = http.get("/metrics").text
            found.update(re.findall(r'kaname_runs_total\{agent="\w+",stop="completed",process="(\d)"\}', metrics))
            assert 'stop="completed"}' not in metrics
            return found

        found: set[str] = set()
        wait_until(lambda: seen() == {"1", "2"})


@pytest.mark.slow
def test_workers_share_an_address_and_one_that_dies_is_replaced(tmp_path):
    with serving(tmp_path, "--workers", "2") as served, client(served) as http:
        wait_until(lambda: http.get("/readyz").status_code == 200)

        def workers() -> set[int]:
            told = subprocess.run(["pgrep", "-P", str(served.process.pid)], capture_output=True, text=True, check=False).stdout
            return {int(one) for one in told.split()}

        before = wait_until(lambda: workers() if len(workers()) == 2 else None)
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: len(workers()) == 2 and workers() != before)
        for _ in range(10):
            assert http.post("/api/runs", json={"input": "x"}).json()["output"] == "you said: x"
        last = workers()
        served.kill()
        wait_until(lambda: not any(os.path.exists(f"/proc/{one}") for one in last))


def _facts(*bodies) -> list[Event]:
    return [Event("r", number, float(number), "a", body) for number, body in enumerate(bodies, 1)]


def test_run_that_kills_every_server_is_set_aside():
    call = ToolCall("c1", "poison", {})
    began = [Opened(), Received(user("x")), ModelReplied(ModelReply(assistant("", call)), CallModel()), ToolStarted(call)]
    assert deaths(_facts(*began)) == 0
    lives = [(Resumed(life, died=True), ToolStarted(call, attempt=life)) for life in range(2, 2 + DEATHS)]
    died = [*began, *[fact for life in lives for fact in life]]
    assert deaths(_facts(*died)) == DEATHS
    moved = [*died, ModelReplied(ModelReply(assistant("better")), CallModel()), Resumed(9, died=True)]
    assert deaths(_facts(*moved)) == 1


def test_orderly_restart_is_not_counted_as_a_death():
    began = [Opened(), Received(user("x")), Resumed(2, died=True)]
    assert deaths(_facts(*began, *[Resumed(life) for life in range(3, 20)], Resumed(20, died=True))) == 2


async def test_journal_tells_a_process_that_died_from_one_that_released_its_run(tmp_path):
    dead = "import asyncio, os\nfrom kaname import Agent, ScriptedModel\nasync def go():\n await Agent(ScriptedModel(['x ' * 500], pace=1), journal='j.db').run('go', run_id='r').begun()\n os._exit(9)\nasyncio.run(go())"
    warm.run([sys.executable, "-c", dead], cwd=tmp_path, check=False, timeout=180)
    journal = SqliteJournal(tmp_path / "j.db")
    agent = Agent(ScriptedModel(["x " * 500], pace=1), journal=journal)
    for expected in (True, False, False):
        run = await agent.resume("r").begun()
        await run.let_go()
        last = [fact.body async for fact in journal.read("r") if isinstance(fact.body, Resumed)][-1]
        assert last.died is expected
    await journal.close()


@pytest.mark.nightly
def test_runs_go_on_at_once_after_several_orderly_restarts(tmp_path):
    names = [f"run-{number}" for number in range(6)]
    with serving(tmp_path, KANAME_TEST_PACE="60") as served, client(served) as http:
        for name in names:
            http.post("/api/runs", json={"input": "work", "agent": "worker", "run_id": name, "mode": "detach"})
    for _ in range(3):
        with serving(tmp_path, KANAME_TEST_PACE="60") as served, client(served) as http:
            wait_until(lambda: all(http.get(f"/api/runs/{name}").json()["status"] == "running" for name in names))


def test_pause_before_another_life_is_not_made_longer_by_a_clock_that_was_set_back():
    assert pause_left(3, 1.0) == 3.0
    assert not pause_left(3, 5.0)
    assert not pause_left(1, 0.0)
    assert not pause_left(9, -3600.0)


def test_script_that_died_is_not_taken_up_by_a_server(tmp_path):
    """Its runs are the script's: the server's agent of the same name may have other tools."""
    program = "import asyncio, os, tests.serve.agents as a\nasync def go():\n r = await a.worker_agent.run('work').begun()\n await asyncio.sleep(.1)\n os._exit(9)\nasyncio.run(go())"
    environment = {
        **os.environ,
        "KANAME_TEST_FOLDER": str(tmp_path),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "KANAME_TEST_PACE": "0.5",
    }
    warm.run([sys.executable, "-c", program], env=environment, check=False, timeout=180)
    with serving(tmp_path) as served, client(served) as http:
        (run,) = http.get("/api/runs").json()["runs"]
        assert run["status"] == "interrupted"
        mine = http.post("/api/runs", json={"input": "x"}).json()
        assert mine["status"] == "completed"
        assert http.get(f"/api/runs/{run['run_id']}").json()["status"] == "interrupted"
        done = http.post(f"/api/runs/{run['run_id']}/resume", json={}).json()
        assert done["output"] == "worked 3 times", "by hand it is"


SLOW_PAYER = '''
import os, time
from pathlib import Path
from kaname import Agent, ScriptedModel, SqliteJournal, call, tool

FOLDER = Path(os.environ["KANAME_TEST_FOLDER"])

@tool
def pay() -> str:
    """Pay, in a thread, after a while."""
    (FOLDER / "begun.txt").open("a").write("x")
    time.sleep(float(os.environ.get("KANAME_TEST_PACE", "1")))
    (FOLDER / "paid.txt").open("a").write("x")
    return "paid"

def script(request):
    return "done" if request.messages[-1].role == "tool" else call("pay")

agents = [Agent(ScriptedModel(script), [pay], name="payer", journal=SqliteJournal(FOLDER / "journal.db"))]
'''


@pytest.mark.slow
def test_payment_in_a_thread_of_a_server_that_ends_is_not_made_twice(tmp_path):
    """Two servers on one journal. The first waits for the payment, and the second goes on without asking anybody."""
    (tmp_path / "payer.py").write_text(SLOW_PAYER)

    def count(name: str) -> int:
        return len((tmp_path / name).read_text()) if (tmp_path / name).exists() else 0

    def more(**options):
        return serving(tmp_path, agents=str(tmp_path / "payer.py:agents"), **options)

    with more(KANAME_TEST_PACE="1.5") as one, more(KANAME_TEST_PACE="0.1") as other, client(other) as http:
        with client(one) as first:
            run = first.post("/api/runs", json={"input": "go", "mode": "detach"}).json()["run_id"]
        wait_until(lambda: count("begun.txt") == 1)
        one.process.send_signal(signal.SIGTERM)
        wait_until(lambda: http.get(f"/api/runs/{run}").json()["status"] in ("completed", "waiting"))
        one.process.wait(60)
        assert http.get(f"/api/runs/{run}").json()["output"] == "done"
    assert count("paid.txt") == 1


@pytest.mark.slow
def test_payments_in_threads_are_not_repeated_by_processes_that_let_go_stop_and_die(tmp_path):
    told = lanes(tmp_path, 3, 30)
    assert told["repeated"] == []
    assert told["payments"] > 0


@pytest.mark.parametrize("fault", ["full", "write", "sync"])
def test_server_that_cannot_write_is_not_ready_until_it_can(tmp_path, disk_faults, fault):
    control = tmp_path / "fault"
    with serving(tmp_path, LD_PRELOAD=str(disk_faults), KANAME_FAULT=str(control)) as served, client(served) as http:
        assert http.post("/api/runs", json={"input": "x"}).status_code == 201
        assert http.get("/readyz").json() == {"status": "ready"}
        facts = [run["facts"] for run in http.get("/api/runs").json()["runs"]]
        control.write_text(fault)
        told = wait_until(lambda: (answer := http.get("/readyz")).status_code == 503 and answer)
        assert told.json() == {"status": "the journal cannot be written to"}, "where it is, is nobody's business"
        assert http.get("/healthz").status_code == 200
        assert http.post("/api/runs", json={"input": "x"}).status_code in (503, 507)
        control.write_text("")
        wait_until(lambda: http.get("/readyz").status_code == 200)
        assert [run["facts"] for run in http.get("/api/runs").json()["runs"]] == facts, "asking records nothing"
        assert http.post("/api/runs", json={"input": "x"}).status_code == 201
        log = served.log.read_text()
        assert log.count("not ready") == log.count("ready again") == 1


async def test_journal_at_its_quota_cannot_be_written_to(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db", max_bytes=300_000)
    await journal.stores.health.probe()
    with pytest.raises(JournalFull):
        await Agent(ScriptedModel(["x" * 400_000]), journal=journal).run("go")
    await journal.stores.health.probe()
    agent = Agent(ScriptedModel(lambda request: "x" * 2_000), journal=journal)
    with pytest.raises(JournalFull):
        for _ in range(100):
            await agent.run("go")
    agent = Agent(ScriptedModel(lambda request: "x"), journal=journal)
    with pytest.raises(JournalFull):
        for _ in range(1_000):
            await agent.run("go")
    with pytest.raises(JournalFull):
        await journal.stores.health.probe()
    await journal.close()


async def test_probe_of_a_journal_leaves_nothing_in_it(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    await Agent(ScriptedModel(["x"]), journal=journal).run("go")
    before = [one async for one in journal.changes(wait=False)]
    for _ in range(50):
        await journal.stores.health.probe()
    assert [one async for one in journal.changes(wait=False)] == before
    assert await journal.stores.health.verify() == []
    await journal.close()
