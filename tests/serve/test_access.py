"""Who may: hosts, origins, tokens, roles, one user's runs and another's; sizes, rates, slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import sys
import threading
import time

import httpx
import pytest

import kaname.serve
from kaname import Agent, MemoryJournal, ScriptedModel
from kaname.core.errors import ConfigError
from kaname.serve.access.guessing import Rates, network_of
from kaname.serve.stream import Stream, Streams
from kaname.serve.users import OWNER, Users
from tests import warm
from tests.parts import until, wait_until
from tests.properties import nightly
from tests.serve.serving import PROTOCOLS, ROOT, Served, client, events, serving

ADDRESSES = (
    ("GET", "/api/agents"),
    ("GET", "/api/runs"),
    ("POST", "/api/runs"),
    ("GET", "/api/runs/{run}"),
    ("DELETE", "/api/runs/{run}"),
    ("GET", "/api/runs/{run}/events"),
    ("GET", "/api/runs/{run}/story"),
    ("GET", "/api/runs/{run}/messages"),
    ("GET", "/api/runs/{run}/facts"),
    ("GET", "/api/runs/{run}/state"),
    ("POST", "/api/runs/{run}/rating"),
    ("POST", "/api/runs/{run}/stop"),
    ("POST", "/api/runs/{run}/answers"),
    ("POST", "/api/runs/{run}/resume"),
    ("POST", "/api/runs/{run}/fork"),
    ("POST", "/api/runs/{run}/replay"),
    ("POST", "/api/runs/{run}/messages"),
    ("GET", "/api/approvals"),
    ("DELETE", "/api/approvals/no-such"),
    ("GET", "/api/questions"),
    ("GET", "/api/me"),
    ("GET", "/api/figures"),
    ("GET", "/api/memory"),
    ("POST", "/api/memory"),
    ("PATCH", "/api/memory/1"),
    ("DELETE", "/api/memory/1"),
    ("GET", "/api/sessions"),
    ("GET", "/api/sessions/mine"),
    ("PATCH", "/api/sessions/mine"),
    ("DELETE", "/api/sessions/mine"),
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/resp_{run}"),
    ("DELETE", "/v1/responses/resp_{run}"),
    ("POST", "/v1/responses/resp_{run}/cancel"),
    ("POST", "/ag-ui/desk"),
    ("POST", "/vercel/desk"),
    ("POST", "/mcp"),
    ("POST", "/a2a/desk"),
    ("GET", "/a2a/desk/tasks/{run}"),
    ("GET", "/.well-known/agent-card.json"),
    ("GET", "/openapi.json"),
    ("GET", "/api/work"),
    ("POST", "/api/work/pause/daily"),
    ("GET", "/metrics"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def tokens(folder):
    users = Users(folder / "users.json")
    return {
        "ann": users.add("ann", ["read", "talk", "approve"]),
        "bob": users.add("bob", ["read", "talk", "approve"]),
        "eve": users.add("eve", ["read"]),
        "boss": users.add("boss", ["admin"]),
    }


@pytest.fixture(scope="module")
def guarded(folder, tokens):
    with serving(
        folder, "--users", str(folder / "users.json"), agents="tests/serve/agents.py:with_trusting", also=PROTOCOLS
    ) as served:
        yield served


def test_tokens_are_kept_hashed_in_a_file_of_the_owner(folder, tokens):
    held = (folder / "users.json").read_text()
    assert not any(token in held for token in tokens.values())
    assert stat.S_IMODE((folder / "users.json").stat().st_mode) == 0o600
    users = Users(folder / "users.json")
    assert users.caller(tokens["ann"]).name == "ann"
    assert users.caller(tokens["ann"] + "x") is None
    assert users.caller("") is None


def test_user_that_is_removed_is_known_no_more(tmp_path):
    users = Users(tmp_path / "users.json")
    token = users.add("ann", ["talk"])
    other = Users(tmp_path / "users.json")
    assert other.caller(token).name == "ann"
    users.remove("ann")
    assert other.caller(token) is None
    with pytest.raises(ConfigError, match="there is no role 'talks'; did you mean 'talk'"):
        users.add("bob", ["talks"])


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
def test_nothing_is_answered_without_a_token(guarded, method, path):
    with client(guarded) as http:
        for headers in ({}, {"authorization": "Bearer"}, {"authorization": "Basic YTpi"}, {"cookie": "token=x"}):
            answer = http.request(
                method, path.format(run="x"), headers=headers, json={} if method in ("POST", "PATCH") else None
            )
            assert answer.status_code == 401, (method, path, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_wrong_tokens_are_told_as_wrong_and_slowed_but_nobody_is_locked_out(tmp_path):
    users = Users(tmp_path / "users.json")
    right = users.add("ann", ["talk"])
    app = kaname.serve.app(Agent(ScriptedModel(["hi"]), journal=MemoryJournal()), users=users, mcp=False, a2a=False)

    async def ask(token: str, address: str = "192.0.2.7") -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(address, 1))
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            return await http.get("/api/runs")

    missing, wrong = await ask(""), await ask("nonsense")
    assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
    assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
    assert missing.json()["notice"]["code"] != wrong.json()["notice"]["code"]

    told = [await ask(f"guess-{number}") for number in range(9)]
    while told[-1].status_code == 401:
        told.append(await ask(f"guess-{len(told)}"))
    assert [one.status_code for one in told[:9]] == [401] * 9
    assert told[-1].status_code == 429, "the later ones are not even checked"
    assert int(told[-1].headers["retry-after"]) >= 1
    assert (await ask(right)).status_code == 200, "a right token of the same address is let in"
    assert (await ask("nonsense", "192.0.2.8")).status_code == 401, "another address is not slowed"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
        ("", "not an address", False),
    ],
)
def test_addresses_of_one_client_count_as_one(one, other, same):
    assert (network_of(one) == network_of(other)) is same


def test_runs_of_one_user_do_not_exist_for_another(guarded, tokens):
    with client(guarded, tokens["ann"]) as ann, client(guarded, tokens["bob"]) as bob, client(guarded, tokens["boss"]) as boss:
        done = ann.post("/api/runs", json={"input": "my secret", "session_id": "mine"}).json()
        waiting = ann.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
        assert bob.get("/api/runs").json()["runs"] == []
        assert bob.get("/api/runs", params={"user_id": "ann"}).json()["runs"] == []
        assert bob.get("/api/questions").json()["questions"] == []
        assert bob.get("/api/sessions", params={"q": "secret"}).json()["sessions"] == []
        key = waiting["questions"][0]["key"]
        bodies = {"answers": {"answers": {key: "yes"}}, "fork": {"input": "x"}, "rating": {"rating": "good"}}
        answers = []
        for run in (done["run_id"], waiting["run_id"], "no-such-run"):
            told = {}
            for method, path in [one for one in ADDRESSES if "{run}" in one[1]]:
                body = bodies.get(path.rpartition("/")[2], {}) if method == "POST" else None
                answer = bob.request(method, path.format(run=run), json=body)
                assert answer.status_code in (404, 400), (method, path, answer.status_code, answer.text)
                told[method, path] = answer.status_code, answer.text.replace(run, "RUN"), {*answer.headers}
            approval = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{run}:{key}", "approve": True}
            resume = {"threadId": "t", "runId": "r", "resume": [{"interruptId": f"{run}:{key}", "status": "resolved"}]}
            decided = [{"type": "dynamic-tool", "state": "approval-responded", "approval": {"id": f"{run}:{key}"}}]
            rpc = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": run}}
            for path, body in (
                ("/v1/responses", {"model": "cashier", "input": [approval]}),
                ("/v1/responses", {"model": "desk", "input": "x", "previous_response_id": f"resp_{run}"}),
                ("/ag-ui/cashier", resume),
                ("/vercel/cashier", {"messages": [{"role": "assistant", "parts": decided}]}),
                ("/a2a/cashier", rpc),
                ("/api/runs", {"input": "mine", "run_id": run}),
            ):
                answer = bob.post(path, json=body, headers={"a2a-version": "1.0"})
                text = answer.text if path != "/api/runs" else sorted(answer.json())
                told[str(body)] = answer.status_code, str(text).replace(run, "RUN"), {*answer.headers}
            assert "secret" not in str(told)
            answers.append([*told.values()])
        assert answers[0] == answers[1] == answers[2], "a run of another user is answered like one that there is not"
        assert answers[0][-1][0] == 201, "an id that another user has given is free"
        assert [one[0] for one in answers[0][-6:-2]] == [404] * 4
        for path in ("/api/sessions/mine",):
            assert [
                bob.get(path).status_code,
                bob.patch(path, json={"title": "x"}).status_code,
                bob.delete(path).status_code,
            ] == [404] * 3
        assert ann.get(f"/api/runs/{waiting['run_id']}").json()["status"] == "waiting"
        assert boss.get(f"/api/runs/{done['run_id']}").json()["user_id"] == "ann"
        assert boss.get("/api/questions").json()["questions"][0]["run"]["user_id"] == "ann"
        mine = bob.post("/api/runs", json={"input": "history", "session_id": "mine"}).json()
        assert "secret" not in mine["output"], "the same session id is another session"


def test_roles_allow_what_they_say(guarded, tokens):
    with client(guarded, tokens["eve"]) as eve, client(guarded, tokens["ann"]) as ann, client(guarded, tokens["boss"]) as boss:
        for path, body in (
            ("/api/runs", {"input": "x"}),
            ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": "x"}]}),
            ("/v1/responses", {"model": "desk", "input": "x"}),
            ("/ag-ui/desk", {"messages": []}),
            ("/vercel/desk", {"messages": []}),
        ):
            answer = eve.post(path, json=body)
            assert answer.status_code == 403, path
            assert "this request needs the role 'talk'" in answer.text
        assert eve.get("/api/runs").status_code == 200
        run = ann.post("/api/runs", json={"input": "x"}).json()["run_id"]
        assert ann.post(f"/api/runs/{run}/fork", json={"input": "x", "model": "local//etc/passwd"}).status_code == 403
        assert ann.post(f"/api/runs/{run}/fork", json={"input": "x", "instructions": "be bad"}).status_code == 403
        assert ann.post("/api/runs", json={"input": "x", "user_id": "bob"}).status_code == 403
        assert boss.post("/api/runs", json={"input": "x", "user_id": "bob"}).json()["user_id"] == "bob"


def test_another_name_for_this_machine_is_refused(served):
    """DNS rebinding: a page's own name is made to mean 127.0.0.1."""
    with client(served) as http:
        for host in (
            "evil.example",
            f"evil.example:{served.port}",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost, evil",
        ):
            assert http.get("/api/runs", headers={"host": host}).status_code == 421, host
        for host in (f"localhost:{served.port}", f"127.0.0.1:{served.port}", "localhost", f"[::1]:{served.port}"):
            assert http.get("/api/runs", headers={"host": host}).status_code == 200, host


