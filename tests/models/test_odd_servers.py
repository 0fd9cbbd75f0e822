"""Servers that are a little different, or a little broken: what comes must be read as a person would read it, or be a clear error."""

import asyncio
import gc
import json
import socket
import weakref

import pytest

from kaname import Agent, ConfigError, Media, Message, ModelError, ModelRequest, SqliteJournal, ToolCall, ToolResult, Usage
from kaname.core import errors
from kaname.core.messages import Provided, Text, Thinking, user
from kaname.models import Anthropic, OpenAI, Price, Timeouts
from kaname.models.http.address import endpoint, route_to
from kaname.models.http.sse import EventStream
from kaname.models.providers.openai import encode
from kaname.testing import WireServer
from kaname.testing.wire import Answer, anthropic_reply, reply, status
from tests.models.test_http import EVENTS, STREAM, quiet, request_of, serving
from tests.parts import add

JSON = (("content-type", "application/json"),)


async def asked(answer, kind=OpenAI, request=None, **more):
    async with WireServer([answer]) as server:
        model = kind("any", base_url=server.url, api_key="sk-secret-key", **more)
        try:
            return await model.reply(request or ModelRequest((user("hi"),)), quiet)
        finally:
            await model.close()


def events(*chunks, done=True):
    return Answer((*[json.dumps(chunk).encode() for chunk in chunks], *([b"[DONE]"] if done else [])))


def delta(finish=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


# --- connections ---


@pytest.mark.parametrize("pieces", [1, 7, 12, 40])
async def test_a_reply_that_was_left_in_the_middle_does_not_spoil_the_next(pieces):
    """More is waiting than we care to hold, the reader has been told to pause, and then nobody reads on."""
    pads = [b'{"pad":"' + b"y" * 60_000 + b'"}' for _ in range(pieces)]
    flood = (b'{"choices":[{"delta":{"content":"x"}}]}', *pads, b"[DONE]")
    async with WireServer([Answer(flood), reply("fine")]) as server:
        model = OpenAI("any", base_url=server.url, api_key="k", timeouts=Timeouts(first_byte=60))

        async def slow(*_):
            await asyncio.sleep(60)

        task = asyncio.create_task(model.reply(ModelRequest((user("hi"),)), slow))
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.wait([task])
        assert (await model.reply(ModelRequest((user("hi"),)), quiet)).message.text == "fine"
        await model.close()


async def test_what_follows_the_end_of_an_answer_is_not_waited_for():
    async def lingers(reader, writer):
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + STREAM + b"\r\n")
        writer.write(b"%x\r\n%s\r\n" % (len(EVENTS), EVENTS))
        await asyncio.sleep(60)

    async with serving(lingers) as port:
        model = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k", timeouts=Timeouts(between=60))
        async with asyncio.timeout(40):
            assert (await model.reply(ModelRequest((user("hi"),)), quiet)).message.text == "hello"
        await model.close()


async def test_a_request_that_was_not_taken_in_is_not_gone_on_with():
    """413 before the body was read, and the connection kept: the rest of the old body must not come before the next request."""

    async def early(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(5)

    async with serving(early) as port:
        model = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k", timeouts=Timeouts(first_byte=60))
        for _ in range(2):
            with pytest.raises(errors.ContextTooLong):
                await model.reply(ModelRequest((user("x" * 20_000_000),)), quiet)
        await model.close()


async def test_a_large_first_piece_is_no_endless_head():
    async def handle(reader, writer):
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(STREAM + b"\r\n: " + b"x" * 3_000_000 + b"\n" + EVENTS)

    async with serving(handle) as port:
        model = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k")
        assert (await model.reply(ModelRequest((user("hi"),)), quiet)).message.text == "hello"
        await model.close()


async def test_an_abort_at_any_moment_leaves_no_socket(recwarn):
    async with WireServer(lambda _: reply("hello", slice=20, pause=0.001)) as server:
        model = OpenAI("any", base_url=server.url.replace("127.0.0.1", "localhost"), api_key="k")
        for turns in range(40):
            task = asyncio.create_task(model.reply(ModelRequest((user("hi"),)), quiet))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await model.close()
    gc.collect()
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]


