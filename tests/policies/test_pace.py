"""Calls wait for their turn: within one's own limits and those that the provider reports, fair, and without leaks."""

import asyncio
import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, ConfigError, Message, ModelReply, ModelRequest, Pace, Policy, Retry, Usage, deadline, load_config
from kaname.core.errors import RateLimited
from kaname.core.messages import Text, user
from kaname.kernel.bases import ModelInfo, model_info
from kaname.models import Anthropic, OpenAI
from kaname.models.http.rates import ProviderRates, rates_of
from kaname.policies.failure.timeout import Timeout
from kaname.policies.pace.gate import Gate, PacedCall, TooLong, gate_of
from kaname.policies.pace.limits import PaceLimits, PaceRate
from kaname.testing.wire import Answer, WireServer, reply, status
from tests.parts import chunks
from tests.properties import tries

DONE = ModelReply(Message("assistant", (Text("done"),)), "end_turn", Usage(10, 5))


class Held:
    """Answers when it is let; knows how many calls are under way, and how many were at the most."""

    name = "held"

    def __init__(self, free=False):
        self.free, self.running, self.most, self.asked = asyncio.Event(), 0, 0, []
        if free:
            self.free.set()

    async def reply(self, request, emit):
        self.asked.append(request.messages[-1].text)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.free.wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        return DONE


def at(model):
    """The gate of a model's calls."""
    return gate_of(model, model_info(model).rates)


async def until(true):
    while not true():
        await asyncio.sleep(0)


# --- one's own limits ---


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"requests": "60"}, "requests must be a rate"),
        ({"requests": "60/fortnight"}, "60/fortnight"),
        ({"requests": 60}, "not 60"),
        ({"tokens": "0/min"}, "tokens must be a rate"),
        ({"at_once": 0}, "at least 1"),
        ({"at_once": True}, "at least 1"),
        ({"longest_wait": -1}, "longest_wait"),
    ],
)
def test_pace_that_makes_no_sense_is_refused_when_it_is_written(given, told):
    with pytest.raises(ConfigError, match=told):
        Pace(**given)


def test_rates_are_read_as_people_write_them():
    written = Pace("60/min", "100k/min", 8).limits
    assert (written.requests, written.tokens, written.at_once) == (PaceRate(60, 60), PaceRate(100_000, 60), 8)
    assert Pace("5 per second").limits.requests == PaceRate(5, 1)
    assert Pace(tokens="1.5M tokens/day").limits.tokens == PaceRate(1.5e6, 86400)


async def test_no_more_calls_at_once_than_allowed():
    model = Held()
    pace = Pace(at_once=3)
    agent = Agent(model, policies=[pace], journal="memory")
    runs = [asyncio.ensure_future(agent.run(f"task {n}")) for n in range(10)]
    await until(lambda: len(at(model).waiting) == 7)
    assert pace.can_execute(model) == (False, "waiting until another call has finished (limit: calls at once)")
    model.free.set()
    results = await asyncio.gather(*runs)
    assert (model.most, [one.output for one in results]) == (3, ["done"] * 10)
    gate = at(model)
    assert (gate.at_work, gate.waiting, pace.can_execute(model)) == (0, [], (True, ""))


async def test_waiting_run_tells_its_reader_why_and_how_long():
    pace, model = Pace("1/min"), Held(free=True)
    agent = Agent(model, policies=[pace], journal="memory")
    await agent.run("first")
    run, seen = agent.run("second"), None
    async for chunk in run:
        if chunk.type == "status" and chunk.data["status"] == "throttled":
            seen = chunk.data
            break
    assert (seen["reason"], 58 < seen["seconds"] <= 60, seen["content"]) == ("requests", True, "waiting 60 s (limit: requests)")
    run.abort()
    assert ((await run).stop.kind, at(model).waiting, model.asked) == ("cancelled", [], ["first"])


