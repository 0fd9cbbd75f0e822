"""What providers really send: cut characters, usage in odd places, failed generations, citations, compaction, signatures."""

import json

import pytest

from kaname import Agent, ModelRequest
from kaname.core import errors
from kaname.core.messages import Media, Message, ToolCall, ToolResult, user
from kaname.models import Anthropic, LiteLLM, OpenAI, OpenAIResponses
from kaname.testing import WireServer
from kaname.testing.wire import Answer, anthropic_reply, reply, responses_reply, status
from tests.parts import add

GROQ = {
    "message": "Failed to call a function. Please adjust your prompt.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": "<function=add{a: 1}>",
}


async def asked(answer, kind=OpenAI, messages=None, name="any", **more):
    async with WireServer([answer]) as server:
        url = server.url if kind is not LiteLLM or not name.startswith("gemini") else server.url.removesuffix("/v1")
        model, shown = kind(name, base_url=url, api_key="sk-secret-key", **more), []

        async def emit(text, kind="text", call_id=""):
            shown.append((kind, text))

        try:
            said = await model.reply(ModelRequest(messages or (user("hi"),)), emit)
            return said, shown, server.requests[0]
        finally:
            await model.close()


def raw(*events):
    return Answer(tuple([one if isinstance(one, bytes) else json.dumps(one).encode() for one in events]))


def piece(content, finish="null"):
    return f'{{"choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":{finish}}}]}}'.encode()


# Characters


@pytest.mark.parametrize("size", [0, 1, 7])
async def test_character_cut_in_two_is_joined(size):
    answer = raw(piece("a\\ud83d"), piece("\\ude00b"), piece("\\uD83D"), piece("\\uDE80", '"stop"'), b"[DONE]")
    said, shown, _ = await asked(Answer(answer.events, slice=size))
    assert said.message.text == "a😀b🚀"
    assert "".join([text for _, text in shown]) == "a😀b🚀"
    assert all(text.isprintable() for _, text in shown)


async def test_character_cut_in_two_in_the_other_protocols():
    parts = [b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}' % half for half in HALVES]
    end = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    said, _, _ = await asked(raw(*parts, *end), Anthropic)
    assert said.message.text == "😀"
    parts = [b'{"type":"response.output_text.delta","output_index":0,"delta":"%b"}' % half for half in HALVES]
    said, _, _ = await asked(raw(*parts, {"type": "response.completed", "response": {"status": "completed"}}), OpenAIResponses)
    assert said.message.text == "😀"


HALVES = (b"\\ud83d", b"\\ude00")


async def test_half_a_character_alone_is_replaced_and_garbage_is_still_garbage():
    said, _, _ = await asked(raw(piece("a\\ude00b", '"stop"'), b"[DONE]"))
    assert said.message.text == "a\ufffdb"
    with pytest.raises(errors.ReplyGarbled):
        await asked(raw(b'{"choices": "\\ud83d'))


# Usage and failures


async def test_usage_in_groqs_own_field():
    chunks = [{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}]
    said, _, _ = await asked(
        raw(
            {"choices": [], "x_groq": {"id": "req_1"}},
            *chunks,
            {"choices": [], "x_groq": {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}},
        )
    )
    assert (said.usage.input, said.usage.output) == (7, 2)


@pytest.mark.parametrize("where", ["status", "stream", "litellm"])
async def test_failed_generation_is_garbled_and_keeps_its_words(where):
    answer = Answer(status=400, headers=(("content-type", "application/json"),), body=json.dumps({"error": GROQ}).encode())
    if where != "status":
        answer = raw({"choices": [{"delta": {"content": "Let me"}}]}, {"error": {**GROQ, "status_code": 400}})
    kind, name = (LiteLLM, "groq/llama") if where == "litellm" else (OpenAI, "any")
    with pytest.raises(errors.ReplyGarbled, match="Failed to call a function") as caught:
        await asked(answer, kind, name=name)
    assert caught.value.retryable


async def test_malformed_call_of_gemini_is_garbled():
    ending = {"choices": [{"delta": {}, "finish_reason": "function_call_filter: MALFORMED_FUNCTION_CALL"}]}
    with pytest.raises(errors.ReplyGarbled, match="a tool call that cannot be read"):
        await asked(raw(ending, b"[DONE]"))


async def test_refusal_of_the_request_stays_a_refusal():
    with pytest.raises(errors.RequestRefused):
        await asked(status(400, "bad field"))


# Anthropic


def whole(*content):
    body = {"type": "message", "role": "assistant", "content": list(content), "stop_reason": "end_turn", "usage": {}}
    return Answer(headers=(("content-type", "application/json"),), body=json.dumps(body).encode())


async def test_whole_answer_shows_its_thinking():
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    _, shown, _ = await asked(whole(thought, {"type": "text", "text": "hello"}), Anthropic)
    assert shown == [("thinking", "hm"), ("text", "hello")]


