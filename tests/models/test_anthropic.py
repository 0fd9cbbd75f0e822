"""The Anthropic adapter against a real HTTP server that speaks the protocol."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kaname import (
    Agent,
    ConfigError,
    Media,
    Message,
    ModelError,
    ModelRequest,
    SqliteJournal,
    ToolCall,
    ToolResult,
    Usage,
    max_steps,
    tool,
)
from kaname.core import errors
from kaname.core.messages import Provided, Text, Thinking, ToolSpec, user
from kaname.models import Anthropic, Price
from kaname.models.registry import resolve
from kaname.testing import ModelContract
from kaname.testing.wire import Answer, WireServer, anthropic_reply, status
from tests.parts import add, until
from tests.properties import tries


def model(server, **more):
    return Anthropic("claude", base_url=server.url, api_key="sk-secret", **more)


async def once(answer, request=None, **more):
    async with WireServer([answer]) as server:
        made, shown = model(server, **more), []

        async def emit(text, kind="text", call_id=""):
            shown.append((kind, text))

        try:
            return await made.reply(request or ModelRequest((user("hi"),)), emit), shown, server
        finally:
            await made.close()


@pytest.mark.parametrize("slice_", [0, 1, 7, 65536])
async def test_a_reply_is_the_same_in_any_slices(slice_):
    searched = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "京都"}}
    answer = anthropic_reply("見ます", [("add", {"a": 1, "b": 2})], thinking="hmm", blocks=[searched], slice=slice_)
    got, shown, _ = await once(answer)
    assert got.message == Message(
        "assistant",
        (Thinking("hmm", "sig"), Provided("anthropic", searched), Text("見ます"), ToolCall("toolu_0", "add", {"a": 1, "b": 2})),
    )
    assert (got.stop_reason, got.usage) == ("tool_use", Usage(10, 5, 2, None))
    assert [call.name for call in got.message.calls] == ["add"], "what the provider ran by itself is not ours to run"
    assert "".join(text for kind, text in shown if kind == "text") == "見ます"
    assert "".join(text for kind, text in shown if kind == "thinking") == "hmm"


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        (status(401, "invalid x-api-key sk-secret"), errors.ModelDenied, False),
        (status(400, "prompt is too long: 300000 tokens"), errors.ContextTooLong, False),
        (status(404), errors.ModelNotFound, False),
        (status(429, retry_after=7), errors.RateLimited, True),
        (status(529, "Overloaded"), errors.ModelUnavailable, True),
        (
            Answer((b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',)),
            errors.ModelUnavailable,
            True,
        ),
        (
            Answer((b'{"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}',)),
            errors.RequestRefused,
            False,
        ),
        (anthropic_reply("half", done=False), errors.ReplyGarbled, True),
        (anthropic_reply("a long answer", cut=150), errors.ModelUnreachable, True),
        (anthropic_reply(stop="refusal"), errors.ContentFiltered, False),
        (Answer(()), errors.ReplyGarbled, True),
        (Answer((b'{"type": "mess',)), errors.ReplyGarbled, True),
    ],
)
async def test_every_failure_has_its_error(answer, kind, retryable):
    with pytest.raises(ModelError) as raised:
        await once(answer)
    assert (type(raised.value), raised.value.retryable) == (kind, retryable)
    assert "sk-secret" not in str(raised.value)
    assert raised.value.retry_after == (7.0 if kind is errors.RateLimited else None)


class Report(BaseModel):
    n: int


async def test_what_is_sent():
    answers = [
        anthropic_reply("let me see", [("add", {"a": 1, "b": 2}), ("look", {})], thinking="hm", signature="s1"),
        anthropic_reply("done"),
        anthropic_reply(calls=[("answer", {"n": 3})]),
    ]

    @tool(effect="pure")
    def look() -> ToolResult:
        """Look."""
        return ToolResult("a picture", media=(Media("image/png", "aGk="),))

    async with WireServer(answers) as server:
        agent = Agent(model(server), [add, look], instructions="Be brief.", output=Report, journal="memory")
        result = await agent.run("go")
        await agent.close()
    assert result.output == Report(n=3)
    first, second, third = server.requests
    mark = {"type": "ephemeral"}
    assert first["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert first["max_tokens"] == 8192
    assert [t.get("cache_control") for t in first["tools"]] == [None, mark]
    assert first["messages"] == [{"role": "user", "content": [{"type": "text", "text": "go", "cache_control": mark}]}]
    asked, answered = second["messages"][1:]
    assert asked["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "s1"}
    assert asked["content"][2] == {"type": "tool_use", "id": "c1_2", "name": "add", "input": {"a": 1, "b": 2}}
    assert [b["tool_use_id"] for b in answered["content"]] == ["c1_2", "c1_3"], "all results in one turn"
    assert answered["content"][1]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert third["tool_choice"] == {"type": "tool", "name": "answer"}
    assert [m["role"] for m in third["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert server.headers[0]["x-api-key"] == "sk-secret"


async def test_a_tool_of_ones_own_may_be_called_answer():
    got, _, _ = await once(anthropic_reply(calls=[("answer", {"x": 1})]))
    assert got.message.calls == (ToolCall("toolu_0", "answer", {"x": 1}),)
    got, shown, _ = await once(
        anthropic_reply(calls=[("answer", {"x": 1})]), ModelRequest((user("hi"),), schema={"type": "object"})
    )
    assert (got.message.text, got.stop_reason) == ('{"x": 1}', "end_turn")
    assert "".join(text for _, text in shown) == got.message.text


async def test_the_request_after_a_crash_is_the_same_to_the_byte(tmp_path):
    searched = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"title": "京都"}]}

    def script(request):
        if len(request["messages"]) < 3:
            return anthropic_reply("見ます", [("add", {"a": 1, "b": 2})], thinking="hm", blocks=[searched])
        return status(529) if down else anthropic_reply("3")

    down = True
    async with WireServer(script) as server:
        journal = SqliteJournal(tmp_path / "journal.db")
        run = Agent(model(server), [add], instructions="x", journal=journal).run("1 + 2?")
        with pytest.raises(errors.ModelUnavailable):
            await run
        down = False
        other = Agent(model(server), [add], instructions="x", journal=SqliteJournal(tmp_path / "journal.db"))
        assert (await other.resume(run.run_id)).output == "3"
        assert server.raw[1] == server.raw[2]
        await journal.close()
        await other.journal.close()


async def test_a_server_that_does_not_stream():
    body = {
        "content": [{"type": "text", "text": "all"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    got, shown, _ = await once(Answer(headers=(("content-type", "application/json"),), body=json.dumps(body).encode()))
    assert got.message == Message("assistant", (Text("all"), ToolCall("t", "f", {"x": 1})))
    assert (got.usage.total, shown) == (7, [("text", "all")])


async def test_an_abort_closes_the_connection_at_once():
    async with WireServer([anthropic_reply("word " * 500, pieces=500, slice=50, pause=0.005)]) as server:
        event = asyncio.Event()
        agent = Agent(model(server), journal="memory")
        async for chunk in agent.run("go", abort_event=event):
            if chunk["type"] == "delta":
                event.set()
        assert await until(lambda: server.closed_early) == 1
        await agent.close()


def test_names_and_keys(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="set ANTHROPIC_API_KEY"):
        resolve("anthropic/claude")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert resolve("anthropic/claude").name == "anthropic/claude"


class TestAnthropic(ModelContract):
    def make(self):
        class Served:
            name = "anthropic/claude"

            async def reply(self, request, emit):
                async with WireServer([anthropic_reply("hello there", slice=20)]) as server:
                    made = model(server)
                    try:
                        return await made.reply(request, emit)
                    finally:
                        await made.close()

        return Served()


async def test_a_paused_turn_is_gone_on_with():
    searched = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "京都"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    pauses = [
        anthropic_reply("", thinking="hm", blocks=[searched], stop="pause_turn"),
        anthropic_reply("and ", blocks=[found], stop="pause_turn"),
        anthropic_reply("found", [("add", {"a": 1, "b": 2})]),
    ]
    async with WireServer(pauses) as server:
        made = model(server)
        got = await made.reply(ModelRequest((user("hi"),)), lambda *_: asyncio.sleep(0))
        await made.close()
    assert got.message.text == "and found"
    assert [call.name for call in got.message.calls] == ["add"]
    assert (got.stop_reason, got.usage.input) == ("tool_use", 30)
    assert [block["type"] for block in server.requests[2]["messages"][1]["content"]] == [
        "thinking",
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    async with WireServer(lambda _: anthropic_reply("…", stop="pause_turn")) as server:
        made = model(server)
        got = await made.reply(ModelRequest((user("hi"),)), lambda *_: asyncio.sleep(0))
        await made.close()
        assert len(server.requests) == 11, "not for ever"
        assert got.stop_reason is None


KINDS = {
    "text": ({"type": "text", "text": ""}, "text_delta", "text"),
    "thinking": ({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking"),
    "tool_use": ({"type": "tool_use", "id": "t", "name": "add", "input": {}}, "input_json_delta", "partial_json"),
}


@given(st.data())
@tries(150)
def test_blocks_in_any_order_pieces_and_slices(data):
    """Content blocks whose deltas come mixed with each other, with pings and unknown events, in slices of any size."""
    blocks = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    queues, wanted = [], []
    for index, kind in enumerate(blocks):
        start, delta, field = KINDS[kind]
        whole = '{"a": "京", "b": [1, {}]}' if kind == "tool_use" else f"言葉 {index} and \\ \n more"
        cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=4)))
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        queue = [{"type": "content_block_start", "index": index, "content_block": start}]
        queue += [{"type": "content_block_delta", "index": index, "delta": {"type": delta, field: piece}} for piece in pieces]
        queues.append([*queue, {"type": "content_block_stop", "index": index}])
        wanted.append((kind, whole))
    events = [{"type": "message_start", "message": {"usage": {"input_tokens": 8}}}]
    while any(queues):
        events.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
        events += data.draw(st.sampled_from([[], [], [{"type": "ping"}], [{"type": "of_the_future", "index": 0, "x": [1]}]]))
    events += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}, {"type": "message_stop"}]
    answer = Answer(
        tuple([json.dumps(event, ensure_ascii=False).encode() for event in events]),
        slice=data.draw(st.sampled_from([0, 1, 3, 50])),
    )
    got, _, _ = asyncio.run(once(answer))
    kinds = {Text: "text", Thinking: "thinking", ToolCall: "tool_use"}
    parts = [
        (kinds[type(part)], json.dumps(part.args) if isinstance(part, ToolCall) else part.text) for part in got.message.parts
    ]
    assert [(k, json.loads(t) if k == "tool_use" else t) for k, t in parts] == [
        (k, json.loads(t) if k == "tool_use" else t) for k, t in wanted
    ]


async def test_tool_choice_and_what_else_is_set():
    choice = {"type": "any", "disable_parallel_tool_use": True}
    async with WireServer([anthropic_reply(calls=[("add", {"a": 1, "b": 2})]), anthropic_reply("3")]) as server:
        made = model(server, settings={"tool_choice": choice, "thinking": {"type": "enabled", "budget_tokens": 1024}})
        await Agent(made, [add], settings={"max_tokens": 99}, journal="memory").run("go")
        await made.close()
    first = server.requests[0]
    assert first["tool_choice"] == choice
    assert (first["thinking"]["budget_tokens"], first["max_tokens"]) == (1024, 1024 + 99)


JSON = (("content-type", "application/json"),)


async def test_all_rounds_of_a_reply_are_counted():
    """Compaction and an advisor are charged beside the message, which alone the usage's own figures count."""
    from kaname.models.prices import Price, price_of

    rounds = [
        {"type": "compaction", "input_tokens": 50_000, "output_tokens": 1000},
        {"type": "message", "input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 0},
        {"type": "advisor_message", "model": "claude-opus-4-6", "input_tokens": 10, "output_tokens": 10},
    ]
    price = Price(1.0, 5.0)
    for known, last in ((True, rounds[2]), (False, {"type": "something_new", "input_tokens": 10, "output_tokens": 10})):
        usage = {"input_tokens": 100, "output_tokens": 20, "iterations": [*rounds[:2], last]}
        answer = {"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": usage}
        got, _, _ = await once(Answer(headers=JSON, body=json.dumps(answer).encode()), price=price)
        assert (got.usage.input, got.usage.output) == (50_110, 1_030)
        advised = price_of("anthropic/claude-opus-4-6")
        paid = price.of(Usage(50_100, 1_020)) + advised.of(Usage(10, 10))
        assert got.usage.cost == (pytest.approx(paid) if known else None)


@pytest.mark.parametrize(
    ("settings", "headers", "most"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 16_000}}, {}, 16_000 + 8192),
        ({"thinking": {"type": "enabled", "budget_tokens": 8192}}, {}, 2 * 8192),
        ({"thinking": {"type": "enabled", "budget_tokens": 8191}}, {}, 8192),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 500}, {}, 2548),
        ({"thinking": {"type": "adaptive"}, "max_tokens": 500}, {}, 500),
        ({"thinking": {"type": "disabled"}}, {}, 8192),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 9000}},
            {"anthropic-beta": "interleaved-thinking-2025-05-14"},
            8192,
        ),
    ],
)
async def test_max_tokens_leaves_room_for_an_answer_beside_the_thinking(settings, headers, most):
    _, _, server = await once(anthropic_reply("fine"), settings=settings, headers=headers)
    assert server.requests[0]["max_tokens"] == most


