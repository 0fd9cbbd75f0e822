"""A2A with the protocol's own client: card, tasks, streaming, questions, both bindings."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb

from tests.serve.serving import PROTOCOLS, client

ALSO = PROTOCOLS


@asynccontextmanager
async def _talking(served, agent: str, binding: str, streaming: bool):
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        card = await A2ACardResolver(http, f"{served.url}/a2a/{agent}").get_agent_card()
        config = ClientConfig(httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding])
        yield ClientFactory(config).create(card)


def _said(text: str, **more):
    message = pb.Message(message_id="m1", role=pb.Role.ROLE_USER, parts=[pb.Part(text=text)], **more)
    return pb.SendMessageRequest(message=message)


async def _all(client, request):
    return [one async for one in client.send_message(request)]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_task_is_streamed(served, binding):
    async with _talking(served, "desk", binding, True) as talking:
        told = await _all(talking, _said("please add", context_id="trip"))
        assert told[0].HasField("task")
        text = "".join(
            part.text for one in told if one.HasField("artifact_update") for part in one.artifact_update.artifact.parts
        )
        assert text == "Let me see.the sum is 7"
        assert told[-1].status_update.status.state == pb.TaskState.TASK_STATE_COMPLETED
        task = await talking.get_task(pb.GetTaskRequest(id=told[0].task.id))
        assert (task.context_id, task.artifacts[0].parts[0].text) == ("trip", "the sum is 7")
        listed = await talking.list_tasks(pb.ListTasksRequest(context_id="trip"))
        assert task.id in [one.id for one in listed.tasks]


async def test_context_carries_the_conversation(served):
    async with _talking(served, "desk", "JSONRPC", False) as talking:
        await _all(talking, _said("remember the tea", context_id="memory"))
        (told,) = await _all(talking, _said("history", context_id="memory"))
        assert "user: remember the tea" in told.task.artifacts[0].parts[0].text


async def test_question_is_input_required_and_answered_by_a_message(served):
    async with _talking(served, "cashier", "JSONRPC", True) as talking:
        told = await _all(talking, _said("go"))
        status = told[-1].status_update.status
        assert status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
        assert "Run pay" in status.message.parts[0].text
        task = told[0].task
        done = await _all(talking, _said("yes", task_id=task.id, context_id=task.context_id))
        assert done[-1].status_update.status.state == pb.TaskState.TASK_STATE_COMPLETED
        with pytest.raises(Exception, match="takes no message"):
            await _all(talking, _said("yes", task_id=task.id, context_id=task.context_id))


async def test_task_that_works_takes_another_message(served):
    async with _talking(served, "desk", "JSONRPC", True) as talking, _talking(served, "desk", "JSONRPC", False) as other:
        answers, task = [], None
        async for one in talking.send_message(_said("long", context_id="steered")):
            task = one.task if one.HasField("task") else task
            if one.HasField("artifact_update") and not answers:
                answers = await _all(other, _said("please add", task_id=task.id, context_id=task.context_id))
        assert answers[0].task.id == task.id
        assert answers[0].task.artifacts[0].parts[0].text == "the sum is 7"


async def test_task_is_cancelled(served):
    async with _talking(served, "cashier", "JSONRPC", False) as talking:
        (told,) = await _all(talking, _said("go"))
        assert told.task.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
        task = await talking.cancel_task(pb.CancelTaskRequest(id=told.task.id))
        assert task.status.state == pb.TaskState.TASK_STATE_CANCELED
        with pytest.raises(Exception, match="is over"):
            await talking.cancel_task(pb.CancelTaskRequest(id=told.task.id))
        with pytest.raises(Exception, match="there is no task"):
            await talking.get_task(pb.GetTaskRequest(id="no-such"))


def test_card_says_where_and_how(served):
    with client(served) as http:
        card = http.get("/.well-known/agent-card.json")
        assert "max-age" in card.headers["cache-control"]
        told = card.json()
        assert [one["protocolBinding"] for one in told["supportedInterfaces"]] == ["JSONRPC", "HTTP+JSON"]
        assert told["supportedInterfaces"][0]["url"] == f"{served.url}/a2a/desk"
        assert told["capabilities"]["streaming"] is True


async def test_tasks_are_listed_a_page_at_a_time_and_counted(served):
    async with _talking(served, "desk", "JSONRPC", False) as talking:
        for number in range(5):
            await _all(talking, _said(f"page {number}", context_id="paged"))
        for state in (0, pb.TaskState.TASK_STATE_COMPLETED):
            found, token = [], ""
            while True:
                asked = pb.ListTasksRequest(context_id="paged", page_size=2, page_token=token, status=state)
                page = await talking.list_tasks(asked)
                assert page.total_size == 5
                found += [task.id for task in page.tasks]
                if not (token := page.next_page_token):
                    break
            assert len(set(found)) == len(found) == 5
        none = await talking.list_tasks(pb.ListTasksRequest(context_id="paged", status=pb.TaskState.TASK_STATE_WORKING))
        assert (none.total_size, list(none.tasks)) == (0, [])
