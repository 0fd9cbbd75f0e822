"""Budgets: accounts of money, tokens and calls that hold over runs, processes and kills."""

import asyncio
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from kaname import (
    Agent,
    Budget,
    ConfigError,
    MemoryJournal,
    Price,
    ScriptedModel,
    SqliteJournal,
    ToolContext,
    call,
    cost,
    tool,
)
from kaname.core.errors import ModelUnavailable, ReplyGarbled
from kaname.core.messages import ModelReply, Usage, assistant
from kaname.policies.money.limits import Limit, read_limits
from tests import warm

PRICE = Price(1.0, 10.0)  # dollars for a million tokens


class Frugal(ScriptedModel):
    """Answers with a random part of what it is allowed to write, and notes what it was allowed."""

    def __init__(self, script="ok", seed=0, price=PRICE, share=None):
        super().__init__([script] if isinstance(script, str) else script, price=price)
        self.allowed, self._random, self._share = [], random.Random(seed), share

    def longest_reply(self, settings):
        return settings.get("max_tokens")

    async def reply(self, request, emit):
        bound = request.settings.get("max_tokens")
        self.allowed.append(bound)
        await asyncio.sleep(0)
        said = await super().reply(request, emit)
        output = int(bound * (self._share or self._random.random())) if bound else 5
        usage = Usage(20, output)
        return ModelReply(said.message, said.stop_reason, Usage(20, output, cost=self._price.of(usage)))


def spent(balances, unit="usd"):
    return sum(one.spent for one in balances if f"\x1f{unit}\x1f" in one.name)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("$5/day", Limit(5.0, "usd", "day")),
        ("$ 0.25", Limit(0.25, "usd")),
        ("5 usd per month", Limit(5.0, "usd", "month")),
        ("200k tokens/hour", Limit(200_000.0, "tokens", "hour")),
        ("1.5M tokens", Limit(1_500_000.0, "tokens")),
        ("1,000 calls/d", Limit(1000.0, "calls", "day")),
        ("100 requests a day", Limit(100.0, "calls", "day")),
        (3, Limit(3.0, "usd")),
    ],
)
def test_limit_is_read_as_people_write_it(text, limit):
    assert read_limits(text, "x") == (limit,)


@pytest.mark.parametrize("text", ["5", "day", "$5 tokens", "-1 calls", "5/week usd", "", "five dollars", True, "$5/fortnight"])
def test_limit_that_cannot_be_read_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r"is not a limit.*\$5/day"):
        Budget(user=text)


def test_budget_without_a_limit_is_refused():
    with pytest.raises(ConfigError, match="needs a limit"):
        Budget()


def test_period_begins_in_the_given_zone():
    from zoneinfo import ZoneInfo

    late = datetime(2026, 11, 17, 23, 30, tzinfo=UTC).timestamp()
    assert Limit(1, "usd", "day").window(late, UTC) == "2026-11-17"
    assert Limit(1, "usd", "day").window(late, ZoneInfo("Asia/Tokyo")) == "2026-11-18"


async def test_reply_is_bounded_to_what_the_limit_still_buys():
    model = Frugal(share=1.0)
    result = await Agent(model, stops=cost("$0.05"), journal="memory").run("hi")
    assert result.output == "ok"
    assert 4_000 < model.allowed[0] < 5_000  # $0.05 buys 5,000 tokens of output, less the input
    assert result.usage.cost <= 0.05


async def test_limit_that_buys_no_reply_stops_the_run_before_the_call():
    model = Frugal()
    result = await Agent(model, stops=cost("$0.001"), journal="memory").run("hi")
    assert (result.stop.kind, model.allowed) == ("budget", [])
    assert "buys no further reply" in result.stop.detail


