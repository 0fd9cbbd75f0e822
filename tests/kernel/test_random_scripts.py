"""Random scripts, random deaths and aborts: the run always comes to the state it would have come to in peace."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, Approve, ScriptedModel, ToolContext, call, max_steps, no_repeats, per_tool, tool
from tests.parts import Died, MortalJournal, assert_valid_history
from tests.properties import tries

calls = st.tuples(st.sampled_from(["pure", "once", "again", "fails", "guarded", "missing", "badly"]), st.integers(0, 9))
turns = st.lists(st.lists(calls, min_size=1, max_size=4), max_size=4)
deaths = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["before", "after", "abort"])), max_size=6)
NO_LIMITS = max_steps(None) | no_repeats(None) | per_tool(None)


class World:
    def __init__(self, script):
        self.done = {}  # what really took effect, by idempotency key
        self.times = {}
        self.journal = MortalJournal()
        replies = [[self.spelled(name, n) for name, n in turn] for turn in script]
        model = ScriptedModel([*replies, "the end"])
        policies = [Approve("guarded")]
        self.agent = Agent(model, self.tools(), policies=policies, stops=NO_LIMITS, journal=self.journal)

    @staticmethod
    def spelled(name, n):
        return call("pure", n="not a number") if name == "badly" else call(name, n=n)

    def tools(self):
        async def effect(name, n, context):
            await asyncio.sleep(0)
            key = context.idempotency_key
            self.times[key] = self.times.get(key, 0) + 1
            self.done[key] = f"{name} {n}"
            await asyncio.sleep(0)
            return self.done[key]

        @tool(effect="pure")
        async def pure(n: int) -> str:
            """Pure."""
            await asyncio.sleep(0)
            return f"pure {n}"

        @tool
        async def once(n: int, context: ToolContext) -> str:
            """Once."""
            return await effect("once", n, context)

        @tool(effect="idempotent")
        async def again(n: int, context: ToolContext) -> str:
            """Again."""
            await effect("again", n, context)
            self.times[context.idempotency_key] = 1
            return f"again {n}"

        @tool(effect="pure")
        async def fails(n: int) -> str:
            """Fails."""
            raise ValueError(f"no {n}")

        @tool
        async def guarded(n: int, context: ToolContext) -> str:
            """Guarded."""
            return await effect("guarded", n, context)

        return [pure, once, again, fails, guarded]

    def answer(self, run, key):
        """A person who looks before answering."""
        if key.startswith("approve:"):
            return "yes"
        known = self.done.get(f"{run}:{key.split(':')[1]}")
        return "retry" if known is None else {"result": known}

    async def live(self, when_to_die):
        run, started = "r", False
        when_to_die = list(when_to_die)
        answers = {}
        for _ in range(60):
            left, how = when_to_die.pop(0) if when_to_die else (None, "")
            handle = self.agent.resume(run, answers) if started else self.agent.run("go", run_id=run)
            self.journal.revive(left, after=how == "after", instead=handle.abort if how == "abort" else None)
            try:
                result = await handle
                answers = {key: self.answer(run, key) for key in result.questions}
                started = bool(await self.journal.runs(run_id=run))
                if result.completed:
                    return result
            except Died:
                self.journal.revive()
                started = bool(await self.journal.runs(run_id=run))
                answers = {}
        raise AssertionError("it never came to an end")


def what_counts(result):
    state = result.state
    return (state.messages, state.results, state.output, state.stop, state.usage, state.open, state.started, state.questions)


@given(turns, deaths)
@tries(120)
def test_any_script_with_any_deaths_reaches_the_same_final_state(script, when_to_die):
    async def go():
        peaceful, mortal = World(script), World(script)
        wanted = await peaceful.live([])
        reached = await mortal.live(when_to_die)
        assert what_counts(reached) == what_counts(wanted)
        assert mortal.done == peaceful.done
        assert all(times == 1 for times in mortal.times.values()), "an effect was repeated"
        assert_valid_history(reached.history)
        recorded = [event.seq async for event in mortal.journal.read("r")]
        assert recorded == list(range(1, len(recorded) + 1))
        assert (await mortal.agent.replay("r")).same

    asyncio.run(go())
