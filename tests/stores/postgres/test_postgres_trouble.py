"""The journal in PostgreSQL when the server is away, refuses, or loses an answer."""

import asyncio
import subprocess
import sys

import asyncpg
import pytest

from kaname import Agent, JournalError, JournalFull, PostgresJournal, RunBusy, ScriptedModel, call, tool
from kaname.core.errors import ConfigError, JournalTooNew, JournalUnreachable, RunSuperseded
from kaname.core.events import Event, Noted, Opened, Received
from kaname.core.messages import user
from kaname.kernel.stores import Wanted
from kaname.stores.default import choose
from kaname.stores.postgres import schema
from tests import postgres
from tests.parts import add, adding, until
from tests.stores.postgres.proxy import proxied
from tests.stores.silence import fall_silent, look_dead


@pytest.fixture
async def journal(url):
    made = PostgresJournal(url)
    yield made
    await made.close()


async def sql(url, statement, *values):
    connection = await asyncpg.connect(url.partition("&")[0])
    try:
        return await connection.fetch(statement, *values)
    finally:
        await connection.close()


def schema_of(url):
    return url.partition("schema=")[2].partition("&")[0]


async def test_run_goes_on_over_a_restart_of_the_server(server, url):
    journal = PostgresJournal(url.replace("patience=5", "patience=30"))
    down, seen = asyncio.Event(), []

    @tool(effect="pure")
    async def look(number: int) -> str:
        """Look."""
        seen.append(number)
        if number == 2:
            await asyncio.to_thread(postgres.stop, server)
            down.set()
        return "seen"

    agent = Agent(
        ScriptedModel([call("look", number=1), call("look", number=2), call("look", number=3), "done"]), [look], journal=journal
    )
    run = agent.run("go").start()
    await down.wait()
    await asyncio.to_thread(postgres.start, server)
    assert (await run).output == "done"
    assert seen == [1, 2, 3]
    assert [event.seq async for event in journal.read(run.run_id)] == list(range(1, (await run).state.seq + 1))
    await journal.close()


async def test_server_that_stays_away_is_reported_after_the_patience_and_the_run_can_be_resumed(server, url):
    journal = PostgresJournal(url.replace("patience=5", "patience=0.5"))

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        if not seen:
            seen.append(1)
            await asyncio.to_thread(postgres.stop, server)
        return "seen"

    seen = []
    agent = Agent(ScriptedModel([call("look"), "done"]), [look], journal=journal)
    run = agent.run("go")
    try:
        with pytest.raises(JournalUnreachable, match="cannot be reached.*all earlier facts are safe"):
            await run
    finally:
        await asyncio.to_thread(postgres.start, server)

    async def resumed():  # it is released as soon as the server is there again
        try:
            return await agent.resume(run.run_id)
        except RunBusy:
            return None

    assert (await until(resumed)).output == "done"
    await journal.close()


async def test_answers_that_are_lost_write_nothing_twice(url):
    async with proxied(url) as (proxy, through):
        journal = PostgresJournal(through)
        agent = Agent(adding(), [add], journal=journal)
        await agent.run("warm")  # its statements are known to the server now, and are sent by their names

        class Losing(ScriptedModel):
            async def reply(self, request, emit):
                proxy.losing = b"B\x00"  # the next message that binds values
                return await super().reply(request, emit)

        agent = Agent(Losing([call("add", a=3, b=4), "the sum is 7"]), [add], journal=journal)
        result = await agent.run("go", session_id="s")
        assert result.output == "the sum is 7"
        assert proxy.lost >= 2
        facts = [event async for event in journal.read(result.run_id)]
        assert [event.seq for event in facts] == list(range(1, result.state.seq + 1))
        assert [event.seq async for event in journal.follow(result.run_id)] == [event.seq for event in facts]
        await journal.close()


async def test_slow_network_delays_runs_and_loses_nothing(url):
    async with proxied(url) as (proxy, through):
        journal = PostgresJournal(through)
        await journal.runs()
        proxy.delay = 0.03
        agent = Agent(adding(), [add], journal=journal)
        results = await asyncio.gather(*[agent.run("go") for _ in range(10)])
        assert [result.output for result in results] == ["the sum is 7"] * 10
        proxy.delay = 0.0
        assert await journal.stores.health.verify() == []
        await journal.close()


