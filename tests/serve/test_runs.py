"""Runs over HTTP: start, follow, answer, fork, list; what a client sees."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

import kaname.serve
from kaname import Agent, MemoryJournal, ScriptedModel
from tests.parts import wait_until
from tests.serve.serving import client, events, serving


def _chunks(http: Any, method: str, path: str, **more: Any) -> list[dict[str, Any]]:
    with http.stream(method, path, **more) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return list(events(answer.iter_lines()))


def test_run_is_waited_for(http):
    answer = http.post("/api/runs", json={"input": "please add", "agent": "desk", "session_id": "s1"})
    assert answer.status_code == 201, answer.text
    run = answer.json()
    assert (run["status"], run["output"], run["session_id"]) == ("completed", "the sum is 7", "s1")
    assert http.get(answer.headers["location"]).json()["output"] == "the sum is 7"
    assert [message["role"] for message in http.get(f"/api/runs/{run['run_id']}/messages").json()["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_run_is_streamed_in_the_shape_of_the_design(http):
    told = _chunks(http, "POST", "/api/runs", json={"input": "please add", "mode": "stream"})
    assert [one["data"]["seq"] for one in told] == list(range(1, len(told) + 1))
    assert {"delta", "message", "tool_call", "tool_response", "usage", "status"} == {one["event"] for one in told}
    assert all(set(one["data"]) == {"time", "agent", "type", "data", "seq"} for one in told)
    assert "".join(one["data"]["data"]["content"] for one in told if one["event"] == "delta") == "Let me see.the sum is 7"


def test_follower_that_comes_back_at_any_event_misses_nothing_and_sees_nothing_twice(http):
    whole = _chunks(http, "POST", "/api/runs", json={"input": "please add", "mode": "stream"})
    run_id = whole[0]["data"]["data"]["run_id"]
    facts = [(one["id"], one["event"], one["data"]["data"]) for one in whole if "id" in one]
    assert len({place for place, *_ in facts}) == len(facts), "each event has a place of its own"
    for number, (place, *_) in enumerate(facts[:-1]):
        rest = _chunks(http, "GET", f"/api/runs/{run_id}/events", headers={"last-event-id": place})
        assert [(one["id"], one["event"], one["data"]["data"]) for one in rest] == facts[number + 1 :]
    assert http.get(f"/api/runs/{run_id}/events", headers={"last-event-id": "soon"}).status_code == 400


def test_run_is_talked_to_while_it_works(http):
    run = http.post("/api/runs", json={"input": "long", "mode": "detach", "session_id": "talk"}).json()
    path = f"/api/runs/{run['run_id']}"
    told = http.post(f"{path}/messages", json={"input": "please add", "urgent": True})
    assert (told.status_code, told.json()) == (202, {"run_id": run["run_id"], "under_way": True})
    seen = _chunks(http, "GET", f"{path}/events")
    assert [one["data"]["data"]["content"] for one in seen if one["data"]["data"].get("status") == "interjected"] == [
        "please add"
    ]
    assert http.get(path).json()["output"] == "the sum is 7"
    late = http.post(f"{path}/messages", json={"input": "and thanks"}).json()
    assert late == {"run_id": run["run_id"], "under_way": False}
    http.post("/api/runs", json={"input": "history", "session_id": "talk"})
    (last, *_) = http.get("/api/runs", params={"session_id": "talk"}).json()["runs"]
    said = [
        one["content"] for one in http.get(f"/api/runs/{last['run_id']}/messages").json()["messages"] if one["role"] == "user"
    ]
    assert said == ["long", "please add", "and thanks", "history"]
    assert http.post("/api/runs/nobody/messages", json={"input": "hello"}).status_code == 404
    alone = http.post("/api/runs", json={"input": "please add"}).json()
    assert http.post(f"/api/runs/{alone['run_id']}/messages", json={"input": "hello"}).status_code == 409


def test_detached_run_goes_on_and_is_followed(http):
    answer = http.post("/api/runs", json={"input": "long", "mode": "detach"})
    assert answer.status_code == 202
    told = _chunks(http, "GET", f"/api/runs/{answer.json()['run_id']}/events")
    assert told[-1]["data"]["data"]["kind"] == "completed"
    assert next(one for one in told if one["event"] == "message")["data"]["data"]["content"] == "word " * 400


def test_closing_the_tab_does_not_stop_the_work_unless_asked_to(tmp_path):
    with serving(tmp_path, KANAME_TEST_PACE="0.1") as served, client(served) as http:
        ids = {}
        for left in ("continue", "stop"):
            asked = {"input": "long", "mode": "stream", "on_disconnect": left}
            with http.stream("POST", "/api/runs", json=asked) as answer:
                next(answer.iter_raw())
                ids[left] = answer.headers["x-run-id"]
        wait_until(lambda: http.get(f"/api/runs/{ids['stop']}").json()["status"] != "running")
        assert http.get(f"/api/runs/{ids['stop']}").json()["status"] == "cancelled"
        assert http.get(f"/api/runs/{ids['continue']}").json()["status"] == "running"
        assert http.post(f"/api/runs/{ids['continue']}/stop", json={"reason": "enough"}).status_code == 202
        told = _chunks(http, "GET", f"/api/runs/{ids['continue']}/events")
        assert told[-1]["data"]["data"]["detail"] == "enough"
        assert http.post(f"/api/runs/{ids['continue']}/stop").json() == {"run_id": ids["continue"], "stopping": False}


def test_question_is_listed_and_answered(http, served):
    run = http.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
    assert run["status"] == "waiting"
    (question,) = [one for one in http.get("/api/questions").json()["questions"] if one["run"]["run_id"] == run["run_id"]]
    does = {"effect": "irreversible", "description": "Pay an amount. Every effect is one line of a file."}
    assert question["call"] == {
        "id": question["call"]["id"],
        "name": "pay",
        "arguments": {"amount": 5},
        "text": '{\n  "amount": 5\n}',
        "shown": {"amount": "5"},
        "equal": question["call"]["equal"],
        **does,
    }
    assert json.loads(question["call"]["equal"]) == {"amount": {"equals": 5}, "*": ["amount"]}
    assert question["options"] == ["yes", "no"]
    changed = {"answers": {question["key"]: {"args": {"amount": 3}}}, "mode": "wait"}
    done = http.post(f"/api/runs/{run['run_id']}/answers", json=changed).json()
    assert (done["status"], done["output"]) == ("completed", "it is done")
    assert "3" in (served.folder / "paid.txt").read_text().split()
    again = http.post(f"/api/runs/{run['run_id']}/answers", json={"answers": {question["key"]: "no"}})
    assert again.status_code == 409


def test_run_is_forked_replayed_and_deleted(http):
    run = http.post("/api/runs", json={"input": "please add"}).json()
    fork = http.post(f"/api/runs/{run['run_id']}/fork", json={"input": "history"})
    assert fork.status_code == 201
    assert "user: please add" in fork.json()["output"]
    assert http.post(f"/api/runs/{run['run_id']}/replay").json()["same"] is True
    story = http.get(f"/api/runs/{run['run_id']}/story", params={"after": 2}).json()
    assert [one["type"] for one in story["chunks"]][:3] == ["message", "tool_call", "usage"]
    needed = http.delete(f"/api/runs/{run['run_id']}")
    assert (needed.status_code, fork.json()["run_id"] in needed.json()["detail"]) == (409, True), "another goes on from it"
    assert http.delete(f"/api/runs/{run['run_id']}", params={"cascade": "1"}).status_code == 204
    gone = http.get(f"/api/runs/{run['run_id']}")
    assert gone.status_code == 404
    assert gone.headers["content-type"] == "application/problem+json"
    assert gone.json()["detail"] == f"run {run['run_id']!r} was not found in the journal"
    assert gone.json()["notice"]["code"] == "run.not_found"


def test_runs_and_sessions_are_listed_searched_renamed(http):
    http.post("/api/runs", json={"input": "a needle in the hay", "session_id": "hay"})
    http.post("/api/runs", json={"input": "once more", "session_id": "hay"})
    (found,) = http.get("/api/runs", params={"q": "NEEDLE"}).json()["runs"]
    assert found["title"] == "a needle in the hay"
    assert len(http.get("/api/runs", params={"session_id": "hay", "limit": 1}).json()["runs"]) == 1
    session = http.get("/api/sessions/hay").json()
    assert [one["content"] for one in session["messages"]][-1] == "you said: once more"
    assert http.patch("/api/sessions/hay", json={"title": "stack"}).json()["title"] == "stack"
    assert any(one["title"] == "stack" for one in http.get("/api/sessions").json()["sessions"])
    assert http.get("/api/sessions", params={"q": "needle"}).json()["sessions"][0]["id"] == "hay"
    assert http.delete("/api/sessions/hay").status_code == 204
    assert http.get("/api/sessions/hay").status_code == 404


def test_bad_requests_are_told_and_lose_nothing(http):
    before = len(http.get("/api/runs").json()["runs"])
    for body, told in (
        ({"agent": "desk"}, "required field `input`"),
        ({"input": "x", "agent": "desc"}, "did you mean 'desk'?"),
        ({"input": "x", "colour": 1}, "unknown field `colour`"),
        ({"input": 3}, "Expected `str | object | array`"),
        ({"input": "x", "mode": "quickly"}, "Invalid enum value 'quickly'"),
        (
            {"input": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x.png"}}]}]},
            "data: URL",
        ),
    ):
        answer = http.post("/api/runs", json=body)
        assert answer.status_code in (400, 404), (body, answer.text)
        assert told in answer.json()["detail"]
    assert http.post("/api/runs", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert http.get("/nowhere").json()["detail"].startswith("/nowhere does not exist")
    assert http.put("/api/runs", json={}).status_code == 405
    assert len(http.get("/api/runs").json()["runs"]) == before


def test_run_id_of_the_client_makes_starting_it_twice_harmless(http):
    assert http.post("/api/runs", json={"input": "x", "run_id": "order-7"}).status_code == 201
    again = http.post("/api/runs", json={"input": "x", "run_id": "order-7"})
    assert (again.status_code, again.json()["run_id"]) == (409, "order-7")


def test_failed_run_is_told_as_a_run(http):
    run = http.post("/api/runs", json={"input": "fail"}).json()
    assert run["status"] == "failed"
    assert run["stop"]["error"] == "ModelDenied"
    told = _chunks(http, "POST", "/api/runs", json={"input": "fail", "mode": "stream"})
    assert told[-1]["event"] == "error"


def test_openapi_document_names_the_addresses_that_there_are(http):
    document = http.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method in methods:
            answer = http.request(
                method,
                path.replace("{run_id}", "no-such")
                .replace("{session_id}", "no-such")
                .replace("{number}", "1")
                .replace("{grant_id}", "no-such")
                .replace("{action}", "pause"),
                json={} if method in ("post", "patch") else None,
            )
            known = "no-such" in answer.text or "no agent on this server has a memory" in answer.text
            assert answer.status_code not in (404, 405) or known, (method, path, answer.text)
    assert "input" in document["components"]["schemas"]["StartRun"]["required"]


def test_health_is_told_to_anybody(http):
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready"}


def test_half_a_surrogate_pair_is_written_and_read_back(http):
    raw = b'{"input": "half \\ud83d of it", "session_id": "pair"}'
    answer = http.post("/api/runs", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code in (201, 400), answer.text
    if answer.status_code == 201:
        assert http.get(f"/api/runs/{answer.json()['run_id']}").status_code == 200
        assert http.get("/api/runs").status_code == 200


def test_odd_characters_and_numbers_are_told_everywhere(http):
    run = http.post("/api/runs", json={"input": "surrogate"})
    assert run.status_code == 201, run.text
    name = run.json()["run_id"]
    for path in (
        f"/api/runs/{name}",
        f"/api/runs/{name}/story",
        f"/api/runs/{name}/messages",
        f"/v1/responses/resp_{name}",
        "/api/questions",
    ):
        assert http.get(path).status_code == 200, path
    for path, body in (
        ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": "surrogate"}]}),
        ("/v1/responses", {"model": "desk", "input": "surrogate"}),
    ):
        assert http.post(path, json=body).status_code == 200, path
        assert "half" in http.post(path, json={**body, "stream": True}).text


def test_name_of_a_tool_cannot_write_an_event(http):
    body = {"model": "desk", "messages": [{"role": "user", "content": "odd tool"}], "stream": True}
    assert 'data: {"evil"' not in http.post("/v1/chat/completions", json=body).text


def test_fork_at_an_open_question_waits_for_its_answer(http):
    run = http.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
    fork = http.post(f"/api/runs/{run['run_id']}/fork", json={"mode": "wait"}).json()
    assert (fork["status"], len(fork["questions"])) == ("waiting", 1)
    done = http.post(
        f"/api/runs/{fork['run_id']}/answers", json={"answers": {fork["questions"][0]["key"]: "no"}, "mode": "wait"}
    )
    assert done.json()["status"] == "completed"


def test_waiting_run_is_stopped(http):
    run = http.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
    assert http.post(f"/api/runs/{run['run_id']}/stop", json={"reason": "not wanted"}).json()["stopping"] is True
    told = http.get(f"/api/runs/{run['run_id']}").json()
    assert (told["status"], told["stop"]["detail"], told["questions"]) == ("cancelled", "not wanted", [])


def test_leaving_a_run_that_is_waited_for_stops_it_if_asked_to(tmp_path):
    body = json.dumps({"input": "long", "on_disconnect": "stop"}).encode()
    head = (
        f"POST /api/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with serving(tmp_path, KANAME_TEST_PACE="0.1") as served, client(served) as http:

        def runs():
            return http.get("/api/runs").json()["runs"]

        with socket.create_connection(("127.0.0.1", served.port)) as waiting:
            waiting.sendall(head.encode() + body)
            wait_until(runs)
        wait_until(lambda: runs()[0]["status"] != "running")
        assert http.get("/api/runs").json()["runs"][0]["status"] == "cancelled"


ILL_TYPED = (
    ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": "x"}], "stream_options": 1}),
    ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": "x"}], "response_format": "x"}),
    ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": 1}]}),
    (
        "/v1/chat/completions",
        {"model": "desk", "messages": [{"role": "assistant", "tool_calls": [1]}, {"role": "user", "content": "x"}]},
    ),
    ("/v1/responses", {"model": "desk", "input": "x", "text": "x"}),
    ("/v1/responses", {"model": "desk", "input": [{"role": "user", "content": [1]}]}),
    ("/api/runs", {"input": [{"role": "user", "content": 1}]}),
    ("/api/runs", {"input": [{"role": "assistant", "tool_calls": [{}]}, {"role": "user", "content": "x"}]}),
    ("/ag-ui/desk", {"messages": 1}),
    ("/ag-ui/desk", {"resume": "x"}),
    ("/ag-ui/desk", {"messages": [{"role": "user", "content": [{"type": "image", "source": "x"}]}]}),
    ("/vercel/desk", {"messages": [{"role": "assistant", "parts": [{"state": "approval-responded", "approval": "x"}]}]}),
    ("/vercel/desk", {"messages": 1}),
)


@pytest.mark.parametrize(("path", "body"), ILL_TYPED)
def test_request_of_the_wrong_kind_is_told_so(http, path, body):
    before = len(http.get("/api/runs", params={"limit": 10_000}).json()["runs"])
    answer = http.post(path, json=body)
    assert answer.status_code in (400, 404), answer.text
    assert len(http.get("/api/runs", params={"limit": 10_000}).json()["runs"]) == before


def test_ids_with_a_thousand_digits_are_unknown(http):
    assert http.get("/v1/responses/resp_x." + "9" * 5_000).status_code == 404


def test_answer_that_comes_after_a_stop_does_not_undo_it(http, served):
    before = (served.folder / "paid.txt").read_text() if (served.folder / "paid.txt").exists() else ""
    run = http.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
    name, key = run["run_id"], run["questions"][0]["key"]
    http.post(f"/api/runs/{name}/stop")
    late = [
        http.post(f"/api/runs/{name}/answers", json={"answers": {key: "yes"}}),
        http.post(f"/api/runs/{name}/resume", json={"answers": {key: "yes"}}),
        http.post("/ag-ui/cashier", json={"resume": [{"interruptId": f"{name}:{key}", "status": "resolved"}]}),
        http.post(
            "/v1/responses",
            json={
                "model": "cashier",
                "input": [{"type": "mcp_approval_response", "approval_request_id": f"mcpr_{name}:{key}", "approve": True}],
            },
        ),
    ]
    assert [answer.status_code for answer in late] == [409, 409, 400, 400]
    assert http.get(f"/api/runs/{name}").json()["status"] == "cancelled"
    assert ((served.folder / "paid.txt").read_text() if (served.folder / "paid.txt").exists() else "") == before


def test_fork_at_no_fact_is_told_so(http):
    run = http.post("/api/runs", json={"input": "x"}).json()["run_id"]
    for at in (0, -1, 99):
        answer = http.post(f"/api/runs/{run}/fork", json={"at": at})
        assert answer.status_code in (400, 409), answer.text


@pytest.mark.parametrize("body", [{"seq": 3}, {"at": "three"}, {"at": 0}, {"keep": "c1"}, []])
def test_request_that_does_not_fit_names_the_fields_that_there_are(http, body):
    run = http.post("/api/runs", json={"input": "x"}).json()["run_id"]
    answer = http.post(f"/api/runs/{run}/fork", json=body)
    assert answer.status_code == 400
    fields = answer.json()["notice"]["values"]["fields"].split(", ")
    described = http.get("/openapi.json").json()["components"]["schemas"]["Fork"]["properties"]
    assert fields == [*described]
    assert all(one["description"] for one in described.values())
    assert ", ".join(fields) in answer.json()["detail"]


def test_story_is_json_whatever_is_in_it(http):
    run = http.post("/api/runs", json={"input": "surrogate"}).json()["run_id"]

    def refuse(word):
        raise AssertionError(word)

    json.loads(http.get(f"/api/runs/{run}/story").text, parse_constant=refuse)


def test_lists_are_read_a_page_at_a_time(served, http):
    for number in range(7):
        answer = http.post("/api/runs", json={"input": f"page {number}", "agent": "desk", "session_id": f"paged-{number % 4}"})
        assert answer.status_code == 201
    for path, name, of in (("/api/runs", "runs", "run_id"), ("/api/sessions", "sessions", "id")):
        for wanted in (
            {},
            {"agent": "desk"},
            {"user_id": "nobody"},
            *([{"q": "page"}, {"status": "completed"}] if of == "run_id" else []),
        ):
            whole = http.get(path, params={**wanted, "limit": 1000}).json()
            assert whole["next"] is None
            pages, answer = [], {"next": ""}
            while answer["next"] is not None:
                answer = http.get(path, params={**wanted, "limit": 2, "before": answer["next"]}).json()
                assert len(answer[name]) == 2 or answer["next"] is None
                pages += answer[name]
            assert [one[of] for one in pages] == [one[of] for one in whole[name]], (path, wanted)
    assert http.get("/api/runs", params={"before": "soon"}).status_code == 400


def test_questions_are_read_a_page_at_a_time(http):
    for _ in range(5):
        http.post("/api/runs", json={"input": "go", "agent": "cashier"})
    whole = http.get("/api/questions", params={"limit": 1000}).json()
    assert whole["next"] is None
    pages, answer = [], {"next": ""}
    while answer["next"] is not None:
        answer = http.get("/api/questions", params={"limit": 2, "before": answer["next"]}).json()
        pages += answer["questions"]
    assert len(pages) >= 5
    assert pages == whole["questions"]


async def test_run_that_ends_while_it_is_looked_at_is_told_as_ended(monkeypatch):
    """Its card and its result are two readings of the journal."""
    agent = Agent(ScriptedModel(["done"]), journal=MemoryJournal())
    service = kaname.serve.app(agent, recover=False, mcp=False, a2a=False).service
    run = agent.run("go", run_id="r")
    await (await run.begun()).let_go()
    first = await service.agent_result("r")
    readings = [first]

    async def later(run_id):
        if readings:  # it ends right after its result was read
            await agent.resume("r")
            return readings.pop()
        return await agent.result(run_id)

    monkeypatch.setattr(service, "agent_result", later)
    card, result = await service.card_and_result("r")
    assert (card.status, result.stop.kind, result.output) == ("completed", "completed", "done")


def test_figures_count_all_runs(http):
    http.post("/api/runs", json={"input": "please add", "agent": "desk"})
    listed = http.get("/api/runs", params={"limit": 10_000, "agent": "desk"}).json()["runs"]
    outer = [one for one in listed if not one["parent"]]
    told = http.get("/api/figures", params={"agent": "desk"}).json()
    assert told["all"]["runs"] == len(outer) == sum(one["runs"] for one in told["days"])
    assert told["all"]["tokens"] == sum(one["usage"]["input_tokens"] + one["usage"]["output_tokens"] for one in outer)
    assert told["all"]["by_status"]["completed"] == sum(one["status"] == "completed" for one in outer)
    assert told["timed"] == len(listed)


@pytest.mark.parametrize("address", ["events", "facts"])
def test_finished_run_that_was_read_to_its_end_is_not_followed_again(http, address):
    """204 is what ends the reconnecting of a browser's EventSource."""
    run = http.post("/api/runs", json={"input": "x"}).json()
    path, accept = f"/api/runs/{run['run_id']}/{address}", {"accept": "text/event-stream"}
    told = list(events(iter(http.get(path, headers=accept).text.splitlines())))
    last = next(one["id"] for one in reversed(told) if "id" in one)
    assert last == str(run["facts"])
    for headers, params in (({"last-event-id": last}, {}), ({}, {"after": last}), ({"last-event-id": "999"}, {})):
        answer = http.get(path, headers={**accept, **headers}, params=params)
        assert (answer.status_code, answer.content) == (204, b"")
    before = http.get(path, headers={**accept, "last-event-id": str(int(last) - 1)})
    assert before.status_code == 200
    assert f"id: {last}\n" in before.text


def test_run_that_waits_is_followed_from_its_last_event_on(http):
    run = http.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
    path = f"/api/runs/{run['run_id']}"
    with http.stream("GET", f"{path}/events", headers={"last-event-id": str(run["facts"])}) as answer:
        assert answer.status_code == 200
        http.post(f"{path}/stop")
        assert list(events(answer.iter_lines()))[-1]["data"]["data"]["kind"] == "cancelled"
