"""One reader of answers for Python, the terminal and every protocol: only a clear yes acts, and only "retry" repeats."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unicodedata import normalize

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kaname.serve
from kaname import Agent, Approve, MemoryJournal, ScriptedModel, Team, ToolContext, Workflow, call, tool
from kaname.cli.terminal.questions import parse_answers
from kaname.core.chunks import chunks_of
from kaname.core.errors import InvalidState
from kaname.core.events import Asked, Event, ModelReplied
from kaname.core.messages import ModelReply, ToolCall, assistant
from kaname.core.people.asking import question_in_words
from kaname.core.steps import CallModel
from kaname.serve.dialects.ag_ui import AgUiWriter
from kaname.serve.dialects.chat import ChatWriter
from kaname.serve.dialects.mcp import answer_of_form
from kaname.serve.dialects.responses_writer import ResponsesWriter
from kaname.serve.dialects.vercel import VercelWriter
from kaname.serve.users import Caller
from tests.properties import tries

YES = {"yes", "y", "ok", "okay", "true", "approve", "approved", "allow", "allowed"}
YES |= {word + end for word in ("はい", "承認", "許可", "同意", "了解") for end in ("", "する", "します", "しました", "です")}
YES |= {word + end for word in YES for end in ("する", "します", "しました", "です") if word.isascii()}


class Desk:
    """An agent that asks before it pays, and one whose payment a restart left in doubt, both served in this process."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.hold = asyncio.Event()
        journal = MemoryJournal()

        @tool
        async def pay(yen: int = 100) -> str:
            """Pay."""
            self.paid.append(yen)
            if self.hold.is_set():
                await asyncio.Event().wait()
            return "paid"

        def script(request: Any) -> Any:
            return "done" if request.messages[-1].role == "tool" else call("pay", yen=5)

        self.cashier = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], name="cashier", journal=journal)
        self.payer = Agent(ScriptedModel(script), [pay], name="payer", journal=journal)
        self.app = kaname.serve.app([self.cashier, self.payer], recover=False, mcp=False)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, client=("127.0.0.1", 1)), base_url="http://localhost", timeout=30
        )

    async def asks(self) -> tuple[Agent[Any], str, str]:
        """A run that waits for an approval."""
        waiting = await self.cashier.run("go")
        (key,) = waiting.questions
        return self.cashier, waiting.run_id, key

    async def doubts(self) -> tuple[Agent[Any], str, str]:
        """A run whose payment was made, and not recorded."""
        self.hold.set()
        run = self.payer.run("go").start()
        before = len(self.paid)
        while len(self.paid) == before:
            await asyncio.sleep(0)
        await run.let_go()
        self.hold.clear()
        waiting = await self.payer.resume(run.run_id)
        (key,) = waiting.questions
        assert waiting.questions[key].in_doubt
        return self.payer, run.run_id, key


Way = Callable[[Desk, Agent[Any], str, str, Any], Awaitable[Any]]


