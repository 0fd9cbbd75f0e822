"""Simulate kaname's own grounds: `python -m kaname.testing.simulation --schedules 1000 [--seed N] [--ground G]`."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from .grounds import OWN
from .simulate import play, run_schedules
from .world import simulated_time


def _tell(*lines: str) -> None:
    sys.stdout.writelines([f"{line}\n" for line in lines])


def main() -> int:
    """Play schedules, and print the rate and each seed that breaks a promise; or repeat one with everything that happens."""
    parser = argparse.ArgumentParser(prog="python -m kaname.testing.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many schedules to play (default: 1000)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: a new one)")
    parser.add_argument("--ground", default="", choices=["", *OWN], help="only this ground (default: the seed chooses)")
    parser.add_argument("--trace", action="store_true", help="play the schedule of the seed, and print what happens")
    parser.add_argument("--most", type=int, default=10, help="stop after so many broken schedules (default: 10)")
    given = parser.parse_args()
    first = secrets.randbelow(10**12) if given.seed is None else given.seed
    if given.trace:
        with simulated_time():
            outcome = play(first, given.ground, traced=True)
        _tell(*outcome.trace)
        _tell(f"seed {first}, {outcome.ground}: {outcome.kills} kills, {outcome.runs} runs, {outcome.steps} steps")
        _tell(*[str(one) for one in outcome.broken])
        return 1 if outcome.broken else 0
    began = time.monotonic()
    told = run_schedules(range(first, first + given.schedules), given.ground, most=given.most)
    _tell(f"seeds from {first}: {told}")
    rate = 60 * told.schedules / max(told.seconds, 1e-9)
    _tell(f"{rate:.0f} schedules a minute and core ({time.monotonic() - began:.1f} s)")
    return 0 if told else 1


if __name__ == "__main__":
    sys.exit(main())
