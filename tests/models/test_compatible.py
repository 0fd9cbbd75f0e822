"""Providers that speak OpenAI's protocol, each in its own way: a real server refuses what the provider refuses."""

import json
import re

import pytest

from kaname import Agent, ConfigError, Message, ModelRequest, ToolCall, ToolResult, max_steps, tool
from kaname.core import errors
from kaname.core.messages import Provided, Thinking, user
from kaname.models.compatible import SERVERS, with_keys
from kaname.models.registry import LITELLM, maker, resolve
from kaname.testing import WireServer
from kaname.testing.wire import Answer, reply, status

ALL = ["groq", "openrouter", "deepseek", "mistral", "together_ai", "fireworks_ai", "xai", "cerebras", "perplexity", "moonshot"]
HI = (user("hi"),)
HISTORY = (  # a turn of another model, which had thought before it called
    user("1 + 2?"),
    Message(
        "assistant",
        (Thinking("hm"), ToolCall("c1_1", "add", {"a": 1, "b": 2}), Provided("openai", {"echo": "reasoning_content"})),
    ),
    Message("tool", (ToolResult(3, call_id="c1_1", name="add"),)),
    user("answer now"),
)


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def events(*chunks, done=True):
    return Answer((*[json.dumps(one).encode() for one in chunks], *([b"[DONE]"] if done else [])))


def delta(finish=None, usage=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}], **({"usage": usage} if usage else {})}


def called(name, args, *, id="call_1"):
    return {
        "tool_calls": [{"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}]
    }


async def asked(provider, script, messages=HI, name="some-model", settings=None, **more):
    async with WireServer(script) as server:
        model, shown = maker(provider)(name, base_url=server.url, api_key="sk-secret", settings=settings), []

        async def emit(text, kind="text", call_id=""):
            shown.append((kind, text))

        try:
            return await model.reply(ModelRequest(messages, **more), emit), shown, server
        finally:
            await model.close()


# The way there


@pytest.mark.parametrize("provider", ALL)
async def test_provider_is_reached_by_our_own_adapter_with_its_key(provider, monkeypatch):
    variable = SERVERS[provider].keys[0]
    monkeypatch.setenv(variable, "sk-of-the-environment")
    model = resolve(f"{provider}/org/some-model")
    assert (model.name, model.provider) == (f"{provider}/org/some-model", provider)
    assert SERVERS[provider].address in repr(model)
    async with WireServer([reply("fine")]) as server:
        monkeypatch.setenv(variable.replace("_API_KEY", "_BASE_URL"), server.url)
        agent = Agent(f"{provider}/org/some-model", journal="memory")
        result = await agent.run("hi")
        await agent.close()
    assert (result.output, result.usage.cost) == ("fine", None), "the price is unknown"
    assert server.headers[0]["authorization"] == "Bearer sk-of-the-environment"
    assert server.requests[0]["model"].endswith("org/some-model")


def test_missing_key_names_the_variable_to_set(monkeypatch):
    for provider, server in SERVERS.items():
        for name in server.keys:
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(ConfigError, match=f"{provider}/x needs a key: set {server.keys[0]}$"):
            resolve(f"{provider}/x")


def test_server_of_ones_own_needs_no_key(monkeypatch):
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.setenv("GROQ_API_BASE", "http://127.0.0.1:9/v1")
    assert "127.0.0.1:9" in repr(resolve("groq/x"))


def test_table_has_secure_addresses_and_leaves_the_others_to_litellm():
    assert all(re.fullmatch(r"https://[\w.-]+[\w./-]*[^/]", one.address) for one in SERVERS.values())
    assert all(re.fullmatch(r"[A-Z0-9_]+", name) for one in SERVERS.values() for name in one.keys)
    assert {"gemini", "bedrock", "azure", "vertex_ai", "cohere"} <= LITELLM - set(SERVERS)
    with pytest.raises(ConfigError, match="did you mean 'groq'"):
        resolve("groc/x")


def test_providers_with_a_key_are_listed_once(monkeypatch):
    for server in SERVERS.values():
        for name in server.keys:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOGETHERAI_API_KEY", "k")
    monkeypatch.setenv("XAI_API_KEY", "k")
    assert {name: server.variable for name, server in with_keys().items()} == {
        "together": "TOGETHERAI_API_KEY",
        "xai": "XAI_API_KEY",
    }


def test_keys_that_are_set_are_known_to_models_and_doctor(monkeypatch):
    from kaname.cli import doctor, models

    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(models, "nearby", list)
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    monkeypatch.setenv("MISTRAL_BASE_URL", "http://127.0.0.1:9/v1")
    assert ("mistral/NAME", "MISTRAL_API_KEY is set") in models.rows()
    ((what, fine, told),) = doctor.check_keys(None)
    assert (what, fine) == ("MISTRAL_API_KEY", False)
    assert told.startswith("http://127.0.0.1:9/v1/models: cannot be reached")


async def test_fireworks_models_are_found_by_their_short_name():
    for name, sent in (("llama-v4", "accounts/fireworks/models/llama-v4"), ("accounts/me/models/x", "accounts/me/models/x")):
        _, _, server = await asked("fireworks_ai", [reply("fine")], name=name)
        assert server.requests[0]["model"] == sent


# A stream that was cut


@pytest.mark.parametrize("provider", ALL)
async def test_stream_without_an_end_is_an_error(provider):
    with pytest.raises(errors.ReplyGarbled, match="ended in the middle"):
        await asked(provider, [events(delta(content="half an ans"), done=False)])


@pytest.mark.parametrize("provider", ["groq", "mistral", "openrouter"])
@pytest.mark.parametrize("cut", ["after the call", "inside the arguments", "inside the chunk"])
async def test_call_of_a_cut_stream_is_not_run(provider, cut, monkeypatch):
    monkeypatch.setattr("kaname.policies.failure.retry.PAUSE", 0.0)
    ran = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        ran.append(yen)
        return "paid"

    half = {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "pay", "arguments": '{"yen": 5'}}]}
    broken = events(delta(**(half if cut == "inside the arguments" else called("pay", {"yen": 5}))), done=False)
    if cut == "inside the chunk":
        whole = events(delta(**called("pay", {"yen": 5})), delta("tool_calls"))
        broken = Answer(whole.events, cut=200)
    answers = [broken, reply("", [("pay", {"yen": 7})]), reply("done")]
    async with WireServer(answers) as server:
        agent = Agent(maker(provider)("m", base_url=server.url, api_key="k"), [pay], journal="memory")
        result = await agent.run("pay 7")
        await agent.close()
    assert (ran, result.output, len(server.requests)) == ([7], "done", 3)


