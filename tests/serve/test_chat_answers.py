"""A question of an agent, answered in the chat: the next request of the same conversation goes on with the same run."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, DelegateToHuman, MemoryJournal, ScriptedModel, call, tool
from kaname.serve.users import Users

_CODE = re.compile(r" \(question [0-9a-f]{12}\)$")  # which question of which run it is


class Desk:
    """A conversation of one user with an agent that asks before it pays, in the way of a chat client."""

    def __init__(self, http: httpx.AsyncClient, paid: list[int]) -> None:
        self.http, self.paid = http, paid
        self.said: list[dict[str, Any]] = []

    async def say(self, text: str, system: str = "", **more: Any) -> dict[str, Any]:
        self.said.append({"role": "user", "content": text})
        before = [{"role": "system", "content": system}] if system else []
        answer = await self.http.post("/v1/chat/completions", json={"model": "desk", "messages": [*before, *self.said], **more})
        assert answer.status_code == 200, answer.text
        told = _streamed(answer.text) if more.get("stream") else answer.json()
        self.said.append({"role": "assistant", "content": told["choices"][0]["message"]["content"]})
        return {**told["kaname"], "text": _CODE.sub("", self.said[-1]["content"])}

    async def runs(self) -> list[dict[str, Any]]:
        return (await self.http.get("/api/runs")).json()["runs"]


def _streamed(text: str) -> dict[str, Any]:
    """Put a stream together, as a client does."""
    pieces = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
    whole = "".join([piece["choices"][0]["delta"].get("content", "") for piece in pieces])
    return {"choices": [{"message": {"content": whole}}], "kaname": pieces[-1]["kaname"]}


@pytest.fixture
def world(tmp_path: Path) -> tuple[Any, list[int], dict[str, str]]:
    paid: list[int] = []

    @tool
    async def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    def script(request: Any) -> Any:
        last = request.messages[-1]
        if last.role == "tool":
            done = [one for one in request.messages if one.role == "tool"]
            first = next(one.text for one in request.messages if one.role == "user")
            if len(done) == 1 and ("again" in first or "same" in first):
                return call("pay", yen=6 if "again" in first else 5)
            return "it is done"
        if "twice" in last.text:
            return [call("pay", yen=5), call("pay", yen=6)]
        return ["Let me see.", call("pay", yen=5)] if "pay" in last.text else f"heard {last.text}"

    agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], name="desk", journal=MemoryJournal())
    users = Users(tmp_path / "users.json")
    tokens = {
        name: users.add(name, roles)
        for name, roles in {"ann": ["talk", "approve"], "bob": ["talk", "approve"], "tom": ["talk"]}.items()
    }
    return kaname.serve.app(agent, users=users, recover=False, mcp=False, a2a=False), paid, tokens


def _client(world: Any, name: str) -> Desk:
    app, paid, tokens = world
    headers = {"authorization": f"Bearer {tokens[name]}"}
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    return Desk(httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30, headers=headers), paid)


@pytest.fixture
async def desk(world: Any) -> AsyncIterator[Desk]:
    made = _client(world, "ann")
    async with made.http:
        yield made


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("word", "paid"), [("yes", [5]), ("いいえ", [])])
async def test_answer_goes_on_with_the_run_that_asked(desk, stream, word, paid):
    asked = await desk.say("please pay", stream=stream)
    assert asked["text"].endswith('Run pay({"yen": 5})?')
    assert asked["status"] == "waiting"
    done = await desk.say(word, stream=stream)
    assert (done["run_id"], done["status"], done["text"]) == (asked["run_id"], "completed", "it is done")
    assert desk.paid == paid
    assert len(await desk.runs()) == 1
    after = await desk.say("thanks")
    assert (after["text"], len(await desk.runs())) == ("heard thanks", 2), "the conversation goes on with a run of its own"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("word", ["what would that cost?", "yes, but less", "", "…"])
async def test_answer_that_is_not_clear_is_asked_for_once_more(desk, stream, word):
    asked = await desk.say("please pay", stream=stream)
    again = await desk.say(word, stream=stream)
    assert (again["run_id"], again["status"], desk.paid) == (asked["run_id"], "waiting", [])
    assert again["text"].endswith('Run pay({"yen": 5})?')
    assert (await desk.say("yes", stream=stream))["run_id"] == asked["run_id"]
    assert desk.paid == [5]


async def test_answers_are_given_one_by_one(desk):
    asked = await desk.say("pay twice")
    assert (asked["text"], len(asked["questions"])) == ('Run pay({"yen": 5})?', 2)
    half = await desk.say("yes")
    assert (half["run_id"], half["status"], half["text"]) == (asked["run_id"], "waiting", 'Run pay({"yen": 6})?')
    done = await desk.say("no")
    assert (done["run_id"], done["text"], desk.paid) == (asked["run_id"], "it is done", [5])


async def test_second_question_of_a_run_is_answered_after_the_first(desk):
    asked = await desk.say("pay, and again")
    second = await desk.say("yes")
    assert (second["run_id"], second["text"]) == (asked["run_id"], 'Run pay({"yen": 6})?')
    await desk.say("hm")
    done = await desk.say("yes")
    assert (done["run_id"], done["text"], desk.paid) == (asked["run_id"], "it is done", [5, 6])


async def test_conversation_is_known_again_although_its_system_prompt_has_changed(desk):
    await desk.say("hello", system="It is 9:00.")
    asked = await desk.say("please pay", system="It is 9:01.")
    assert (await desk.say("yes", system="It is 9:02."))["run_id"] == asked["run_id"]
    assert desk.paid == [5]


async def test_yes_of_another_conversation_answers_nothing(desk):
    asked = await desk.say("please pay")
    shown = desk.said[-1]["content"]
    for said in (
        [],
        [("user", "hello"), ("assistant", "May I?")],
        [("user", "please pay"), ("assistant", asked["text"])],
        [("user", "please pay"), ("assistant", f"{asked['text']} (question {'0' * 12})")],
        [("user", "please pay"), ("assistant", shown.replace("5", "6", 1))],
        [("user", "please pay"), ("assistant", f"{shown} Or rather not.")],
        [("user", "please pay"), ("assistant", shown), ("user", "hm"), ("assistant", "Well?")],
    ):
        other = Desk(desk.http, desk.paid)
        other.said = [{"role": who, "content": what} for who, what in said]
        assert (await other.say("yes"))["run_id"] != asked["run_id"]
    assert desk.paid == []


async def test_answer_goes_to_its_own_conversation_among_those_that_end_alike(desk):
    """A short one and a longer one with the same end wait at the same time, whichever is answered first."""
    short, long = Desk(desk.http, desk.paid), Desk(desk.http, desk.paid)
    in_short = await short.say("please pay")
    await long.say("hello")
    in_long = await long.say("please pay")
    assert (await long.say("no"))["run_id"] == in_long["run_id"]
    assert desk.paid == []
    assert (await short.say("yes"))["run_id"] == in_short["run_id"]
    assert desk.paid == [5]


async def test_answer_goes_to_its_question_although_the_client_has_cut_off_the_beginning(desk):
    asked = await desk.say("please pay")
    del desk.said[0]
    assert (await desk.say("yes"))["run_id"] == asked["run_id"]
    assert desk.paid == [5]


async def test_answer_goes_to_the_run_of_its_conversation_among_equal_ones(desk):
    older, newer = Desk(desk.http, desk.paid), Desk(desk.http, desk.paid)
    first, second = await older.say("please pay"), await newer.say("please pay")
    assert first["run_id"] != second["run_id"]
    assert (await older.say("yes"))["run_id"] == first["run_id"]
    assert desk.paid == [5]
    statuses = {run["run_id"]: run["status"] for run in await desk.runs()}
    assert (statuses[first["run_id"]], statuses[second["run_id"]]) == ("completed", "waiting")
    assert (await newer.say("no"))["run_id"] == second["run_id"]
    assert desk.paid == [5]


async def test_yes_that_is_sent_again_does_not_answer_the_next_question_that_reads_the_same(desk):
    await desk.say("pay the same")
    twin = Desk(desk.http, desk.paid)
    twin.said = list(desk.said)
    assert (await desk.say("yes"))["text"] == 'Run pay({"yen": 5})?'
    assert desk.paid == [5]
    await twin.say("yes")
    assert desk.paid == [5], "a client's second try of one request"
    await desk.say("yes")
    assert desk.paid == [5, 5]


async def test_answer_finds_its_run_when_a_file_was_recorded_with_its_text(desk, monkeypatch):
    monkeypatch.setattr(ScriptedModel, "takes", (), raising=False)  # a model that reads only text
    file = {"type": "file", "file": {"filename": "bill.txt", "file_data": "data:text/plain;base64,NSB5ZW4="}}
    asked = await desk.say([{"type": "text", "text": "please pay"}, file])
    assert asked["status"] == "waiting"
    done = await desk.say("yes")
    assert (done["run_id"], done["status"]) == (asked["run_id"], "completed")
    assert desk.paid == [5]


async def test_user_cannot_answer_for_another(desk, world):
    asked = await desk.say("please pay")
    for name in ("bob", "tom"):
        other = _client(world, name)
        async with other.http:
            other.said = list(desk.said)
            assert (await other.say("yes"))["run_id"] != asked["run_id"]
    assert desk.paid == []


async def test_user_who_may_not_approve_cannot_do_so_in_the_chat(world):
    tom = _client(world, "tom")
    async with tom.http:
        await tom.say("please pay")
        body = {"model": "desk", "messages": [*tom.said, {"role": "user", "content": "yes"}]}
        refused = await tom.http.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
        assert (await tom.runs())[0]["status"] == "waiting"
        assert (await tom.say("what is new?"))["text"] == "heard what is new?", "the conversation goes on"
    assert tom.paid == []


async def test_question_that_vercel_shows_as_a_text_is_answered_in_words():
    """It is not about a tool that could be approved: what the user says next is the answer."""
    steps = [call("delegate_task_to_human", task_details="Which city?", reason_for_delegation="a choice")]
    agent = Agent(
        ScriptedModel(lambda request: "so be it" if request.messages[-1].role == "tool" else steps[0]),
        [DelegateToHuman()],
        name="desk",
        journal=MemoryJournal(),
    )
    app = kaname.serve.app(agent, recover=False, mcp=False, a2a=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as http:
        said: list[dict[str, Any]] = []
        told = []
        for words in ("plan a trip", "Osaka"):
            said.append({"role": "user", "parts": [{"type": "text", "text": words}]})
            answer = await http.post("/vercel/desk", json={"messages": said})
            parts = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
            text = "".join([part["delta"] for part in parts if part["type"] == "text-delta"])
            said.append({"role": "assistant", "parts": [{"type": "text", "text": text}]})
            told.append((answer.headers["x-run-id"], parts[0]["messageId"], text))
    (first, before, asked), (second, after, done) = told
    assert "Which city?" in asked
    assert (second, done) == (first, "so be it")
    called = [part for part in parts if part["type"].startswith("tool-")]
    assert [part["type"] for part in called] == ["tool-input-start", "tool-input-available", "tool-output-available"]
    assert called[-1]["output"] == "Osaka"
    assert before != after, "it is another message of the page"
