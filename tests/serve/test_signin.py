"""Signing in to the page: with a token or through an OpenID provider; a cookie that only our own page can use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

import kaname.serve
from kaname import Agent, AuditLog, ConfigError, Permit, SqliteJournal, load_config, tool
from kaname.serve.access.cookies import SignIns
from kaname.serve.users import Caller, Users
from kaname.testing import ScriptedModel, call
from tests.serve.provider import CLIENT, SECRET
from tests.serve.serving import ROOT

HOST = "http://localhost"


@tool(effect="pure")
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


class Desk:
    def __init__(self, folder: Path, **options) -> None:
        folder.mkdir(exist_ok=True)
        self.users = Users(folder / "users.json")
        self.token = self.users.add("ann", ["talk"])
        self.agent = Agent(ScriptedModel(["hi"]), journal=SqliteJournal(folder / "journal.db"), name="desk")
        self.app = kaname.serve.app(self.agent, users=self.users, mcp=False, a2a=False, **options)
        self.log = AuditLog(folder / "audit.log")

    def browser(self, url: str = HOST, **headers: str) -> httpx.AsyncClient:
        own = {"origin": url, "sec-fetch-site": "same-origin", **headers}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app, client=("192.0.2.1", 1)), base_url=url, headers=own)


async def test_sign_in_gives_a_cookie_that_no_script_reads_and_sign_out_ends_it(tmp_path):
    desk = Desk(tmp_path)
    async with desk.browser() as browser:
        assert (await browser.get("/api/signin")).json() == {"token": True, "oidc": None}
        assert (await browser.get("/api/me")).status_code == 401
        answer = await browser.post("/api/signin", json={"token": desk.token})
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {*cookie.split("; ")}
        assert "Max-Age" not in cookie, "it ends with the browser"
        me = (await browser.get("/api/me")).json()
        assert (me["name"], me["signed_in"]) == ("ann", True)
        value = cookie.partition(";")[0].partition("=")[2]
        odd = {"cookie": f'theirs={{"a": [1; ]}}; =; x; kaname-0={value}; ' + answer.headers["set-cookie"].partition(";")[0]}
        assert (await browser.get("/api/me", headers=odd)).status_code == 200, "cookies of other programs do not matter"
        assert value not in (tmp_path / "signed_in.json").read_text(), "only a hash is stored"
        assert (await browser.post("/api/signout")).status_code == 204
        stolen = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
        assert (await browser.get("/api/me", headers=stolen)).status_code == 401, (
            "a cookie that was copied is worth nothing now"
        )
    assert [(one.kind, one.actor) for one in desk.log.entries() if one.kind.startswith("sign")] == [
        ("sign_in", "ann"),
        ("sign_out", "ann"),
    ]


async def test_sign_in_over_https_is_secure_and_can_be_kept(tmp_path):
    desk = Desk(tmp_path)
    for url, headers in (("https://localhost", {}), (HOST, {"origin": "https://localhost"})):  # the second: behind a proxy
        async with desk.browser(url, **headers) as browser:
            answer = await browser.post("/api/signin", json={"token": desk.token, "keep": True})
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith("__Host-kaname-")
            assert {"Secure", "Max-Age=2592000"} <= {*cookie.split("; ")}


async def test_sign_in_ends_with_its_time_and_with_its_token(tmp_path, monkeypatch):
    desk = Desk(tmp_path)
    async with desk.browser() as browser:
        await browser.post("/api/signin", json={"token": desk.token})
        now = time.time()
        monkeypatch.setattr("kaname.serve.access.cookies.time.time", lambda: now + 12 * 3600 + 1)
        assert (await browser.get("/api/me")).status_code == 401
        monkeypatch.undo()
        assert (await browser.get("/api/me")).status_code == 200
        desk.users.add("ann", ["read"])
        assert (await browser.get("/api/me")).status_code == 401, "the token was replaced"


async def test_cookie_is_not_taken_from_another_site_port_or_subdomain(tmp_path):
    desk = Desk(tmp_path, origins=["https://friend.example"])
    async with desk.browser() as browser:
        await browser.post("/api/signin", json={"token": desk.token})
        run = {"input": "hi", "mode": "detach"}
        foreign = (
            {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
            {"origin": "http://localhost:9999", "sec-fetch-site": "same-site"},
            {"origin": "https://friend.example", "sec-fetch-site": "cross-site"},  # it may use tokens, and no cookies
            {"origin": "", "sec-fetch-site": "cross-site"},
            {"origin": "", "sec-fetch-site": ""},  # nobody says where it comes from
        )
        for headers in foreign:
            answer = await browser.post("/api/runs", json=run, headers=headers)
            assert answer.status_code in (401, 403), headers
        assert (await browser.get("/api/me", headers={"origin": "", "sec-fetch-site": "cross-site"})).status_code == 401
        assert (await browser.get("/api/me", headers={"origin": "https://friend.example"})).status_code == 401
        form = await browser.post(
            "/api/runs", content="input=hi", headers={"content-type": "application/x-www-form-urlencoded"}
        )
        assert form.status_code == 415
        assert (await browser.post("/api/runs", json=run)).status_code == 202, "our own page can"
        signing = await browser.post("/api/signin", json={"token": desk.token}, headers=foreign[0])
        assert signing.status_code == 403, "nobody signs another in"


async def test_wrong_tokens_at_the_form_are_slowed_and_recorded(tmp_path):
    desk = Desk(tmp_path)
    async with desk.browser() as browser:
        for _ in range(10):
            assert (await browser.post("/api/signin", json={"token": "a guess of somebody"})).status_code == 401
        again = await browser.post("/api/signin", json={"token": "a guess of somebody"})
        assert (again.status_code, int(again.headers["retry-after"]) >= 1) == (429, True), "it is not checked"
        assert (await browser.post("/api/signin", json={"token": desk.token})).status_code == 200, "a token of ours is"
    assert [one.detail["address"] for one in desk.log.entries(kind="sign_in_failed")] == ["192.0.2.1"]


async def test_token_that_the_operator_chose_is_let_in_where_it_was_right_before(tmp_path):
    users = Users(tmp_path / "users.json", token="correct horse battery")
    app = kaname.serve.app(
        Agent(ScriptedModel(["hi"]), journal=SqliteJournal(tmp_path / "j.db")), users=users, mcp=False, a2a=False
    )

    async def ask(token: str, address: str) -> int:
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers={"authorization": f"Bearer {token}"}) as http:
            return (await http.get("/api/me")).status_code

    assert await ask("correct horse battery", "192.0.2.7") == 200
    for address in ("192.0.2.7", "192.0.2.8"):
        for number in range(10):
            assert await ask(f"guess {number}", address) == 401
    assert await ask("correct horse battery", "192.0.2.7") == 200, "the honest user is not locked out"
    assert await ask("correct horse battery", "192.0.2.8") == 429, "a guess is not even checked, right or wrong"


def test_sign_ins_of_several_processes_are_all_kept(tmp_path):
    users = Users(tmp_path / "users.json")
    stores = [SignIns(tmp_path / "signed_in.json", users) for _ in range(4)]  # as workers have them

    def sign_in(number: int) -> str:
        return stores[number % 4].begin(f"user-{number}", "oidc", roles=("talk",))[0]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(sign_in, range(40)))
    other = SignIns(tmp_path / "signed_in.json", users)  # after a restart
    assert [other.caller(one) for one in made] == [Caller(f"user-{number}", frozenset(["talk"])) for number in range(40)]
    assert other.forget("user-3") == 1
    assert other.caller(made[3]) is None
    many = [other.begin("ann", "oidc", roles=("talk",))[0] for _ in range(60)]
    assert [one is not None for one in map(other.caller, many)].count(True) == 50, "one user cannot fill the file"
    (tmp_path / "signed_in.json").write_text("{")
    assert other.caller(made[0]) is None, "what cannot be read lets nobody in"


# Roles of the server and permissions


def payer(folder: Path, **options) -> Agent:
    permit = Permit([{"role": ["admin", "clerk"], "tool": "pay"}], **options)
    replies = [reply for _ in range(9) for reply in (call("pay", yen=5), "done")]
    return Agent(ScriptedModel(replies), [pay], journal=SqliteJournal(folder / "journal.db"), policies=[permit], name="desk")


async def paid(http: httpx.AsyncClient, agent: Agent) -> bool:
    run = (await http.post("/api/runs", json={"input": "pay"})).json()
    return any("paid 5" in str(step.observation) for step in (await agent.result(run["run_id"])).steps)


async def test_roles_of_the_server_reach_the_permissions_and_a_change_takes_effect_at_once(tmp_path):
    users = Users(tmp_path / "users.json")
    tokens = {name: users.add(name, [role]) for name, role in (("ann", "talk"), ("boss", "admin"))}
    agent = payer(tmp_path, roles={"ann": ["intern"]})
    app = kaname.serve.app(agent, users=users, mcp=False, a2a=False)
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as http:
        http.headers["authorization"] = f"Bearer {tokens['boss']}"
        assert await paid(http, agent)
        http.headers["authorization"] = f"Bearer {tokens['ann']}"
        assert not await paid(http, agent)
        http.headers["authorization"] = f"Bearer {users.add('ann', ['admin'])}"
        assert await paid(http, agent)


async def test_roles_that_the_program_says_reach_the_permissions(tmp_path):
    agent = payer(tmp_path)
    app = kaname.serve.app(agent, who=lambda scope: Caller("eve", frozenset(["talk", "clerk"])), mcp=False, a2a=False)
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as http:
        assert await paid(http, agent)


async def test_roles_that_nobody_knows_are_refused(tmp_path):
    permit = Permit([{"tool": "*"}, {"effect": "deny", "role": "intern", "tool": "pay"}])
    assert permit.check_permissions("ken", "use", "pay"), "without a server, a user without roles has none"
    permit.about.roles.known = lambda user: None
    assert not permit.check_permissions("ken", "use", "pay"), "the server does not know whether ken is an intern"


# OpenID


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.serve.provider"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def with_oidc(folder: Path, issuer: str, **more: object) -> Path:
    oidc = {"issuer": issuer, "client_id": CLIENT, "client_secret_env": "DESK_SECRET", "user": "email"}
    oidc |= {"groups": {"finance": ["talk", "clerk"], "chiefs": "admin"}, **more}
    file = folder / "kaname.yaml"
    (folder / "models.py").write_text('from kaname import ScriptedModel\ndesk = ScriptedModel(["hi"] * 99)\n')
    file.write_text(json.dumps({"agents": {"desk": {"model": "models.py:desk"}}, "serve": {"oidc": oidc}}))
    return file


class Company:
    """A server in this process whose users sign in at the provider."""

    def __init__(self, folder: Path, issuer: str, monkeypatch, **more: object) -> None:
        monkeypatch.setenv("DESK_SECRET", SECRET)
        monkeypatch.setenv("KANAME_TEST_FOLDER", str(folder))
        self.issuer = issuer
        config = load_config(with_oidc(folder, issuer, **more))
        self.app = kaname.serve.app(config, mcp=False, a2a=False)
        self.log = AuditLog(folder / ".kaname" / "audit.log")

    def browser(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app, client=("127.0.0.1", 1)), base_url=HOST)

    async def sign_in(self, browser: httpx.AsyncClient, **wanted: object) -> httpx.Response:
        """Go through the provider as a browser does, over HTTP."""
        async with httpx.AsyncClient() as web:
            await web.post(f"{self.issuer}/control", json=wanted)
            started = await browser.get("/signin/oidc")
            assert started.status_code == 302, started.text
            back = await web.get(started.headers["location"])
        place = urlsplit(back.headers["location"])
        return await browser.get(f"{place.path}?{place.query}")


async def test_oidc_sign_in_maps_groups_to_roles(tmp_path, provider, monkeypatch):
    company = Company(tmp_path, provider, monkeypatch)
    assert not company.app.open, "everybody signs in, although there are no tokens"
    async with company.browser() as browser:
        assert (await browser.get("/api/me")).status_code == 401
        assert (await browser.get("/api/signin")).json() == {"token": False, "oidc": urlsplit(provider).netloc}
        done = await company.sign_in(browser)
        assert (done.status_code, done.headers["location"]) == (302, "/")
        me = (await browser.get("/api/me")).json()
        assert (me["name"], me["roles"]) == ("rin@example.com", ["read", "talk"])
        assert (await company.sign_in(browser, claims={"groups": ["chiefs"]})).status_code == 302
        assert "admin" in (await browser.get("/api/me")).json()["roles"]
    signed = [(one.actor, one.detail["how"], one.detail["roles"]) for one in company.log.entries(kind="sign_in")]
    assert signed == [("rin@example.com", "oidc", ["clerk", "talk"]), ("rin@example.com", "oidc", ["admin"])]


WRONG = {
    "another issuer": {"claims": {"iss": "https://evil.example"}},
    "another audience": {"claims": {"aud": "another-client"}},
    "several audiences, for another": {"claims": {"aud": [CLIENT, "other"], "azp": "other"}},
    "several audiences, for nobody": {"claims": {"aud": [CLIENT, "other"]}},
    "expired": {"claims": {"exp": 1_000_000_000}},
    "no expiry": {"claims": {"exp": None}},
    "another nonce": {"claims": {"nonce": "old"}},
    "no nonce": {"claims": {"nonce": None}},
    "another key": {"sign": "another key"},
    "no signature": {"sign": "none"},
    "public key as secret": {"sign": "public key as secret"},
    "no group with a role": {"claims": {"groups": ["guests"]}},
    "no groups": {"claims": {"groups": None}},
    "no user": {"claims": {"email": None}},
    "an e-mail address that is not verified": {"claims": {"email_verified": False}},
    "not verified, as text": {"claims": {"email_verified": "false"}},
    "verified, as text": {"claims": {"email_verified": "true"}},
    "not verified, as a number": {"claims": {"email_verified": 0}},
    "verified or not is null": {"claims": {"email_verified": "null"}},
    "refused at the provider": {"refuse": True},
}


@pytest.mark.parametrize("how", WRONG)
async def test_oidc_refuses_and_records_a_wrong_token(tmp_path, provider, monkeypatch, how):
    company = Company(tmp_path, provider, monkeypatch)
    async with company.browser() as browser:
        refused = await company.sign_in(browser, **WRONG[how])
        assert refused.status_code == 403, how
        assert "<p>" in refused.text
        assert (await browser.get("/api/me")).status_code == 401
    assert [one.detail["how"] for one in company.log.entries(kind="sign_in_failed")] == ["oidc"]
    assert not [*company.log.entries(kind="sign_in")]


@pytest.mark.parametrize("verified", [True, None])
async def test_oidc_lets_in_an_address_that_is_verified_or_of_which_nothing_is_said(tmp_path, provider, monkeypatch, verified):
    company = Company(tmp_path, provider, monkeypatch)
    async with company.browser() as browser:
        assert (await company.sign_in(browser, claims={"email_verified": verified})).status_code == 302


async def test_oidc_goes_on_when_the_provider_rotates_its_keys(tmp_path, provider, monkeypatch):
    monkeypatch.setattr("kaname.serve.access.oidc._AGAIN", 0.0)
    company = Company(tmp_path, provider, monkeypatch)
    async with company.browser() as browser:
        assert (await company.sign_in(browser)).status_code == 302
        assert (await company.sign_in(browser, rotate=f"key-{time.time()}")).status_code == 302, "another kind of key, even"
        assert (await company.sign_in(browser)).status_code == 302


async def test_oidc_answer_counts_only_in_the_browser_that_asked(tmp_path, provider, monkeypatch):
    company = Company(tmp_path, provider, monkeypatch)
    async with company.browser() as mine, company.browser() as other, httpx.AsyncClient() as web:
        await web.post(f"{provider}/control", json={})
        started = await mine.get("/signin/oidc")
        asked = parse_qs(urlsplit(started.headers["location"]).query)
        assert {"state", "nonce", "code_challenge"} <= {*asked}
        assert {"HttpOnly", "SameSite=Lax"} <= {*started.headers["set-cookie"].split("; ")}
        back = urlsplit((await web.get(started.headers["location"])).headers["location"])
        assert (await other.get(f"/signin/callback?{back.query}")).status_code == 400
        await other.get("/signin/oidc")
        assert (await other.get(f"/signin/callback?{back.query}")).status_code == 400
        assert (await mine.get(f"/signin/callback?{back.query}")).status_code == 302
        assert (await mine.get(f"/signin/callback?{back.query}")).status_code == 400, "and once"


async def test_oidc_provider_that_is_down_or_another_is_told_so(tmp_path, provider, monkeypatch):
    gone = Company(tmp_path, "http://127.0.0.1:9", monkeypatch)
    async with gone.browser() as browser:
        answer = await browser.get("/signin/oidc")
        assert (answer.status_code, "127.0.0.1" in answer.text) == (502, False)
    company = Company(tmp_path, provider, monkeypatch)
    async with company.browser() as browser, httpx.AsyncClient() as web:
        await web.post(f"{provider}/control", json={"issuer": "https://evil.example"})
        assert (await browser.get("/signin/oidc")).status_code == 502
        await web.post(f"{provider}/control", json={})


def test_oidc_settings_that_are_wrong_are_told_before_the_server_starts(tmp_path, monkeypatch):
    monkeypatch.delenv("DESK_SECRET", raising=False)
    monkeypatch.setenv("KANAME_TEST_FOLDER", str(tmp_path))
    with pytest.raises(ConfigError, match="DESK_SECRET"):
        kaname.serve.app(load_config(with_oidc(tmp_path, "https://login.example.com")))
    monkeypatch.setenv("DESK_SECRET", "x")
    with pytest.raises(ConfigError, match="https"):
        kaname.serve.app(load_config(with_oidc(tmp_path, "http://login.example.com")))
    with pytest.raises(ConfigError, match="groups"):
        kaname.serve.app(load_config(with_oidc(tmp_path, "https://login.example.com", groups={})))


async def test_oidc_roles_reach_the_permissions_while_the_sign_in_lasts(tmp_path, provider, monkeypatch):
    company = Company(tmp_path, provider, monkeypatch)
    agent = company.app.service.agent()
    permit = Permit([{"role": "clerk", "tool": "pay"}])
    from kaname.serve.access.signin import share_roles

    agent.recipe = agent.recipe.with_changes(policies=(*agent.recipe.policies, permit))
    access = company.app.access
    share_roles([agent], access.roles_of)
    async with company.browser() as browser:
        assert not permit.check_permissions("rin@example.com", "use", "pay")
        await company.sign_in(browser)
        assert permit.check_permissions("rin@example.com", "use", "pay")
        now = time.time()
        monkeypatch.setattr("kaname.serve.access.cookies.time.time", lambda: now + 12 * 3600 + 1)
        assert not permit.check_permissions("rin@example.com", "use", "pay"), "its roles are not known any more"


OTHERS = """
import time, warnings
warnings.simplefilter("ignore")
import oidc_provider_mock
rin = oidc_provider_mock.User(sub="rin", claims={"groups": ["finance"]})
with oidc_provider_mock.run_server_in_thread(user_claims=[rin], require_nonce=True) as server:
    print(f"http://localhost:{server.server_port}", flush=True)
    time.sleep(600)
