"""What hostile users have found in guardrails and fallback, so that it stays mended."""

import asyncio
import json
import time
from datetime import date
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, StringConstraints

from kaname import (
    Agent,
    AgentRuntime,
    Approve,
    ConfigError,
    FallbackStrategy,
    GuardrailAction,
    GuardrailResult,
    Guardrails,
    InvalidState,
    Judge,
    Media,
    MemoryJournal,
    ModelError,
    ModelReply,
    Policy,
    ReActPlanner,
    ScriptedModel,
    ToolResult,
    ToolRule,
    call,
    tool,
)
from kaname.core.demands import Refuse
from kaname.core.messages import Message, Provided, Text, ToolCall

QUICK = {"max_retries": 0, "backoff": 0.0}


class Note(BaseModel):
    text: str


class Replies:
    """A model that gives its replies as they are."""

    name = "replies"

    def __init__(self, *messages):
        self.messages = list(messages)

    async def reply(self, request, emit):
        message = self.messages.pop(0)
        await emit(message.text)
        return ModelReply(message, "tool_use" if message.calls else "end_turn")


async def guarded(model, policies, question="hi", **more):
    journal = MemoryJournal()
    agent = Agent(model, policies=policies if isinstance(policies, list) else [policies], journal=journal, **more)
    run = agent.run(question)
    seen = [chunk async for chunk in run]
    result = await run
    return result, seen, "".join([str(event) async for event in journal.read(run.run_id)])


@pytest.fixture
def ran():
    return []


def noting(ran, name, *, fails=False, **options):
    def work(q: str = "") -> str:
        """Work."""
        ran.append(name)
        if fails:
            raise ConnectionError(f"{name} has no line")
        return f"{name} did it"

    work.__name__ = name
    return tool(work, **options)


@pytest.mark.parametrize(
    "spelt",
    [
        '```json\n{"text": "\\u0068unter2"}\n```',
        'Here it is:\n```\n{"text": "\\u0068unter2"}\n```\nDone.',
        '{"text": "\\u0068unter2",}',
        "{'text': '\\x68unter2'}",
        json.dumps(json.dumps({"text": "hunter2"}).replace("h", "\\u0068")),
        '{"text": "\\u0068unter2"}',
        "({'text': '\\x68unter2'})",
        "# note\n{'text': '\\150unter2'}",
    ],
)
async def test_what_the_decoder_reads_the_guardrail_reads(spelt, ran):
    def no_password(text):
        return "a password" if "hunter" in text else None

    for rails in (Guardrails(blocked_patterns=[r"hunter\d"]), Guardrails(output_checks=[no_password])):
        result, _, facts = await guarded(ScriptedModel([spelt] * 3), rails, output=Note)
        assert result.stop.kind == "blocked"
        assert "hunter2" not in facts
        if spelt.startswith("Here"):
            continue  # no tool would read that as its arguments
        reply = Message("assistant", (ToolCall("1", "work", spelt),))
        result, _, facts = await guarded(Replies(reply), rails, tools=[noting(ran, "work")])
        assert (result.stop.kind, ran) == ("blocked", [])


async def test_names_of_tools_and_addresses_are_output():
    rails = Guardrails(blocked_patterns=[r"hunter\d"])
    for message in (
        Message("assistant", (ToolCall("1", "hunter2", {}),)),
        Message("assistant", (Text("x"), Provided("p", {"data": "hunter2"}))),
    ):
        result, seen, facts = await guarded(Replies(message), rails)
        assert result.stop.kind == "blocked"
        assert "hunter2" not in facts + str([dict(chunk) for chunk in seen])
    runtime = AgentRuntime(
        ReActPlanner(ScriptedModel(["Thought: hm\nAction: hunter2\nAction Input: x"])),
        [noting([], "work")],
        guardrails=rails,
        journal="memory",
    )
    assert (await runtime.run("hi")).stopped_reason == "blocked"


async def test_a_known_tools_name_is_no_output(ran):
    rails = Guardrails(blocked_patterns=["delete"])
    result, _, _ = await guarded(ScriptedModel([call("delete_file"), "done"]), rails, tools=[noting(ran, "delete_file")])
    assert (result.output, ran) == ("done", ["delete_file"])


