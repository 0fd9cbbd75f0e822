"""The ReAct text protocol: what models write, read as a person would read it, also while it arrives."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, MemoryJournal, ScriptedModel, tool
from kaname.core.messages import ModelReply, ModelRequest, ToolSpec, assistant, user
from kaname.models.prompted.react.model import TextOnly, reply_by_text
from kaname.models.prompted.react.parse import ReplyReading, read_reply, reading_of
from kaname.models.prompted.react.sections import Sections
from tests.properties import nightly, tries

CASES = [
    json.loads(line) for line in (Path(__file__).parents[1] / "corpora" / "react_replies.jsonl").read_text("utf-8").splitlines()
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
def test_the_corpus_is_read_as_it_is_labelled():
    wrong = [case["name"] for case in CASES if not is_as_labelled(case)]
    assert wrong == []


def is_as_labelled(case):
    reading, expected = read_reply(case["reply"], tools_of(case), careful_of(case)), case["expect"]
    if "action" in expected:
        return (reading.action, reading.args) == (expected["action"], expected["args"])
    if "answer" in expected:
        return (reading.action, reading.answer) == ("", expected["answer"])
    return bool(reading.problem)


def tools_of(case):
    return {one["name"]: one["parameters"] for one in case["tools"]} if "tools" in case else TOOLS


def careful_of(case):
    return case.get("careful", ())


def streamed(text, sizes):
    stream, shown, place = Sections(), [], 0
    for size in [*sizes, len(text)]:
        shown += stream.feed(text[place : place + size])
        place += size
    return stream, shown + stream.finish()


def is_beginning(stream, shown, reading, tools, careful=()):
    """What was shown is the beginning of the answer, and the pieces are read as the whole is."""
    assert reading_of(stream, tools, careful) == reading
    said = "".join([piece for piece, kind in shown if kind == "text"])
    assert stream.shown == said
    return reading.answer.startswith(said) if reading.answer else said == ""


@given(st.sampled_from(CASES), st.lists(st.integers(1, 9), max_size=200))
@tries(500)
def test_what_streams_is_the_beginning_of_the_answer(case, sizes):
    reading = read_reply(case["reply"], tools_of(case), careful_of(case))
    assert is_beginning(*streamed(case["reply"], sizes), reading, tools_of(case), careful_of(case))


@pytest.mark.parametrize("size", [3, *nightly(1, 10_000)])
def test_all_of_the_corpus_streams_as_it_is_read(size):
    wrong = []
    for case in CASES:
        text, tools, careful = case["reply"], tools_of(case), careful_of(case)
        if not is_beginning(*streamed(text, [size] * (len(text) // size)), read_reply(text, tools, careful), tools, careful):
            wrong.append(case["name"])
    assert wrong == []


async def shown_of(text, tools, size):
    """What a user sees of a reply: the text, the thinking and the reply."""
    out = []

    async def emit(piece, kind="text", call_id=""):
        out.append((piece, kind))

    async def ask(request, show):
        for place in range(0, len(text), size):
            await show(text[place : place + size])
        return ModelReply(assistant(text), "end_turn")

    specs = tuple([ToolSpec(name, name, schema) for name, schema in tools.items()])
    reply = await reply_by_text(ask, ModelRequest((user("q"),), specs), emit)
    return "".join([p for p, kind in out if kind == "text"]), "".join([p for p, kind in out if kind == "thinking"]), reply


@pytest.mark.parametrize("size", [4, *nightly(1, 10_000)])
async def test_the_text_that_was_streamed_is_the_whole_answer_in_the_end(size):
    wrong = []
    for case in CASES:
        said, _, reply = await shown_of(case["reply"], tools_of(case), size)
        wanted = "" if reply.message.calls or reply.problem else reply.message.text
        if said != wanted:
            wrong.append((case["name"], said, wanted))
    assert wrong == []


LABELS = ["Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "思考:", "行動:", "入力:", "最終回答:"]
LABELS += [
    "**Final Answer:**",
    "## Final Answer",
    "- Action: call",
    "> Final Answer: q",
    "Answer:",
    "結論：",
    "Question:",
    "【最終回答】",
]
MARKS = [*"[](){}\"'=,:あ1 \n\r\\\x00\ufeff", "\n\n", "```", "json", "**", "<think>", "</think>", "<tool_call>"]
MARKS += ["\r\n", "**Tokyo**", "<|im_end|>", "</s>", "<s>", "[/INST]", "<answer>", "</answer>", "<action>", "`"]
MARKS += [
    "<function=search>",
    "<parameter=query>",
    "</parameter>",
    '<invoke name="weather">',
    "[TOOL_CALLS]",
    "<|channel|>",
    "<|message|>",
    "Assistant: ",
]
WORDS = [
    "search",
    "final",
    "```tool_code",
    "$X = ",
    "->",
    "~~~",
    "// x",
    '{"a": 1}',
    "city: Oslo",
    "days=3",
    "send_mail(",
    "sum",
    "Finish",
    "None",
    "query",
    '{"action": "search"',
    ', "action_input": "x"}',
]
PIECES = st.sampled_from([*LABELS, *MARKS, *WORDS])


@given(
    st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join)), st.sampled_from([TOOLS, {}]), st.booleans()
)
@tries(1500)
def test_nothing_makes_it_fail_and_it_is_always_one_of_three(text, tools, careful):
    reading = read_reply(text, tools, tools if careful else ())
    assert [bool(reading.action), bool(reading.answer), bool(reading.problem)].count(True) == 1
    for size in (1, 3, 20):
        assert is_beginning(*streamed(text, [size] * (len(text) // size)), reading, tools, tools if careful else ())


@pytest.mark.parametrize(
    "text", ["Action: search[" * 20_000, "[" * 100_000, "{" * 100_000, "Thought: " * 50_000, "`" * 100_001, "x(" * 50_000]
)
def test_long_nonsense_is_read_in_linear_time(text):
    assert isinstance(read_reply(text, TOOLS), ReplyReading)


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
    assert result.stop.kind == "incomplete"
    assert "neither an action nor a final answer" in result.stop.detail
    assert not result.output, "a thought is never the answer"


async def test_nothing_but_silence_ends_as_incomplete():
    result, _, _ = await run("", "", "")
    assert result.stop.kind == "incomplete"
    assert "empty" in result.stop.detail


async def test_typed_output_with_a_text_only_model():
    result, _, _ = await run("Action: population[Tokyo]", "Final Answer: 14 million", '{"result": 14000000}', output=int)
    assert result.output == 14_000_000


async def test_a_server_that_knows_no_tools_is_sent_none_even_at_the_end():
    """Not in the history either: calls and results are words."""
    from kaname.models import OpenAI
    from kaname.testing.wire import WireServer
    from tests.models.test_json_choice import reply

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


# The forms that papers, prompts and model cards prescribe, with what models write into them.
QUERIES = [
    "largest desert",
    "Ada Lovelace's birthday",
    "富士山の高さ",
    "京都 紅葉 見頃 2026",
    "What is a monad?",
    "price: tea vs. coffee",
    "C++ templates [basics]",
    "50% of 1,200 (in yen)",
    "SELECT name FROM users WHERE id = 1",
    'the "best" ramen in 札幌',
]
CALLS = [
    "Thought 1: I need to look it up.\nAction 1: Search[{q}]",
    "Thought: I need to look it up.\nAction: search[{q}]",
    "Thought: I need to look it up.\nAction: search\nAction Input: {q}",
    "Thought: I need to look it up.\nAction: search\nAction Input: {q}\nObservation: something made up\nFinal Answer: made up",
    "Question: what?\nThought: I should search.\nAction: search\nAction Input: {q}\n",
    'Thought: I need it.\nAction: search\nAction Input: {{"query": {j}}}',
    'Thought: I need it.\nAction:\n```json\n{{"action": "search", "action_input": {{"query": {j}}}}}\n```',
    '{{"action": "search", "action_input": {j}}}',
    '```json\n{{"action": "search", "action_input": {{"query": {j}}}}}\n```',
    '<tool_call>\n{{"name": "search", "arguments": {{"query": {j}}}}}\n</tool_call>',
    '<think>I should search.</think>\n<tool_call>{{"name": "search", "arguments": {{"query": {j}}}}}</tool_call>',
    "思考：調べる必要がある。\n行動：検索\n行動入力：{q}",
]
ANSWERS = [
    "Thought: I now know the final answer.\nFinal Answer: {q}",
    "Final Answer: {q}",
    "Thought 3: I know.\nAction 3: Finish[{q}]",
    "<think>It is known.</think>\n{q}",
    "<think>It is known.</think>\nFinal Answer: {q}",
    "思考：わかった。\n最終回答：{q}",
    '{{"action": "Final Answer", "action_input": {j}}}',
    "**Thought:** known\n**Final Answer:** {q}",
]


def test_the_strict_forms_are_all_read():
    """200 replies in twenty forms."""
    wrong = []
    for query in QUERIES:
        for form in CALLS:
            text = form.format(q=query, j=json.dumps(query, ensure_ascii=False))
            reading = read_reply(text, TOOLS)
            if (reading.action, reading.args) not in (("search", {"query": query}), ("検索", {"query": query})):
                wrong.append((text, reading))
        for form in ANSWERS:
            text = form.format(q=query, j=json.dumps(query, ensure_ascii=False))
            if read_reply(text, TOOLS).answer != query:
                wrong.append((text, read_reply(text, TOOLS)))
    assert wrong == []