async def test_waiting_counts_towards_the_deadline():
    agent = Agent(Held(free=True), policies=[Pace("1/min")], stops=deadline("200ms"), journal="memory")
    await agent.run("first")
    begun = time.monotonic()
    assert (await agent.run("second")).stop.kind == "deadline"
    assert time.monotonic() - begun < 40


async def test_tokens_are_estimated_before_a_call_and_corrected_after_it():
    model = Held(free=True)
    pace = Pace(tokens="600/min")
    agent = Agent(model, policies=[pace], journal="memory")
    for n in range(5):  # about 500 tokens each before the call, 15 after it
        await agent.run(f"task {n}")
    (window,) = at(model).windows.values()
    assert window.total == 75


async def test_cancelled_waiters_leave_nothing_behind():
    model = Held()
    pace = Pace(at_once=1)
    agent = Agent(model, policies=[pace], journal="memory")
    first = asyncio.ensure_future(agent.run("first"))
    await until(lambda: model.running)
    gate = at(model)
    others = [asyncio.ensure_future(agent.run(f"{n}")) for n in range(5)]
    await until(lambda: len(gate.waiting) == 5)
    for one in others[:4]:
        one.cancel()
    await asyncio.gather(*others[:4], return_exceptions=True)
    assert len(gate.waiting) == 1
    model.free.set()
    assert (await first).output == (await others[4]).output == "done"
    assert (gate.at_work, gate.waiting, model.most, model.asked) == (0, [], 1, ["first", "4"])


async def test_call_that_is_cancelled_when_its_turn_has_come_passes_it_on():
    gate, limits = Gate(), PaceLimits(at_once=1)
    first, one, other = (PacedCall(limits, None, user=name) for name in ("", "a", "b"))
    assert gate.enter(first)
    gate.join(one)
    gate.join(other)
    gate.leave(first)
    assert one.under_way
    assert not other.under_way
    gate.leave(one)  # it was cancelled before its task ran again
    await other.turn()
    gate.leave(other)
    assert (gate.at_work, gate.waiting) == (0, [])