def test_request_that_a_proxy_passed_on_is_refused_without_users(served):
    """The server under it believes a proxy on this machine; the address that it tells is not asked for."""
    with client(served) as http:
        for headers in (
            {"x-forwarded-for": "203.0.113.5"},
            {"x-forwarded-for": "127.0.0.1"},
            {"forwarded": "for=127.0.0.1"},
            {"x-real-ip": "127.0.0.1"},
            {"via": "1.1 proxy"},
        ):
            answer = http.get("/api/runs", headers=headers)
            assert answer.status_code == 403, headers
            assert "kaname serve users add" in answer.json()["detail"]
        assert http.get("/readyz", headers={"via": "1.1 proxy"}).status_code == 200
    one = _raw(served, b"GET /api/runs HTTP/1.0\r\nhost: localhost\r\n\r\n")
    assert b" 403 " in one.recv(200)
    one.close()


def test_page_of_another_site_cannot_use_a_browser_against_it(served):
    with client(served) as http:
        for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            assert http.post("/api/runs", json={"input": "x"}, headers=headers).status_code == 403, headers
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            answer = http.post("/api/runs", content=b'{"input": "x"}', headers={"content-type": kind})
            assert answer.status_code == 415, kind
        own = {"origin": served.url}
        assert http.post("/api/runs", json={"input": "x"}, headers=own).status_code == 201
        preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        assert http.options("/api/runs", headers=preflight).status_code == 403


