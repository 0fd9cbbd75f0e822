"""What tools and agents inside tools spend counts in every limit when it is spent, and each start of a tool counts as a call."""

import asyncio
import json
from base64 import b64encode
from itertools import product

import pytest

from kaname import (
    Agent,
    Budget,
    Cache,
    FallbackStrategy,
    GuardrailAction,
    GuardrailResult,
    Guardrails,
    Media,
    MemoryJournal,
    Price,
    ScriptedModel,
    SqliteJournal,
    ToolContext,
    ToolRule,
    Usage,
    call,
    cost,
    max_steps,
    per_tool,
    tool,
)
from kaname.core.errors import Suspend
from kaname.core.events import (
    Answered,
    Asked,
    Event,
    ModelReplied,
    Opened,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
)
from kaname.core.messages import Message, ModelReply, ToolCall, ToolResult, user
from kaname.core.record import replace
from kaname.core.state import State, evolve
from kaname.core.steps import CallModel, Stop
from kaname.senses.remote import RemoteSenses, TaskPrice
from kaname.senses.senses import Senses
from kaname.senses.tools import senses_tools
from kaname.tools.search.embed import ServedEmbeddings
from tests.senses.test_remote import Server

PRICE = Price(1.0, 10.0)  # dollars for a million tokens
FREE = Price(0.0, 0.0)


def spent(balances, unit="usd"):
    return sum(one.spent for one in balances if f"\x1f{unit}\x1f" in one.name)


class Writer(ScriptedModel):
    """Costs $0.012 a reply, or as much less as its settings allow."""

    def longest_reply(self, settings):
        return settings.get("max_tokens")

    def most_expensive(self, request, input, output):
        return None if self._price is None else super().most_expensive(request, input, output)

    async def reply(self, request, emit):
        said = await super().reply(request, emit)
        used = Usage(2_000, min(1_000, request.settings.get("max_tokens", 1_000)))
        return replace(said, usage=replace(used, cost=None if self._price is None else self._price.of(used)))


def inner_agent(price=PRICE, journal=None, replies=1, **more):
    """Return an agent whose run costs $0.012 for each reply, and its model."""
    script = Writer([*[call("again", n=n) for n in range(replies - 1)], "done"], price=price)

    @tool(effect="pure")
    def again(n: int) -> int:
        """Do nothing."""
        return n

    return Agent(script, [again], name="inner", journal=journal or MemoryJournal(), stops=max_steps(50), **more), script


def outer_agent(do, times=1, price=FREE, **more):
    script = ScriptedModel([*[call(do.name, n=n) for n in range(times)], "done"], price=price)
    return Agent(script, [do], name="outer", **{"journal": MemoryJournal(), **more})


async def test_agent_run_in_a_tool_gets_only_what_is_left_of_the_limit():
    inner, _ = inner_agent(replies=40)

    @tool
    async def work(n: int) -> str:
        """Run another agent, without telling kaname."""
        return (await inner.run("go")).stop.kind

    agent = outer_agent(work, stops=cost("$0.05"))
    result = await agent.run("go")
    assert [one.output for one in result.state.results.values()] == ["budget"]
    assert 0.03 < result.usage.cost <= 0.05


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_agent_run_in_a_tool_is_charged_once_to_the_accounts_of_the_run(same, kind, tmp_path):
    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "app.db")
    budget = Budget(user="$5/day", agent="$5", total="100k tokens")
    theirs = [Budget(user="$5/day")] if same else []
    inner, _ = inner_agent(replies=3, journal=journal if same else None, policies=theirs)

    @tool
    async def work(n: int) -> str:
        """Run another agent, for the same user."""
        return (await inner.run("go", user_id="ann")).output

    agent = outer_agent(work, journal=journal, policies=[budget], stops=cost("$1"))
    result = await agent.run("go", user_id="ann")
    assert result.usage.cost == pytest.approx(0.036)
    balances = {one.name.split("\x1f")[0]: one.spent for one in await journal.stores.ledger.balances()}
    assert balances == {"user": pytest.approx(0.036), "agent": pytest.approx(0.036), "total": result.usage.total}
    await journal.close()


