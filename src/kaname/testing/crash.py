"""Kill an agent at every fact, and check that nothing is lost and nothing irreversible happens twice.

    from kaname.testing import crash

    def test_my_agent_survives():
        crash.check("my_app:make_agent", "Pay invoice 42")

Real processes are killed with SIGKILL: right before each fact, right after each fact, and at random times. Each run is then
resumed by a new process and compared with an undisturbed run. `make_agent` takes no arguments; its journal is replaced by a
SQLite file of the check, or by a schema in a PostgreSQL database. `KANAME_CRASH_FOLDER` names a folder where the tools of one
run can keep their data. The model should give the same answer to the same messages, as `ScriptedModel` does.
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
from ..core.record import record

_ANSWERS = {"approve:": "yes", "in-doubt:": "skip"}


class CrashCheckFailed(AssertionError):
    """The crash check has found broken promises. The message lists all of them."""


@record
class Report:
    """The result of a crash check.

    `kills`: processes that were killed. `runs`: runs that were started. `facts`: facts of the undisturbed run. `resumed`: how
    often a run was resumed. `in_doubt`: questions about interrupted calls, which were asked instead of repeating the call.
    `reconciled`: calls of `reconcile`. `problems`: broken promises.
    """

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
    journal: str = "",
) -> Report:
    """Kill an agent at every fact, resume it, and compare the result with an undisturbed run.

    The check cannot see an effect that a tool does not declare, or an `undo` that undoes nothing.

    Args:
        make_agent: A function without arguments that returns the agent, or its place ("my_app:make_agent").
        user_input: The task.
        answers: Answers to questions, by the beginning of their key. Default: "yes" to `approve:`, "skip" to `in-doubt:`.
        moments: When the process is killed: "before" a fact is written, "after" it, or both (default).
        random_kills: How many more processes are killed at random times (default: 0).
        deaths: How often a run is killed (default: 1). With 2, the process that resumes it is killed, too.
        same_output: Compare the output (default: True). Pass False for a model that answers differently each time.
        life_seconds: How long one process can take before it counts as hanging (default: 60).
        timeout: How many seconds the whole check can take (default: 600).
        journal: The URL of a PostgreSQL database, instead of SQLite files. Use a short `ttl`, such as 0.6.

    Returns:
        A `Report` of what was tried.

    Raises:
        CrashCheckFailed: If a promise was broken. The message lists all of them.
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
        "journal": journal,
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
    journal: str = "",
) -> Report:
    """Check the same promises with several processes on one journal, each killed at a random time.

    Each lane starts one process after the other. A process resumes the runs that the one before left, starts runs of its own,
    and reads the runs of the others as `kaname runs` does. Some end in order before they are killed. At the end all runs are
    finished undisturbed, and the journal is compared with the facts that it had acknowledged.

    Args:
        make_agent: A function without arguments that returns the agent, or its place ("my_app:make_agent").
        user_input: The task.
        kills: How many processes are killed (default: 100).
        lanes: How many processes run at the same time (default: 2).
        longest: How many seconds a process can live (default: 0.4).
        seed: The seed of the random times.
        answers: Answers to questions, as in `check`.
        timeout: How many seconds the whole check can take (default: 600).
        journal: The URL of a PostgreSQL database, instead of SQLite files. Use a short `ttl`, such as 0.6.

    Returns:
        A `Report` of what was tried.

    Raises:
        CrashCheckFailed: If a promise was broken. The message lists all of them.
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
        "journal": journal,
    }
    return _carry_out("kaname.testing.crash_lanes", order, timeout)


def _carry_out(worker_module: str, order: dict[str, Any], timeout: float) -> Report:
    if not hasattr(os, "fork"):
        raise ConfigError.of("testing.fork", "the crash check needs a system that can fork a process, such as Linux or macOS")
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
        raise ConfigError.of(
            "testing.import_",
            "{name} cannot be imported by another process; use a function at the top level of a module",
            name=name,
        )
    module = make_agent.__module__
    return f"{inspect.getfile(make_agent) if module == '__main__' else module}:{name}"