TAKEN = {  # by the Messages API; it refuses a request with any other field
    *("model", "messages", "max_tokens", "stream", "system", "temperature", "top_k", "top_p", "thinking", "tools"),
    *("tool_choice", "stop_sequences", "metadata", "service_tier", "container", "context_management", "output_config"),
}
NO_OTHER = {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    ("mine", "agents", "told"),
    [
        (
            {"seed": 7, "temperature": 0},
            {"n": 2, "frequency_penalty": 1, "logprobs": True},
            "seed, n, frequency_penalty, logprobs",
        ),
        ({"logit_bias": {"5": 1}}, {"presence_penalty": 1, "top_logprobs": 2}, "logit_bias, presence_penalty, top_logprobs"),
        ({}, {"response_format": {"type": "json_object"}, "reasoning_effort": "low"}, "response_format, reasoning_effort"),
        ({"seed": None, "stream_options": {}}, {"top_k": 5, "stop": "END", "user": "u", "parallel_tool_calls": True}, ""),
        ({}, {"stop": ["\n", "END"]}, "stop"),
    ],
)
async def test_anthropic_settings_that_the_api_refuses_are_left_out_and_reported_once(mine, agents, told):
    def script(body):
        assert body.keys() <= TAKEN
        return anthropic_reply("3") if len(body["messages"]) > 1 else anthropic_reply("", [("add", {"a": 1, "b": 2})])

    async with WireServer(script) as server:
        agent = Agent(model(server, settings=mine), [add], settings=agents, journal="memory")
        seen = [chunk async for chunk in agent.run("1 + 2?", session_id="s")]
        seen += [chunk async for chunk in agent.run("again?", session_id="s")]
        await agent.close()
    warnings = [chunk["content"] for chunk in seen if chunk["type"] == "status" and chunk["data"]["status"] == "warning"]
    assert warnings == ([f"anthropic/claude does not support these settings, so they are not sent: {told}"] if told else [])


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["A", " "], "stop_sequences": ["B"]}, {"stop_sequences": ["B", "A"]}),
        ({"max_completion_tokens": 9}, {"max_tokens": 9}),
        ({"user": "u1"}, {"metadata": {"user_id": "u1"}}),
        ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, {"tool_choice": {"type": "tool", "name": "add"}}),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "any"}}),
        ({"parallel_tool_calls": False}, {"tool_choice": NO_OTHER}),
        ({"parallel_tool_calls": False, "tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
    ],
)
async def test_anthropic_settings_with_a_counterpart_are_sent_in_the_names_of_the_api(given, sent):
    offered = ModelRequest((user("hi"),), tools=(ToolSpec("add", "", {"type": "object"}),))
    _, _, server = await once(anthropic_reply("fine"), offered, settings=given)
    assert server.requests[0].keys() <= TAKEN
    assert {name: server.requests[0].get(name) for name in sent} == sent


