"""The ReAct text protocol in use: costs, streams, tools that change something, servers without stop sequences."""

import sys
import time

import pytest

from kaname import (
    Agent,
    AgentRuntime,
    AgentState,
    FallbackStrategy,
    Guardrails,
    MemoryJournal,
    ReActPlanner,
    ScriptedModel,
    ToolResult,
    max_steps,
    tool,
)
from kaname.core.messages import ModelReply, ModelRequest, ToolSpec, assistant, user
from kaname.models import OpenAI, OpenAIResponses
from kaname.models.prompted.react import sections
from kaname.models.prompted.react.model import TextOnly, reply_by_text
from kaname.models.prompted.react.parse import read_reply
from kaname.models.prompted.react.sections import Sections, label_of, may_become_label
from kaname.testing.wire import WireServer, reply, status
from tests.models.test_react import CASES, TOOLS, shown_of
from tests.properties import nightly

RUNS = {
    **{f"a run of {mark!r}": lambda n, mark=mark: mark * n for mark in "*_- 1#\n`[](){}\"'<|:>・\t\r"},
    "Action": lambda n: "Action" * (n // 6),
    "Action and spaces": lambda n: "Action" + " " * n,
    "Action, spaces, colon": lambda n: "Action" + " " * n + ": search[x]",
    "stars before a label": lambda n: "*" * n + "Action: x",
    "an answer and underscores": lambda n: "Final Answer: a\n" + "_" * n,
    "an answer and spaces": lambda n: "Final Answer: a\n" + " " * n,
    "an answer and empty lines": lambda n: "Final Answer: a" + "\n" * n + "b",
    "an answer in bold": lambda n: "Final Answer: **" + "a" * n,
    "bold and empty lines": lambda n: "Final Answer: **a**" + "\n" * n,
    "a thought and dashes": lambda n: "Thought: hm\n" + "-" * n,
    "an input on one line": lambda n: "Action: search\nAction Input: " + "y" * n,
    "JSON on one line": lambda n: '{"action": "search", "action_input": "' + "y" * n + '"}',
    "labels in an answer": lambda n: "Final Answer: a\n" + "結果：b\n" * (n // 5),
    "answers in prose": lambda n: "Prose\n" + "Answer: b\n" * (n // 10),
    "answers in an answer": lambda n: "Final Answer: a\n" + "Final Answer: b\n" * (n // 16),
    "thoughts in prose": lambda n: "Prose\n" + "Thought: b\n" * (n // 11),
    "actions in prose": lambda n: "Prose\n" + "Action: please go.\n" * (n // 19),
    "observations in prose": lambda n: "Prose\n" + "Observation: b\n" * (n // 15),
    "half tokens": lambda n: "Final Answer: " + "<|" * (n // 2),
    "tags": lambda n: "<tool_call>" * (n // 11),
    "ends of thinking": lambda n: "x" + "</think>" * (n // 8),
    "fences": lambda n: "```\n" * (n // 4),
    "steps": lambda n: "step 1 " * (n // 7),
    "escaped quotes": lambda n: 'Action: search\nAction Input: {"a": ' + '"\\"' * (n // 3),
    "open braces": lambda n: "Action: search\nAction Input: " + '{"a":' * (n // 5),
    "tags on lines": lambda n: "x\n" + "<action>\n" * (n // 9),
    "results in an input": lambda n: "Action: search\nAction Input:\nx\n" + "Result: b\n" * (n // 10),
    "a form": lambda n: "Action: search\n" + "Owner: Ken\n" * (n // 11),
    "inputs of JSON": lambda n: 'Action: search\nAction Input: {"a": "\n' * (n // 37),
    "triple quotes": lambda n: 'Action: search("""\n' * (n // 19),
    "fences in an input": lambda n: "Action: search\nAction Input:\n" + "```\nx\n" * (n // 6),
    "parameters": lambda n: "<function=search>" + "<parameter=a>" * (n // 13),
}


def work(text):
    """How many calls of functions it takes to read it and to stream it."""
    count = 0

    def counting(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # an error of too deep a nesting inside `counting` would end the counting
    sys.setprofile(counting)
    try:
        read_reply(text, TOOLS)
        read_reply(text, TOOLS, TOOLS)
        stream = Sections()
        for place in range(0, len(text), 4):
            stream.feed(text[place : place + 4])
    finally:
        sys.setprofile(None)
        sys.setrecursionlimit(limit)
    return count


@pytest.mark.parametrize("name", [*RUNS][:2] + nightly(*[*RUNS][2:]))
def test_four_times_the_text_is_at_most_four_times_the_work(name):
    began = time.monotonic()
    small, large = work(RUNS[name](1_000)), work(RUNS[name](4_000))
    assert large < 5 * small + 500
    assert read_reply(RUNS[name](30_000), TOOLS)
    assert time.monotonic() - began < 60, "it froze for minutes once; this is but a net under the count"


def test_a_line_is_looked_at_for_a_label_in_its_first_characters_only(monkeypatch):
    looked = []
    monkeypatch.setattr(sections, "may_become_label", lambda line: looked.append(len(line)) or may_become_label(line))
    stream = Sections()
    for piece in ("*" * 3_000, " " * 3_000, "Action" * 500, "_" * 3_000):
        stream.feed("Final Answer: x\n")
        for char in piece:
            stream.feed(char)
        stream.feed("\n")
    assert max(looked) <= 100
    assert len(looked) < 2_000


def test_a_beginning_that_can_become_no_label_never_becomes_one():
    lines = {line for case in CASES for line in case["reply"].replace("\r", "\n").split("\n")}
    for line in lines:
        for section in ("start", "thought", "action", "input"):
            whole = label_of(line, section)
            for end in range(1, min(len(line), 120)):
                if not may_become_label(line[:end]):
                    early = label_of(line[:end], section)
                    assert (early and early.kind) == (whole and whole.kind), line
                    break


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("<think>\nFinal Answer: 3? no\n</think>\nFinal Answer: 4", "Final Answer: 3? no"),
        ("## Thought\nI look.\n## Final Answer\n4", "I look."),
        ("【思考】調べる。\n【最終回答】4", "調べる。"),
        ("**Thought:** so it is\n**Final Answer:** 4", "so it is"),
        ("Thought: a\r\nb\r\nFinal Answer: 4", "a\nb"),
    ],
)
async def test_thoughts_stream_as_thinking(text, thinking):
    for size in (1, 3, 100):
        said, thought, made = await shown_of(text, TOOLS, size)
        assert (said, thought) == ("4", thinking)
        assert made.message.thinking == thinking, "and the last step keeps them"


@tool(effect="pure")
def population(city: str) -> int:
    """How many people live there."""
    return 14_000_000


class Orders:
    name, description = "orders", 'Looks an order up. Input: JSON like {"id": 1, "year": 2024}'

    def __init__(self):
        self.heard = []

    async def execute(self, input_text):
        self.heard.append(input_text)
        return ToolResult(output="found", error=None)


class Broken:
    name, description = "broken", "Fails."

    async def execute(self, input_text):
        raise RuntimeError("boom")


def scripted(*replies):
    script, asked = iter(replies), []
    return ScriptedModel(lambda request: asked.append(request) or next(script)), asked


async def test_the_history_shows_what_the_model_wrote():
    model, asked = scripted("Thought: hm", '{"action": "pop', "Final Answer: 14")
    result = await Agent(TextOnly(model), [population], journal=MemoryJournal()).run("How many?")
    assert result.output == "14"
    wrote = [message.text for message in asked[-1].messages if message.role == "assistant"]
    assert wrote == ["Thought: hm", '{"action": "pop']


async def test_an_answer_that_looks_like_a_label_goes_back_as_an_answer():
    model, asked = scripted("Thought: I know\nFinal Answer: Result: 5", "Final Answer: 6")
    runtime = AgentRuntime(ReActPlanner(model), [population], journal="memory")
    await runtime.run("a", session_id="s")
    await runtime.run("b", session_id="s")
    assert [m.text for m in asked[-1].messages if m.role == "assistant"] == ["Thought: I know\nFinal Answer: Result: 5"]


async def told(*replies, tools=(population,), **more):
    model, asked = scripted(*replies)
    handle = Agent(TextOnly(model), list(tools), journal=MemoryJournal(), **more).run("How many?")
    seen = [chunk async for chunk in handle]
    return await handle, "".join([chunk["content"] for chunk in seen if chunk.type == "delta"]), asked


async def test_a_thought_is_not_the_answer_when_asking_again_did_not_help():
    result, said, _ = await told("Thought: it may be 13 million", '{"action": "pop', "Action:")
    assert (result.stop.kind, result.output, said) == ("incomplete", "", "")


async def test_each_question_has_its_own_tries():
    model, asked = scripted(*['{"action": "pop'] * 3, "Thought: hm", "Final Answer: 14")
    agent = Agent(TextOnly(model), [population], journal=MemoryJournal())
    first = await agent.run("How many?", session_id="s")
    second = await agent.run("And now?", session_id="s")
    assert (first.stop.kind, second.output, len(asked)) == ("incomplete", "14", 5)


async def test_an_answer_of_json_that_was_cut_off_stays_as_it_was_shown():
    out = []

    async def emit(piece, kind="text", call_id=""):
        out.append(piece)

    async def ask(request, show):
        await show('Final Answer: {"total": 3')
        return ModelReply(assistant('Final Answer: {"total": 3'), "max_tokens")

    made = await reply_by_text(ask, ModelRequest((user("q"),), (ToolSpec("search", "s", TOOLS["search"]),)), emit)
    assert (made.message.text, made.problem, made.stop_reason) == ("".join(out), "", "max_tokens")


async def test_broken_json_is_no_answer_and_the_user_is_told_why():
    result, said, _ = await told(*['{"action": "pop'] * 3)
    assert (result.stop.kind, result.output or "", said) == ("incomplete", "", "")
    assert "could not be read" in result.stop.detail
    assert "Write either" not in result.stop.detail, "that was said to the model"


@pytest.mark.parametrize("text", ["Thought: the secret is 5", '{"action": "secret', "Action:\n<think>secret"])
async def test_what_could_not_be_read_is_judged_by_guardrails_and_is_not_in_the_journal(text):
    journal = MemoryJournal()
    rails = Guardrails(blocked_patterns=["secret"])
    handle = AgentRuntime(ReActPlanner(scripted(text)[0]), [Orders()], rails, journal=journal).stream("q")
    assert "secret" not in "".join([str(chunk) async for chunk in handle])
    assert (await handle).stop.kind == "blocked"
    assert "secret" not in repr(vars(journal))


async def test_an_action_without_tools_is_not_the_answer():
    model, asked = scripted("Action: broken[x]", "Thought: again\nAction: calculator[2**0.5]", "Final Answer: It failed.")
    fallback = FallbackStrategy(backoff=0.001)
    runtime = AgentRuntime(ReActPlanner(model), [Broken(), Orders()], fallback_strategy=fallback, journal="memory")
    result = await runtime.run("q")
    assert (result.answer, result.stopped_reason) == ("It failed.", "tool_failure_degraded")
    assert "No tool can be used any more" in asked[-1].messages[-1].text
    stubborn, _ = scripted("Action: broken[x]", *["Action: calculator[2**0.5]"] * 3)
    runtime = AgentRuntime(ReActPlanner(stubborn), [Broken()], fallback_strategy=fallback, journal="memory")
    assert "Action" not in (await runtime.run("q")).answer


@pytest.mark.parametrize("given", ['{"id": 1, "year": 2024}', '{"id":1}', "[1, 2]", "a=1, b=2", "plain"])
async def test_a_tool_of_one_text_hears_it_as_it_was_written(given):
    orders = Orders()
    text = f"Thought: a\nAction: orders\nAction Input: {given}"
    result = await AgentRuntime(ReActPlanner(scripted(text, "Final Answer: x")[0]), [orders], journal="memory").run("q")
    planned = await ReActPlanner(scripted(text)[0]).plan("q", AgentState(), [orders])
    assert orders.heard == [given]
    assert planned.action_input == given
    assert result.steps[0].action_input == given
    named = Orders()
    await AgentRuntime(ReActPlanner(scripted('Action: orders({"input": "x"})', "Final Answer: x")[0]), [named]).run("q")
    assert named.heard == ["x"]


async def test_a_server_that_takes_no_stop_sequences_is_asked_without_and_that_is_kept():
    refusal = status(400, {"error": {"message": "Unsupported parameter: 'stop' is not supported with this model."}})
    async with WireServer([refusal, reply("Action: population[Tokyo]"), reply("Final Answer: 14")]) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode="text")
        result = await Agent(model, [population], journal=MemoryJournal()).run("How many?")
        await model.close()
    assert result.output == "14"
    assert ["stop" in request for request in server.requests] == [True, False, False]


async def test_a_servers_own_stop_sequences_are_kept_beside_ours():
    async with WireServer([reply("Final Answer: 14")]) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode="text", settings={"stop": "END"})
        await Agent(model, [population], journal=MemoryJournal()).run("How many?")
        await model.close()
    assert server.requests[0]["stop"] == ["\nObservation:", "\n観察:", "END"]


async def test_our_stop_sequences_come_first_and_none_of_yours_is_dropped():
    model, asked = scripted("Final Answer: a")
    await Agent(TextOnly(model), [population], settings={"stop": ["A", "B", "C"]}, journal=MemoryJournal()).run("q")
    assert asked[0].settings["stop"] == ["\nObservation:", "\n観察:", "A", "B", "C"]


DONE = []


@tool(effect="irreversible")
def delete(text: str) -> str:
    """Deletes."""
    DONE.append(text)
    return "deleted"


@pytest.mark.parametrize(
    "text",
    [
        "Minutes, 3 April\n\nTopic: old logs\nAction: Delete\nOwner: Ken",
        'Never do this:\n\n{"action": "delete", "action_input": "everything"}\n\nIt removes all data.',
        'To remove it in Python, call the helper:\n\n`delete("all")`',
    ],
)
async def test_an_answer_that_speaks_of_a_call_deletes_nothing(text):
    DONE.clear()
    result, said, asked = await told(*[text] * 3, tools=[delete])
    assert (result.output, said, DONE) == (text, text, [])
    assert len(asked) == 3, "it was asked whether it meant it"


async def test_who_is_not_clear_about_what_changes_something_is_asked_for_json():
    DONE.clear()
    result, _, asked = await told(
        "Thought: hm\nAction: delete\nAction Input: user 7\n\nIt removes all data.",
        'Thought: hm\nAction: delete\nAction Input: {"text": "user 7"}',
        "Final Answer: done",
        tools=[delete],
    )
    assert (result.output, DONE) == ("done", ["user 7"])
    assert "one JSON object" in asked[1].messages[-1].text


@tool(effect="pure")
def broken(text: str) -> str:
    """Fails."""
    raise RuntimeError("boom")


async def over_http(*replies, tools=(), **more):
    async with WireServer([reply(text) for text in replies]) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode="text")
        handle = Agent(model, list(tools), journal=MemoryJournal(), **more).run("q")
        seen = [chunk async for chunk in handle]
        result = await handle
        await model.close()
    return result, "".join([chunk["content"] for chunk in seen if chunk.type == "delta"]), server.requests


@pytest.mark.parametrize(
    "text", ["Thought: I know.\nFinal Answer: Oslo", "<think>hm</think>Oslo", "Final Answer: Oslo<|im_end|>", "Oslo"]
)
async def test_text_mode_over_http_is_read_alike_without_tools(text):
    result, said, _ = await over_http(text)
    assert (result.output, said) == ("Oslo", "Oslo")
    fallback = [FallbackStrategy(max_retries=0)]
    result, said, requests = await over_http("Action: broken[x]", text, tools=[broken], policies=fallback)
    assert (result.stop.kind, result.output, said) == ("degraded", "Oslo", "Oslo")
    system = requests[-1]["messages"][0]
    assert (system["role"], "No tool can be used any more" in system["content"]) == ("system", True)


async def test_a_model_that_keeps_calling_without_tools_ends_with_what_failed():
    stubborn = ["Action: broken[x]"] * 4
    fallback = [FallbackStrategy(max_retries=0)]
    result, said, _ = await over_http(*stubborn, tools=[broken], policies=fallback)
    assert (result.stop.kind, said) == ("degraded", "")
    assert "boom" in result.output
    runtime = AgentRuntime(ReActPlanner(scripted(*stubborn)[0]), [Broken()], fallback_strategy=FallbackStrategy(backoff=0.001))
    assert (await runtime.run("q")).stopped_reason == "tool_failure_degraded"


async def test_where_no_tool_is_offered_no_action_is_asked_for():
    fallback = [FallbackStrategy(max_retries=0)]
    result, _, asked = await told("Action: broken[x]", "", "Final Answer: no", tools=[broken], policies=fallback)
    assert result.output == "no"
    note = asked[-1].messages[-1].text
    assert "the reply was empty" in note
    assert "Action:" not in note
    assert all(message.text for message in asked[-1].messages), "an empty message is refused by some servers"


@pytest.mark.parametrize("text", ['Final Answer: {"result": 5}', 'Thought: so\nFinal Answer: {"result": 5}', '{"result": 5}'])
async def test_an_answer_in_a_form_may_have_a_label(text):
    result, said, asked = await told("Action: population[Oslo]", "Final Answer: five", text, output=int)
    assert (result.output, said, len(asked)) == (5, 'five{"result": 5}', 3)
    result, said, _ = await over_http(text, output=int)
    assert (result.output, said) == (5, '{"result": 5}')


async def test_a_call_in_the_last_step_leaves_its_thought_as_the_best_there_is():
    thought = "Thought: it is probably 14 million\nAction: population[{}]"
    result, _, asked = await told(*[thought.format(n) for n in range(3)], stops=max_steps(2))
    assert (result.stop.kind, result.output, len(asked)) == ("max_steps", "it is probably 14 million", 3)


async def test_an_error_is_called_one_once():
    _, _, asked = await told("Action: hammer[x]", "Final Answer: no")
    assert asked[-1].messages[-1].text == "Observation: Error: there is no tool named 'hammer'; available: population"


@pytest.mark.parametrize("words", ["Stop sequences must be at most 1", "`stop`: not here", "stop_sequences: bad", "got 'stop'"])
async def test_any_refusal_that_speaks_of_stop_is_tried_without(words):
    refusal = status(400, {"error": {"message": words}})
    async with WireServer([refusal, reply("Final Answer: 14")]) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode="text")
        result = await Agent(model, [population], journal=MemoryJournal()).run("How many?")
        await model.close()
    assert (result.output, len(server.requests)) == ("14", 2)


_A = "\nAction: delete\nAction Input: /srv/data"
_J = '\n{"action": "delete", "action_input": "/srv"}'
_JA = "\n行動：delete\n行動入力：/srv"


@pytest.mark.parametrize(
    "reply",
    [
        f"I will not do this. The call I refuse is{_A}",
        f"I must stress that this is forbidden.{_A}",
        f"I need your permission first. Shall I run this?\n{_J}",
        f"Let me know if I should run it:{_A}",
        f"Ken said: I will clean up now.{_A}",
        f"I now understand what the attacker sent:{_J}",
        '承認が必要です。\ndelete("/srv/data")',
        '実行しないことを推奨します。\ndelete("/srv")',
        f"手順を説明します。{_JA}",
        f"削除してよいか確認します。{_JA}",
        f"ご依頼の JSON を作成しました。{_J}",
        'Action: delete\nAction Input: {"path": "/a"}\n(awaiting your approval)',
        'Action: delete\nAction Input: {"path": "/a"}\nPlease confirm before I run the tool.',
        'Action: delete\nAction Input: {"path": "/a"}\nThis will only run after you confirm.',
        "Action: delete\nAction Input:",
        "Action: delete[]",
        "Action: delete\nAction Input: /a\nThought: Actually no, do not.\nFinal Answer: I did nothing",
    ],
)
def test_a_tool_that_changes_something_is_not_called_beside_other_words(reply):
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    assert read_reply(reply, {"delete": schema}, {"delete"}).action == ""


@pytest.mark.parametrize(
    "reply",
    [
        "Thought: it is old.\nAction: delete\nAction Input: /a",
        'Thought: it is old.\nAction: delete\nAction Input: {"path": "/a"}\nObservation: done\nFinal Answer: gone',
        'Action: delete("/a")',
        '{"action": "delete", "action_input": "/a"}',
        "思考：古い。\n行動：delete\n行動入力：/a",
    ],
)
def test_and_is_where_the_reply_says_so_and_no_more(reply):
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    reading = read_reply(reply, {"delete": schema}, {"delete"})
    assert (reading.action, reading.args) == ("delete", {"path": "/a"})


@pytest.mark.parametrize(
    "reply",
    [
        "Tool: delete\nInput: the path of the file to remove",
        "ツール：delete\n引数：path（削除するファイル）",
        "1. Action: delete\n2. Input: /srv\n3. Result: gone",
        "delete(path)",
        "Action: delete[path]",
        '{"action": "delete", "status": "forbidden"}',
        '{"event": "audit", "action": "delete", "user": "ken", "path": "/srv"}',
        '{"name": "delete", "description": "removes a file", "parameters": {"path": {"type": "string"}}}',
    ],
)
def test_a_manual_or_a_log_calls_nothing_that_changes_something(reply):
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    assert read_reply(reply, {"delete": schema}, {"delete"}).action == ""


def test_a_letter_is_sent_whole_or_not_at_all():
    texts = {name: {"type": "string"} for name in ("to", "subject", "body")}
    schema = {"type": "object", "properties": texts, "required": list(texts)}
    for line in ("Observation: it is hot", "観察：暑い", "Final Answer: 42", "Action: reboot"):
        reply = f"Action: send_mail\nAction Input:\nto: k@x\nsubject: s\nbody: Hi\n\n{line}\n\nBye"
        assert read_reply(reply, {"send_mail": schema}, {"send_mail"}).action == "", line
    short = {"type": "object", "properties": {"body": {"type": "string"}}, "required": ["body"]}
    for line in ("Result: passed", "Output: 7", "結果：合格"):
        reply = f"Thought: go\nAction: send\nAction Input: Hello Ken,\n{line}\nBye"
        assert read_reply(reply, {"send": short}, {"send"}).action == "", line
        assert read_reply(reply, {"send": short}).args == {"body": "Hello Ken,"}, "one that only looks gets the first line"


async def test_settings_that_text_cannot_carry_are_reported():
    model = TextOnly(OpenAIResponses("m", base_url="http://127.0.0.1:1", api_key="k", settings={"seed": 7}))
    assert model.ignores({"tool_choice": "required", "temperature": 0}) == ["tool_choice", "seed"]
