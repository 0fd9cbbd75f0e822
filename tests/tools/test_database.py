"""The database tool against hostile and honest statements, on real engines."""

import asyncio
import hashlib
import re
import sqlite3
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from kaname import Agent, ConfigError, MemoryJournal, ScriptedModel, call
from kaname.tools.database.check import check
from kaname.tools.database.engines.base import QueryFailed
from kaname.tools.database.sandbox.process import START, WorkerPool
from kaname.tools.database.statement import StatementRefused
from kaname.tools.database.tables import Column, KnownTables, Table
from kaname.tools.database.tool import DatabaseTool
from tests import warm
from tests.postgres import database, program
from tests.properties import nightly

SQL = Path(__file__).parents[1] / "corpora" / "sql"
ENGINES = ("sqlite", "postgres", "duckdb")
BY_DAY = ("sqlite", "postgres", *nightly("duckdb"))  # DuckDB takes longest
SETS_BY_DAY = ("sqlite", *nightly("postgres", "duckdb"))  # of some hundred statements


def statements(name):
    """Label and statement; `{{repeat:N:TEXT}}` and `\\x00` stand for what no file should hold."""
    label = ""
    for part in re.split(r"^-----$", (SQL / name).read_bytes().decode(), flags=re.MULTILINE):
        lines = part.strip("\n").split("\n")
        if lines[0].startswith("#! "):
            label, lines = lines[0][3:], lines[1:]
        text = re.sub(r"\{\{repeat:(\d+):(.*?)\}\}", lambda m: m[2] * int(m[1]), "\n".join(lines), flags=re.DOTALL)
        yield label, text.replace("\\x00", "\x00")


@pytest.fixture(scope="module", autouse=True)
def warm_workers():
    """Start workers that have imported the engines: a hundred of them would import them one by one."""
    with pytest.MonkeyPatch.context() as patch:
        engines = "kaname.tools.database.sandbox.worker,duckdb,psycopg,postgast"
        patch.setattr("kaname.tools.database.sandbox.process.Popen", partial(warm.Popen, also=engines))
        yield


@pytest.fixture(scope="module")
def sources(request, tmp_path_factory):
    """The same shop in every engine that is there."""
    import duckdb

    folder = tmp_path_factory.mktemp("shop")
    connection = sqlite3.connect(folder / "shop.db")
    connection.executescript((SQL / "schema_sqlite.sql").read_text("utf-8"))
    connection.close()
    duck = duckdb.connect(str(folder / "shop.duckdb"))
    duck.execute((SQL / "schema_duckdb.sql").read_text("utf-8"))
    duck.close()
    found = {"sqlite": str(folder / "shop.db"), "duckdb": str(folder / "shop.duckdb")}
    if program("initdb") is None:
        yield found
        return
    import psycopg

    with database(request.getfixturevalue("postgresql"), "plain") as address:
        with psycopg.connect(address) as made:
            made.execute((SQL / "schema_postgres.sql").read_text("utf-8"))
        yield {**found, "postgres": address}


def needs(engine, sources):
    if engine not in sources:
        pytest.skip("POSTGRESQL WAS NOT TRIED: it is not installed here (Debian: apt-get install postgresql)")


def tool_for(sources, engine, **more):
    """PostgreSQL with the most powerful role: what is refused is refused by us."""
    needs(engine, sources)
    return DatabaseTool(sources[engine], allow_superuser=True, **more)


UNJUDGED = "import kaname.tools.database.session as session; session.check = lambda sql, known: None"


def without_the_first_wall(tool):
    """A tool whose worker hands every statement to the engine without a look at it."""
    tool._workers = WorkerPool(tool._workers._opening, START.replace("main()", f"{UNJUDGED}; main()"))
    return tool


def customers():
    tables = [Table("customers", (Column("id", "integer"), Column("name", "text")), "", "public")]
    calls = {"pg_read_file", "pg_ls_dir", "pg_create_physical_replication_slot"}
    return KnownTables("postgres", tables, calls=frozenset(calls))