def test_a_loop_that_has_ended_is_forgotten():
    loops, writers = [], []

    async def use(model):
        async with await asyncio.start_server(answering, "127.0.0.1", port):
            await model.reply(ModelRequest((user("hi"),)), quiet)
            writer = writers.pop()
            writer.close()
            await writer.wait_closed()
        loops.append(weakref.ref(asyncio.get_running_loop()))

    async def answering(reader, writer):
        await request_of(reader)
        writers.append(writer)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(EVENTS) + EVENTS)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = OpenAI("any", base_url=f"http://127.0.0.1:{port}/v1", api_key="k")
    for _ in range(3):
        asyncio.run(use(model))
    gc.collect()
    assert not [loop for loop in loops if loop() is not None]


def test_addresses():
    assert endpoint("http://h/v1/?api-version=1", "/chat") == "http://h/v1/chat?api-version=1"
    assert endpoint("http://h/v1/?x=1", "/v1/messages", without="/v1") == "http://h/v1/messages?x=1"
    assert route_to("http://[::1]:8080/v1/x").netloc == "[::1]:8080"
    assert route_to("http://h/日本 語").target == "/%E6%97%A5%E6%9C%AC%20%E8%AA%9E"
    for wrong in (
        "http://h:abc/v1",
        "http://h:99999/v1",
        "http://[::1/v1",
        "ftp://h/v1",
        "h/v1",
        "http:///v1",
        "http://foo..bar/v1",
    ):
        with pytest.raises(ConfigError, match="is not a valid URL"):
            route_to(wrong)
    with pytest.raises(ConfigError, match="user name or a password") as caught:
        OpenAI("any", base_url="http://bob:hunter22@h/v1", api_key="k")
    assert "hunter22" not in str(caught.value)


def test_no_proxy_may_name_a_port(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://p.invalid")
    monkeypatch.setenv("no_proxy", "models.example:8000")
    route_to.cache_clear()
    assert route_to("http://models.example:8000/x").proxy is None
    assert route_to("http://models.example:8001/x").proxy is not None
    route_to.cache_clear()


async def test_ones_own_header_takes_the_place_of_ours():
    async with WireServer([reply("x")]) as server:
        model = OpenAI(
            "any", base_url=server.url, api_key="sk-one", headers={"Authorization": "Bearer other", "Host": "h.example"}
        )
        await model.reply(ModelRequest((user("hi"),)), quiet)
        await model.close()
    assert server.headers[0]["authorization"] == "Bearer other"
    assert server.headers[0]["host"] == "h.example"
    with pytest.raises(ConfigError, match="invalid Unicode character") as caught:
        await asked(reply("x"), headers={"x-key": "secret\udc80"})
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


# --- streams ---


def test_a_long_event_costs_its_bytes_and_a_mark_at_the_beginning_is_no_letter():
    stream = EventStream()
    assert [event for piece in (b"data: ", *[b"x" * 100] * 1999) for event in stream.feed(piece)] == []
    assert stream.feed(b"\n\n") == [b"x" * 100 * 1999]
    assert EventStream().feed(b"\xef\xbb\xbfdata: first\n\n") == [b"first"]
    one = EventStream()
    assert [*one.feed(b"\xef\xbb"), *one.feed(b"\xbfdata: a\n\n"), *one.feed(b"data: b\n\n")] == [b"a", b"b"]


CALLS = {
    "one index for all": [
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}]),
        delta(tool_calls=[{"index": 0, "id": "b", "function": {"name": "g", "arguments": '{"y":2}'}}]),
    ],
    "no index, ids that alternate": [
        delta(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": '{"x"'}}]),
        delta(tool_calls=[{"id": "b", "function": {"name": "g", "arguments": '{"y"'}}]),
        delta(tool_calls=[{"id": "a", "function": {"arguments": ":1}"}}, {"id": "b", "function": {"arguments": ":2}"}}]),
    ],
    "no index, id and name with every piece": [
        delta(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": '{"x"'}}]),
        delta(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": ":1}"}}]),
        delta(tool_calls=[{"id": "b", "function": {"name": "g", "arguments": '{"y":2}'}}]),
    ],
    "whole calls, one index and no ids": [
        delta(tool_calls=[{"index": 0, "id": "", "function": {"name": "f", "arguments": '{"x":1}'}}]),
        delta(tool_calls=[{"index": 0, "id": "", "function": {"name": "g", "arguments": '{"y":2}'}}]),
    ],
    "another id with every piece": [
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}]),
        delta(tool_calls=[{"index": 0, "id": "b", "function": {"name": None, "arguments": ":1}"}}]),
        delta(tool_calls=[{"index": 1, "id": "c", "function": {"name": "g", "arguments": ""}}]),
        delta(tool_calls=[{"index": 1, "id": "d", "function": {"name": "g", "arguments": '{"y":2}'}}]),
    ],
    "an index in letters, the id later": [
        delta(tool_calls=[{"index": "0", "function": {"name": "f", "arguments": '{"x":1}'}}]),
        delta(tool_calls=[{"index": "0", "id": "a", "function": {"arguments": None}}]),
        delta(tool_calls=[None, {"index": "1", "id": "b", "function": {"name": "g", "arguments": {"y": 2}}}]),
    ],
}


