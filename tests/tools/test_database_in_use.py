"""What hostile testers have found in the database tool, and what it must be able to do for honest ones."""

import asyncio
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

import pytest

from kaname import ConfigError
from kaname.tools.database.engines.base import QueryFailed, QueryLimits, Rows, read_rows, unique
from kaname.tools.database.tables import Column, Table
from kaname.tools.database.tool import DatabaseTool
from tests.parts import wait_until
from tests.postgres import database, program
from tests.properties import nightly
from tests.tools.test_database import ENGINES, SQL, needs, statements, tool_for, without_the_first_wall
from tests.tools.test_database import warm_workers as warm_workers  # for each test here

SEEN = ("customers", "employees", "order_items", "order_totals", "orders", "products", "売上目標")
HIDDEN = "CREATE TABLE keys_hidden (id integer, apikey text); INSERT INTO keys_hidden VALUES (1, 'HIDDEN-KEY')"


@pytest.fixture(scope="module")
def sources(request, tmp_path_factory):
    """The shop with a table that is not to be seen."""
    import duckdb

    folder = tmp_path_factory.mktemp("found")
    connection = sqlite3.connect(folder / "shop.db")
    connection.executescript((SQL / "schema_sqlite.sql").read_text("utf-8") + ";" + HIDDEN)
    connection.close()
    with duckdb.connect(str(folder / "shop.duckdb")) as duck:
        duck.execute((SQL / "schema_duckdb.sql").read_text("utf-8"))
        duck.execute(HIDDEN)
    found = {"sqlite": str(folder / "shop.db"), "duckdb": str(folder / "shop.duckdb")}
    if program("initdb") is None:
        yield found
        return
    import psycopg

    with database(request.getfixturevalue("postgresql"), "found") as address:
        with psycopg.connect(address) as made:
            made.execute((SQL / "schema_postgres.sql").read_text("utf-8"))
            made.execute(HIDDEN)
        yield {**found, "postgres": address}


@pytest.fixture(scope="module")
def tools(sources):
    """One for each engine, with its worker; made when it is asked for."""
    made = {}

    def tool(engine):
        if engine not in made:
            made[engine] = tool_for(sources, engine, tables=SEEN, timeout=60)
        return made[engine]

    yield tool
    for one in made.values():
        one.close()


@contextmanager
def directly(sources, engine):
    """A function that runs a statement on the engine itself: names and rows."""
    if engine == "sqlite":
        connection = sqlite3.connect(sources["sqlite"])
    elif engine == "duckdb":
        import duckdb

        connection = duckdb.connect(sources["duckdb"], read_only=True, config={"threads": "1"})
    else:
        import psycopg

        connection = psycopg.connect(sources["postgres"], autocommit=True)

    def run(sql):
        cursor = connection.execute(sql)
        return [column[0] for column in cursor.description], cursor.fetchall()

    try:
        yield run
    finally:
        connection.close()