async def test_agent_run_in_a_thread_of_a_tool_is_limited_too(tmp_path):
    inner, _ = inner_agent(replies=40)

    @tool
    def work(n: int) -> str:
        """Run another agent in this thread, in an event loop of its own."""
        return inner.run_sync("go").stop.kind

    journal = SqliteJournal(tmp_path / "app.db")
    agent = outer_agent(work, journal=journal, policies=[Budget(user="$0.05/day")])
    result = await agent.run("go", user_id="ann")
    assert [one.output for one in result.state.results.values()] == ["budget"]
    assert 0.03 < spent(await journal.stores.ledger.balances()) <= 0.05
    assert result.usage.cost == pytest.approx(spent(await journal.stores.ledger.balances()))
    await journal.close()


async def test_agents_run_at_once_in_tools_share_what_is_left():
    @tool
    async def work(n: int) -> str:
        """Run another agent."""
        return (await inner_agent(replies=40)[0].run("go")).stop.kind

    script = ScriptedModel([[call("work", n=n) for n in range(4)], "done"], price=FREE)
    result = await Agent(script, [work], stops=cost("$0.1"), journal=MemoryJournal()).run("go")
    assert {one.output for one in result.state.results.values()} == {"budget"}
    assert 0.05 < result.usage.cost <= 0.1


async def test_agent_two_levels_down_is_charged_to_both():
    deepest, _ = inner_agent(replies=2)

    @tool
    async def low(n: int) -> str:
        """Run the deepest agent."""
        return (await deepest.run("go")).output

    middle = outer_agent(low, policies=[Budget(total="$1")])

    @tool
    async def high(n: int, context: ToolContext) -> str:
        """Run the agent in the middle."""
        if n:
            return (await context.run_child(middle, "go")).output
        return (await middle.run("go")).output

    journal = MemoryJournal()
    agent = outer_agent(high, times=2, journal=journal, policies=[Budget(total="$1")])
    result = await agent.run("go")
    assert result.usage.cost == pytest.approx(0.048)
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.048)
    assert spent(await middle.journal.stores.ledger.balances()) == pytest.approx(0.024)  # the child is on its parent's journal


@pytest.mark.parametrize("child", [False, True])
async def test_tool_that_reports_the_cost_of_its_agent_is_charged_once(child):
    inner, _ = inner_agent(replies=2)

    @tool
    async def work(n: int, context: ToolContext) -> ToolResult:
        """Run another agent, and report what it cost."""
        result = await (context.run_child(inner, "go") if child else inner.run("go"))
        return ToolResult(result.output, usage=result.usage)

    journal = MemoryJournal()
    result = await outer_agent(work, journal=journal, policies=[Budget(total="$1")]).run("go")
    assert result.usage.cost == pytest.approx(0.024)
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.024)


async def test_tool_that_spends_beside_its_agent_is_charged_for_both():
    inner, _ = inner_agent(replies=2)

    @tool
    async def work(n: int) -> ToolResult:
        """Run another agent, and pay for a map."""
        return ToolResult((await inner.run("go")).output, usage=Usage(cost=0.5))

    journal = MemoryJournal()
    result = await outer_agent(work, journal=journal, policies=[Budget(total="$1")]).run("go")
    assert result.usage.cost == pytest.approx(0.524)
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.524)


async def test_model_without_a_price_is_not_called_inside_a_tool_under_a_limit_on_money():
    inner, _ = inner_agent(price=None)

    @tool
    async def work(n: int) -> str:
        """Run another agent."""
        return (await inner.run("go")).stop.kind

    result = await outer_agent(work, stops=cost("$1")).run("go")
    assert [one.output for one in result.state.results.values()] == ["budget"]
    assert result.usage.cost == 0
    result = await outer_agent(work, stops=cost("$1", unpriced=True)).run("go")
    assert [one.output for one in result.state.results.values()] == ["completed"]