def contents(sources, engine):
    """All that could have changed."""
    if engine != "postgres":
        return hashlib.sha256(Path(sources[engine]).read_bytes()).hexdigest()
    import psycopg

    with psycopg.connect(sources[engine]) as made:
        tables = made.execute(
            "SELECT schemaname || '.' || quote_ident(tablename) FROM pg_tables WHERE schemaname !~ '^(pg_|inf)' ORDER BY 1"
        )
        rows = [(name, made.execute(f"SELECT t::text FROM {name} t ORDER BY 1").fetchall()) for (name,) in tables.fetchall()]
        sequences = made.execute("SELECT schemaname, sequencename, last_value FROM pg_sequences ORDER BY 1, 2").fetchall()
        return str((rows, sequences))


@pytest.mark.parametrize("engine", SETS_BY_DAY)
async def test_hostile_statements_are_all_stopped(sources, engine):
    """Nothing is written, nothing outside is read, and whatever was let through has ended within its limits."""
    tool, before = tool_for(sources, engine, timeout=0.15, comments="refuse"), contents(sources, engine)
    all_, answered = list(statements(f"hostile_{engine}.txt")), []
    bombs = {label: [one for one in all_ if one[0] == label] for label, _ in all_ if label.startswith("bomb")}
    few = [one for kind in bombs.values() for one in dict.fromkeys([kind[0], kind[-1]])]  # each of these takes its full time
    for label, sql in [*[one for one in all_ if one[0] not in bombs], *few]:
        result = await tool.execute(sql)
        if result.error is None and not label.startswith("bomb"):
            answered.append((label, sql[:200], str(result.output)[:200]))
        assert result.error is None or "Traceback" not in result.error
        assert len(str(result.output)) < 100_000
    assert len(all_) >= 300
    assert answered == []
    assert contents(sources, engine) == before


@pytest.mark.parametrize("engine", BY_DAY)
async def test_the_second_wall_stands_alone(sources, engine):
    """Writes that no parser has looked at are stopped by the engine itself."""
    tool, before = without_the_first_wall(tool_for(sources, engine, timeout=0.15)), contents(sources, engine)
    kinds = ("write", "ddl", "cte", "stacked", "pragma", "copy")
    tried = [(label, sql) for label, sql in statements(f"hostile_{engine}.txt") if any(kind in label.lower() for kind in kinds)]
    assert len(tried) > 50
    told = [(await tool.execute(sql)).error or "" for _, sql in tried[::2]]
    assert not [one for one in told if re.search("is not allowed here|there is no table|only SELECT is allowed, not", one)]
    assert contents(sources, engine) == before


async def test_what_the_model_sees(sources):
    tool = DatabaseTool(sources["sqlite"])
    assert "orders(id INTEGER, customer_id INTEGER" in tool.description
    assert "status: such as 'shipped', 'cancelled', 'returned', 'pending', 'paid'" in tool.description
    assert "@example" not in tool.description, "no personal data in a prompt"
    rows = (await tool.execute("SELECT id, name_en FROM customers ORDER BY id LIMIT 2")).output["rows"]
    assert [row["id"] for row in rows] == [1, 2]
    twice = (await tool.execute("SELECT 1 AS a, 2 AS a")).output["rows"]
    assert twice == [{"a": 1, "a_2": 2}]


async def test_comments_of_postgres_are_seen(sources):
    tool = tool_for(sources, "postgres")
    assert re.search(r"\): \S", tool.description), "a table's comment"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM custmers", "did you mean 'customers'"),
        ("SELECT naem_en FROM customers", "did you mean 'name_en'"),
        ("DELETE FROM customers", "only SELECT is allowed, not DELETE"),
        ("SELECT 1; SELECT 2", "exactly one statement"),
        ("SELECT load_extension('x')", "load_extension() is not allowed"),
        ("", "there is no statement"),
        ("SELECT (((", "incomplete input"),
    ],
)
async def test_a_refusal_says_why_and_what_is_near(sources, sql, words):
    result = await DatabaseTool(sources["sqlite"]).execute(sql)
    assert words in result.error
    assert not result.retryable