CITED = {"type": "web_search_result_location", "url": "https://a.example", "title": "A", "cited_text": "sky is blue"}


def streamed(start, *deltas):
    place = {"index": 0}
    return raw(
        {"type": "message_start", "message": {"usage": {}}},
        {"type": "content_block_start", **place, "content_block": start},
        *[{"type": "content_block_delta", **place, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", **place},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "The end."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )


async def test_citations_are_told_and_go_back():
    text = {"type": "text_delta", "text": "Blue. "}
    for answer in (
        streamed({"type": "text", "text": ""}, text, {"type": "citations_delta", "citation": CITED}),
        whole({"type": "text", "text": "Blue. ", "citations": [CITED]}, {"type": "text", "text": "The end."}),
    ):
        said, _, _ = await asked(answer, Anthropic)
        assert said.message.text == "Blue. The end."
        assert said.message.citations == (CITED,)
        _, _, sent = await asked(anthropic_reply("ok"), Anthropic, (user("sky?"), said.message, user("sure?")))
        assert sent["messages"][1]["content"] == [
            {"type": "text", "text": "Blue. ", "citations": [CITED]},
            {"type": "text", "text": "The end."},
        ]


async def test_compaction_is_shown_and_goes_back_whole():
    pieces = [{"type": "compaction_delta", "content": "We spoke "}, {"type": "compaction_delta", "content": "of tea."}]
    for answer in (
        streamed({"type": "compaction", "content": None}, *pieces),
        whole({"type": "compaction", "content": "We spoke of tea."}, {"type": "text", "text": "The end."}),
    ):
        said, shown, _ = await asked(answer, Anthropic)
        assert said.message.text == "The end."
        assert "".join([text for kind, text in shown if kind == "thinking"]) == "We spoke of tea."
        _, _, sent = await asked(anthropic_reply("ok"), Anthropic, (user("?"), said.message, user("go on")))
        assert sent["messages"][1]["content"][0] == {"type": "compaction", "content": "We spoke of tea."}


async def test_citations_of_an_answer_are_in_the_result():
    note = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 4}
    content = [{"type": "output_text", "text": "Blue.", "annotations": [note]}]
    item = {"type": "message", "id": "m", "role": "assistant", "content": content}
    async with WireServer(lambda body: responses_reply(items=[item])) as server:
        agent = Agent(OpenAIResponses("any", base_url=server.url, api_key="k"), journal="memory")
        result = await agent.run("sky?", session_id="s")
        await agent.run("sure?", session_id="s")
        await agent.close()
    assert result.output == "Blue."
    assert result.citations == (note,)
    assert server.requests[1]["input"][1]["content"] == content


# Gemini through LiteLLM


async def test_thought_signature_of_gemini_survives_litellm():
    def gemini(*parts, finish="STOP"):
        held = {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": finish, "index": 0}]}
        return raw({**held, "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}})

    called = {"functionCall": {"name": "add", "args": {"a": 1, "b": 2}}, "thoughtSignature": "c2lnbmVk"}

    def script(body):
        return gemini(called) if len(body["contents"]) == 1 else gemini({"text": "3"})

    before = json.dumps(add.parameters)
    async with WireServer(script) as server:
        model = LiteLLM("gemini/gemini-3-pro-preview", base_url=server.url, api_key="k")
        agent = Agent(model, [add], journal="memory")
        assert (await agent.run("1 + 2?")).output == "3"
        await agent.close()
    assert json.dumps(add.parameters) == before, "LiteLLM changes what it is given"
    (back,) = [part for part in server.requests[1]["contents"][1]["parts"] if "function_call" in part or "functionCall" in part]
    assert back["thoughtSignature"] == "c2lnbmVk"


async def test_plain_answers_of_all_protocols_have_no_citations():
    for kind, answer in ((OpenAI, reply("x")), (Anthropic, anthropic_reply("x")), (OpenAIResponses, responses_reply("x"))):
        said, _, _ = await asked(answer, kind)
        assert said.message.citations == ()


# Media


@pytest.mark.parametrize(
    ("kind", "answer"), [(OpenAI, reply("ok")), (Anthropic, anthropic_reply("ok")), (OpenAIResponses, responses_reply("ok"))]
)
@pytest.mark.parametrize("mime", ["video/mp4", "image/tiff", "application/zip", "application/octet-stream"])
async def test_medium_that_a_provider_does_not_take_is_named_in_its_place(kind, answer, mime):
    """A tool's result must not end the conversation for good."""
    result = ToolResult("here", call_id="c", name="t", media=(Media(mime, "aGk=", name="a.bin"), Media("image/png", "cG5n")))
    called = Message("assistant", (ToolCall("c", "t", {}),))
    _, _, sent = await asked(answer, kind, (user("hi"), called, Message("tool", (result,)), user("go on")))
    assert f"[{mime} a.bin: not shown, for this model takes none]" in json.dumps(sent)
    assert "aGk=" not in json.dumps(sent)
    assert "cG5n" in json.dumps(sent)
