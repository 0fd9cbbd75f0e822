"""The database tool against hostile and honest statements, on real engines."""

import hashlib
import re
import sqlite3
import warnings
from pathlib import Path

import pytest

from kaname import Agent, ConfigError, MemoryJournal, ScriptedModel, call
from kaname.tools.database.tool import DatabaseTool, engine_for
from kaname.tools.database.wall import Refused, check

from .postgres import cluster, program

SQL = Path(__file__).parent / "corpora" / "sql"
ENGINES = ("sqlite", "postgres", "duckdb")


def statements(name):
    """Label and statement; `{{repeat:N:TEXT}}` and `\\x00` stand for what no file should hold."""
    label = ""
    for part in re.split(r"^-----$", (SQL / name).read_bytes().decode(), flags=re.MULTILINE):
        lines = part.strip("\n").split("\n")
        if lines[0].startswith("#! "):
            label, lines = lines[0][3:], lines[1:]
        text = re.sub(r"\{\{repeat:(\d+):(.*?)\}\}", lambda m: m[2] * int(m[1]), "\n".join(lines), flags=re.DOTALL)
        yield label, text.replace("\\x00", "\x00")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
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

    with cluster() as address:
        with psycopg.connect(address) as made:
            made.execute((SQL / "schema_postgres.sql").read_text("utf-8"))
        yield {**found, "postgres": address}


def tool_for(sources, engine, **more):
    if engine not in sources:
        warnings.warn(
            "PostgreSQL is not installed here: its part of the database tool is NOT tested", UserWarning, stacklevel=1
        )
        pytest.skip("PostgreSQL is not installed here")
    return DatabaseTool(sources[engine], **more)


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


@pytest.mark.parametrize("engine", ENGINES)
async def test_honest_questions_are_all_answered(sources, engine):
    tool = tool_for(sources, engine)
    told = [(sql, (await tool.execute(sql)).error) for _, sql in statements(f"honest_{engine}.txt")]
    assert len(told) >= 100
    assert [one for one in told if one[1]] == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_hostile_statements_are_all_stopped(sources, engine):
    """Nothing is written, nothing outside is read, and whatever was let through has ended within its limits."""
    tool, before = tool_for(sources, engine, timeout=0.25), contents(sources, engine)
    all_, answered = list(statements(f"hostile_{engine}.txt")), []
    for label, sql in all_:
        result = await tool.execute(sql)
        if result.error is None and not label.startswith("bomb"):
            answered.append((label, sql[:200], str(result.output)[:200]))
        assert result.error is None or "Traceback" not in result.error
        assert len(str(result.output)) < 100_000
    assert len(all_) >= 300
    assert answered == []
    assert contents(sources, engine) == before


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_second_wall_stands_alone(sources, engine, monkeypatch):
    """Writes that no parser has looked at are stopped by the engine itself."""
    tool, before = tool_for(sources, engine, timeout=0.25), contents(sources, engine)
    monkeypatch.setattr("kaname.tools.database.tool.check", lambda sql, *_: sql.strip().removesuffix(";"))
    kinds = ("write", "ddl", "cte", "stacked", "pragma", "copy")
    tried = [(label, sql) for label, sql in statements(f"hostile_{engine}.txt") if any(kind in label.lower() for kind in kinds)]
    assert len(tried) > 50
    for _, sql in tried:
        await tool.execute(sql)
    assert contents(sources, engine) == before


async def test_what_the_model_sees(sources):
    tool = DatabaseTool(sources["sqlite"])
    assert "orders(id INTEGER, customer_id INTEGER" in tool.description
    assert "status: 'shipped', 'cancelled', 'returned', 'pending', 'paid'" in tool.description
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
        ("SELECT 1 -- all", "without comments"),
        ("SELECT load_extension('x')", "load_extension() is not allowed"),
        ("", "there is no statement"),
        ("SELECT (((", "cannot be read as SQL"),
        ("SELECT 'a\u200bb'", "U+200B"),
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


async def test_in_a_run(sources):
    model = ScriptedModel([call("database", sql="SELECT count(*) AS n FROM customers"), "done"])
    result = await Agent(model, [DatabaseTool(sources["sqlite"])], journal=MemoryJournal()).run("How many?")
    assert '{"rows": [{"n": ' in result.steps[0].observation


@pytest.mark.parametrize("pattern", ["a%", "%b", "%a%b%", "_b_", "a_%", "%", "", "a\\%c", "%_%_%", "ÄÖ%", "%ß"])
@pytest.mark.parametrize("text", ["", "a", "abc", "ABC", "xaxbx", "a%c", "äö", "ÄÖü", "straße", "b\nb"])
def test_our_like_is_sqlites_like(sources, pattern, text):
    engine = engine_for(sources["sqlite"])
    from kaname.tools.database.sqlite import _glob, _like

    plain = sqlite3.connect(":memory:")
    assert _like(pattern, text) == plain.execute("SELECT ? LIKE ?", (text, pattern)).fetchone()[0]
    assert _like(pattern, text, "\\") == plain.execute("SELECT ? LIKE ? ESCAPE '\\'", (text, pattern)).fetchone()[0]
    globbed = pattern.replace("%", "*").replace("_", "?")
    assert _glob(globbed, text) == plain.execute("SELECT ? GLOB ?", (text, globbed)).fetchone()[0]
    plain.close()
    assert engine.dialect == "sqlite"


def test_mistakes_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError, match="there is no database"):
        DatabaseTool(tmp_path / "none.db")
    with pytest.raises(ConfigError, match="did you mean 'postgresql'"):
        DatabaseTool("postgresq://x")
    with pytest.raises(Refused):
        check("SELECT * FROM nowhere", "sqlite", [])
