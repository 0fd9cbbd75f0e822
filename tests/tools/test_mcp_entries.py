"""Entries of MCP servers: config files of other clients, and what an entry may say."""

import json
import sys

import pytest

from kaname import Agent, ConfigError, ScriptedModel, call, load_config
from kaname.tools.mcp.config import entries, servers_by_name
from tests.tools.test_mcp_in_use import raw


def written(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


FILES = {
    "claude_desktop_config.json": {"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}}}},
    ".mcp.json": {
        "mcpServers": {"a": {"type": "stdio", "command": "npx", "args": ["-y", "${ARG:-x}"], "env": {"K": "${KEY}"}}}
    },
    ".cursor/mcp.json": {"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "${env:KEY}"}}}},
    ".vscode/mcp.json": """{
        // the servers of this project
        "inputs": [{"id": "k", "type": "promptString"}],
        "servers": {"a": {"type": "stdio", "command": "npx", "args": ["-y", "x",], "env": {"K": "v"}, "dev": {}}, /* all */},
    }""",
    "settings.json": {"mcp": {"servers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}}}}},
    "cline_mcp_settings.json": {
        "mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}, "alwaysAllow": ["t"], "disabled": False}}
    },
    "zed.json": {"context_servers": {"a": {"source": "custom", "command": "npx", "args": ["-y", "x"], "env": {"K": "v"}}}},
    "opencode.json": {
        "mcp": {"a": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"K": "v"}, "enabled": True}}
    },
    "config.toml": '[mcp_servers.a]\ncommand = "npx"\nargs = ["-y", "x"]\nenv = {K = "v"}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_file_of_another_client_names_the_same_server(name, tmp_path, monkeypatch):
    monkeypatch.setenv("KEY", "v")
    (one,) = entries(written(tmp_path, name, FILES[name]))
    assert (one.name, one.command, one.args, dict(one.env)) == ("a", "npx", ("-y", "x"), {"K": "v"})


REMOTE = {
    "windsurf.json": {"mcpServers": {"a": {"serverUrl": "https://h/mcp", "headers": {"A": "b"}}}},
    "gemini.json": {"mcpServers": {"a": {"httpUrl": "https://h/mcp", "headers": {"A": "b"}, "timeout": 5000, "trust": True}}},
    "cline.json": {
        "mcpServers": {"a": {"type": "streamableHttp", "url": "https://h/mcp", "headers": {"A": "b"}, "timeout": 5}}
    },
    "opencode.json": {"mcp": {"a": {"type": "remote", "url": "https://h/mcp", "headers": {"A": "b"}, "timeout": 5}}},
}


@pytest.mark.parametrize("name", REMOTE)
def test_file_of_another_client_names_the_same_address(name, tmp_path):
    (one,) = entries(written(tmp_path, name, REMOTE[name]))
    assert (one.url, dict(one.headers)) == ("https://h/mcp", {"A": "b"})
    assert one.timeout in (5, 60)


def test_restrictions_of_another_client_hold_and_its_approvals_do_not(tmp_path, caplog):
    held = {"a": {"command": "x", "includeTools": ["r", "w"], "excludeTools": ["w"], "autoApprove": ["r"], "sandboxed": 1}}
    (one,) = entries(written(tmp_path, "m.json", {"mcpServers": held}))
    assert (one.tools, one.exclude_tools) == (("r", "w"), ("w",))
    assert "'sandboxed' says nothing to kaname" in caplog.text
    assert "autoApprove" not in caplog.text
    assert entries(written(tmp_path, "o.json", {"mcp": {"a": {"command": "x", "enabled": False}}})) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not valid JSON or TOML"),
        ('{"theme": "dark"}', "has no servers"),
        (
            {"servers": {"a": {"command": "x", "args": ["${input:key}"]}}},
            r"\$\{input:key\} is a value that another client asks",
        ),
        ({"servers": {"a": {"command": "x", "args": ["${env:NOT_THERE_1}"]}}}, "NOT_THERE_1 is not set"),
    ],
)
def test_file_of_another_client_with_a_mistake(text, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        entries(written(tmp_path, "mcp.json", text))


def test_server_that_cannot_be_had_does_not_stand_in_the_way_of_others(tmp_path, caplog):
    held = {
        "a": {"command": "x"},
        "b": {"command": "y", "args": ["${NOT_THERE_2}"]},
        "c": {"command": "z", "args": ["${NOT_THERE_3}"], "disabled": True},
    }
    assert [one.name for one in entries(written(tmp_path, "m.json", {"mcpServers": held}))] == ["a"]
    assert "NOT_THERE_2 is not set" in caplog.text
    assert "NOT_THERE_3" not in caplog.text
    zed = {"context_servers": {"a": {"command": "x"}, "b": {"source": "extension", "settings": {}}}}
    assert [one.name for one in entries(written(tmp_path, "z.json", zed))] == ["a"]


def test_secrets_in_the_ways_of_other_clients(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_1", "s1")
    held = {
        "gemini": {"command": "x", "env": {"A": "$SECRET_1", "B": True}},
        "opencode": {"type": "local", "command": ["x"], "environment": {"A": "{env:SECRET_1}"}},
        "codex": {"url": "http://h", "bearer_token_env_var": "SECRET_1", "env_http_headers": {"X": "SECRET_1"}},
        "signed": {"httpUrl": "http://h", "oauth": {"enabled": True}},
    }
    gemini, opencode, codex, signed = entries(written(tmp_path, "m.json", {"mcpServers": held}))
    assert dict(gemini.env) == {"A": "s1", "B": "true"}
    assert dict(opencode.env) == {"A": "s1"}
    assert dict(codex.headers) == {"Authorization": "Bearer s1", "X": "s1"}
    assert signed.auth == {}


@pytest.mark.parametrize("auth", ["oauth", "{grant: client_credentials, client_id: me, client_secret: s}"])
def test_kaname_yaml_takes_a_sign_in(tmp_path, auth):
    servers = f"mcp_servers:\n  s: {{url: 'http://h', auth: {auth}}}\n"
    written(tmp_path, "kaname.yaml", f"agents:\n  a: {{model: local}}\n{servers}")
    assert load_config(tmp_path / "kaname.yaml").agent().mcp_servers["s"]["auth"]


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"mcp\.json cannot be read"):
        Agent(ScriptedModel([]), mcp_servers=str(tmp_path / "mcp.json"))


async def test_agent_takes_the_file_and_so_does_kaname_yaml(tmp_path):
    server = {"mcpServers": {"m": raw("calm", autoApprove=["t"])}}
    path = written(tmp_path, ".mcp.json", server)
    written(tmp_path, "kaname.yaml", "agents:\n  a: {model: local}\nmcp_servers: .mcp.json\n")
    config = load_config(tmp_path / "kaname.yaml")
    for servers in (path, str(path), server, config.agent().mcp_servers):
        assert servers_by_name(servers)["m"]["command"] == sys.executable
    async with Agent(ScriptedModel([call("t"), "ok"]), mcp_servers=path, journal="memory") as agent:
        result = await agent.run("go")
    assert [one.output for one in result.state.results.values()] == ["ok {}"]


def test_kaname_yaml_says_where_a_file_is_wrong(tmp_path):
    written(tmp_path, "kaname.yaml", "agents:\n  a:\n    model: local\n    mcp_servers: nothing.json\n")
    with pytest.raises(ConfigError, match=r"kaname\.yaml:4.*nothing\.json cannot be read"):
        load_config(tmp_path / "kaname.yaml")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"url": "http://h", "auth": "basic"}, "must be 'oauth' or a mapping"),
        ({"command": "x", "auth": "oauth"}, "works only with url"),
        ({"url": "http://h", "auth": {"client": "x"}}, "unknown key 'client'"),
        ({"url": "http://h", "auth": {"grant": "client_credentials"}}, "client_credentials with client_id and client_secret"),
        ({"url": "http://h", "protocol": "2025"}, "protocol must be auto or legacy"),
        ({"url": "http://h", "tools": "t"}, "tools must be a list of strings"),
        ({"url": "http://h", "sampling": "yes"}, "sampling must be true or false"),
    ],
)
def test_entry_with_a_mistake(given, told):
    with pytest.raises(ConfigError, match=told):
        entries({"s": given})
