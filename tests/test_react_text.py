"""The ReAct text protocol: what models write, read as a person would read it, also while it arrives."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaname import Agent, MemoryJournal, ScriptedModel, tool
from kaname.models.react_reading import Reading, read
from kaname.models.react_text import ReactStream, TextOnly

CASES = [
    json.loads(line) for line in (Path(__file__).parent / "corpora" / "react_replies.jsonl").read_text("utf-8").splitlines()
]
TEXT = {"type": "string"}


def takes(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


TOOLS = {
    "search": takes(["query"], query=TEXT),
    "calculator": takes(["expression"], expression=TEXT),
    "database": takes(["sql"], sql=TEXT),
    "weather": takes(["city"], city=TEXT, days={"type": "integer"}),
    "now": takes(),
    "send_mail": takes(["to", "subject", "body"], to=TEXT, subject=TEXT, body=TEXT),
    "検索": takes(["query"], query=TEXT),
}


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_is_read_as_a_person_reads_it(case):
    tools = {one["name"]: one["parameters"] for one in case["tools"]} if "tools" in case else TOOLS
    reading, expected = read(case["reply"], tools), case["expect"]
    if "action" in expected:
        assert (reading.action, reading.args) == (expected["action"], expected["args"])
    elif "answer" in expected:
        assert (reading.action, reading.answer) == ("", expected["answer"])
    else:
        assert reading.problem
    if "thought" in expected:
        assert reading.thought == expected["thought"]


def streamed(text, sizes):
    stream, shown, place = ReactStream(), [], 0
    for size in [*sizes, len(text)]:
        shown += stream.feed(text[place : place + size])
        place += size
    return stream, shown


@given(st.sampled_from(CASES), st.lists(st.integers(1, 9), max_size=200))
@settings(max_examples=500, deadline=None)
def test_what_streams_is_the_beginning_of_the_answer(case, sizes):
    tools = {one["name"]: one["parameters"] for one in case["tools"]} if "tools" in case else TOOLS
    reading = read(case["reply"], tools)
    stream, shown = streamed(case["reply"].replace("\r\n", "\n"), sizes)
    said = "".join([piece for piece, kind in shown if kind == "text"])
    assert stream.shown == said
    if not reading.answer:
        assert said == ""
    elif not said.endswith("*"):
        assert reading.answer.startswith(said)


LABELS = ["Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "思考:", "行動:", "入力:", "最終回答:"]
MARKS = [*"[](){}\"'=,:あ1 \n\r\\\x00\ufeff", "\n\n", "```", "json", "**", "<think>", "</think>", "<tool_call>"]
WORDS = ["search", "Finish", "None", "query", '{"action": "search"', ', "action_input": "x"}']
PIECES = st.sampled_from([*LABELS, *MARKS, *WORDS])


@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join)))
@settings(max_examples=1500, deadline=None)
def test_nothing_makes_it_fail_and_it_is_always_one_of_three(text):
    reading = read(text, TOOLS)
    assert [bool(reading.action), bool(reading.answer), bool(reading.problem)].count(True) == 1
    streamed(text, [1] * len(text))


@pytest.mark.parametrize(
    "text", ["Action: search[" * 20_000, "[" * 100_000, "{" * 100_000, "Thought: " * 50_000, "`" * 100_001, "x(" * 50_000]
)
def test_long_nonsense_is_read_in_linear_time(text):
    assert isinstance(read(text, TOOLS), Reading)


@tool(effect="pure")
def population(city: str) -> int:
    """How many people live there."""
    return 14_000_000


async def run(*replies, **more):
    script, asked = iter(replies), []

    def next_reply(request):
        asked.append(request)
        return next(script)

    model = ScriptedModel(next_reply)
    agent = Agent(TextOnly(model), [population], journal=MemoryJournal(), **more)
    handle = agent.run("How many people live in Tokyo?")
    seen = [chunk async for chunk in handle]
    return await handle, seen, asked


async def test_a_text_only_model_uses_tools():
    result, seen, asked = await run(
        "Thought: I must look it up.\nAction: population\nAction Input: Tokyo\nObservation: 3\nFinal Answer: 3",
        "Thought: Now I know.\nFinal Answer: 14 million",
    )
    assert result.output == "14 million"
    assert "".join([chunk["content"] for chunk in seen if chunk.type == "delta"]) == "14 million"
    assert "I must look it up." in "".join([chunk["content"] for chunk in seen if chunk.type == "thinking"])
    assert [chunk["arguments"] for chunk in seen if chunk.type == "tool_call"] == [{"city": "Tokyo"}]
    messages = asked[1].messages
    assert messages[-1].text == "Observation: 14000000"
    assert messages[-2].text == "Thought: I must look it up.\nAction: population\nAction Input: Tokyo"
    assert "\nObservation:" in asked[0].settings["stop"], "generation stops before an observation is made up"


async def test_an_unreadable_reply_is_answered_with_what_was_wrong_at_most_twice():
    result, seen, asked = await run("Thought: hm", "Thought: hm hm", "Thought: it may be 13 million")
    assert len(asked) == 3
    notes = [chunk["content"] for chunk in seen if chunk.type == "status" and chunk["status"] == "noted"]
    assert len(notes) == 2
    assert "neither an action nor a final answer" in notes[0]
    assert result.completed
    assert result.output == "it may be 13 million", "the best answer so far"


async def test_nothing_but_silence_ends_as_incomplete():
    result, _, _ = await run("", "", "")
    assert result.stop.kind == "incomplete"
    assert "empty" in result.stop.detail


async def test_typed_output_with_a_text_only_model():
    result, _, _ = await run("Action: population[Tokyo]", "Final Answer: 14 million", '{"result": 14000000}', output=int)
    assert result.output == 14_000_000


async def test_a_server_that_knows_no_tools_is_sent_none_even_at_the_end():
    """Not in the history either: calls and results are words."""
    from kaname.models.openai import OpenAI
    from kaname.testing.wire import WireServer

    from .test_constrained import reply

    script = [reply("Action: population[Tokyo]"), reply("Final Answer: 14 million"), reply('{"result": 14000000}')]
    async with WireServer(script) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode="text")
        result = await Agent(model, [population], output=int, journal=MemoryJournal()).run("How many people live in Tokyo?")
        await model.close()
    assert result.output == 14_000_000
    for request in server.requests:
        assert "tools" not in request
        assert {message["role"] for message in request["messages"]} <= {"system", "user", "assistant"}
        assert not any(message.get("tool_calls") for message in request["messages"])
