"""`Cache` around agents: what is repeated, what never is, and what a reader of the record sees."""

import asyncio
import sqlite3
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import (
    Agent,
    Approve,
    Cache,
    ConfigError,
    Guardrails,
    MemoryJournal,
    Message,
    ModelReply,
    ModelRequest,
    Policy,
    ScriptedModel,
    ToolContext,
    Usage,
    call,
    replace,
    tool,
)
from kaname.core.events import Custom, ModelReplied, ToolStarted, Warned
from kaname.core.messages import NOTHING, Media, Provided, Text, Thinking, ToolCall, ToolResult, ToolSpec, system, user
from kaname.kernel.bases import ModelInfo, PolicyInfo
from kaname.policies.reuse.keys import model_key
from tests.parts import chunks, facts
from tests.policies.ledger import ran_at_module, write_down
from tests.properties import tries


class Counting:
    """A model that counts its calls. Its name and its address tell it apart, as with a provider."""

    def __init__(self, answer="It is sunny.", name="counting", stop="end_turn", **settings):
        self.name, self.answer, self.stop, self.asked = name, answer, stop, 0
        self.about = ModelInfo(settings=settings, identity="one")

    async def reply(self, request, emit):
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        parts = self.answer if isinstance(self.answer, tuple) else (Text(self.answer),)
        for part in parts:
            if isinstance(part, Text):
                for piece in part.text.split(" "):
                    await emit(piece)
        return ModelReply(Message("assistant", parts), self.stop, Usage(100, 20, cost=0.5))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache.db"


def cached(events):
    return [event.body.data for event in events if isinstance(event.body, Custom) and event.body.name == "cached"]


async def test_cached_reply_costs_nothing_and_is_a_fact_like_any_other(path):
    model = Counting()
    agent = Agent(model, policies=[Cache(path=path)], journal=MemoryJournal())
    first = await agent.run("How is the weather?")
    second = await agent.run("How is the weather?")
    assert model.asked == 1
    assert second.output == first.output == "It is sunny."
    assert first.usage.cost == 0.5
    assert second.usage == NOTHING
    events = await facts(agent, second.run_id)
    (note,) = cached(events)
    assert (note["kind"], note["name"], note["saved"]) == ("model", "counting", {"tokens": 120, "cost": 0.5})
    assert cached(await facts(agent, first.run_id)) == []
    assert (await agent.replay(second.run_id)).difference is None
    assert (await agent.result(second.run_id)).output == "It is sunny."
    again = await agent.run("And tomorrow?", session_id="s")
    assert again.output
    assert model.asked == 2


async def test_cached_text_is_streamed_in_one_piece(path):
    agent = Agent(Counting(), policies=[Cache(path=path)], journal="memory")
    fresh = [chunk.data["content"] for chunk in await chunks(agent.run("Hi")) if chunk.type == "delta"]
    again = [chunk.data["content"] for chunk in await chunks(agent.run("Hi")) if chunk.type == "delta"]
    assert len(fresh) > 1
    assert again == ["It is sunny."]


async def test_cache_is_shared_with_a_new_process_and_ends_with_its_time(path):
    now = [1000.0]
    for expected, later in ((1, 0), (0, 3599), (1, 2)):
        now[0] += later
        model, cache = Counting(), Cache(path=path, ttl="1h", clock=lambda: now[0])
        await Agent(model, policies=[cache], journal="memory").run("Hi")
        cache.close()
        assert model.asked == expected


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        (Counting(stop="max_tokens"), 2),
        (Counting(stop=None), 2),
        (Counting(temperature=0.7), 2),
        (Counting(temperature=0), 1),
        (Counting(tools=[{"type": "web_search"}]), 2),
        (Counting(answer=(Text("[removed by a guardrail]"),)), 2),
    ],
    ids=["cut off", "unknown end", "temperature above 0", "temperature 0", "provider's own tools", "withheld"],
)
async def test_reply_is_repeated_only_if_it_is_whole_and_meant_to_be_the_same(path, model, asked):
    agent = Agent(model, policies=[Cache(path=path)], journal="memory")
    await agent.run("Hi")
    await agent.run("Hi")
    assert model.asked == asked


async def test_replies_at_any_temperature_are_cached_if_you_ask_for_it(path):
    model = Counting(temperature=0.7)
    agent = Agent(model, policies=[Cache(path=path, any_temperature=True)], journal="memory")
    await agent.run("Hi")
    await agent.run("Hi")
    assert model.asked == 1


