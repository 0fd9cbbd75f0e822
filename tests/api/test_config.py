"""Agents in a file: what it says is what runs, and every mistake is told at once, with its line."""

import json
import subprocess
import sys

import pytest

from kaname import Agent, Approve, ConfigError, InvalidState, ScriptedModel, load_config
from kaname.cli.init import TEMPLATE
from kaname.config.keys import schema
from kaname.testing import WireServer
from kaname.testing.wire import reply
from tests.cli.test_commands import terminal  # noqa: F401


@pytest.fixture
def write(tmp_path, monkeypatch):
    def write(text, name="kaname.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    (tmp_path / "some_tools.py").write_text('def double(n: int) -> int:\n    "Double."\n    return 2 * n\n')
    return write


async def test_an_agent_from_a_file(write, monkeypatch):
    async with WireServer([reply(calls=[("double", {"n": 21})]), reply("四十二")]) as server:
        monkeypatch.setenv("MY_KEY", "sk-mine")
        path = write(
            f"""
            models:
              openai: {{api_key: "${{MY_KEY}}", base_url: "{server.url}"}}
            agents:
              helper:
                model: openai/any
                instructions: "簡潔に。${{NOT_SET:-Thanks.}}"
                tools: ["some_tools:double"]
                stops: {{max_steps: 5, deadline: 1m}}
                settings: {{temperature: 0}}
            journal: memory
            """
        )
        async with Agent(load_config(path)) as agent:
            assert agent.name == "helper"
            assert (await agent.run("21 * 2?")).output == "四十二"
    assert server.headers[0]["authorization"] == "Bearer sk-mine"
    assert server.requests[0]["temperature"] == 0
    assert server.requests[0]["messages"][0]["content"] == "簡潔に。Thanks."


@pytest.mark.parametrize("provider", ["openai", "claude"])
def test_the_tiny_agents_form(write, provider):
    config = load_config(
        write(
            f"""
            llm:
              provider: {provider}
              openai: {{model: gpt-4, api_key: sk-test}}
              claude: {{model: claude-x, api_key: sk-test}}
            mcp_servers:
              files: {{command: npx, args: ["-y", pkg, 3]}}
            """,
            "config.yaml",
        )
    )
    agent = Agent(config, journal="memory")
    assert agent.recipe.model.name == {"openai": "openai/gpt-4", "claude": "anthropic/claude-x"}[provider]
    assert [server.name for server in agent.servers.servers] == ["files"]


def test_every_mistake_at_once_with_its_line(write):
    path = write(
        """agents:
  helper:
    modle: openai/gpt-4o
    tools: some_tools
    stops: {max_steps: many, deadline: soon}
  other:
    model: opnai/gpt-4o
    mcp_servers:
      x: {comand: npx}
models:
  openai: {api_key: "${SURELY_NOT_SET}"}
journal: 3
"""
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    told = str(caught.value)
    for line, words in (
        (3, "agents.helper.modle: unknown key; did you mean 'model'?"),
        (4, "agents.helper.tools: expected a list, got 'some_tools'"),
        (5, "agents.helper.stops.max_steps: expected an integer or null, got 'many'"),
        (5, "agents.helper.stops.deadline"),
        (7, "agents.other.model: unknown provider 'opnai'; did you mean 'openai'?"),
        (9, "agents.other.mcp_servers.x.comand: unknown key; did you mean 'command'?"),
        (9, "agents.other.mcp_servers.x: set exactly one of command and url"),
        (11, "models.openai.api_key: the environment variable SURELY_NOT_SET is not set"),
        (12, "journal: expected a string, got 3"),
    ):
        assert f"kaname.yaml:{line}: {words}" in told
    assert told.startswith("9 errors")


def test_broken_files(write, tmp_path):
    with pytest.raises(ConfigError, match=r"kaname\.yaml:3: not valid YAML"):
        load_config(write("agents:\n  a: [\n"))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="add 'agents' or 'llm'"):
        load_config(write(""))
    with pytest.raises(ConfigError, match="expected a mapping"):
        load_config(write("- 1"))
    with pytest.raises(ConfigError, match="duplicate key"):
        load_config(write("agents:\n  a: {model: local}\n  a: {model: local}\n"))
    with pytest.raises(ConfigError, match="'provider' is missing"):
        load_config(write("llm: {openai: {model: x}}"))
    with pytest.raises(ConfigError, match="the block 'openai'.*is missing"):
        load_config(write("llm: {provider: openai}"))


def test_files_are_merged_and_agents_are_named(write):
    base = write("agents:\n  a: {model: local, instructions: one}\n  b: {model: local}\n", "base.yaml")
    over = write("agents:\n  a: {instructions: two}\n", "over.yaml")
    config = load_config(base, over)
    assert (config.agent().name, config.agent().model, config.agent().instructions) == ("a", "local", "two")
    assert config.agent("b").name == "b"
    with pytest.raises(ConfigError, match="did you mean 'b'|available: a, b"):
        config.agent("bb")


def test_what_is_said_beside_the_file_goes_over_it(write):
    config = load_config(write("agents:\n  a: {model: scripted/none.json, instructions: one}\n"))
    with pytest.raises(ConfigError):
        Agent(config)
    agent = Agent(load_config(write("agents:\n  a: {instructions: one}\n")), instructions="mine", name="me", journal="memory")
    assert (agent.name, agent.recipe.instructions) == ("me", "mine")


def test_the_schema_accepts_what_we_accept():
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema())
    import yaml

    assert Draft202012Validator(schema()).is_valid(yaml.safe_load(TEMPLATE))
    assert not Draft202012Validator(schema()).is_valid({"agents": {"a": {"modle": "x"}}})


