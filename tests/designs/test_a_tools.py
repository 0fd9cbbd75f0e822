"""Design A's three tools and the rules for tools, with the document's names and defaults."""

import asyncio
import inspect
import sqlite3
from contextlib import closing

import pytest

from kaname import (
    Agent,
    CalculatorTool,
    DatabaseTool,
    Guardrails,
    MemoryJournal,
    RAGPipeline,
    ScriptedModel,
    SearchTool,
    ToolRule,
    call,
    tool,
)


def default(function, name):
    return inspect.signature(function).parameters[name].default


@pytest.mark.requirement("A9", "A10", "A11")
def test_names_and_defaults():
    assert default(SearchTool, "top_k") == 5
    assert default(DatabaseTool, "max_rows") == 100
    assert (CalculatorTool.name, SearchTool.name, DatabaseTool.name) == ("calculator", "search", "database")


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("2 + 3 * 4", "14"),
        ("-7 // 2", "-4"),
        ("7 % 3", "1"),
        ("2 ** 10", "1024"),
        ("1.5e3 / 2", "750"),
        ("350×20%", "70"),
        ("(1+2)÷4", "0.75"),
    ],
)
async def test_the_calculator(typed, answer):
    assert (await CalculatorTool().execute(typed)).output == answer


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    "typed", ["__import__('os')", "(1).real", "x", "'a' * 3", "[i for i in (1,)]", "9**9**9", "(" * 10_000, "1" * 10_000_000]
)
async def test_the_calculator_refuses(typed):
    assert (await CalculatorTool().execute(typed)).is_error


@pytest.mark.requirement("A11")
async def test_the_database_reads_and_never_writes(tmp_path):
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.executescript("CREATE TABLE items (id INTEGER, name TEXT); INSERT INTO items VALUES (1, 'tea'), (2, '茶')")
    connection.close()
    before = (tmp_path / "shop.db").read_bytes()
    database = DatabaseTool(tmp_path / "shop.db", comments="refuse")
    assert "without comments" in (await database.execute("SELECT 1 -- one")).error
    model = ScriptedModel(
        [call("database", sql="SELECT name FROM items ORDER BY id"), call("database", sql="DELETE FROM items"), "done"]
    )
    result = await Agent(model, [database], journal=MemoryJournal()).run("?")
    assert result.steps[0].observation == '{"rows": [{"name": "tea"}, {"name": "茶"}]}'
    assert "only SELECT is allowed" in result.steps[1].observation
    assert (tmp_path / "shop.db").read_bytes() == before


@pytest.mark.requirement("A10")
async def test_search_cites_its_sources(tmp_path):
    (tmp_path / "rules.md").write_text(
        "# Travel\n\nHotels in Kyoto cost at most 12,000 yen a night.\n\n# 休暇\n\n有給休暇は年に二十日です。\n"
    )
    pipeline = RAGPipeline(tmp_path / "index.db")
    pipeline.add(tmp_path / "rules.md")
    english = (await SearchTool(pipeline).execute("how much may a hotel cost")).output["passages"][0]
    assert (english["source"], english["heading"], english["place"], english["chunk"]) == ("rules.md", "Travel", "line 3", 1)
    japanese = (await SearchTool(pipeline).execute("休みは何日もらえますか")).output["passages"][0]
    assert "二十日" in japanese["text"]
    pipeline.close()


@pytest.mark.requirement("D4")
async def test_guardrails_on_the_use_of_tools():
    @tool(effect="pure")
    def read(path: str) -> str:
        """Read."""
        return path

    rails = Guardrails(tools=[ToolRule("read", max_calls=1, arguments={"path": "/data/.*"})])
    script = [call("read", path="/etc/passwd"), call("read", path="/data/a"), call("read", path="/data/b"), "done"]
    result = await Agent(ScriptedModel(script), [read], policies=[rails], journal=MemoryJournal()).run("?")
    assert "cannot be called with this path" in result.steps[0].observation
    assert result.steps[1].observation == "/data/a"  # a call that was refused does not count
    assert "limit of calls to read is reached" in result.steps[2].observation


def pdf_of(text):
    """The smallest PDF with one line of text."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join([b"%010d 00000 n \n" % place for place in places])
    end = b"xref\n0 6\n0000000000 65535 f \n%strailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (table, len(made))
    return made + end


@pytest.mark.requirement("A10")
async def test_every_kind_of_document_is_found_with_its_source(tmp_path):
    import docx

    document = docx.Document()
    document.add_paragraph("The library closes at eight.")
    document.save(tmp_path / "library.docx")
    (tmp_path / "garden.pdf").write_bytes(pdf_of("The garden opens at seven."))
    (tmp_path / "museum.html").write_text("<html><body><p>The museum is closed on Mondays.</p></body></html>")
    (tmp_path / "pool.txt").write_text("The pool is heated to 28 degrees.")
    (tmp_path / "駅.md").write_text("# 駅\n\n終電は零時十分です。\n")
    pipeline = RAGPipeline(tmp_path / "index.db")
    for name in ("library.docx", "garden.pdf", "museum.html", "pool.txt", "駅.md"):
        pipeline.add(tmp_path / name)
    wanted = {
        "when does the garden open": ("garden.pdf", "seven"),
        "when does the library close": ("library.docx", "eight"),
        "is the museum open on Monday": ("museum.html", "Mondays"),
        "how warm is the pool": ("pool.txt", "28"),
        "終電は何時ですか": ("駅.md", "零時十分"),
    }
    for question, (source, word) in wanted.items():
        first = (await SearchTool(pipeline).execute(question)).output["passages"][0]
        assert (first["source"], word in first["text"], bool(first["chunk"])) == (source, True, True), question
    pipeline.close()


@pytest.mark.requirement("A11")
def test_the_connection_itself_cannot_write(tmp_path, monkeypatch):
    """A parser's miss still cannot write: not even with SQLite's own switch thrown, before the engine sets anything."""
    from kaname.tools.database.tool import engine_for

    made = sqlite3.connect(tmp_path / "shop.db")
    made.executescript("CREATE TABLE items (id INTEGER)")
    made.close()
    tried, real = [], sqlite3.connect

    def connect(*given, **more):
        connection = real(*given, **more)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.executescript("PRAGMA query_only = OFF; INSERT INTO items VALUES (1)")
        tried.append(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert [table.name for table in engine_for(tmp_path / "shop.db").tables()] == ["items"]
    assert tried


@pytest.mark.requirement("A11")
async def test_a_query_that_takes_too_long_is_stopped(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript("CREATE TABLE items (id INTEGER)")
    database = DatabaseTool(tmp_path / "shop.db", timeout=0.3)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    async with asyncio.timeout(60):
        result = await database.execute(endless)
    assert "0.3" in result.error
    database.close()