async def test_model_without_a_price_is_not_called_under_a_limit_on_money():
    class Unpriced:
        name, asked = "unpriced", 0

        async def reply(self, request, emit):
            self.asked += 1
            return ModelReply(assistant("ok"), "end_turn", Usage(1, 1, cost=None))

    for limits in ({"stops": cost("$1")}, {"policies": [Budget(run="$1")]}):
        model = Unpriced()
        result = await Agent(model, **limits, journal="memory").run("hi")
        assert (result.stop.kind, model.asked) == ("budget", 0)
        assert "unpriced" in result.stop.detail
    for limits in (
        {"stops": cost("$1", unpriced=True)},
        {"policies": [Budget(run="$1", unpriced="allow")]},
        {"policies": [Budget(run="9 calls")]},
    ):
        result = await Agent(Unpriced(), **limits, journal="memory").run("hi")
        assert (result.output, result.usage.cost) == ("ok", None)


async def test_users_have_accounts_of_their_own():
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(["ok"]), policies=[Budget(user="2 calls/day")], journal=journal)
    assert [(await agent.run("hi", user_id="ann")).stop.kind for _ in range(3)] == ["completed", "completed", "budget"]
    assert (await agent.run("hi", user_id="ben")).stop.kind == "completed"
    refused = await agent.run("hi", user_id="ann")
    assert "2 calls/day (user ann) is used up" in refused.stop.detail


async def test_every_level_of_a_budget_holds():
    journal = MemoryJournal()
    levels = Budget(run="10 calls", session="5 calls", user="4 calls", agent="3 calls", total="100 calls")
    agent = Agent(ScriptedModel(lambda request: "ok"), name="clerk", policies=[levels], journal=journal)
    kinds = [(await agent.run("hi", user_id="ann", session_id="s")).stop.kind for _ in range(4)]
    assert kinds == ["completed"] * 3 + ["budget"]
    assert "agent clerk" in (await agent.run("hi", user_id="ben")).stop.detail


async def test_tokens_are_limited_and_bound_the_reply():
    model = Frugal(share=1.0)
    agent = Agent(model, policies=[Budget(user="2000 tokens")], journal="memory")
    first = await agent.run("hi")
    second = await agent.run("hi")
    assert first.usage.total + second.usage.total <= 2000
    assert (await agent.run("hi")).stop.kind == "budget"


async def test_tool_has_a_quota_and_the_model_is_told():
    ran = []

    @tool(effect="pure")
    def search(q: str) -> str:
        """Search."""
        ran.append(q)
        return q

    journal = MemoryJournal()
    agent = Agent(
        ScriptedModel([call("search", q="a"), call("search", q="b"), "done"]),
        [search],
        policies=[Budget(tools={"search": "1 call/day"})],
        journal=journal,
    )
    result = await agent.run("go")
    assert (result.output, ran) == ("done", ["a"])
    assert "1 calls/day (tool search) is used up" in str(result.messages)
    verdict = await next(one for one in agent.recipe.policies if isinstance(one, Budget)).can_execute(journal, tool="search")
    assert not verdict
    assert "used up" in verdict.reason


def test_quota_of_an_unknown_tool_is_refused_before_the_first_call():
    with pytest.raises(ConfigError, match="has no such tool"):
        Agent(ScriptedModel(["ok"]), policies=[Budget(tools={"serach": "1 call"})], journal="memory").run_sync("go")


async def test_can_execute_tells_in_advance_and_spends_nothing():
    journal, budget = MemoryJournal(), Budget(user="1 call")
    agent = Agent(ScriptedModel(["ok"]), policies=[budget], journal=journal)
    assert await budget.can_execute(journal, user="ann")
    await agent.run("hi", user_id="ann")
    verdict = await budget.can_execute(journal, user="ann")
    assert (verdict.allowed, "(user ann) is used up" in verdict.reason) == (False, True)
    assert await budget.can_execute(journal, user="ben")


async def test_rounding_error_of_sums_is_not_reported_as_money_that_is_left():
    journal, budget = MemoryJournal(), Budget(user="$0.3")
    model = ScriptedModel([ModelReply(assistant("ok"), usage=Usage(20, 5, cost=0.1))] * 3, price=PRICE)
    for _ in range(3):  # 0.3 - 0.1 - 0.1 - 0.1 is 5.6e-17 on a computer
        assert (await Agent(model, policies=[budget], journal=journal).run("hi", user_id="ann")).completed
    verdict = await budget.can_execute(journal, user="ann", cost=0.1)
    assert verdict.reason == "the budget of $0.3 (user ann) is used up"