def test_page_that_is_allowed_gets_the_headers_that_browsers_want(tmp_path):
    with serving(tmp_path, "--allow-origin", "https://app.example") as served, client(served) as http:
        own = {"origin": "https://app.example", "access-control-request-method": "POST"}
        assert http.options("/api/runs", headers=own).headers["access-control-allow-origin"] == "https://app.example"
        answer = http.post("/api/runs", json={"input": "x"}, headers={"origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert http.get("/api/runs", headers={"origin": "https://other.example"}).status_code == 403


def test_every_answer_says_how_it_may_be_used(served):
    with client(served) as http:
        for path in ("/api/runs", "/healthz", "/nowhere", "/openapi.json"):
            headers = http.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers


def test_server_for_others_does_not_start_without_users(tmp_path):
    command = [
        sys.executable,
        "-m",
        "kaname.cli.main",
        "serve",
        "-a",
        str(ROOT / "tests/serve/agents.py:agents"),
        "--host",
        "0.0.0.0",
        "--port",
        "0",
    ]
    environment = {
        **os.environ,
        "KANAME_TEST_FOLDER": str(tmp_path),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "LANG": "C.UTF-8",
    }
    done = warm.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 2
    assert "add a user first" in done.stderr


def test_server_for_others_takes_the_token_of_the_environment(tmp_path):
    with serving(tmp_path, "--host", "0.0.0.0", KANAME_TOKEN="a-long-token-of-an-administrator") as served:
        address = f"http://127.0.0.1:{served.port}"
        assert httpx.get(f"{address}/api/runs", trust_env=False, verify=False).status_code == 401
        headers = {"authorization": "Bearer a-long-token-of-an-administrator", "host": "agents.example"}
        assert httpx.get(f"{address}/api/runs", headers=headers, trust_env=False, verify=False).status_code == 200
        assert "a-long-token" not in served.log.read_text()


def test_paths_and_headers_lead_nowhere(served):
    with client(served) as http:
        for path in (
            "/api/runs/..%2f..%2f..%2fetc%2fpasswd",
            "/..%2f..%2fetc/passwd",
            "/api/runs/%00",
            "/api/sessions/../../x",
            "/api/runs/%ff%fe",
        ):
            answer = http.get(path)
            assert answer.status_code in (400, 404), path
            assert "root:" not in answer.text
        odd = "x\r\nset-cookie: a=b"
        for body in ({"input": "x", "run_id": odd}, {"input": "x", "session_id": odd}):
            answer = http.post("/api/runs", json=body)
            assert "set-cookie" not in answer.headers
            assert answer.status_code in (201, 400)


def test_giant_body_is_refused_before_it_is_read(served):
    with client(served) as http:
        answer = http.post(
            "/api/runs", content=b'{"input": "' + b"x" * 31_000_000 + b'"}', headers={"content-type": "application/json"}
        )
        assert answer.status_code == 413

        def endless():
            for _ in range(2_000):
                yield b"x" * 65_536

        try:
            told = http.post("/api/runs", content=endless(), headers={"content-type": "application/json"})
            assert told.status_code == 413
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            pass  # it was cut off while we still wrote
        assert http.get("/healthz").status_code == 200
        deep = b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert http.post("/api/runs", content=deep, headers={"content-type": "application/json"}).status_code == 400


def _raw(served: Served, data: bytes) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    one.sendall(data)
    return one


HEAD = b"GET %b HTTP/1.1\r\nhost: localhost\r\n%b"


@pytest.mark.parametrize(
    "data",
    [
        HEAD % (b"/healthz", b"x-a: " + b"y" * 70_000),
        HEAD % (b"/healthz", b"x-a: " + b"y" * 70_000 + b"\r\n\r\n"),
        HEAD % (b"/healthz", b"x-a: y\r\n" * 10_000 + b"\r\n"),
        HEAD % (b"/healthz?" + b"y" * 70_000, b"\r\n"),
        HEAD % (b"/healthz", b"\r\n") + HEAD % (b"/healthz", b"x-a: " + b"y" * 70_000 + b"\r\n\r\n"),
    ],
    ids=["half", "one long header", "many headers", "address", "second request"],
)
def test_giant_head_is_refused_however_it_arrives(served, data):
    told = b""
    with _raw(served, data) as one, contextlib.suppress(ConnectionResetError):  # the server has closed without reading the rest
        while piece := one.recv(1_000):
            told += piece
    assert told.rpartition(b"HTTP/1.1 ")[2].startswith(b"431"), told


def test_head_within_the_limit_is_taken(served):
    with client(served) as http:
        for _ in range(3):  # of each request of a connection alone
            assert http.get("/healthz", headers={"x-a": "y" * 40_000}).status_code == 200


def test_user_finds_a_run_by_the_id_that_the_user_gave_it(guarded, tokens):
    with client(guarded, tokens["ann"]) as ann, client(guarded, tokens["boss"]) as boss:
        run = ann.post("/api/runs", json={"input": "hi", "run_id": "order-17"}).json()
        assert ann.get("/api/runs/order-17").json() == ann.get(f"/api/runs/{run['run_id']}").json()
        assert ann.post("/api/runs", json={"input": "hi", "run_id": "order-17"}).status_code == 409, "asked twice, run once"
        assert boss.get("/api/runs/order-17").status_code == 404
        assert boss.get(f"/api/runs/{run['run_id']}").status_code == 200


def test_changes_do_not_tell_of_deleted_runs_of_others(guarded, tokens):
    with client(guarded, tokens["ann"]) as ann, client(guarded, tokens["bob"]) as bob:
        with bob.stream("GET", "/api/runs", headers={"accept": "text/event-stream"}) as watching:
            told = events(watching.iter_lines())
            assert next(told)["event"] == "listening"
            for http in (ann, bob):
                run = http.post("/api/runs", json={"input": "hi"}).json()["run_id"]
                assert http.delete(f"/api/runs/{run}").status_code == 204
            gone = next(one for one in told if one["event"] == "gone")
        assert gone["data"]["run_id"] == run, "bob's own, and not ann's before it"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "piece", "seconds"),
    [
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", b"x: y\r\n", 30),
        *nightly((b"POST /api/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n", b" ", 60)),
    ],
    ids=["head", "body"],
)
def test_slow_head_and_slow_body_are_cut(served, begin, piece, seconds):
    """Slow loris: a byte now and then keeps no connection."""
    assert _seconds_until_cut(_raw(served, begin), piece) < seconds


