"""The recorded counts, and the comparison with them."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .processes import output_of

RECORDED = Path(__file__).with_name("recorded.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
SLIP, LITTLE = 0.03, 0.05  # a count that grew by more than 3 %, and by more than this in all, has slipped
SLICED = 0.1  # the same for chunks: how the network slices a stream changes their number of calls
SELDOM = 0.1  # functions that a step calls less often are not recorded
GROWN = 0.5  # more calls of a function than this are named even if the count has not slipped
NAMED = 10  # of the functions that grew, or the modules that are new

Details = dict[str, dict[str, float]]

# The rows: the name, the kind of count (see counts.py; "import" counts modules), and the meter. Without a meter all are added up.
ROWS: list[tuple[str, str, str | None]] = [
    ("function calls per step", "calls", None),
    ("function calls per step, next to 20 waiting runs", "beside", None),
    ("function calls per streamed chunk", "chunks", None),
    ("timers per step", "meters", "timers"),
    ("tasks per step", "meters", "tasks"),
    ("JSON encodings per step", "meters", "encodings"),
    ("socket sends per step", "meters", "sends"),
    ("JSON encodings per step, SQLite", "sqlite", "encodings"),
    ("commits per step, SQLite", "sqlite", "commits"),
    ("SQL statements that write per step, SQLite", "sqlite", "statements"),
    ("modules of `import kaname`", "import kaname", None),
    ("modules of `from kaname import Agent`", "from kaname import Agent", None),
]
KINDS = list(dict.fromkeys(kind for _, kind, _ in ROWS))
_MODULES = (
    "import sys; before = set(sys.modules); {}; new = sorted(set(sys.modules) - before); import json; print(json.dumps(new))"
)


def count(kinds: list[str], url: str, environment: dict[str, str]) -> Details:
    """Count these kinds, each in a fresh process."""

    def one(kind: str) -> dict[str, float]:
        if "import" in kind:
            return dict.fromkeys(output_of(["-c", _MODULES.format(kind)], environment), 1.0)
        found: dict[str, float] = output_of(["-m", "gate.counts", kind, url], environment)
        return found

    with ThreadPoolExecutor(2) as threads:
        return dict(zip(kinds, threads.map(one, kinds), strict=True))


def totals(details: Details) -> dict[str, float]:
    """Return the number of each row that was counted."""
    return {
        name: sum(details[kind].values()) if meter is None else details[kind].get(meter, 0.0)
        for name, kind, meter in ROWS
        if kind in details
    }


def read() -> dict[str, Any] | None:
    """Return the record for this version of Python, if there is one."""
    known: dict[str, Any] = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    return known.get(VERSION)


def write(details: Details) -> None:
    known = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    rounded = {
        kind: {name: round(value, 2) for name, value in sorted(found.items()) if value >= SELDOM}
        for kind, found in details.items()
        if kind not in ("beside", "meters", "sqlite")
    }
    known[VERSION] = {"totals": {name: round(value, 2) for name, value in totals(details).items()}, "details": rounded}
    RECORDED.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n", "utf-8")


def has_slipped(name: str, now: float, before: float) -> bool:
    return now > before * (1 + (SLICED if "chunk" in name else SLIP)) and now > before + LITTLE


def growth(kind: str, details: Details, recorded: Details, least: float = SELDOM) -> list[str]:
    """Return a line for each function or module that grew most."""
    before = recorded.get("calls" if kind == "beside" else kind, {})
    grown = {name: value - before.get(name, 0.0) for name, value in details[kind].items()}
    most = sorted(grown, key=lambda name: -grown[name])[:NAMED]
    return [f"{grown[name]:+8.2f}  {name}" for name in most if grown[name] >= least]