async def test_reply_of_another_model_is_not_kept_under_the_first(path):
    class Instead(Policy):
        """Stands where a fallback to another model does: inside the cache."""

        place = "money"
        about = PolicyInfo(is_default=True)

        async def model(self, request, next, view):
            return replace(await next(request), model="another")

    model = Counting()
    agent = Agent(model, policies=[Cache(path=path), Instead()], journal="memory")
    await agent.run("Hi")
    await agent.run("Hi")
    assert model.asked == 2


async def test_blocked_reply_is_not_stored_and_a_stored_one_is_judged_by_every_agent(path):
    strict = Guardrails(blocked_patterns=["sunny"])
    model = Counting()
    for policies in ([Cache(path=path), strict], [strict, Cache(path=path)]):
        result = await Agent(model, policies=policies, journal="memory").run("Hi")
        assert result.stop.kind == "blocked"
    assert model.asked == 2
    assert not [file for file in path.parent.iterdir() if b"sunny" in file.read_bytes()]
    open_agent = Agent(model, policies=[Cache(path=path)], journal="memory")
    assert (await open_agent.run("Hi")).output == "It is sunny."
    assert (await open_agent.run("Hi")).output == "It is sunny."
    assert model.asked == 3
    result = await Agent(model, policies=[Cache(path=path), strict], journal="memory").run("Hi")
    assert result.stop.kind == "blocked"
    assert model.asked == 3  # from the cache, and judged


async def test_reply_that_a_policy_changes_is_not_stored(path):
    class Redact(Policy):
        async def model(self, request, next, view):
            reply = await next(replace(request, stream=False))
            return replace(reply, message=Message("assistant", (Text(reply.message.text.replace("sunny", "***")),)))

    model = Counting()
    agent = Agent(model, policies=[Cache(path=path), Redact()], journal="memory")
    assert [(await agent.run("Hi")).output for _ in range(2)] == ["It is ***."] * 2
    assert model.asked == 2
    assert not [file for file in path.parent.iterdir() if b"sunny" in file.read_bytes()]


async def test_reply_that_was_cut_off_is_not_shared_with_runs_that_wait(path):
    model = Counting(stop="max_tokens")
    agent = Agent(model, policies=[Cache(path=path)], journal="memory")
    await asyncio.gather(*[agent.run("Hi") for _ in range(3)])
    assert model.asked == 3


async def test_hundred_runs_at_once_ask_the_model_once(path):
    model = Counting()
    agent = Agent(model, policies=[Cache(path=path)], journal="memory")
    results = await asyncio.gather(*[agent.run("Hi") for _ in range(100)])
    assert {one.output for one in results} == {"It is sunny."}
    assert model.asked == 1
    assert sum(one.usage.cost for one in results) == 0.5


async def test_aborted_run_leaves_the_computation_to_one_that_waits(path):
    begun, go = asyncio.Event(), asyncio.Event()

    class Slow(Counting):
        async def reply(self, request, emit):
            begun.set()
            await go.wait()
            return await super().reply(request, emit)

    model = Slow()
    agent = Agent(model, policies=[Cache(path=path)], journal="memory")
    first = asyncio.ensure_future(_result(agent.run("Hi")))
    await begun.wait()
    second = asyncio.ensure_future(_result(agent.run("Hi")))
    await asyncio.sleep(0)
    begun.clear()
    first.cancel()
    await begun.wait()
    go.set()
    assert (await second).output == "It is sunny."


async def _result(run):
    return await run


# Tools


def two_calls(name, **args):
    return ScriptedModel([call(name, **args), "done"])


async def test_result_of_a_pure_tool_is_repeated_and_the_tool_not_started(path):
    @tool(effect="pure")
    def price(item: str) -> int:
        """Return a price."""
        write_down(item)
        return 800

    ran_at_module.clear()
    agent = Agent(two_calls("price", item="cup"), [price], policies=[Cache(models=False, path=path)], journal=MemoryJournal())
    await agent.run("?")
    second = await agent.run("?")
    assert ran_at_module == ["cup"]
    events = await facts(agent, second.run_id)
    assert not [event for event in events if isinstance(event.body, ToolStarted)]
    assert [(note["kind"], note["name"]) for note in cached(events)] == [("tool", "price")]
    assert (await agent.replay(second.run_id)).difference is None


class Shop:
    def __init__(self, price):
        self.price = price

    @tool(effect="pure")
    def ask(self, item: str) -> int:
        """Return a price."""
        write_down(item)
        return self.price


def make_closure(held):
    @tool(effect="pure")
    def ask(item: str) -> str:
        """Return a price."""
        write_down(item)
        return f"{held} {item}"

    return ask


def with_effect(effect):
    @tool(effect=effect)
    def ask(item: str) -> str:
        """Return a price."""
        write_down(item)
        return item

    return ask