async def test_cost_that_a_tool_reports_counts_in_every_account_at_once():
    """The next run of the same user is refused, although no model call of the first one cost anything."""

    @tool
    async def picture(n: int) -> ToolResult:
        """Draw."""
        return ToolResult("drawn", usage=Usage(10, 5, cost=0.6))

    journal = MemoryJournal()
    agent = outer_agent(picture, times=3, price=PRICE, journal=journal, policies=[Budget(user="$1/day", total="1M tokens")])
    result = await agent.run("go", user_id="ann")
    assert (result.stop.kind, result.usage.cost) == ("budget", pytest.approx(1.2, abs=0.01))
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(result.usage.cost)
    assert spent(await journal.stores.ledger.balances(), "tokens") == result.usage.total
    assert (await agent.run("go", user_id="ann")).stop.kind == "budget"


async def test_cost_of_a_failed_try_is_kept():
    tries = []

    @tool(effect="pure")
    async def picture(n: int) -> ToolResult:
        """Draw, at the second try."""
        tries.append(n)
        usage = Usage(cost=0.2)
        return ToolResult("drawn", usage=usage) if len(tries) > 1 else ToolResult(error="not yet", usage=usage)

    journal = MemoryJournal()
    policies = [Budget(total="$5"), FallbackStrategy(max_retries=2, backoff=0)]
    result = await outer_agent(picture, journal=journal, policies=policies).run("go")
    assert len(tries) == 2
    assert result.usage.cost == pytest.approx(0.4)
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.4)


@pytest.mark.parametrize("limit", ["cost", "budget"])
async def test_tool_with_a_price_is_refused_before_it_goes_over(limit):
    ran = []

    @tool(price="$0.4")
    async def picture(n: int) -> str:
        """Draw."""
        ran.append(n)
        return "drawn"

    journal = MemoryJournal()
    limits = {"stops": cost("$1") | max_steps(20)} if limit == "cost" else {"policies": [Budget(user="$1/day")]}
    result = await outer_agent(picture, times=4, journal=journal, **limits).run("go", user_id="ann")
    assert (ran, result.stop.kind) == ([0, 1], "completed")
    assert result.usage.cost == pytest.approx(0.8)
    assert ["0.4000" in (one.error or "") for one in result.state.results.values()] == [False, False, True, True]


async def test_tools_with_a_price_at_once_do_not_share_the_same_money():
    ran = []

    @tool(price=0.4)
    async def picture(n: int) -> str:
        """Draw."""
        ran.append(n)
        await asyncio.sleep(0)
        return "drawn"

    for limits in ({"stops": cost("$1")}, {"policies": [Budget(user="$1/day")]}):
        ran.clear()
        script = ScriptedModel([[call("picture", n=n) for n in range(4)], "done"], price=FREE)
        result = await Agent(script, [picture], journal=MemoryJournal(), **limits).run("go")
        assert (len(ran), result.usage.cost) == (2, pytest.approx(0.8))


async def test_unknown_cost_of_a_tool_is_not_zero():
    ran = []

    @tool
    async def picture(n: int) -> ToolResult:
        """Draw."""
        ran.append(n)
        return ToolResult("drawn", usage=Usage(cost=None))

    result = await outer_agent(picture, times=3, stops=cost("$1")).run("go")
    assert (len(ran), result.stop.kind, result.usage.cost) == (1, "budget", None)
    ran.clear()
    result = await outer_agent(picture, times=3, policies=[Budget(user="$1/day")]).run("go")
    assert (len(ran), result.stop.kind) == (1, "completed")
    assert "is not known" in list(result.state.results.values())[1].error
    ran.clear()
    await outer_agent(picture, times=3, policies=[Budget(user="$1/day", unpriced="allow")]).run("go")
    assert len(ran) == 3


async def test_work_that_a_tool_leaves_behind_is_charged_to_the_run():
    inner, _ = inner_agent(replies=3)
    going = []

    @tool
    async def begin(n: int) -> str:
        """Begin the work, or wait for it."""
        if n == 0:
            going.append(asyncio.create_task(_run_to_end(inner)))
        else:
            await going[0]
        return "ok"

    journal = MemoryJournal()
    result = await outer_agent(begin, times=2, journal=journal, policies=[Budget(total="$1")]).run("go")
    assert result.usage.cost == pytest.approx(0.036)
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.036)


