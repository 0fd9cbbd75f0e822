"""Simulate kaname's own grounds: `python -m kaname.testing.simulation --schedules 1000 [--seed N] [--ground G]`."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from .grounds import OWN
from .simulate import PlayedSchedule, Simulation, play, run_schedules
from .world import simulated_time

_SENT = 1.0  # seconds between two reports of a process


def _tell(*lines: str) -> None:
    sys.stdout.writelines([f"{line}\n" for line in lines])
    sys.stdout.flush()


class _Work(NamedTuple):
    """What one process plays: the schedules of these seeds."""

    seeds: range
    ground: str
    most: int


class _Signals:
    """Whether this process was asked to end, by SIGTERM or Ctrl-C. The schedule under way is played to its end."""

    def __init__(self) -> None:
        self.came = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        self.came = True

    def until(self, seeds: range) -> Iterator[int]:
        """Yield the seeds until the process is asked to end."""
        for seed in seeds:
            if self.came:
                return
            yield seed


class _Progress:
    """The figures of all processes, and a line of them at times. `every`: seconds between two lines; 0 for none."""

    def __init__(self, first: int, every: float) -> None:
        self._parts: dict[int, Simulation] = {}
        self._every, self._began = every, time.monotonic()
        self._next = self._began + every
        self._told = set[int]()
        _tell(f"seeds from {first}")

    def take(self, part: int, told: Simulation) -> None:
        """Keep the figures of a process, print a new broken schedule at once, and a line if it is time."""
        self._parts[part] = told
        for one in told.broken:
            if one.seed not in self._told:
                self._told.add(one.seed)
                _tell(told.describe(one))
        if self._every and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            _tell(self.line())

    @property
    def failures(self) -> list[PlayedSchedule]:
        return [one for part in self._parts.values() for one in part.broken]

    def line(self) -> str:
        """Return the figures of all processes in one line."""
        parts = self._parts.values()
        schedules, seconds = sum([one.schedules for one in parts]), sum([one.seconds for one in parts])
        counts = {name: sum([one.grounds[name] for one in parts]) for name in OWN}
        return (
            f"{schedules:,} schedules with {sum([one.kills for one in parts]):,} kills and "
            f"{sum([one.steps for one in parts]):,} steps, {len(self.failures)} broken; "
            f"{60 * schedules / max(seconds, 1e-9):,.0f} schedules a minute and core, {seconds:,.0f} s of CPU in "
            f"{time.monotonic() - self._began:,.0f} s; {', '.join([f'{name} {number:,}' for name, number in counts.items()])}"
        )


def _play_apart(work: _Work, sent: Connection) -> None:
    """Play schedules in a process of its own, and send the figures now and then."""
    signals, due = _Signals(), time.monotonic() + _SENT

    def report(told: Simulation) -> None:
        nonlocal due
        if time.monotonic() >= due or told.broken:
            due = time.monotonic() + _SENT
            sent.send(told)

    sent.send(run_schedules(signals.until(work.seeds), work.ground, most=work.most, report=report))
    sent.close()


def _play_all(works: list[_Work], progress: _Progress) -> bool:
    """Play schedules in several processes, until enough of them broke or we are asked to end.

    Return False if a process has died.
    """
    processes = []
    for work in works:
        received, sent = multiprocessing.Pipe(duplex=False)
        processes.append((multiprocessing.Process(target=_play_apart, args=(work, sent), daemon=True), received))
        processes[-1][0].start()
        sent.close()
    signals = _Signals()
    places = {received: place for place, (_, received) in enumerate(processes)}
    while places:
        for ready in wait(list(places), timeout=_SENT):
            assert isinstance(ready, Connection)
            try:
                progress.take(places[ready], ready.recv())
            except EOFError:
                del places[ready]
        if signals.came or len(progress.failures) >= works[0].most:
            for process, _ in processes:
                process.terminate()
    for process, _ in processes:
        process.join()
    return all(process.exitcode == 0 for process, _ in processes)


def main() -> int:
    """Play schedules, and print the rate and each seed that breaks a promise; or repeat one with everything that happens."""
    parser = argparse.ArgumentParser(prog="python -m kaname.testing.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many schedules to play (default: 1000)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: a new one)")
    parser.add_argument("--ground", default="", choices=["", *OWN], help="only this ground (default: the seed chooses)")
    parser.add_argument("--trace", action="store_true", help="play the schedule of the seed, and print what happens")
    parser.add_argument("--most", type=int, default=10, help="stop after so many broken schedules (default: 10)")
    parser.add_argument("--processes", type=int, default=1, help="play in so many processes at once (default: 1)")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two lines of figures (default: 60; 0: none)")
    given = parser.parse_args()
    first = secrets.randbelow(10**12) if given.seed is None else given.seed
    if given.trace:
        with simulated_time():
            outcome = play(first, given.ground, traced=True)
        _tell(*outcome.trace)
        _tell(f"seed {first}, {outcome.ground}: {outcome.kills} kills, {outcome.runs} runs, {outcome.steps} steps")
        _tell(*[str(one) for one in outcome.broken])
        return 1 if outcome.broken else 0
    progress, seeds, well = _Progress(first, given.every), range(first, first + given.schedules), True
    if given.processes > 1:
        parts = [seeds[place :: given.processes] for place in range(given.processes)]
        well = _play_all([_Work(part, given.ground, given.most) for part in parts], progress)
    else:
        signals = _Signals()
        told = run_schedules(signals.until(seeds), given.ground, most=given.most, report=lambda told: progress.take(0, told))
        progress.take(0, told)
    _tell(f"seeds from {first}: {progress.line()}")
    if not well:
        _tell("A process has died: not all of its schedules are counted.")
    return 1 if progress.failures or not well else 0


if __name__ == "__main__":
    sys.exit(main())
