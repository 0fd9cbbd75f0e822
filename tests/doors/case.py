"""One case: made from a seed, played, and held against the monitor; shrunk if it breaks a promise."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from kaname.testing.combine.monitor import Breach, find_broken
from kaname.testing.combine.ways import WAYS

from . import served
from .draft import Draft
from .features import FEATURES

assert served  # it adds its ways to `WAYS`
_SHM = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
_HANGS = 300  # seconds: a case takes 30 ms, and many times that on a busy machine


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    seed: int
    features: tuple[str, ...]
    broken: tuple[Breach, ...]


def names() -> list[str]:
    """Return the names of all features, ways in among them."""
    return [*[name for name in FEATURES if not name.startswith("_")], *[f"way:{name}" for name in WAYS if name != "run"]]


def chosen(seed: int, forced: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the features of a seed: two or three that are forced on together, and others at random."""
    rng = random.Random(seed)
    every = names()
    picked = set(forced) or set(rng.sample(every, rng.choice((2, 2, 3))))
    picked |= {name for name in every if rng.random() < 0.07 and not name.startswith("way:")}
    ways = [name for name in every if name in picked and name.startswith("way:")]
    for name in ways[1:]:
        picked.discard(name)
    if not ways and rng.random() < 0.25:
        picked.add(rng.choice([name for name in every if name.startswith("way:")]))
    return tuple(name for name in every if name in picked)


@contextmanager
def passing_time() -> Iterator[Callable[[float], None]]:
    """Yield a function that sets the clock forward, so that questions expire without waiting."""
    real, ahead = time.time, [0.0]

    def pass_time(seconds: float) -> None:
        ahead[0] += seconds

    with patch("time.time", lambda: real() + ahead[0]):
        yield pass_time


async def play(draft: Draft) -> None:
    """Play a drafted case to its end."""
    with passing_time() as pass_time:
        await _play(draft, pass_time)


async def _play(draft: Draft, pass_time: Callable[[float], None]) -> None:
    stage = draft.open()
    stage.pass_time = pass_time
    for move in draft.before:
        await move(stage, draft)
    await WAYS[draft.way](stage)
    if draft.journal.dead:
        await draft.journal.revive()
    for move in draft.moves:
        await move(stage, draft)
    await stage.read_all()
    close = getattr(draft.journal.inner, "close", None)
    if close is not None:
        await close()


def draft(seed: int, features: tuple[str, ...], folder: Path | None = None) -> Draft:
    """Return the draft that these features make."""
    made = Draft(seed, features, folder=folder)
    made.way = next((name[4:] for name in features if name.startswith("way:")), "run")
    for name, apply in FEATURES.items():
        if name in features or name.startswith("_"):
            apply(made, made.rng(name))
    return made


def run_case(seed: int, features: tuple[str, ...] | None = None, *, show: bool = False) -> Outcome:
    """Make, play and judge the case of a seed. `show`: print its ledger."""
    features = chosen(seed) if features is None else features
    folder = Path(tempfile.mkdtemp(prefix="doors", dir=_SHM))
    random.seed(seed)
    try:
        made = draft(seed, features, folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                asyncio.run(asyncio.wait_for(play(made), _HANGS))
            except Exception as error:
                made.ledger.fail("the case", error)
        if show:
            print("\n".join(told(made)))
        return Outcome(seed, features, tuple(find_broken(made.rules, made.ledger)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(made: Draft) -> list[str]:
    """Return the ledger of a case as lines, in its order."""
    ledger = made.ledger
    lines = [
        (one.at, f"ran      {one.tool}({dict(one.args)}) run={one.run} agent={one.agent} user={one.user}")
        for one in ledger.deeds
    ]
    lines += [(one.at, f"model    {one.model} read {one.text[-300:]!r} -> {one.calls or one.said}") for one in ledger.seen]
    lines += [
        (one.at, f"answered {one.value!r} by {one.by!r} to {one.key} {one.tool}: accepted={one.accepted} {one.problem}")
        for one in ledger.answers
    ]
    lines += [(one.at, f"failed   {one.during}: {one.error!r}") for one in ledger.failures]
    lines += [(one.at, f"got      {one.user}: {one.text!r} ({one.kind}) run={one.run}") for one in ledger.got]
    lines += [(at, f"stopped  {run}") for run, at in ledger.stopped.items()]
    lines += [(at, f"expired  {run}") for at, run in ledger.expired]
    return [f"{at:4} {line}" for at, line in sorted(lines)]


def shrink(outcome: Outcome, rule: str) -> Outcome:
    """Drop features one by one while the same rule still breaks."""
    current = outcome
    for name in outcome.features:
        fewer = tuple(one for one in current.features if one != name)
        tried = run_case(outcome.seed, fewer)
        if any(one.rule == rule for one in tried.broken):
            current = tried
    return current
