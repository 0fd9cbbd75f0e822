"""OpenAI's own Python client against `/v1`: chat completions, responses, approvals, errors.

What is sent is also read with the client's types, which then have to fit: the client itself takes what comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import pytest

from tests.parts import Later, wait_until
from tests.serve.serving import Served, events, serving

openai = Later("openai")
types = Later("openai.types.responses")
chat = Later("openai.types.chat")
TOKEN = "kn_a-token-of-an-administrator"


@cache
def stream_events() -> dict[str, Any]:
    every = get_args(get_args(types.ResponseStreamEvent)[0])
    return {get_args(one.model_fields["type"].annotation)[0]: one for one in every}


def often() -> list[str]:
    return [name for name, field in types.Response.model_fields.items() if type(None) in get_args(field.annotation)]


def _client(served: Served, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0, timeout=30)


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with _client(served) as made:
        yield made


def _paid(served: Served) -> list[str]:
    file = served.folder / "paid.txt"
    return file.read_text().split() if file.exists() else []


def fits(response: dict[str, Any]) -> types.Response:
    """It is a response, and says also what it has not."""
    assert [name for name in often() if name not in response] == []
    return types.Response.model_validate(response, strict=True)


# Chat completions


def test_models_are_the_agents(client):
    assert [one.id for one in client.models.list()] == ["desk", "cashier", "worker", "lead"]
    assert client.models.retrieve("desk").owned_by == "kaname"


def test_chat_answers_with_the_last_message(client):
    done = client.chat.completions.create(model="desk", messages=[{"role": "user", "content": "please add"}])
    chat.ChatCompletion.model_validate(done.model_dump(), strict=True)
    (choice,) = done.choices
    assert (choice.message.content, choice.finish_reason) == ("the sum is 7", "stop")
    assert choice.message.tool_calls is None, "the agent has called it already"
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens > 0


def test_chat_streams_all_messages_and_then_the_usage(client):
    asked = {"model": "desk", "messages": [{"role": "user", "content": "please add"}], "stream": True}
    told = list(client.chat.completions.create(**asked, stream_options={"include_usage": True}))
    for one in told:
        chat.ChatCompletionChunk.model_validate(one.model_dump(), strict=True)
    assert "".join(choice.delta.content or "" for one in told for choice in one.choices) == "Let me see.\n\nthe sum is 7"
    assert [choice.finish_reason for one in told for choice in one.choices if choice.finish_reason] == ["stop"]
    assert not any(choice.delta.tool_calls for one in told for choice in one.choices)
    assert told[-1].choices == []
    assert told[-1].usage.total_tokens > 0
    assert [one.usage for one in told[:-1]] == [None] * (len(told) - 1)
    assert all(one.usage is None and one.choices for one in client.chat.completions.create(**asked))


def test_chat_shows_the_agent_all_messages(client):
    said = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "history"}]},
    ]
    answer = client.chat.completions.create(model="desk", messages=said).choices[0].message.content
    assert answer.endswith("user: one | assistant: two | user: history")
    assert "be brief" in answer


def test_chat_says_what_the_agent_waits_for(client, served):
    before = _paid(served)
    done = client.chat.completions.create(model="cashier", messages=[{"role": "user", "content": "go"}])
    assert "pay" in done.choices[0].message.content
    assert done.model_extra["kaname"]["status"] == "waiting"
    assert _paid(served) == before


def test_chat_that_failed_is_not_tried_again_by_the_library(served, http):
    before = len(http.get("/api/runs", params={"q": "fail at once"}).json()["runs"])
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=3) as eager,
        pytest.raises(openai.InternalServerError),
    ):
        eager.chat.completions.create(model="desk", messages=[{"role": "user", "content": "fail at once"}])
    assert len(http.get("/api/runs", params={"q": "fail at once"}).json()["runs"]) == before + 1


def test_chat_that_failed_is_an_error(client):
    asked = {"model": "desk", "messages": [{"role": "user", "content": "fail"}]}
    with pytest.raises(openai.InternalServerError, match="the key is wrong") as failed:
        client.chat.completions.create(**asked)
    assert failed.value.type == "ModelDenied"
    with pytest.raises(openai.APIError, match="the key is wrong"):
        list(client.chat.completions.create(**asked, stream=True))


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "function": {"name": "x"}}]},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"messages": []},
    ],
)
def test_chat_refuses_what_an_agent_cannot_do(client, more):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{"model": "desk", "messages": [{"role": "user", "content": "hi"}], **more})
    assert next(iter(more)) in refused.value.body["message"]
    assert refused.value.type == "invalid_request_error"


def test_unknown_agent_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="there is no agent 'desc'; did you mean 'desk'\\?") as refused:
        client.chat.completions.create(model="desc", messages=[{"role": "user", "content": "hi"}])
    assert refused.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="there is no agent 'desc'") as refused:
        client.responses.create(model="desc", input="hi")
    assert refused.value.code == "model_not_found"


def test_key_is_checked(tmp_path):
    with serving(tmp_path, KANAME_TOKEN=TOKEN) as served:
        with _client(served, "kn_not-the-token-at-all") as client, pytest.raises(openai.AuthenticationError) as refused:
            client.models.list()
        assert refused.value.type == "authentication_error"
        assert refused.value.body["message"]
        with _client(served, TOKEN) as client:
            assert client.responses.create(model="desk", input="hi").output_text == "you said: hi"


# Responses


def test_response_holds_messages_and_tool_calls_in_order(client, http):
    done = client.responses.create(model="desk", input="please add", metadata={"for": "me"}, temperature=0.5)
    assert (done.status, done.model, done.metadata, done.temperature) == ("completed", "desk", {"for": "me"}, 0.5)
    assert [item.type for item in done.output] == ["message", "mcp_call", "message"]
    call = done.output[1]
    assert (call.name, call.arguments, call.output, call.error) == ("add", '{"a": 3, "b": 4}', "7", None)
    assert done.output[-1].content[0].text == "the sum is 7"
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens > 0
    fits(http.post("/v1/responses", json={"model": "desk", "input": "please add"}).json())


@pytest.mark.parametrize("words", ["please add", "think", "broken", "fail", "hello"])
def test_response_events_fit_and_come_in_order(http, words):
    with http.stream("POST", "/v1/responses", json={"model": "desk", "input": words, "stream": True}) as answer:
        told = list(events(answer.iter_lines()))
    assert told[-1]["data"] == "[DONE]"
    for number, one in enumerate(told[:-1]):
        assert one["event"] == one["data"]["type"]
        assert one["data"]["sequence_number"] == number
        stream_events()[one["event"]].model_validate(one["data"], strict=True)
        if "response" in one["data"]:
            fits(one["data"]["response"])
    names = [one["event"] for one in told[:-1]]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == ("response.failed" if words == "fail" else "response.completed")
    items_are_opened_and_closed([one["data"] for one in told[:-1]])


def items_are_opened_and_closed(told: list[dict[str, Any]]) -> None:
    """What is between an item's `added` and its `done` is its own, and the done ones are the output."""
    open_item, done = None, []
    for one in told[2:-1]:
        if one["type"] == "response.output_item.added":
            assert open_item is None
            open_item = one["item"]
            assert one["output_index"] == len(done)
        elif one["type"] == "response.output_item.done":
            assert one["item"]["id"] == open_item["id"]
            open_item = None
            done.append(one["item"])
        else:
            assert one["item_id"] == open_item["id"]
    assert open_item is None
    assert done == told[-1]["response"]["output"]