@pytest.mark.parametrize("chunks", CALLS.values(), ids=CALLS)
async def test_calls_in_odd_shapes(chunks):
    got = await asked(events(*chunks, delta("tool_calls")))
    assert [(call.name, call.args) for call in got.message.calls] == [("f", {"x": 1}), ("g", {"y": 2})]


ODD = {
    "parts": delta(content=[{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": "fine"}]),
    "several answers": {"choices": [{"index": 0, "delta": {"content": "fine"}}, {"index": 1, "delta": {"content": "other"}}]},
    "nothings": {
        "choices": [None, {"index": 0, "delta": {"content": "fine", "tool_calls": [None], "reasoning": 3}}],
        "usage": "no",
    },
}


@pytest.mark.parametrize("chunk", ODD.values(), ids=ODD)
async def test_odd_chunks(chunk):
    assert (await asked(events(chunk, delta("stop")))).message.text == "fine"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("MAX_TOKENS", "max_tokens"), ("STOP", "end_turn"), ("tool_use", "tool_use"), ("of_the_future", None), ({}, None)],
)
async def test_other_names_for_why_it_stopped(finish, stop):
    assert (await asked(events(delta(finish, content="x")))).stop_reason == stop
    with pytest.raises(errors.ContentFiltered):
        await asked(events(delta("SAFETY", content="x")))


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": "10", "completion_tokens": "5"},
        {"prompt_tokens": 10, "completion_tokens": 5.5, "cost": True},
        {"prompt_tokens": -1, "cost": -3},
    ],
)
async def test_odd_counts_never_reach_the_journal(usage, tmp_path):
    answer = events(delta("stop", content="x"), {"choices": [], "usage": {**usage, "prompt_tokens_details": "none"}})
    async with WireServer([answer]) as server:
        journal = SqliteJournal(tmp_path / "journal.db")
        model = OpenAI("any", base_url=server.url, api_key="k", price=Price(1, 1))
        result = await Agent(model, journal=journal).run("hi")
        await model.close()
        await journal.close()
    assert result.output == "x"
    assert result.usage.cost >= 0
    assert result.usage.input in (10, 0)