def _seconds_until_cut(connection: socket.socket, piece: bytes) -> float:
    """How long a connection lives that sends a piece each second."""
    began = time.monotonic()
    connection.settimeout(1)
    with contextlib.suppress(OSError):
        while time.monotonic() - began < 90:
            connection.sendall(piece)
            with contextlib.suppress(TimeoutError):
                connection.recv(1_000)  # an answer, or the end
                break
    connection.close()
    return time.monotonic() - began


def test_reader_that_does_not_read_costs_the_others_nothing(tmp_path):
    """A client that stops reading is left behind: the run goes on, other readers see all of it."""
    with serving(tmp_path) as served, client(served) as http:
        request = json.dumps({"input": "long", "mode": "stream"}).encode()
        head = f"POST /api/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(request)}\r\n\r\n"
        stuck = [_raw(served, head.encode() + request) for _ in range(20)]
        told = http.post("/api/runs", json={"input": "long"}).json()
        assert told["status"] == "completed"
        wait_until(lambda: not any(run["status"] == "running" for run in http.get("/api/runs").json()["runs"]))
        assert {run["status"] for run in http.get("/api/runs").json()["runs"]} == {"completed"}
        for one in stuck:
            one.close()


def test_rates_let_through_so_many():
    rates = Rates(10, 3)
    assert [rates.wait("ann") for _ in range(4)] == [0, 0, 0, 1]
    assert rates.wait("bob") == 0