@pytest.mark.nightly
async def test_large_facts_of_many_runs_are_written(url):
    journal = PostgresJournal(url)
    agent = Agent(ScriptedModel(lambda request: "x" * 1_500_000), journal=journal)
    results = await asyncio.gather(*[agent.run("go") for _ in range(8)])
    assert {len(result.output) for result in results} == {1_500_000}
    assert len([event async for event in journal.read(results[0].run_id)]) == results[0].state.seq
    await journal.close()


async def test_forked_child_has_connections_and_a_name_of_its_own(url):
    journal = PostgresJournal(url)
    agent = Agent(adding(), [add], journal=journal)
    await agent.run("go")
    program = "import asyncio, os, sys\nfrom kaname import PostgresJournal, RunBusy\n"
    program += "from kaname.core.events import Event, Opened\n"
    program += "async def look(j): return [card.run_id for card in await j.runs()]\n"
    program += "async def begin(j):\n lease = await j.claim('r')\n"
    program += " await j.append([Event('r', 1, 0.0, 'a', Opened())], lease.epoch)\n return await look(j)\n"
    program += "async def is_another(j):\n try: await j.claim('r')\n except RunBusy: return True\n"
    program += "j = PostgresJournal(sys.argv[1]); mine = asyncio.run(begin(j))\n"
    program += (
        "child = os.fork()\nif not child: os._exit(0 if asyncio.run(look(j)) == mine and asyncio.run(is_another(j)) else 1)\n"
    )
    program += "assert os.waitpid(child, 0)[1] == 0\nassert asyncio.run(look(j)) == mine\n"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "ignore", "-c", program, url],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    await journal.close()


async def test_first_facts_and_claims_whose_answers_are_lost_are_ours(url):
    async with proxied(url) as (proxy, through):
        journal = PostgresJournal(through)
        warm = await journal.claim("warm")
        await journal.append([Event("warm", 1, 1.0, "a", Opened())], warm.epoch)
        await journal.release("warm", warm.epoch)
        await journal.release("warm", (await journal.claim("warm")).epoch)
        lease = await journal.claim("r")
        proxy.losing = b"B\x00"
        await journal.append([Event("r", 1, 1.0, "a", Opened()), Event("r", 2, 1.0, "a", Received(user("hi")))], lease.epoch)
        assert proxy.lost == 1
        await journal.release("r", lease.epoch)
        proxy.losing = b"B\x00"
        again = await journal.claim("r")
        assert (proxy.lost, again.epoch, again.seq, again.before) == (2, 2, 2, "")
        await journal.close()


async def test_claim_whose_answer_never_comes_is_released_when_the_server_is_back(url):
    async with proxied(url) as (proxy, through):
        options = ("patience=5", "patience=0.5"), ("ttl=0.6", "ttl=60")
        journal = PostgresJournal(through.replace(*options[0]).replace(*options[1]))
        other = PostgresJournal(url.replace(*options[1]))
        lease = await journal.claim("r")
        await journal.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
        await journal.release("r", lease.epoch)
        proxy.is_deaf = True
        with pytest.raises(JournalUnreachable):
            await journal.claim("r")
        with pytest.raises(RunBusy):  # the claim was committed
            await other.claim("r")
        proxy.is_deaf = False

        async def claimed():
            try:
                return await other.claim("r")
            except RunBusy:
                return None

        assert (await until(claimed)).seq == 1
        await journal.close()
        await other.close()


async def test_money_is_counted_once_if_the_answer_is_lost(url):
    async with proxied(url) as (proxy, through):
        journal = PostgresJournal(through)
        for number in range(3):
            _, reserved = await journal.stores.ledger.reserve(f"h{number}", ["total"], lambda found: [1.0])
            assert reserved
            proxy.losing = b"C\x00" if number == 1 else b"COMMIT" if number == 2 else b""
            journal.stores.ledger.settle(f"h{number}", {"total": 0.25})
            while (await journal.stores.ledger.balances())[0].reserved:
                await asyncio.sleep(0.01)
        await journal.close()  # with what is sent again
        assert proxy.lost
    journal = PostgresJournal(url)
    (balance,) = await journal.stores.ledger.balances("tot")
    assert (balance.spent, balance.reserved) == (0.75, 0.0)
    await journal.close()


