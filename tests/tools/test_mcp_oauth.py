"""Sign in at an MCP server: FastMCP's own OAuth server over HTTP, and a browser that follows redirects."""

import asyncio
import json
import stat
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx2
import pytest
import uvicorn

from kaname import Agent, ScriptedModel, call
from tests.parts import Later

fastmcp = Later("fastmcp")
in_memory = Later("fastmcp.server.auth.providers.in_memory")
settings = Later("mcp.server.auth.settings")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "kaname" / "mcp-tokens"


@asynccontextmanager
async def server(lasts=3600):
    """Its address, and what the authorization server knows. `lasts`: seconds of a token."""
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    known = in_memory.InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{port}", client_registration_options=settings.ClientRegistrationOptions(enabled=True)
    )
    known.DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS = lasts
    shop = fastmcp.FastMCP("shop", auth=known)
    shop.tool(lambda: "fine", name="t")
    served = uvicorn.Server(uvicorn.Config(shop.http_app(), host="127.0.0.1", port=port, log_level="error"))
    task = asyncio.create_task(served.serve())
    while not served.started:
        await asyncio.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}/mcp", known
    finally:
        served.should_exit = served.force_exit = True
        await task


def agent(url, elicit=None, start_timeout=60):
    return Agent(
        ScriptedModel([call("t"), "ok"]),
        mcp_servers={"shop": {"url": url, "auth": "oauth", "start_timeout": start_timeout}},
        journal="memory",
        elicit=elicit,
    )


async def outcome(made):
    async with made:
        if made.servers.problems:
            return made.servers.problems["shop"]
        (used,) = (await made.run("go")).state.results.values()
        return used.error or used.output


class Browser:
    """A person's browser: on the same machine it comes back by itself, on another its last address is pasted."""

    def __init__(self, here=True, slow=0.0):
        self.here, self.slow, self.asked = here, slow, []

    async def __call__(self, name, question, schema):
        self.asked.append((name, question))
        await asyncio.sleep(self.slow)
        async with httpx2.AsyncClient(follow_redirects=self.here) as client:
            answer = await client.get(schema["url"])
        if self.here:
            assert "You are signed in" in answer.text
            return {}
        return {"url": answer.headers["location"]}


@pytest.mark.parametrize("here", [True, False])
async def test_sign_in_once_and_the_tokens_are_kept(here, state):
    async with server() as (url, _):
        browser = Browser(here)
        assert await outcome(agent(url, browser)) == "fine"
        assert browser.asked == [("shop", "Sign in to use the tools of this server.")]
        (file,) = state.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert await outcome(agent(url)) == "fine"  # another program of the same user, with nobody to ask


async def test_sign_in_may_take_longer_than_a_start():
    async with server() as (url, _):
        assert await outcome(agent(url, Browser(slow=3), start_timeout=2)) == "fine"


async def test_sign_in_where_nobody_is_there_says_what_to_do():
    async with server() as (url, _):
        assert "needs you to sign in. Run `" in await outcome(agent(url))


async def test_sign_in_declined_or_failed():
    async def declines(*_):
        return None

    async def fails(*_):
        raise RuntimeError("no browser")

    async with server() as (url, _):
        assert "the sign-in was refused: declined" in await outcome(agent(url, declines))
        assert "the sign-in was refused: no browser" in await outcome(agent(url, fails))


async def test_token_that_ended_is_renewed_without_a_person(state):
    async with server() as (url, known):
        assert await outcome(agent(url, Browser())) == "fine"
        (file,) = state.iterdir()
        held = json.loads(file.read_text())
        before = held["tokens"]["access_token"]
        known.access_tokens.clear()
        file.write_text(json.dumps({**held, "expires_at": time.time() - 1}))
        assert await outcome(agent(url)) == "fine"
        assert json.loads(file.read_text())["tokens"]["access_token"] != before


async def test_token_never_reaches_log_or_journal(state, caplog):
    caplog.set_level("DEBUG", "kaname")
    async with server() as (url, _):
        made = agent(url, Browser())
        async with made:
            run = await made.run("go")
            facts = [str(event) async for event in made.journal.read(run.run_id)]
        (file,) = state.iterdir()
        token = json.loads(file.read_text())["tokens"]["access_token"]
    assert token not in caplog.text
    assert token not in "".join(facts)


async def test_broken_token_file_means_signing_in_again(state):
    async with server() as (url, _):
        assert await outcome(agent(url, Browser())) == "fine"
        (file,) = state.iterdir()
        file.write_text("{")
        browser = Browser()
        assert await outcome(agent(url, browser)) == "fine"
        assert browser.asked


async def test_token_that_is_refused_is_renewed_before_anybody_is_asked(state):
    async with server() as (url, known):
        assert await outcome(agent(url, Browser())) == "fine"
        known.access_tokens.clear()  # taken back, but the refresh token is good
        assert await outcome(agent(url)) == "fine"


async def test_server_that_forgot_the_client_gets_another_registration(state):
    async with server() as (url, known):
        assert await outcome(agent(url, Browser())) == "fine"
        for held in (known.clients, known.access_tokens, known.refresh_tokens):
            held.clear()
        browser = Browser()
        assert await outcome(agent(url, browser)) == "fine"
        assert len(browser.asked) == 1


async def test_port_that_is_taken_is_told():
    async with server() as (url, _):
        made = agent(url, lambda *_: asyncio.sleep(0, {}))
        from kaname.tools.mcp.oauth import SignIn

        port = SignIn(made.servers.servers[0].entry, None, None).port
        async with AsyncExitStack() as stack:
            with suppress(OSError):  # another program has it already: it is taken all the same
                await stack.enter_async_context(await asyncio.start_server(lambda *_: None, "127.0.0.1", port))
            assert f"port {port}, on which" in await outcome(made)
