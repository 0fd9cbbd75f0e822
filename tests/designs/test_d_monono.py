"""Design D: tools, streams, chunks, extension, errors."""

import asyncio
import json
import re
import threading

import pytest

from kaname import (
    Agent,
    ConfigError,
    ModelError,
    ModelReply,
    Policy,
    ScriptedModel,
    ToolContext,
    ToolResult,
    call,
    deadline,
    tool,
)
from kaname.core.messages import ToolCall, assistant
from kaname.tools.registry import as_action
from tests.parts import add, adding, chunks


@pytest.mark.requirement("D2")
async def test_functions_classes_and_definitions_are_tools():
    definition = {
        "type": "function",
        "function": {
            "name": "double",
            "description": "Twice as much.",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
        "execute": lambda n: n * 2,
    }

    def half(n: float) -> float:
        """Half as much."""
        return n / 2

    model = ScriptedModel([[call("double", n=4), call("half", n=4), call("double", n="four")], "done"])
    result = await Agent(model, [definition, half], journal="memory").run("go")
    seen = [step.observation for step in result.steps]
    assert seen[:2] == ["8", "2.0"]
    assert "arguments.n: expected integer, got string 'four'" in seen[2]


@pytest.mark.requirement("D2")
async def test_sync_functions_do_not_block_the_loop():
    begun, go_on = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Block."""
        begun.set()
        return threading.current_thread().name if go_on.wait(60) else "the loop stood still"

    agent = Agent(ScriptedModel([[call("block")] * 2, "done"]), [block], journal="memory")

    async def release() -> None:
        while not begun.is_set():
            await asyncio.sleep(0.001)
        go_on.set()

    releasing = asyncio.create_task(release())
    result = await agent.run("go")
    await releasing
    assert all(step.observation == "kaname-tool" for step in result.steps[:2])


@pytest.mark.requirement("D16")
async def test_run_is_a_drained_stream_and_the_session_is_picked_by_its_id():
    agent = Agent(ScriptedModel(lambda r: f"{len(r.messages)} so far"), journal="memory")
    streamed = await chunks(agent.run("a", session_id="s1"))
    text = "".join(c["data"]["content"] for c in streamed if c["type"] == "delta")
    assert text == "1 so far"
    assert (await agent.run("b", session_id="s1")).output == "3 so far"
    assert (await agent.run("c", session_id="s2")).output == "1 so far"
    assert (await agent.run("d")).output == "1 so far"


@pytest.mark.requirement("D17")
async def test_a_tool_call_from_parsing_to_the_model():
    order, known = [], []

    class Guard(Policy):
        async def tool(self, call, next, scope):
            order.append(f"guard {call.args}")
            return await next(call)

    @tool
    def look(city: str, context: ToolContext) -> dict:
        """Look."""
        order.append("execute")
        known.append((context.session, context.user, context.agent, context.idempotency_key))
        return {"city": city, "sky": "clear"}

    requests = []

    def script(request):
        requests.append(request)
        return [ToolCall("", "look", "{'city': 'Kyoto',}"), "clear"][len(requests) - 1]

    agent = Agent(ScriptedModel(script), [look], policies=[Guard()], name="guide", journal="memory")
    run = agent.run("go", session_id="s", user_id="u")
    seen = await chunks(run)
    assert order == ["guard {'city': 'Kyoto'}", "execute"]
    assert known == [("s", "u", "guide", f"{run.run_id}:c1_0")]
    (response,) = [c for c in seen if c["type"] == "tool_response"]
    assert response["data"]["content"] == {"city": "Kyoto", "sky": "clear"}
    assert response["data"]["content_preview"] == '{"city": "Kyoto", "sky": "clear"}'
    assert requests[0].tools[0].parameters["required"] == ["city"], "the context is not shown to the model"
    assert requests[1].messages[-1].parts[0].output == {"city": "Kyoto", "sky": "clear"}


@pytest.mark.requirement("D19")
async def test_messages_calls_and_definitions_in_the_openai_shapes():
    agent = Agent(adding(), [add], journal="memory")
    result = await agent.run({"role": "user", "content": "add them"})
    assert result.messages == [
        {"role": "user", "content": "add them"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 3, "b": 4}'}}],
        },
        {"role": "tool", "tool_call_id": "c1_0", "name": "add", "content": "7"},
        {"role": "assistant", "content": "the sum is 7"},
    ]
    (shown,) = agent.available_tools
    again = as_action({"type": "function", "function": shown})
    assert (again.name, again.parameters) == ("add", shown["parameters"])
    with pytest.raises(ConfigError, match="role"):
        agent.run({"role": "wizard", "content": "hi"})


@pytest.mark.requirement("D20")
async def test_the_chunk_envelope():
    seen = await chunks(Agent(adding(), [add], name="Monono", journal="memory").run("go"))
    assert [c["seq"] for c in seen] == list(range(1, len(seen) + 1))
    for chunk in seen:
        shape = json.loads(chunk.to_json())
        assert list(shape) == ["time", "agent", "type", "data", "seq"] == list(chunk)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shape["time"])
        assert shape["agent"] == "Monono"
    assert {"delta", "tool_call", "tool_response", "usage"} <= {c["type"] for c in seen}
    call_chunk = next(c for c in seen if c["type"] == "tool_call")
    assert call_chunk["data"]["function"] == {"name": "add", "arguments": '{"a": 3, "b": 4}'}
    usage = next(c for c in seen if c["type"] == "usage")
    assert usage["data"]["total_tokens"] == usage["data"]["prompt_tokens"] + usage["data"]["completion_tokens"] == 15


@pytest.mark.requirement("D20")
async def test_a_stream_is_taken_up_again_from_a_given_fact():
    def script(request):
        if len(request.messages) == 1:
            return call("add", a=3, b=4)
        if down:
            raise ModelError("gone")
        return "the sum is 7"

    down = True
    agent = Agent(ScriptedModel(script), [add], journal="memory")
    run, last = agent.run("go"), 0
    with pytest.raises(ModelError):
        async for chunk in run:
            last = chunk["data"].get("fact", last) if chunk["type"] != "tool_response" else last
            if chunk["type"] == "tool_response":
                break
        await run
    down = False
    seen = await chunks(agent.resume(run.run_id, after=last))
    assert [c["seq"] for c in seen] == list(range(1, len(seen) + 1))
    assert seen[0]["type"] == "tool_response", "what the reader had not seen comes first"
    restarted = next(c for c in seen if c.get("status") == "restarted")
    assert restarted["data"]["attempt"] == 2
    assert "".join(c["content"] for c in seen if c["type"] == "delta") == "the sum is 7"


@pytest.mark.requirement("D21")
async def test_a_model_a_tool_and_an_agent_are_one_class_or_function_each():
    class Parrot:
        name = "parrot"

        async def reply(self, request, emit):
            await emit(request.messages[-1].text)
            return ModelReply(assistant(request.messages[-1].text), "end_turn")

    class Helper(Agent):
        def __init__(self):
            super().__init__(Parrot(), [len_of], name="helper", instructions="Repeat.", journal="memory")

    def len_of(text: str) -> int:
        """Length."""
        return len(text)

    assert (await Helper().run("polly")).output == "polly"


@pytest.mark.requirement("D22")
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Agent("gpt-4o"), "provider/model"),
        (lambda: Agent("opnai/gpt-4o"), "provider 'opnai' is not known"),
        (lambda: Agent("scripted/nowhere.json"), "nowhere.json"),
        (lambda: Agent(42), "model must be a name"),
        (lambda: Agent(tools=[42]), "42 is not a tool"),
        (lambda: Agent(tools=[{"type": "function"}]), "needs a name"),
        (lambda: Agent(name=""), "name of an agent must not be empty"),
        (lambda: Agent(journal=3.5), "journal must be"),
        (lambda: tool(effect="harmless")(print), "effect 'harmless' is unknown"),
        (lambda: deadline("soon"), "'soon' is not a duration"),
    ],
)
def test_bad_configuration_is_told_before_the_start(make, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        make()


@pytest.mark.requirement("D22")
async def test_time_limits_on_tools_and_runs():
    freed = []

    @tool(timeout="50ms")
    async def slow() -> str:
        """Slow."""
        try:
            await asyncio.sleep(60)
        finally:
            freed.append("slow")
        return ""

    async with asyncio.timeout(40):
        result = await Agent(ScriptedModel([call("slow"), "gave up"]), [slow], journal="memory").run("go")
    assert result.output == "gave up"
    assert "timed out after 0.05 s; it may or may not have taken effect" in result.steps[0].observation
    forever = Agent(ScriptedModel(["x" * 80_000], pace=0.01), journal="memory", stops=deadline("100ms"))
    async with asyncio.timeout(40):
        result = await forever.run("go")
    assert result.stop.kind == "deadline"
    assert freed == ["slow"]


@pytest.mark.requirement("D22")
async def test_cancellation_frees_everything_it_held():
    freed, begun = [], asyncio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            freed.append("tool")
        return ""

    agent = Agent(ScriptedModel([call("hold")]), [hold], journal="memory")
    before = len(asyncio.all_tasks())
    run = agent.run("go")
    waiting = asyncio.ensure_future(run)
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert freed == ["tool"]
    assert len(asyncio.all_tasks()) == before
    (card,) = await agent.journal.runs()
    assert card.status == "cancelled"
    assert isinstance((await agent.resume(run.run_id)).questions, dict)


@pytest.mark.requirement("D17")
async def test_results_of_any_type_and_size():
    import dataclasses
    import datetime
    import enum

    class Colour(enum.Enum):
        RED = "red"

    @dataclasses.dataclass
    class Point:
        x: int
        y: set

    circle: dict = {"name": "ring"}
    circle["self"] = circle
    values = [
        (Point(1, {2}), {"x": 1, "y": [2]}),
        (Colour.RED, "red"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (b"hi", "aGk="),
        (float("nan"), "nan"),
        ({1: (2, 3)}, {"1": [2, 3]}),
        (circle, {"name": "ring", "self": "[a reference to something above]"}),
        (None, None),
        (ToolResult("mine"), "mine"),
    ]

    @tool(effect="pure")
    async def give(n: int) -> object:
        """Give."""
        return values[n][0]

    for number, (_, wanted) in enumerate(values):
        result = await Agent(ScriptedModel([call("give", n=number), "ok"]), [give], journal="memory").run("go")
        assert result.state.results["c1_0"].output == wanted

    huge = "0123456789" * 1_000_000

    @tool(effect="pure")
    async def flood() -> str:
        """Flood."""
        return huge

    shown = []
    model = ScriptedModel(lambda r: shown.append(r.messages[-1]) or (call("flood") if len(r.messages) == 1 else "ok"))
    result = await Agent(model, [flood], journal="memory").run("go")
    seen = shown[-1].parts[0].shown
    assert len(seen) < 50_000
    assert "9,960,000 of 10,000,000 characters are left out" in seen
    assert result.state.results["c1_0"].output == huge, "the journal keeps the whole"