def test_small_amounts_are_written_out():
    limit = Limit(1.0, "usd")
    assert [limit.show(one) for one in (0.0, 0.00001, 0.25, 3)] == ["$0.0000", "$0.00001", "$0.2500", "$3.00"]


async def test_child_spends_its_parents_budget():
    journal = MemoryJournal()
    clerk = Agent(ScriptedModel(["did it"]), name="clerk", journal="memory")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return str([(await context.run_child(clerk, "go", name=f"c{n}")).stop.kind for n in range(3)])

    boss = Agent(ScriptedModel([call("delegate"), "done"]), [delegate], policies=[Budget(user="3 calls")], journal=journal)
    result = await boss.run("go")
    assert result.stop.kind == "budget"
    assert "['completed', 'completed', 'budget']" in str(result.messages)
    (balance,) = await journal.stores.ledger.balances()
    assert (balance.spent, balance.reserved) == (3.0, 0.0)


async def test_broken_reply_costs_unknown_but_never_more_than_its_bound():
    class Breaking(Frugal):
        async def reply(self, request, emit):
            if not self.allowed:
                self.allowed.append(None)
                raise ReplyGarbled("the connection ended")
            return await super().reply(request, emit)

    journal = MemoryJournal()
    agent = Agent(Breaking(share=0.1), policies=[Budget(user="$1")], journal=journal, settings={"max_tokens": 1000})
    result = await agent.run("hi")
    assert (result.output, result.usage.cost) == ("ok", None)
    assert 0.010 < result.usage.ceiling < 0.013  # at most $0.01 for the broken one, and the other
    assert spent(await journal.stores.ledger.balances()) == pytest.approx(result.usage.ceiling)


async def test_refused_call_costs_nothing():
    journal = MemoryJournal()
    busy = ModelUnavailable("busy", status=503)
    busy.usage = Usage()
    from kaname import Retry

    agent = Agent(ScriptedModel([busy], price=PRICE), policies=[Budget(user="$1"), Retry(1)], journal=journal)
    with pytest.raises(ModelUnavailable):
        await agent.run("hi")
    assert spent(await journal.stores.ledger.balances()) == 0.0


async def test_cost_of_a_call_that_a_deadline_ended_is_unknown():
    from kaname import deadline

    class Slow(Frugal):
        async def reply(self, request, emit):
            await asyncio.Event().wait()

    result = await Agent(Slow(), stops=deadline("50ms"), journal="memory").run("hi")
    assert (result.stop.kind, result.usage.cost) == ("deadline", None)


async def test_model_is_told_once_when_the_money_is_nearly_used_up():
    seen = []

    class Watched(Frugal):
        async def reply(self, request, emit):
            seen.append("nearly used up" in request.messages[-1].text)
            return await super().reply(request, emit)

    @tool(effect="pure")
    def look(n: int) -> int:
        """Look."""
        return n

    model = Watched([call("look", n=1), call("look", n=2), call("look", n=3), "done"], share=1.0)
    agent = Agent(model, [look], stops=cost("$0.10"), settings={"max_tokens": 2000}, journal="memory")
    result = await agent.run("go")
    assert (result.output, result.usage.cost < 0.10) == ("done", True)
    assert seen == [False, False, False, True]  # $0.02 a reply: after the third, less than two more can be bought


@pytest.mark.parametrize("bounded", [True, False])
async def test_many_runs_at_once_never_overdraw_one_account(tmp_path, bounded):
    journal = SqliteJournal(tmp_path / "j.db")
    settings = {"max_tokens": 1000} if bounded else {}
    agents = [Agent(Frugal(seed=n), policies=[Budget(total="$0.50")], journal=journal, settings=settings) for n in range(100)]
    results = await asyncio.gather(*[agent.run("hi") for agent in agents])
    (balance,) = await journal.stores.ledger.balances()
    known = sum(result.usage.cost for result in results)
    assert {result.stop.kind for result in results} <= {"completed", "budget"}
    assert (balance.spent, balance.reserved) == (pytest.approx(known), 0.0)
    assert balance.spent <= 0.50
    await journal.close()


