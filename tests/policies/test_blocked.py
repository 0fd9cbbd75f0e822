"""What a guardrail has blocked comes back by no way: it is learnt, recalled, found, exported, traced and sent by nothing."""

import asyncio
import json

import pytest

from kaname import (
    Agent,
    Compact,
    Guardrails,
    Halt,
    Judge,
    Memory,
    ModelError,
    Policy,
    ScriptedModel,
    Sessions,
    SqliteJournal,
    Stop,
    Usage,
    call,
    deadline,
)
from kaname.core.messages import ModelReply, assistant
from kaname.sinks.log import Console
from kaname.sinks.spans import Spans
from tests.parts import facts

SECRET = "zanzibar"
SAID = f"The launch code of our rocket is {SECRET}, and it was chosen by Mika."


def verdict(request):
    no = SECRET in request.messages[-1].text
    return json.dumps({"reason": "…", "action": "block" if no else "allow"})


def objects(text):
    return "not this" if SECRET in text else None


async def objects_later(text):
    return objects(text)


def breaks(text):
    if SECRET in text:
        raise ConnectionError("no line to the judge")


class OfOnesOwn(Policy):
    """A guardrail that somebody wrote by hand: it does not say what it withholds."""

    async def model(self, request, next, view):
        if SECRET in view.state.question.text:
            raise Halt(Stop("blocked", "not this"))
        return await next(request)


GUARDS = {
    "a pattern": lambda: Guardrails(blocked_patterns=[SECRET]),
    "a check": lambda: Guardrails(input_checks=[objects]),
    "an async check": lambda: Guardrails(input_checks=[objects_later]),
    "a check that fails": lambda: Guardrails(input_checks=[breaks]),
    "a limit": lambda: Guardrails(max_input_tokens=12),
    "a judge": lambda: Guardrails(input_checks=[Judge(ScriptedModel(verdict, usage=Usage(9, 9)), "no codes")]),
    "a judge that is free": lambda: Guardrails(input_checks=[Judge(ScriptedModel(verdict, usage=Usage()), "no codes")]),
    "a policy of one's own": OfOnesOwn,
}
guards = pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS.keys())


class Seen:
    """A model that keeps what it was sent, asks for `look_back` when it is told to, and answers."""

    name = "seen"

    def __init__(self):
        self.requests = []

    async def reply(self, request, emit):
        self.requests.append(request.messages)
        last = request.messages[-1]
        wanted = call("look_back", query="launch code rocket removed guardrail") if last.text == "Look back?" else "fine"
        return await ScriptedModel(lambda request: wanted).reply(request, emit)


@guards
async def test_what_a_guardrail_blocked_is_learnt_found_exported_and_sent_by_nothing(tmp_path, guard):
    journal, model = SqliteJournal(tmp_path / "j.db"), Seen()
    memory = Memory(tmp_path / "memory")
    agent = Agent(model, context=[memory, Compact(20_000)], policies=[guard()], journal=journal)
    async with agent:
        blocked = await agent.run(SAID, session_id="s", user_id="ken")
        assert blocked.stop.kind == "blocked"
        await agent.run("Our rocket is green.", session_id="s", user_id="ken")
    async with Agent(model, context=[memory, Compact(20_000)], journal=journal) as unguarded:  # it asks no guardrail again
        looked = await unguarded.run("Look back?", session_id="s", user_id="ken")
    assert looked.completed
    assert SECRET not in repr(model.requests), "nor is it sent with the next question"
    (found,) = looked.state.results.values()
    assert [one["text"] for one in found.output["passages"]] == ["Our rocket is green.", "fine"]
    assert [one.text for one in memory.of("ken").all(past=True)] == ["Our rocket is green."]
    sessions = Sessions(journal)
    (session,) = await sessions.all()
    assert SECRET not in json.dumps(await sessions.export(session))
    assert "guardrail" in (await sessions.export(session))["messages"][0]["content"]
    assert await sessions.search(SECRET) == []
    assert await sessions.search("removed by a guardrail") == []
    assert SECRET not in repr(await journal.runs()), "nor is it a title"
    await journal.close()


@guards
async def test_what_a_guardrail_blocked_is_in_no_trace(guard):
    lines, spans = [], []
    traced = Spans(content=True)
    sinks = [Console("debug", content=True, write=lines.append), lambda event: spans.extend(traced.take(event))]
    agent = Agent(Seen(), policies=[guard()], sinks=sinks, journal="memory")
    assert (await agent.run(SAID)).stop.kind == "blocked"
    assert SECRET not in "".join(lines) + repr(spans)
    assert any("Received" in line and "removed by a guardrail" in line for line in lines)
    assert (await agent.run("What is new?")).completed
    assert "What is new?" in "".join(lines)
    assert "What is new?" in repr(spans), "what was let in is traced"


async def test_what_was_said_elsewhere_and_is_blocked_now_does_not_come_back():
    """A client that sends the whole conversation each time: the messages before the last one are judged too."""
    summaries, model = Seen(), Seen()
    rails = Guardrails(input_checks=[objects])
    agent = Agent(model, context=Compact(200, 100, model=summaries), policies=[rails], journal="memory")
    before = [{"role": "user", "content": SAID}, {"role": "assistant", "content": "word " * 400}]
    result = await agent.run([*before, {"role": "user", "content": "Look back?"}], session_id="s")
    assert result.completed
    assert summaries.requests, "the conversation was summed up"
    assert SECRET not in repr(summaries.requests) + repr(model.requests) + repr(result.state.results)
    sessions = Sessions(agent.journal)
    assert SECRET not in json.dumps([await sessions.export(one) for one in await sessions.all()])
    assert SECRET not in repr(await agent.journal.runs())