def test_limit_holds_across_event_loops_in_threads():
    running, most, lock = 0, 0, threading.Lock()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            await asyncio.sleep(0.002)
            with lock:
                running -= 1
            return DONE

    model, pace, outputs = Slow(), Pace(at_once=2), []

    def work():
        async def several():
            agent = Agent(model, policies=[pace], journal="memory")
            return [one.output for one in await asyncio.gather(*[agent.run("go") for _ in range(10)])]

        outputs.extend(asyncio.run(several()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (outputs, most, at(model).at_work) == (["done"] * 40, 2, 0)


CALLS = st.lists(
    st.tuples(
        st.sampled_from("abc"),  # the user
        st.sampled_from("xy"),  # the session
        st.integers(1, 40),  # tokens
        st.integers(0, 9),  # when it comes
        st.integers(0, 9),  # how long it takes
        st.booleans(),  # cancelled while it waits
    ),
    max_size=30,
)


@tries(300)
@given(CALLS, st.integers(1, 4), st.integers(1, 6), st.integers(40, 90))
def test_limits_hold_and_turns_are_fair_whatever_comes(calls, at_once, requests, tokens):
    asyncio.run(simulate(calls, at_once, requests, tokens))


async def simulate(calls, at_once, requests, tokens):
    now, waiting, running, granted, late = 0.0, [], [], [], []
    gate, limits = Gate(lambda: now), PaceLimits(PaceRate(requests, 7), PaceRate(tokens, 11), at_once)
    gate.watch(limits)
    for now in [tick / 1 for tick in range(600)]:
        for call, ends in [one for one in running if one[1] <= now]:
            gate.leave(call)
            running.remove((call, ends))
        for who, session, weight, when, _, _ in calls:
            if when == now:
                call = PacedCall(limits, None, weight, who, session)
                waiting.append(call)
                late.append(call)
                gate.join(call)
        gate.pump()
        for place, call in enumerate(list(late)):
            cancelled = calls[place][5] if place < len(calls) else False
            if call in waiting and not call.under_way and cancelled and now > calls[place][3] + 3:
                waiting.remove(call)
                gate.leave(call)
        for call in [one for one in waiting if one.under_way]:
            waiting.remove(call)
            granted.append((now, call))
            running.append((call, now + 1 + len(granted) % 5))
        assert gate.at_work == len(running) <= at_once
        assert gate.waiting == waiting
        last_requests = [call for at, call in granted if now - 7 < at <= now]
        last_tokens = [call.tokens for at, call in granted if now - 11 < at <= now]
        assert len(last_requests) <= requests
        assert sum(last_tokens) <= tokens
    assert (waiting, running) == ([], []), "a call waits for ever, or a place is still taken"


@tries(100)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), max_size=40))
def test_users_take_turns_then_their_sessions(who):
    async def serve():
        gate, limits = Gate(), PaceLimits(at_once=1)
        busy, served = PacedCall(limits, None), []
        assert gate.enter(busy)
        calls = [PacedCall(limits, None, 0, *one) for one in who]
        for call in calls:
            gate.join(call)
        left = Counter([call.user for call in calls])
        while any(left.values()):
            gate.leave(busy)
            (next_one,) = [call for call in calls if call.under_way and call not in served]
            served.append(next_one)
            left[next_one.user] -= 1
            busy = next_one
            counts = Counter([call.user for call in served])
            assert all(counts[next_one.user] - counts[other] <= 1 for other in left if left[other]), "a user was passed over"
            mine = [call for call in calls if call.user == next_one.user]
            by_session = Counter([call.session for call in mine if call in served])
            open_sessions = {call.session for call in mine if call not in served}
            assert all(by_session[next_one.session] - by_session[other] <= 1 for other in open_sessions)
        for key in set(who):
            assert [one for one in served if (one.user, one.session) == key] == [
                one for one in calls if (one.user, one.session) == key
            ]
        gate.leave(busy)
        assert gate.at_work == 0

    asyncio.run(serve())


async def test_call_with_other_limits_is_not_held_up():
    gate, strict, free = Gate(), PaceLimits(at_once=1), PaceLimits(at_once=2)
    first, waits, passes = PacedCall(strict, None), PacedCall(strict, None), PacedCall(free, None)
    assert gate.enter(first)
    gate.join(waits)
    gate.join(passes)
    assert (waits.under_way, passes.under_way) == (False, True)
    for call in (first, passes):
        gate.leave(call)
    await waits.turn()
    gate.leave(waits)


# --- what the provider reports ---


def test_key_is_not_shown():
    rates = rates_of("https://api.example.org/v1", ("sk-secret-123456",), "m")
    assert "secret" not in f"{rates!r} {rates.account} {vars(rates)}"
    assert rates_of("https://api.example.org/v1/other", ("sk-secret-123456",), "m") is rates
    assert rates_of("https://api.example.org/v1", ("sk-another-123456",), "m").account != rates.account


class Limited:
    """A provider that allows so many requests in a period, and says when it allows the next one."""

    def __init__(self, limit, period):
        self.limit, self.period, self.refused, self.answered = limit, period, 0, 0
        self.level, self.at = limit, time.monotonic()

    def __call__(self, body):
        now = time.monotonic()
        if now - self.at >= self.period:
            self.level, self.at = self.limit, now
        if not self.level:
            self.refused += 1
            return status(429, "slow down", retry_after=self.period - (now - self.at))
        self.level -= 1
        self.answered += 1
        return "hi"


async def test_calls_of_all_runs_wait_as_long_as_the_provider_says():
    provider = Limited(10, 0.5)
    async with WireServer(provider) as server:
        agents = [
            Agent(OpenAI("m", base_url=server.url, api_key="k"), journal="memory", policies=[Retry(tries=5)]) for _ in "ab"
        ]
        results = await asyncio.gather(*[agent.run(f"{n}") for n in range(20) for agent in agents])
        for agent in agents:
            await agent.close()
    assert ([one.output for one in results], provider.answered) == (["hi"] * 40, 40)