def test_too_many_requests_of_a_user_are_told_when_to_come_again(guarded, tokens):
    with client(guarded, tokens["eve"]) as http:
        codes = []
        lock = threading.Lock()

        def ask() -> None:
            for _ in range(150):
                code = http.get("/api/agents").status_code
                with lock:
                    codes.append(code)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert {200, 429} >= set(codes)
        if 429 in codes:
            answer = http.get("/api/agents")
            assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1


def test_secrets_are_neither_in_the_log_nor_in_what_is_told(guarded, tokens):
    with client(guarded, tokens["ann"]) as http:
        http.get("/api/runs", params={"token": tokens["ann"]})
        told = http.get("/api/agents").text + http.get("/openapi.json").text
    assert "You are a desk" not in told, "instructions are the owner's"
    log = guarded.log.read_text()
    assert not any(token in log for token in tokens.values())
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"time", "method", "path", "status", "ms", "client", "user"} == set(lines[-1])
    assert any(line["user"] == "ann" for line in lines)


def test_stream_of_another_user_is_not_followed(guarded, tokens):
    with client(guarded, tokens["ann"]) as ann, client(guarded, tokens["bob"]) as bob:
        run = ann.post("/api/runs", json={"input": "long", "mode": "detach"}).json()["run_id"]
        with bob.stream("GET", f"/api/runs/{run}/events") as answer:
            assert answer.status_code == 404
        with ann.stream("GET", f"/api/runs/{run}/events") as answer:
            assert list(events(answer.iter_lines()))[-1]["data"]["data"]["kind"] == "completed"