KILLED = """
import asyncio, sys
from kaname import Agent, Budget, SqliteJournal
from tests.policies.test_budget import Frugal
class Hanging(Frugal):
    async def reply(self, request, emit):
        print("asked", flush=True)
        await asyncio.Event().wait()
Agent(Hanging(), policies=[Budget(total="$0.10")], journal=SqliteJournal(sys.argv[1])).run_sync("hi")
"""


async def test_reservation_of_a_killed_process_is_free_again(tmp_path):
    path = tmp_path / "j.db"
    process = warm.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "asked\n"
    journal = SqliteJournal(path)
    (held,) = await journal.stores.ledger.balances()
    assert held.reserved > 0.09
    process.send_signal(signal.SIGKILL)
    process.communicate()
    model = Frugal(share=1.0)
    result = await Agent(model, policies=[Budget(total="$0.10")], journal=journal).run("hi")
    assert (result.stop.kind, result.usage.cost > 0.09) == ("completed", True)
    await journal.close()


async def test_run_that_waits_for_an_account_says_so_and_can_be_stopped():
    journal = MemoryJournal()
    asked = asyncio.Event()

    class Holding(Frugal):
        async def reply(self, request, emit):
            asked.set()
            await asyncio.Event().wait()

    budget = Budget(total="$0.01")
    first = Agent(Holding(), policies=[budget], journal=journal).run("hi").start()
    await asked.wait()
    second = Agent(Frugal(), policies=[budget], journal=journal).run("hi")
    async for chunk in second:
        if chunk.data.get("reason") == "budget":
            second.abort()
    assert (await second).stop.kind == "cancelled"
    first.abort()
    await first
    (balance,) = await journal.stores.ledger.balances()
    assert balance.reserved == 0.0


async def test_overview_lists_the_accounts_of_this_period_with_their_limits():
    from kaname.policies.money.overview import overview

    journal, budget = MemoryJournal(), Budget(user="5 calls/day", agent="$2/month", tools={"look": "3 calls"})
    await Agent(
        ScriptedModel(["ok"]), [tool(effect="pure", name="look")(lambda n: n)], name="clerk", policies=[budget], journal=journal
    ).run("hi", user_id="ann")
    journal.stores.ledger.settle("", {"\x1f".join(["user", "ann", "calls", "day", "2020-01-01"]): 9.0})
    now = [
        (one.scope, one.whose, one.unit, one.spent, one.limit)
        for one in await overview(journal.stores.ledger, budget.about.limits)
    ]
    assert now == [("agent", "clerk", "usd", 0.0, 2.0), ("user", "ann", "calls", 1.0, 5.0)]
    assert len(await overview(journal.stores.ledger, budget.about.limits, past=True)) == 3


async def test_judge_and_summary_are_paid_from_the_same_budget():
    from kaname import Compact, Guardrails, Judge

    journal = MemoryJournal()
    judge = ScriptedModel(['{"reason": "fine", "action": "allow"}'], price=PRICE)
    agent = Agent(
        ScriptedModel(["hello"], price=PRICE),
        policies=[Budget(user="10 calls"), Guardrails(output_checks=[Judge(judge, "Be kind.")])],
        journal=journal,
        context=[Compact()],
    )
    assert (await agent.run("hi")).output == "hello"
    (balance,) = await journal.stores.ledger.balances()
    assert (balance.spent, balance.reserved) == (2.0, 0.0)


@pytest.mark.parametrize("text", ["$5,00/day", "$1,5", "$1.000,50", "$5m", b"$5", "1.2.3 calls/day", "$5 k tokens"])
def test_limit_that_could_be_read_in_two_ways_is_refused(text):
    with pytest.raises(ConfigError, match="is not a limit"):
        Budget(user=text)