async def test_no_reason_says_what_may_not_be_said():
    def broken(text):
        return int(text)

    class Echo:
        name = "echo"

        async def reply(self, request, emit):
            raise ModelError(f"cannot judge {request.messages[-1].text}")

    for rails in (
        Guardrails(blocked_patterns=["x", "hunter2"]),
        Guardrails(blocked_patterns=["秘密", "hunter2"]),
        Guardrails(output_checks=[broken]),
        Guardrails(output_checks=[Judge(Echo(), "No passwords.")]),
    ):
        result, seen, facts = await guarded(ScriptedModel(["hunter2"]), rails)
        assert result.stop.kind == "blocked"
        assert "hunter2" not in facts + str([dict(chunk) for chunk in seen])
    told = Guardrails(blocked_patterns=["x", "hunter2", r"\d{4}"])
    assert told.check_output("it is hunter2").reason == "the text matches the pattern no. 2"
    assert told.check_output("it is hunter2").details == {"pattern": "hunter2"}
    assert told.check_output("it is 1234").reason == r"the text matches the pattern '\\d{4}'"


async def _pay_in_another_way(ran, chain, **effects):
    tools = [noting(ran, name, fails=name != chain[-1], **effects.get(name, {})) for name in chain]
    strategy = FallbackStrategy(**QUICK, fallback=dict(pairwise(chain)))
    result, _, _ = await guarded(ScriptedModel([call(chain[0]), "without"]), strategy, tools=tools)
    return result.stop.kind


async def test_what_may_have_been_done_is_not_done_in_another_way(ran):
    final, again, calm = {"effect": "irreversible"}, {"effect": "idempotent"}, {"effect": "pure"}

    async def no_undo(args, context):
        raise ConnectionError("cannot undo")

    undo_fails = {"effect": "compensable", "undo": no_undo}
    for chain, effects, expected in (
        (("quote", "pay", "wire"), {"quote": calm, "pay": final, "wire": final}, ["quote", "pay"]),
        (("pay", "wire"), {"pay": again, "wire": final}, ["pay"]),
        (("pay", "wire"), {"pay": final, "wire": again}, ["pay"]),
        (("pay", "wire"), {"pay": undo_fails, "wire": final}, ["pay"]),
        (("pay", "wire"), {"pay": undo_fails, "wire": again}, ["pay"]),
        (("pay", "look"), {"pay": final, "look": calm}, ["pay", "look"]),
        (("save", "store"), {"save": again, "store": again}, ["save", "store"]),
        (("quote", "pay"), {"quote": calm, "pay": final}, ["quote", "pay"]),
        (("plain", "other"), {}, ["plain"]),
    ):
        ran.clear()
        kind = await _pay_in_another_way(ran, chain, **effects)
        assert (ran, kind) == (expected, "completed" if expected[-1] == chain[-1] else "degraded"), (chain, effects)


async def test_a_stand_in_counts_as_a_call(ran):
    tools = [noting(ran, "web", fails=True, effect="pure"), noting(ran, "paid", effect="pure")]
    policies = [
        Guardrails(tools=[ToolRule("paid", max_calls=1)]),
        FallbackStrategy(**QUICK, fallback={"web": "paid"}, degrade=False),
    ]
    script = [call("web", q="1"), call("web", q="2"), [call("web", q="3"), call("paid", q="4")], "done"]
    await guarded(ScriptedModel(script), policies, tools=tools)
    assert ran.count("paid") == 1


async def test_what_stood_in_counts_for_its_turn_only(ran):
    tools = [noting(ran, "web", fails=True, effect="pure"), noting(ran, "paid", effect="pure")]
    policies = [Guardrails(tools=[ToolRule("paid", max_calls=1)]), FallbackStrategy(**QUICK, fallback={"web": "paid"})]
    agent = Agent(ScriptedModel([call("web"), "one", call("web"), "two"]), tools, policies=policies, journal=MemoryJournal())
    for _ in range(2):
        await agent.run("go", session_id="s")
    assert ran == ["web", "paid", "web", "paid"]


async def test_what_is_said_in_the_end_is_judged_even_if_something_else_was_streamed():
    class Liar:
        name = "liar"

        async def reply(self, request, emit):
            await emit("harmless")
            return ModelReply(Message("assistant", (Text("hunter12"),)), "end_turn")

    result, _, facts = await guarded(Liar(), Guardrails(blocked_patterns=[r"hunter\d"]))
    assert (result.stop.kind, "hunter12" in facts) == ("blocked", False)