# What they count


@pytest.mark.parametrize(
    ("provider", "chunks", "usage"),
    [
        ("groq", [delta("stop", content="x"), {"choices": [], "x_groq": {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}}], (7, 2, 0, None)),
        ("mistral", [delta("stop", {"prompt_tokens": 7, "completion_tokens": 2}, content="x")], (7, 2, 0, None)),
        ("moonshot", [{"choices": [{**delta("stop", content="x")["choices"][0], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "cached_tokens": 4}}]}], (7, 2, 4, None)),
        ("deepseek", [delta("stop", {"prompt_tokens": 7, "completion_tokens": 2, "prompt_cache_hit_tokens": 5}, content="x")], (7, 2, 5, None)),
        ("openrouter", [delta("stop", {"prompt_tokens": 7, "completion_tokens": 2, "cost": 0.003}, content="x")], (7, 2, 0, 0.003)),
        ("perplexity", [delta(None, {"prompt_tokens": 7, "completion_tokens": 1}, content="x"), delta("stop", {"prompt_tokens": 7, "completion_tokens": 2, "cost": {"total_cost": 0.006}})], (7, 2, 0, 0.006)),
        ("xai", [delta("stop", content="x"), {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 19, "completion_tokens_details": {"reasoning_tokens": 10}, "cost_in_usd_ticks": 30_000_000}}], (7, 12, 0, 0.003)),
        ("cerebras", [delta("stop", content="x"), {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 12, "total_tokens": 19, "completion_tokens_details": {"reasoning_tokens": 10}}}], (7, 12, 0, None)),
        ("together_ai", [delta("eos", content="x"), {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}], (7, 2, 0, None)),
    ],
)  # fmt: skip
async def test_usage_is_read_where_the_provider_reports_it(provider, chunks, usage):
    said, _, _ = await asked(provider, [events(*chunks)])
    assert (said.usage.input, said.usage.output, said.usage.cached) == usage[:3]
    assert said.usage.cost == (None if usage[3] is None else pytest.approx(usage[3]))
    assert (said.message.text, said.stop_reason) == ("x", "end_turn")