async def test_limits(sources):
    tool = DatabaseTool(sources["sqlite"], max_rows=3, max_characters=300)
    found = (await tool.execute("SELECT id FROM orders")).output
    assert len(found["rows"]) == 3
    assert "first 3 rows" in found["note"]
    long = await tool.execute("SELECT 'x' || printf('%999d', 1) AS x")
    assert "longer than 300" in long.error
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    slow = await DatabaseTool(sources["sqlite"], timeout=0.2).execute(endless)
    assert "longer than 0.2 s" in slow.error
    only = DatabaseTool(sources["sqlite"], tables=["orders"])
    assert "there is no table 'customers'" in (await only.execute("SELECT * FROM customers")).error


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ('/etc/hostname'::text).pg_read_file",
        "SELECT ('kept'::name).pg_create_physical_replication_slot",
        "SELECT customers.pg_read_file FROM customers",
        "SELECT c.pg_ls_dir FROM customers c",
        "WITH secrets AS (SELECT * FROM secrets) SELECT * FROM secrets",
        "WITH pg_authid AS (SELECT * FROM pg_authid) SELECT * FROM pg_authid",
        "SELECT secrets.* FROM secrets, (WITH secrets AS (SELECT 1 a) SELECT * FROM secrets) x",
        "WITH a AS (DELETE FROM customers RETURNING *) SELECT * FROM a",
        "SELECT * INTO copy FROM customers",
        "SELECT * FROM customers FOR UPDATE",
        "SELECT * FROM customers WHERE id = $1",
        "SELECT xmlforest(name) FROM customers",
    ],
)
def test_ways_round_the_first_wall_are_closed(sql):
    with pytest.raises(StatementRefused):
        check(sql, customers())


def test_a_name_of_ones_own_can_be_seen_where_it_is_defined():
    for sql in (
        "WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT b.x FROM b JOIN a ON a.x = b.x",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT n.x FROM n",
        "SELECT * FROM (WITH a AS (SELECT id FROM customers) SELECT a.id FROM a) q",
        "WITH a AS (SELECT 1) SELECT * FROM customers WHERE id IN (SELECT * FROM a)",
    ):
        check(sql, customers())


async def test_parallel_questions(sources):
    """All of them are answered, also where an engine takes one at a time."""
    for engine in ENGINES:
        if engine in sources:
            tool = tool_for(sources, engine)
            told = await asyncio.gather(*[tool.execute("SELECT count(*) AS n FROM customers") for _ in range(4)])
            assert [one.error for one in told] == [None] * 4


async def test_rows_as_they_are(sources):
    sql = "SELECT 1 AS id, 2 AS id, CAST('12345678901234567.89' AS DECIMAL(30, 2)) AS price, NULL AS nothing"
    for engine in ("postgres", "duckdb"):
        if engine in sources:
            (row,) = (await tool_for(sources, engine).execute(sql)).output["rows"]
            assert list(row.values()) == [1, 2, "12345678901234567.89", None], "no column lost, no digit lost"


async def test_what_cannot_be_reached_is_still_a_tool(tmp_path):
    (tmp_path / "no.db").write_text("this is no database, but long enough to be looked at as one")
    tool = DatabaseTool(tmp_path / "no.db")
    assert "not reachable now" in tool.description
    result = await Agent(ScriptedModel([call("database", sql="SELECT 1"), "done"]), [tool], journal=MemoryJournal()).run("?")
    assert result.completed
    broken = sqlite3.connect(tmp_path / "view.db")
    broken.executescript("CREATE TABLE a (x); CREATE VIEW v AS SELECT * FROM a; CREATE TABLE b (y); DROP TABLE a")
    broken.close()
    assert (await DatabaseTool(tmp_path / "view.db").execute("SELECT count(*) AS n FROM b")).output == {"rows": [{"n": 0}]}