async def test_client_that_does_not_take_what_it_is_sent_is_cut_off():
    """Its stream waits in `send`; the sweeper ends the connection after a while, and leaves a stream that moves alone."""
    streams, sent, cut = Streams(), [], asyncio.Event()
    gone = asyncio.Event()

    async def frames():
        yield b"data: 1\n\n"
        yield b"data: 2\n\n"

    async def send(message):
        sent.append(message)
        if message.get("body") == b"data: 2\n\n":
            await asyncio.sleep(3600)  # the buffers are full

    async def receive():
        await gone.wait()
        return {"type": "http.disconnect"}

    stream = Stream(streams, OWNER, frames(), left=cut.set)
    serving_it = asyncio.create_task(stream({"kaname.abort": gone.set}, receive, send))
    await until(lambda: sent and sent[-1].get("body") == b"data: 2\n\n")
    now = asyncio.get_running_loop().time()
    stream.look_after(now + 5)
    assert not gone.is_set()
    stream.look_after(now + 31)
    await serving_it
    assert cut.is_set()
    assert len(streams) == 0


def test_facts_of_a_run_do_not_tell_the_inside_of_a_childs_failure(guarded, tokens):
    with client(guarded, tokens["ann"]) as ann:
        run = ann.post("/api/runs", json={"input": "go", "agent": "trusting", "mode": "detach"}).json()["run_id"]
        with ann.stream("GET", f"/api/runs/{run}/facts", headers={"accept": "text/event-stream"}) as answer:
            told = list(events(answer.iter_lines()))
        assert told[-1]["event"] == "over"
        assert "SECRET" not in str(told)
        whole = ann.get(f"/api/runs/{run}/facts").text
        assert "SECRET" not in whole
        assert "wreck failed because of a bug in its program" in whole
        assert "instructions" not in whole
        assert "SECRET" not in ann.get(f"/api/runs/{run}/messages").text + ann.get(f"/api/runs/{run}/state").text


async def test_stream_of_a_user_who_is_removed_ends():
    streams, left, allowed = Streams(), asyncio.Event(), [True]

    async def frames():
        yield b"data: 1\n\n"
        await asyncio.sleep(3600)

    async def send(message):
        pass

    async def receive():
        await asyncio.sleep(3600)

    stream = Stream(streams, OWNER, frames(), left=left.set)
    reading = asyncio.create_task(stream({"kaname.still": lambda: allowed[0]}, receive, send))
    await asyncio.sleep(0.01)
    now = asyncio.get_running_loop().time()
    stream.look_after(now + 12)
    assert not reading.done()
    allowed[0] = False
    stream.look_after(now + 24)
    await reading
    assert left.is_set()