async def test_reservation_of_a_dead_process_is_free_again(url):
    dead, journal = PostgresJournal(url), PostgresJournal(url)
    assert (await dead.stores.ledger.reserve("dead", ["total"], lambda found: [5.0]))[1]
    fall_silent(dead)

    def divide(found):
        return None if found[0].reserved else [1.0]

    while not (await journal.stores.ledger.reserve("mine", ["total"], divide))[1]:
        await asyncio.sleep(0.1)
    await journal.close()


@pytest.mark.parametrize("changes", [True, False])
async def test_process_that_is_silent_counts_as_dead_and_can_write_nothing_more(url, changes):
    zombie, other = PostgresJournal(url), PostgresJournal(url)
    lease = await zombie.claim("r")
    await zombie.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    with pytest.raises(RunBusy, match=r"being executed by process \d+ on "):
        await other.claim("r")
    assert [card.status for card in await other.runs()] == ["running"]
    look_dead(zombie)
    while [card.status for card in await other.runs()] == ["running"]:
        await asyncio.sleep(0.05)
    newer = await other.claim("r")
    assert (newer.epoch, newer.seq, newer.before) == (lease.epoch + 1, 1, "died")
    late = Received if changes else Noted  # a fact that changes the card of the run is written in another way
    with pytest.raises(RunSuperseded):
        await zombie.append([Event("r", 2, 2.0, "a", late(user("too late")))], lease.epoch)
    await other.append([Event("r", 2, 2.0, "a", Received(user("mine")))], newer.epoch)
    assert [event.seq async for event in zombie.read("r")] == [1, 2]
    await other.release("r", newer.epoch)
    await zombie.release("r", lease.epoch)
    await zombie.close()
    await other.close()


async def test_facts_that_a_failover_has_lost_are_noticed(journal, url):
    lease = await journal.claim("r")
    await journal.append([Event("r", 1, 1.0, "a", Opened()), Event("r", 2, 1.0, "a", Received(user("hi")))], lease.epoch)
    name = schema_of(url)  # an asynchronous replica has become the primary, without the last fact
    await sql(url, f"DELETE FROM {name}.facts WHERE seq = 2")
    await sql(url, f"UPDATE {name}.runs SET seq = 1")
    with pytest.raises(JournalError, match="an earlier fact was not written"):
        await journal.append([Event("r", 3, 1.0, "a", Received(user("more")))], lease.epoch)
    await journal.release("r", lease.epoch)


async def test_full_disk_is_reported_and_loses_nothing(journal, url):
    lease = await journal.claim("r")
    await journal.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    name = schema_of(url)
    await sql(
        url,
        f"CREATE FUNCTION {name}.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$",
    )
    await sql(url, f"CREATE TRIGGER full_disk BEFORE INSERT ON {name}.facts EXECUTE FUNCTION {name}.full()")
    with pytest.raises(JournalFull, match="no space is left on the server.*all earlier facts are safe"):
        await journal.append([Event("r", 2, 1.0, "a", Received(user("hi")))], lease.epoch)
    await sql(url, f"DROP TRIGGER full_disk ON {name}.facts")
    again = await journal.claim("r")
    assert again.seq == 1
    await journal.append([Event("r", 2, 1.0, "a", Received(user("hi")))], again.epoch)
    await journal.release("r", again.epoch)


