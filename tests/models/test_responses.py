"""OpenAI's Responses API: reasoning goes back sealed, the provider's tools stay the provider's, one conversation per request."""

import json

import pytest

from kaname import Agent, ConfigError, Media, tool
from kaname.core import errors
from kaname.core.messages import Message, ModelRequest, Provided, Text, user
from kaname.models import OpenAI, OpenAIResponses
from kaname.models.registry import resolve
from kaname.testing import WireServer
from kaname.testing.wire import Answer, responses_reply, status

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "要"}}


def model(server, name="gpt-5", **more):
    return OpenAIResponses(name, base_url=server.url, api_key="sk-secret", **more)


async def asked(answer, *messages, **more):
    async with WireServer(lambda _: answer) as server:
        made, shown = model(server), []

        async def emit(text, kind="text", call_id=""):
            shown.append((kind, text))

        said = await made.reply(ModelRequest(messages or (user("hi"),), **more), emit)
        await made.close()
        return said, shown, server.requests[0]


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_responses_reasoning_goes_back_sealed_and_nothing_is_kept_there():
    def script(body):
        if len(body["input"]) == 1:
            return responses_reply("Let me see.", [("add", {"a": 1, "b": 2})], thinking="add them")
        return responses_reply("3")

    async with WireServer(script) as server:
        agent = Agent(model(server), [add], instructions="Be short.", journal="memory")
        assert (await agent.run("1 + 2?")).output == "3"
        await agent.close()
    first, second = server.requests
    assert (first["store"], first["include"], first["instructions"]) == (False, ["reasoning.encrypted_content"], "Be short.")
    assert "previous_response_id" not in second
    question, reasoning, said, called, result = second["input"]
    assert question == {"role": "user", "content": [{"type": "input_text", "text": "1 + 2?"}]}
    assert reasoning == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "add them"}],
        "encrypted_content": "sealed",
    }
    assert said["content"][0]["text"] == "Let me see."
    id = result["call_id"]
    assert called == {"type": "function_call", "call_id": id, "name": "add", "arguments": '{"a":1,"b":2}'}
    assert result == {"type": "function_call_output", "call_id": id, "output": "3"}


async def test_responses_own_tools_are_the_providers_and_their_price_is_unknown():
    async with WireServer(lambda body: responses_reply("found", items=[SEARCH])) as server:
        made = model(server, settings={"tools": [{"type": "web_search"}]})
        agent = Agent(made, [add], journal="memory")
        first = await agent.run("look", session_id="s")
        await agent.run("again", session_id="s")
        await agent.close()
    assert first.output == "found"
    assert first.usage.cost is None
    assert [one["type"] for one in server.requests[0]["tools"]] == ["function", "web_search"]
    assert SEARCH in server.requests[1]["input"]
    assert not first.state.results


async def test_responses_form_and_settings_in_either_name():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    settings = {"max_tokens": 9, "reasoning_effort": "low", "stop": ["x"], "text": {"verbosity": "low"}}
    said, _, sent = await asked(responses_reply('{"a": 1}'), schema=schema, settings=settings)
    assert said.message.text == '{"a": 1}'
    assert sent["max_output_tokens"] == 9
    assert sent["reasoning"] == {"effort": "low"}
    assert sent["text"]["verbosity"] == "low"
    assert sent["text"]["format"] == {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    assert "stop" not in sent
    assert "max_tokens" not in sent


async def test_responses_pictures_and_files_of_user_and_tool():
    parts = (
        Text("look"),
        Media("image/png", "aGk="),
        Media("application/pdf", "aGk=", name="a.pdf"),
        Media("image/png", url="u"),
    )
    _, _, sent = await asked(responses_reply("ok"), Message("user", parts))
    assert sent["input"][0]["content"][1:] == [
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
        {"type": "input_image", "image_url": "u"},
    ]
    with pytest.raises(ConfigError, match="does not accept audio/wav"):
        await asked(responses_reply("ok"), Message("user", (Media("audio/wav", "aGk="),)))


async def test_responses_phase_of_a_message_is_kept():
    content = [{"type": "output_text", "text": "Working on it.", "annotations": []}]
    item = {"type": "message", "id": "m", "role": "assistant", "content": content, "phase": "commentary"}
    said, _, _ = await asked(responses_reply("Done.", items=[item]))
    assert (said.message.text, said.message.thinking) == ("Done.", "Working on it.")
    _, _, sent = await asked(responses_reply("ok"), user("hi"), said.message, user("go on"))
    assert [one.get("phase") for one in sent["input"]] == [None, "commentary", None, None]


@pytest.mark.parametrize("stream", [True, False])
async def test_responses_whole_answer_is_shown(stream):
    whole = responses_reply("answer", thinking="thought")
    if not stream:
        body = json.dumps(json.loads(whole.events[-1])["response"]).encode()
        whole = Answer(headers=(("content-type", "application/json"),), body=body)
    said, shown, _ = await asked(whole)
    assert "".join([text for kind, text in shown if kind == "text"]) == "answer"
    assert "".join([text for kind, text in shown if kind == "thinking"]) == "thought"
    assert (said.message.text, said.message.thinking) == ("answer", "thought")
    assert isinstance(said.message.parts[0], Provided)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}},
            errors.RateLimited,
        ),
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}}, errors.ModelUnavailable),
        ({"type": "response.failed", "response": {"status": "failed"}}, errors.ModelUnavailable),
        ({"type": "error", "code": "invalid_prompt", "message": "m"}, errors.RequestRefused),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}},
            errors.ContentFiltered,
        ),
        ({"type": "response.in_progress"}, errors.ReplyGarbled),
    ],
)
async def test_responses_failures(event, kind):
    with pytest.raises(kind):
        await asked(Answer((json.dumps(event).encode(),)))