def test_inside_of_a_failure_is_told_to_the_owner_only(guarded, tokens):
    with client(guarded, tokens["ann"]) as ann, client(guarded, tokens["boss"]) as boss:
        run = ann.post("/api/runs", json={"input": "bug"}).json()
        assert (run["status"], "SECRET" in str(run)) == ("failed", False)
        name = run["run_id"]
        told = [
            ann.get(f"/api/runs/{name}/story").text,
            ann.get(f"/api/runs/{name}/events").text,
            ann.get(f"/v1/responses/resp_{name}").text,
            ann.post("/v1/chat/completions", json={"model": "desk", "messages": [{"role": "user", "content": "bug"}]}).text,
            ann.post("/v1/responses", json={"model": "desk", "input": "bug"}).text,
            ann.post("/ag-ui/desk", json={"messages": [{"id": "1", "role": "user", "content": "bug"}]}).text,
            ann.post("/vercel/desk", json={"messages": [{"role": "user", "parts": [{"type": "text", "text": "bug"}]}]}).text,
        ]
        assert all("internal error" in one and "SECRET" not in one for one in told)
        assert "SECRET" in boss.get(f"/api/runs/{name}").text
        assert "SECRET" in guarded.log.read_text()


async def test_words_of_a_provider_are_told_to_the_owner_only(guarded, tokens):
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
    from a2a.types import a2a_pb2 as pb
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    own = {"authorization": f"Bearer {tokens['ann']}"}
    with client(guarded, tokens["ann"]) as ann, client(guarded, tokens["boss"]) as boss:
        run = ann.post("/api/runs", json={"input": "fail"}).json()
        name = run["run_id"]
        told = [
            json.dumps(run),
            *[ann.get(f"/api/runs/{name}/{what}").text for what in ("story", "events", "facts")],
            ann.get(f"/v1/responses/resp_{name}").text,
            ann.post("/v1/chat/completions", json={"model": "desk", "messages": [{"role": "user", "content": "fail"}]}).text,
            ann.post("/v1/responses", json={"model": "desk", "input": "fail"}).text,
            ann.post("/ag-ui/desk", json={"messages": [{"id": "1", "role": "user", "content": "fail"}]}).text,
            ann.post("/vercel/desk", json={"messages": [{"role": "user", "parts": [{"type": "text", "text": "fail"}]}]}).text,
        ]
        async with Client(StreamableHttpTransport(f"{guarded.url}/mcp", headers=own)) as mcp:
            told.append(str(await mcp.call_tool("desk", {"task": "fail"}, raise_on_error=False)))
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30, headers=own) as http:
            card = await A2ACardResolver(http, f"{guarded.url}/a2a/desk").get_agent_card()
            config = ClientConfig(httpx_client=http, streaming=False, supported_protocol_bindings=["JSONRPC"])
            message = pb.Message(message_id="m1", role=pb.Role.ROLE_USER, parts=[pb.Part(text="fail")])
            asked = ClientFactory(config).create(card).send_message(pb.SendMessageRequest(message=message))
            told += [str([one async for one in asked])]
        for one in told:
            assert "the key is wrong" not in one
            assert "the provider denied access" in one
        assert "the key is wrong" not in ann.get(f"/api/runs/{name}/messages").text + ann.get(f"/api/runs/{name}/state").text
        for what in ("", "/story", "/events", "/facts"):
            assert "the key is wrong" in boss.get(f"/api/runs/{name}{what}").text