async def test_openrouter_is_asked_what_a_reply_costs():
    _, _, server = await asked("openrouter", [reply("fine")])
    assert server.requests[0]["usage"] == {"include": True}


# What they think


@pytest.mark.parametrize(
    ("provider", "field"), [("groq", "reasoning"), ("cerebras", "reasoning"), ("deepseek", "reasoning_content")]
)
async def test_reasoning_is_shown_and_goes_back_only_where_it_is_wanted(provider, field):
    def script(body):
        if len(body["messages"]) == 1:
            return events(delta(**{field: "hm"}), delta("tool_calls", **called("add", {"a": 1, "b": 2})))
        assistant = body["messages"][1]
        assert ("reasoning_content" in assistant) is (provider == "deepseek")
        return reply("3")

    async with WireServer(script) as server:
        agent = Agent(maker(provider)("m", base_url=server.url, api_key="k"), [add], journal="memory")
        seen = [chunk async for chunk in agent.run("1 + 2?")]
        await agent.close()
    assert [chunk["content"] for chunk in seen if chunk["type"] == "thinking"] == ["hm"]


async def test_reasoning_of_mistral_comes_in_parts_of_the_content():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "3"}]
    said, shown, _ = await asked("mistral", [events(delta("stop", content=parts))])
    assert (said.message.text, said.message.thinking, shown) == ("3", "hm", [("thinking", "hm"), ("text", "3")])


# What they refuse


KNOWN = {"model", "messages", "stream", "tools", "tool_choice", "temperature", "max_tokens", "random_seed", "response_format"}