async def test_one_runs_trouble_is_not_the_others(journal, url):
    await journal.runs()
    name = schema_of(url)
    await sql(url, f"ALTER TABLE {name}.facts ADD CHECK (body NOT LIKE '%unlucky%')")
    leases = {run: await journal.claim(run) for run in ("a", "b", "c")}

    def facts(run):
        return [Event(run, 1, 1.0, "a", Opened()), Event(run, 2, 1.0, "a", Received(user("unlucky" if run == "b" else "fine")))]

    outcomes = await asyncio.gather(*[journal.append(facts(run), leases[run].epoch) for run in leases], return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["NoneType", "JournalError", "NoneType"]
    for run, lease in leases.items():
        await journal.release(run, lease.epoch)


async def test_read_only_server_is_reported(server, url):
    await sql(server, "ALTER DATABASE shop SET default_transaction_read_only = on")
    journal = PostgresJournal(url.replace("patience=5", "patience=0.3"))
    try:
        with pytest.raises(JournalError, match="read-only replica. Use the address of the primary"):
            await journal.claim("r")
    finally:
        await _reset(server)
        await journal.close()


async def _reset(server):
    connection = await asyncpg.connect(server, server_settings={"default_transaction_read_only": "off"})
    await connection.execute("ALTER DATABASE shop RESET default_transaction_read_only")
    await connection.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("/shop?", "/nothing?"), "the database does not exist. Create it with: createdb"),
        (("kaname@", "nobody:secret@"), "rejected the user or the password"),
    ],
)
async def test_wrong_address_is_explained_at_once_and_without_the_password(url, change, told):
    journal = PostgresJournal(url.replace(*change, 1))
    with pytest.raises(JournalError, match=told) as failed:
        await journal.runs()
    assert "secret" not in str(failed.value)
    await journal.close()


async def test_server_that_was_never_there_is_reported_soon():
    journal = PostgresJournal("postgresql://kaname:secret@127.0.0.1:9/shop?patience=0.2")
    with pytest.raises(JournalUnreachable, match=r"postgresql://kaname@127.0.0.1:9/shop.* cannot be reached") as failed:
        await journal.claim("r")
    assert "secret" not in str(failed.value)
    await journal.close()


async def test_server_that_is_too_old_is_refused(journal, monkeypatch):
    monkeypatch.setattr(schema, "OLDEST_SERVER", 99)
    with pytest.raises(JournalError, match=r"it is PostgreSQL \d+\.\d+, and kaname needs"):
        await journal.runs()


def test_journal_is_chosen_by_its_url(url, monkeypatch):
    first = choose(url)
    assert isinstance(first, PostgresJournal)
    assert choose(url) is first
    monkeypatch.setenv("KANAME_JOURNAL", url)
    assert choose(None) is first
    with pytest.raises(ConfigError, match="ttl=soon in the URL"):
        choose("postgresql://localhost/shop?ttl=soon")
    with pytest.raises(ConfigError, match="schema=A-B"):
        choose("postgresql://localhost/shop?schema=A-B")


async def test_older_version_works_on_until_a_migration_says_that_it_cannot(url, monkeypatch):
    old = PostgresJournal(url)
    lease = await old.claim("r")
    await old.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    added = schema.Migration("ALTER TABLE kaname.runs ADD COLUMN colour text NOT NULL DEFAULT 'red'", 1)
    with monkeypatch.context() as newer:
        newer.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, added))
        new = PostgresJournal(url)
        assert [card.run_id for card in await new.runs()] == ["r"]
        await new.close()
    assert [tuple(row) for row in await sql(url, f"SELECT version, oldest FROM {schema_of(url)}.journal")] == [
        (len(schema.MIGRATIONS) + 1, max([one.oldest for one in schema.MIGRATIONS]))
    ]
    await old.append([Event("r", 2, 1.0, "a", Received(user("still here")))], lease.epoch)
    late = PostgresJournal(url)
    assert (await late.runs())[0].seq == 2, "a process of the old version can even start"
    await late.close()
    with monkeypatch.context() as newer:
        newer.setattr(
            schema, "MIGRATIONS", (*schema.MIGRATIONS, added, schema.Migration("SELECT 1", len(schema.MIGRATIONS) + 2))
        )
        new = PostgresJournal(url)
        await new.runs()
        await new.close()

    async def is_too_old():
        try:
            await old.stores.queue.take(Wanted(("a",)), 1)  # else it would take runs that it cannot execute
        except JournalTooNew:
            return True
        return False

    await until(is_too_old)
    with pytest.raises(JournalTooNew, match="newer version of kaname"):
        await old.append([Event("r", 3, 1.0, "a", Received(user("too old")))], lease.epoch)
    with pytest.raises(JournalTooNew):
        await PostgresJournal(url).runs()
    await old.release("r", lease.epoch)
    await old.close()