async def test_a_limit_holds_when_a_blocked_run_goes_on(ran):
    steps = iter([*[call("read", q=str(number)) for number in range(3)], "a secret", call("read", q="4"), "ok"])
    rails = Guardrails(blocked_patterns=["secret"], tools=[ToolRule("read", max_calls=3)])
    agent = Agent(
        ScriptedModel(lambda request: next(steps)),
        [noting(ran, "read", effect="pure")],
        policies=[rails],
        journal=MemoryJournal(),
    )
    first = await agent.run("go")
    assert (first.stop.kind, len(ran)) == ("blocked", 3)
    assert (await agent.resume(first.run_id)).output == "ok"
    assert len(ran) == 3


async def test_a_rule_judges_what_the_tool_gets():
    got = []

    @tool(effect="pure")
    def read(
        path: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)] = "/data/x",
        force: bool = False,
        paths: list[str] = [],  # noqa: B006
    ) -> str:
        """Read."""
        got.append(path)
        return "x"

    @tool(effect="pure")
    def made(path: Annotated[str, Field(default_factory=lambda: "/etc/passwd")]) -> str:
        """Read."""
        got.append(path)
        return "x"

    async def never(value):
        return False

    for rule, sent in (
        (ToolRule("read", arguments={"path": lambda path: not path.startswith("/etc")}), call("read", path=" /ETC/passwd")),
        (ToolRule("read", arguments={"force": lambda force: force is not True}), call("read", force="yes")),
        (
            ToolRule("read", arguments={"paths": lambda all: "/etc/passwd" not in all}),
            call("read", paths='["\\/etc\\/passwd"]'),
        ),
        (ToolRule("made", arguments={"path": "/data/.*"}), call("made")),
        (ToolRule("read", arguments={"path": lambda path: never(path)}), call("read")),
        (ToolRule("read", arguments={"path": "/data/[a-z]+$"}), ToolCall("1", "read", {"path": "/data/x\n/"})),
        (ToolRule("read", arguments={"path": "(?x) /data/ [a-z]+  # a file"}), call("read", path="/etc/x")),
    ):
        script = [Message("assistant", (sent,)) if isinstance(sent, ToolCall) else sent, "done"]
        model = (
            Replies(script[0], Message("assistant", (Text("done"),))) if isinstance(sent, ToolCall) else ScriptedModel(script)
        )
        result, _, _ = await guarded(model, Guardrails(tools=[rule]), tools=[read, made])
        assert (result.output, got) == ("done", []), rule
    fine = Guardrails(tools=[ToolRule("read", arguments={"path": "(?x) /data/ [a-z]+  # a file"})])
    await guarded(ScriptedModel([call("read", path="/data/abc"), "done"]), fine, tools=[read, made])
    assert got == ["/data/abc"]


def test_a_tools_own_rule_counts_before_the_rule_for_all(ran):
    rails = Guardrails(tools=[ToolRule("*", max_calls=5), ToolRule("drop", allowed=False)])
    agent = Agent(
        ScriptedModel([call("drop"), "done"]), [noting(ran, "drop", effect="pure")], policies=[rails], journal="memory"
    )
    agent.run_sync("go")
    assert ran == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Guardrails(tools=[ToolRule("a", max_calls="3")]),
        lambda: Guardrails(tools=[ToolRule("a", arguments={"path": 5})]),
        lambda: Guardrails(tools=[ToolRule("a"), ToolRule("a")]),
        lambda: Guardrails(output_checks=["no function"]),
        lambda: Guardrails(blocked_patterns=[5]),
        lambda: Guardrails(blocked_patterns=["x" * 1_000_000]),
        lambda: Guardrails(check_seconds=0),
        lambda: FallbackStrategy(fallback=["a"]),
        lambda: Guardrails(tools=[ToolRule("a", arguments=["path"])]),
        lambda: Guardrails(window="x"),
        lambda: Judge("no such model", "No passwords."),
        lambda: FallbackStrategy(backoff=-1),
        lambda: FallbackStrategy(backoff="1"),
        lambda: FallbackStrategy(fallback={"a": None}),
    ],
)
def test_mistakes_are_told_when_they_are_made(wrong):
    with pytest.raises(ConfigError):
        wrong()


async def test_a_check_that_failed_is_asked_again():
    lines = iter([ConnectionError("no line"), None])

    def check(text):
        if (line := next(lines)) is not None:
            raise line

    agent = Agent(ScriptedModel(["fine"]), policies=[Guardrails(input_checks=[check])], journal=MemoryJournal())
    assert (await agent.run("hi")).stop.kind == "blocked"
    assert (await agent.run("hi")).output == "fine"


