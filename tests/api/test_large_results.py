"""`LargeResults`: the model reads on in a long result, and old results are forgotten without changing what was sent before."""

import json
import re
from itertools import pairwise

import pytest

from kaname import Agent, Compact, ConfigError, Flow, LargeResults, MemoryJournal, ScriptedModel, call, tool
from kaname.core.messages import ToolResult
from kaname.core.openai_shape import result_text
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.testing.wire import WireServer, anthropic_reply, reply, responses_reply

ROWS = 45_000  # of 60 characters: 2.7 MB


def big_text():
    line = "{:06d} the quick brown fox jumps over the lazy dog, again {}"
    return "\n".join([line.format(n, "CODE heron-42" if n == 22_500 else "and") for n in range(ROWS)])


def big_json():
    return {"total": 5, "orders": [{"id": n, "city": "Kyoto" if n == 777 else "Osaka", "yen": n * 7} for n in range(5_000)]}


@tool(effect="pure")
def fetch(what: str):
    """Fetch something large."""
    return {"text": big_text, "json": big_json, "dumped": lambda: json.dumps(big_json())}[what]()


def tool_text(request):
    return result_text(next(part for part in request.messages[-1].parts if isinstance(part, ToolResult)))


async def ask(script, seen=None, **options):
    def answer(request):
        if seen is not None:
            seen.append(request.messages)
        return script(request)

    agent = Agent(ScriptedModel(answer), [fetch], journal="memory", **{"context": LargeResults(), **options})
    return await agent.run("What is the code in the middle?")


async def test_read_result_answers_a_question_about_the_middle_of_a_result_of_2_7_megabytes():
    notes = []

    def script(request):
        said = [message for message in request.messages if message.role == "tool"]
        if not said:
            return call("fetch", what="text")
        text = tool_text(request)
        if len(said) == 1:
            notes.append(text)
            [how] = re.findall(r'read_result\(call="(c\d+_\d+)", start=(\d+)\)', text)
            return call("read_result", call=how[0], start=int(how[1]), find="CODE")
        return re.search(r"CODE (\S+)", text)[1]

    result = await ask(script)
    assert result.output == "heron-42"
    assert len(big_text()) > 2_600_000
    assert len(notes[0]) < 40_500
    assert "CODE" not in notes[0]
    assert notes[0].startswith("000000 the quick")
    assert notes[0].endswith("and"), "the end is shown, too"
    assert "of 45,000 are not shown" in notes[0]


@pytest.mark.parametrize("what", ["json", "dumped"])
async def test_read_result_reads_json_by_path_and_a_row_a_line(what):
    read = []
    steps = iter(
        [
            call("fetch", what=what),
            call("read_result", call="c1_0", path="orders[777].city"),
            call("read_result", call="c1_0", path="orders[2000:2002]"),
            call("read_result", call="c1_0", find="kyoto"),
            call("read_result", call="c1_0", path="orders[0].price"),
            call("read_result", call="c1_0", path="orders", start=3_000, lines=2),
            "done",
        ]
    )

    def script(request):
        if request.messages[-1].role == "tool":
            read.append(tool_text(request))
        return next(steps)

    await ask(script)
    assert "it is an object with total (a number), orders (a list of 5,000)" in read[0]
    assert read[1].endswith("1: Kyoto")
    assert '"id": 2000, "city": "Osaka", "yen": 14000' in read[2]
    assert '"id": 2001' in read[2]
    assert '"id": 2002' not in read[2]
    assert '{"id": 777, "city": "Kyoto", "yen": 5439}' in read[3]
    assert "there is no .price in orders[0], which is an object with id (a number), city (text)" in read[4]
    assert '{"id": 2998,' in read[5]
    assert "[read on: start=3002]" in read[5]


async def test_read_result_looks_for_similar_words_if_the_text_stands_nowhere_and_says_what_is_not_there():
    read = []
    steps = iter(
        [
            call("fetch", what="text"),
            call("read_result", call="c1_0", find="heron code"),
            call("read_result", call="c1_0", start=99_999),
            call("read_result", call="c9_9"),
            "done",
        ]
    )

    def script(request):
        if request.messages[-1].role == "tool":
            read.append(tool_text(request))
        return next(steps)

    await ask(script)
    assert "CODE heron-42" in read[1]
    assert "there is no line 99999" in read[2]
    assert "there is no result of a call 'c9_9'" in read[3]


async def test_a_result_that_was_summed_up_can_still_be_read():
    read, steps = (
        [],
        iter([call("fetch", what="text"), "fetched", "fine", call("read_result", call="c1_0", find="CODE"), "end"]),
    )

    def script(request):
        read.append(tool_text(request) if request.messages[-1].role == "tool" else "")
        return next(steps)

    context = [Compact(600, 100, model=ScriptedModel(lambda request: "It was about codes.")), LargeResults(1_000)]
    agent = Agent(ScriptedModel(script), [fetch], journal="memory", context=context)
    for said in ("Fetch it", "word " * 600, "What is the code?"):
        result = await agent.run(said, session_id="s")
    assert not any(part.name == "fetch" for m in result.state.messages for part in m.parts if isinstance(part, ToolResult))
    assert "CODE heron-42" in read[-1]