@pytest.mark.slow
def test_from_the_command_line(terminal):  # noqa: F811
    assert terminal("init").returncode == 0
    assert terminal("init").returncode == 1, "nothing is written over"
    checked = terminal("config", "check")
    assert (checked.returncode, "no errors" in checked.stderr) == (0, True), checked.stderr
    assert json.loads(terminal("config", "schema").stdout)["title"] == "kaname.yaml"
    model = terminal.script({"calls": [{"name": "add", "args": {"a": 1, "b": 2}}]}, "three")
    (terminal.folder / "kaname.yaml").write_text(
        f"agents:\n  one:\n    model: {model}\n    tools: [mytools.py]\n  two: {{model: {terminal.script('second')}}}\n"
    )
    assert terminal("run", "-q", "1 + 2?").stdout == "three\n"
    assert terminal("run", "-q", "-a", "two", "hi").stdout == "second\n"
    assert "add(a, b): Add." in terminal("tools").stdout
    (terminal.folder / "kaname.yaml").write_text("agents: {a: {modle: x}}\n")
    wrong = terminal("run", "hi")
    assert (wrong.returncode, "did you mean 'model'" in wrong.stderr) == (2, True)
    assert terminal("config", "check", "nowhere.yaml").returncode == 2


def test_yaml_is_loaded_when_a_file_is():
    code = "import sys; from kaname import Agent, Config; assert 'yaml' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_schema_for_editors_is_the_one_that_is_checked_against():
    from pathlib import Path

    shipped = Path(__file__).parents[2] / "docs" / "kaname.schema.json"
    assert json.loads(shipped.read_text("utf-8")) == schema(), "kaname config schema > docs/kaname.schema.json"