def test_a_password_is_never_told():
    tool = DatabaseTool("postgresql://u:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in tool.description
    assert "hunter2" not in DatabaseTool("postgresql://u:pa%zzhunter2@127.0.0.1:1/x").description


async def test_heavy_functions_of_sqlite(sources):
    tool = DatabaseTool(sources["sqlite"], timeout=0.5)
    long = "WITH t(s) AS (SELECT group_concat(printf('%9000s', 'a')) FROM (SELECT 1 FROM orders LIMIT 20))"
    for expression in ("trim(s, s)", "s LIKE '%' || substr(s, 1, 70000) || 'b%'", "instr(s, s || 'b')", "replace(s, 'a', s)"):
        start = monotonic()
        await tool.execute(f"{long} SELECT length({expression}) FROM t")
        assert monotonic() - start < 30


@pytest.mark.parametrize("engine", ENGINES)
async def test_comments_never_reach_the_engine(sources, engine):
    strict, lenient = tool_for(sources, engine, comments="refuse"), tool_for(sources, engine)
    for sql in ("SELECT 1 -- one", "/* lead */ SELECT 1", "SELECT /* a /* b */ c */ 1", "-- first\nSELECT 1;"):
        assert (await strict.execute(sql)).error == "not run: write it without comments"
        result = await lenient.execute(sql)
        nested = engine == "sqlite" and "/* b" in sql  # there a comment ends at the first */
        assert result.is_error if nested else list(result.output["rows"][0].values()) == [1], sql


async def test_comments_in_quotes_are_none(sources):
    tool = tool_for(sources, "sqlite", comments="refuse")
    sql = "SELECT '--' AS \"a/*b\", '/*' AS [c--d], '''--' AS `e*/f`"
    assert (await tool.execute(sql)).output == {"rows": [{"a/*b": "--", "c--d": "/*", "e*/f": "'--"}]}


async def test_a_code_block_after_prose_is_the_statement(sources):
    told = "Here is the query:\n\n```sql\nSELECT count(*) AS n FROM customers;\n```\nIt counts them."
    assert (await DatabaseTool(sources["sqlite"]).execute(told)).output == {"rows": [{"n": 24}]}


async def test_a_powerful_role_of_postgres_is_refused(sources):
    needs("postgres", sources)
    with pytest.raises(ConfigError, match="'kaname' can read files of the server.*allow_superuser=True"):
        _ = DatabaseTool(sources["postgres"]).description
    import psycopg

    reader = sources["postgres"].replace("kaname@", "reader@")
    with psycopg.connect(sources["postgres"], autocommit=True) as made:
        made.execute("CREATE ROLE reader LOGIN; GRANT SELECT ON customers TO reader")
        try:
            tool = DatabaseTool(reader)
            assert [table.name for table in tool.tables] == ["customers"]
            assert (await tool.execute("SELECT count(*) AS n FROM customers")).output == {"rows": [{"n": 24}]}
            made.execute("GRANT pg_read_server_files TO reader")
            with pytest.raises(ConfigError, match="allow_superuser"):
                await DatabaseTool(reader).execute("SELECT 1")
        finally:
            made.execute("REVOKE ALL ON customers FROM reader; DROP ROLE reader")


async def test_in_a_run(sources):
    model = ScriptedModel([call("database", sql="SELECT count(*) AS n FROM customers"), "done"])
    result = await Agent(model, [DatabaseTool(sources["sqlite"])], journal=MemoryJournal()).run("How many?")
    assert '{"rows": [{"n": ' in result.steps[0].observation


def test_mistakes_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError, match="was not found"):
        DatabaseTool(tmp_path / "none.db")
    with pytest.raises(ConfigError, match="did you mean 'postgresql'"):
        DatabaseTool("postgresq://x")
    with pytest.raises(ConfigError, match="comments must be 'strip' or 'refuse'"):
        DatabaseTool(__file__, comments="keep")


@pytest.mark.parametrize("engine", BY_DAY)
def test_rows_that_share_words_with_a_question_are_found_without_sql(sources, engine):
    tool, before = tool_for(sources, engine), contents(sources, engine)
    asked = {
        "What is the price of TEA-001?": {"products": [1]},
        "佐藤 花子さんの住所": {"customers": [1]},
        "What became of order 29?": {"orders": [29]},
        "I would like 7 of them": {},
        "Which orders were shipped?": {},  # many, and none of them is meant
        "hello!": {},
        "joke', '%'; DROP TABLE customers --": {"customers": [5]},
    }
    for question, wanted in asked.items():
        found = {
            name: [row["id"] for row in rows]
            for name, rows in tool.find(question, seconds=60).items()
            if name in ("customers", "orders", "products")
        }
        assert found == wanted, question
    with pytest.raises(QueryFailed, match="took longer than"):
        tool.find("order 29", seconds=0)
    assert contents(sources, engine) == before
    tool.close()