async def test_same_provider_refuses_calls_that_are_not_paced():
    provider = Limited(10, 30)
    async with WireServer(provider) as server:
        model = OpenAI("m", base_url=server.url, api_key="k")

        async def silent(*_):
            pass

        asked = [model.reply(ModelRequest((user("hi"),)), silent) for _ in range(20)]
        await asyncio.gather(*asked, return_exceptions=True)
        await model.close()
    assert provider.refused == 10


@pytest.mark.parametrize("make", [OpenAI, Anthropic])
async def test_retry_after_holds_for_all_runs_with_that_key(make):
    came = []

    def answer(body):
        came.append((body["model"], time.monotonic()))
        return status(429, "slow down", retry_after_ms=1500) if len(came) == 1 else "hi"

    async with WireServer(answer) as server:
        first, second, stranger = [
            Agent(make("m", base_url=server.url, api_key=key), journal="memory") for key in ("k", "k", "other")
        ]
        one = asyncio.ensure_future(first.run("hi"))
        await until(lambda: second.recipe.model.rates.bounded)
        await asyncio.gather(second.run("hi"), stranger.run("hi"), one)
        for agent in (first, second, stranger):
            await agent.close()
    waits = sorted([at - came[0][1] for _, at in came[1:]])
    assert waits[0] < 1.4, "another key does not wait"
    assert all(wait >= 1.49 for wait in waits[1:])
    assert len(waits) == 3


async def test_wait_that_is_too_long_is_an_error_that_says_how_long():
    async with WireServer([status(429, "tomorrow", retry_after=3600)]) as server:
        agent = Agent(OpenAI("m", base_url=server.url, api_key="k"), journal="memory")
        for _ in range(2):
            with pytest.raises(RateLimited) as problem:
                await agent.run("hi")
        assert 3590 < problem.value.retry_after <= 3600
        assert "allows no request for" in str(problem.value)
        assert len(server.requests) == 1
        await agent.close()


async def test_other_model_is_asked_at_once_if_a_policy_chooses_between_models():
    class Choosing(Policy):
        async def model(self, request, next, view):
            from kaname import replace

            try:
                return await next(replace(request, model=busy))
            except RateLimited:
                return await next(replace(request, model=idle))

    async with WireServer([status(429, "slow down", retry_after=20), "hi", "hi"]) as server:
        busy, idle = (OpenAI(name, base_url=server.url, api_key="k") for name in ("busy", "idle"))
        agent = Agent(busy, policies=[Choosing(), Retry(tries=1)], journal="memory")
        assert [(await agent.run("hi")).output for _ in range(2)] == ["hi", "hi"]
        assert [body["model"] for body in server.requests] == ["busy", "idle", "idle"]
        await busy.close()
        await idle.close()


def entered(gate, rates):
    return gate.enter(PacedCall(PaceLimits(), rates))


def test_provider_that_was_busy_is_tried_by_one_call_first():
    rates, gate = ProviderRates("x"), Gate(lambda: 0.0)
    rates.learn(429, {}, now=0.0)
    assert [entered(gate, rates) for _ in range(3)] == [True, False, False]
    rates.learn(200, {}, now=0.0)
    assert [entered(gate, rates) for _ in range(3)] == [True, False, False]


