"""PostgreSQL journal and queue: steps a second, CPU a step, followers, processes, hand-out, chaos: python benchmarks/cluster.py [part]

Parts: journal, followers, processes, handout, queue, fleet, chaos, versions. `versions OLD` starts workers of an older version beside
those of this one; OLD is a folder with a checkout, such as one of `git worktree add /tmp/old v0.9`. A step is one model call and one pure tool: three facts. The server is a
cluster of its own with real fsync, on the same machine.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests import postgres
from tests.work.fleet import Fleet
from tests.work.fleet import make_agent as fleet_agent

from kaname import Agent, PostgresJournal, ScriptedModel, SqliteJournal, Worker, call, tool
from kaname.stores.queue import Wanted
from kaname.strategies.stop import max_steps, no_repeats, per_tool

STEPS = 20


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def server_cpu(folder: str) -> float:
    master = psutil.Process(int((Path(folder) / "data/postmaster.pid").read_text().split()[0]))
    return sum(sum(one.cpu_times()[:2]) for one in [master, *master.children()])


def make_agent(journal):
    script = [*[call("add", a=number, b=number) for number in range(STEPS)], "done"]
    return Agent(ScriptedModel(script), [add], journal=journal, stops=[max_steps(100), no_repeats(None), per_tool(None)])


async def measure(name, journal, runs, folder):
    agent = make_agent(journal)
    await agent.run("warm up")
    each = 6 if runs == 1 else 3
    statements = journal._own.statements if isinstance(journal, PostgresJournal) else 0
    server, cpu, wall = server_cpu(folder), time.process_time(), time.perf_counter()

    async def one():
        for _ in range(each):
            result = await agent.run("go")
            assert result.stop.kind == "completed", result.stop

    await asyncio.gather(*[one() for _ in range(runs)])
    steps = runs * each * STEPS
    wall, cpu, server = time.perf_counter() - wall, time.process_time() - cpu, server_cpu(folder) - server
    statements = (journal._own.statements - statements) / steps if isinstance(journal, PostgresJournal) else 0
    print(
        f"{name:12} {runs:3} runs: {steps / wall:6.0f} steps/s, client {cpu / steps * 1e3:.3f} ms, "
        f"server {server / steps * 1e3:.3f} ms CPU a step, {statements:.2f} statements a step",
        flush=True,
    )
    await journal.close()


async def journals(url, home):
    with tempfile.TemporaryDirectory() as folder:
        for runs in (1, 50):
            await measure("SQLite", SqliteJournal(os.path.join(folder, f"{runs}.db")), runs, home)
            await measure("PostgreSQL", PostgresJournal(f"{url}&schema=r{runs}"), runs, home)


async def followers(url, home):
    """The same 50 runs while another process reads all changes, as a server does that shows the runs of its workers."""
    place = f"{url}&schema=f&ttl=1"
    await PostgresJournal(place).runs()
    for name in ("no follower", "one follower") * 2:
        command = [sys.executable, __file__, "follow", place]
        reader = (
            await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) if name == "one follower" else None
        )
        if reader is not None:
            await reader.stdout.readline()
        await measure(name, PostgresJournal(place), 50, home)
        if reader is not None:
            reader.terminate()
            print(f"  (it has read {(await reader.communicate())[0].split()[-1].decode()} facts)")


async def follow(place):
    """Read all changes until SIGTERM, and print how many there were."""
    seen = 0

    async def read():
        nonlocal seen
        print("reading", flush=True)
        async for _ in PostgresJournal(place).changes():
            seen += 1

    reading = asyncio.create_task(read())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
    with suppress(asyncio.CancelledError):
        await reading
    print(seen)


async def processes(url, home):
    """50 runs at once in each of several processes."""
    for count in (1, 2, 4):
        place = f"{url}&schema=p{count}"
        await PostgresJournal(place).runs()
        command = [sys.executable, __file__, "child", place]
        began = time.perf_counter()
        children = [await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) for _ in range(count)]
        spans = [json.loads((await child.communicate())[0]) for child in children]
        steps, wall = sum(one[0] for one in spans), max(one[2] for one in spans) - min(one[1] for one in spans)
        print(f"{count} processes of 50 runs: {steps / wall:.0f} steps/s ({time.perf_counter() - began:.1f} s)", flush=True)


async def child(place):
    journal = PostgresJournal(place)
    agent = make_agent(journal)
    await agent.run("warm up")
    began = time.time()
    await asyncio.gather(*[agent.run("go") for _ in range(50) for _ in range(2)])
    print(json.dumps([100 * STEPS, began, time.time()]))
    await journal.close()


async def handout(url, home):
    """Time from `submit` to the first fact of the run, in an idle worker; then runs that do nothing, a second."""
    for queue in ("kaname", "procrastinate"):
        place = f"{url}&schema=h_{queue}&queue={queue}"
        client, theirs = PostgresJournal(place), PostgresJournal(place)
        agent = Agent(ScriptedModel(lambda request: "done"), name="clerk", journal=theirs)
        sender = Agent(ScriptedModel([]), name="clerk", journal=client)
        worker = Worker([agent], concurrency=16)
        working = asyncio.create_task(worker.work())
        taken = []
        for _ in range(60):
            await asyncio.sleep(0.05)
            began = time.time()
            run = await sender.submit("go")
            while not (cards := await client.runs(run_id=run, limit=1)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            taken.append(cards[0].created - began)
        taken.sort()
        count, began = 300, time.perf_counter()
        await asyncio.gather(*[sender.submit("go") for _ in range(count)])
        while sum([one.runs for one in await client.count() if one.status == "completed"]) < count + 60:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        rate = count / (time.perf_counter() - began)
        print(
            f"{queue}: hand-out p50 {taken[30] * 1e3:.0f} ms, p95 {taken[57] * 1e3:.0f} ms; {rate:.0f} whole runs/s", flush=True
        )
        worker.stop()
        await working
        await client.close()
        await theirs.close()


async def queue(url, home):
    """Fetches while 300,000 runs wait, after as many were handed out."""
    journal = PostgresJournal(f"{url}&schema=q")
    await journal.runs()
    import asyncpg

    connection = await asyncpg.connect(url)
    fill = """INSERT INTO q.queue (run, agent, "order", session, "user", queue, key, priority, at, seq, thread, state)
        SELECT 'r' || n, 'clerk', '{}', '', '', 'default', CASE WHEN $1 THEN 'k' || n % 100 ELSE '' END, n % 3, 0, 0, '', 'waiting'
        FROM generate_series($2::int8, $3::int8) AS n"""
    for keys in (False, True):
        await connection.execute("TRUNCATE q.queue")
        await connection.execute(fill, keys, 1, 300_000)
        await connection.execute("UPDATE q.queue SET state = 'taken', worker = 'x' WHERE number % 2 = 0")
        await connection.execute("DELETE FROM q.queue WHERE state = 'taken'")
        await connection.execute(fill, keys, 300_001, 450_000)
        await connection.execute("ANALYZE q.queue")
        wanted, spans = Wanted(("clerk",), per_key=5 if keys else 0), []
        for _ in range(100):
            began = time.perf_counter()
            (item,) = await journal.queue.take(wanted, 1)
            spans.append(time.perf_counter() - began)
            await journal.queue.finish(item.run_id)
        spans.sort()
        print(
            f"300,000 waiting{', 100 keys with limits' if keys else ''}: fetch p50 {spans[50] * 1e3:.1f} ms, p95 {spans[95] * 1e3:.1f} ms",
            flush=True,
        )
    await connection.close()
    await journal.close()


_DATABASE = "SELECT xact_commit, pg_current_wal_lsn() - '0/0' FROM pg_stat_database WHERE datname = current_database()"
_ROWS = """
SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables WHERE schemaname = $1
"""
_MINE = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def fleet(url, home):
    """What idle workers cost, with and without a schedule and a pooler; then what a run of 20 steps leaves behind."""
    import asyncpg

    connection, count = await asyncpg.connect(url), 20

    async def numbers():
        await asyncio.sleep(1.5)  # the server's statistics arrive with a delay
        return [*await connection.fetchrow(_DATABASE), server_cpu(home), time.perf_counter()]

    for name, options in (
        ("idle", ""),
        ("idle, polling (pooler=transaction)", "&pooler=transaction"),
        ("idle, a schedule every 2 s", ""),
    ):
        place = f"{url}&schema=fleet_{len(name)}{options}"
        workers = []
        for _ in range(count):
            agent = make_agent(PostgresJournal(place))
            if "schedule" in name:
                agent.schedule("often", "go", every="2s")
                agent.recipe = agent.recipe.with_changes(model=ScriptedModel(lambda request: "done"))
            workers.append((Worker([agent], concurrency=4), agent.journal))
        working = [asyncio.create_task(worker.work()) for worker, _ in workers]
        await asyncio.sleep(5)
        before = await numbers()
        await asyncio.sleep(20)
        commits, wal, cpu, seconds = [after - begun for after, begun in zip(await numbers(), before, strict=True)]
        held = await connection.fetchval(_MINE)
        print(
            f"{name}: a worker has {held / count:.1f} connections, {commits / seconds / count:.2f} transactions/s, "
            f"{float(wal) / seconds / count:.0f} bytes of WAL/s, {cpu / seconds / count * 1e3:.2f} ms of server CPU/s",
            flush=True,
        )
        for worker, _ in workers:
            worker.stop()
        await asyncio.gather(*working)
        for _, journal in workers:
            await journal.close()
    journal = PostgresJournal(f"{url}&schema=fleet_rows")
    worker, runs = Worker([agent := make_agent(journal)], concurrency=50), 200
    agent.recipe = agent.recipe.with_changes(model=ScriptedModel(_again))
    await journal.runs()
    before = await numbers()
    for _ in range(runs):
        await agent.submit("go")
    working = asyncio.create_task(worker.work())
    while sum([one.runs for one in await journal.count() if one.status == "completed"]) < runs:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    commits, wal, _, _ = [after - begun for after, begun in zip(await numbers(), before, strict=True)]
    print(
        f"a queued run of {STEPS} steps: {commits / runs:.1f} transactions, {float(wal) / runs / 1e3:.0f} kB of WAL", flush=True
    )
    for table, *told in await connection.fetch(_ROWS, "fleet_rows"):
        if any(told):
            new, changed, hot, gone = [one / runs for one in told]
            print(
                f"  {table}: {new:.1f} rows added, {changed:.1f} changed ({hot:.1f} in place), {gone:.1f} deleted", flush=True
            )
    worker.stop()
    await working
    await journal.close()
    await connection.close()


def _again(request):
    """The next call of the script, for any number of runs."""
    done = sum(message.role == "tool" for message in request.messages)
    return call("add", a=done, b=done) if done < STEPS else "done"


async def count_completed(journal):
    return sum([one.runs for one in await journal.count() if one.status == "completed"])


async def wait_for_completed(journal, count, seconds):
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await count_completed(journal) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
    await asyncio.sleep(1)  # the last entries leave the queue


async def chaos(url, home, seconds=60, rate=5, ttl=3):  # noqa: PLR0915
    """Four workers. One is killed every 2 s, one is stopped for 20 s, the database is restarted, and one is drained at the end."""
    place, folder = f"{url}&schema=chaos&ttl={ttl}", Path(tempfile.mkdtemp())
    os.environ["FLEET_FOLDER"] = str(folder)
    journal, fleet, victims, count = PostgresJournal(place), Fleet(place, folder, FLEET_PACE="0.3"), [], seconds * rate
    sender = fleet_agent(journal)
    workers = [await asyncio.to_thread(fleet.start) for _ in range(4)]

    async def hurt(worker, how):
        cards = await journal.runs(status="running", limit=1000)
        owners = await journal._office().read(lambda c: c.fetch("SELECT run, owner FROM chaos.runs WHERE owner IS NOT NULL"))
        pids = {run: int(owner.partition("@")[0]) for run, owner in owners}
        worker.send_signal(how)
        now = time.time()
        victims.extend([(card.run_id, now) for card in cards if pids.get(card.run_id) == worker.pid])

    async def submit():
        began = time.time()
        for number in range(count):
            await sender.submit("go", session_id=f"s{number % 20}" if number % 4 == 0 else "", run_id=f"r{number:05}")
            await asyncio.sleep(max(0.0, began + number / rate - time.time()))

    submitting, began, kills, stopped, restarted = asyncio.create_task(submit()), time.time(), 0, 0.0, False
    while time.time() - began < seconds:
        await asyncio.sleep(2)
        if not stopped and time.time() - began > seconds / 6:
            await hurt(workers[0], signal.SIGSTOP)
            stopped = time.time()
        if stopped > 1 and time.time() - stopped > 20:
            workers[0].send_signal(signal.SIGCONT)
            stopped = 1.0
        if not restarted and time.time() - began > seconds / 2:
            await asyncio.to_thread(postgres.stop, url)
            await asyncio.to_thread(postgres.start, url)
            restarted = True
        slot = 1 + kills % 3
        await hurt(workers[slot], signal.SIGKILL)
        kills += 1
        workers[slot] = await asyncio.to_thread(fleet.start)
    workers[0].send_signal(signal.SIGCONT)
    await submitting
    workers[3].terminate()
    drained = await asyncio.to_thread(workers[3].wait, 30)
    await wait_for_completed(journal, count, 60)
    cards, ends, takeovers = await journal.runs(limit=count + 100), 0, []
    for card in cards:
        facts = [event async for event in journal.read(card.run_id)]
        ends += sum([type(fact.body).__name__ == "Stopped" for fact in facts]) > 1
        hurt_at = [at for run, at in victims if run == card.run_id][:1]  # a run that is hit again waits longer, on purpose
        later = [fact.time for fact in facts if hurt_at and type(fact.body).__name__ == "Resumed" and fact.time > hurt_at[0]]
        takeovers += [(later[0] - hurt_at[0], hurt_at[0] - began)] if later else []
    done, paid = sum([card.status == "completed" for card in cards]), fleet.paid()
    takeovers.sort()
    print(
        f"chaos, {count} runs, {kills} SIGKILL, SIGSTOP 20 s, restart, SIGTERM (exit {drained}): {count - done} lost, {ends} ended "
        f"twice, {len(paid) - len(set(paid))} effects repeated, {len(takeovers)} takeovers p50 {takeovers[len(takeovers) // 2][0]:.1f} s, "
        f"last {[f'{span:.1f} s at {at:.0f} s' for span, at in takeovers[-4:]]} (ttl {ttl} s), queue {dict(await journal.queue.count())}",
        flush=True,
    )
    fleet.end()
    await journal.close()


async def versions(url, home):
    """Workers of an older version at work, when one of this version comes and migrates the tables."""
    old, folder = Path(sys.argv[sys.argv.index("versions") + 1]), Path(tempfile.mkdtemp())
    place, count = f"{url}&schema=versions&ttl=3", 60
    fleet, journal = Fleet(place, folder, FLEET_PACE="0.3"), None
    before = {**fleet.environment, "PYTHONPATH": f"{old / 'src'}{os.pathsep}{old}"}
    command = [sys.executable, "-m", "tests.work.fleet", place]
    olds = [subprocess.Popen(command, env=before, stdout=subprocess.PIPE, text=True, cwd=old) for _ in range(2)]  # noqa: ASYNC220
    for one in olds:
        assert one.stdout.readline().strip() == "up"
    send = "import asyncio, sys; from tests.work.fleet import *; a = make_agent(choose(sys.argv[1]))\n"
    send += "async def go():\n    for n in range(60): await a.submit('go', run_id=f'r{n}')\n    await a.journal.close()\nasyncio.run(go())"
    subprocess.run([sys.executable, "-c", send, place], env=before, cwd=old, check=True)
    await asyncio.sleep(1)
    await asyncio.to_thread(fleet.start)
    journal, began = PostgresJournal(place), time.time()
    await wait_for_completed(journal, count, 90)
    done, paid = {}, fleet.paid()
    for card in await journal.runs(limit=200):
        done[card.status] = done.get(card.status, 0) + 1
    print(
        f"versions: {done}, {len(paid) - len(set(paid))} effects repeated, {time.time() - began:.0f} s, "
        f"queue {dict(await journal.queue.count())}, old workers alive {sum([one.poll() is None for one in olds])}",
        flush=True,
    )
    for one in olds:
        one.kill()
        one.wait()
    fleet.end()
    await journal.close()


PARTS = {
    "chaos": chaos,
    "versions": versions,
    "journal": journals,
    "followers": followers,
    "processes": processes,
    "handout": handout,
    "queue": queue,
    "fleet": fleet,
}


async def main():
    if sys.argv[1:] and sys.argv[1] in ("child", "follow"):
        await {"child": child, "follow": follow}[sys.argv[1]](sys.argv[2])
        return
    with postgres.cluster(fsync=True, options="-c max_connections=200 -c shared_buffers=256MB") as url:
        for name, part in PARTS.items():
            if (not sys.argv[1:] and name != "versions") or name in sys.argv[1:]:
                print(f"-- {name} (load {os.getloadavg()[0]:.1f})", flush=True)
                await part(url, str(postgres.folder_of(url)))


if __name__ == "__main__":
    asyncio.run(main())
