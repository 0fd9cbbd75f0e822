"""The cache and equal tools in `kaname.yaml`, and `kaname cache`."""

import json

import pytest

from kaname import Agent, Cache, ConfigError, Equals, load_config
from kaname.cli.main import main

_SCRIPT = json.dumps(["It is sunny."])
_TOOLS = '''
from kaname import tool

@tool(effect="pure")
def look(query: str) -> str:
    """Look it up."""
    return query

@tool(effect="pure")
def find(query: str) -> str:
    """Look it up."""
    return query
'''


@pytest.fixture
def project(tmp_path):
    (tmp_path / "script.json").write_text(_SCRIPT)
    (tmp_path / "shop.py").write_text(_TOOLS)

    def write(text):
        (tmp_path / "kaname.yaml").write_text("agents:\n  a:\n    model: scripted/script.json\n" + text)
        return tmp_path / "kaname.yaml"

    return write


async def run(file):
    agent = Agent.from_config(load_config(file))
    result = await agent.run("Hi")
    await agent.close()
    return agent, result


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("    cache: true\n", ".kaname/cache.db"),
        ("    cache: {ttl: 1h, size: 5MB, path: here.db}\n", "here.db"),
    ],
)
async def test_cache_of_a_file_stands_next_to_it_and_is_used_by_the_next_process(project, text, place):
    file = project(text)
    agent, first = await run(file)
    (cache,) = [one for one in agent.recipe.policies if isinstance(one, Cache)]
    assert first.usage.total == 15
    cache.close()
    assert (file.parent / place).is_file()
    _, second = await run(file)
    assert second.output == "It is sunny."
    assert second.usage.total == 0


@pytest.mark.parametrize("text", ["", "    cache: false\n"])
async def test_cache_is_off_unless_the_file_says_so(project, text):
    agent, _ = await run(project(text))
    assert not [one for one in agent.recipe.policies if isinstance(one, Cache)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("    cache: {ttl: soon}\n", r"kaname\.yaml:4.*is not a duration"),
        ("    cache: {size: much}\n", r"kaname\.yaml:4.*is not a size"),
        ("    cache: {sise: 1GB}\n", r"kaname\.yaml:4.*sise"),
        ("    equals: [[look]]\n    tools: [shop.py]\n", r"kaname\.yaml:4.*at least two"),
        ("    equals: [[look, fnd]]\n    tools: [shop.py]\n", r"kaname\.yaml:4.*there is no tool 'fnd'.*find"),
        ("models:\n  openai: {prompt_cache: 1h}\n", r"kaname\.yaml:5.*does not support this key"),
        ("models:\n  anthropic: {prompt_cache: 2h}\n", r"kaname\.yaml:5"),
    ],
)
def test_mistakes_in_a_file_are_reported_with_their_line(project, text, told):
    with pytest.raises(ConfigError, match=f"(?s){told}"):
        load_config(project(text)).check()


async def test_equal_tools_of_a_file_become_a_policy(project):
    agent, _ = await run(project("    equals: [[look, find]]\n    tools: [shop.py]\n"))
    assert [one.names for one in agent.recipe.policies if isinstance(one, Equals)] == [("look", "find")]


async def test_cache_command_shows_the_size_and_clears_it(project, monkeypatch, capsys):
    file = project("    cache: true\n")
    monkeypatch.chdir(file.parent)
    await run(file)
    assert main(["cache", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["entries"] == 1
    assert shown["path"].endswith("/.kaname/cache.db")
    assert main(["cache", "clear"]) == 0
    assert "0 entries" in capsys.readouterr().out
    (file.parent / "broken.db").write_bytes(b"not a database" * 100)
    assert main(["cache", "--file", "broken.db"]) == 2
    assert "broken.db cannot be used" in capsys.readouterr().err
