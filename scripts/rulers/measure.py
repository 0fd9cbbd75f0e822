"""The table of measures, and the baseline that no number may exceed by more than a small slack.

Each row has the number of HOUSE.md when the renovation began, the number that is wanted, and the slack: the share by which
the number can be worse than the baseline. HOUSE.md counted a little otherwise; the functions in `counts.py` and `journeys.py`
say how each number is counted here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from . import counts
from .journeys import JOURNEYS, Journey, journey

BASELINE = Path(__file__).with_name("baseline.json")


class Row(NamedTuple):
    """A measure. Smaller is better.

    Attributes: count: Takes the number. before, wanted: The columns of HOUSE.md, as text; "" if it names none. slack: The share
    of the baseline by which the number can grow; at least 1 is always allowed for journeys.
    """

    name: str
    count: Callable[[], int]
    before: str
    wanted: str
    slack: float = 0.0
    places: Callable[[], Iterator[str]] | None = None


@cache
def _journey(name: str) -> Journey:
    return journey(name)


_HOUSE = {  # files now and wanted, moves now and wanted
    "run with one tool": ("50", "40", "338", "220"),
    "the way in alone": ("20", "", "55", "12"),
    "resume with an answer": ("67", "50", "397", "250"),
    "served approval": ("81", "50", "1,230", "500"),
    "delegation": ("55", "45", "643", "400"),
    "queued run": ("", "", "", ""),
}


def _journeys() -> Iterator[Row]:
    for name in JOURNEYS:
        files, fewer, moves, less = _HOUSE[name]
        yield Row(f"{name}: files", lambda name=name: _journey(name).files, files, fewer, 0.03)
        yield Row(f"{name}: moves", lambda name=name: _journey(name).moves, moves, less, 0.03)


def _listed(name: str, places: Callable[[], Iterator[str]], before: str, wanted: str, slack: float = 0.0) -> Row:
    return Row(name, lambda: sum(1 for _ in places()), before, wanted, slack, places)


def _undescribed() -> Iterator[str]:
    yield from counts.described_parameters()[2]


ROWS = (
    *_journeys(),
    Row("lines of Python", counts.lines, "92,300", "84,000", 0.01),
    _listed("optional members of ports", counts.optional_members, "57", "25"),
    _listed("members of Policy", counts.policy_members, "12", ""),
    _listed(f"functions with a complexity over {counts.COMPLEX}", counts.complex_functions, "102", "50", 0.02),
    _listed(f"functions over {counts.LONG} lines", counts.long_functions, "39", "12", 0.02),
    _listed("imports inside functions", counts.inner_imports, "200", "100", 0.02),
    *[
        _listed(kind, lambda kind=kind: counts.second_ways(kind), before, wanted)
        for kind, before, wanted in (
            ("functions that record an answer", "", "1"),
            ("functions that ask policies for demands", "", "1"),
            ("functions that compare two calls", "", "1"),
            ("functions that estimate tokens", "4", "1"),
            ("functions that double a pause", "12", "1"),
        )
    ],
    _listed("modules that lock files", counts.file_locks, "4", "1"),
    _listed("sentence splitters", counts.sentence_splitters, "9", "1"),
    _listed("parameters of public names without a description", _undescribed, "32 %", "0"),
    _listed('docstrings that begin with "Return what", "why", "how"', counts.vague_docstrings, "171", "0", 0.02),
    _listed("names told, given, found, held", counts.participle_names, "", "", 0.02),
    _listed("lines of tests that use private names", counts.private_in_tests, "157", "30", 0.02),
)


def measure() -> Mapping[str, int]:
    """Return the number of each row."""
    return {row.name: row.count() for row in ROWS}


def baseline() -> Mapping[str, int]:
    numbers: Mapping[str, int] = json.loads(BASELINE.read_text(encoding="utf-8"))
    return numbers


def record(numbers: Mapping[str, int]) -> None:
    BASELINE.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def allowed(row: Row, recorded: int) -> int:
    """Return the largest number that does not fail: the recorded one, and its slack."""
    return recorded + round(recorded * row.slack)


def worse(numbers: Mapping[str, int], recorded: Mapping[str, int]) -> Iterator[str]:
    """Yield the measures that are worse than the baseline by more than their slack."""
    for row in ROWS:
        if (limit := recorded.get(row.name)) is not None and numbers[row.name] > allowed(row, limit):
            where = "python scripts/house.py measure " + repr(row.name)
            yield f"{row.name}: {numbers[row.name]}, the baseline is {limit} and at most {allowed(row, limit)} pass: {where}"


def table(numbers: Mapping[str, int], recorded: Mapping[str, int]) -> str:
    """Return the measures as a table for the terminal, which is also valid Markdown."""
    rows = [("", "before", "baseline", "now", "wanted"), ("---", "---:", "---:", "---:", "---:")]
    for row in ROWS:
        base = recorded.get(row.name)
        rows.append((row.name, row.before, "" if base is None else f"{base:,}", f"{numbers[row.name]:,}", row.wanted))
    widths = [max(len(line[column]) for line in rows) for column in range(5)]
    return "\n".join(
        "| "
        + " | ".join([line[0].ljust(widths[0]), *[one.rjust(width) for one, width in zip(line[1:], widths[1:], strict=True)]])
        + " |"
        for line in rows
    )


def details(name: str) -> Iterator[str]:
    """Yield what a row counts: the places, or for a journey the most frequent moves."""
    for row in ROWS:
        if row.name == name and row.places is not None:
            yield from row.places()
        elif row.name == name and (what := name.rpartition(":")[0]) in JOURNEYS:
            yield from (f"{count:5}  {one} -> {other}" for (one, other), count in _journey(what).pairs.most_common())