async def test_a_check_that_hangs_blocks_and_holds_up_nobody():
    async def never(text):
        await asyncio.Event().wait()

    def sleeps(text):
        end = time.monotonic() + 60
        while turns <= 10 and time.monotonic() < end:
            time.sleep(0.01)

    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    other = asyncio.create_task(others())
    result, _, _ = await guarded(ScriptedModel(["x"]), Guardrails(output_checks=[never], check_seconds=0.05))
    assert (result.stop.kind, "took longer than 0.05 s" in result.stop.detail) == ("blocked", True)
    turns = 0
    result, _, _ = await guarded(ScriptedModel(["x"]), Guardrails(output_checks=[sleeps]))
    assert result.output == "x"
    assert turns > 10, "the loop went on while it slept"
    other.cancel()


async def test_a_tool_that_is_given_up_is_never_a_completed_run(ran):
    tools = [noting(ran, "delete", fails=True, effect="pure")]
    result, _, _ = await guarded(ScriptedModel([call("delete"), ""]), FallbackStrategy(**QUICK), tools=tools)
    assert result.stop.kind == "degraded"
    assert "delete has no line" in result.output


async def test_policy_sees_a_stand_in_like_every_call_wherever_it_is_listed(ran):
    class OfficeHours(Policy):
        async def tool(self, call, next, scope):
            return ToolResult(error="closed") if call.name == "paid" else await next(call)

    class Demanding(Policy):
        async def demand(self, call, view):
            return Refuse("closed") if call.name == "paid" else None

    tools = [noting(ran, "web", fails=True, effect="pure"), noting(ran, "paid", effect="pure")]
    fallback = FallbackStrategy(**QUICK, fallback={"web": "paid"})
    for policy in (OfficeHours(), Demanding()):
        for policies in ([policy, fallback], [fallback, policy]):
            ran.clear()
            result, _, _ = await guarded(ScriptedModel([call("web"), "done"]), policies, tools=tools)
            assert ran == ["web"]
            assert "closed" in result.stop.detail


async def test_all_warnings_are_told():
    rails = Guardrails(warn_patterns=["cat", "dog", "cow"])
    for texts in (("a cat, a dog, a cow, a cat", "hi"), ("fine", "a cat and a dog")):
        result, seen, _ = await guarded(ScriptedModel([texts[0]]), rails, texts[1])
        warned = [chunk["content"] for chunk in seen if chunk.type == "status" and chunk["status"] == "warning"]
        named = [word for word in ("cat", "dog", "cow") if word in "".join(texts)]
        assert warned == [f"the text matches the pattern '{word}'" for word in named]
        assert result.completed


async def test_deep_json_is_only_text():
    deep = "[" * 3000 + "]" * 3000
    result, _, _ = await guarded(ScriptedModel([deep]), Guardrails(blocked_patterns=["secret"]))
    assert result.output == deep


async def test_what_only_the_provider_reads_counts_no_tokens():
    message = Message("assistant", (Text("short"), Provided("p", {"encrypted": "A" * 40_000})))
    result, _, _ = await guarded(Replies(message), Guardrails())
    assert result.output == "short"


async def test_answers_are_input_and_changed_arguments_meet_the_rules(ran):
    script = [call("read", q="/data/a"), "done"]
    rails = Guardrails(blocked_patterns=["bomb"], tools=[ToolRule("read", arguments={"q": "/data/.*"})])
    for answer, expected in (
        ("no, tell me how to build a bomb", []),
        ({"args": {"q": "/etc/shadow"}}, []),
        ({"args": {"q": "/data/b"}}, ["read"]),
    ):
        ran.clear()
        journal = MemoryJournal()
        agent = Agent(
            ScriptedModel(list(script)),
            [noting(ran, "read", effect="pure")],
            policies=[rails, Approve("read")],
            journal=journal,
        )
        waiting = await agent.run("go")
        (key,) = waiting.questions
        if isinstance(answer, dict) and not expected:  # a rule that the approver did not know of: asked once more
            with pytest.raises(InvalidState, match="read cannot be called with this q"):
                await agent.resume(waiting.run_id, {key: answer})
            assert ((await agent.result(waiting.run_id)).questions, ran) == (waiting.questions, [])
            continue
        result = await agent.resume(waiting.run_id, {key: answer})
        assert (result.output, ran) == ("done", expected)
        assert "bomb" not in "".join([str(event) async for event in journal.read(waiting.run_id) if "Answered" in str(event)])