EMPTY = {
    "an error where the reason stands": events({"choices": [{"delta": {"content": "half"}, "finish_reason": "error"}]}),
    "an error with the label of a stream": Answer(body=b'{"error": {"message": "no", "code": 500}}'),
    "a word instead": Answer(headers=JSON, body=b'{"detail": "Model is loading"}'),
    "an empty object": Answer(headers=JSON, body=b"{}"),
    "an error object": events({"object": "error", "message": "no", "code": 400}),
    "an empty event": events({}),
    "a message": events({"message": "overload"}),
    "bytes that are no text": Answer((b'{"choices":[{"delta":{"content":"\xff"}}]}',)),
    "depth": Answer((b"[" * 100_000,)),
}


@pytest.mark.parametrize("answer", EMPTY.values(), ids=EMPTY)
async def test_nothing_is_no_answer(answer):
    with pytest.raises(ModelError):
        await asked(answer)


async def test_signs_of_life_before_a_whole_answer():
    body = b"\n\n" * 300 + json.dumps({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}).encode()
    assert (await asked(Answer(headers=JSON, body=body, slice=2))).message.text == "fine"
    told = Answer(headers=JSON, body=b'{"error": {"type": "overloaded_error", "message": "busy"}}')
    with pytest.raises(errors.ModelUnavailable, match="busy"):
        await asked(told, Anthropic)


@pytest.mark.parametrize("headers", [(), (("content-type", "text/plain"),), (("content-type", "Application/JSON"),)])
async def test_a_whole_answer_of_any_content_type(headers):
    body = json.dumps({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}).encode()
    assert (await asked(Answer(headers=headers, body=body))).message.text == "fine"


STREAM_ERRORS = {
    "RateLimitError": errors.RateLimited,
    "APIConnectionError": errors.ModelUnavailable,
    "upstream_error": errors.ModelUnavailable,
    "of_the_future": errors.ModelUnavailable,
    502: errors.ModelUnavailable,
    "502": errors.ModelUnavailable,
    429: errors.RateLimited,
    401: errors.ModelDenied,
    "context_length_exceeded": errors.ContextTooLong,
    "content_filter": errors.ContentFiltered,
    "insufficient_quota": errors.ModelDenied,
    "authentication_error": errors.ModelDenied,
    "not_found_error": errors.ModelNotFound,
    "request_too_large": errors.ContextTooLong,
    "timeout_error": errors.ModelUnavailable,
    "invalid_request_error": errors.RequestRefused,
}


@pytest.mark.parametrize(("code", "kind"), STREAM_ERRORS.items())
async def test_an_error_inside_a_stream_by_its_name_or_number(code, kind):
    with pytest.raises(ModelError) as caught:
        await asked(events({"error": {"code": code, "message": "so it is"}}))
    assert type(caught.value) is kind
    told = {"type": "error", "error": {"type": str(code), "message": "so it is"}}
    with pytest.raises(ModelError) as caught:
        await asked(Answer((json.dumps(told).encode(),)), Anthropic)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "words",
    [
        "the request exceeds the available context size",
        "The input token count (9) exceeds the maximum number of tokens allowed",
        "This model's maximum prompt length is 8",
        "longer than the maximum model length of 8",
    ],
)
async def test_too_long_in_other_words(words):
    with pytest.raises(errors.ContextTooLong):
        await asked(status(400, words))


BROKEN_ERRORS = {
    "cut off": b"HTTP/1.1 401 No\r\ncontent-length: 500\r\n\r\nhalf",
    "chunks cut off": b"HTTP/1.1 429 No\r\nretry-after: 7\r\ntransfer-encoding: chunked\r\n\r\n50\r\nhalf",
    "deep": b"HTTP/1.1 400 No\r\n\r\n" + b"[" * 9000,
    "odd patience": b"HTTP/1.1 429 No\r\nretry-after-ms: \xc2\xb2\r\nretry-after: inf\r\ncontent-length: 0\r\n\r\n",
}


KINDS = [errors.ModelDenied, errors.RateLimited, errors.RequestRefused, errors.RateLimited]