async def _run_to_end(agent):
    return await agent.run("go")


def picture():
    size = (8).to_bytes(4) * 2
    return Media.of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + size + bytes(40), name="cat.png")


def answers_with_a_picture():
    picture = b"\x89PNG\r\n\x1a\n" + bytes(40)
    return 200, {"data": [{"b64_json": b64encode(picture).decode()}], "usage": {"input_tokens": 5, "output_tokens": 7}}


@pytest.mark.parametrize("limit", ["cost", "budget"])
async def test_pictures_are_charged_once_and_refused_before_they_go_over(limit):
    journal = MemoryJournal()
    limits = {"stops": cost("$0.1")} if limit == "cost" else {"policies": [Budget(user="$0.1/day")]}
    async with Server(answers_with_a_picture(), answers_with_a_picture()) as server:
        senses = Senses(generate=RemoteSenses("openai/some", base_url=server.url, price=TaskPrice(picture=0.04)))
        (draw,) = senses_tools(senses, ["generate_picture"])
        script = ScriptedModel([*[call("generate_picture", prompt=str(n)) for n in range(4)], "done"], price=FREE)
        result = await Agent(script, [draw], journal=journal, **limits).run("go")
        await senses.close()
    assert (len(server.requests), result.stop.kind) == (2, "completed")
    assert result.usage.cost == pytest.approx(0.08)
    if limit == "budget":
        assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.08)


async def test_picture_without_a_price_is_not_made_under_a_limit_on_money():
    async with Server(answers_with_a_picture()) as server:
        senses = Senses(generate=RemoteSenses("openai/some", base_url=server.url))
        (draw,) = senses_tools(senses, ["generate_picture"])
        for limit, made in ((cost("$1"), 0), (cost("$1", unpriced=True), 1)):
            script = ScriptedModel([call("generate_picture", prompt="a"), "done"], price=FREE)
            result = await Agent(script, [draw], journal="memory", stops=limit).run("go")
            assert (len(server.requests), result.stop.kind) == (made, "completed")
        await senses.close()


@pytest.mark.parametrize("limit", ["cost", "budget"])
async def test_model_that_describes_a_picture_is_paid_from_the_limits(limit):
    journal = MemoryJournal()
    limits = {"stops": cost("$0.5")} if limit == "cost" else {"policies": [Budget(user="$0.5/day")]}
    (describe,) = senses_tools(Senses(Writer(lambda request: "a cat", price=PRICE)), ["describe_picture"])
    script = ScriptedModel([call("describe_picture", file="1"), "done"], price=FREE)
    result = await Agent(script, [describe], journal=journal, **limits).run(["What is it?", picture()])
    assert [one.output for one in result.state.results.values()] == ["a cat"]
    assert result.usage.cost == pytest.approx(0.012)
    if limit == "budget":
        assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.012)


async def test_tool_in_the_background_is_charged_once():
    @tool(background=True)
    async def draw(n: int) -> ToolResult:
        """Draw."""
        inner, _ = inner_agent(replies=2)
        return ToolResult((await inner.run("go")).output, usage=Usage(cost=0.5))

    journal = MemoryJournal()
    script = ScriptedModel([call("draw", n=1), call("tasks", action="collect", task="c1_0"), "done"], price=FREE)
    result = await Agent(script, [draw], journal=journal, policies=[Budget(total="$1")]).run("go")
    assert not any(one.is_error for one in result.state.results.values()), result.state.results
    assert result.usage.cost == pytest.approx(0.524)
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(0.524)


@pytest.mark.parametrize("place", ["input_checks", "output_checks", "result_checks"])
@pytest.mark.parametrize("reports", [True, False])
async def test_agent_in_a_check_is_charged_once(place, reports):
    inner, _ = inner_agent()
    checked = []

    async def check(text):
        checked.append(text)
        usage = (await inner.run(text)).usage
        return GuardrailResult(GuardrailAction.ALLOW, usage=usage) if reports else None

    @tool(effect="pure")
    async def look(n: int) -> str:
        """Look."""
        return "seen"

    journal = MemoryJournal()
    policies = [Guardrails(**{place: [check]}), Budget(total="$1")]
    result = await outer_agent(look, journal=journal, policies=policies).run("go")
    assert result.usage.cost == pytest.approx(0.012 * len(checked))
    assert result.usage.cost == pytest.approx(spent(await journal.stores.ledger.balances()))


