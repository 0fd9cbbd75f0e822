"""Work in the background: the model starts it, goes on, is told when it has ended, and collects the answer."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kaname import (
    Agent,
    Approve,
    MemoryJournal,
    ScriptedModel,
    SqliteJournal,
    Team,
    ToolContext,
    call,
    cost,
    deadline,
    tool,
)
from kaname.cli.main import main
from kaname.core.events import BACKGROUND, Interjected
from kaname.core.messages import Message, ModelReply, Usage, assistant
from kaname.run.tasks import look_after, settle_tasks
from tests.parts import has_heard
from tests.properties import nightly

SECONDS = 60


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    return MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")


def texts(request):
    return [message.text for message in request.messages if message.role == "user"]


def told(request):
    return [text for text in texts(request) if "has ended" in text]


async def facts(journal, run_id):
    return [event.body async for event in journal.read(run_id)]


class Child:
    """An agent that answers when it is let go."""

    def __init__(self, name="reader", answer="42 pages", **options):
        self.at_work, self.go = asyncio.Event(), asyncio.Event()

        @tool(effect="idempotent")
        async def read() -> str:
            """Read."""
            self.at_work.set()
            await self.go.wait()
            return "read"

        def reply(request):
            return call("read") if request.messages[-1].role == "user" else answer

        self.agent = Agent(ScriptedModel(reply), [read], name=name, journal=MemoryJournal(), **options)


async def until(journal, status, agent="reader"):
    """Wait until the run of the child has this status."""
    async with asyncio.timeout(SECONDS):
        while not (found := await journal.runs(agent=agent, status=status)):
            await asyncio.sleep(0.01)
    return found[0].run_id


def leader(journal, reply, *members, **options):
    return Agent(ScriptedModel(reply), name="leader", journal=journal, team=Team(members, background=True), **options)


def delegate(agent="reader", **more):
    return call("delegate_to_agent", agent=agent, task="How long is it?", background=True, **more)


async def test_model_starts_work_goes_on_and_collects_the_answer_after_a_message(journal):
    child = Child()
    seen = []

    def reply(request):
        seen.append(texts(request)[1:])
        match len(seen):
            case 1:
                return delegate()
            case 2:
                child.go.set()
                return call("wait")
            case 3:
                return call("tasks", action="collect", task="c1_0")
        return f"It has {request.messages[-1].parts[0].output}"

    @tool
    async def wait(context: ToolContext) -> str:
        """Wait until the run has heard of the end of the other work."""
        async with asyncio.timeout(SECONDS):
            while not has_heard(context):
                await asyncio.sleep(0.01)
        return "ok"

    agent = leader(journal, reply, child.agent)
    agent.tools.register(wait)
    result = await asyncio.wait_for(agent.run("How long is the book?"), SECONDS)
    assert result.output == "It has 42 pages"
    assert seen[1] == []
    assert len(seen[2]) == 1
    assert 'tasks(action="collect", task="c1_0")' in seen[2][0]
    said = [fact for fact in await facts(journal, result.run_id) if isinstance(fact, Interjected)]
    assert [one.id for one in said] == [f"{BACKGROUND}{result.run_id}/c1_0/reader"]
    assert [message.text for message in result.state.said] == ["How long is the book?"], (
        "the words of a task are not the user's"
    )
    assert (await agent.replay(result.run_id)).same


async def test_run_ends_while_its_task_works_and_the_next_turn_is_told_once(journal):
    child = Child()
    seen = []

    def reply(request):
        seen.append(told(request))
        last = request.messages[-1]
        if last.role == "tool":
            return "later" if last.parts[0].name == "delegate_to_agent" else f"It has {last.parts[0].output}"
        if "has ended" in texts(request)[-1]:
            return call("tasks", action="collect", task="c1_0")
        return delegate() if len(seen) == 1 else "fine"

    agent = leader(journal, reply, child.agent)
    first = await asyncio.wait_for(agent.run("How long is the book?", session_id="s"), SECONDS)
    assert first.output == "later"
    await asyncio.wait_for(child.at_work.wait(), SECONDS)
    (card,) = await journal.runs(agent="reader")
    assert card.status == "running", "it goes on after the run that started it"
    child.go.set()
    await until(journal, "completed")
    second = await asyncio.wait_for(agent.run("And now?", session_id="s"), SECONDS)
    assert second.output == "It has 42 pages"
    third = await asyncio.wait_for(agent.run("Thanks", session_id="s"), SECONDS)
    assert third.output == "fine"
    assert [len(one) for one in seen] == [0, 0, 1, 1, 1], "told once"


async def test_stopping_a_run_stops_its_tasks(journal):
    child = Child()
    going = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        going.set()
        await asyncio.Event().wait()
        return ""

    agent = leader(journal, lambda request: delegate() if len(request.messages) == 1 else call("hang"), child.agent)
    agent.tools.register(hang)
    run = agent.run("go").start()
    await asyncio.wait_for(going.wait(), SECONDS)
    await asyncio.wait_for(child.at_work.wait(), SECONDS)
    run.abort()
    assert (await asyncio.wait_for(run, SECONDS)).stop.kind == "cancelled"
    await until(journal, "cancelled")


async def test_model_lists_and_stops_its_tasks(journal):
    child = Child()
    listed = []

    def reply(request):
        last = request.messages[-1]
        if last.role == "user" and len(request.messages) == 1:
            return delegate()
        if last.role == "tool" and last.parts[0].name == "tasks" and last.parts[0].call_id != "c4_0":
            listed.append(last.parts[0].output)
        return [call("tasks", action="list"), call("tasks", action="stop", task="c1_0"),
                call("tasks", action="collect", task="c1_0"), "done"][min(len(listed), 3)]  # fmt: skip

    agent = leader(journal, reply, child.agent)
    result = await asyncio.wait_for(agent.run("go"), SECONDS)
    assert result.output == "done"
    assert listed[0] == [{"task": "c1_0", "agent": "reader", "about": "How long is it?", "status": "running"}]
    assert listed[1] == {"task": "c1_0", "status": "stopping"}
    assert (await journal.runs(agent="reader"))[0].status == "cancelled"


async def test_question_of_a_task_is_asked_in_the_run_and_its_answer_reaches_the_task(journal):
    @tool
    def order(copies: int) -> str:
        """Order copies."""
        return f"ordered {copies}"

    def order_some(request):
        return call("order", copies=3) if request.messages[-1].role == "user" else request.messages[-1].parts[0].output

    child = Agent(ScriptedModel(order_some), [order], name="reader", policies=[Approve("order")], journal=MemoryJournal())

    def reply(request):
        if len(request.messages) == 1:
            return delegate()
        last = request.messages[-1]
        if last.role == "tool" and last.parts[0].name == "tasks":
            return last.parts[0].output
        return call("tasks", action="collect", task="c1_0")

    agent = leader(journal, reply, child)
    result = await asyncio.wait_for(agent.run("go"), SECONDS)
    assert result.stop.kind == "waiting"
    (key,) = result.questions
    assert key == f"{result.run_id}/c1_0/reader:approve:c1_0"
    result = await asyncio.wait_for(agent.resume(result.run_id, {key: "yes"}), SECONDS)
    assert result.output == "ordered 3"


async def test_question_of_a_task_is_answered_after_its_run_has_ended(journal):
    go, seen = asyncio.Event(), []

    class Late:
        name = "late"

        async def reply(self, request, emit):
            await go.wait()
            last = request.messages[-1]
            return ModelReply(assistant("read") if last.role == "tool" else Message("assistant", (call("read"),)))

    @tool
    def read() -> str:
        """Read."""
        return "read"

    child = Agent(Late(), [read], name="reader", policies=[Approve("read")], journal=MemoryJournal())

    def reply(request):
        seen.append(told(request))
        return delegate() if len(request.messages) == 1 else "later"

    agent = leader(journal, reply, child)
    first = await asyncio.wait_for(agent.run("go", session_id="s"), SECONDS)
    assert first.output == "later"
    go.set()
    waiting = await until(journal, "waiting")
    again = await asyncio.wait_for(agent.resume(first.run_id, {f"{waiting}:approve:c1_0": "yes"}), SECONDS)
    assert again.output == "later"
    await until(journal, "completed")
    await asyncio.wait_for(agent.run("And?", session_id="s"), SECONDS)
    assert len(seen[-1]) == 1


async def test_tool_in_the_background_returns_at_once_and_its_result_is_collected(journal):
    go = asyncio.Event()

    @tool(background=True, effect="idempotent")
    async def render(pages: int) -> dict:
        """Render."""
        await go.wait()
        return {"pages": pages}

    listed = []

    def reply(request):
        last = request.messages[-1]
        if last.role == "user":
            return call("render", pages=3)
        if last.parts[0].name == "render":
            assert last.parts[0].output["status"] == "running"
            return call("tasks", action="list")
        if not listed:
            listed.extend(last.parts[0].output)
            go.set()
            return call("tasks", action="collect", task="c1_0")
        return f"rendered {last.parts[0].output['pages']}"

    agent = Agent(ScriptedModel(reply), [render], journal=journal)
    result = await asyncio.wait_for(agent.run("go"), SECONDS)
    assert result.output == "rendered 3"
    assert [one["agent"] for one in listed] == ["render"]


async def test_cost_limit_of_the_run_holds_for_its_tasks_and_their_cost_is_the_runs(journal):
    asked = []

    def costly(request):
        asked.append(request)
        return ModelReply(assistant(f"answer {len(asked)}"), usage=Usage(10, 10, cost=0.4))

    class Costly:
        name = "costly"

        async def reply(self, request, emit):
            return costly(request)

    child = Agent(Costly(), name="reader", journal=MemoryJournal())
    replies = iter([delegate(), call("tasks", action="collect", task="c1_0"), "done"])
    agent = leader(journal, lambda request: next(replies), child, stops=cost(1.0, unpriced=True))
    result = await asyncio.wait_for(agent.run("go"), SECONDS)
    assert result.output == "done"
    assert result.usage.cost == pytest.approx(0.4)


async def test_stopping_a_run_that_has_ended_stops_its_tasks(journal):
    child = Child()
    agent = leader(journal, lambda request: delegate() if len(request.messages) == 1 else "later", child.agent)
    ended = await asyncio.wait_for(agent.run("go"), SECONDS)
    assert ended.output == "later"
    await asyncio.wait_for(child.at_work.wait(), SECONDS)
    assert await agent.stop(ended.run_id)
    await until(journal, "cancelled")
    assert (await agent.result(ended.run_id)).completed
    assert not await agent.stop(ended.run_id)


async def test_stopping_a_run_ends_its_task_that_waits_for_an_answer(journal):
    going = asyncio.Event()

    @tool
    def read() -> str:
        """Read."""
        return "read"

    @tool
    async def hang() -> str:
        """Hang."""
        going.set()
        await asyncio.Event().wait()
        return ""

    child = Agent(ScriptedModel([call("read")]), [read], name="reader", policies=[Approve("read")], journal=MemoryJournal())
    agent = leader(journal, lambda request: [delegate(), call("hang")] if len(request.messages) == 1 else "", child)
    agent.tools.register(hang)
    run = agent.run("go").start()
    await asyncio.wait_for(going.wait(), SECONDS)
    await until(journal, "waiting")
    run.abort()
    assert (await asyncio.wait_for(run, SECONDS)).stop.kind == "cancelled"
    await until(journal, "cancelled")


async def test_tasks_stop_at_the_deadline_of_the_run_that_started_them():
    child, journal = Child(), MemoryJournal()

    @tool(background=True, effect="idempotent")
    async def render() -> str:
        """Render."""
        await asyncio.Event().wait()
        return ""

    def reply(request):
        return [delegate(), call("render")] if len(request.messages) == 1 else "later"

    agent = leader(journal, reply, child.agent, tools=[render], stops=deadline(1))
    await asyncio.wait_for(agent.run("go"), SECONDS)
    assert await until(journal, "deadline", "reader")
    assert await until(journal, "deadline", "render")


def test_run_sync_waits_for_the_work_in_the_background(tmp_path):
    done = []

    @tool(background=True, effect="idempotent")
    async def render() -> str:
        """Render."""
        await asyncio.sleep(0)
        done.append(True)
        return "rendered"

    model = ScriptedModel(lambda request: call("render") if request.messages[-1].role == "user" else "later")
    agent = Agent(model, [render], journal=tmp_path / "journal.db")
    result = agent.run_sync("go")
    assert result.output == "later"
    assert done == [True]
    (task,) = asyncio.run(agent.journal.runs(parent=result.run_id))
    assert (task.agent, task.status) == ("render", "completed")


async def test_end_of_the_event_loop_does_not_wait_for_work_of_other_processes():
    elsewhere = asyncio.get_running_loop().create_future()
    look_after(_wait_for(elsewhere))
    async with asyncio.timeout(SECONDS):
        await settle_tasks()
    elsewhere.set_result(None)


async def _wait_for(future):
    await future


TASK_PROGRAM = """
import asyncio
from pathlib import Path
from kaname import Agent, ScriptedModel, call, tool