async def test_the_number_of_characters_that_is_shown_is_a_setting():
    sizes = []
    for shown in (1_000, 100_000):
        seen = []
        steps = iter([call("fetch", what="text"), "done"])
        await ask(lambda request, steps=steps: next(steps), seen, context=LargeResults(shown))
        sizes.append(len(result_text(seen[-1][-1].parts[0])))
    assert 800 < sizes[0] < 1_400
    assert 99_000 < sizes[1] < 100_400


async def test_old_results_are_forgotten_at_once_and_what_was_sent_before_stays_the_same_in_between():
    @tool(effect="pure")
    def page(number: int) -> str:
        """Read a page."""
        return f"page {number} " + "word " * 400  # about 500 tokens

    seen, steps = [], iter([*[call("page", number=n) for n in range(8)], call("read_result", call="c1_0", lines=1), "done"])

    def script(request):
        seen.append(request.messages)
        return next(steps)

    context = LargeResults(forget_after=2_000, keep=1)
    result = await Agent(ScriptedModel(script), [page], context=context, journal="memory").run("Read.")
    shown = [[result_text(m.parts[0]) for m in messages if m.role == "tool"] for messages in seen]
    broken = [n for n, (one, other) in enumerate(pairwise(shown)) if other[: len(one)] != one]
    assert len(broken) == 2, "the beginning of the request changes when results are forgotten, and never in between"
    assert all("no longer shown" not in texts[-1] for texts in shown if texts), "the last result is always there"
    assert max(sum(len(text) for text in texts) for texts in shown) < 4 * 2_600
    assert 'read_result(call="c1_0")' in shown[-1][0]
    assert "page 0 word" in shown[-1][-1], "and it can be read again"
    assert result.output == "done"


async def test_a_result_that_is_only_shortened_does_not_count_as_text_from_outside():
    @tool(effect="pure", labels={"result": "trusted"})
    def own() -> str:
        """Read the user's own list."""
        return "word " * 1_000

    @tool(effect="pure", labels={"result": "untrusted"})
    def web() -> str:
        """Read the web."""
        return ""

    @tool
    def act(what: str) -> str:
        """Do something."""
        return "done"

    steps = iter([call("own"), call("act", what="x"), "end"])
    agent = Agent(
        ScriptedModel(lambda request: next(steps)),
        [own, web, act],
        policies=[Flow()],
        context=LargeResults(1_000),
        journal="memory",
    )
    result = await agent.run("Go")
    assert [one.output for one in result.state.results.values() if one.name == "act"] == ["done"]


def test_large_results_refuses_numbers_that_are_too_small():
    for wrong in ({"shown": 10}, {"forget_after": 0}, {"keep": -1}):
        with pytest.raises(ConfigError, match="at least"):
            LargeResults(**wrong)


WIRES = {
    "chat": (OpenAI, reply, "messages"),
    "responses": (OpenAIResponses, responses_reply, "input"),
    "anthropic": (Anthropic, anthropic_reply, "messages"),
}


def conversation(body, name):
    """Return the messages of a request, without Anthropic's marks for the cache: the last one moves."""
    return json.loads(re.sub(r', "cache_control": \{"type": "ephemeral"\}', "", json.dumps(body[name])))


@pytest.mark.parametrize("wire", WIRES)
async def test_forgetting_keeps_the_beginning_of_the_request_on_the_wire_also_with_another_process(wire):
    @tool(effect="pure")
    def page(number: int) -> str:
        """Read a page."""
        return f"page {number} " + "word " * 400  # about 500 tokens

    kind, answer, name = WIRES[wire]
    turns = [[answer(calls=[("page", {"number": n})]) for n in numbers] for numbers in (range(6), range(6, 9))]
    async with WireServer([*turns[0], "read", *turns[1], "done"]) as server:
        journal = MemoryJournal()
        for said in ("Read.", "Go on."):  # an agent of its own for each turn, as after a restart
            model = kind("any", base_url=server.url, api_key="k")
            agent = Agent(model, [page], context=LargeResults(forget_after=2_000, keep=1), journal=journal)
            result = await agent.run(said, session_id="s")
            await agent.close()
    assert result.output == "done"
    sent = [conversation(body, name) for body in server.requests]
    changed = [(before, after) for before, after in pairwise(sent) if after[: len(before)] != before]
    assert len(sent) == 11
    assert len(changed) == 2, "only where results are forgotten"
    for before, after in changed:
        differ = [place for place, one in enumerate(before) if after[place] != one]
        assert differ[0] > 0, "what stands before the first forgotten result is as it was"
        for place in differ:
            assert "word word" in json.dumps(before[place])
            assert "no longer shown" in json.dumps(after[place])
