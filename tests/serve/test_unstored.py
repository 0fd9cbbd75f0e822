"""`store: false` of OpenAI's Responses: such a response cannot be fetched, and its run is deleted when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, ScriptedModel, SqliteJournal, call, tool
from kaname.serve.service import UNSTORED


@tool
async def pay() -> str:
    """Pay."""
    return "paid"


def script(request: Any) -> Any:
    if "pay" in request.messages[-1].text:
        return call("pay")
    return " | ".join([message.text for message in request.messages if message.role == "user"])


class Desk:
    def __init__(self, folder: Path) -> None:
        self.journal = SqliteJournal(folder / "journal.db")
        agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], name="desk", journal=self.journal)
        self.app = kaname.serve.app(agent, recover=False, mcp=False, a2a=False)
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 1))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)

    async def ask(self, given: Any, **more: Any) -> dict[str, Any]:
        body = {"model": "desk", "input": given, "store": False, **more}
        answer = await self.http.post("/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def statuses(self, path: str) -> list[int]:
        """What a response's id is answered with by everything that takes one."""
        body = {"model": "desk", "input": "more", "previous_response_id": path.rpartition("/")[2]}
        asked = [
            self.http.get(path),
            self.http.delete(path),
            self.http.post(f"{path}/cancel"),
            self.http.post("/v1/responses", json=body),
        ]
        return [answer.status_code for answer in await asyncio.gather(*asked)]

    async def nothing_is_left(self) -> None:
        async with asyncio.timeout(60):
            while await self.journal.runs():
                await asyncio.sleep(0.01)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path)
    async with made.http:
        yield made
    await made.app.service.close()
    await made.journal.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_response_that_is_not_stored_cannot_be_fetched_and_its_run_is_deleted(desk, stream):
    if stream:
        async with desk.http.stream(
            "POST", "/v1/responses", json={"model": "desk", "input": "x", "store": False, "stream": True}
        ) as answer:
            told = "".join([text async for text in answer.aiter_text()])
            run_id = answer.headers["x-run-id"]
        assert '"store":false' in told
    else:
        done = await desk.ask("x")
        assert (done["store"], done["status"]) == (False, "completed")
        run_id = done["id"].removeprefix("resp_")
    assert await desk.statuses(f"/v1/responses/resp_{run_id}") == [404] * 4
    await desk.nothing_is_left()
    assert (await desk.http.get(f"/api/runs/{run_id}")).status_code == 404


async def test_response_that_is_not_stored_can_be_answered_and_is_deleted_after_that(desk):
    asked = await desk.ask("pay")
    (request,) = asked["output"]
    assert await desk.statuses(f"/v1/responses/{asked['id']}") == [404] * 4, "also while it waits"
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    done = await desk.ask([answer])
    assert done["output"][0]["output"] == "paid"
    assert await desk.statuses(f"/v1/responses/{done['id']}") == [404] * 4
    await desk.nothing_is_left()


async def test_response_that_is_stored_already_is_not_answered_as_if_it_were_not(desk):
    asked = await desk.ask("pay", store=True)
    answer = {"type": "mcp_approval_response", "approval_request_id": asked["output"][0]["id"], "approve": True}
    refused = await desk.http.post("/v1/responses", json={"model": "desk", "input": [answer], "store": False})
    assert (refused.status_code, "is already stored" in refused.json()["detail"]) == (409, True)
    assert (await desk.http.get(f"/v1/responses/{asked['id']}")).json()["store"] is True


async def test_response_that_is_not_stored_goes_on_from_one_that_is(desk):
    first = await desk.ask("one", store=True)
    second = await desk.ask("two", previous_response_id=first["id"])
    assert second["output"][0]["content"][0]["text"] == "one | two"
    assert await desk.statuses(f"/v1/responses/{second['id']}") == [404] * 4
    async with asyncio.timeout(60):
        while len(await desk.journal.runs()) > 1:
            await asyncio.sleep(0.01)
    assert (await desk.http.get(f"/v1/responses/{first['id']}")).status_code == 200


async def test_response_of_a_conversation_stays_in_it_but_cannot_be_fetched(desk):
    first = await desk.ask("one", conversation="talk")
    second = await desk.ask("two", conversation="talk")
    assert second["output"][0]["content"][0]["text"] == "one | two"
    assert await desk.statuses(f"/v1/responses/{first['id']}") == [404] * 4


async def test_run_that_is_not_to_be_stored_is_deleted_when_it_is_stopped_while_it_waits(desk):
    run_id = (await desk.ask("pay"))["id"].removeprefix("resp_")
    assert (await desk.http.post(f"/api/runs/{run_id}/stop")).status_code == 202
    await desk.nothing_is_left()


async def test_run_that_is_not_to_be_stored_and_that_another_program_has_ended_is_deleted(desk, monkeypatch):
    monkeypatch.setattr("kaname.serve.service._SWEEP", 0.01)
    async with desk.app.lifespan():
        run_id = (await desk.ask("pay"))["id"].removeprefix("resp_")
        agent = desk.app.service.agent()
        (key,) = (await agent.result(run_id)).questions
        assert (await agent.resume(run_id, {key: "yes"})).completed
        await desk.nothing_is_left()


async def test_text_that_was_not_to_be_stored_is_in_no_file(desk, tmp_path):
    await desk.ask("ZEBRA9")
    await desk.nothing_is_left()
    async with asyncio.timeout(60):
        while any(b"ZEBRA9" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("store", ["false", 0, "no", [], {}])
async def test_store_is_true_or_false(desk, store):
    refused = await desk.http.post("/v1/responses", json={"model": "desk", "input": "x", "store": store})
    assert (refused.status_code, "true or false" in refused.text) == (400, True)
    assert await desk.journal.runs() == []


async def test_background_response_has_to_be_stored(desk):
    body = {"model": "desk", "input": "x", "store": False, "background": True}
    refused = await desk.http.post("/v1/responses", json=body)
    assert (refused.status_code, "store: true" in refused.json()["detail"]) == (400, True)
    assert await desk.journal.runs() == []


async def test_run_that_was_not_to_be_stored_and_that_a_crash_left_is_deleted_by_the_next_server(desk):
    agent = desk.app.service.agent()
    for run_id in (f"{UNSTORED}left", "kept"):
        await agent.run("x", run_id=run_id)
    await agent.run("pay", run_id=f"{UNSTORED}waiting")
    async with desk.app.lifespan(), asyncio.timeout(60):
        while len(await desk.journal.runs()) > 2:
            await asyncio.sleep(0.01)
    assert {card.run_id for card in await desk.journal.runs()} == {"kept", f"{UNSTORED}waiting"}