async def test_quota_of_a_tool_holds_for_children_and_counts_every_try():
    from kaname import ToolFallback

    ran = []

    @tool(effect="pure")
    def f() -> str:
        """F."""
        ran.append(1)
        raise OSError("down")

    child = Agent(ScriptedModel([call("f"), "done"]), [f], name="child", journal="memory")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return str([(await context.run_child(child, "go", name=f"c{n}")).stop.kind for n in range(3)])

    script = [call("delegate"), call("f"), "done"]
    boss = Agent(
        ScriptedModel(script),
        [delegate, f],
        policies=[Budget(tools={"f": "2 calls"}), ToolFallback(3, backoff=0, degrade=False)],
        journal="memory",
    )
    await boss.run("go")
    assert len(ran) == 2


async def test_user_without_money_is_refused_although_others_are_at_work():
    journal, at_work = MemoryJournal(), asyncio.Event()

    class Holding(Frugal):
        async def reply(self, request, emit):
            at_work.set()
            await asyncio.Event().wait()

    budget = Budget(user="1 call/day", total="$1000/day")
    await Agent(Frugal(), policies=[budget], journal=journal).run("hi", user_id="mika")
    busy = Agent(Holding(), policies=[budget], journal=journal).run("hi", user_id="ben").start()
    await at_work.wait()
    refused = await Agent(Frugal(), policies=[budget], journal=journal).run("hi", user_id="mika")
    assert "1 calls/day (user mika) is used up; it is renewed at" in refused.stop.detail
    busy.abort()
    await busy


async def test_judge_in_mid_stream_does_not_wait_for_the_call_that_waits_for_it():
    from kaname import Guardrails, Judge

    judge = ScriptedModel(lambda request: '{"reason": "fine", "action": "allow"}', price=PRICE)
    rails = Guardrails(output_checks=[Judge(judge, "Be kind.")])
    agent = Agent(ScriptedModel(["Hello. " * 200], price=PRICE), policies=[Budget(total="$0.01"), rails], journal="memory")
    run = agent.run("hi")
    async for _ in run:
        pass
    assert (await run).stop.kind in ("budget", "blocked", "completed")


async def test_model_that_reports_its_own_price_is_stopped_by_it():
    class Reporting:
        name = "reporting"

        async def reply(self, request, emit):
            return ModelReply(assistant("ok"), "end_turn", Usage(1, 1, cost=50.0))

    agent = Agent(Reporting(), policies=[Budget(user="$1/day", unpriced="allow")], journal="memory")
    assert [(await agent.run("hi")).stop.kind for _ in range(3)] == ["completed", "budget", "budget"]


async def test_unknown_cost_is_listed_as_unknown():
    from kaname.policies.money.overview import overview

    class Unpriced:
        name = "unpriced"

        async def reply(self, request, emit):
            return ModelReply(assistant("ok"), "end_turn", Usage(1, 1, cost=None))

    journal = MemoryJournal()
    await Agent(Unpriced(), policies=[Budget(user="$1/day", unpriced="allow")], journal=journal).run("hi")
    assert {(one.unit, one.spent) for one in await overview(journal.stores.ledger)} == {("usd", 0.0), ("unpriced", 1.0)}


async def test_next_model_is_asked_when_the_first_is_too_dear():
    dear, cheap = (
        ScriptedModel(["dear"], name="dear", price=Price(1000, 1000)),
        ScriptedModel(["cheap"], name="cheap", price=PRICE),
    )
    result = await Agent([dear, cheap], stops=cost("$0.05"), journal="memory").run("hi")
    assert (result.output, result.models) == ("cheap", ("cheap",))


