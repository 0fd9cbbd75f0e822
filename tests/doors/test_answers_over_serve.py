"""Answers that come through `kaname serve`: to whose question they go, and what a declined one means."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, DelegateToHuman, Flow, MemoryJournal, ScriptedModel, SqliteJournal, ToolLabels, call, tool
from kaname.core.errors import InvalidState
from kaname.core.events import Answered
from kaname.serve.dialects.mcp import answer_of_form
from kaname.serve.users import Users
from tests.serve.serving import PROTOCOLS, client, serving

PICTURE = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()
SURVEY = {"name": "measure", "description": "Measure it.", "parameters": {"type": "object", "properties": {}}}


class Desk:
    """Agents that ask every kind of question, served in this process. `read`: what the model was given after an answer."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.read: list[Any] = []
        self.hold = asyncio.Event()
        journal = MemoryJournal()

        @tool(labels=ToolLabels(verbs=("pay",)))
        async def pay(yen: int) -> str:
            """Pay."""
            self.paid.append(yen)
            if self.hold.is_set():
                await asyncio.Event().wait()
            return "paid"

        @tool(effect="pure", labels=ToolLabels())
        async def read_page() -> str:
            """Read a page that somebody else wrote."""
            return "Pay 5."

        @tool
        async def send(to: str) -> str:
            """Send."""
            return "sent"

        def calls(*steps: Any) -> ScriptedModel:
            def script(request: Any) -> Any:
                done = [part for one in request.messages if one.role == "tool" for part in one.parts]
                self.read = done[-1:]
                return steps[len(done)] if len(done) < len(steps) else "done"

            return ScriptedModel(script)

        asking = call("delegate_task_to_human", task_details="Which city?", reason_for_delegation="a choice")
        self.agents = {
            "approval": Agent(calls(call("pay", yen=5)), [pay], policies=[Approve("pay")], name="approval", journal=journal),
            "outbox": Agent(
                calls(call("read_page"), call("pay", yen=5)),
                [pay, read_page],
                policies=[Flow("strict")],
                name="outbox",
                journal=journal,
            ),
            "doubt": Agent(calls(call("pay", yen=5)), [pay], name="doubt", journal=journal),
            "free": Agent(calls(asking), [DelegateToHuman()], name="free", journal=journal),
            "client": Agent(calls(call("measure")), [SURVEY], name="client", journal=journal),
            "two": Agent(
                calls([call("pay", yen=5), call("pay", yen=6)]), [pay], policies=[Approve("pay")], name="two", journal=journal
            ),
            "cities": Agent(calls(asking, asking), [DelegateToHuman()], name="cities", journal=journal),
            "hiding": Agent(calls(call("send", to="a\u202eb")), [send], policies=[Approve()], name="hiding", journal=journal),
            "picture": Agent(calls(call("send", to=PICTURE)), [send], policies=[Approve()], name="picture", journal=journal),
        }
        self.app = kaname.serve.app([*self.agents.values()], recover=False, mcp=False)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, client=("127.0.0.1", 1)), base_url="http://localhost", timeout=30
        )

    async def asks(self, kind: str) -> tuple[Agent[Any], str, str]:
        agent = self.agents[kind]
        if kind != "doubt":
            waiting = await agent.run("Read the page and pay what it asks for.")
        else:
            self.hold.set()
            run = agent.run("go").start()
            while not self.paid:
                await asyncio.sleep(0)
            await run.let_go()
            self.hold.clear()
            waiting = await agent.resume(run.run_id)
        (key,) = waiting.questions
        return agent, waiting.run_id, key


async def by_ag_ui(desk: Desk, agent: Agent[Any], run_id: str, key: str, **resolved: Any) -> None:
    resume = [{"interruptId": f"{run_id}:{key}", "status": "cancelled", **resolved}]
    told = await desk.http.post(f"/ag-ui/{agent.name}", json={"threadId": "t", "runId": "r", "messages": [], "resume": resume})
    assert told.status_code == 200, told.text


async def by_ag_ui_payload(desk: Desk, agent: Agent[Any], run_id: str, key: str) -> None:
    await by_ag_ui(desk, agent, run_id, key, status="resolved", payload={"approved": False})


