"""The regret of `AdaptiveAgent`'s choice: against chance, and against the best alternative if one is used for all runs.

    uv run python benchmarks/adaptive.py [runs] [seeds]

Three alternatives succeed with different probabilities. With drift, these change: the best becomes the worst after half of the
runs ("swap"), or they move slowly around ("slow"). Regret: what a choice that knows them would have achieved more, in successes.
"""

import sys
from collections import deque
from math import pi, sin
from random import Random

from kaname.evals.adaptive import Standing, choose

NAMES = ("first", "second", "third")


def rates(world, step, runs):
    if world == "steady":
        return (0.5, 0.6, 0.8)
    if world == "alike":
        return (0.7, 0.7, 0.72)
    if world == "swap":
        return (0.5, 0.6, 0.8) if step < runs // 2 else (0.8, 0.6, 0.4)
    return tuple([0.6 + 0.2 * sin(2 * pi * (step / runs + place / 3)) for place in range(3)])


def simulate(world, how, runs, seed):
    chance, regret, explored_in_all = Random(seed), 0.0, 0
    last = deque(maxlen=how.get("window", 300))
    for step in range(runs):
        now = rates(world, step, runs)
        if "fixed" in how:
            chosen, best = NAMES[how["fixed"]], NAMES[how["fixed"]]
        elif "random" in how:
            chosen, best = chance.choice(NAMES), ""
        else:
            standings = []
            for name in NAMES:
                got = [reward for one, _, reward in last if one == name]
                standings.append(Standing("", name, len(got), len(got), sum(got) / len(got) if got else None))
            chosen, best = choose(standings, sum([explored for _, explored, _ in last]), how["explore"], chance)
        explored_in_all += chosen != best
        place = NAMES.index(chosen)
        last.append((chosen, chosen != best, float(chance.random() < now[place])))
        regret += max(now) - now[place]
    return regret, explored_in_all / runs


def main(runs=2000, seeds=20):
    ways = {
        "chance": {"random": True},
        **{f"only {name}": {"fixed": place} for place, name in enumerate(NAMES)},
        "explore 0.05": {"explore": 0.05},
        "explore 0.2 (default)": {"explore": 0.2},
        "explore 1.0": {"explore": 1.0},
        "explore 0.2, window 2000": {"explore": 0.2, "window": 2000},
    }
    print(f"regret in successes of {runs} runs, mean of {seeds} seeds (share of runs that explored)")
    for world in ("steady", "alike", "swap", "slow"):
        for name, how in ways.items():
            made = [simulate(world, how, runs, seed) for seed in range(1 if "fixed" in how else seeds)]
            regret, explored = [sum(one) / len(made) for one in zip(*made, strict=True)]
            told = f"  ({explored:.0%})" if "explore" in name else ""
            print(f"{world:8} {name:26} {regret:7.1f}{told}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
