"""What a program lends to its tools: typed, checked before the run, never recorded."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from kaname import Agent, Approve, ConfigError, Policy, ScriptedModel, SqliteJournal, ToolContext, call, tool
from kaname.core.codec import encode


@dataclass
class Shop:
    tenant: str
    database: sqlite3.Connection


_open: list[sqlite3.Connection] = []


@pytest.fixture(autouse=True)
def closed_shops():
    yield
    while _open:
        _open.pop().close()


def a_shop(tenant: str = "kyoto") -> Shop:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    _open.append(database)
    database.execute("create table stock(item, pieces)")
    database.execute("insert into stock values ('cup', 12)")
    return Shop(tenant, database)


@tool(effect="pure")
def stock(item: str, context: ToolContext[Shop]) -> str:
    """How many there are."""
    (pieces,) = context.deps.database.execute("select pieces from stock where item = ?", [item]).fetchone()
    return f"{context.deps.tenant}: {pieces}"


def asking(**options: Any) -> Agent:
    return Agent(ScriptedModel([call("stock", item="cup"), "There are 12."]), [stock], **{"journal": "memory", **options})


async def test_deps_reach_the_tool_and_not_the_model():
    agent = asking()
    assert "context" not in agent.available_tools[0]["parameters"]["properties"]
    result = await agent.run("How many cups?", deps=a_shop())
    assert result.steps[0].observation == "kyoto: 12"


async def test_deps_are_of_the_run_and_not_of_the_agent():
    agent = asking()
    both = [await agent.run("How many?", deps=a_shop(town)) for town in ("kyoto", "osaka")]
    assert [result.steps[0].observation for result in both] == ["kyoto: 12", "osaka: 12"]


async def test_deps_are_never_recorded(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    result = await asking(journal=journal).run("How many?", deps=Shop("the-secret-tenant", a_shop().database))
    facts = [encode(event) async for event in journal.read(result.run_id)]
    assert "the-secret-tenant: 12" in json.dumps(result.messages)  # what the tool itself tells
    assert not any("Shop" in fact or "database" in fact for fact in facts)
    await journal.close()


@pytest.mark.parametrize("verb", ["run", "resume", "fork", "start_or_resume", "steps"])
async def test_deps_that_are_missing_are_told_before_anything_happens(verb):
    agent = asking()
    done = await agent.run("How many?", deps=a_shop())
    begin = {
        "run": lambda: agent.run("How many?"),
        "resume": lambda: agent.resume(done.run_id),
        "fork": lambda: agent.fork(done.run_id, 2),
        "start_or_resume": lambda: agent.start_or_resume("other", "How many?"),
        "steps": lambda: agent.steps("How many?").next_step(),
    }[verb]
    with pytest.raises(ConfigError, match=r"tool stock needs deps of type Shop, but none were passed.*agent\.run\(…, deps=…\)"):
        await begin()
    assert len(await agent.journal.runs()) == 1


async def test_deps_of_another_type_are_refused():
    with pytest.raises(ConfigError, match=r"tool stock needs deps of type Shop, not 'kyoto'"):
        await asking().run("How many?", deps="kyoto")


async def test_deps_may_be_described_by_a_protocol_or_be_optional():
    class HasTenant(Protocol):
        tenant: str

    @tool
    def who(context: ToolContext[HasTenant]) -> str:
        """Who."""
        return context.deps.tenant

    @tool
    def perhaps(context: ToolContext[Shop | None]) -> str:
        """Perhaps."""
        return "nobody" if context.deps is None else context.deps.tenant

    @tool
    def anything(context: ToolContext) -> str:
        """Anything."""
        return repr(context.deps)

    async def told(used: Any, deps: Any) -> Any:
        agent = Agent(ScriptedModel([call(used.name), "done"]), [used], journal="memory")
        return (await agent.run("go", deps=deps)).steps[0].observation

    assert await told(who, a_shop()) == "kyoto"
    assert await told(perhaps, None) == "nobody"
    assert await told(anything, None) == "None"
    assert await told(anything, 5) == "5"
    with pytest.raises(ConfigError, match="needs deps of type HasTenant"):
        await told(who, None)


async def test_deps_are_brought_again_when_a_run_is_resumed():
    agent = asking(policies=[Approve("stock")])
    waiting = await agent.run("How many?", deps=a_shop())
    (key,) = waiting.questions
    result = await agent.resume(waiting.run_id, {key: "yes"}, deps=a_shop("osaka"))
    assert result.steps[0].observation == "osaka: 12"


async def test_deps_are_lent_to_children_undo_and_policies():
    seen = []

    class Watching(Policy):
        async def tool(self, call, next, view):
            seen.append(view.deps.tenant)
            return await next(call)

    child = asking(name="child")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext[Shop]) -> str:
        """Delegate."""
        return (await context.run_child(child, "How many?")).steps[0].observation

    agent = Agent(ScriptedModel([call("delegate"), "done"]), [delegate], policies=[Watching()], journal="memory")
    result = await agent.run("go", deps=a_shop())
    assert result.steps[0].observation == "kyoto: 12"
    assert seen == ["kyoto"]


async def test_deps_of_a_sequence_reach_its_tools():
    steps = [step async for step in asking().steps("How many?", deps=a_shop())]
    assert any("kyoto: 12" in str(step) for step in steps)


async def test_deps_are_brought_to_a_replay_that_runs_tools_again():
    agent = asking()
    result = await agent.run("How many?", deps=a_shop())
    assert (await agent.replay(result.run_id)).same
    assert (await agent.replay(result.run_id, rerun_pure_tools=True, deps=a_shop())).same
    assert not (await agent.replay(result.run_id, rerun_pure_tools=True, deps=a_shop("osaka"))).same
    with pytest.raises(ConfigError, match="tool stock needs deps"):
        await agent.replay(result.run_id, rerun_pure_tools=True)


async def test_tool_reads_the_state_and_the_journal_and_records_a_note():
    """The context shows the run, and not the engine that executes it."""

    @tool(effect="pure")
    async def remember(context: ToolContext) -> str:
        """Count the messages and the facts so far."""
        facts = [event async for event in context.journal.read(context.run_id)]
        await context.note("counted", {"facts": len(facts) > 2})
        return f"{context.state.messages[0].text}: {len(context.state.messages)}"

    agent = Agent(ScriptedModel([call("remember"), "Done."]), [remember], journal="memory")
    chunks = [chunk async for chunk in agent.run("count")]
    assert [chunk["data"]["facts"] for chunk in chunks if chunk["type"] == "counted"] == [True]
    result = await agent.run("count")
    assert result.steps[0].observation == "count: 2"
    assert not hasattr(ToolContext, "scope")


async def test_tool_that_is_called_directly_has_no_run():
    context = ToolContext("", "", "", "", "", "", 1)
    for ask in (lambda: context.deps, lambda: context.state, lambda: context.journal):
        with pytest.raises(ConfigError, match="there is no run here"):
            ask()
    with pytest.raises(ConfigError, match="there is no run here"):
        await context.run_child(Agent(ScriptedModel(["x"])), "go")