def same(one, other):
    """Equal rows; a whole number and one with a point after it are not, but PostgreSQL's two kinds of those are."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, float | Decimal) and isinstance(other, float | Decimal):
        return abs(float(one) - float(other)) < 1e-9 or repr(float(one)) == repr(float(other))
    return type(one) is type(other) and repr(one) == repr(other)


RANDOM = re.compile(
    r"\b(random|now|current_|clock_|timeofday|statement_timestamp|today|gen_random_uuid|uuid|tablesample)", re.IGNORECASE
)


AS_MODELS_WRITE = (
    "{sql}",
    "-- what was asked for\n{sql}\n;",
    "Here is the query:\n\n```sql\n{sql};\n```",
    "/* first the rows,\n   then the rest */ {sql} -- that is all",
)


@pytest.mark.parametrize("engine", ["sqlite", "postgres", *nightly("duckdb")])
async def test_rows_are_the_engines_own(sources, engine):
    """Every honest statement is answered, and with the rows of that statement on the engine itself, if they are the same twice."""
    tool, different = tool_for(sources, engine, max_rows=1000), []
    honest = list(statements(f"honest_{engine}.txt"))
    assert len(honest) >= 100
    with directly(sources, engine) as run:
        for number, (_, sql) in enumerate(honest):
            result = await tool.execute(AS_MODELS_WRITE[number % 4].format(sql=sql))
            assert result.error is None, (sql, result.error)
            if RANDOM.search(sql) or "mode(" in sql:
                continue
            got, (names, rows) = result.output["rows"], run(sql)
            if len(got) != len(rows) or (engine != "duckdb" and got and [*got[0]][: len(names)] != unique(names)):
                different.append((sql, rows[:3], got[:3]))
    assert different == []


KELVIN = "\u212aeys_hidden"
STOPPED = {
    "postgres": [
        "SELECT true and\u00a0$$, pg_read_file('/etc/hostname') AS x$$",
        "SELECT f.pg_read_file FROM unnest(ARRAY['/etc/hostname']) AS f, (SELECT 1 AS pg_read_file) z",
        "SELECT f.U&\"pg_read_fil\\0065\" FROM unnest(ARRAY['/etc/hostname']) AS f, (SELECT 1 AS u) z",
        "SELECT max('a'::text) FROM (SELECT 'b'::text AS \"qualify\") t GROUP BY qualify ||/* = ' */ $$x$$ UNION ALL "
        "SELECT pg_read_file($$/etc/hostname$$) --'",
        'WITH "KEYS_HIDDEN" AS (SELECT 1) SELECT * FROM keys_hidden',
        'WITH "PG_AUTHID" AS (SELECT 1) SELECT rolname FROM pg_authid',
        f'WITH "{KELVIN}" AS (SELECT 1) SELECT * FROM keys_hidden',
        "WITH customers AS (SELECT '/etc/hostname'::text AS x) SELECT c.pg_read_file FROM (SELECT x AS y FROM customers) c",
        "SELECT g::oid::regclass::text FROM generate_series(1, 20000) g",
        "SELECT 'keys_hidden'::regclass::oid",
        "SELECT regclass 'keys_hidden'",
        "SELECT f.regclass FROM unnest(ARRAY['keys_hidden']) f",
        "SELECT '<a/>'::xml",
        "SELECT NULL::keys_hidden",
        "SELECT '1'::pg_lsn",
        "SELECT \"pg_read_file\"('/etc/hostname')",
        "SELECT customers.leak FROM customers",
        "WITH a AS (SELECT * FROM keys_hidden), keys_hidden AS (SELECT 1) SELECT * FROM a",
        "SELECT '(1,2)'::other.point",
    ],
    "duckdb": [
        "SELECT true and\u1680$$, (SELECT apikey FROM keys_hidden) AS x$$",
        "WITH RECURSIVE keys_hidden AS (SELECT * FROM keys_hidden) SELECT * FROM keys_hidden",
        "SUMMARIZE keys_hidden",
        "DESCRIBE keys_hidden",
        "PIVOT keys_hidden ON apikey",
        "FROM shop.main.keys_hidden",
        "SELECT * FROM 'keys_hidden'",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM query('SELECT 1')",
        "WITH a AS (SELECT * FROM keys_hidden), keys_hidden AS (SELECT 1) SELECT * FROM a",
        "FROM x.y.main.customers",
        "WITH RECURSIVE keys_hidden AS (SELECT apikey FROM keys_hidden UNION ALL SELECT apikey FROM keys_hidden WHERE false) "
        "SELECT * FROM keys_hidden",
        "WITH __show_tables_expanded AS (SELECT 1) FROM (SHOW ALL TABLES)",
        'WITH """tables""" AS (SELECT 1) FROM (SHOW TABLES)',
        "WITH d AS (COPY keys_hidden TO 'x') SELECT * FROM d",
    ],
    "sqlite": [
        "SELECT id FROM customers WHERE (id,'HIDDEN-KEY') IN keys_hidden",
        "SELECT id FROM customers WHERE (id,'HIDDEN-KEY') IN main.keys_hidden",
        "SELECT id FROM customers WHERE id IN pragma_table_info('keys_hidden')",
        "WITH customers AS (SELECT 1) SELECT * FROM main.keys_hidden",
        "SELECT * FROM [keys_hidden]",
        "SELECT * FROM `keys_hidden`",
        "SELECT 1 -explain-1 AS x, (SELECT apikey FROM keys_hidden) AS v\nFROM (SELECT 1 AS explain)",
    ],
}
EVERYWHERE = [
    "WITH x AS (SELECT apikey FROM keys_hidden) SELECT * FROM x",
    "WITH x AS (SELECT (SELECT apikey FROM keys_hidden) AS k) SELECT * FROM x",
    "WITH x AS MATERIALIZED (SELECT count(*) FROM keys_hidden) SELECT * FROM x",
    "WITH RECURSIVE x(k) AS (SELECT apikey FROM keys_hidden UNION SELECT 'a') SELECT * FROM x",
    "WITH order_totals AS (SELECT apikey FROM keys_hidden) SELECT * FROM order_totals",
    "SELECT * FROM (WITH keys_hidden AS (SELECT 1) SELECT 1) x, keys_hidden",
    "SELECT (WITH keys_hidden AS (SELECT 1) SELECT 1), (SELECT apikey FROM keys_hidden)",
    "WITH d AS (DELETE FROM customers RETURNING *) SELECT * FROM d",
    "WITH RECURSIVE\u00a0keys_hidden AS (SELECT 1) SELECT * FROM keys_hidden x, (SELECT * FROM keys_hidden) y JOIN main.keys_hidden z",
    "WITH a AS (SELECT 1) SELECT * FROM (WITH keys_hidden AS (SELECT 1) SELECT 1) x, keys_hidden",
    "WITH keys_hidden AS (SELECT * FROM keys_hidden) SELECT * FROM keys_hidden",
    "SELECT * FROM customers，orders",
    "SELECT 1; SELECT 2",
    "SELECT /* not closed",
]


@pytest.mark.parametrize(
    ("engine", "sql"),
    [
        *[(engine, sql) for engine in ENGINES[:2] for sql in [*STOPPED[engine], *EVERYWHERE]],
        *nightly(*[("duckdb", sql) for sql in [*STOPPED["duckdb"], *EVERYWHERE]]),
    ],
    ids=lambda value: value[:60],
)
async def test_ways_to_what_is_hidden_are_closed(tools, engine, sql):
    result = await tools(engine).execute(sql)
    assert result.error is not None, result.output


ABOUT_THE_SCHEMA = [
    ("SHOW TABLES", "customers"),
    ("SHOW COLUMNS FROM customers", "email"),
    ("DESCRIBE customers", "email"),
    ("desc customers;", "email"),
    ("PRAGMA table_info('customers')", "email"),
    ("SELECT name FROM pragma_table_info('customers')", "email"),
    ("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1", "customers"),
    ("WITH x AS (SELECT name FROM sqlite_schema) SELECT * FROM x", "customers"),
    ("SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'", "customers"),
    ("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'customers'", "email"),
    ("SELECT tablename FROM pg_catalog.pg_tables", "customers"),
]


@pytest.mark.parametrize("engine", ["postgres", *nightly("sqlite", "duckdb")])
async def test_questions_about_the_schema_are_answered_from_what_may_be_seen(tools, sources, engine):
    needs(engine, sources)
    for sql, word in ABOUT_THE_SCHEMA:
        result = await tools(engine).execute(sql)
        assert result.error is None, (sql, result.error)
        assert word in json.dumps(result.output), sql
        assert "keys_hidden" not in json.dumps(result.output), sql
    for sql in ("DESCRIBE keys_hidden", "SHOW COLUMNS FROM keys_hidden"):
        assert "there is no table 'keys_hidden'" in (await tools(engine).execute(sql)).error
    hidden = await tools(engine).execute("SELECT count(*) AS n FROM pragma_table_info('keys_hidden')")
    assert hidden.output == {"rows": [{"n": 0}]}


@pytest.mark.parametrize("engine", ["postgres", *nightly("sqlite", "duckdb")])
async def test_catalogue_gives_nothing_but_names(tools, sources, engine):
    needs(engine, sources)
    for sql in (
        "SELECT load_extension('x') FROM sqlite_master",
        "SELECT apikey FROM sqlite_master, keys_hidden",
        "SELECT (SELECT apikey FROM keys_hidden) FROM information_schema.tables",
        "INSERT INTO sqlite_master VALUES (1)",
        "DELETE FROM sqlite_master",
        "SELECT * FROM sqlite_master; DROP TABLE customers",
        "WITH x AS (SELECT 1 FROM sqlite_master) DELETE FROM customers",
        "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT sum(n) FROM x, sqlite_master",
    ):
        assert (await tools(engine).execute(sql)).error, sql
    refused = await tools(engine).execute("WITH x AS (SELECT 1 FROM sqlite_master) DELETE FROM customers")
    assert "only SELECT is allowed" in refused.error, "what is refused stays refused"
    missing = await tools(engine).execute("SELECT 1 FROM pg_tables_old")
    assert "there is no table 'pg_tables_old'" in missing.error


@pytest.mark.parametrize(
    "text",
    [
        "```SELECT 1 AS n```",
        "```SQL\r\nSELECT 1 AS n\r\n```",
        "~~~sql\nSELECT 1 AS n\n~~~",
        "SELECT 1 AS n\n```",
        "so: ```sql\nSELECT 1 AS n",
    ],
)
async def test_code_blocks_as_models_write_them(tools, text):
    assert (await tools("sqlite").execute(text)).output == {"rows": [{"n": 1}]}


async def test_tables_of_a_full_text_index_are_not_shown(tmp_path):
    connection = sqlite3.connect(tmp_path / "n.db")
    connection.execute("CREATE VIRTUAL TABLE notes USING fts5(body)")
    connection.close()
    assert [table.name for table in DatabaseTool(tmp_path / "n.db").tables] == ["notes"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_name_of_with_never_finds_a_table(tools, engine):
    """Whatever the engine makes of it, the hidden table's row is not what comes back."""
    for sql in (
        "WITH RECURSIVE keys_hidden AS (SELECT 1) SELECT * FROM keys_hidden",
        "WITH RECURSIVE keys_hidden AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM keys_hidden WHERE a < 3) SELECT * FROM keys_hidden",
        "WITH keys_hidden(apikey) AS (SELECT 'mine') SELECT keys_hidden.apikey FROM keys_hidden",
    ):
        result = await tools(engine).execute(sql)
        assert result.error is None
        assert "HIDDEN-KEY" not in json.dumps(result.output)


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_engine_alone_writes_nothing_for_these(sources, engine):
    tool = without_the_first_wall(tool_for(sources, engine, timeout=2))
    for sql in STOPPED[engine]:
        result = await tool.execute(sql)
        assert result.error is None or "Traceback" not in result.error
    tool.close()


