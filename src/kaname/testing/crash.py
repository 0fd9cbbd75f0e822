"""Kill an agent at every fact, and see that nothing is lost and nothing irreversible happens twice.

    from kaname.testing import crash

    def test_my_agent_survives():
        crash.check("my_app:make_agent", "Pay invoice 42")

Real processes die by SIGKILL: right before each fact, right after each fact, and at random moments in between. Each run is
then resumed by a new process and compared with one that was left in peace. `make_agent` takes no arguments; its journal is
replaced by a SQLite file of the check's own, and `KANAME_CRASH_FOLDER` names a folder for the outside world of one run.
Its model should answer the same to the same messages, as `ScriptedModel` does.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.notices import notice
from ..core.record import record

_ANSWERS = {"approve:": "yes", "in-doubt:": "skip"}


class CrashCheckFailed(AssertionError): ...


@record
class Report:
    """`kills`: processes that died by SIGKILL. `in_doubt`: questions about interrupted calls, asked instead of repeating."""

    kills: int
    runs: int
    facts: int
    resumed: int
    in_doubt: int
    reconciled: int
    problems: tuple[str, ...]


def check(
    make_agent: str | Callable[[], Any],
    user_input: str,
    *,
    answers: Mapping[str, Any] | None = None,
    moments: tuple[str, ...] = ("before", "after"),
    random_kills: int = 0,
    deaths: int = 1,
    same_output: bool = True,
    life_seconds: float = 60.0,
    timeout: float = 600.0,
) -> Report:
    """Raises `CrashCheckFailed` with every broken promise; else tells what was tried.

    `answers`: what to answer to questions whose key starts so; by default `approve:` is "yes" and `in-doubt:` is "skip".
    `random_kills`: so many more deaths, at random times. `deaths=2`: the life after a death dies too. `same_output=False`:
    for a model that never answers twice alike. `life_seconds`: a process that takes longer hangs.

    What it cannot see: an effect that a tool does not declare, an `undo` that undoes nothing.
    """
    order = {
        "target": _spec(make_agent),
        "input": user_input,
        "answers": {**_ANSWERS, **(answers or {})},
        "moments": list(moments),
        "random_kills": random_kills,
        "deaths": deaths,
        "life": life_seconds,
        "same_output": same_output,
    }
    return _carry_out("kaname.testing.crash_worker", order, timeout)


def check_shared(
    make_agent: str | Callable[[], Any],
    user_input: str,
    *,
    kills: int = 100,
    lanes: int = 2,
    longest: float = 0.4,
    seed: int = 0,
    answers: Mapping[str, Any] | None = None,
    timeout: float = 600.0,
) -> Report:
    """The same promises where several processes share one journal, each killed at a uniformly random time.

    Each of the `lanes` forks one process after the other; each process takes up what the one before left, begins runs of its
    own, and looks at the others' as `kaname runs` does. It lives `longest` seconds at most; some leave cleanly before that.
    At the end everything is finished in peace and held against what the journal had acknowledged.
    """
    order = {
        "target": _spec(make_agent),
        "input": user_input,
        "answers": {**_ANSWERS, **(answers or {})},
        "kills": kills,
        "lanes": lanes,
        "longest": longest,
        "life": 60.0,
        "seed": seed,
    }
    return _carry_out("kaname.testing.crash_lanes", order, timeout)


def _carry_out(worker_module: str, order: dict[str, Any], timeout: float) -> Report:
    if not hasattr(os, "fork"):
        raise ConfigError(
            notice("testing.fork", "the crash check needs a system that can fork a process, such as Linux or macOS")
        )
    with tempfile.TemporaryDirectory(prefix="kaname-crash-") as folder:
        order |= {"folder": folder, "path": [entry or os.getcwd() for entry in sys.path]}
        worker = subprocess.Popen(
            [sys.executable, "-m", worker_module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            told_by_it, _ = worker.communicate(json.dumps(order), timeout)
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)  # with the lives that it forked
            worker.communicate()
            raise CrashCheckFailed(f"not done after {timeout:g} s: give it more with timeout=…") from None
        outcome = Path(folder) / "report.json"
        if worker.returncode != 0 or not outcome.exists():
            raise CrashCheckFailed(f"the check could not be carried out:\n{told_by_it[-4000:]}")
        told = json.loads(outcome.read_text())
        report = Report(**{**told, "problems": tuple(told["problems"])})
    if report.problems:
        listed = "\n".join([f"- {problem}" for problem in report.problems[:20]])
        raise CrashCheckFailed(f"{len(report.problems)} broken promises in {report.kills} kills:\n{listed}")
    return report


def _spec(make_agent: str | Callable[[], Any]) -> str:
    if isinstance(make_agent, str):
        return make_agent
    name = make_agent.__qualname__
    if "<" in name or "." in name:
        raise ConfigError(
            notice(
                "testing.import_",
                "{name} cannot be imported by another process; use a function at the top of a module",
                name=name,
            )
        )
    module = make_agent.__module__
    return f"{inspect.getfile(make_agent) if module == '__main__' else module}:{name}"
