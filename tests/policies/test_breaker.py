"""The breaker of a model under concurrency: never two probes, never a call while it is open, and it always recovers."""

import asyncio
import gc
import random
import threading

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kaname.core.errors import ContextTooLong, ModelDenied, ModelUnavailable, RateLimited
from kaname.models import OpenAI
from kaname.policies.failure.breaker import Breaker, Instance, Limits
from tests.properties import tries

LIMITS = Limits(failures=3, window=60.0, pause=10.0)
ERRORS = [ModelUnavailable("down"), ModelDenied("no key"), RateLimited("slow down", retry_after=4.0)]


class Calls(RuleBasedStateMachine):
    """Any interleaving of calls that begin, succeed, fail and are cancelled, while time passes."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.breaker = Breaker(LIMITS, lambda: self.now)
        self.under_way = []  # tickets, each with the era in which it began
        self.opened_at = None
        self.until = None
        self.probe = None

    @rule()
    def begin(self):
        ticket = self.breaker.enter()
        if self.until is None:
            assert ticket is not None, "a closed breaker lets every call pass"
        elif self.now < self.until or self.probe is not None:
            assert ticket is None, "a call passed while it was open, or there were two probes"
        else:
            assert ticket is not None, "it does not recover"
        if ticket is not None:
            held = [ticket]
            self.under_way.append(held)
            self.probe = held if self.until is not None else None

    @precondition(lambda self: self.under_way)
    @rule(place=st.integers(0, 99), outcome=st.sampled_from([True, None, ContextTooLong("long"), *ERRORS]))
    def end(self, place, outcome):
        held = self.under_way.pop(place % len(self.under_way))
        rested = self.breaker.rest
        self.breaker.leave(held[0], outcome)
        if held is self.probe:
            self.probe = None
            if outcome in ERRORS:
                self.open(outcome)
            elif outcome is not None:
                self.until = None
        elif self.breaker.rest > rested:
            assert self.until is None, "only the probe changes an open breaker"
            assert outcome in ERRORS
            self.open(outcome)

    def open(self, error):
        self.until = self.now + (LIMITS.pause if error.retry_after is None else error.retry_after)

    @rule(seconds=st.floats(0.0, 20.0))
    def wait(self, seconds):
        self.now += seconds

    @invariant()
    def counts_the_calls_under_way(self):
        assert self.breaker.busy == len(self.under_way)

    def teardown(self):
        """Whatever happened: after the pause one call passes, and its success lets all pass again."""
        for held in self.under_way:
            self.breaker.leave(held[0], None)
        self.now += 1_000.0
        ticket = self.breaker.enter()
        assert ticket is not None
        self.breaker.leave(ticket, True)
        assert self.breaker.rest == 0.0
        assert None not in [self.breaker.enter() for _ in range(5)]


TestCalls = Calls.TestCase
TestCalls.settings = tries(300, stateful_step_count=40)


def broken(now):
    breaker = Breaker(LIMITS, lambda: now[0])
    breaker.leave(breaker.enter(), ModelDenied("no key"))
    return breaker


@tries(60)
@given(st.integers(0, 2**32))
def test_breaker_gives_many_tasks_one_probe_at_a_time(seed):
    chance, now = random.Random(seed), [0.0]
    breaker, probing, probes = broken(now), 0, 0
    works_after = chance.randint(1, 4)

    async def caller():
        nonlocal probing, probes
        for _ in range(20):
            await asyncio.sleep(0)
            now[0] += chance.random() * 4
            ticket = breaker.enter()
            if ticket is None:
                continue
            is_probe = breaker.rest > 0
            if is_probe:
                probing, probes = probing + 1, probes + 1
                assert probing == 1
            for _ in range(chance.randint(0, 4)):
                await asyncio.sleep(0)
            if is_probe:
                probing -= 1
            breaker.leave(ticket, chance.choice([None, ModelUnavailable("down")]) if probes < works_after else True)

    async def go():
        await asyncio.gather(*[caller() for _ in range(8)])

    asyncio.run(go())
    assert probes


def test_breaker_opens_after_failures_in_a_row_within_the_window():
    def outcomes(*told, seconds=1.0):
        now = [0.0]
        breaker = Breaker(LIMITS, lambda: now[0])
        for outcome in told:
            now[0] += seconds
            breaker.leave(breaker.enter(), outcome)
        return breaker.rest

    down = ModelUnavailable("down")
    assert outcomes(down, down) == 0.0
    assert outcomes(down, down, down) == LIMITS.pause
    assert outcomes(down, down, True, down, down) == 0.0
    assert outcomes(down, down, ContextTooLong("long"), down, down) == 0.0
    assert outcomes(*[down] * 9, seconds=31.0) == 0.0
    assert outcomes(ModelDenied("no key")) == LIMITS.pause
    assert outcomes(RateLimited("busy", retry_after=4.0)) == 4.0
    assert outcomes(RateLimited("tomorrow", retry_after=86_400.0)) == 300.0


def test_breaker_gives_many_threads_one_probe():
    now = [0.0]
    breaker = broken(now)
    assert breaker.enter() is None
    now[0] = 10.0
    gate, tickets = threading.Barrier(8), []

    def ask():
        gate.wait()
        tickets.append(breaker.enter())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in tickets if one is not None]) == 1


def test_breaker_is_shared_by_objects_with_the_same_address_and_key_alone():
    def instance(**how):
        return Instance(OpenAI("m", **{"base_url": "http://127.0.0.1:9/v1", "api_key": "one", **how}), LIMITS)

    first, same = instance(), instance()
    assert first.breaker is same.breaker
    others = [instance(api_key="two"), instance(base_url="http://127.0.0.1:8/v1")]
    assert len({id(one.breaker) for one in (first, *others)}) == 3
    del first, same
    gc.collect()
    assert instance().breaker.busy == 0