HONEST = {
    "postgres": [
        ("SELECT g.g FROM generate_series(1,3) g", [{"g": 1}, {"g": 2}, {"g": 3}]),
        ("SELECT timezone('Asia/Tokyo', timestamp '2024-01-01') AS t", None),
        ("SELECT ROW(1,'a') AS r", [{"r": {"f1": 1, "f2": "a"}}]),
        ("SELECT (c).name IS NULL AS n FROM customers c WHERE c.id = 1", [{"n": False}]),
        ("SELECT pg_catalog.lower('A') AS x", [{"x": "a"}]),
        ("SELECT public.customers.id FROM public.customers WHERE public.customers.id = 1", [{"id": 1}]),
        ("SELECT count(*) AS n FROM generate_series(20240101,20240103)", [{"n": 3}]),
        ("SELECT count(*) AS n FROM generate_series(1700000000,1700000120,60)", [{"n": 3}]),
        ("SELECT repeat('2024010112',2) AS r", [{"r": "20240101122024010112"}]),
        ("SELECT repeat('x', least(id, 3)) AS r FROM customers WHERE id = 2", [{"r": "xx"}]),
        ("SELECT string_agg(DISTINCT x, '-' ORDER BY x) AS s FROM (VALUES ('b'), ('a'), ('b')) v(x)", [{"s": "a-b"}]),
        ("SELECT version() IS NOT NULL AS v", [{"v": True}]),
        ("VALUES (1, 'a')", [{"column1": 1, "column2": "a"}]),
        ("SELECT '\\x00ff'::bytea AS b", [{"b": "\\x00ff"}]),
    ],
    "sqlite": [
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS q) SELECT * FROM a", [{"q": 1}]),
        ("WITH x AS (SELECT 1) SELECT id FROM customers WHERE id IN x", [{"id": 1}]),
        ("SELECT printf('%,d', 1234567) AS n", [{"n": "1,234,567"}]),
        ("SELECT zeroblob(3) AS z, x'00ff' AS b", [{"z": "\\x000000", "b": "\\x00ff"}]),
        ("SELECT main.customers.id FROM main.CUSTOMERS WHERE Customers.ID = 1", [{"id": 1}]),
        (
            "SELECT 'ÄB' LIKE 'äb' AS l, 'ab' LIKE 'AB' AS m, trim('\u3000a ') AS t, replace(12, 1, 3) AS r",
            [{"l": 0, "m": 1, "t": "\u3000a", "r": "32"}],
        ),
        ("SELECT cast('2024' AS NUMERIC) AS n, cast('1.50' AS DECIMAL(10, 2)) AS d", [{"n": 2024, "d": 1.5}]),
        ("SELECT max(id) FROM customers", [{"max(id)": 24}]),
        ('SELECT count(*) AS n FROM customers WHERE city = "東京"', [{"n": 3}]),
        ("VALUES (1)", [{"column1": 1}]),
    ],
    "duckdb": [
        ("SELECT weighted_avg(price, 1) > 0 AS w FROM products", [{"w": True}]),
        ("SELECT equi_width_bins(1, 10, 2, true) AS b", [{"b": [5, 10]}]),
        ("SELECT count(*) AS n FROM shop.main.customers", [{"n": 24}]),
        ("SELECT format('{:,}', 1234567) AS n", [{"n": "1,234,567"}]),
        ("SELECT len(range(5)) AS n", [{"n": 5}]),
        ("SELECT '\\x00\\xFF'::BLOB AS b", [{"b": "\\x00ff"}]),
        ("SELECT from_json(j -> 'a', '[\"INTEGER\"]') AS a FROM (SELECT '{\"a\": [1]}'::JSON AS j)", [{"a": [1]}]),
        ("PIVOT (SELECT 1 AS a, 'x' AS b) ON b IN ('x') USING sum(a)", [{"x": 1}]),
        ("VALUES (1)", [{"col0": 1}]),
    ],
}
ALIKE = [
    ("SELECT count(*) AS n FROM customers", [{"n": 24}]),
    ("SELECT 1 AS one;", [{"one": 1}]),
    ("SELECT 1.50 AS n", [{"n": 1.5}]),
]