"""


@contextmanager
def started(*command: str, **options: object) -> Iterator[str]:
    """Start a process, and yield the address that it prints first."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, **options) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield found[0]
        finally:
            process.terminate()


@pytest.mark.nightly
@pytest.mark.slow
def test_oidc_with_a_provider_that_others_wrote_and_several_workers(tmp_path, monkeypatch):
    """`oidc-provider-mock` from PyPI; the browser may come back to another worker, and a restart keeps the sign-in."""
    monkeypatch.setenv("DESK_SECRET", SECRET)
    serve = ["-m", "kaname.cli.main", "serve", "--port"]
    with started("-c", OTHERS) as issuer, httpx.Client(follow_redirects=False, timeout=60) as browser:
        with_oidc(tmp_path, issuer, user="sub")
        with started(*serve, "0", "--workers", "2", cwd=tmp_path) as url:
            for _ in range(6):
                at_provider = browser.get(f"{url}/signin/oidc").headers["location"]
                back = browser.post(at_provider, data={"sub": "rin"})
                assert browser.get(back.headers["location"]).status_code == 302
            me = browser.get(f"{url}/api/me").json()
            assert (me["name"], me["roles"]) == ("rin", ["read", "talk"])
        with started(*serve, str(urlsplit(url).port), cwd=tmp_path) as again:
            assert again == url
            assert browser.get(f"{url}/api/me").json()["name"] == "rin"
