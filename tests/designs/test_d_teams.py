"""Teams: work handed over and delegated, within limits, through questions, deaths and several turns."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from kaname import (
    Agent,
    Approve,
    ConfigError,
    MemoryJournal,
    ModelError,
    ScriptedModel,
    SqliteJournal,
    Team,
    call,
    cost,
    deadline,
    load_config,
    max_steps,
    tool,
)
from kaname.core.errors import InvalidState
from kaname.core.messages import Message, ModelReply, ToolCall, Usage, assistant
from kaname.core.state import State
from kaname.core.steps import CallModel
from kaname.run.child import SharedLimit
from kaname.run.handoffs.handoff import join

PAID = []


@pytest.fixture(autouse=True)
def nothing_paid():
    PAID.clear()


@tool
async def pay(yen: int) -> str:
    """Pay."""
    PAID.append(yen)
    return f"paid {yen}"


def agent(script, name, tools=(), **more):
    return Agent(ScriptedModel(script), tools, name=name, journal=more.pop("journal", "memory"), **more)


class Waits:
    name = "waits"

    def __init__(self, answer, price=0.0):
        self.answer, self.price = answer, price

    def most_expensive(self, request, input, output):
        return self.price

    async def reply(self, request, emit):
        return await self.answer(request)


def transfer(to):
    return call("transfer_to_agent", agent=to, reason="it knows")


def delegate(to, task="do it"):
    return call("delegate_to_agent", agent=to, task=task)


@pytest.mark.requirement("D18")
async def test_d18_transfer_the_other_goes_on_and_its_name_is_in_the_chunks():
    expert = agent(lambda request: f"the expert heard: {request.messages[1].text}", "expert", instructions="You know tea.")
    made = agent([transfer("expert")], "triage", team=[expert])
    assert "- expert: You know tea." in made.tools["transfer_to_agent"].description
    run = made.run("Which tea?")
    seen = [chunk async for chunk in run]
    assert (await run).output == "the expert heard: Which tea?"
    assert [chunk.agent for chunk in seen if chunk.type == "delta"][-1] == "expert"
    assert [chunk["to"] for chunk in seen if chunk.get("status") == "handed_off"] == ["expert"]


async def test_who_had_the_conversation_goes_on_with_it_in_the_next_turns(tmp_path):
    def made():
        expert = agent(lambda request: f"expert, turn {sum(m.role == 'user' for m in request.messages)}", "expert")
        return agent([transfer("expert")], "triage", team=[expert], journal=tmp_path / "j.db")

    outputs = [(await made().run("hi", session_id="s")).output for _ in range(3)]
    assert outputs == ["expert, turn 1", "expert, turn 2", "expert, turn 3"]
    alone = agent(
        lambda request: f"triage, turn {sum(m.role == 'user' for m in request.messages)}", "triage", journal=tmp_path / "j.db"
    )
    assert (await alone.run("hi", session_id="s")).output == "triage, turn 4", (
        "an agent that has left the team has left the conversation"
    )


@pytest.mark.requirement("D18")
async def test_d18_circular_handoffs_are_refused_by_path():
    seen = []

    def second(request):
        seen.append(request.messages[-1])
        return transfer("first") if len(seen) == 1 else "then I answer it"

    last = agent(second, "second")
    first = agent([transfer("second")], "first", team=[last])
    join(last, [first])
    assert (await first.run("go")).output == "then I answer it"
    assert "first has already worked on this (first → second → first)" in seen[1].parts[0].error


@pytest.mark.requirement("D18")
async def test_d18_depth_is_limited():
    """Each delegates to the next; the third of them may not."""
    answers = []

    def link(number):
        def script(request):
            last = request.messages[-1]
            if last.role == "tool":
                answers.append(last.parts[0].error or last.parts[0].output)
                return f"{number} is done"
            return delegate(f"a{number + 1}")

        return script

    team = agent(lambda request: "the end", "a4")
    for number in (3, 2, 1):
        team = agent(link(number), f"a{number}", team=Team((team,), max_depth=2))
    assert (await team.run("go")).output == "1 is done"
    assert answers[0] == "not handed over: this has already been handed over 2 times (a1 → a2 → a3), which is the limit"
    assert answers[1:] == ["3 is done", "2 is done"]


async def test_delegates_work_at_the_same_time_and_spend_their_parents_limits():
    together = asyncio.Barrier(2)

    async def reply(request):
        async with asyncio.timeout(60):
            await together.wait()
        return ModelReply(assistant("half"))

    members = [Agent(Waits(reply), name=name, journal="memory") for name in ("left", "right")]
    made = agent([[delegate("left"), delegate("right")], "whole"], "lead", team=members)
    result = await made.run("go")
    assert result.output == "whole"
    assert [step.observation for step in result.steps if step.action] == ["half", "half"]

    async def costly(request):
        return ModelReply(assistant("a"), usage=Usage(1000, 1000, cost=2.0))

    dear = Agent(Waits(costly, 2.0), name="dear", journal="memory")
    made = agent([delegate("dear"), delegate("dear"), "never"], "lead", team=[dear], stops=cost("$3"))
    result = await made.run("go")
    assert result.usage.cost == 2.0, "a second one would cost more than is left"
    assert "buys no further reply" in result.steps[1].observation


async def test_error_in_a_delegate_is_told_and_return_is_seen():
    returned = []

    def on_return(name, result):
        returned.append((name, result.stop.kind))
        return "taken from somewhere else" if result.stop.kind != "completed" else None

    def broken(request):
        raise RuntimeError("no")

    good, bad = agent(["fine"], "good"), agent(broken, "bad")
    seen = []

    def script(request):
        seen.append(request.messages[-1])
        return [[delegate("good"), delegate("bad")], "done"][len(seen) - 1]

    await agent(script, "lead", team=[good, bad]).run("go")
    assert "did not finish" in seen[1].parts[0].error or "because of a bug in its program" in seen[1].parts[0].error
    seen.clear()
    good, bad = agent(["fine"], "good"), agent([call("nothing")] * 30, "bad")
    result = await agent(script, "lead", team=Team((good, bad), on_handoff_return=on_return)).run("go")
    assert result.output == "done"
    assert sorted(name for name, _ in returned) == ["bad", "good"]


@pytest.mark.requirement("D18")
async def test_d18_question_two_deep_is_answered_by_another_process(tmp_path):
    def made():
        journal = SqliteJournal(tmp_path / "j.db")
        clerk = agent(
            lambda r: call("pay", yen=5) if r.messages[-1].role == "user" else "paid it",
            "clerk",
            [pay],
            policies=[Approve("pay")],
        )
        chief = agent(
            lambda r: delegate("clerk") if r.messages[-1].role == "user" else "the clerk has paid", "chief", team=[clerk]
        )
        return agent(
            lambda r: delegate("chief") if r.messages[-1].role == "user" else "all done", "lead", team=[chief], journal=journal
        )

    waiting = await made().run("Pay 5.")
    (key,) = waiting.questions
    assert key.endswith("/clerk:approve:c1_0")
    assert PAID == []
    inner = next(card.run_id for card in await made().journal.runs() if card.run_id.endswith("/clerk"))
    with pytest.raises(InvalidState, match=r"is a part of run .*/chief\. Answer"):
        await made().resume(inner, {"approve:c1_0": "yes"})
    result = await made().resume(waiting.run_id, {key: "yes"})
    assert result.output == "all done"
    assert PAID == [5]


async def test_cancelled_parent_takes_its_delegate_along():
    begun = asyncio.Event()

    async def endless(request):
        begun.set()
        await asyncio.sleep(60)

    journal = MemoryJournal()
    slow = Agent(Waits(endless), name="slow", journal="memory")
    made = agent([delegate("slow")], "lead", team=[slow], journal=journal)
    run = made.run("go")
    waiting = asyncio.ensure_future(_result(run))
    await begun.wait()
    run.abort("enough")
    result = await waiting
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "enough")
    assert {card.status for card in await journal.runs()} == {"cancelled"}


async def _result(run):
    return await run


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["expert"], "a team must be a list of agents"),
        ([agent([], "lead")], "two agents of a team are named 'lead'"),
        ([agent([], "a"), agent([], "a")], "two agents of a team are named 'a'"),
        (Team((agent([], "a"),), transfer=False, delegate=False), "transfer or delegate"),
    ],
)
def test_team_that_cannot_be_is_told(given, told):
    with pytest.raises(ConfigError, match=told):
        agent([], "lead", team=given)


async def test_agents_of_a_file_name_each_other(tmp_path):
    scripts = {
        "lead": [delegate("writer"), "done"],
        "writer": [transfer("checker")],
        "checker": [transfer("writer"), "it is right"],
    }
    for name, script in scripts.items():
        told = [one if isinstance(one, str) else {"calls": [{"name": one.name, "args": dict(one.args)}]} for one in script]
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    (tmp_path / "kaname.yaml").write_text(
        "agents:\n  lead: {model: scripted/lead.json, team: [writer]}\n"
        "  writer: {model: scripted/writer.json, instructions: You write., team: [checker]}\n"
        "  checker: {model: scripted/checker.json, team: [writer]}\n"
    )
    config = load_config(tmp_path / "kaname.yaml")
    made = Agent.from_config(config, agent="lead", journal="memory")
    assert "- writer: You write." in made.tools["delegate_to_agent"].description
    result = await made.run("go")
    assert result.output == "done"
    assert result.steps[0].observation == "it is right"
    (tmp_path / "kaname.yaml").write_text(
        "agents:\n  lead:\n    model: scripted/lead.json\n    team: [lead, writr]\n  writer: {}\n"
    )
    with pytest.raises(ConfigError, match=r"(?s)no other agent 'lead'.*no other agent 'writr'.*writer"):
        load_config(tmp_path / "kaname.yaml")


def test_a_team_in_a_file_can_work_in_the_background(tmp_path):
    writer = "  writer: {model: scripted/s.json, team: [checker]}\n  checker: {model: scripted/s.json}\n"
    (tmp_path / "s.json").write_text("[]")
    (tmp_path / "kaname.yaml").write_text(
        f"agents:\n  lead: {{model: scripted/s.json, team: [writer], background: true}}\n{writer}"
    )
    lead = Agent.from_config(load_config(tmp_path / "kaname.yaml"), agent="lead", journal="memory")
    (member,) = lead.team.members
    assert ["tasks" in one.tools for one in (lead, member)] == [True, False]
    assert "background" in lead.tools["delegate_to_agent"].parameters["properties"]
    (tmp_path / "kaname.yaml").write_text("agents: {lead: {model: scripted/s.json, background: true}}\n")
    with pytest.raises(ConfigError, match="there is no team"):
        load_config(tmp_path / "kaname.yaml")


async def test_d18_replay_of_a_transfer_touches_nothing_and_a_question_in_a_child_is_asked_again():
    clerk = agent(
        lambda r: call("pay", yen=5) if r.messages[-1].role == "user" else "paid it", "clerk", [pay], policies=[Approve("pay")]
    )
    written = iter([call("pay", yen=1), "written"])
    writer = agent(lambda request: next(written), "writer", [pay])
    lead = agent([delegate("clerk"), transfer("writer")], "lead", team=[clerk, writer])
    waiting = await lead.run("go")
    result = await lead.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert (result.output, PAID) == ("written", [5, 1])
    assert (await lead.replay(result.run_id)).same
    assert PAID == [5, 1]


async def test_replay_of_a_later_turn_with_who_had_the_conversation():
    expert = agent(lambda request: "expert", "expert")
    lead = agent([transfer("expert")], "lead", team=[expert])
    runs = [await lead.run("hi", session_id="s") for _ in range(2)]
    assert [one.output for one in runs] == ["expert", "expert"]
    assert all([(await lead.replay(one.run_id)).same for one in runs])


async def test_conversation_goes_back_to_the_root_in_a_later_turn():
    said = iter([transfer("lead")])
    expert = agent(
        lambda request: "expert" if request.messages[-1].text == "one" or request.messages[-1].role == "tool" else next(said),
        "expert",
    )
    seen = []

    def leading(request):
        seen.append(request.messages[-1].role)
        return transfer("expert") if len(seen) == 1 else "lead again"

    lead = agent(leading, "lead", team=[expert])
    join(expert, [lead])
    assert (await lead.run("one", session_id="s")).output == "expert"
    assert (await lead.run("two", session_id="s")).output == "lead again"
    assert (await lead.run("three", session_id="s")).output == "lead again"


async def test_circle_through_a_transfer_and_a_delegate_is_refused():
    told = []

    def researching(request):
        if request.messages[-1].role == "tool":
            told.append(request.messages[-1].parts[0].error)
            return "I do it myself"
        return delegate("writer")

    researcher = agent(researching, "researcher")
    steps = iter([delegate("researcher"), "done"])
    writer = agent(lambda request: next(steps), "writer", team=[researcher])
    join(researcher, [writer])
    lead = agent([transfer("writer")], "lead", team=[writer])
    assert (await lead.run("go", run_id="2026/07/job")).stop.kind == "completed"
    assert "writer has already worked on this (lead → writer → researcher → writer)" in told[0]


async def test_money_is_limited_at_every_depth():
    async def costly(request):
        return ModelReply(
            Message("assistant", (ToolCall(f"c{len(request.messages)}", "look", {"n": len(request.messages)}),)),
            usage=Usage(1, 1, cost=1.0),
        )

    @tool(effect="pure")
    def look(n: int) -> int:
        """Look."""
        return n

    deep = Agent(Waits(costly), [look], name="deep", journal="memory", stops=max_steps(50))
    middle = agent(lambda r: delegate("deep") if r.messages[-1].role == "user" else "middle", "middle", team=[deep])
    lead = agent(
        lambda r: delegate("middle") if r.messages[-1].role == "user" else "lead", "lead", team=[middle], stops=cost("$3")
    )
    result = await lead.run("go")
    assert result.usage.cost <= 4.0


def test_time_of_children_that_work_at_once_is_not_added_up():
    """A sibling's end has told the parent that 60 s have passed; those are this child's 50 s as well."""
    parent = SimpleNamespace(state=State(), families={}, scratch={})
    parent.state.spent.seconds = 10.0
    limit = SharedLimit(deadline(100), parent, "child")
    parent.state.spent.seconds = 60.0
    child = State()
    child.spent.seconds = 50.0
    assert limit(child, CallModel()) is None
    child.spent.seconds = 91.0
    assert limit(child, CallModel()).kind == "deadline"
    assert child.spent.seconds == 91.0


def test_time_of_a_child_that_is_resumed_counts_once():
    """It worked for 30 s before it asked; its parent has counted them, and waited no longer than that."""
    parent = SimpleNamespace(state=State(), families={}, scratch={})
    parent.state.spent.seconds = 35.0
    limit = SharedLimit(deadline(50), parent, "child", seconds=30.0, apart=True)
    child = State()
    child.spent.seconds = 44.0
    assert limit(child, CallModel()) is None
    assert limit.bound.most == 45.0
    child.spent.seconds = 46.0
    assert limit(child, CallModel()).kind == "deadline"


async def test_typed_answer_of_a_delegate_comes_back_as_json():
    class City(BaseModel):
        name: str

    expert = agent(['{"name": "Kyoto"}'], "expert", output=City)
    seen = []

    def script(request):
        seen.append(request.messages[-1])
        return [delegate("expert"), "done"][len(seen) - 1]

    assert (await agent(script, "lead", team=[expert]).run("go")).output == "done"
    assert seen[1].parts[0].output == {"name": "Kyoto"}


async def test_roots_policies_may_name_a_members_tools_and_a_members_own_are_checked():
    clerk = agent(
        lambda r: call("pay", yen=5) if r.messages[-1].role != "tool" or r.messages[-1].parts[0].name != "pay" else "paid",
        "clerk",
        [pay],
    )
    lead = agent([transfer("clerk")], "lead", team=[clerk], policies=[Approve("pay")])
    assert (await lead.run("go")).stop.kind == "waiting"
    wrong = agent(["x"], "clerk", [pay], policies=[Approve("payy")])
    with pytest.raises(ConfigError, match="payy"):
        await agent([transfer("clerk")], "lead", team=[wrong]).run("go")


async def test_model_that_fails_in_a_delegate_is_told_to_the_return():
    returned = []

    async def fails(request):
        raise ModelError("the provider is gone")

    bad = Agent(Waits(fails), name="bad", journal="memory")
    team = Team((bad,), on_handoff_return=lambda name, result: returned.append((name, str(result))) or "from the cache")
    result = await agent([delegate("bad"), "done"], "lead", team=team).run("go")
    assert returned == [("bad", "the provider is gone")]
    assert result.steps[0].observation == "from the cache"


@pytest.mark.requirement("D18")
async def test_what_a_child_said_before_its_question_is_not_shown_again(tmp_path):
    steps = [call("pay", yen=5), "paid"]
    payer = Agent(ScriptedModel(steps), [pay], name="payer", policies=[Approve("pay")])
    lead = Agent(
        ScriptedModel([call("delegate_to_agent", agent="payer", task="pay 5"), "done"]),
        name="lead",
        team=[payer],
        journal=tmp_path / "j.db",
    )
    waiting = await lead.run("go")
    (key,) = waiting.questions
    run = lead.resume(waiting.run_id, {key: "yes"})
    shown = [chunk async for chunk in run if chunk["agent"] == "payer"]
    assert (await run).output == "done"
    assert [chunk.type for chunk in shown if chunk.type in ("tool_call", "tool_response")] == ["tool_response"]
    assert "received" not in [chunk.data.get("status") for chunk in shown]


@pytest.mark.requirement("D18")
def test_an_agent_with_a_type_transfers_to_none_without():
    class Answer(BaseModel):
        total: int

    plain, typed = Agent(ScriptedModel([]), name="plain"), Agent(ScriptedModel([]), name="typed", output=Answer)
    with pytest.raises(ConfigError, match="plain could answer in its place without one"):
        Agent(ScriptedModel([]), name="lead", output=Answer, team=[plain, typed])
    assert Agent(ScriptedModel([]), name="lead", output=Answer, team=[typed]).team
    assert Agent(ScriptedModel([]), name="lead", output=Answer, team=Team((plain,), transfer=False)).team