@pytest.mark.parametrize(
    ("engine", "sql", "rows"),
    [(engine, *one) for engine in ENGINES for one in [*HONEST[engine], *ALIKE]],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
async def test_honest_questions(tools, engine, sql, rows):
    result = await tools(engine).execute(sql)
    assert result.error is None, result.error
    assert rows is None or result.output["rows"] == rows


@pytest.mark.parametrize(
    ("engine", "sql", "words"),
    [
        ("sqlite", "SELECT concat('a', 'b')", "write a || b"),
        ("sqlite", "SELECT naem FROM customers", "did you mean 'name'"),
        ("postgres", "SELECT * FROM custmers", "did you mean 'customers'"),
        ("duckdb", "PIVOT customers ON name", "PIVOT only with its values"),
        ("duckdb", "INSERT INTO customers VALUES (1)", "only SELECT is allowed"),
        ("postgres", "INSERT INTO customers VALUES (1)", "only SELECT is allowed, not INSERT"),
        ("postgres", "SELECT price", 'column "price" does not exist; price is a column of products'),
        ("sqlite", "SELECT price FROM customers", "no such column: price; price is a column of products"),
    ],
)
async def test_reasons(tools, engine, sql, words):
    told = (await tools(engine).execute(sql)).error
    assert words in told
    assert told.count("price") < 2 or "did you mean 'price'" not in told


async def test_column_hint_is_given_only_for_a_column_that_is_missing(tools, sources):
    needs("postgres", sources)
    for sql, told in (
        ("SELECT id FROM customers, orders", 'column reference "id" is ambiguous'),
        (
            "SELECT city, count(*) FROM customers GROUP BY country",
            'column "customers.city" must appear in the GROUP BY clause or be used in an aggregate function',
        ),
    ):
        assert (await tools("postgres").execute(sql)).error == told
    inner = (await tools("sqlite").execute("SELECT city FROM (SELECT id FROM customers) c")).error
    assert "is a column of customers" not in inner, "that is read already"


@pytest.mark.parametrize("engine", ENGINES)
async def test_no_column_is_lost(tools, engine):
    (row,) = (await tools(engine).execute("SELECT 1 AS a, 2 AS a, 3 AS a_2")).output["rows"]
    assert (row["a"], row["a_2"], sorted(row.values())) == (1, 3, [1, 2, 3])


def test_what_the_model_is_told(tools):
    described = tools("sqlite").description
    assert "at most 100 rows and 60 seconds" in described
    assert described.count("\ncustomers(") == 1
    assert "keys_hidden" not in described


HEAVY = {
    "[1]": ("postgres", "SELECT a" + "[1]" * 1200),
    "rows of megabytes": (
        "sqlite",
        f"SELECT {','.join(['s'] * 1900)} FROM (SELECT replace(printf('%9999s','a'),' ',printf('%90s','b')) AS s)",
    ),
    "like": (
        "sqlite",
        "WITH RECURSIVE d(s,n) AS (SELECT 'a',0 UNION ALL SELECT s||s,n+1 FROM d WHERE n<17), t(s) AS (SELECT s FROM d ORDER BY n "
        f"DESC LIMIT 1) SELECT count(*) FROM t, orders o, orders p WHERE s||o.id||p.id LIKE '%_{'a' * 900}b%'",
    ),
    "sorting": (
        "sqlite",
        "WITH RECURSIVE n(x, s) AS (SELECT 1, printf('%9000s', 'a') UNION ALL SELECT x + 1, printf('%9000s', x) FROM n) "
        "SELECT x FROM n ORDER BY s",
    ),
    "groups": (
        "duckdb",
        "SELECT count(DISTINCT hash(a.id, b.id, c.id, d.id, e.id, f.id)) FROM orders a, orders b, orders c, orders d, orders e, orders f",
    ),
    "lists": ("duckdb", "SELECT len(list(a.range)) FROM range(100000) a, range(100000) b"),
}


@pytest.mark.parametrize("what", ["sorting", "groups", *nightly(*[one for one in HEAVY if one not in ("sorting", "groups")])])
async def test_heavy_questions_end(sources, what):
    """In time, with a reason; meanwhile the caller's loop goes on, and nothing is left on disk or in memory here."""
    engine, sql = HEAVY[what]
    tool = tool_for(sources, engine, timeout=1.0, max_memory=300_000_000)
    ticks, start = [], monotonic()

    async def tick():
        while True:
            ticks.append(monotonic())
            await asyncio.sleep(0.05)

    ticking = asyncio.create_task(tick())
    result = await tool.execute(sql)
    ticking.cancel()
    assert result.error is not None
    assert monotonic() - start < 40
    assert max([after - before for before, after in pairwise(ticks)], default=0) < 20
    assert (await tool.execute("SELECT count(*) AS n FROM customers")).output == {"rows": [{"n": 24}]}, (
        "the next one is answered"
    )
    assert {one.name for one in Path(sources["sqlite"]).parent.iterdir()} == {"shop.db", "shop.duckdb"}
    tool.close()


async def test_two_tools_on_one_duckdb_file(sources):
    one, other = (DatabaseTool(sources["duckdb"]) for _ in range(2))
    told = await asyncio.gather(*[tool.execute("SELECT count(*) AS n FROM customers") for tool in (one, other, one, other)])
    assert [result.error for result in told] == [None] * 4
    one.close()
    other.close()


def workers_of(pid):
    """The processes that a process has started, and that live."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent, *_ = (place / "stat").read_text().rpartition(")")[2].split()
            found |= {int(place.name)} if int(parent) == pid and state not in "ZX" else set()
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
async def test_a_cancelled_question_leaves_nothing_running(sources, monkeypatch):
    monkeypatch.setattr(
        "kaname.tools.database.sandbox.process.Popen", subprocess.Popen
    )  # not a warm one: it is a child of ours
    before = workers_of(os.getpid())
    tool = DatabaseTool(sources["sqlite"], timeout=30)
    await tool.execute("SELECT 1")
    (worker,) = workers_of(os.getpid()) - before
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    asking = asyncio.create_task(tool.execute(endless))
    await asyncio.sleep(0.3)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    wait_until(lambda: not alive(worker))
    assert (await tool.execute("SELECT 1 AS one")).output == {"rows": [{"one": 1}]}
    tool.close()


ORPHAN = """
import asyncio, sys
from kaname.tools.database.tool import DatabaseTool
tool = DatabaseTool(sys.argv[1], timeout=60)
async def main():
    await tool.execute("SELECT 1")
    print("ready", flush=True)
    await tool.execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")
asyncio.run(main())
"""


def alive(pid):
    """Not a process that has ended and is only still in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_worker_does_not_outlive_its_parent(sources):
    """Killed in the middle of a query, without a chance to say anything."""
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, sources["sqlite"]], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "ready\n"
    (worker,) = workers_of(parent.pid)
    sleep(0.3)
    assert alive(worker)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive(worker))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