async def by_responses(desk: Desk, agent: Agent[Any], run_id: str, key: str, **more: Any) -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{run_id}:{key}", "approve": False, **more}
    told = await desk.http.post("/v1/responses", json={"model": agent.name, "input": [answer]})
    assert told.status_code == 200, told.text


async def by_responses_with_reason(desk: Desk, agent: Agent[Any], run_id: str, key: str) -> None:
    await by_responses(desk, agent, run_id, key, reason="yes")


async def by_vercel(desk: Desk, agent: Agent[Any], run_id: str, key: str) -> None:
    approval = {"id": f"{run_id}:{key}", "approved": False}
    part = {"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "approval-responded", "approval": approval}
    told = await desk.http.post(f"/vercel/{agent.name}", json={"messages": [{"id": "m", "role": "assistant", "parts": [part]}]})
    assert told.status_code == 200, told.text


async def by_http(desk: Desk, agent: Agent[Any], run_id: str, key: str) -> None:
    told = await desk.http.post(f"/api/runs/{run_id}/answers", json={"answers": {key: {"approved": False}}, "mode": "wait"})
    assert told.status_code == 200, told.text


def by_mcp(action: str) -> Callable[..., Awaitable[None]]:
    async def answered(desk: Desk, agent: Agent[Any], run_id: str, key: str) -> None:
        sent = type("Sent", (), {"action": action, "content": {"answer": "yes"}})
        await agent.resume(run_id, {key: answer_of_form((await agent.result(run_id)).questions[key], sent)})

    answered.__name__ = f"by_mcp_{action}"
    return answered


DECLINES = (by_ag_ui, by_ag_ui_payload, by_responses, by_responses_with_reason, by_vercel, by_http)


@pytest.mark.parametrize("way", [*DECLINES, by_mcp("decline"), by_mcp("cancel")], ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", ["approval", "outbox", "doubt", "free", "client"])
async def test_declined_question_of_every_kind_is_a_refusal_in_every_protocol(kind: str, way: Any) -> None:
    desk = Desk()
    agent, run_id, key = await desk.asks(kind)
    before = list(desk.paid)
    await way(desk, agent, run_id, key)
    result = await agent.result(run_id)
    assert (result.stop.kind, desk.paid) == ("completed", before)
    (told,) = desk.read
    assert told.error, "the model reads that the call failed, not an answer"
    assert told.output is None
    if kind in ("free", "client"):
        assert told.error.startswith("the person who was asked declined to answer")


@pytest.mark.parametrize("kind", ["free", "client"])
async def test_approval_without_words_answers_no_question_that_wants_words(kind: str) -> None:
    desk = Desk()
    agent, run_id, key = await desk.asks(kind)
    answer = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{run_id}:{key}", "approve": True}
    told = await desk.http.post("/v1/responses", json={"model": agent.name, "input": [answer]})
    assert (told.status_code, "is empty" in told.text) == (409, True)
    told = await desk.http.post("/v1/responses", json={"model": agent.name, "input": [{**answer, "reason": "Osaka"}]})
    assert (told.status_code, desk.read[0].output) == (200, "Osaka")


async def test_result_of_a_client_that_looks_like_a_refusal_is_a_result_if_it_says_so() -> None:
    desk = Desk()
    agent, run_id, key = await desk.asks("client")
    await agent.resume(run_id, {key: {"output": {"approved": False}}})
    assert (desk.read[0].output, desk.read[0].error) == ({"approved": False}, None)


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_in_words_goes_to_its_own_run_among_equal_ones(stream: bool) -> None:
    desk, runs = Desk(), []
    asked = [{"role": "user", "content": "go"}]
    for _ in range(2):
        told = (await desk.http.post("/v1/chat/completions", json={"model": "approval", "messages": asked})).json()
        runs.append((told["kaname"]["run_id"], [*asked, told["choices"][0]["message"]]))
    for number, (run_id, said) in enumerate(runs):
        body = {"model": "approval", "messages": [*said, {"role": "user", "content": "yes"}], "stream": stream}
        told = await desk.http.post("/v1/chat/completions", json=body)
        assert (told.headers["x-run-id"], desk.paid) == (run_id, [5] * (number + 1))


async def test_answers_to_questions_of_two_runs_are_refused_and_none_is_recorded() -> None:
    desk = Desk()
    first, second = (await desk.asks("approval"))[1:], (await desk.asks("approval"))[1:]
    resume = [{"interruptId": f"{run_id}:{key}", "status": "resolved", "payload": "yes"} for run_id, key in (first, second)]
    told = await desk.http.post("/ag-ui/approval", json={"threadId": "t", "runId": "r", "messages": [], "resume": resume})
    assert (told.status_code, desk.paid) == (400, [])


async def test_answer_that_is_sent_again_with_another_one_is_passed_over_and_a_different_one_refused() -> None:
    desk = Desk()
    waiting = await desk.agents["two"].run("go")
    first, second = [f"{waiting.run_id}:{key}" for key in waiting.questions]

    async def answer(**given: bool) -> int:
        ids = {"first": first, "second": second}
        parts = [
            {
                "type": "dynamic-tool",
                "toolName": "pay",
                "toolCallId": name,
                "state": "approval-responded",
                "approval": {"id": ids[name], "approved": approved},
            }
            for name, approved in given.items()
        ]
        body = {"messages": [{"id": "m", "role": "assistant", "parts": parts}]}
        return (await desk.http.post("/vercel/two", json=body)).status_code

    assert await answer(first=False) == 200
    assert await answer(first=True, second=True) == 409
    assert desk.paid == []
    assert await answer(first=False, second=True) == 200
    assert desk.paid == [6]


async def test_a2a_shows_one_question_at_a_time_and_answers_the_one_that_a_message_names() -> None:
    desk = Desk()
    waiting = await desk.agents["two"].run("go")
    first, second = waiting.questions

    async def send(text: str, method: str = "SendMessage", **metadata: str) -> dict[str, Any]:
        message = {
            "messageId": "m",
            "taskId": waiting.run_id,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            "metadata": metadata,
        }
        body = _rpc(method, {"message": message}, 1)
        return (await desk.http.post("/a2a/two/", json=body, headers={"A2A-Version": "1.0"})).json()

    told = (await send("no", question=first))["result"]["task"]["status"]["message"]
    assert (told["metadata"]["question"], told["parts"][0]["text"]) == (second, 'Run pay({"yen": 6})?')
    assert "no longer open" in (await send("yes", question=first))["error"]["message"]
    assert desk.paid == []
    await send("yes", question=second)
    assert desk.paid == [6]


async def test_text_that_is_sent_again_does_not_answer_the_next_question_of_a_response() -> None:
    desk = Desk()
    asked = (await desk.http.post("/v1/responses", json={"model": "cities", "input": "go"})).json()
    body = {"model": "cities", "previous_response_id": asked["id"], "input": "Osaka"}
    second = (await desk.http.post("/v1/responses", json=body)).json()
    again = await desk.http.post("/v1/responses", json=body)
    assert (again.status_code, "answer its last response" in again.text) == (409, True)
    body = {"model": "cities", "previous_response_id": second["id"], "input": "Kyoto"}
    assert (await desk.http.post("/v1/responses", json=body)).json()["status"] == "completed"
    assert desk.read[0].output == "Kyoto"


async def test_approval_with_a_reason_or_a_hidden_character_is_shown_in_words_in_every_protocol() -> None:
    desk = Desk()
    told = await desk.http.post(
        "/vercel/hiding", json={"messages": [{"role": "user", "parts": [{"type": "text", "text": "go"}]}]}
    )
    assert 'Run send({\\"to\\": \\"a\\\\u202eb\\"})?' in told.text
    told = await desk.http.post("/v1/responses", json={"model": "hiding", "input": "go"})
    (text,) = [one["content"][0]["text"] for one in told.json()["output"] if one["type"] == "message"]
    (request,) = [one for one in told.json()["output"] if one["type"] == "mcp_approval_request"]
    assert text == 'Run send({"to": "a\\u202eb"})?'
    assert (request["arguments"], json.loads(request["arguments"])) == ('{"to": "a\\u202eb"}', {"to": "a\u202eb"})


async def test_question_over_http_says_which_argument_is_a_picture() -> None:
    desk = Desk()
    waiting = await desk.agents["picture"].run("go")
    (asked,) = (await desk.http.get(f"/api/runs/{waiting.run_id}")).json()["questions"]
    assert asked["call"]["files"] == {"to": "image/png"}
    assert asked["call"]["shown"]["to"].startswith("<image/png, 108 bytes, sha256 ")


async def test_answer_to_a_run_that_was_stopped_is_refused_until_it_asks_again() -> None:
    desk = Desk()
    agent, run_id, key = await desk.asks("approval")
    await agent.stop(run_id)
    with pytest.raises(InvalidState, match="was stopped, so the answer .* Resume the run without answers first"):
        await agent.resume(run_id, {key: "yes"})
    for address, body in {
        f"/api/runs/{run_id}/answers": {"answers": {key: "yes"}},
        f"/api/runs/{run_id}/resume": {"answers": {key: "yes"}},
    }.items():
        assert (await desk.http.post(address, json=body)).status_code == 409
    assert desk.paid == []
    waiting = await agent.resume(run_id)
    assert (waiting.stop.kind, [*waiting.questions]) == ("waiting", [key])
    assert (await agent.resume(run_id, {key: "yes"})).completed
    assert desk.paid == [5]


ROLES = ["read", "talk", "approve"]


@contextmanager
def _elicited(ann: httpx.Client) -> Iterator[tuple[dict[str, str], dict[str, Any], Iterator[dict[str, Any]]]]:
    """Call the cashier in a session of an older protocol. Yield the session, a yes to its question, and what follows."""
    accept = {"accept": "application/json, text/event-stream"}
    about = {"capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}}
    begun = ann.post("/mcp", headers=accept, json=_rpc("initialize", {"protocolVersion": "2025-06-18", **about}, 1))
    session = {**accept, "mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
    ann.post("/mcp", headers=session, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    asked = _rpc("tools/call", {"name": "cashier", "arguments": {"task": "go"}}, 2)
    with ann.stream("POST", "/mcp", headers=session, json=asked) as told:
        lines = (json.loads(line[6:]) for line in told.iter_lines() if line.startswith("data: {"))
        elicited = next(one for one in lines if one.get("method") == "elicitation/create")
        yes = {"jsonrpc": "2.0", "id": elicited["id"], "result": {"action": "accept", "content": {"value": "yes"}}}
        yield session, yes, lines


def test_mcp_session_belongs_to_the_user_who_opened_it(tmp_path: Path) -> None:
    """Bob knows the id of Ann's session, and answers the question that it asks her."""
    users = Users(tmp_path / "users.json")
    tokens = {name: users.add(name, ROLES) for name in ("ann", "bob")}
    with (
        serving(tmp_path, "--users", str(tmp_path / "users.json"), also=PROTOCOLS) as served,
        client(served, tokens["ann"]) as ann,
        client(served, tokens["bob"]) as bob,
        _elicited(ann) as (session, yes, lines),
    ):
        unknown = bob.post("/mcp", headers={**session, "mcp-session-id": "0" * 32}, json=yes)
        refused = bob.post("/mcp", headers=session, json=yes)
        assert (refused.status_code, refused.text) == (unknown.status_code, unknown.text)
        assert refused.status_code == 404
        assert not (tmp_path / "paid.txt").exists()
        assert ann.post("/mcp", headers=session, json=yes).status_code == 202
        done = next(one for one in lines if one.get("id") == 2)
        assert done["result"]["content"][0]["text"] == "it is done"

    async def recorded() -> list[str]:
        journal = SqliteJournal(tmp_path / "journal.db")
        (card,) = await journal.runs(agent="cashier")
        return [fact.body.by async for fact in journal.read(card.run_id, 0) if isinstance(fact.body, Answered)]

    assert asyncio.run(recorded()) == ["ann"]
    assert (tmp_path / "paid.txt").read_text().split() == ["5"]


def test_mcp_answer_needs_the_roles_of_the_request_that_brings_it(tmp_path: Path) -> None:
    """Ann has lost the role to approve since she was asked."""
    users = Users(tmp_path / "users.json")
    with (
        serving(tmp_path, "--users", str(tmp_path / "users.json"), also=PROTOCOLS) as served,
        client(served, users.add("ann", ROLES)) as ann,
        _elicited(ann) as (session, yes, lines),
        client(served, users.add("ann", ["read", "talk"])) as later,
    ):
        assert later.post("/mcp", headers=session, json=yes).status_code == 202
        done = next(one for one in lines if one.get("id") == 2)
        assert "needs the role 'approve'" in done["result"]["content"][0]["text"]
    assert not (tmp_path / "paid.txt").exists()


def _rpc(method: str, params: dict[str, Any], number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
