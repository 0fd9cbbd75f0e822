"""Simulate crashes, slow stores and wrong clocks: thousands of schedules, each decided by a seed."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .grounds import BEATING, DELAYING, GROUNDS, OWN, Setting
from .outside import Outside
from .promises import BrokenPromise, judge
from .store import Store, Weather
from .world import World, inside, simulated_time

_LONGEST = 900.0  # seconds of the world until everything must have ended
_STORM = (3.0, 20.0)  # seconds after which all faults end, so that everything can come to its end
_REST = 3.0
_COLLECT = 50  # schedules


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
    given: Callable[[], Any] | None = None,
    words: Any = "Go.",
    forms: Mapping[str, Sequence[Any]] | None = None,
    traced: bool = False,
) -> PlayedSchedule:
    """Play one schedule, inside `simulated_time()`.

    Args:
        seed: It decides everything.
        ground: The situation (default: the seed chooses one of kaname's own).
        given: Makes the agent of a user, for the ground "agent_of_user".
        words: What the user says to it.
        forms: What people answer, by the beginning of the key of a question.
        traced: Keep a line for everything that happens.
    """
    chosen = ground or random.Random(seed).choice(OWN)
    world = World(f"{chosen}/{seed}", traced=traced)
    with inside(world):
        weather = _weather(world)
        store = Store(world, weather, beats=False)
        there = world.belongings["outside"] = Outside(world, store)
        setting = Setting(world, weather, store, there)
        setting.given, setting.words, setting.forms = given, words, {**(forms or {}), **setting.forms}
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
    """Return which faults a schedule has: some have none, and some have many."""
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
    longest = {"right": 0.0, "near": 3.0, "far": 3.0 if ground in DELAYING else 5000.0}[kind]
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
    living = [(name, one) for name, one in setting.store.owners.items() if one.alive]
    if living and setting.weather.kills_left > 0:
        name, process = setting.random.choice(living)
        setting.store.is_certain = False
        setting.store.taken_for_dead[name] = setting.world.now + setting.random.uniform(0.5, 4.0)
        setting.world.tell(f"the lock of {process} is lost for a while")
        if setting.random.random() < 0.5:
            process.freeze(setting.random.uniform(0.2, 5.0))


@dataclass
class Simulation:
    """What `simulate` has found. It is true if no promise was broken.

    Attributes:
        schedules: How many schedules were simulated.
        kills: How many processes were killed in all.
        broken: The schedules in which a promise was broken.
        seconds: How many seconds of CPU it took.
        repeat: The command that repeats a schedule, with `{seed}` and `{ground}`.
    """

    schedules: int = 0
    kills: int = 0
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
        for one in self.broken[:10]:
            lines.append(f"  seed {one.seed}, {one.ground}:")
            lines += [f"    {found}" for found in one.broken[:5]]
            lines.append(f"    Repeat it with: {self.repeat.format(seed=one.seed, ground=one.ground)}")
        return "\n".join(lines)


def run_schedules(seeds: Iterable[int], ground: str = "", *, most: int = 10, **how: Any) -> Simulation:
    """Play a schedule for each seed. Stop after `most` broken ones. `how`: options of `play`."""
    told, began = (
        Simulation(repeat="python -m kaname.testing.simulation --seed {seed} --ground {ground} --trace"),
        time.process_time(),
    )
    with simulated_time():
        for seed in seeds:
            outcome = play(seed, ground, **how)
            told.schedules += 1
            told.kills += outcome.kills
            if outcome.broken:
                told.broken.append(outcome)
                if len(told.broken) >= most:
                    break
            if told.schedules % _COLLECT == 0:
                gc.collect()
    told.seconds = time.process_time() - began
    return told