async def test_nothing_secret_on_the_command_line(sources, monkeypatch):
    monkeypatch.setattr("kaname.tools.database.sandbox.process.Popen", subprocess.Popen)  # not a warm one: it has no own line
    before = workers_of(os.getpid())
    tool = tool_for(sources, "postgres")
    await tool.execute("SELECT 1")
    (worker,) = workers_of(os.getpid()) - before
    assert "postgresql" not in Path(f"/proc/{worker}/cmdline").read_text()
    tool.close()


def test_chosen_tables(sources):
    assert [table.name for table in DatabaseTool(sources["sqlite"], tables=["main.Customers"]).tables] == ["customers"]
    assert [table.name for table in DatabaseTool(sources["duckdb"], tables=["shop.main.customers"]).tables] == ["customers"]
    with pytest.raises(ConfigError, match="'custmers'.*did you mean 'customers'"):
        DatabaseTool(sources["sqlite"], tables=["orders", "custmers"])
    with pytest.raises(ConfigError, match="lists of names"):
        DatabaseTool(sources["sqlite"], tables="orders")


@pytest.fixture(scope="module")
def archive(sources):
    """Two schemas, a name with capitals, and a role that may read two columns."""
    needs("postgres", sources)
    import psycopg

    with psycopg.connect(sources["postgres"]) as made:
        made.execute(
            """
            CREATE SCHEMA archive; CREATE TABLE archive.customers (id integer, old text); INSERT INTO archive.customers VALUES (7, 'x');
            CREATE TABLE "Mixed" (id integer); CREATE TABLE mixed (other integer); CREATE TYPE mood AS ENUM ('glad', 'sad');
            CREATE ROLE clerk LOGIN; GRANT USAGE ON SCHEMA public TO clerk; GRANT SELECT (id, name) ON customers TO clerk;
            CREATE FUNCTION leak(c customers) RETURNS text LANGUAGE sql AS 'SELECT apikey FROM keys_hidden';
            """
        )
    return sources["postgres"]


async def test_options_of_the_address_are_kept(archive):
    tool = DatabaseTool(allow_superuser=True, source=archive + "&options=-c%20search_path%3Darchive,public")
    assert (await tool.execute("SELECT id FROM customers")).output == {"rows": [{"id": 7}]}
    assert (await tool.execute("SELECT count(*) AS n FROM public.customers")).output == {"rows": [{"n": 24}]}
    assert "\ncustomers(id integer, old text)" in tool.description
    assert "\npublic.customers(id integer, name text" in tool.description
    both = "SELECT customers.old, p.id FROM customers JOIN public.customers p ON p.id = customers.id"
    assert (await tool.execute(both)).output == {"rows": [{"old": "x", "id": 7}]}
    tool.close()
    only = DatabaseTool(
        allow_superuser=True, source=archive + "&options=-c%20search_path%3Darchive,public", tables=["public.customers"]
    )
    assert [(table.schema, table.name) for table in only.tables] == [("public", "customers")]
    assert "there is no table" in (await only.execute("SELECT * FROM customers")).error, "alone, the name means the hidden one"
    assert (await only.execute("SELECT count(*) AS n FROM public.customers")).output == {"rows": [{"n": 24}]}
    only.close()


async def test_a_role_sees_the_columns_it_may_read(archive):
    tool = DatabaseTool(allow_superuser=True, source=archive + "&options=-c%20role%3Dclerk")
    assert [(table.name, [column.name for column in table.columns]) for table in tool.tables] == [("customers", ["id", "name"])]
    assert (await tool.execute("SELECT id FROM customers WHERE id = 1")).output == {"rows": [{"id": 1}]}
    assert "permission denied" in (await tool.execute("SELECT * FROM customers")).error
    tool.close()


async def test_names_of_postgres_as_they_are(archive):
    tool = DatabaseTool(archive, allow_superuser=True, tables=["Mixed", "customers"])
    assert sorted([table.name for table in tool.tables]) == ["Mixed", "customers"]
    assert '"Mixed"(id integer)' in tool.description
    assert (await tool.execute('SELECT id FROM "Mixed"')).error is None
    assert "there is no table" in (await tool.execute("SELECT other FROM Mixed")).error
    assert (await tool.execute('SELECT "ID" FROM "Mixed"')).error == 'column "ID" does not exist; available: id'
    assert "there is no column" in (await tool.execute("SELECT c.leak FROM customers c")).error
    assert (await tool.execute("SELECT 'glad'::mood AS m, '{1,2}'::int[] AS a")).output == {
        "rows": [{"m": "glad", "a": [1, 2]}]
    }
    tool.close()


async def test_table_behind_a_hidden_one_of_its_name_is_told_with_its_schema(archive):
    path = "&options=-c%20search_path%3Dpublic,archive"
    tool = DatabaseTool(allow_superuser=True, source=archive + path, tables=["archive.customers"])
    assert "\narchive.customers(id integer, old text)" in tool.description
    assert "did you mean 'archive.customers'" in (await tool.execute("SELECT old FROM customers")).error
    assert (await tool.execute("SELECT old FROM archive.customers")).output == {"rows": [{"old": "x"}]}
    tool.close()


async def test_a_hidden_name_of_other_case_is_not_one_of_with(archive):
    tool = DatabaseTool(archive, allow_superuser=True, tables=["mixed"])
    assert "there is no table 'Mixed'" in (await tool.execute('WITH mixed AS (SELECT 1) SELECT * FROM "Mixed"')).error
    tool.close()


async def test_a_hidden_table_made_meanwhile_is_not_one_of_with(tmp_path):
    made = sqlite3.connect(tmp_path / "a.db")
    made.executescript("CREATE TABLE a (x); INSERT INTO a VALUES (1)")
    tool = DatabaseTool(tmp_path / "a.db", tables=["a"])
    assert (await tool.execute("SELECT x FROM a")).output == {"rows": [{"x": 1}]}
    made.executescript("CREATE TABLE later (k); INSERT INTO later VALUES ('HIDDEN-KEY')")
    result = await tool.execute("SELECT * FROM (WITH later AS (SELECT 1) SELECT 1) x, later")
    assert "there is no table 'later'" in result.error
    tool.close()
    made.close()