@pytest.mark.parametrize(
    ("one", "other", "runs"),
    [
        (make_closure("a"), make_closure("a"), 1),
        (make_closure("a"), make_closure("b"), 2),
        (make_closure(Shop(1)), make_closure(Shop(1)), 2),
        (Shop(1).ask, Shop(2).ask, 2),
        (with_effect("idempotent"), with_effect("idempotent"), 2),
        (with_effect("irreversible"), with_effect("irreversible"), 2),
        (with_effect("pure"), with_effect("pure"), 1),
        (with_effect("pure"), make_closure("a"), 2),
    ],
    ids=["same", "another value", "an object", "methods", "idempotent", "irreversible", "pure", "another function"],
)
async def test_only_pure_functions_of_their_arguments_are_cached(path, one, other, runs):
    ran_at_module.clear()
    for asked in (one, other):
        agent = Agent(two_calls("ask", item="cup"), [asked], policies=[Cache(models=False, path=path)], journal="memory")
        assert (await agent.run("?")).output == "done"
    assert len(ran_at_module) == runs


@tool(effect="pure")
def whose(item: str, context: ToolContext) -> str:
    """Return whose it is."""
    write_down(context.user)
    return f"{item} of {context.user}"


async def test_tool_that_sees_the_run_is_not_cached(path):
    agent = Agent(two_calls("whose", item="cup"), [whose], policies=[Cache(models=False, path=path)], journal="memory")
    ran_at_module.clear()
    for user_id in ("ken", "mika", "ken"):
        await agent.run("?", user_id=user_id)
    assert ran_at_module == ["ken", "mika", "ken"]


async def test_cached_call_is_still_approved_by_a_person(path):
    ran_at_module.clear()
    policies = [Cache(models=False, path=path), Approve("ask")]
    agent = Agent(two_calls("ask", item="cup"), [with_effect("pure")], policies=policies, journal=MemoryJournal())
    for _ in range(2):
        waiting = await agent.run("?")
        assert waiting.stop.kind == "waiting"
        (key,) = waiting.questions
        assert (await agent.resume(waiting.run_id, {key: "yes"})).output == "done"
    assert ran_at_module == ["cup"]


async def test_failed_tool_is_tried_again_in_the_next_run(path):
    ran_at_module.clear()

    @tool(effect="pure")
    def broken(item: str) -> str:
        """Fail."""
        write_down(item)
        raise ValueError("no")

    agent = Agent(two_calls("broken", item="cup"), [broken], policies=[Cache(models=False, path=path)], journal="memory")
    await agent.run("?")
    await agent.run("?")
    assert len(ran_at_module) == 2


# Files that cannot be used