async def test_last_words_are_asked_with_the_tools_of_the_conversation_and_none_to_choose():
    answers = [anthropic_reply("", [("add", {"a": 1, "b": 2})]), anthropic_reply("3, as far as I got")]
    async with WireServer(answers) as server:
        agent = Agent(model(server, settings={"tool_choice": {"type": "any"}}), [add], stops=max_steps(1), journal="memory")
        result = await agent.run("go")
        await agent.close()
    first, last = server.requests
    assert (result.stop.kind, result.output) == ("max_steps", "3, as far as I got")
    assert last["tools"] == first["tools"], "also for the prompt cache"
    assert (first["tool_choice"], last["tool_choice"]) == ({"type": "any"}, {"type": "none"})


async def test_request_without_calls_in_its_history_sends_no_tools():
    told = ModelRequest((user("hi"),), unoffered=(ToolSpec("add", "Add.", {"type": "object"}),))
    _, _, server = await once(anthropic_reply("fine"), told)
    assert "tools" not in server.requests[0]


def cached(hour, five):
    """An answer that has put tokens into the cache, in message_start as the API says it."""
    usage = {
        "input_tokens": 100,
        "output_tokens": 1,
        "cache_creation_input_tokens": hour + five,
        "cache_creation": {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour},
    }
    rest = anthropic_reply("fine").events[1:]
    return Answer((json.dumps({"type": "message_start", "message": {"usage": usage}}).encode(), *rest))