async def test_full_text_tables_can_be_searched(tmp_path):
    made = sqlite3.connect(tmp_path / "notes.db")
    made.executescript(
        "CREATE VIRTUAL TABLE notes USING fts5(title, body); INSERT INTO notes VALUES ('Tea', 'green tea from Uji'), ('Rice', 'new')"
    )
    made.close()
    tool = DatabaseTool(tmp_path / "notes.db", tables=["notes"])
    sql = "SELECT title, snippet(notes, 1, '[', ']', '…', 5) AS s FROM notes WHERE notes MATCH 'uji' ORDER BY bm25(notes), rank"
    assert (await tool.execute(sql)).output == {"rows": [{"title": "Tea", "s": "green tea from [Uji]"}]}
    tool.close()


async def test_a_view_is_read_for_what_it_shows(tmp_path):
    made = sqlite3.connect(tmp_path / "v.db")
    made.executescript(
        "CREATE TABLE people (name, secret); INSERT INTO people VALUES ('Ken', 'HIDDEN-KEY');"
        "CREATE VIEW inner_view AS SELECT name, upper(name) AS u FROM people; CREATE VIEW names AS SELECT u FROM inner_view"
    )
    made.close()
    tool = DatabaseTool(tmp_path / "v.db", tables=["names"])
    assert (await tool.execute("WITH x AS (SELECT * FROM names) SELECT u FROM x")).output == {"rows": [{"u": "KEN"}]}
    for sql in (
        "SELECT * FROM people",
        "SELECT * FROM inner_view",
        "WITH names AS (SELECT secret FROM people) SELECT * FROM names",
    ):
        assert "there is no table" in (await tool.execute(sql)).error
    tool.close()


@pytest.mark.parametrize("engine", ENGINES)
async def test_long_statements_are_read(tools, sources, engine):
    needs(engine, sources)
    for sql in (
        f"SELECT {' || '.join(['name'] * 200)} AS x FROM customers WHERE id = 1",
        f"SELECT id FROM customers WHERE {' OR '.join([f'id = {number}' for number in range(300)])}",
        f"SELECT 1 AS x {'UNION ALL SELECT 1 ' * 100}",
        "SELECT * FROM (" * 9 + "SELECT id FROM customers" + ") q" * 9,
    ):
        result = await tools(engine).execute(sql)
        assert result.error is None, (sql[:60], result.error)


@pytest.mark.parametrize(
    ("engine", "sql"),
    [
        ("sqlite", "-- c\nSELECT count(*) AS n FROM customers WHERE name <> '```\nSELECT 9 AS n\n```'"),
        ("postgres", "SELECT 1 -- x\r + 1 AS n"),
        ("duckdb", "SELECT 1 -- x\r + 1 AS n"),
        ("postgres", "SELECT E'a'\n'\\' -- x\n' AS s"),
        ("postgres", "SELECT 1 AS ★$$, ' $$ -- not gone\n' AS b"),
        ("sqlite", "SELECT b\u00a0c AS n FROM (SELECT 1 AS b, 2 AS b\u00a0c)"),
        ("sqlite", "SELECT id AS explain FROM customers WHERE id = 1"),
    ],
)
async def test_cleaning_a_statement_does_not_change_its_rows(tools, sources, engine, sql):
    needs(engine, sources)
    result = await tools(engine).execute(sql)
    with directly(sources, engine) as run:
        _, wanted = run(sql)
    assert result.error is None
    assert [list(row.values()) for row in result.output["rows"]] == [list(row) for row in wanted]


async def test_tables_named_like_functions_and_generated_columns(tmp_path):
    made = sqlite3.connect(tmp_path / "odd.db")
    made.executescript(
        "CREATE TABLE json_each (key, value); INSERT INTO json_each VALUES (1, 'HIDDEN-KEY');"
        "CREATE TABLE g (a, b AS (a * 2)); INSERT INTO g VALUES (4)"
    )
    made.close()
    tool = DatabaseTool(tmp_path / "odd.db", tables=["g"])
    assert "there is no table" in (await tool.execute("SELECT key, value FROM json_each")).error
    assert (await tool.execute("SELECT b FROM g")).output == {"rows": [{"b": 8}]}
    tool.close()


async def test_a_code_block_in_a_text_is_text(tools):
    result = await tools("sqlite").execute("SELECT '```\nSELECT 2 AS x\n```' AS x")
    assert result.output == {"rows": [{"x": "```\nSELECT 2 AS x\n```"}]}


@pytest.mark.parametrize("engine", ENGINES)
async def test_half_a_character_is_refused(tools, sources, engine):
    needs(engine, sources)
    assert (await tools(engine).execute("SELECT '\ud800'")).error.startswith("not run: it contains")


async def test_a_table_made_meanwhile(tmp_path):
    made = sqlite3.connect(tmp_path / "a.db")
    made.execute("CREATE TABLE a (x)")
    tool = DatabaseTool(tmp_path / "a.db")
    assert "b(" not in tool.description
    made.execute("CREATE TABLE b (y)")
    made.commit()
    assert (await tool.execute("DESCRIBE b")).output == {"rows": [{"name": "y", "type": "", "comment": ""}]}
    assert (await tool.execute("SELECT count(*) AS n FROM b")).output == {"rows": [{"n": 0}]}
    assert "b(y)" in tool.description
    made.execute("ALTER TABLE b ADD COLUMN z DEFAULT 5")
    made.execute("INSERT INTO b (y) VALUES (1)")
    made.commit()
    assert (await tool.execute("SELECT z FROM b")).output == {"rows": [{"z": 5}]}
    made.execute("DROP TABLE a")
    assert "there is no table 'a'" in (await tool.execute("SELECT * FROM a")).error
    assert "a(x)" not in tool.description
    tool.close()
    made.close()


async def test_names_are_shown_as_they_must_be_written(tmp_path):
    made = sqlite3.connect(tmp_path / "names.db")
    made.execute('CREATE TABLE "order" ("group" TEXT, "unit price" INTEGER, 数量 INTEGER)')
    made.close()
    tool = DatabaseTool(tmp_path / "names.db")
    assert '"order"("group" TEXT, "unit price" INTEGER, 数量 INTEGER)' in tool.description
    assert (await tool.execute('SELECT "unit price", 数量 FROM "order"')).output == {"rows": []}
    assert "did you mean '\"order\"'" in (await tool.execute("SELECT 1 FROM orders")).error
    tool.close()


async def test_a_text_that_is_not_utf8_hides_nothing(tmp_path):
    made = sqlite3.connect(tmp_path / "old.db")
    made.execute("CREATE TABLE notes (id INTEGER, t TEXT, u TEXT)")
    made.execute("INSERT INTO notes VALUES (1, CAST(x'93fa' AS TEXT), 'b')")
    made.commit()
    made.close()
    tool = DatabaseTool(tmp_path / "old.db")
    assert "notes(id INTEGER, t TEXT, u TEXT)" in tool.description
    assert (await tool.execute("SELECT id, u FROM notes")).output == {"rows": [{"id": 1, "u": "b"}]}
    assert (await tool.execute("SELECT t FROM notes")).output == {"rows": [{"t": "\ufffd\ufffd"}]}
    tool.close()