async def test_count_of_one_model_is_not_used_for_another():
    class Counting(ScriptedModel):
        def __init__(self, name, tokens, problem=None):
            super().__init__(
                lambda request: call("look") if request.tools and not problem else "done", name=name, price=Price(1000, 0)
            )
            self.tokens, self.problem = tokens, problem

        async def reply(self, request, emit):
            said = await super().reply(request, emit)
            return ModelReply(said.message, said.stop_reason, Usage(self.tokens, 1, cost=self.tokens / 1000))

    from kaname.core.messages import ModelRequest, user
    from kaname.policies.money.estimate import bound_input

    one, other = Counting("a", 20), Counting("b", 60)
    request = ModelRequest((user("x" * 500),))
    _, measured = bound_input(request, one, None)
    assert bound_input(request, one, measured._replace(tokens=20))[0] < 100
    assert bound_input(request, other, measured._replace(tokens=20))[0] > 500


async def test_resumed_run_tells_that_it_has_another_model():
    from kaname import Approve

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel(["?", "ok"], name="usual"), [pay], policies=[Approve("pay")], journal="memory")
    waiting = await agent.run("go", model=ScriptedModel([call("pay"), "done"], name="special"))
    run = agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "no"))
    told = [chunk.data async for chunk in run if "was started with special" in str(chunk.data)]
    assert told


async def test_settlement_is_written_with_the_next_work_or_alone_if_none_follows(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    ledger = journal.stores.ledger
    await ledger.reserve("first", ["a"], lambda _: [1.0])
    ledger.settle("first", {"a": 0.25})
    (balance,), _ = await ledger.reserve("second", ["a"], lambda _: [1.0])  # at once: it sees what was settled
    assert (balance.spent, balance.reserved) == (0.25, 0.0)
    for _ in range(20):  # commits are quick: the next work is done by the event loop
        await journal.stores.health.probe()
    ledger.settle("second", {"a": 0.25})
    (balance,), _ = await ledger.reserve("third", ["a"], lambda _: [1.0])
    assert (balance.spent, balance.reserved) == (0.5, 0.0)
    ledger.settle("third", {"a": 0.5})
    await journal.close()  # nothing follows
    journal = SqliteJournal(tmp_path / "j.db")
    (balance,) = await journal.stores.ledger.balances()
    assert (balance.spent, balance.reserved) == (1.0, 0.0)
    await journal.close()


async def test_reply_that_a_guardrail_stops_in_mid_stream_is_charged():
    from kaname import Guardrails

    journal = MemoryJournal()
    policies = [Budget(user=["1 calls/day", "$1/day"]), Guardrails(blocked_patterns=["secret"])]
    agent = Agent(ScriptedModel(lambda request: "this is a secret " * 50, price=PRICE), policies=policies, journal=journal)
    assert [(await agent.run("hi")).stop.kind for _ in range(3)] == ["blocked", "budget", "budget"]


async def test_judges_in_mid_stream_and_waiting_runs_do_not_block_each_other():
    from kaname import Guardrails, Judge

    judge = ScriptedModel(lambda request: '{"reason": "fine", "action": "allow"}', price=PRICE)
    rails = Guardrails(output_checks=[Judge(judge, "Be kind.")])
    model = ScriptedModel(lambda request: "Hello. " * 300, price=Price(1.0, 100.0))
    agent = Agent(model, policies=[Budget(agent="$0.30"), rails], settings={"max_tokens": 2000}, journal="memory")
    async with asyncio.timeout(30):
        results = await asyncio.gather(*[agent.run("hi") for _ in range(4)])
    assert {result.stop.kind for result in results} <= {"completed", "budget"}
    assert any(result.stop.kind == "completed" for result in results)


async def test_cost_of_judging_the_question_is_kept_when_no_reply_follows():
    from kaname import Guardrails, Judge

    judge = ScriptedModel(lambda request: '{"reason": "fine", "action": "allow"}', usage=Usage(10, 5, cost=0.06))
    agent = Agent(
        ScriptedModel(["x"], price=Price(1000, 1000)),
        policies=[Guardrails(input_checks=[Judge(judge, "Be kind.")])],
        stops=cost("$0.1"),
        journal="memory",
    )
    result = await agent.run("hi")
    assert (result.stop.kind, result.usage.cost) == ("budget", 0.06)