def mistral(body):
    """As Mistral's API answers: unknown fields, ids of another form and a wrong order of roles are refused."""
    if extra := sorted(body.keys() - KNOWN):
        told = [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"} for name in extra]
        return Answer(status=422, headers=(("content-type", "application/json"),), body=json.dumps({"detail": told}).encode())
    before = ""
    for message in body["messages"]:
        if unknown := message.keys() - {"role", "content", "tool_calls", "tool_call_id", "name"}:
            return status(422, f"extra_forbidden: {unknown} Extra inputs are not permitted")
        ids = [call["id"] for call in message.get("tool_calls", [])] + [message.get("tool_call_id", "abcdefgh9")]
        for wrong in [one for one in ids if not re.fullmatch("[a-zA-Z0-9]{9}", one)]:
            return status(400, f"Tool call id was {wrong} but must be a-z, A-Z, 0-9, with a length of 9.")
        if before == "tool" and message["role"] == "user":
            return status(400, "Unexpected role 'user' after role 'tool'")
        before = message["role"]
    return reply("fine")


def cerebras(body):
    for number, message in enumerate(body["messages"]):
        if "reasoning_content" in message:
            return status(400, f"messages.{number}.assistant.reasoning_content: property is unsupported")
    if body["stream"] and "response_format" in body:
        return status(400, '"stream=true" with structured outputs is currently not supported for reasoning models.')
    return reply("fine") if body["stream"] else whole("fine")


def whole(text):
    body = {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }
    return Answer(headers=(("content-type", "application/json"),), body=json.dumps(body).encode())


SETTINGS = {"seed": 7, "max_completion_tokens": 50, "tool_choice": "required"}


@pytest.mark.parametrize(
    ("provider", "script", "settings", "schema"),
    [
        ("mistral", mistral, SETTINGS, None),
        ("mistral", mistral, {}, {"type": "object", "properties": {}}),
        ("cerebras", cerebras, {}, None),
        ("cerebras", cerebras, {}, {"type": "object", "properties": {}}),
        ("groq", cerebras, {}, {"type": "object", "properties": {}}),
    ],
)
async def test_known_deviations_cost_no_refused_request(provider, script, settings, schema):
    said, shown, server = await asked(provider, script, HISTORY, settings=settings, schema=schema)
    assert (said.message.text, len(server.requests)) == ("fine", 1)
    assert "".join([text for kind, text in shown if kind == "text"]) == "fine"
    if provider == "mistral" and settings:
        assert (server.requests[0]["random_seed"], server.requests[0]["max_tokens"]) == (7, 50)


@pytest.mark.parametrize(("provider", "script"), [("openai", mistral), ("nvidia_nim", mistral), ("openai", cerebras)])
async def test_deviations_of_a_server_that_is_not_known_are_learnt_once(provider, script):
    """The same model behind another address: each refusal is mended, and remembered."""
    async with WireServer(script) as server:
        model = maker(provider)("m", base_url=server.url, api_key="k")

        async def emit(*_):
            pass

        request = ModelRequest(HISTORY, settings={"max_completion_tokens": 50} if script is mistral else {})
        assert (await model.reply(request, emit)).message.text == "fine"
        refused = len(server.requests) - 1
        assert refused >= 1
        assert (await model.reply(request, emit)).message.text == "fine"
        assert len(server.requests) == refused + 2
        await model.close()


async def test_name_of_the_token_limit_is_learnt_either_way():
    def modern(body):
        if "max_tokens" in body:
            return status(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            )
        return reply("fine")

    _, _, server = await asked("nvidia_nim", modern, settings={"max_tokens": 50})
    assert ["max_completion_tokens" in body for body in server.requests] == [False, True]
    told = [status(422, "max_completion_tokens: Extra inputs are not permitted"), reply("fine")]
    _, _, server = await asked("nvidia_nim", told, settings={"max_completion_tokens": 50})
    assert ["max_tokens" in body for body in server.requests] == [False, True]


def claude(body):
    """As servers before Anthropic's models answer: calls in the conversation want their tools."""
    if any("tool_calls" in message for message in body["messages"]) and not body.get("tools"):
        return status(400, "Requests which include `tool_use` or `tool_result` blocks must define tools")
    if "tools" in body and len(body["messages"]) == 1:
        return reply("", [("add", {"a": 1, "b": 2})])
    assert body["tool_choice"] == "none"
    return reply("3, as far as I got")


@pytest.mark.parametrize(("provider", "requests"), [("openrouter", 2), ("openai", 3)])
async def test_last_words_are_asked_with_the_tools_where_they_are_wanted(provider, requests):
    async with WireServer(claude) as server:
        agent = Agent(maker(provider)("m", base_url=server.url, api_key="k"), [add], stops=max_steps(1), journal="memory")
        result = await agent.run("go")
        await agent.close()
    assert (result.stop.kind, result.output, len(server.requests)) == ("max_steps", "3, as far as I got", requests)
    assert server.requests[-1]["tools"] == server.requests[0]["tools"]


async def test_refusal_that_cannot_be_mended_is_told_after_one_request():
    for told in ("temperature is out of range", "The reasoning_content in the thinking mode must be passed back to the API."):
        with pytest.raises(errors.RequestRefused):
            await asked("deepseek", [status(400, told), reply("never")], HISTORY)


async def test_ids_of_calls_stay_the_same_from_request_to_request():
    _, _, first = await asked("mistral", mistral, HISTORY)
    _, _, second = await asked("mistral", mistral, (*HISTORY, Message("assistant", ()), user("and now?")))
    assert first.requests[0]["messages"][1]["tool_calls"] == second.requests[0]["messages"][1]["tool_calls"]


async def test_last_words_are_had_from_mistral():
    """The note that asks for them follows a tool's result, which Mistral does not allow."""

    def script(body):
        if "tools" in body and len(body["messages"]) == 1:
            return events(delta("tool_calls", **called("add", {"a": 1, "b": 2}, id="abcdefgh1")))
        return mistral(body)

    async with WireServer(script) as server:
        agent = Agent(maker("mistral")("m", base_url=server.url, api_key="k"), [add], stops=max_steps(1), journal="memory")
        result = await agent.run("go")
        await agent.close()
    assert (result.stop.kind, result.output) == ("max_steps", "fine")