def test_call_that_hangs_after_a_refusal_does_not_hold_the_others_back_for_long():
    rates, now = ProviderRates("x"), 0.0
    rates.learn(429, {"retry-after": "1"}, now=0.0)
    gate = Gate(lambda: now)
    now = 1.0
    assert entered(gate, rates)  # and it hangs
    assert not entered(gate, rates)
    assert rates.wait(now) == ("busy", 2.0)
    now = 3.0
    assert [entered(gate, rates) for _ in range(2)] == [True, False]
    now = 5.0
    assert [entered(gate, rates) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(("refusals", "allowed"), [(1, 10), (2, 5), (3, 2), (4, 1), (5, 1)])
def test_single_refusal_among_many_calls_halves_them_and_repeated_ones_leave_one(refusals, allowed):
    rates, gate = ProviderRates("x"), Gate(lambda: 0.0)
    for _ in range(20):
        rates.begin()
    for _ in range(refusals):
        rates.learn(429, {}, now=0.0)
    for _ in range(20):
        rates.end()
    assert [entered(gate, rates) for _ in range(20)].count(True) == allowed


async def test_wait_for_the_provider_that_becomes_too_long_is_an_error():
    rates, gate = ProviderRates("x"), Gate(lambda: 0.0)
    rates.learn(429, {"retry-after": "5"}, now=0.0)
    call = PacedCall(PaceLimits(), rates, patience=60)
    gate.join(call)
    rates.learn(429, {"retry-after": "3600"}, now=0.0)
    gate.pump()
    with pytest.raises(TooLong):
        await call.turn()
    assert gate.waiting == []


async def test_call_that_began_before_the_refusal_wakes_those_that_wait_for_it():
    slow, came = asyncio.Event(), []

    class Reporting(Held):
        about = ModelInfo(rates=ProviderRates("own"))

        async def reply(self, request, emit):
            came.append(request.messages[-1].text)
            if came[-1] == "slow":
                await slow.wait()
            elif came[-1] == "refused":
                self.about.rates.learn(429, {})
                raise RateLimited("slow down")
            return DONE

    agent = Agent(Reporting(), policies=[Retry(tries=1)], journal="memory")
    first = asyncio.ensure_future(agent.run("slow"))
    await until(lambda: came)
    with pytest.raises(RateLimited):
        await agent.run("refused")
    last = asyncio.ensure_future(agent.run("last"))
    await until(lambda: at(agent.recipe.model).waiting)
    slow.set()
    assert [(await run).output for run in (first, last)] == ["done", "done"]


# --- where it stands ---


async def test_pace_stands_between_retries_and_the_time_limit_of_a_call():
    model = OpenAI("m", base_url="http://127.0.0.1:9/v1", api_key="k")
    for agent in (Agent(model), Agent(model, policies=[Pace("9/min")]), Agent(Held(), policies=[Pace("9/min")])):
        kinds = [type(policy) for policy in agent.recipe.policies]
        assert kinds.index(Retry) < kinds.index(Pace) < kinds.index(Timeout)
        assert kinds.count(Pace) == 1
    assert Pace not in [type(policy) for policy in Agent(Held()).recipe.policies], "nothing is added where nothing is reported"


def test_limits_of_a_file(tmp_path):
    path = tmp_path / "kaname.yaml"
    path.write_text("limits: {requests: 60/min, at_once: 8}\nagents:\n  a: {}\n  b:\n    limits: {tokens: 100k/min}\n")
    config = load_config(path)
    (shared,), (own,) = [config.parts(name)["policies"] for name in "ab"]
    assert (shared.limits.requests, shared.limits.at_once, own.limits.tokens) == (PaceRate(60, 60), 8, PaceRate(100_000, 60))
    path.write_text("agents:\n  a:\n    limits:\n      requests: sixty\n      at_once: 0\n")
    with pytest.raises(ConfigError) as problem:
        load_config(path)
    assert ":4" in str(problem.value)
    assert ":5" in str(problem.value)
    assert "60/min" in str(problem.value)


async def test_reader_of_chunks_sees_nothing_of_calls_that_do_not_wait():
    agent = Agent(Held(free=True), policies=[Pace("60/min", at_once=5)], journal="memory")
    assert not [chunk for chunk in await chunks(agent.run("hi")) if chunk.data.get("status") == "throttled"]
    assert isinstance(reply("x"), Answer)
