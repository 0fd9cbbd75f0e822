"""Simulate crashes, slow stores and wrong clocks: thousands of schedules, each decided by a seed."""

from __future__ import annotations

import gc
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...agent.agent import Agent
from .grounds import BEATING, DELAYING, GROUNDS, LONG, OWN, Setting
from .outside import Outside
from .promises import BrokenPromise, judge
from .stand_in import StandIn
from .store import Store, Weather
from .world import World, inside, simulated_time

_LONGEST = 900.0  # seconds of the world until everything must have ended
_STORM = (3.0, 20.0)  # seconds after which all faults end, so that everything can come to its end
_REST = 3.0
_REPEAT = "python -m kaname.testing.simulation --seed {seed} --ground {ground} --trace"
_CHOICES = [*OWN, *[name for name in OWN if name not in LONG]]
_ENOUGH = 3  # broken schedules, after which `simulate` stops
_COLLECT = 100  # schedules until everything is collected that outlived its own
_WARM = 50  # schedules


@dataclass(frozen=True)
class PlayedSchedule:
    """What came of one schedule.

    Attributes:
        seed: The seed that repeats it.
        ground: The situation that was simulated.
        broken: The promises that were broken.
        kills: How many processes were killed.
        runs: How many runs there were.
        steps: How many callbacks were executed.
        trace: What happened, line by line, if it was traced.
    """

    seed: int
    ground: str
    broken: tuple[BrokenPromise, ...]
    kills: int = 0
    runs: int = 0
    steps: int = 0
    trace: tuple[str, ...] = ()


def play(
    seed: int,
    ground: str = "",
    *,
    given: Callable[[Setting], StandIn] | None = None,
    words: Any = "Go.",
    forms: Mapping[str, Sequence[Any]] | None = None,
    traced: bool = False,
) -> PlayedSchedule:
    """Play one schedule, inside `simulated_time()`.

    Args:
        seed: It decides everything.
        ground: The situation (default: the seed chooses one of kaname's own).
        given: Makes copies of the agent of a user, for the ground "agent_of_user".
        words: What the user says to it.
        forms: What people answer, by the beginning of the key of a question.
        traced: Keep a line for everything that happens.
    """
    chosen = ground or random.Random(seed).choice(_CHOICES)
    world = World(f"{chosen}/{seed}", traced=traced)
    with inside(world):
        weather = _weather(world)
        store = Store(world, weather, beats=chosen in BEATING and world.chance(0.5))
        there = world.belongings["outside"] = Outside(world, store)
        setting = Setting(world, weather, store, there)
        setting.given, setting.words, setting.forms = given, words, {**setting.forms, **(forms or {})}
        _disturb(setting)
        GROUNDS[chosen](setting)
        _set_clocks(setting, chosen)
        world.run(_LONGEST)
        world.rest(_REST)
        broken = judge(setting.evidence)
        return PlayedSchedule(
            seed, chosen, tuple(broken), world.kills, len(setting.evidence.cards), world.steps, tuple(world.trace or ())
        )


def _weather(world: World) -> Weather:
    """Return the faults of a schedule: some have none, and some have many."""
    chance = world.random
    return Weather(
        slow=chance.choice((0.0, 0.0, 0.05, 0.3)),
        refused=chance.choice((0.0, 0.0, 0.0, 0.03, 0.1)),
        unheard=chance.choice((0.0, 0.0, 0.0, 0.03, 0.1)),
        twice=chance.choice((0.0, 0.0, 0.0, 0.2)),
        killed=chance.choice((0.0, 0.03, 0.08, 0.2)),
        kills_left=chance.choice((0, 1, 1, 2, 2, 3, 4)),
        longest=chance.choice((0.1, 1.0, 5.0)),
    )


