"""Design A's three tools and the rules for tools, with the document's names and defaults."""

import inspect
import sqlite3

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
    script = [call("read", path="/etc/passwd"), call("read", path="/data/a"), "done"]
    result = await Agent(ScriptedModel(script), [read], policies=[rails], journal=MemoryJournal()).run("?")
    assert "may not be called with this path" in result.steps[0].observation
    assert "may be called 1 times" in result.steps[1].observation