async def test_a_log_beside_the_database(tmp_path):
    """In write-ahead mode others go on writing, and what they have written is seen."""
    made = sqlite3.connect(tmp_path / "wal.db", isolation_level=None)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("CREATE TABLE a (x)")
    tool = DatabaseTool(tmp_path / "wal.db")
    assert (await tool.execute("SELECT count(*) AS n FROM a")).output == {"rows": [{"n": 0}]}
    made.execute("INSERT INTO a VALUES (1)")
    assert (await tool.execute("SELECT count(*) AS n FROM a")).output == {"rows": [{"n": 1}]}
    tool.close()
    made.close()


def test_rows_that_are_no_json_are_a_failed_query():
    for text in ("{", "[" * 5000, '{"a": ' + "9" * 5000 + "}"):
        with pytest.raises(QueryFailed):
            read_rows([text], QueryLimits(10, 1_000_000, 1.0))


class Own:
    """An engine of the user's, in this process."""

    dialect = "sqlite"

    def __init__(self):
        self.asked = []

    def tables(self):
        return [Table("items", (Column("name", "text"),))]

    def run(self, sql, limits):
        self.asked.append((sql, os.getpid()))
        return Rows([{"name": "cup"}], False)


async def test_an_engine_of_ones_own_runs_here():
    engine = Own()
    tool = DatabaseTool(engine)
    assert (await tool.execute("SELECT name FROM items")).output == {"rows": [{"name": "cup"}]}
    assert engine.asked == [("SELECT name FROM items", os.getpid())]
    assert "items(name text)" in tool.description
    assert (await tool.execute("SELECT name FROM main.items")).error is None
    assert "there is no table" in (await tool.execute("SELECT 1 FROM other")).error


INNER = {
    "sqlite": '(SELECT max(""apikey"") FROM ""keys_hidden"")',
    "duckdb": '(SELECT max(""apikey"") FROM ""keys_hidden"")',
    "postgres": '(SELECT max(""apikey"") FROM ""keys_hidden"")',
}
FRAMES = [
    'SELECT CAST(1 AS "zz) || {} || CAST(1 AS zz") AS x',
    'SELECT CAST(1 AS DECIMAL("1)) || {} || CAST(1 AS DECIMAL(1")) AS x',
    'SELECT CAST(1 AS VARCHAR("1)) || {} || CAST(1 AS VARCHAR(1")) AS x',
    'SELECT EXTRACT("YEAR FROM CURRENT_DATE) || {} || EXTRACT(YEAR" FROM CURRENT_DATE) AS x',
    'SELECT make_interval("days => 1) || {} || make_interval(days" => 3) AS x',
    "SELECT INTERVAL '1' YEAR TO \"MONTH, {}\" AS x",
    'SELECT \'a\' COLLATE "C", {} AS "x" AS y',
    'SELECT CAST(1 AS STRUCT("a INTEGER), {} AS x, CAST(1 AS STRUCT(a" INTEGER)) AS y',
    'SELECT * FROM customers TABLESAMPLE "BERNOULLI (10), {}" (5)',
    'SELECT sum(1) OVER (ROWS BETWEEN "1 PRECEDING AND CURRENT ROW), {} AS x, sum(1) OVER (ROWS BETWEEN 1" PRECEDING AND CURRENT ROW)',
    'SELECT 1 AS x ORDER BY 1 "DESC, {}"',
    "SELECT JSON_OBJECT('a': 1 FORMAT \"JSON), {} AS x\")",
    "SELECT TRIM(\"BOTH 'a' FROM 'b'), {} AS x\" 'a' FROM 'b')",
]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_quoted_name_in_the_place_of_a_word_carries_nothing(tools, engine):
    for frame in FRAMES:
        for inner in (INNER[engine], INNER[engine].upper()):
            result = await tools(engine).execute(frame.format(inner))
            assert "HIDDEN-KEY" not in json.dumps(result.output), frame


async def test_no_function_of_postgres_is_carried_by_the_name_of_an_argument(tools, sources):
    needs("postgres", sources)
    frame = 'SELECT make_interval("days => 1) || CAST({} AS TEXT) || make_interval(days" => 3) AS x'
    for call in (
        '""pg_read_file""(\'/etc/hostname\')',
        '""current_setting""(\'data_directory\')',
        "\"\"set_config\"\"('statement_timeout', '0', false)",
        '(SELECT ""rolname"" FROM ""pg_authid"" LIMIT 1)',
        '""pg_advisory_lock""(1)',
    ):
        assert (await tools("postgres").execute(frame.format(call))).is_error, call


@pytest.mark.parametrize(
    ("engine", "sql"),
    [
        ("postgres", "SELECT (DATE '2024-01-01' + INTERVAL '1 day 12:00:00')::text AS x"),
        ("postgres", "SELECT (INTERVAL '1 day ago')::text AS x, (INTERVAL '-1 day +02:00')::text AS y"),
        ("postgres", "SELECT (INTERVAL '1' YEAR)::text AS x, (INTERVAL '3' MONTH + INTERVAL '2 days')::text AS y"),
        ("duckdb", "SELECT CAST(DATE '2024-01-01' + INTERVAL '1 day 12:00:00' AS VARCHAR) AS x"),
        ("duckdb", "SELECT CAST(DATE '2024-01-01' + INTERVAL 2 DAY AS VARCHAR) AS x, CAST(INTERVAL '1' DAY AS VARCHAR) AS y"),
        ("duckdb", "SELECT list(name ORDER BY name)[1] AS x, list(DISTINCT name ORDER BY name)[1:2] AS y FROM products"),
        ("duckdb", "SELECT id NOT IN (1, 2) = (id > 2) AS x FROM products ORDER BY id"),
        ("duckdb", "SELECT last_value(name IGNORE NULLS) OVER (ORDER BY id) AS x FROM products"),
        (
            "postgres",
            "WITH d AS (SELECT id AS date, count(*) AS n FROM customers GROUP BY 1) SELECT d.date, d.n FROM d ORDER BY 1",
        ),
        ("duckdb", "SELECT count(*) AS n FROM shop.customers"),
        ("postgres", "SELECT DISTINCT ON (country) name FROM customers ORDER BY country, id"),
        ("postgres", "SELECT id FROM customers ORDER BY country FETCH FIRST 2 ROWS WITH TIES"),
        ("sqlite", "SELECT id FROM products WHERE id = price NOT IN (0)"),
        ("postgres", "SELECT (INTERVAL '1.5' MONTH)::text AS x"),
        ("sqlite", "SELECT id, id NOT IN (1, 2) < id AS x, id NOT BETWEEN 1 AND 2 = 1 AS y FROM products ORDER BY id"),
    ],
)
async def test_answers_are_the_engines(tools, sources, engine, sql):
    needs(engine, sources)
    result = await tools(engine).execute(sql)
    with directly(sources, engine) as run:
        _, wanted = run(sql)
    assert result.error is None
    assert [list(row.values()) for row in result.output["rows"]] == [list(row) for row in wanted]