async def test_responses_text_of_an_item_that_never_ended_is_kept():
    events = [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "half an "},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "answer"},
        {"type": "response.incomplete", "response": {"status": "incomplete", "output": []}},
    ]
    said, _, _ = await asked(Answer(tuple([json.dumps(one).encode() for one in events])))
    assert (said.message.text, said.stop_reason) == ("half an answer", "max_tokens")


def test_responses_are_chosen_by_the_models_name(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    for name, kind in (
        ("openai/gpt-5.2", OpenAIResponses),
        ("openai/o3-mini", OpenAIResponses),
        ("openai/gpt-4.1", OpenAI),
        ("openai-responses/gpt-4.1", OpenAIResponses),
    ):
        assert type(resolve(name)) is kind
        assert resolve(name).name == f"openai/{name.partition('/')[2]}"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert type(resolve("openai/gpt-5.2")) is OpenAI


async def test_responses_model_that_does_not_reason_is_asked_without_the_seal():
    def script(body):
        return (
            status(400, "Encrypted content is not supported with this model.") if "include" in body else responses_reply("ok")
        )

    async with WireServer(script) as server:
        agent = Agent(model(server, "gpt-4o"), journal="memory")
        assert (await agent.run("hi")).output == "ok"
        assert (await agent.run("hi")).output == "ok"
        await agent.close()
    assert ["include" in body for body in server.requests] == [True, False, False]


async def test_responses_citations_of_several_texts_stay_with_their_own():
    def text(words, url):
        note = {"type": "url_citation", "url": url, "title": words, "start_index": 0, "end_index": 1}
        return {"type": "output_text", "text": words, "annotations": [note]}

    item = {"type": "message", "id": "m", "role": "assistant", "content": [text("One.", "u1"), text("Two.", "u2")]}
    said, _, _ = await asked(responses_reply(items=[item]))
    assert said.message.text == "One.Two."
    assert [one["url"] for one in said.message.citations] == ["u1", "u2"]
    _, _, sent = await asked(responses_reply("ok"), user("hi"), said.message, user("go on"))
    assert [one["content"][0]["annotations"][0]["url"] for one in sent["input"][1:3]] == ["u1", "u2"]


async def test_responses_answer_that_is_incomplete_for_any_reason_says_so():
    said, _, _ = await asked(responses_reply("half", stop="something_new"))
    assert said.stop_reason == "max_tokens"


def test_responses_are_not_chosen_for_models_that_do_not_reason(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    for name in ("gpt-5-chat-latest", "gpt-5-search-api", "o1-mini"):
        assert type(resolve(f"openai/{name}")) is OpenAI
    assert type(resolve("openai/ft:gpt-5:mine")) is OpenAIResponses
    monkeypatch.setenv("OPENAI_BASE_URL", "https://eu.api.openai.com/v1")
    assert type(resolve("openai/gpt-5.2")) is OpenAIResponses


def message(place, text, phase=None):
    """The events of one message of a stream, in OpenAI's order."""
    item = {"type": "message", "id": f"m{place}", "role": "assistant", **({"phase": phase} if phase else {})}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return [
        {"type": "response.output_item.added", "output_index": place, "item": {**item, "content": []}},
        *[{"type": "response.output_text.delta", "output_index": place, "delta": one} for one in (text[:3], text[3:])],
        {"type": "response.output_item.done", "output_index": place, "item": {**item, "content": content}},
    ]


def streamed(*events):
    done = {"type": "response.completed", "response": {"status": "completed", "output": [], "usage": {}}}
    return Answer(tuple([json.dumps(event).encode() for event in (*events, done)]))


@pytest.mark.parametrize(
    ("phases", "text", "thinking"),
    [
        (("commentary", "final_answer"), "It is 42.", "Looking."),
        ((None, None), "Looking.\n\nIt is 42.", ""),
        (("commentary", "commentary"), "Looking.\n\nIt is 42.", ""),  # there is no other answer
        ((None, "commentary"), "Looking.", "It is 42."),
    ],
)
async def test_responses_messages_of_one_reply_are_not_run_together(phases, text, thinking):
    said, shown, _ = await asked(streamed(*message(0, "Looking.", phases[0]), *message(1, "It is 42.", phases[1])))
    assert (said.message.text, said.message.thinking) == (text, thinking)
    told = {kind: "".join([one for channel, one in shown if channel == kind]) for kind in ("text", "thinking")}
    assert told["text"] == text or phases == ("commentary", "commentary")
    _, _, sent = await asked(responses_reply("ok"), user("hi"), said.message, user("go on"))
    back = [(one["content"][0]["text"], one.get("phase")) for one in sent["input"] if one["role"] == "assistant"]
    assert back == [("Looking.", phases[0]), ("It is 42.", phases[1])], "two messages, as they came"


async def test_responses_commentary_is_not_the_answer_of_a_run():
    async with WireServer(
        [streamed(*message(0, "Looking.", "commentary"), *message(1, '{"n": 42}', "final_answer"))]
    ) as server:
        agent = Agent(model(server), journal="memory")
        result = await agent.run("?")
        await agent.close()
    assert result.output == '{"n": 42}'


async def test_responses_namespace_of_a_call_goes_back_with_it():
    item = {"type": "function_call", "call_id": "x", "name": "add", "arguments": '{"a": 1, "b": 2}', "namespace": "sums"}

    def script(body):
        return (
            responses_reply("3") if len(body["input"]) > 1 else responses_reply("", [("add", {"a": 2, "b": 2})], items=[item])
        )

    async with WireServer(script) as server:
        agent = Agent(model(server), [add], journal="memory")
        assert (await agent.run("1 + 2?")).output == "3"
        await agent.close()
    calls = [one for one in server.requests[1]["input"] if one.get("type") == "function_call"]
    assert [one.get("namespace") for one in calls] == ["sums", None]


@pytest.mark.parametrize(
    ("mine", "agents", "told"),
    [
        ({"seed": 7}, {"stop": ["END"], "temperature": 0}, "stop, seed"),
        ({}, {"frequency_penalty": 1, "logit_bias": {"5": 1}}, "logit_bias, frequency_penalty"),
        ({"temperature": 0}, {"response_format": {"type": "json_object"}, "stream_options": {}, "seed": None}, ""),
    ],
)
async def test_responses_settings_that_are_left_out_are_reported_once(mine, agents, told):
    def script(body):
        assert not {"seed", "stop", "logit_bias", "frequency_penalty", "stream_options", "response_format"} & body.keys()
        return responses_reply("3") if len(body["input"]) > 1 else responses_reply("", [("add", {"a": 1, "b": 2})])

    async with WireServer(script) as server:
        agent = Agent(model(server, settings=mine), [add], settings=agents, journal="memory")
        seen = [chunk async for chunk in agent.run("1 + 2?", session_id="s")]
        seen += [chunk async for chunk in agent.run("again?", session_id="s")]
        await agent.close()
    warnings = [chunk["content"] for chunk in seen if chunk["type"] == "status" and chunk["data"]["status"] == "warning"]
    assert warnings == ([f"openai/gpt-5 does not support these settings, so they are not sent: {told}"] if told else [])


async def test_responses_wanted_form_of_chat_completions_is_translated():
    schema = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    _, _, sent = await asked(responses_reply("{}"), settings={"response_format": form, "verbosity": "low"})
    assert sent["text"] == {"format": {"type": "json_schema", "name": "reply", "schema": schema}, "verbosity": "low"}