def _disturb(setting: Setting) -> None:
    """Plan what happens from outside: kills at any time, and the end of all faults."""
    world, chance, there = setting.world, setting.random, setting.outside
    there.killed = chance.choice((0.0, 0.05, 0.2))
    if chance.random() < 0.25:
        there.busy, there.fails, there.silent = 0.1, 0.05, 0.05
    for _ in range(chance.choice((0, 0, 1, 2))):
        world.at(chance.random() * 10.0, lambda: _kill_one(setting))

    def clear_up() -> None:
        world.tell("the weather clears up")
        setting.weather.clear_up()
        there.clear_up()

    world.at(chance.uniform(*_STORM), clear_up)


def _kill_one(setting: Setting) -> None:
    living = [one for one in setting.world.processes if one.alive and one.name in setting.world.running]
    if living and setting.weather.kills_left > 0:
        setting.weather.kills_left -= 1
        setting.random.choice(living).kill("at some time")


def _set_clocks(setting: Setting, ground: str) -> None:
    """Set the clocks of the processes, and plan their jumps; in some grounds also that processes are taken for dead."""
    world, chance = setting.world, setting.random
    kind = chance.choice(("right", "right", "near", "far"))
    far = 3.0 if ground in DELAYING else 4.0 * (setting.evidence.every or 1_000.0)  # few ticks are missed
    longest = {"right": 0.0, "near": 3.0, "far": far}[kind]
    for process in world.processes:
        process.offset = chance.uniform(-longest, longest)
    if kind != "right" and chance.random() < 0.5:
        world.at(chance.random() * 10.0, lambda: _let_a_clock_jump(setting, longest))
    if ground in BEATING:
        for _ in range(chance.choice((1, 2, 3))):
            world.at(chance.random() * 8.0, lambda: _take_for_dead(setting))


def _let_a_clock_jump(setting: Setting, longest: float) -> None:
    living = [one for one in setting.world.processes if one.alive]
    if living:
        process = setting.random.choice(living)
        process.offset += setting.random.uniform(-longest, longest)
        setting.world.tell(f"the clock of {process} jumps to {process.offset:+.1f} s")


def _take_for_dead(setting: Setting) -> None:
    """Let a process look dead for a while: its lock is lost, or it is frozen until its heartbeat has run out."""
    store, chance = setting.store, setting.random
    living = [(name, one) for name, one in store.owners.items() if one.alive]
    if not living or setting.weather.kills_left <= 0:
        return
    name, process = chance.choice(living)
    store.is_certain = False
    if store.beats:
        process.freeze(store.ttl * chance.uniform(0.2, 3.0))
        return
    store.taken_for_dead[name] = setting.world.now + chance.uniform(0.5, 4.0)
    setting.world.tell(f"the lock of {process} is lost for a while")
    if chance.random() < 0.5:
        process.freeze(chance.uniform(0.2, 5.0))


