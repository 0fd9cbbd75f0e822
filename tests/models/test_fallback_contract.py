"""A tool conversation with reasoning changes its provider at every point, and the next provider accepts every request.

The servers refuse what the real APIs refuse: fields and blocks that they do not know, seals that are not theirs, calls without
results, a thinking model whose calls have no thought before them.
"""

import itertools
import json

import pytest

from kaname import Agent, ModelFallback, Retry
from kaname.models import Anthropic, OpenAI, OpenAIResponses
from kaname.testing.wire import WireServer, anthropic_reply, reply, responses_reply, status
from tests.parts import add

STEPS = 3  # with a call each, before the answer
COMMON = {"model", "stream", "temperature", "tools", "tool_choice", "top_p"}
CHAT = COMMON | {"messages", "stream_options", "reasoning_effort", "seed", "max_tokens", "max_completion_tokens"}
RESPONSES = COMMON | {"input", "instructions", "store", "include", "reasoning", "max_output_tokens", "text"}
MESSAGES = COMMON | {"messages", "system", "max_tokens", "thinking", "top_k", "stop_sequences"}


class Api:
    """A provider: its adapter, settings that only it knows, and a server that is as strict as the real one."""

    def __init__(self, kind, settings):
        self.kind, self.settings, self.name = kind, settings, ""
        self.refused, self.asked, self.down = [], 0, set()  # `down`: the steps at which it does not answer

    def answer(self, request):
        problems = [*self.problems(request)]
        self.refused += problems
        step = self.step(request)
        if problems:
            return status(400, "; ".join(problems))
        if step in self.down:
            return status(503)
        self.asked += 1
        made = {"text": "the end"} if step >= STEPS else {"calls": [("add", {"a": step, "b": 1})], "text": f"step {step}"}
        return self.made(**made, thinking=f"thought {step} of the {self.name}")


def paired(calls, results):
    return [] if calls == results else [f"calls {calls} and results {results} do not match"]


class Chat(Api):
    def made(self, **how):
        return reply(**how)

    def step(self, request):
        return sum(one["role"] == "assistant" for one in request["messages"])

    def problems(self, request):
        yield from [f"unknown field {name}" for name in set(request) - CHAT]
        yield from [f"unknown tool {one}" for one in request.get("tools", ()) if one["type"] != "function"]
        known = {"role", "content", "tool_calls", "tool_call_id", "reasoning_content"}
        for message in request["messages"]:
            yield from [f"unknown field {name} of a message" for name in set(message) - known]
            if not message.get("reasoning_content", self.name).endswith(self.name):
                yield "reasoning of another model"
        said = request["messages"]
        calls = [call["id"] for one in said for call in one.get("tool_calls") or ()]
        yield from paired(calls, [one["tool_call_id"] for one in said if one["role"] == "tool"])


class Responses(Api):
    def made(self, **how):
        return responses_reply(**how)

    def step(self, request):
        return sum(one.get("type") == "message" for one in request["input"])

    def problems(self, request):
        yield from [f"unknown field {name}" for name in set(request) - RESPONSES]
        yield from [f"unknown tool {one}" for one in request.get("tools", ()) if one["type"] not in ("function", "web_search")]
        items = request["input"]
        for item, following in itertools.pairwise([*items, {}]):
            kind = item.get("type", "message")
            if kind not in ("message", "function_call", "function_call_output", "reasoning"):
                yield f"unknown item {kind}"
            if kind == "reasoning" and (item["encrypted_content"] != "sealed" or not following):
                yield "a sealed thought that is not this provider's, or without what follows from it"
        calls = [one["call_id"] for one in items if one.get("type") == "function_call"]
        yield from paired(calls, [one["call_id"] for one in items if one.get("type") == "function_call_output"])


class Messages(Api):
    def made(self, **how):
        return anthropic_reply(**how, signature=f"by the {self.name}")

    def step(self, request):
        return sum(one["role"] == "assistant" for one in request["messages"])

    def problems(self, request):
        yield from [f"unknown field {name}" for name in set(request) - MESSAGES]
        own = [one for one in request.get("tools", ()) if "input_schema" not in one]
        yield from [f"unknown tool {one}" for one in own if not one.get("type", "").startswith("web_search_2")]
        turns = request["messages"]
        if any(one["role"] == other["role"] for one, other in itertools.pairwise(turns)):
            yield "two turns of one role"
        for turn, following in itertools.pairwise([*turns, {"content": []}]):
            for block in turn["content"]:
                if block["type"] not in ("text", "thinking", "tool_use", "tool_result"):
                    yield f"unknown block {block['type']}"
                if block["type"] == "thinking" and block["signature"] != f"by the {self.name}":
                    yield "invalid signature in a thinking block"
            calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
            yield from paired(calls, [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"])
        thinks = request.get("thinking", {}).get("type") == "enabled"
        last = next((turn for turn in reversed(turns) if turn["role"] == "assistant"), None)
        open_calls = turns[-1]["content"][0]["type"] == "tool_result"
        if thinks and open_calls and last is not None and last["content"][0]["type"] != "thinking":
            yield "a final assistant message must start with a thinking block"


def chat():
    return Chat(OpenAI, {"reasoning_effort": "low", "seed": 1})


def responses():
    settings = {"reasoning": {"effort": "low"}, "tools": [{"type": "web_search"}], "max_output_tokens": 2_000}
    return Responses(OpenAIResponses, settings)


def messages():
    thinking = {"type": "enabled", "budget_tokens": 1024}
    return Messages(Anthropic, {"thinking": thinking, "tools": [{"type": "web_search_20250305", "name": "web_search"}]})


PAIRS = [*itertools.permutations([chat, responses, messages], 2), (chat, chat), (messages, messages)]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{one.__name__}-{other.__name__}" for one, other in PAIRS])
@pytest.mark.parametrize("ways", ["once", "for_good", "there_and_back"])
async def test_next_provider_accepts_the_conversation_at_every_point(first, second, ways):
    for point in range(STEPS + 1):
        one, other = first(), second()
        one.name, other.name = "first", "second"
        if ways == "once":
            one.down = {point}
        elif ways == "for_good":
            one.down = set(range(point, STEPS + 1))
        else:
            one.down = {step for step in range(STEPS + 1) if step % 2 == point % 2}
            other.down = set(range(STEPS + 1)) - one.down
        async with WireServer(one.answer) as a, WireServer(other.answer) as b:
            models = [
                api.kind(api.name, base_url=server.url, api_key="k", settings=own)
                for api, server, own in ((one, a, {}), (other, b, other.settings))
            ]
            policies = [Retry(1), ModelFallback(failures=99)]
            agent = Agent(models, [add], settings=one.settings, policies=policies, journal="memory", instructions="Add.")
            result = await agent.run("add some numbers", session_id="s")
            again = await agent.run("and again", session_id="s")
            await agent.close()
        assert [one.refused, other.refused] == [[], []], (point, json.dumps((a.requests or b.requests)[-1], indent=1))
        assert (result.output, result.completed, again.completed) == ("the end", True, True)
        names = {number: model.name for number, model in enumerate(models)}
        expected = [names[1] if step in one.down else names[0] for step in range(STEPS + 1)]
        assert list(result.models) == expected