async def test_check_that_reports_its_cost_is_charged_to_the_accounts():
    async def check(text):
        return GuardrailResult(GuardrailAction.ALLOW, usage=Usage(cost=0.25))

    journal = MemoryJournal()
    agent = Agent(
        ScriptedModel(["hi"], price=FREE), policies=[Guardrails(input_checks=[check]), Budget(total="$1")], journal=journal
    )
    result = await agent.run("go")
    assert (result.usage.cost, spent(await journal.stores.ledger.balances())) == (0.25, 0.25)


# Quotas


def counting(ran, name="look", fails=0, **options):
    async def work(n: int = 0) -> str:
        """Look."""
        ran.append(name)
        if len(ran) <= fails:
            raise RuntimeError("not yet")
        await asyncio.sleep(0)
        return "seen"

    return tool(name=name, **{"effect": "pure", **options})(work)


@pytest.mark.parametrize("limits", [{"policies": [Guardrails(tools=[ToolRule("look", max_calls=2)])]}, {"stops": per_tool(2)}])
async def test_retries_are_calls(limits):
    ran = []
    retries = FallbackStrategy(max_retries=5, backoff=0, degrade=False)
    policies = [*limits.get("policies", ()), retries]
    script = ScriptedModel([call("look", n=1), "done"])
    result = await Agent(script, [counting(ran, fails=9)], journal="memory", **{**limits, "policies": policies}).run("go")
    assert ran == ["look"] * 2
    assert result.state.starts == {"look": 2}


async def test_calls_at_once_run_as_often_as_the_rule_says():
    ran = []
    script = ScriptedModel([[call("look", n=n) for n in range(3)], "done"])
    rails = Guardrails(tools=[ToolRule("look", max_calls=2)])
    result = await Agent(script, [counting(ran)], policies=[rails], journal="memory").run("go")
    assert (len(ran), result.output) == (2, "done")
    assert sum([one.is_error for one in result.state.results.values()]) == 1


async def test_stand_in_is_a_call_of_the_tool_that_runs():
    ran = []

    @tool(effect="pure")
    async def broken(n: int) -> str:
        """Fail."""
        raise RuntimeError("always")

    script = ScriptedModel([call("broken", n=1), call("broken", n=2), call("look", n=3), "done"])
    rails = Guardrails(tools=[ToolRule("look", max_calls=2)])
    again = FallbackStrategy(max_retries=0, fallback={"broken": "look"}, backoff=0, degrade=False)
    result = await Agent(script, [broken, counting(ran)], policies=[rails, again], journal="memory").run("go")
    assert (len(ran), result.state.starts) == (2, {"broken": 2, "look": 2})


def look(n: int) -> int:
    """Look."""
    return n


async def test_cache_hit_is_no_call():
    script = ScriptedModel([call("look", n=1), call("look", n=1), call("look", n=2), call("look", n=2), "done"])
    rails = Guardrails(tools=[ToolRule("look", max_calls=2)])
    agent = Agent(script, [tool(effect="pure")(look)], policies=[rails, Cache(tools=["look"])], journal="memory")
    result = await agent.run("go")
    assert (result.output, result.state.starts) == ("done", {"look": 2})
    assert not any(one.is_error for one in result.state.results.values()), result.state.results


async def test_refused_call_is_no_call():
    ran = []
    script = ScriptedModel([call("look", n=9), call("look", n=9), call("look", n=1), call("look", n=2), "done"])
    rails = Guardrails(tools=[ToolRule("look", max_calls=2, arguments={"n": "[12]"})])
    result = await Agent(script, [counting(ran)], policies=[rails], journal="memory", stops=max_steps(9)).run("go")
    assert (len(ran), result.output) == (2, "done")


