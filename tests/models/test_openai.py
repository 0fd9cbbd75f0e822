"""The OpenAI adapter against a real HTTP server that speaks the protocol."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kaname import Agent, ConfigError, Media, Message, ModelError, ModelRequest, SqliteJournal, ToolCall, Usage
from kaname.core import errors
from kaname.core.messages import Provided, Text, Thinking, user
from kaname.models import OpenAI, Timeouts
from kaname.models.http.sse import EventStream
from kaname.models.registry import resolve
from kaname.testing import ModelContract
from kaname.testing.wire import Answer, WireServer, reply, status
from tests.parts import add, until
from tests.properties import tries


def model(server, **more):
    return OpenAI("any", base_url=server.url, api_key="sk-secret", **more)


async def once(answer, **more):
    async with WireServer([answer]) as server:
        made, shown = model(server, **more), []

        async def emit(text, kind="text", call_id=""):
            shown.append((kind, text))

        try:
            return await made.reply(ModelRequest((user("hi"),)), emit), shown, server
        finally:
            await made.close()


@pytest.mark.parametrize("slice_", [0, 1, 7, 65536])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_a_reply_is_the_same_in_any_slices(slice_, line_end):
    answer = reply(
        "こんにちは, world", [("add", {"a": 1, "b": "二"}), ("sub", {})], thinking="hmm", slice=slice_, line_end=line_end
    )
    got, shown, _ = await once(answer)
    assert got.message == Message(
        "assistant",
        (
            Thinking("hmm"),
            Text("こんにちは, world"),
            ToolCall("call_0", "add", {"a": 1, "b": "二"}),
            ToolCall("call_1", "sub", {}),
            Provided("openai", {"echo": "reasoning_content"}),
        ),
    )
    assert (got.stop_reason, got.usage) == ("tool_use", Usage(10, 5, 2, None))
    assert "".join(text for kind, text in shown if kind == "text") == "こんにちは, world"
    assert "".join(text for kind, text in shown if kind == "thinking") == "hmm"


EVENTS = b': hello\r\ndata: a\r\n\r\nevent: x\rdata:b\rdata: c\r\rdata: {"t": "\xe4\xba\xac"}\n\nid: 3\n\ndata: last'


@given(st.lists(st.integers(0, len(EVENTS)), max_size=30))
def test_events_are_the_same_in_any_slices(cuts):
    stream, got, start = EventStream(), [], 0
    for cut in [*sorted(cuts), len(EVENTS)]:
        got += stream.feed(EVENTS[start:cut])
        start = cut
    assert got + stream.end() == [b"a", b"b\nc", b'{"t": "\xe4\xba\xac"}', b"last"]


def event(*fragments, finish=None, **more):
    delta = {"tool_calls": list(fragments), **more}
    return json.dumps({"choices": [{"delta": delta, "finish_reason": finish}]}).encode()


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        (
            [event({"id": "a", "function": {"name": "f", "arguments": '{"x":'}}), event({"function": {"arguments": "1}"}})],
            [("f", {"x": 1})],
        ),
        (
            [
                event(
                    {"id": "a", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "function": {"name": "g", "arguments": "{}"}},
                )
            ],
            [("f", {}), ("g", {})],
        ),
        (
            [
                event({"index": 0, "id": "same", "function": {"name": "f"}}),
                event({"index": 1, "id": "same", "function": {"name": "g"}}),
            ],
            [("f", {}), ("g", {})],
        ),
        ([event({"index": 0, "function": {"name": "f", "arguments": {"x": 1}}})], [("f", {"x": 1})]),
        ([event({"index": 0, "function": {"name": "f", "arguments": '{"x": '}})], [("f", '{"x": ')]),
        (
            [
                event(
                    {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
                    {"index": 1, "id": "b", "function": {"name": "g"}},
                ),
                event({"index": 1, "function": {"arguments": '{"y":2}'}}),
                event({"index": 0, "function": {"arguments": '{"x":1}'}}),
            ],
            [("f", {"x": 1}), ("g", {"y": 2})],
        ),
    ],
)
async def test_call_fragments_are_joined_however_they_come(events, calls):
    got, _, _ = await once(Answer((*events, event(finish="stop"), b"[DONE]")))
    assert [(c.name, c.args) for c in got.message.calls] == calls


@pytest.mark.parametrize(
    ("answer", "kind", "retryable", "told"),
    [
        (status(400, "bad field"), errors.RequestRefused, False, "400: bad field"),
        (status(400, "This model's maximum context length is 8192 tokens"), errors.ContextTooLong, False, "shorten"),
        (status(400, "flagged by our content filter"), errors.ContentFiltered, False, "rephrase"),
        (status(401, "Incorrect API key provided: sk-secret"), errors.ModelDenied, False, "Incorrect API key provided: ***"),
        (status(403), errors.ModelDenied, False, "403"),
        (status(404, "no such model"), errors.ModelNotFound, False, "base_url"),
        (status(413), errors.ContextTooLong, False, "413"),
        (status(429, "slow down", retry_after=3), errors.RateLimited, True, "slow down"),
        (status(500), errors.ModelUnavailable, True, "500"),
        (
            Answer(status=502, headers=(("content-type", "text/html"),), body=b"<html>Bad gateway</html>"),
            errors.ModelUnavailable,
            True,
            "web page",
        ),
        (Answer(headers=(("content-type", "text/html"),), body=b"<html>"), errors.ReplyGarbled, True, "check base_url"),
        (Answer((b'{"choices": [{"del',)), errors.ReplyGarbled, True, "any"),
        (Answer((b"[1]",)), errors.ReplyGarbled, True, "any"),
        (Answer((b'{"error": {"message": "too many", "type": "rate_limit_exceeded"}}',)), errors.RateLimited, True, "too many"),
        (
            Answer((b'{"error": {"message": "Overloaded", "type": "overloaded_error"}}',)),
            errors.ModelUnavailable,
            True,
            "Overloaded",
        ),
        (Answer(()), errors.ReplyGarbled, True, "the answer is empty"),
        (reply("half an ans", finish=None, done=False), errors.ReplyGarbled, True, "ended in the middle"),
        (reply("a long answer", cut=100), errors.ModelUnreachable, True, "cannot be reached"),
        (reply(finish="content_filter"), errors.ContentFiltered, False, "filter withheld"),
    ],
)
async def test_every_failure_has_its_error(answer, kind, retryable, told):
    with pytest.raises(ModelError) as raised:
        await once(answer)
    assert type(raised.value) is kind
    assert raised.value.retryable is retryable
    error = raised.value
    assert told in f"{error.status}: {error.said} {error}"
    assert error.said not in str(error) or not error.said, "the provider's words are not for everybody"
    assert "sk-secret" not in f"{error} {error.said}"
    assert (raised.value.provider, raised.value.model) == ("openai", "any")
    assert raised.value.retry_after == (3.0 if "slow" in told else None)


async def test_timeouts_and_a_server_that_is_not_there():
    with pytest.raises(errors.ModelTimeout):
        await once(reply("late", delay=5), timeouts=Timeouts(first_byte=0.1))
    with pytest.raises(errors.ModelTimeout):
        await once(reply("slow", slice=10, pause=5), timeouts=Timeouts(between=0.1))
    nobody = OpenAI("any", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(errors.ModelUnreachable, match="cannot be reached"):
        await nobody.reply(ModelRequest((user("hi"),)), lambda *_: asyncio.sleep(0))
    await nobody.close()


async def test_a_server_that_does_not_stream():
    body = {"choices": [{"message": {"content": "all at once"}, "finish_reason": "length"}], "usage": {"prompt_tokens": 1}}
    got, shown, _ = await once(Answer(headers=(("content-type", "application/json"),), body=json.dumps(body).encode()))
    assert (got.message.text, got.stop_reason, shown) == ("all at once", "max_tokens", [("text", "all at once")])


class Report(BaseModel):
    model_config = {"extra": "forbid"}
    n: int


async def test_what_is_sent():
    async with WireServer([reply(calls=[("add", {"a": 1, "b": 2})]), reply("done"), reply('{"n": 3}')]) as server:
        agent = Agent(
            model(server, settings={"temperature": 0}),
            [add],
            instructions="Be brief.",
            output=Report,
            settings={"max_tokens": 9},
            journal="memory",
        )
        result = await agent.run(
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgouLg=="}},
                ],
            }
        )
        await agent.close()
    assert result.output == Report(n=3)
    first, second, third = server.requests
    assert (first["model"], first["stream"], first["temperature"], first["max_tokens"]) == ("any", True, 0, 9)
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    assert first["messages"][1]["content"][1] == {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,iVBORw0KGgouLg=="},
    }
    assert first["tools"][0]["function"]["name"] == "add"
    assert second["messages"][2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1,"b":2}'}
    assert second["messages"][3] == {"role": "tool", "tool_call_id": "c1_0", "content": "3"}
    assert "tools" not in third
    assert third["response_format"]["json_schema"]["strict"] is True
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert server.connections == 1, "the connection is kept"


async def test_the_request_after_a_crash_is_the_same_to_the_byte(tmp_path):
    def script(request):
        if len(request["messages"]) < 3:
            return reply("let me see", [("add", {"a": 1, "b": 2})], thinking="hm")
        return status(503) if down else reply("3")

    down = True
    async with WireServer(script) as server:
        journal = SqliteJournal(tmp_path / "journal.db")
        run = Agent(model(server), [add], instructions="京都", journal=journal).run("1 + 2?")
        with pytest.raises(errors.ModelUnavailable):
            await run
        down = False
        other = Agent(model(server), [add], instructions="京都", journal=SqliteJournal(tmp_path / "journal.db"))
        assert (await other.resume(run.run_id)).output == "3"
        assert server.raw[1] == server.raw[2]
        assert b"sk-secret" not in (tmp_path / "journal.db").read_bytes()
        await journal.close()
        await other.journal.close()


async def test_an_abort_closes_the_connection_at_once():
    async with WireServer([reply("word " * 500, pieces=500, slice=50, pause=0.005)]) as server:
        event = asyncio.Event()
        agent = Agent(model(server), journal="memory")
        async for chunk in agent.run("go", abort_event=event):
            if chunk["type"] == "delta":
                event.set()
        assert await until(lambda: server.closed_early) == 1
        await agent.close()


def test_in_the_synchronous_world_and_over_several_loops():
    async def serve(ready, stop):
        async with WireServer(lambda request: reply("hello")) as server:
            ready.append(server.url)
            await stop.wait()

    import threading

    ready, loop, stop = [], asyncio.new_event_loop(), None

    def background():
        nonlocal stop
        asyncio.set_event_loop(loop)
        stop = asyncio.Event()
        loop.run_until_complete(serve(ready, stop))

    thread = threading.Thread(target=background)
    thread.start()
    while not ready:
        pass
    agent = Agent(OpenAI("any", base_url=ready[0]), journal="memory")
    assert [agent.run_sync("hi").output for _ in range(3)] == ["hello"] * 3

    async def without_closing():
        return (await agent.run("hi")).output

    assert asyncio.run(without_closing()) == "hello", "the loop closes what is left open, without a word"
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_names_and_keys(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="needs a key: set OPENAI_API_KEY"):
        resolve("openai/gpt-4o-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    made = resolve("openai/gpt-4o-mini")
    assert made.name == "openai/gpt-4o-mini"
    assert "sk-secret" not in repr(made)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")
    assert "http://127.0.0.1:9/v1/chat/completions" in repr(resolve("openai/x"))


class TestOpenAI(ModelContract):
    def make(self):
        class Served:
            name = "openai/any"

            async def reply(self, request, emit):
                async with WireServer([reply("hello there", slice=20)]) as server:
                    made = model(server)
                    try:
                        return await made.reply(request, emit)
                    finally:
                        await made.close()

        return Served()


@given(st.lists(st.sampled_from(["text", "call", "think"]), max_size=6), st.integers(1, 9), st.sampled_from([1, 7, 100]))
@tries(100)
def test_any_mixture_in_any_pieces(kinds, pieces, slice_):
    async def go():
        calls = [("f", {"n": n, "s": "京"}) for n, kind in enumerate(kinds) if kind == "call"]
        text, thinking = "あいう abc " * kinds.count("text"), "考え" * kinds.count("think")
        got, _, _ = await once(reply(text, calls, thinking=thinking, pieces=pieces, slice=slice_))
        assert got.message.text == text
        assert got.message.thinking == thinking
        assert [(c.name, c.args) for c in got.message.calls] == calls

    asyncio.run(go())


async def test_media_of_every_kind():
    from kaname.models.providers.openai import encode

    message = Message(
        "user",
        (
            Text("?"),
            Media("audio/wav", "YQ=="),
            Media("application/pdf", "YQ==", name="a.pdf"),
            Media("image/*", url="http://x/y.png"),
        ),
    )
    kinds = [part["type"] for part in json.loads(encode(message))["content"]]
    assert kinds == ["text", "input_audio", "file", "image_url"]
    drawn = Message("user", (Media("image/svg+xml", "PHN2Zy8+", name="a.svg"), Media("text/csv", "YSxi", name="a.csv")))
    said = json.loads(encode(drawn))["content"]
    assert [one["text"] for one in said] == ["\n[a.svg:]\n<svg/>\n[end of a.svg]\n", "\n[a.csv:]\na,b\n[end of a.csv]\n"]


async def test_tool_choice_parallel_calls_and_what_else_is_set():
    async with WireServer([reply(calls=[("add", {"a": 1, "b": 2})]), reply("3"), reply("hi")]) as server:
        chosen = {"tool_choice": "required", "parallel_tool_calls": False, "seed": 7, "some_new_field": {"x": 1}}
        made = model(server, settings=chosen)
        await Agent(made, [add], journal="memory").run("go")
        await made.reply(ModelRequest((user("hi"),)), lambda *_: asyncio.sleep(0))
        await made.close()
    first, _, bare = server.requests
    assert {name: first[name] for name in chosen} == chosen
    assert "tool_choice" not in bare, "a request without tools may not choose one"
    assert "parallel_tool_calls" not in bare
    assert bare["seed"] == 7


async def test_an_agent_need_not_stream():
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    async with WireServer([Answer(headers=(("content-type", "application/json"),), body=json.dumps(body).encode())]) as server:
        made = model(server, settings={"stream": False})
        got = await made.reply(ModelRequest((user("hi"),)), lambda *_: asyncio.sleep(0))
        await made.close()
    assert got.message.text == "whole"
    assert server.requests[0]["stream"] is False
    assert "stream_options" not in server.requests[0]


@given(st.data())
@tries(150)
def test_fragments_of_calls_in_any_interleaving(data):
    """Calls whose fragments come mixed with each other and with text, by index, in slices of any size."""
    count = data.draw(st.integers(1, 4))
    queues, wanted = [], []
    for index in range(count):
        args = {"n": index, "s": "京都 \\ \n"}
        whole = json.dumps(args, ensure_ascii=data.draw(st.booleans()))
        cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=4)))
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        queue = [{"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": f"f{index}", "arguments": ""}}]}]
        queues.append([*queue, *[{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]])
        wanted.append((f"f{index}", args))
    deltas = [queue.pop(0) for queue in queues]
    while any(queues):
        deltas.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
        deltas += data.draw(st.sampled_from([[], [], [{"content": "あ"}], [{"unknown": {"x": 1}}], [{}]]))
    events = [json.dumps({"choices": [{"delta": delta}]}, ensure_ascii=False).encode() for delta in deltas]
    events += [b'{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}', b"[DONE]"]
    got, _, _ = asyncio.run(once(Answer(tuple(events), slice=data.draw(st.sampled_from([0, 1, 3, 50])))))
    assert [(call.name, call.args) for call in got.message.calls] == wanted
    assert set(got.message.text) <= {"あ"}


@pytest.mark.parametrize("kind", ["server_tool_use", "builtin_function", "web_search_call"])
async def test_a_call_that_the_provider_marks_as_its_own_is_not_ours(kind):
    theirs = {"index": 0, "id": "tooluse_1", "type": kind, "function": {"name": "web_search", "arguments": '{"q": "x"}'}}
    ours = {"index": 1, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    for calls, stop in (([theirs], "end_turn"), ([theirs, ours], "tool_use")):
        message = {"content": "found", "tool_calls": calls}
        body = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
        got, *_ = await once(Answer(headers=(("content-type", "application/json"),), body=json.dumps(body).encode()))
        assert [call.name for call in got.message.calls] == ["add"][: len(calls) - 1]
        assert got.stop_reason == stop
        kept = [part.data["name"] for part in got.message.parts if isinstance(part, Provided)]
        assert kept == ["web_search"]


@pytest.mark.parametrize(("mode", "told"), [("constrained", ["tool_choice"]), ("text", ["tool_choice"]), ("native", [])])
def test_choice_of_a_tool_is_reported_as_left_out_where_the_server_does_not_know_the_tools(mode, told):
    model = OpenAI("any", base_url="http://127.0.0.1:1", api_key="k", tool_mode=mode, settings={"tool_choice": "required"})
    assert model.ignores({"temperature": 0}) == told