@dataclass
class Simulation:
    """What `simulate` has found. It is true if no promise was broken.

    Attributes:
        schedules: How many schedules were simulated.
        kills: How many processes were killed in all.
        steps: How many callbacks were executed in all.
        grounds: How many schedules there were of each situation.
        broken: The schedules in which a promise was broken.
        seconds: How many seconds of CPU it took.
        repeat: The command that repeats a schedule, with `{seed}` and `{ground}`.
    """

    schedules: int = 0
    kills: int = 0
    steps: int = 0
    grounds: Counter[str] = field(default_factory=Counter)
    broken: list[PlayedSchedule] = field(default_factory=list)
    seconds: float = 0.0
    repeat: str = ""

    def __bool__(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        head = f"{self.schedules} schedules with {self.kills} kills in {self.seconds:.1f} s: "
        if not self.broken:
            return head + "no promise was broken."
        lines = [head + f"promises were broken in {len(self.broken)} of them."]
        return "\n".join([*lines, *[self.describe(one) for one in self.broken[:10]]])

    def describe(self, one: PlayedSchedule) -> str:
        """Describe what broke in a schedule, and how to repeat it."""
        lines = [f"  seed {one.seed}, {one.ground.replace('_', ' ')}:", *[f"    {found}" for found in one.broken[:5]]]
        return "\n".join([*lines, f"    Repeat it with: {self.repeat.format(seed=one.seed, ground=one.ground)}"])

    def add(self, outcome: PlayedSchedule) -> None:
        """Count a schedule, and keep it if it broke a promise."""
        self.schedules += 1
        self.kills += outcome.kills
        self.steps += outcome.steps
        self.grounds[outcome.ground] += 1
        if outcome.broken:
            self.broken.append(outcome)


def simulate(
    agent: Agent[Any] | Callable[[], Agent[Any]],
    user_input: Any = "Go.",
    *,
    seeds: int | Iterable[int] = 200,
    answers: Mapping[str, Any] | None = None,
    run_tools: bool = False,
    trace: bool = False,
) -> Simulation:
    """Simulate crashes of your agent, slow and failing stores and wrong clocks, and report which promises of kaname break.

    Each seed is a schedule: one or two processes start the same run, die at random moments and are started again, while the
    store answers late, fails, or loses its answers. Time is simulated, so that an hour passes at once.

    The agent is copied, on a journal in memory. A model that calls its tools replaces its own, unless that is a
    `ScriptedModel`. Context parts, sinks and tool servers are left out.

    Args:
        agent: The agent, or a function that makes it.
        user_input: What the user says (default: "Go.").
        seeds: How many new schedules to try (default: 200), or the seeds of those to repeat: `seeds=[123]`. After three in
            which a promise was broken, no further one is tried.
        answers: What people answer, by the beginning of the key of a question: `{"approve:": "yes"}`. By default they say yes
            and no to approvals, and "retry" and "skip" to calls whose outcome is unknown.
        run_tools: True runs the code of the tools. It cannot use the network, because there is none in a simulation. By default
            a stand-in takes the arguments and returns a text.
        trace: Keep what happens in each broken schedule, in `broken[0].trace`.

    Returns:
        A `Simulation`. Print it, or assert it: it is true if nothing broke. Otherwise it names the seed, the promise, what
        happened, and how to repeat it.

    Example:
        ```python
        report = simulate(make_agent, "Pay invoice 42", seeds=1000)
        assert report, report
        ```
    """
    first = secrets.randbelow(10**12)
    chosen = range(first, first + seeds) if isinstance(seeds, int) else seeds
    forms = {key: list(one) if isinstance(one, list | tuple) else [one] for key, one in (answers or {}).items()}
    make = agent if not isinstance(agent, Agent) else lambda: agent

    def make_copies(setting: Setting) -> StandIn:
        return StandIn(make(), setting.outside, setting.random, runs_tools=run_tools)

    told = run_schedules(chosen, "agent_of_user", most=_ENOUGH, given=make_copies, words=user_input, forms=forms, traced=trace)
    told.repeat = "simulate(…, seeds=[{seed}], trace=True)"
    return told


def run_schedules(
    seeds: Iterable[int],
    ground: str = "",
    *,
    most: int = 10,
    report: Callable[[Simulation], None] = lambda told: None,
    **how: Any,
) -> Simulation:
    """Play a schedule for each seed. Stop after `most` broken ones.

    `report` is called with the figures after each schedule. `how`: options of `play`.
    """
    told, began = Simulation(repeat=_REPEAT), time.process_time()
    with simulated_time():
        for seed in seeds:
            outcome = play(seed, ground, **how)
            told.add(outcome)
            told.seconds = time.process_time() - began
            report(told)
            if outcome.broken and len(told.broken) >= most:
                break
            gc.collect(
                0 if told.schedules % _COLLECT else 2
            )  # at once: the next one uses memory that is in the cache of the CPU
            if told.schedules == _WARM:
                gc.freeze()  # what is kept from one schedule to the next, such as prepared statements, stays
    told.seconds = time.process_time() - began
    return told