async def test_tool_that_asks_counts_once():
    ran = []

    @tool(effect="idempotent")
    async def ask(n: int, context: ToolContext) -> str:
        """Ask a person."""
        if "q" not in context.state.answers:
            raise Suspend("q", "Really?")
        ran.append(n)
        return "ok"

    rails = Guardrails(tools=[ToolRule("ask", max_calls=1)])
    agent = Agent(ScriptedModel([call("ask", n=1), call("ask", n=2), "done"]), [ask], policies=[rails], journal="memory")
    waiting = await agent.run("go")
    result = await agent.resume(waiting.run_id, {"q": "yes"})
    assert (ran, result.output, result.state.starts) == ([1], "done", {"ask": 1})


async def test_resume_keeps_the_quota_of_a_rule():
    ran = []
    rails = Guardrails(tools=[ToolRule("look", max_calls=2)])
    script = ScriptedModel([call("look", n=1), call("look", n=2), call("look", n=3), "done"])
    agent = Agent(script, [counting(ran)], policies=[rails], journal="memory", stops=max_steps(2))
    first = await agent.run("go")
    assert first.stop.kind == "max_steps"
    await agent.resume(first.run_id)
    assert len(ran) == 2


_ANSWERS = [ToolResult("x"), ToolResult(error="no"), ToolResult("w", waiting=True), ToolResult(error="no", not_run=True)]


@pytest.mark.parametrize("answer", _ANSWERS, ids=["result", "error", "waiting", "not_run"])
def test_state_accepts_every_order_of_starts_stops_and_answers(answer):
    for started, asked, renewed in product([0, 1, 2], [None, False, True], [None, False, True]):
        accepts(started, asked, renewed, answer)


def accepts(started, asked, renewed, answer):
    """A call that was stopped, is retried and then waits in the outbox was a `KeyError`: the run could never be read again."""
    one = ToolCall("c1_0", "look", {"n": 1})
    facts = [Opened(), Received(user("go")), ModelReplied(ModelReply(Message("assistant", (one,))), CallModel())]
    facts += [ToolStarted(one, "pure", "k", number + 1) for number in range(started)]
    facts += [] if asked is None else [Asked("q", "?", (), one.id, asked), Answered("q", "retry")]
    facts += [] if renewed is None else [Stopped(Stop("cancelled")), Resumed(2, renewed)]
    facts += [ToolFinished(replace(answer, call_id=one.id, name=one.name))]
    state = State()
    for seq, body in enumerate(facts, 1):
        evolve(state, Event("r", seq, float(seq), "a", body))
    ran = started - (started > 0 and (asked is False or answer.not_run))  # paused to ask, or refused by the tool
    assert state.starts.get("look", 0) == ran
    assert state.spent.by_tool.get("look", 0) == (0 if renewed else ran)
    assert min([0, *state.spent.by_call.values()]) == 0


@pytest.mark.parametrize("limit", ["cost", "budget"])
async def test_embeddings_are_charged_and_refused_without_a_price(limit, monkeypatch, tmp_path):
    vectors = {"data": [{"index": 0, "embedding": [1.0, 0.0]}], "usage": {"prompt_tokens": 1_000}}
    async with Server((200, vectors)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)

        @tool(effect="pure")
        def embed(n: int) -> int:
            """Make a vector."""
            return len(ServedEmbeddings("small").embed(["word"]))

        for prices, made in (({}, 0), ({"openai/small": {"input": 20, "output": 0}}, 1)):
            path = tmp_path / f"{made}.json"
            path.write_text(json.dumps(prices))
            monkeypatch.setenv("KANAME_PRICES", str(path))
            journal = MemoryJournal()
            limits = {"stops": cost("$1")} if limit == "cost" else {"policies": [Budget(user="$1/day")]}
            result = await outer_agent(embed, journal=journal, **limits).run("go")
            assert (len(server.requests), result.stop.kind) == (made, "completed")
            assert result.usage.cost == pytest.approx(0.02 * made)
            assert limit == "cost" or spent(await journal.stores.ledger.balances()) == pytest.approx(0.02 * made)