@pytest.mark.parametrize(("name", "kind"), list(zip(BROKEN_ERRORS, KINDS, strict=True)))
async def test_an_error_whose_explanation_breaks_off_is_still_that_error(name, kind):
    async def handle(reader, writer):
        await request_of(reader)
        writer.write(BROKEN_ERRORS[name])

    async with serving(handle) as port:
        model = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k")
        with pytest.raises(ModelError) as caught:
            await model.reply(ModelRequest((user("hi"),)), quiet)
        assert type(caught.value) is kind
        assert caught.value.retry_after == (7.0 if name == "chunks cut off" else None)
        await model.close()


# --- secrets ---


async def test_no_key_is_shown_wherever_it_came_from():
    for headers in (
        {"Authorization": "Bearer my-own-secret"},
        {"X-Auth": "my-own-secret"},
        {"Cookie": "a=b; session=my-own-secret"},
    ):
        with pytest.raises(ModelError) as caught:
            await asked(status(401, "the key my-own-secret is wrong"), headers=headers)
        assert "my-own-secret" not in str(caught.value)
    model = OpenAI("any", base_url="http://127.0.0.1:1?key=in-the-query", api_key="sk-secret-key")
    assert "sk-secret" not in f"{model!r} {model.who!r}"
    with pytest.raises(ModelError) as caught:
        await model.reply(ModelRequest((user("hi"),)), quiet)
    assert "in-the-query" not in f"{caught.value} {model!r}"
    with pytest.raises(errors.ReplyGarbled) as caught:
        await asked(Answer((b"x" * 390 + b"sk-secret-key",)))
    assert "sk-secret" not in str(caught.value)


# --- what goes out ---


