"""`X-Forwarded-For` counts only from proxies that are named: in the audit log, in the access log, for guessing."""

from __future__ import annotations

import httpx
import pytest

import kaname.serve
from kaname import Agent, MemoryJournal, ScriptedModel
from kaname.core.errors import ConfigError
from kaname.serve.access.guessing import WRONG_AT_ONCE
from kaname.serve.users import Users
from kaname.stores.audit.log import AuditLog
from tests.serve.serving import client, serving

TOKEN = "a-token-of-the-operator"


def _app(folder, *proxies: str):
    return kaname.serve.app(
        Agent(ScriptedModel(["hi"]), journal=MemoryJournal()),
        users=Users(folder / "users.json", token=TOKEN),
        proxies=proxies,
        audit=folder / "audit.log",
        mcp=False,
        a2a=False,
    )


async def _address(app, folder, connection: str, forwarded: str | None) -> str:
    """Send a wrong token and return the address that the audit log has for it."""
    headers = [("authorization", "Bearer wrong"), *([("x-forwarded-for", forwarded)] if forwarded is not None else [])]
    transport = httpx.ASGITransport(app, client=(connection, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        assert (await http.get("/api/runs")).status_code == 401
    return [*AuditLog(folder / "audit.log").entries(kind="sign_in_failed")][-1].detail["address"]


@pytest.mark.parametrize(
    ("connection", "forwarded", "address"),
    [
        ("192.0.2.7", "203.0.113.5", "192.0.2.7"),  # not a proxy
        ("127.0.0.1", "203.0.113.5", "127.0.0.1"),  # this machine is no proxy by itself
        ("10.0.0.5", "203.0.113.5", "203.0.113.5"),
        ("10.0.0.5", "198.51.100.1, 203.0.113.5", "203.0.113.5"),  # the first was written by the client
        ("10.0.0.5", "198.51.100.1, 203.0.113.5, 10.1.2.3", "203.0.113.5"),  # two proxies
        ("10.0.0.5", "203.0.113.5:4711", "203.0.113.5"),
        ("::ffff:10.0.0.5", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.5", "203.0.113.5, unknown", "10.0.0.5"),
        ("10.0.0.5", "", "10.0.0.5"),
        ("10.0.0.5", None, "10.0.0.5"),
        ("10.0.0.5", "10.1.2.3", "10.1.2.3"),  # a client in the network of the proxies
    ],
)
async def test_address_of_the_audit_log_is_believed_from_named_proxies_only(tmp_path, connection, forwarded, address):
    assert await _address(_app(tmp_path, "10.0.0.0/8"), tmp_path, connection, forwarded) == address


def test_proxy_that_is_not_an_address_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="10.0.0.0/8, not 'proxy.example'"):
        _app(tmp_path, "proxy.example")


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_client_that_forges_its_address_is_slowed_like_any_other(tmp_path, named):
    """On this machine, uvicorn by itself would believe the header."""
    with serving(tmp_path, *(["--proxy", "127.0.0.1"] if named else []), KANAME_TOKEN=TOKEN) as served, client(served) as http:

        def guess(number: int, **more: str) -> int:
            headers = {"authorization": f"Bearer guess-{number}", "x-forwarded-for": f"203.0.113.{number}", **more}
            return http.get("/api/runs", headers=headers).status_code

        for number in range(WRONG_AT_ONCE):
            assert guess(number) == 401
        again = guess(100)
        assert again == (401 if named else 429), "clients of a named proxy are told apart, others are not"
        if named:
            for number in range(WRONG_AT_ONCE):
                guess(number, **{"x-forwarded-for": f"198.51.100.{number}, 203.0.113.200"})
            assert guess(1, **{"x-forwarded-for": "198.51.100.77, 203.0.113.200"}) == 429, (
                "what stands before counts for nothing"
            )