def test_response_is_streamed(client):
    with client.responses.stream(model="desk", input="please add") as stream:
        told = list(stream)
        done = stream.get_final_response()
    assert "".join(one.delta for one in told if one.type == "response.output_text.delta") == "Let me see.the sum is 7"
    assert done.output_text == "Let me see.the sum is 7"
    assert [item.type for item in done.output] == ["message", "mcp_call", "message"]


def test_response_that_failed_says_why(client):
    done = client.responses.create(model="desk", input="fail")
    assert done.status == "failed"
    assert "the key is wrong" in done.error.message


def test_response_tells_thinking_and_failed_tools(client):
    thought, said = client.responses.create(model="desk", input="think").output
    assert (thought.type, thought.summary[0].text) == ("reasoning", "hm, well")
    assert said.content[0].text == "thought about it"
    call, _ = client.responses.create(model="desk", input="broken").output
    assert (call.status, call.output) == ("failed", None)
    assert "it is broken" in call.error


def test_response_is_fetched_again_and_deleted(client, http):
    done = client.responses.create(model="desk", input="please add")
    again = fits(http.get(f"/v1/responses/{done.id}").json())
    assert (again.id, again.status, again.output) == (done.id, "completed", done.output)
    assert again.usage == done.usage
    assert again.completed_at == done.completed_at
    assert abs(again.created_at - done.created_at) <= 1
    client.responses.delete(done.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(done.id)


def test_response_carries_the_conversation_on(client):
    first = client.responses.create(model="desk", input="one", instructions="be brief")
    second = client.responses.create(model="desk", input="history", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.output_text.endswith("user: one | assistant: you said: one | user: history")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="desk", input="history", previous_response_id="resp_none")


def test_response_takes_its_own_output_as_input(client):
    """Who keeps the conversation sends everything again."""
    first = client.responses.create(model="desk", input="please add")
    said = [{"role": "user", "content": "please add"}, *first.output, {"role": "user", "content": "history"}]
    answer = client.responses.create(model="desk", input=said).output_text
    assert "user: please add | assistant: Let me see." in answer
    assert answer.endswith("assistant: the sum is 7 | user: history")


def test_conversation_is_a_session(client, http):
    client.responses.create(model="desk", input="one", conversation="talk-1")
    second = client.responses.create(model="desk", input="history", conversation={"id": "talk-1"})
    assert second.conversation.id == client.responses.retrieve(second.id).conversation.id == "talk-1"
    assert second.output_text.endswith("user: one | assistant: you said: one | user: history")
    assert [one["content"] for one in http.get("/api/sessions/talk-1").json()["messages"]][:2] == ["one", "you said: one"]


@pytest.mark.parametrize(("approve", "paid"), [(True, ["5"]), (False, [])])
def test_approval_is_asked_and_answered(client, served, http, approve, paid):
    before = _paid(served)
    asked = client.responses.create(model="cashier", input="go")
    (request,) = asked.output
    assert (asked.status, request.type, request.name, request.arguments) == (
        "completed",
        "mcp_approval_request",
        "pay",
        '{"amount": 5}',
    )
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
    done = client.responses.create(model="cashier", input=[answer], previous_response_id=asked.id)
    call, said = done.output
    assert (call.type, call.name, call.arguments, call.approval_request_id) == ("mcp_call", "pay", '{"amount": 5}', request.id)
    assert (call.output, call.error is None) == ("paid 5" if approve else None, approve)
    assert said.content[0].text == done.output_text == "it is done"
    assert _paid(served)[len(before) :] == paid
    assert client.responses.retrieve(asked.id).output == asked.output
    again = fits(http.get(f"/v1/responses/{done.id}").json())
    assert again.output == done.output
    with pytest.raises(openai.BadRequestError, match="no longer open"):
        client.responses.create(model="cashier", input=[answer], previous_response_id=asked.id)


def test_approvals_can_be_answered_one_by_one(client, served):
    before = _paid(served)
    asked = client.responses.create(model="cashier", input="twice")
    first, second = asked.output
    assert client.responses.retrieve(asked.id).output == asked.output
    answers = [{"type": "mcp_approval_response", "approval_request_id": one.id, "approve": True} for one in (first, second)]
    half = client.responses.create(model="cashier", input=answers[:1], previous_response_id=asked.id)
    assert (half.status, half.output) == ("completed", [second]), "what is still asked is asked again"
    assert client.responses.retrieve(half.id).output == half.output
    assert _paid(served) == before
    done = client.responses.create(model="cashier", input=answers[1:], previous_response_id=half.id)
    assert [call.arguments for call in done.output[:2]] == [first.arguments, second.arguments]
    assert done.output_text == "it is done"
    assert client.responses.retrieve(done.id).output == done.output
    assert sorted(_paid(served)[len(before) :]) == ["5", "6"]


def test_approval_is_not_passed_over(client):
    asked = client.responses.create(model="cashier", input="go")
    with pytest.raises(openai.ConflictError, match="waits for an approval"):
        client.responses.create(model="cashier", input="never mind", previous_response_id=asked.id)


def test_background_response_is_polled(client):
    begun = client.responses.create(model="desk", input="please add", background=True)
    assert begun.status in ("queued", "in_progress")
    wait_until(lambda: client.responses.retrieve(begun.id).status not in ("queued", "in_progress"))
    now = client.responses.retrieve(begun.id)
    assert (now.status, now.output_text) == ("completed", "Let me see.the sum is 7")
    assert [item.type for item in now.output] == ["message", "mcp_call", "message"]


def test_background_response_is_cancelled(tmp_path):
    with serving(tmp_path, KANAME_TEST_PACE="0.02") as served, _client(served) as client:
        begun = client.responses.create(model="desk", input="long", background=True)
        assert client.responses.cancel(begun.id).status == "cancelled"
        wait_until(lambda: client.responses.retrieve(begun.id).status != "in_progress")
        assert client.responses.retrieve(begun.id).status == "cancelled"


def test_cancelling_what_is_over_changes_nothing(client):
    done = client.responses.create(model="desk", input="hi")
    assert client.responses.cancel(done.id).status == "completed"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools is not supported"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format is not supported"),
        ({"input": []}, "input must be a string or a list of items"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}, "input of type function_call_output"),
        ({"conversation": "a", "previous_response_id": "resp_b"}, "either conversation or previous_response_id"),
    ],
)
def test_response_refuses_what_an_agent_cannot_do(client, more, told):
    with pytest.raises(openai.BadRequestError, match=told) as refused:
        client.responses.create(**{"model": "desk", "input": "hi", **more})
    assert refused.value.type == "invalid_request_error"


def test_response_that_is_not_there_is_not_found(client):
    for ask in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as refused:
            ask("resp_none")
        assert (refused.value.type, refused.value.code) == ("not_found_error", "RunNotFound")