async def test_a_guardrail_judges_before_anything_is_made_of_the_question(tmp_path):
    asked = []

    class Elsewhere:
        name = "elsewhere"

        def embed(self, texts):
            asked.extend(texts)
            return [[1.0, 0.0] for _ in texts]

    memory = Memory(tmp_path / "memory", embeddings=Elsewhere(), learn="nothing")
    memory.of("ken").add("Ken likes tea.")
    agent = Agent(Seen(), context=memory, policies=[Guardrails(input_checks=[objects])], journal="memory")
    assert (await agent.run(SAID, user_id="ken")).stop.kind == "blocked"
    assert not any(SECRET in text for text in asked), "the server of the embeddings has not seen it"


async def test_a_reply_that_was_blocked_is_not_recalled_and_the_question_before_it_stays(tmp_path):
    requests, replies = [], iter([f"It is {SECRET}.", call("look_back", query="colour door removed guardrail"), "green"])

    def reply(request):
        requests.append(request.messages)
        return next(replies)

    memory = Memory(tmp_path / "memory")
    rails = Guardrails(output_checks=[objects])
    async with Agent(ScriptedModel(reply), context=[memory, Compact()], policies=[rails], journal="memory") as agent:
        blocked = await agent.run("The door has the colour of the sea.", session_id="s", user_id="ken")
        assert (blocked.stop.kind, blocked.stop.withheld) == ("blocked", "output")
        looked = await agent.run("And now?", session_id="s", user_id="ken")
    assert "The door has the colour of the sea." in repr(requests[1])
    (found,) = looked.state.results.values()
    assert [one["text"] for one in found.output["passages"]] == ["The door has the colour of the sea."]
    assert [one.text for one in memory.of("ken").all()] == ["The door has the colour of the sea."]
    (card, *_) = await agent.journal.runs(status="blocked")
    assert card.title == "The door has the colour of the sea."


async def test_a_question_that_is_let_in_when_the_run_is_resumed_is_learnt_then(tmp_path):
    broken = True

    def check(text):
        if broken:
            raise ConnectionError

    memory, model = Memory(tmp_path / "memory"), Seen()
    agent = Agent(model, context=memory, policies=[Guardrails(input_checks=[check])], journal=tmp_path / "j.db")
    async with agent:
        first = await agent.run("The door has the colour of the sea.", user_id="ken")
    assert first.stop.kind == "blocked"
    assert memory.of("ken").all() == []
    broken = False
    async with agent:
        assert (await agent.resume(first.run_id)).completed
    assert "The door has the colour of the sea." in repr(model.requests)
    assert [one.text for one in memory.of("ken").all()] == ["The door has the colour of the sea."]
    await agent.journal.close()


@pytest.mark.parametrize("again", ["blocked", "cancelled"])
async def test_a_blocked_question_stays_out_until_it_is_let_in(again):
    """Resumed, and blocked or stopped again before it was judged: the next turn does not bring it back."""
    judging = asyncio.Event()

    async def check(text):
        if SECRET in text and judging.is_set() and again == "cancelled":
            judging.clear()
            await asyncio.sleep(60)
        return objects(text)

    model = Seen()
    agent = Agent(model, policies=[Guardrails(input_checks=[check])], journal="memory")
    first = await agent.run(SAID, session_id="s")
    agent = Agent(model, policies=[Guardrails(input_checks=[check])], journal=agent.journal)  # as another process
    judging.set()
    task = asyncio.ensure_future(agent.resume(first.run_id))
    if again == "cancelled":
        while judging.is_set():
            await asyncio.sleep(0.001)
        await agent.stop(first.run_id)
    assert (await task).stop.kind == again
    assert (await Agent(model, journal=agent.journal).run("Hello?", session_id="s")).completed
    assert SECRET not in repr(model.requests)


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_nothing_is_learnt_from_a_run_that_ended_before_anybody_had_judged_it(tmp_path, how):
    judging = asyncio.Event()

    async def check(text):
        judging.set()
        await asyncio.sleep(60)

    class Down:
        name = "down"

        async def reply(self, request, emit):
            raise ModelError("down")

    memory = Memory(tmp_path / "memory")
    rails = [Guardrails(input_checks=[check])] if how == "cancelled" else []
    async with Agent(Down(), context=memory, policies=rails, journal="memory") as agent:
        run = asyncio.ensure_future(agent.run(SAID, user_id="ken", run_id="r"))
        if how == "cancelled":
            await judging.wait()
            await agent.stop("r")
            assert (await run).stop.kind == "cancelled"
        else:
            with pytest.raises(ModelError):
                await run
    assert memory.of("ken").all() == []


async def test_a_judge_that_takes_long_ends_with_the_deadline():
    async def slow(text):
        await asyncio.sleep(60)

    agent = Agent(Seen(), policies=[Guardrails(input_checks=[slow])], stops=deadline("0.2s"), journal="memory")
    assert (await agent.run("Hello!")).stop.kind == "deadline"


async def test_what_a_judge_of_the_question_cost_is_counted():
    judge = Judge(ScriptedModel(verdict, usage=Usage(7, 3, cost=0.5)), "no codes")

    class Paid:
        name = "paid"

        async def reply(self, request, emit):
            return ModelReply(assistant("fine"), "end_turn", Usage(1, 1, cost=0.25))

    agent = Agent(Paid(), policies=[Guardrails(input_checks=[judge])], journal="memory")
    assert (await agent.run("Hello!")).usage.cost == 0.75
    blocked = await agent.run(SAID)
    assert (blocked.stop.kind, blocked.usage.cost) == ("blocked", 0.5)
    assert [type(one.body).__name__ for one in await facts(agent, blocked.run_id)][-2:] == ["ModelReplied", "Stopped"]