async def test_tools_of_the_provider_beside_ours():
    search = {"type": "web_search_20250305", "name": "web_search"}
    for kind, said in ((OpenAI, reply), (Anthropic, anthropic_reply)):
        async with WireServer([said("x")]) as server:
            model = kind("any", base_url=server.url, api_key="k", settings={"tools": [search]})
            await Agent(model, [add], journal="memory").run("hi")
            await model.close()
        assert server.raw[0].count(b'"tools"') == 1
        assert [tool.get("name") or tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["add", "web_search"]


async def test_who_thinks_is_not_forced_to_a_form():
    request = ModelRequest(
        (user("hi"),), schema={"type": "object"}, settings={"thinking": {"type": "enabled", "budget_tokens": 1024}}
    )
    async with WireServer([anthropic_reply(calls=[("answer", {"a": 1})], thinking="hm")]) as server:
        model = Anthropic("any", base_url=server.url, api_key="k")
        got = await model.reply(request, quiet)
        await model.close()
    assert server.requests[0]["tool_choice"] == {"type": "auto"}
    assert json.loads(got.message.text) == {"a": 1}
    got = await asked(anthropic_reply("Here is the answer:", [("answer", {"a": 1})], thinking="hm"), Anthropic, request)
    assert json.loads(got.message.text) == {"a": 1}, "what is said beside the form is not the answer"


async def test_a_refusal_after_some_words_is_a_refusal():
    with pytest.raises(errors.ContentFiltered):
        await asked(anthropic_reply("I will", stop="refusal"), Anthropic)


def test_pictures_in_results_follow_the_results():
    calls = Message("assistant", (ToolCall("a", "f", {}), ToolCall("b", "g", {})))
    picture = ToolResult("seen", call_id="a", name="f", media=(Media("image/png", "aGk="),))
    plain = ToolResult("ok", call_id="b", name="g")
    messages = (user("go"), calls, Message("tool", (picture,)), Message("tool", (plain,)), user("and?"))
    model = OpenAI("any", base_url="http://127.0.0.1:1", api_key="k")
    sent = json.loads(model.body(ModelRequest(messages)))["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert sent[4]["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="


def test_sound_has_the_names_that_the_protocol_knows():
    for mime, name in (("audio/mpeg", "mp3"), ("audio/x-wav", "wav"), ("audio/wav", "wav")):
        (part,) = json.loads(encode(Message("user", (Media(mime, "aGk="),))))["content"]
        assert part["input_audio"]["format"] == name
    with pytest.raises(ConfigError, match="not url="):
        encode(Message("user", (Media("audio/wav", url="http://h/x.wav"),)))


async def test_the_same_function_twice_under_one_index():
    calls = [
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": f'{{"x":{n}}}'}}]) for n in (1, 2)
    ]
    got = await asked(events(*calls, delta("tool_calls")))
    assert [(call.name, call.args) for call in got.message.calls] == [("f", {"x": 1}), ("f", {"x": 2})]


async def test_two_calls_without_arguments_and_one_index():
    first = delta(tool_calls=[{"id": "a", "function": {"name": "now", "arguments": ""}}])
    second = delta(tool_calls=[{"id": "a", "function": {"name": "g", "arguments": '{"x":1}'}}])
    got = await asked(events(first, second, delta("tool_calls")))
    assert [(call.name, call.args) for call in got.message.calls] == [("now", {}), ("g", {"x": 1})]


async def test_reasoning_goes_back_to_the_server_that_wrote_it():
    details, signature = (
        [{"type": "reasoning.text", "text": "Let me", "signature": "s", "index": 0}],
        {"google": {"thought_signature": "sig"}},
    )
    said = events(
        delta(reasoning_content="let me see", reasoning_details=[{"type": "reasoning.text", "text": "Let", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.text", "text": " me", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.text", "signature": "s", "index": 0}]),
        delta(
            tool_calls=[
                {"index": 0, "id": "a", "extra_content": signature, "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
            ]
        ),
        delta("tool_calls"),
    )
    async with WireServer([said, reply("3")]) as server:
        model = OpenAI("any", base_url=server.url, api_key="k")
        result = await Agent(model, [add], journal="memory").run("1 + 2?")
        await model.close()
    assert result.output == "3"
    back = server.requests[1]["messages"][1]
    assert back["reasoning_content"] == "let me see"
    assert back["reasoning_details"] == details
    assert back["tool_calls"][0]["extra_content"] == signature
    groq = [delta(reasoning="hm"), *CALLS["one index for all"][:1], delta("tool_calls")]
    got = await asked(events(*groq))
    assert got.message.thinking == "hm"
    assert "hm" not in encode(got.message).decode(), "servers that call it so do not want it back"
    foreign = Message(
        "assistant",
        (Thinking("unsigned", ""), Thinking("signed", "sig"), Provided("anthropic", {"x": 1}), ToolCall("a", "f", {})),
    )
    assert "signed" not in encode(foreign).decode()


# --- Anthropic's blocks ---


async def test_blocks_that_are_not_as_they_should_be():
    chunks = [
        {"type": "message_start", "message": {"usage": {"input_tokens": "8", "server_tool_use": 3}}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": "a"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": None}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "b"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "zz"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    got = await asked(Answer(tuple([json.dumps(chunk).encode() for chunk in chunks])), Anthropic)
    assert got.message.parts == (Text("ab"), Provided("anthropic", {"type": "redacted_thinking", "data": "zz"}))
    assert got.usage == Usage(8, 0, 0, None)
    whole = {"type": "message", "content": "just words", "stop_reason": "end_turn"}
    assert (await asked(Answer(headers=JSON, body=json.dumps(whole).encode()), Anthropic)).message.text == "just words"


async def test_pings_after_the_end_do_not_hold_the_answer_up():
    async def chatty(reader, writer):
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" + STREAM + b"\r\n" + EVENTS)
        for _ in range(6000):
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(chatty) as port:
        model = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k")
        async with asyncio.timeout(40):
            assert (await model.reply(ModelRequest((user("hi"),)), quiet)).message.text == "hello"
        await model.close()
