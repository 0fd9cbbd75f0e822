"""The conformance suite of the MCP project (npm, on Node 22) against an agent: every client scenario of both protocols.

An agent is started for each scenario and calls every tool that the suite's server has. The agents live in this process: what the
suite starts only knocks (`tests/mcp_servers/knock.py`).
"""

import asyncio
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from kaname import Agent
from kaname.core.messages import Message, ModelReply, Text, ToolCall

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.filterwarnings("ignore:Omitting `issuer`")]

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = f"node-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}@22.23.3"
METADATA = "https://conformance-test.local/client-metadata.json"
OF_A_TYPE = {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}
KNOWN = {  # none of them is required by a revision of the protocol: the suite calls them extensions, and does not score them
    "auth/client-credentials-jwt": "a client that signs with a key of its own; a secret is what we have",
    "auth/enterprise-managed-authorization": "tokens by way of a company's own sign-in",
    "auth/dpop": "tokens bound to a key",
    "auth/dpop-nonce": "tokens bound to a key",
    "auth/wif-jwt-bearer": "tokens of a workload's platform",
}
SCORED = {"2025-11-25": 18, "2026-07-28": 32}


@pytest.fixture(scope="module")
def suite():
    """Installed once a machine. Node 22 comes from the same registry."""
    if shutil.which("npm") is None:
        pytest.skip("Node is not here: the MCP conformance suite was NOT run")
    folder = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kaname-tests" / f"{SUITE}-{NODE}".replace("/", "_")
    )
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        done = subprocess.run(
            ["npm", "install", SUITE, NODE], cwd=folder, capture_output=True, text=True, timeout=240, check=False
        )
        if done.returncode:
            pytest.skip(f"npm cannot install it: the MCP conformance suite was NOT run ({done.stderr[-300:]})")
        (folder / "done").touch()
    modules = folder / "node_modules"
    return [str(modules / NODE.split("@")[0] / "bin" / "node"), str(modules / ".bin" / "conformance")]


class EveryTool:
    """A model that calls each tool it is told of, as the scenario wants it, and then says that it is done."""

    name = "every tool"

    def __init__(self, wanted):
        self.wanted = wanted

    async def reply(self, request, emit):
        if any(isinstance(part, ToolCall) for message in request.messages for part in message.parts):
            return ModelReply(Message("assistant", (Text("done"),)))
        every = [{"name": spec.name, "arguments": arguments(spec.parameters, request.tools)} for spec in request.tools]
        calls = [ToolCall(f"c{n}", one["name"], one["arguments"]) for n, one in enumerate(self.wanted or every)]
        return ModelReply(Message("assistant", tuple(calls) or (Text("nothing to call"),)))


def arguments(schema, tools=()):
    """Something of each type; who asks for a schema gets the first tool's, as it came."""
    asked = {name: tools[0].parameters for name in schema.get("properties", {}) if tools and name == "schema"}
    return {name: value(held) for name, held in schema.get("properties", {}).items()} | asked


def value(schema):
    if schema.get("properties"):
        return arguments(schema)
    return schema.get("default", OF_A_TYPE.get(schema.get("type"), "text"))


async def elicit(server, question, schema):
    """Forms are sent with what they fill in themselves; a page is opened, and the address it leads to handed back."""
    if "callback" not in schema:
        return {}
    async with httpx2.AsyncClient(timeout=60) as browser:  # all scenarios open their pages at once
        answer = await browser.get(schema["url"], follow_redirects=False)
    return {"url": answer.headers["location"]}


def entry(url, scenario, context):
    if not scenario.startswith("auth/"):
        return {"url": url, "sampling": True, "roots": ["."]}
    auth = {name: context[name] for name in ("client_id", "client_secret", "issuer") if name in context}
    if scenario == "auth/client-credentials-basic":
        auth["grant"] = "client_credentials"
    return {"url": url, "auth": auth or {"client_metadata_url": METADATA}}


async def play(url, scenario, context):
    """What went wrong, or nothing."""
    model, servers = EveryTool(context.get("toolCalls")), {"suite": entry(url, scenario, context)}
    async with Agent(model, mcp_servers=servers, journal="memory", elicit=elicit) as agent:
        if agent.servers.problems:
            return agent.servers.problems["suite"]
        result = await agent.run("Call every tool.")
        return "" if result.completed else str(result.stop)


@asynccontextmanager
async def door(path):
    async def opened(reader, writer):
        try:
            writer.write((await play(**json.loads(await reader.readline()))).replace("\n", " ").encode() + b"\n")
        finally:
            writer.close()

    async with await asyncio.start_unix_server(opened, path):
        yield


@pytest.mark.nightly
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_conformance(revision, suite, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    knock = f"{sys.executable} -S -E {Path(__file__).parent.parent / 'mcp_servers' / 'knock.py'} {tmp_path / 'door'}"
    command = [
        *suite,
        "client",
        "--command",
        knock,
        "--requirements",
        revision,
        "--timeout",
        "60000",
        "-o",
        str(tmp_path / "out"),
    ]
    async with door(tmp_path / "door"):
        running = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = (await running.communicate())[0].decode()
    summary = said.partition("=== SUITE SUMMARY ===")[2].partition("Total:")[0]
    outcome = dict(re.findall(r"^(?:✓|✗) ([\w/.-]+): \d+ passed, (\d+) failed", summary, re.M))
    assert len(outcome) >= SCORED[revision], said[-3000:]
    failing = {name for name, failed in outcome.items() if failed != "0"}
    assert sorted(failing ^ set(KNOWN)) == [], said