def test_a_role_answers_the_questions_of_other_users_runs_of_one_agent(tmp_path):
    users, wanted = (
        Users(tmp_path / "users.json"),
        {"ann": ["talk", "approve"], "cfo": ["approve:cashier"], "hr": ["approve:hr"]},
    )
    tokens = {name: users.add(name, roles) for name, roles in wanted.items()}
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving(tmp_path, "--users", str(tmp_path / "users.json")))
        ann, cfo, hr = [stack.enter_context(client(served, tokens[name])) for name in wanted]
        run = ann.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
        key, address = run["questions"][0]["key"], f"/api/runs/{run['run_id']}"
        assert [len(one.get("/api/questions").json()["questions"]) for one in (ann, cfo, hr)] == [1, 1, 0]
        assert (run["questions"][0]["until"], run["questions"][0]["by"]) == (None, "")
        assert hr.post(f"{address}/answers", json={"answers": {key: "yes"}}).status_code in (403, 404)
        seen = cfo.get(address).json()
        assert (len(seen["questions"]), seen["title"], seen["questions"][0]["conversation"]) == (1, "", []), "only the question"
        assert [cfo.get(f"{address}/{one}").status_code for one in ("messages", "facts", "story", "state")] == [404] * 4
        assert cfo.post(f"{address}/answers", json={"answers": {}}).status_code == 409
        events = {"accept": "text/event-stream"}
        always = {"approved": True, "for": "always"}
        answered = cfo.post(f"{address}/answers", json={"answers": {key: always}, "mode": "wait"}, headers=events)
        assert (answered.status_code, answered.json()) == (202, {"run_id": run["run_id"]}), "and nothing of the run"
        while ann.get(address).json()["status"] in ("running", "waiting"):
            time.sleep(0.05)
        assert cfo.get(address).status_code == 404, "there is nothing to decide any more"
        assert (tmp_path / "paid.txt").read_text().split() == ["5"]
        (grant,), none = [one.get("/api/approvals").json()["approvals"] for one in (cfo, hr)]
        assert (grant["user"], grant["by"], none) == ("ann", "cfo", []), "the one who gave it sees it"
        assert ann.get("/api/approvals").json()["approvals"] == [grant], "and the one for whom it holds"
        assert [one.delete(f"/api/approvals/{grant['id']}").status_code for one in (hr, cfo, ann)] == [404, 204, 404]


def test_approval_is_not_used_again_by_a_fork_of_one_who_may_not_approve(tmp_path):
    users = Users(tmp_path / "users.json")
    eve, boss = users.add("eve", ["read", "talk"]), users.add("boss", ["admin"])
    with (
        serving(tmp_path, "--users", str(tmp_path / "users.json")) as served,
        client(served, eve) as http,
        client(served, boss) as chief,
    ):
        run = http.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
        key, call = run["questions"][0]["key"], run["questions"][0]["call"]["id"]
        assert http.post(f"/api/runs/{run['run_id']}/fork", json={"results": {call: "paid"}}).status_code == 403
        chief.post(f"/api/runs/{run['run_id']}/answers", json={"answers": {key: "yes"}, "mode": "wait"})
        for at in range(1, 12):
            http.post(f"/api/runs/{run['run_id']}/fork", json={"at": at})
        assert (tmp_path / "paid.txt").read_text().split() == ["5"], "once, as it was approved"


def test_users_that_cannot_be_read_let_nobody_in_and_tell_nobody_why(tmp_path):
    users = Users(tmp_path / "users.json")
    token = users.add("ann", ["talk"])
    with serving(tmp_path, "--users", str(tmp_path / "users.json")) as served, client(served, token) as http:
        assert http.get("/api/runs").status_code == 200
        (tmp_path / "users.json").write_text("{ broken")
        answer = http.get("/api/runs")
        assert (answer.status_code, "users.json" in answer.text) == (503, False)
        assert "users.json" in served.log.read_text()


def test_users_made_while_an_open_server_runs_are_asked_for_from_then_on(tmp_path):
    path = tmp_path / "users.json"
    with serving(tmp_path, "--users", str(path)) as served, client(served) as http:
        assert http.get("/api/runs").status_code == 200
        token = Users(path).add("ann", ["talk"])
        assert http.get("/api/runs").status_code == 401
        with client(served, token) as mine:
            assert mine.get("/api/runs").status_code == 200
        path.unlink()
        assert http.get("/api/runs").status_code == 401, "it does not open again"
