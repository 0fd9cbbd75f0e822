"""Times of kaname next to the hand-written loop. They say nothing on a busy machine, so they never fail the gate."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from .processes import output_of

SLOW, BUSY = 1.25, 1.5  # a core that is slower than at its best; a process that had to wait for its core


@dataclass
class Row:
    """One time: what is measured, with which journal, and how many times as long as the loop it takes at most."""

    name: str
    unit: str
    sample: str
    journal: str
    wanted: float
    ours: list[dict[str, float]] = field(default_factory=list)
    theirs: list[dict[str, float]] = field(default_factory=list)


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


def measure(rounds: int, url: str, environment: dict[str, str]) -> list[Row]:
    """Take samples of kaname and of the loop in turn, each in a fresh process."""
    made = rows()
    for _ in range(rounds):
        loops: dict[str, dict[str, float]] = {}  # one sample serves both journals
        for row in made:
            with tempfile.TemporaryDirectory() as folder:
                journal = row.journal if row.journal == "memory" else str(Path(folder) / row.journal)
                row.ours.append(_sample(row, "kaname", url, journal, environment))
            if row.sample not in loops:
                loops[row.sample] = _sample(row, "aiohttp", url, "none", environment)
            row.theirs.append(loops[row.sample])
    return made


def _sample(row: Row, who: str, url: str, journal: str, environment: dict[str, str]) -> dict[str, float]:
    taken: dict[str, float] = output_of(["-m", "gate.sample", row.sample, who, url, journal], environment)
    return taken


def _best(samples: list[dict[str, float]], calibration: float) -> tuple[float, bool]:
    """Return the shortest time, and whether the core was at its best speed. Samples of a slow core count only if all are."""
    quick = [sample for sample in samples if sample["calibration"] <= SLOW * calibration]
    return min(sample["took"] for sample in quick or samples), bool(quick)


def show(made: list[Row]) -> None:
    samples = list({id(sample): sample for row in made for sample in (*row.ours, *row.theirs)}.values())
    calibration = min(sample["calibration"] for sample in samples)
    print(
        f"\nTimes: CPU of the client, best of {len(made[0].ours)}, next to the aiohttp loop (calibration: {calibration:.1f} ms)"
    )
    print(f"  {'':<42}{'kaname':>9}{'aiohttp':>9}     {'ratio':>6}{'wanted':>8}")
    for row in made:
        ours, quick = _best(row.ours, calibration)
        theirs, also = _best(row.theirs, calibration)
        marks = ["ABOVE"] if ours / theirs > row.wanted else []
        marks += [] if quick and also else ["(slow core: not comparable)"]
        print(
            f"  {row.name:<42}{ours:9.2f}{theirs:9.2f} {row.unit:<3}{ours / theirs:6.2f} ×{row.wanted:6.2f}  {' '.join(marks)}"
        )
    slow = sum(sample["calibration"] > SLOW * calibration for sample in samples)
    busy = sum(sample["contended"] > BUSY for sample in samples)
    if slow or busy:
        print(f"Of {len(samples)} samples, {slow} ran on a slow core and {busy} had to wait for it: the machine was busy.")
        print("Do not trust the times; the counts hold.")


def run(rounds: int, url: str, environment: dict[str, str]) -> None:
    """Measure and print."""
    if find_spec("aiohttp") is None:
        print("\nTimes: aiohttp is missing. Run: uv run --all-extras python benchmarks/gate.py")
        return
    show(measure(rounds, url, environment))
