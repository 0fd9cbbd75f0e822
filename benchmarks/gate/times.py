"""Times of kaname next to the hand-written loop. They say nothing on a busy machine, so they never fail the gate."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from .processes import output_of

Samples = list[dict[str, float]]

SLOW, BUSY = 1.25, 1.5  # a core that is slower than at its best; a process that had to wait for its core


@dataclass
class Row:
    """One time: what is measured, with which journal, and how many times as long as the loop it takes at most."""

    name: str
    unit: str
    sample: str
    journal: str
    wanted: float
    ours: Samples = field(default_factory=list)
    loop: Samples = field(default_factory=list)
    peers: dict[str, Samples] = field(default_factory=dict)

    def ratio(self, samples: Samples) -> float:
        """Return how many times as long as the loop it takes: the median of the rounds, in which both run one after the other."""
        return median([one["took"] / loop["took"] for one, loop in zip(samples, self.loop, strict=True)])


def took(samples: Samples) -> float:
    return median([sample["took"] for sample in samples])


def rows() -> list[Row]:
    return [
        Row("a step", "ms", "step", "memory", 1.1),
        Row("a step, SQLite journal", "ms", "step", "journal.db", 1.8),
        Row("200 runs of five steps at once", "ms", "together", "memory", 1.3),
        Row("the same, SQLite journal", "ms", "together", "journal.db", 1.7),
        Row("first answer (import, build, first run)", "ms", "first", "memory", 0.8),
        Row("import with Agent", "ms", "import", "memory", 0.3),
        Row("a streamed chunk", "µs", "chunk", "memory", 0.8),
    ]


def measure(rounds: int, url: str, environment: dict[str, str], peers: Mapping[str, str] | None = None) -> list[Row]:
    """Take samples of kaname, the loop and the peers in turn, each in a fresh process. `peers`: the Python of each."""
    made = rows()
    for _ in range(rounds):
        loops: dict[str, dict[str, float]] = {}  # one sample serves both journals
        for row in made:
            with tempfile.TemporaryDirectory() as folder:
                journal = row.journal if row.journal == "memory" else str(Path(folder) / row.journal)
                row.ours.append(_sample(row, "kaname", url, journal, environment))
            if row.sample not in loops:
                loops[row.sample] = _sample(row, "aiohttp", url, "none", environment)
            row.loop.append(loops[row.sample])
            if row.journal == "memory":
                for peer, python in (peers or {}).items():
                    row.peers.setdefault(peer, []).append(_sample(row, peer, url, "none", environment, python))
    return made


def _sample(
    row: Row, who: str, url: str, journal: str, environment: dict[str, str], python: str = sys.executable
) -> dict[str, float]:
    taken: dict[str, float] = output_of(["-m", "gate.sample", row.sample, who, url, journal], environment, python)
    return taken


def show(made: list[Row]) -> None:
    print(f"\nTimes: CPU of the client, medians of {len(made[0].ours)}, next to the aiohttp loop")
    print(f"  {'':<42}{'kaname':>9}{'aiohttp':>9}     {'ratio':>6}{'wanted':>8}")
    for row in made:
        ratio = row.ratio(row.ours)
        mark = "  ABOVE" if ratio > row.wanted else ""
        print(f"  {row.name:<42}{took(row.ours):9.2f}{took(row.loop):9.2f} {row.unit:<3}{ratio:6.2f} ×{row.wanted:6.2f}{mark}")
    print("\n".join(noise(made)))


def noise(made: list[Row]) -> list[str]:
    """Return lines that say how quiet the machine was."""
    samples = list({id(sample): sample for row in made for sample in (*row.ours, *row.loop)}.values())
    calibration = min(sample["calibration"] for sample in samples)
    slow = sum(sample["calibration"] > SLOW * calibration for sample in samples)
    busy = sum(sample["contended"] > BUSY for sample in samples)
    lines = [f"Calibration: a fixed piece of work took {calibration:.1f} ms of CPU at best."]
    if slow or busy:
        lines.append(
            f"Of {len(samples)} samples, {slow} ran on a slow core and {busy} had to wait for it: the machine was busy."
        )
        lines.append("Do not trust the times; the counts hold.")
    return lines


def run(rounds: int, url: str, environment: dict[str, str]) -> None:
    """Measure and print."""
    if find_spec("aiohttp") is None:
        print("\nTimes: aiohttp is missing. Run: uv run --all-extras python benchmarks/gate.py")
        return
    show(measure(rounds, url, environment))