async def by_python(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    with suppress(InvalidState):
        await agent.resume(run_id, {key: payload})


async def by_terminal(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    questions = (await agent.result(run_id)).questions
    await by_python(desk, agent, run_id, key, parse_answers([text], questions)[key])


async def by_http(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    told = await desk.http.post(f"/api/runs/{run_id}/answers", json={"answers": {key: payload}, "mode": "wait"})
    assert told.status_code in (200, 409), told.text


async def by_ag_ui(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any, status: str = "resolved") -> None:
    resume = [{"interruptId": f"{run_id}:{key}", "status": status, "payload": payload}]
    told = await desk.http.post(f"/ag-ui/{agent.name}", json={"threadId": "t", "runId": "r", "messages": [], "resume": resume})
    assert told.status_code in (200, 409), told.text


async def by_ag_ui_cancelled(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    await by_ag_ui(desk, agent, run_id, key, payload, "cancelled")


async def by_responses(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{run_id}:{key}", "approve": payload}
    told = await desk.http.post("/v1/responses", json={"model": agent.name, "input": [answer]})
    assert told.status_code in (200, 409), told.text


async def by_responses_denied(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    """A denial whose reason may hold anything, a yes among it."""
    answer = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{run_id}:{key}", "approve": False}
    told = await desk.http.post("/v1/responses", json={"model": agent.name, "input": [{**answer, "reason": payload}]})
    assert told.status_code in (200, 409), told.text


async def by_vercel(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    approval = {"id": f"{run_id}:{key}", "approved": payload}
    part = {"type": "dynamic-tool", "toolName": "pay", "toolCallId": "c", "state": "approval-responded", "approval": approval}
    body = {"messages": [{"id": "m", "role": "assistant", "parts": [part]}]}
    told = await desk.http.post(f"/vercel/{agent.name}", json=body)
    assert told.status_code in (200, 409), told.text


async def by_a2a(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    part = {"text": payload} if isinstance(payload, str) else {"data": payload}
    message = {"messageId": "m", "taskId": run_id, "role": "ROLE_USER", "parts": [part]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    told = await desk.http.post(f"/a2a/{agent.name}/", json=body, headers={"A2A-Version": "1.0"})
    assert told.status_code == 200, told.text


async def by_chat(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    """The conversation is sent as a whole, and ends with the question and what the user says to it."""
    asked = (await agent.result(run_id)).questions[key]
    text = payload if isinstance(payload, str) else json.dumps(payload)
    said = [("user", "go"), ("assistant", question_in_words(run_id, asked)), ("user", text)]
    body = {"model": agent.name, "messages": [{"role": who, "content": what} for who, what in said]}
    told = await desk.http.post("/v1/chat/completions", json=body)
    assert told.status_code == 200, told.text
    assert told.json()["kaname"]["run_id"] == run_id


async def by_mcp(desk: Desk, agent: Agent[Any], run_id: str, key: str, payload: Any) -> None:
    """What a form of that content means; the client that sends it is tried in test_mcp.py."""

    class Sent:
        action, content = "accept", payload

    asked = (await agent.result(run_id)).questions[key]
    await by_python(desk, agent, run_id, key, answer_of_form(asked, Sent))


WAYS: tuple[Way, ...] = (
    *(by_python, by_terminal, by_http, by_ag_ui, by_ag_ui_cancelled),
    *(by_responses, by_responses_denied, by_vercel, by_a2a, by_mcp, by_chat),
)
NEVER = (by_ag_ui_cancelled, by_responses_denied)  # whatever the payload is, this is a no


def is_yes(payload: Any) -> bool:
    """A clear yes, said in another way than the product says it."""
    if isinstance(payload, str):
        return normalize("NFKC", payload).casefold().lstrip(" 　\"'「(*").rstrip(" 　.。!、,\"'」)*") in YES
    if isinstance(payload, dict):
        if {*payload} == {"args"}:
            return isinstance(payload["args"], dict)
        known = {*payload} <= {"approved", "args", "reason"} and isinstance(payload.get("args", {}), dict)
        return (
            known
            and payload.get("approved", False) is True
            and payload.get("reason") not in ("no", "reject", "いいえ", "false")
        )
    return payload is True


words = st.sampled_from(["yes", "no", "retry", "skip", "true", "false", "reject", "はい", "いいえ", "", "null", "ok but less"])
names = st.sampled_from(["approved", "approve", "answer", "value", "decision", "args", "reason", "result", "ok", "confirmed"])
plain = st.none() | st.booleans() | st.integers(-1, 2) | words | st.text(max_size=5)
payloads = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3), max_leaves=4
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@tries(72)
@given(payloads)
@example(None)
@example({"answer": "no"})
@example({"args": None})
@example({"args": None, "reason": "too expensive"})
@example({"args": {}, "reason": "no!"})
@example({"approved": True, "reason": "いいえ"})
@example("yes?")
@example("はい？")
@example("-ok")
@example({"approve": False})
@example({"approved": "false"})
@example({"decision": "reject"})
@example({"approved": False, "args": {"yen": 7}})
@example({})
@example({"answer": ""})
@example({"value": "no"})
@example({"approved": True, "approve": False})
@example(1)
def test_approval_needs_a_clear_yes_in_every_way_in(way: Way, payload: Any) -> None:
    if way is not by_mcp and is_yes(payload) and way not in NEVER:
        return
    if way is by_mcp and isinstance(payload, dict) and is_yes(payload.get("answer")):
        return

    async def go() -> None:
        desk = Desk()
        agent, run_id, key = await desk.asks()
        await way(desk, agent, run_id, key, payload)
        assert desk.paid == []
        result = await agent.result(run_id)
        assert result.questions.get(key) is not None or result.completed  # asked once more, or refused

    asyncio.run(go())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@tries(60)
@given(payloads)
@example(True)
@example("yes")
@example({"approved": True})
@example({"args": {"yen": 7}})
@example("retry it, please")
@example("retry?")
@example("-retry")
@example({"approved": True, "reason": "go on"})
def test_call_in_doubt_is_repeated_only_by_the_word_retry(way: Way, payload: Any) -> None:
    said = payload.get("answer") if way is by_mcp and isinstance(payload, dict) else payload
    if isinstance(said, str) and said.strip().casefold() == "retry":
        return

    async def go() -> None:
        desk = Desk()
        agent, run_id, key = await desk.doubts()
        await way(desk, agent, run_id, key, payload)
        assert desk.paid == [5]

    asyncio.run(go())


@pytest.mark.parametrize(
    "word", ["yes", "Yes.", "はい。", "ハイ", "ﾊｲ", "ｙｅｓ", "OK", "承認します", "「はい」", " y ", "許可", "true"]
)
@pytest.mark.parametrize("way", [by_python, by_terminal, by_http, by_ag_ui, by_a2a, by_chat], ids=lambda way: way.__name__)
async def test_yes_in_english_and_japanese_is_a_yes_in_every_way_in(way: Way, word: str) -> None:
    desk = Desk()
    await way(desk, *await desk.asks(), word)
    assert desk.paid == [5]


@pytest.mark.parametrize(("way", "payload"), [(by_responses, True), (by_vercel, True), (by_mcp, {"answer": "yes"})])
async def test_yes_of_a_protocol_is_a_yes(way: Way, payload: Any) -> None:
    desk = Desk()
    await way(desk, *await desk.asks(), payload)
    assert desk.paid == [5]


@pytest.mark.parametrize("way", [by_python, by_terminal, by_http, by_ag_ui, by_a2a], ids=lambda way: way.__name__)
async def test_changed_arguments_that_do_not_fit_leave_the_question_open(way: Way) -> None:
    desk = Desk()
    agent, run_id, key = await desk.asks()
    for args in ({"yen": "much"}, {"dollars": 3}):
        await way(desk, agent, run_id, key, {"args": args})
        assert (await agent.result(run_id)).questions.keys() == {key}
    assert desk.paid == []
    await way(desk, agent, run_id, key, {"args": {"yen": "7"}})
    assert desk.paid == [7]


async def test_question_in_doubt_says_so_and_shows_its_options_in_every_protocol() -> None:
    desk = Desk()
    agent, run_id, key = await desk.doubts()
    shown = (await desk.http.get(f"/api/runs/{run_id}")).json()["questions"][0]
    assert (shown["in_doubt"], shown["options"]) == (True, ["retry", "skip"])
    yes = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{run_id}:{key}", "approve": True}
    refused = await desk.http.post("/v1/responses", json={"model": agent.name, "input": [yes]})
    assert refused.status_code == 409
    assert "retry" in refused.json()["error"]["message"]
    responses = (await desk.http.get(f"/v1/responses/resp_{run_id}")).json()
    said = [part["text"] for item in responses["output"] if item["type"] == "message" for part in item["content"]]
    again = await desk.http.post("/v1/responses", json={"model": agent.name, "input": [{**yes, "reason": "skip"}]})
    assert again.json()["status"] == "completed"
    assert desk.paid == [5]
    assert any("may already have taken effect" in text and "retry, skip" in text for text in said)


@pytest.mark.parametrize(
    ("prompt", "options", "in_doubt"),
    [("pay() may already have taken effect.", ("retry", "skip"), True), ("Which city?", ("Tokyo", "Osaka", "Nagoya"), False)],
)
def test_every_protocol_shows_a_question_with_its_options(prompt: str, options: tuple[str, ...], in_doubt: bool) -> None:
    (waiting,) = chunks_of(Event("r", 1, 1.0, "a", Asked("k", prompt, options, "c", in_doubt)))
    writers = [AgUiWriter("r", "t", "n"), VercelWriter("r"), ResponsesWriter("r", None, {}), ChatWriter("r", "a")]
    for writer in writers:
        told = (writer.begin() + writer.take(waiting) + writer.end()).decode()
        assert prompt in told, type(writer)
        assert ", ".join(options) in told, type(writer)
    told = (writers[0].take(waiting) + writers[0].end()).decode()
    assert ('"reason":"tool_in_doubt"' in told.replace(": ", ":")) is in_doubt


PAY = ToolCall("c9", "pay", {"yen": 99_999})


@pytest.mark.parametrize("about", [PAY, None], ids=["a child's call", "a child's question"])
def test_every_protocol_shows_what_a_child_asks_and_not_only_the_call_that_waits_for_it(about: ToolCall | None) -> None:
    asked = Asked("run:c1/child:approve:c9", "Run pay?" if about else "Buy it all?", ("yes", "no"), "c1", about=about)
    delegating = ModelReply(assistant("", ToolCall("c1", "delegate", {"task": "the rent"})), "tool_use")
    facts = [Event("r", 1, 1.0, "a", ModelReplied(delegating, CallModel())), Event("r", 2, 2.0, "a", asked)]
    for writer in (AgUiWriter("r", "t", "n"), VercelWriter("r"), ResponsesWriter("r", None, {}), ChatWriter("r", "a")):
        chunks = [chunk for fact in facts for chunk in chunks_of(fact)]
        told = b"".join([writer.begin(), *map(writer.take, chunks), writer.end()]).decode()
        shown = asked.prompt in told or (about is not None and "99999" in told.replace("\\", ""))
        assert shown, type(writer)


@pytest.mark.parametrize("way", [by_responses, by_vercel], ids=lambda way: way.__name__)
async def test_option_in_the_middle_can_be_chosen_by_its_name(way: Way) -> None:
    """A protocol that knows only approve and deny names the option in its reason."""
    flow = Workflow("trip", journal=MemoryJournal())
    flow.ask("Which city?", ["Tokyo", "Osaka", "Nagoya"], name="city")
    app = kaname.serve.app(flow, recover=False, mcp=False, a2a=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as http:
        run_id = (await http.post("/api/runs", json={"input": "{}"})).json()["run_id"]
        (key,) = (await flow.agent.result(run_id)).questions
        for sent, status in (({"approve": True}, 409), ({"approve": False}, 409), ({"approve": True, "reason": "Osaka"}, 200)):
            if way is by_responses:
                answer = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{run_id}:{key}", **sent}
                told = await http.post("/v1/responses", json={"model": "trip", "input": [answer]})
            else:
                approval = {"id": f"{run_id}:{key}", "approved": sent["approve"], "reason": sent.get("reason")}
                part = {"type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": "approval-responded"}
                message = {"id": "m", "role": "assistant", "parts": [{**part, "approval": approval}]}
                told = await http.post("/vercel/trip", json={"messages": [message]})
            assert told.status_code == status, told.text
        assert (await flow.agent.result(run_id)).output == "Osaka"


async def test_question_of_a_child_is_shown_with_its_call_and_answered_over_http() -> None:
    desk = Desk()

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have the cashier do it."""
        return str((await context.run_child(desk.cashier, "pay")).output)

    lead = Agent(ScriptedModel([call("delegate"), "all done"]), [delegate], name="lead", journal=MemoryJournal())
    app = kaname.serve.app(lead, recover=False, mcp=False, a2a=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as http:
        started = await http.post("/api/runs", json={"input": "go"})
        assert started.status_code == 201, started.text
        (question,) = started.json()["questions"]
        assert (question["call"]["name"], question["call"]["arguments"]) == ("pay", {"yen": 5})
        assert len((await http.get("/api/questions")).json()["questions"]) == 1
        body = {"answers": {question["key"]: "yes"}, "mode": "wait"}
        done = await http.post(f"/api/runs/{started.json()['run_id']}/answers", json=body)
        assert (done.json()["output"], desk.paid) == ("all done", [5])


async def test_large_number_is_shown_and_changed_exactly() -> None:
    """A browser cannot hold it: it reads and sends the text."""
    desk = Desk()
    _, run_id, key = await desk.asks()
    large = 9_007_199_254_740_993
    (question,) = (await desk.http.get(f"/api/runs/{run_id}")).json()["questions"]
    assert (question["call"]["shown"], json.loads(question["call"]["text"])) == ({"yen": "5"}, {"yen": 5})
    for text, status in (("nonsense", 400), ("[1]", 409), (f'{{"yen": {large}}}', 200)):
        body = {"answers": {key: {"args_text": text}}, "mode": "wait"}
        assert (await desk.http.post(f"/api/runs/{run_id}/answers", json=body)).status_code == status
    assert desk.paid == [large]


async def test_question_of_a_task_is_seen_by_those_who_answer_for_the_agent_that_started_it(tmp_path: Path) -> None:
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return "paid"

    worker = Agent(ScriptedModel([call("pay", yen=5), "paid"]), [pay], name="worker", policies=[Approve("pay")])
    start = call("delegate_to_agent", agent="worker", task="pay", background=True)
    lead = Agent(ScriptedModel([start, "later"]), name="lead", team=Team((worker,), background=True), journal=tmp_path / "j.db")
    run = await lead.run("go", user_id="ann")
    assert run.output == "later"
    async with asyncio.timeout(60):
        while not (await lead.result(run.run_id)).questions:
            await asyncio.sleep(0.02)
    roles = {"eve": "approve:lead", "bob": "approve:worker"}
    made = kaname.serve.app(lead, who=lambda scope: _caller(scope, roles), recover=False, mcp=False, a2a=False)
    async with (
        made.lifespan(),
        httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url="http://localhost") as http,
    ):
        seen = {name: (await http.get("/api/questions", headers={"x-name": name})).json()["questions"] for name in roles}
    assert [len(seen[name]) for name in ("eve", "bob")] == [1, 0]


def _caller(scope: Any, roles: dict[str, str]) -> Caller:
    name = dict(scope["headers"]).get(b"x-name", b"").decode()
    return Caller(name, frozenset([roles[name]]))