@pytest.mark.parametrize("key", ["window", "longest_match", "check_seconds"])
def test_a_number_from_the_environment_may_stand_in_quotes(write, monkeypatch, key):
    monkeypatch.setenv("N", "1000")
    path = write(f"agents: {{a: {{model: scripted/x, guardrails: {{{key}: '${{N}}'}}}}}}")
    assert load_config(path).agent().value["guardrails"][key] == 1000


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda agent: agent.run(["a", {"role": "user"}]), "the input of a run must be a string"),
        (
            lambda agent: agent.run([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
            "the role 'user', not",
        ),
        (
            lambda agent: agent.run([{"role": "tool", "tool_call_id": "x"}, {"role": "user", "content": "b"}]),
            "must follow directly after the call",
        ),
        (lambda agent: agent.run([]), "the input of a run must be"),
        (lambda agent: agent.run(3), "the input of a run must be"),
        (lambda agent: agent.resume("r", "yes"), "answers must be a mapping"),
        (lambda agent: agent.resume(3), "run_id must be a"),
        (lambda agent: agent.fork("r", at="3"), "number of a fact"),
        (lambda agent: agent.fork("r", results=["x"]), "results must be a mapping"),
        (lambda agent: Agent("scripted/x", policies=Approve("x")), r"write policies=\[…\]"),
        (lambda agent: Agent("scripted/x", sinks=print), r"write sinks=\[…\]"),
        (lambda agent: Agent(agent.recipe.model, instructions=3), "instructions must be a string"),
        (lambda agent: Agent(agent.recipe.model, settings="warm"), "settings must be a mapping"),
        (lambda agent: Agent(agent.recipe.model, [{"name": "f", "paramters": {}}]), "did you mean 'parameters'"),
    ],
)
def test_wrong_types_are_told_at_once(wrong, told):
    with pytest.raises(ConfigError, match=told):
        wrong(Agent(ScriptedModel(["hi"]), journal="memory"))


def test_agents_and_runs_say_what_they_are():
    agent = Agent(ScriptedModel(["hi"]), [{"name": "look"}], name="guide", journal="memory")
    assert repr(agent) == "<Agent 'guide': scripted, tools: look>"
    assert repr(agent.run("hi", run_id="r")) == "<Run r: not started>"


async def test_tool_search_and_long_results_from_a_file(write):
    long = "\\n".join(["line"] * 1_000)
    (write("").parent / "long_tools.py").write_text(f'def fetch() -> str:\n    "Fetch."\n    return "{long}"\n')
    script = [reply(calls=[("use_tool", {"name": "fetch", "args": {}})]), reply("done")]
    async with WireServer(script) as server:
        path = write(
            f"""
            models:
              openai: {{api_key: k, base_url: "{server.url}"}}
            agents:
              helper:
                model: openai/any
                tools: ["some_tools:double", "long_tools:fetch"]
                tool_search: {{above: 1, always: [double]}}
                results: {{shown: 600, forget_after: 5000, keep: 2}}
            journal: memory
            """
        )
        async with Agent(load_config(path)) as agent:
            assert (await agent.run("Fetch it")).output == "done"
    names = [one["function"]["name"] for one in server.requests[0]["tools"]]
    assert names == ["double", "read_result", "find_tools", "use_tool"]
    assert "of 1,000 are not shown here" in server.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("results: {shown: 10}", "500"),
        ("results: {forget: 10}", "forget_after"),
        ("tool_search: {above: -1}", "0"),
        ("tool_search: {allways: [double]}", "always"),
    ],
)
def test_mistakes_in_tool_search_and_long_results_are_told_with_their_line(write, line, told):
    with pytest.raises(ConfigError, match=rf"kaname.yaml:5.*{told}"):
        load_config(write(f"journal: memory\nagents:\n  helper:\n    instructions: Help.\n    {line}\n")).check()


async def test_approval_of_a_file_needs_another_person_and_shows_things_to_do(write):
    (
        path := write(
            """
        agents:
          clerk:
            model: scripted/s.json
            tools: ["some_tools:double"]
            approve: [double]
            approval: {by: other, expires: 1h}
            todo: true
        journal: memory
        """
        )
    ).with_name("s.json").write_text('[{"calls": [{"name": "double", "args": {"n": 21}}]}, "fin"]')
    agent = Agent(load_config(path))
    waiting = await agent.run("go", user_id="ann")
    yes = dict.fromkeys(waiting.questions, "yes")
    with pytest.raises(InvalidState):
        await agent.resume(waiting.run_id, yes, by="ann")
    assert (await agent.resume(waiting.run_id, yes, by="mia")).output == "fin"
    assert [part.name for part in agent.recipe.tools.values() if part.name == "todo"] == ["todo"]


def test_approval_without_a_tool_is_a_mistake(write):
    path = write("agents: {clerk: {model: local, approval: {expires: 1h}}}")
    with pytest.raises(ConfigError, match="approval says how the tools under approve are asked about"):
        Agent(load_config(path))
