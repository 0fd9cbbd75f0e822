"""Servers from the npm registry, where Node is present: `server-everything` and `server-filesystem`."""

import shutil
import subprocess

import pytest

from kaname import Agent, Flow, ScriptedModel, call

PACKAGES = ["@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem"]


@pytest.fixture(scope="module", autouse=True)
def npm():
    if shutil.which("npx") is None:
        pytest.skip("Node is not here: the servers from npm were NOT tried")
    found = subprocess.run(["npm", "view", PACKAGES[0], "version"], capture_output=True, text=True, timeout=180, check=False)
    if found.returncode:
        pytest.skip(f"the npm registry cannot be reached: the servers from npm were NOT tried ({found.stderr[:200]})")


async def used(script, server, **more):
    agent = Agent(
        ScriptedModel(script),
        mcp_servers={"npm": {**server, "start_timeout": 120}},
        journal="memory",
        policies=[Flow("off")],
        **more,
    )
    async with agent:
        assert not agent.servers.problems
        result = await agent.run("go")
        return agent, list(result.state.results.values())


@pytest.mark.nightly
async def test_everything():
    async def elicit(server, question, schema):
        return None

    script = [[call("echo", message="こんにちは"), call("get-sum", a=2, b=3), call("get-tiny-image")], "ok"]
    agent, (echo, total, image) = await used(script, {"command": "npx", "args": ["-y", PACKAGES[0]]}, elicit=elicit)
    assert "こんにちは" in str(echo.output)
    assert "5" in str(total.output)
    assert image.media[0].mime == "image/png"
    assert len(agent.available_tools) >= 10


@pytest.mark.nightly
async def test_the_filesystem(tmp_path):
    (tmp_path / "note.txt").write_text("要")
    script = [[call("read_text_file", path=str(tmp_path / "note.txt")), call("read_text_file", path="/etc/hostname")], "ok"]
    agent, results = await used(script, {"command": "npx", "args": ["-y", PACKAGES[1], str(tmp_path)]})
    (read,) = [result for result in results if not result.is_error]
    (refused,) = [result for result in results if result.is_error]
    assert "要" in str(read.output)
    assert "denied" in refused.error
    assert agent.tools["read_text_file"].effect == "pure"
    assert agent.tools["write_file"].effect != "pure"
