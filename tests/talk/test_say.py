"""A user talks to a run while it works: the model sees it at its next call, once."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kaname import Agent, Guardrails, InvalidState, MemoryJournal, ScriptedModel, SqliteJournal, ToolContext, call, tool
from kaname.core.errors import RunNotFound
from kaname.core.events import Interjected
from kaname.core.messages import ModelReply, assistant
from kaname.kernel.load import load
from tests.parts import has_heard, until
from tests.properties import nightly

SECONDS = 60


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    return MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")


class Working:
    """An agent whose tool waits until it is let go, and the messages that its model was sent."""

    def __init__(self, journal, **options):
        self.at_work, self.go, self.sent = asyncio.Event(), asyncio.Event(), []

        @tool
        async def look(context: ToolContext) -> str:
            """Look."""
            self.context = context
            self.at_work.set()
            await self.go.wait()
            return "seen"

        self.agent = Agent(ScriptedModel(self.reply), [look], journal=journal, **options)

    def reply(self, request):
        self.sent.append([message.text for message in request.messages if message.role == "user"])
        return call("look") if len(self.sent) == 1 else f"answer {len(self.sent)}"

    async def begin(self, text="How much?", **options):
        run = self.agent.run(text, **options).start()
        await asyncio.wait_for(self.at_work.wait(), SECONDS)
        return run


class Slow:
    """A model whose first call hangs until it is ended."""

    name = "slow"

    def __init__(self):
        self.asked, self.calls, self.ended = asyncio.Event(), 0, 0

    async def reply(self, request, emit):
        self.calls += 1
        if self.calls == 1:
            await emit("Half an ans")
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
        return ModelReply(assistant(f"heard: {request.messages[-1].text}"), "end_turn")


async def facts(journal, run_id):
    return [event.body async for event in journal.read(run_id)]


async def test_a_message_is_seen_at_the_next_model_call_after_the_results_of_the_calls(journal):
    working = Working(journal)
    run = await working.begin()
    assert await run.say("In yen, please", by="mika")
    working.go.set()
    result = await asyncio.wait_for(run, SECONDS)
    assert working.sent == [["How much?"], ["How much?", "In yen, please"]]
    kinds = [type(one).__name__ for one in await facts(journal, run.run_id)]
    assert [kind for kind in kinds if kind not in ("Warned", "Custom")][-4:] == [
        "ToolFinished", "Interjected", "ModelReplied", "Stopped",
    ]  # fmt: skip
    (said,) = [one for one in await facts(journal, run.run_id) if isinstance(one, Interjected)]
    assert said.by == "mika"
    assert said.at > 0
    assert [one.text for one in result.state.said] == ["How much?", "In yen, please"]
    assert (await working.agent.replay(run.run_id)).same


async def test_a_message_that_comes_while_the_answer_is_written_is_answered_too(journal):
    said = []

    class Model:
        name = "told"

        async def reply(self, request, emit):
            if not said:
                said.append("one more thing")
                await run.say("one more thing")
            return ModelReply(assistant(f"to: {request.messages[-1].text}"), "end_turn")

    agent = Agent(Model(), journal=journal)
    run = agent.run("Hello")
    assert (await asyncio.wait_for(run, SECONDS)).output == "to: one more thing"
    assert (await agent.replay(run.run_id)).same


async def test_an_urgent_message_ends_the_model_call_under_way(journal):
    model = Slow()
    agent = Agent(model, journal=journal)
    run = agent.run("Tell me everything").start()
    await asyncio.wait_for(model.asked.wait(), SECONDS)
    await agent.say(run.run_id, "Only the total", urgent=True)
    chunks = [chunk async for chunk in run]
    assert (await asyncio.wait_for(run, SECONDS)).output == "heard: Only the total"
    assert (model.calls, model.ended) == (2, 1)
    assert [chunk["status"] for chunk in chunks if chunk.type == "status"] == [
        "started", "received", "restarted", "interjected", "stopped",
    ]  # fmt: skip


async def test_a_run_that_is_stopped_after_an_urgent_message_stops(journal):
    model = Slow()
    run = Agent(model, journal=journal).run("Tell me everything").start()
    await asyncio.wait_for(model.asked.wait(), SECONDS)
    await run.say("Only the total", urgent=True)
    run.abort("enough")
    result = await asyncio.wait_for(run, SECONDS)
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "enough")


async def test_a_message_that_comes_too_late_is_seen_by_the_next_run_of_the_session(journal):
    working = Working(journal)
    run = await working.begin(session_id="s")
    working.go.set()
    await asyncio.wait_for(run, SECONDS)
    assert not await working.agent.say(run.run_id, "I forgot something")
    assert not await run.say("And this")
    second = await asyncio.wait_for(working.agent.run("Well?", session_id="s"), SECONDS)
    assert working.sent[-1] == ["How much?", "I forgot something", "And this", "Well?"]
    third = await asyncio.wait_for(working.agent.run("And now?", session_id="s"), SECONDS)
    assert working.sent[-1].count("And this") == 1
    assert all([(await working.agent.replay(one.run_id)).same for one in (second, third)])


async def test_a_message_to_a_run_that_has_ended_alone_or_does_not_exist_is_refused(journal):
    agent = Agent(ScriptedModel(["done"]), journal=journal)
    result = await asyncio.wait_for(agent.run("Hello"), SECONDS)
    with pytest.raises(InvalidState, match="has ended"):
        await agent.say(result.run_id, "Wait")
    with pytest.raises(RunNotFound):
        await agent.say("nobody", "Wait")


async def test_a_message_to_an_interrupted_run_is_seen_when_it_is_resumed(journal):
    working = Working(journal)
    run = await working.begin()
    await run.say("In yen, please")
    await asyncio.wait_for(run.let_go(), SECONDS)
    working.go.set()
    assert await working.agent.say(run.run_id, "Or in dollars")
    result = await asyncio.wait_for(working.agent.resume(run.run_id), SECONDS)
    again = dict.fromkeys(result.questions, "retry")  # how the call ended is unknown
    await asyncio.wait_for(working.agent.resume(run.run_id, again), SECONDS)
    assert working.sent[-1] == ["How much?", "In yen, please", "Or in dollars"]


async def test_a_guardrail_that_blocks_a_message_ends_the_run_and_the_text_is_not_recorded(journal):
    working = Working(journal, policies=[Guardrails(blocked_patterns=["hunter2"])])
    run = await working.begin(session_id="s")
    await run.say("My password is hunter2")
    working.go.set()
    result = await asyncio.wait_for(run, SECONDS)
    assert result.stop.kind == "blocked"
    assert len(working.sent) == 1
    assert "hunter2" not in repr(await facts(journal, run.run_id))
    assert "How much?" in [one.text for one in (await load(journal, run.run_id)).said], "the question itself was let in"


async def test_a_run_that_a_blocked_message_ended_and_that_was_resumed_replays(journal):
    working = Working(journal, policies=[Guardrails(blocked_patterns=["hunter2"])])
    run = await working.begin()
    await run.say("My password is hunter2")
    working.go.set()
    blocked = await asyncio.wait_for(run, SECONDS)
    assert blocked.stop.kind == "blocked"
    resumed = await working.agent.resume(run.run_id)
    assert resumed.stop.kind == "completed"
    replay = await working.agent.replay(run.run_id)
    assert replay.same, str(replay)


async def test_a_message_from_another_process_reaches_the_run(tmp_path):
    working = Working(SqliteJournal(tmp_path / "journal.db"))
    run = await working.begin()
    program = (
        "import asyncio, sys; from kaname import Agent, ScriptedModel\n"
        "print(asyncio.run(Agent(ScriptedModel([]), journal=sys.argv[1]).say(sys.argv[2], 'In yen', by='ken')))"
    )
    journal = str(tmp_path / "journal.db")
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, journal, run.run_id, stdout=subprocess.PIPE)
    told, _ = await asyncio.wait_for(other.communicate(), SECONDS)
    assert told.strip() == b"True"
    await until(lambda: has_heard(working.context))  # the process polls
    working.go.set()
    await asyncio.wait_for(run, SECONDS)
    assert working.sent[-1] == ["How much?", "In yen"]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [8, *nightly(25)])
def test_messages_of_two_processes_survive_kills_of_the_one_that_executes_the_run(tmp_path, kills):
    command = [sys.executable, str(Path(__file__).with_name("killed.py")), str(tmp_path), str(kills), "3"]
    ended = subprocess.run(command, capture_output=True, timeout=120, check=True)
    told = json.loads(ended.stdout)
    assert told.pop("said") > 2 * kills
    assert told == {"missing": [], "twice": [], "damage": []}