async def test_a_wide_database_is_told_quickly_and_cancelled_calls_cost_nothing(tmp_path):
    import duckdb

    with duckdb.connect(str(tmp_path / "wide.duckdb")) as made:
        for number in range(60):
            made.execute(f"CREATE TABLE t{number} ({', '.join([f'c{column} VARCHAR' for column in range(50)])})")
    tool = DatabaseTool(tmp_path / "wide.duckdb", timeout=60)
    assert "60 tables in all" in tool.description
    calls = [asyncio.create_task(tool.execute("SELECT 1 AS x")) for _ in range(50)]
    await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (await tool.execute("SELECT 1 AS x")).output == {"rows": [{"x": 1}]}
    tool.close()


def test_a_server_that_does_not_answer_is_not_asked_twice_at_once():
    """One that takes the connection and says nothing: the first look waits for its time, the second does not connect at all."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tool = DatabaseTool(f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none", timeout=0.5)
        told = [tool.description for _ in range(3)]
        tool.close()
        silent.settimeout(0.0)
        connections = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
    assert "not reachable now" in told[0]
    assert told[0] == told[1] == told[2]
    assert connections == 1


async def test_no_part_of_a_password_is_told():
    tool = DatabaseTool("postgresql://u:s3cr3t@PW@127.0.0.1:1/none?connect_timeout=1", timeout=2)
    told = (await tool.execute("SELECT 1")).error
    assert "s3cr3t" not in told
    assert "PW@" not in told
    tool.close()


async def test_the_servers_own_tables_are_not_seen_by_way_of_the_search_path(sources):
    needs("postgres", sources)
    joint = "&" if "?" in sources["postgres"] else "?"
    tool = DatabaseTool(f"{sources['postgres']}{joint}options=-c%20search_path%3Dpublic,pg_catalog", allow_superuser=True)
    assert "pg_authid" not in tool.description
    assert (await tool.execute("SELECT usename, passwd FROM pg_shadow")).is_error
    assert (await tool.execute("SELECT lower('A') || 'b' AS x, 1 + 1 AS y")).output == {"rows": [{"x": "ab", "y": 2}]}
    tool.close()


async def test_a_join_by_commas_is_left_to_the_planner(tmp_path):
    with closing(sqlite3.connect(tmp_path / "big.db")) as made, made:
        made.executescript(
            "CREATE TABLE cust (id INTEGER PRIMARY KEY); CREATE TABLE prod (id INTEGER PRIMARY KEY);"
            "CREATE TABLE sale (id INTEGER PRIMARY KEY, cust_id INTEGER, prod_id INTEGER);"
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO cust SELECT i FROM n;"
            "INSERT INTO prod SELECT id FROM cust; INSERT INTO sale SELECT id, id, id FROM cust"
        )
    made.close()
    tool = DatabaseTool(tmp_path / "big.db")
    sql = "SELECT count(*) AS n FROM cust c, prod p, sale s WHERE s.cust_id = c.id AND s.prod_id = p.id"
    assert (await tool.execute(sql)).output == {"rows": [{"n": 20000}]}, "in the tables' order it would take hours"
    tool.close()


@pytest.mark.parametrize(
    ("engine", "sql"),
    [
        ("duckdb", """SELECT CAST('{"a.b": 3, "a": {"b": 4}, "x[0]": 5}' AS JSON) ->> 'a.b' AS x"""),
        ("sqlite", """SELECT '{"a:b": 3}' ->> 'a:b' AS x, '{"a": {"b": 4}}' ->> '$.a.b' AS y"""),
        ("duckdb", "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY price) AS x FROM products"),
        ("sqlite", "SELECT (price NOT IN (0)) = 1 AS x FROM products ORDER BY id"),
    ],
)
async def test_keys_and_quantiles_are_what_the_engine_takes_them_for(tools, sources, engine, sql):
    result = await tools(engine).execute(sql)
    with directly(sources, engine) as run:
        _, wanted = run(sql)
    assert result.error is None
    got = [list(row.values()) for row in result.output["rows"]]
    assert [[str(value) for value in row] for row in got] == [[str(value) for value in row] for row in wanted]


async def test_a_tool_is_not_asked_for_its_description_to_see_whether_it_is_one():
    class Slow:
        name = "slow"

        @property
        def description(self):
            raise AssertionError("nobody has asked for it")

        async def execute(self, input_text):
            return None

    from kaname.tools.registry import as_action

    assert as_action(Slow()).name == "slow"


async def test_endless_comments_and_lines_are_no_work(tools, sources):
    """They are read once: a statement full of them is answered, or refused for what it is, and not for its time."""
    for engine in ENGINES:
        if engine in sources:
            assert "took longer" not in (await tools(engine).execute("/**/" * 10_000 + "nothing")).error
            assert "took longer" not in ((await tools(engine).execute("SELECT E'a'" + "\n" * 40_000 + "x")).error or "")
            for opened in ("[", "'a", "`a", '"a', "$a$", "e'\\"):
                assert "took longer" not in (await tools(engine).execute("SELECT " + f"{opened} " * 12_000)).error


async def test_engines_of_ones_own_are_judged_in_threads():
    """Several at once, with different functions: none is judged by the other's list."""
    narrow, wide = DatabaseTool(Own()), DatabaseTool(Own(), functions=["sqlite_source_id"])
    sql = "SELECT sqlite_source_id() AS x FROM items"
    told = await asyncio.gather(*[tool.execute(sql) for _ in range(50) for tool in (narrow, wide)])
    assert {one.is_error for one in told[::2]} == {True}
    assert {one.is_error for one in told[1::2]} == {False}
    assert all("is not allowed here" in one.error for one in told[::2])