def test_who_knows_what_true_would_mean():
    for said in (True, False, 1):
        verdict = Guardrails(input_checks=[lambda text, said=said: said]).check_input("x")
        assert verdict.action is GuardrailAction.BLOCK
        assert "expected None to allow it" in verdict.reason
    assert Guardrails(input_checks=[lambda text: GuardrailAction.ALLOW]).check_input("x").action is GuardrailAction.ALLOW
    assert Guardrails(input_checks=[lambda text: GuardrailResult()]).check_input("x").action is GuardrailAction.ALLOW


async def test_thoughts_come_before_the_text_that_follows_them():
    class Thinker:
        name = "thinker"

        async def reply(self, request, emit):
            await emit("short thought", "thinking")
            for word in ["word "] * 300:
                await emit(word)
            return ModelReply(Message("assistant", (Text("word " * 300),)), "end_turn")

    _, seen, _ = await guarded(Thinker(), Guardrails(output_checks=[lambda text: None]))
    kinds = [chunk.type for chunk in seen if chunk.type in ("delta", "thinking")]
    assert kinds[0] == "thinking"
    assert kinds.count("thinking") == 1


async def test_a_check_may_not_end_the_program():
    def leaves(text):
        raise SystemExit(3)

    result, _, _ = await guarded(ScriptedModel(["x"]), Guardrails(output_checks=[leaves]))
    assert result.stop.kind == "blocked"


@pytest.mark.parametrize(
    "spelt",
    [
        'It is:\n```json\n{"text": "\\u0068unter2"}\n```',
        "{'text': '\\x68unter2'}",
        "{'text': '\\150unter2'}",
        "{'text': '\\U00000068unter2'}",
        json.dumps(json.dumps({"text": "hunter2"}).replace("h", "\\u0068")),
    ],
)
async def test_no_escape_is_shown_however_it_is_spelt(spelt):
    for size in (1, 3, 1000):
        _, seen, _ = await guarded(Sliced(spelt, size), Guardrails(blocked_patterns=[r"hunter\d"]))
        shown = "".join([chunk["content"] for chunk in seen if chunk.type == "delta"])
        assert "unter" not in shown
        assert shown == spelt[: len(shown)]


class Sliced:
    name = "sliced"

    def __init__(self, text, size):
        self.text, self.size = text, size

    async def reply(self, request, emit):
        for start in range(0, len(self.text), self.size):
            await emit(self.text[start : start + self.size])
        return ModelReply(Message("assistant", (Text(self.text),)), "end_turn")


async def test_checks_see_escapes_spelt_out_before_anything_is_shown():
    text = '{"text": "' + "x" * 900 + "\\u0068unter2" + "y" * 2_000 + '"}'
    rails = Guardrails(None, None, output_checks=[lambda text: "a password" if "hunter" in text else None])
    _, seen, _ = await guarded(Sliced(text, 10), rails)
    assert len("".join([chunk["content"] for chunk in seen if chunk.type == "delta"])) < 900


async def test_a_backslash_that_spells_nothing_is_a_backslash():
    for text in (r"`pass\word`", r"[C:\new\temp]", r"{\frac{a}{b}} \w+ \d{3}", "\\"):
        result, seen, _ = await guarded(Sliced(text, 1), Guardrails(blocked_patterns=["password"]))
        assert (result.output, "".join([chunk["content"] for chunk in seen if chunk.type == "delta"])) == (text, text)


async def test_a_warning_at_the_very_end_and_two_at_one_place():
    for patterns, text in ((["cat"], "a cat"), ([r"my password\b", r"password\b"], "it is my password, see")):
        _, seen, _ = await guarded(Sliced(text, 3), Guardrails(warn_patterns=patterns))
        assert len([chunk for chunk in seen if chunk.type == "status" and chunk["status"] == "warning"]) == len(patterns)


async def test_a_rule_for_values_that_are_no_json(ran):
    @tool(effect="pure")
    def read(path: Path, day: date, colour: Colour = Colour.RED) -> str:
        """Read."""
        ran.append(str(path))
        return "x"

    rules = ToolRule("read", arguments={"path": "/data/.*", "day": "2026-.*", "colour": "red"})
    for path, day, expected in (
        ("/data/x", "2026-01-01", ["/data/x"]),
        ("/etc/x", "2026-01-01", []),
        ("/data/x", "2025-01-01", []),
    ):
        ran.clear()
        result, _, _ = await guarded(
            ScriptedModel([call("read", path=path, day=day), "done"]), Guardrails(tools=[rules]), tools=[read]
        )
        assert (result.output, ran) == ("done", expected)