@pytest.mark.parametrize("content", [b"this is not a database" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
async def test_damaged_cache_is_reported_once_and_the_run_continues(path, content):
    path.write_bytes(content)
    model = Counting()
    agent = Agent(model, policies=[Cache(path=path)], journal=MemoryJournal())
    results = [await agent.run("Hi") for _ in range(3)]
    assert {one.output for one in results} == {"It is sunny."}
    assert model.asked == 3
    warned = [event.body for one in results for event in await facts(agent, one.run_id) if isinstance(event.body, Warned)]
    assert [one.source for one in warned] == ["cache"]
    assert str(path) in warned[0].text
    assert path.read_bytes() == content


async def test_entry_that_cannot_be_read_is_replaced(path):
    model, cache = Counting(), Cache(path=path)
    agent = Agent(model, policies=[cache], journal="memory")
    await agent.run("Hi")
    cache.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entries SET value = 'ModelReplied {\"reply\": 7}'")
    db.close()
    await agent.run("Hi")
    await agent.run("Hi")
    assert model.asked == 2


async def test_database_of_another_program_is_left_as_it_is(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.commit()
    db.close()
    agent = Agent(Counting(), policies=[Cache(path=path)], journal=MemoryJournal())
    result = await agent.run("Hi")
    assert result.output == "It is sunny."
    db = sqlite3.connect(path)
    assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    db.close()


@pytest.mark.parametrize("wrong", [{"ttl": "soon"}, {"size": "much"}, {"size": 0}, {"models": False, "tools": False}])
def test_wrong_settings_of_a_cache_are_reported_at_once(wrong):
    with pytest.raises(ConfigError):
        Cache(**wrong)


# Keys

_PLAIN = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
_JSON = _PLAIN | st.lists(_PLAIN, max_size=2) | st.dictionaries(st.text(max_size=2), _PLAIN, max_size=2)
_TEXT = st.text(max_size=4)
_PARTS = st.one_of(
    st.builds(Text, _TEXT),
    st.builds(Thinking, _TEXT, _TEXT),
    st.builds(Media, _TEXT, _TEXT, _TEXT),
    st.builds(Provided, _TEXT, st.dictionaries(_TEXT, _JSON, max_size=2)),
    st.builds(ToolCall, _TEXT, _TEXT, st.dictionaries(_TEXT, _JSON, max_size=2)),
    st.builds(ToolResult, _JSON, st.none() | _TEXT, _TEXT, _TEXT),
)
_MESSAGES = st.lists(
    st.builds(lambda role, parts: Message(role, tuple(parts)), st.sampled_from(["user", "assistant", "tool", "system"]),
              st.lists(_PARTS, max_size=3)),
    max_size=3,
)  # fmt: skip
_SPECS = st.lists(
    st.builds(ToolSpec, _TEXT, _TEXT, st.dictionaries(_TEXT, _JSON, max_size=1), st.sampled_from(["pure", "irreversible"])),
    max_size=2,
)
_REQUESTS = st.builds(
    lambda messages, tools, schema, settings, last: ModelRequest(tuple(messages), tuple(tools), schema, settings, last=last),
    _MESSAGES,
    _SPECS,
    st.none() | st.dictionaries(_TEXT, _JSON, max_size=1),
    st.dictionaries(st.sampled_from(["seed", "top_p", "stop"]), _JSON, max_size=2),
    st.booleans(),
)


class _View:
    class agent:
        model = Counting()


def _told(request):
    shown = [type(part).__name__ + repr(part) for message in request.messages for part in (message.role, *message.parts)]
    return repr((shown, len(request.messages), request.tools, request.schema, sorted(request.settings.items()), request.last))


@given(_REQUESTS, _REQUESTS)
@tries(600)
def test_requests_have_the_same_key_only_if_a_model_sees_the_same(one, other):
    same = _told(one) == _told(other) and [len(m.parts) for m in one.messages] == [len(m.parts) for m in other.messages]
    assert (model_key(one, _View) == model_key(other, _View)) is same


def test_every_part_of_a_request_is_in_its_key():
    base = ModelRequest((system("Be brief."), user("Hi")), (ToolSpec("a", "b", {"type": "object"}, "pure"),), None, {"seed": 1})
    other_model = Counting(name="other")
    other_place = Counting()
    other_place.about = ModelInfo(identity="two")
    called = (*base.messages, Message("assistant", (ToolCall("c1_0", "a", {}),)))
    variants = [
        base,
        replace(base, messages=(system("Be brief. "), user("Hi"))),
        replace(base, messages=(system("Be brief."), user("Hi"), user(""))),
        replace(base, messages=(user("Be brief."), user("Hi"))),
        replace(base, messages=(system("Be brief."), Message("user", (Text("H"), Text("i"))))),
        replace(base, messages=(system("Be brief."), Message("user", (Text("Hi"), Media("image/png", "aGk="))))),
        replace(base, messages=called),
        replace(base, messages=called, tools=()),
        replace(base, messages=called, tools=(), unoffered=base.tools),
        replace(base, tools=()),
        replace(base, tools=(replace(base.tools[0], description="c"),)),
        replace(base, tools=(replace(base.tools[0], parameters={"type": "object", "properties": {}}),)),
        replace(base, tools=(replace(base.tools[0], effect="idempotent"),)),
        replace(base, schema={"type": "object"}),
        replace(base, settings={"seed": 2}),
        replace(base, settings={"seed": "1"}),
        replace(base, settings={}),
        replace(base, last=True),
        replace(base, model=other_model),
        replace(base, model=other_place),
    ]
    keys = [model_key(one, _View) for one in variants]
    assert None not in keys
    for (a, one), (b, other) in combinations(enumerate(keys), 2):
        assert one != other, (variants[a], variants[b])


def test_cost_of_a_tool_result_is_not_in_the_key():
    def asked(usage):
        return ModelRequest((user("Hi"), Message("tool", (ToolResult(7, call_id="c", name="a", usage=usage),))))

    assert model_key(asked(Usage(5, 5, cost=1.0)), _View) == model_key(asked(NOTHING), _View)


async def test_cached_reply_is_in_the_metrics_as_a_model_call(path):
    from kaname.run.figures import figures

    journal = MemoryJournal()
    agent = Agent(Counting(), policies=[Cache(path=path)], journal=journal)
    await agent.run("Hi")
    await agent.run("Hi")
    made = await figures(journal)
    assert (made.model_calls, made.usage.cost) == (2, 0.5)
    replies = [
        event.body for event in await facts(agent, (await journal.runs())[0].run_id) if isinstance(event.body, ModelReplied)
    ]
    assert [one.reply.usage for one in replies] == [NOTHING]