@tool(background=True, effect="idempotent")
async def render() -> str:
    "Render."
    await asyncio.sleep(0.5)
    Path("rendered.txt").write_text("yes")
    return "rendered"

lead = Agent(ScriptedModel(lambda request: call("render") if request.messages[-1].role == "user" else "later"), [render],
             name="lead", journal="journal.db")
"""


def test_the_command_waits_for_the_work_in_the_background(tmp_path, monkeypatch, capsys):
    (tmp_path / "program.py").write_text(TASK_PROGRAM)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-a", "program.py:lead", "go"]) == 0
    assert "later" in capsys.readouterr().out
    assert (tmp_path / "rendered.txt").read_text() == "yes"
    assert main(["runs", "--journal", "journal.db"]) == 0
    assert "interrupted" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("step", [13, *nightly(6)])
def test_run_with_three_tasks_is_killed_and_each_answer_is_told_once(tmp_path, step):
    command = [sys.executable, "-m", "tests.talk.killed_tasks", str(tmp_path), str(step)]
    ended = subprocess.run(command, capture_output=True, timeout=400, check=True, cwd=Path(__file__).parents[2])
    *wrong, last = [json.loads(line) for line in ended.stdout.splitlines()]
    assert last["kills"] >= 36 // step
    assert wrong == [[]] * last["kills"]