class Colour(Enum):
    RED = "red"


async def test_a_changed_argument_is_taken_as_it_is_or_not_at_all(ran):
    rails = Guardrails(blocked_patterns=["bomb"])
    agent = Agent(
        ScriptedModel([call("mail", q="x"), "done"]),
        [noting(ran, "mail")],
        policies=[rails, Approve("mail")],
        journal=MemoryJournal(),
    )
    waiting = await agent.run("go")
    (key,) = waiting.state.questions
    with pytest.raises(InvalidState, match="removed by a guardrail"):
        await agent.resume(waiting.run_id, {key: {"args": {"q": "the bomb shelter is open"}}})
    assert ran == []
    assert (await agent.resume(waiting.run_id, {key: "yes"})).output == "done", "nothing is lost"


async def test_a_policy_that_only_looks_on_does_not_stop_a_person(ran):
    class Log(Policy):
        async def tool(self, call, next, scope):
            return await next(call)

    agent = Agent(
        ScriptedModel([call("mail", q="x"), "done"]), [noting(ran, "mail")], policies=[Log(), Approve("mail")], journal="memory"
    )
    waiting = await agent.run("go")
    await agent.resume(waiting.run_id, {next(iter(waiting.state.questions)): {"args": {"q": "y"}}})
    assert ran == ["mail"]
    tools = [noting(ran, "web", fails=True, effect="pure"), noting(ran, "paid", effect="pure")]
    ran.clear()
    policies = [Log(), FallbackStrategy(**QUICK, fallback={"web": "paid"})]
    await guarded(ScriptedModel([call("web"), "done"]), policies, tools=tools)
    assert ran == ["web", "paid"]


async def test_a_degraded_run_tells_what_failed_whatever_the_model_does(ran):
    tools = [noting(ran, "delete", fails=True, effect="pure")]
    for script, more in (
        ([call("delete"), call("delete")], {}),
        ([call("delete"), "prose", "prose", "prose"], {"output": Note}),
    ):
        result, _, _ = await guarded(ScriptedModel(script), FallbackStrategy(**QUICK), tools=tools, **more)
        assert "delete has no line" in f"{result.output} {result.stop.detail}"
        assert not result.completed


async def test_a_check_that_fails_for_an_earlier_question_does_not_hide_it():
    fails = False

    def check(text):
        if fails:
            raise ConnectionError

    model = ScriptedModel(["one", "two"])
    agent = Agent(model, policies=[Guardrails(input_checks=[check])], journal=MemoryJournal())
    await agent.run("first", session_id="s")
    agent = Agent(model, policies=[Guardrails(input_checks=[check])], journal=agent.journal)  # as another process
    fails = True
    assert (await agent.run("second", session_id="s")).stop.kind == "blocked"


async def test_received_has_to_be_a_message():
    class Wrong(Policy):
        def received(self, message):
            return None

    with pytest.raises(ConfigError, match=r"must return a Message, not None"):
        await Agent(ScriptedModel(["x"]), policies=[Wrong()], journal="memory").run("hi")


async def test_names_and_addresses_of_media_are_results():
    @tool(effect="pure")
    def look() -> ToolResult:
        """Look."""
        return ToolResult("a picture", media=(Media("image/png", url="https://x/hunter2"),))

    rails = Guardrails(result_checks=[lambda text: "a password" if "hunter" in text else None])
    _, _, facts = await guarded(ScriptedModel([call("look"), "done"]), rails, tools=[look])
    assert "hunter2" not in facts


@pytest.mark.parametrize("text", ["The key is \\u0068unter2.", 'Here: {"a": "\\u0068unter2"} done.'])
async def test_escapes_in_prose_are_said_to_checks_too(text, ran):
    def no_password(said):
        return "a password" if "hunter2" in said else None

    for rails in (Guardrails(output_checks=[no_password]), Guardrails(blocked_patterns=["hunter2"])):
        result, _, facts = await guarded(Sliced(text, 5), rails)
        assert (result.stop.kind, "unter2" in facts) == ("blocked", False)
        assert rails.check_output(text).action is GuardrailAction.BLOCK
        reply = Message("assistant", (ToolCall("1", "work", {"q": "\\u0068unter2"}),))
        result, _, _ = await guarded(Replies(reply), rails, tools=[noting(ran, "work")])
        assert (result.stop.kind, ran) == ("blocked", [])