@pytest.mark.parametrize(
    ("price", "hour", "five", "charged"),
    [
        (Price(10.0, 50.0, 1.0, 12.5, hour=20.0), 1000, 0, 100 * 10 + 1000 * 20 + 5 * 50),
        (Price(10.0, 50.0, 1.0, 12.5, hour=20.0), 1000, 400, 100 * 10 + 1000 * 20 + 400 * 12.5 + 5 * 50),
        (Price(10.0, 50.0, 1.0, 12.5), 0, 400, 100 * 10 + 400 * 12.5 + 5 * 50),
        (Price(10.0, 50.0, 1.0, 12.5), 1, 400, None),
        (Price(1.0, 1.0, over=50, long=Price(2.0, 2.0, hour=4.0)), 10, 0, 100 * 2 + 10 * 4 + 5 * 2),
    ],
)
async def test_one_hour_cache_writes_have_their_own_price(price, hour, five, charged):
    got, _, _ = await once(cached(hour, five), price=price)
    assert got.usage.input == 100 + hour + five
    assert got.usage.cost == (None if charged is None else pytest.approx(charged / 1e6))


@pytest.mark.parametrize(
    ("given", "mark"), [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"}), ("off", None)]
)
async def test_prompt_cache_can_be_kept_longer_or_switched_off(given, mark):
    async with WireServer([anthropic_reply("done")]) as server:
        agent = Agent(model(server, prompt_cache=given), [add], instructions="Be brief.", journal="memory")
        assert (await agent.run("go")).output == "done"
        await agent.close()
    (sent,) = server.requests
    marked = [sent["system"][0], sent["tools"][0], sent["messages"][0]["content"][0]]
    assert [one.get("cache_control") for one in marked] == [mark] * 3


def test_unknown_prompt_cache_is_refused():
    with pytest.raises(ConfigError, match='must be "5m", "1h" or "off"'):
        Anthropic("claude", api_key="sk-secret", prompt_cache="2h")
